// tests/kernels/cpu/panel_products.h: compares products with packed panels of weights in blocks, in every instruction
// set, with the plain loop of their profile.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "reference/ops/rows.h"

namespace verbatim::tests {

struct PanelProduct {
    int64_t rows = 0;
    int64_t outputs = 0;
    int64_t num_k = 0;
    bool bias = false;
};

// How a profile packs weights and multiplies them.
struct PanelProfile {
    reference::Profile profile;
    int64_t (*bytes_of)(const reference::MatrixView& weight);
    void (*pack)(const reference::MatrixView& weight, int64_t panel, std::byte* out);
    PackedMatrix (*packed)(reference::MatrixView weight, const std::byte* panels);
    bool (*holds)(cpu::RowForm form);
    void (*define)(reference::ConstFloatRows x, const reference::MatrixView& weight, const float* bias,
                   float in_multiplier, reference::FloatRows out);
};

class PanelProducts {
protected:
    PanelProducts(const PanelProfile& profile, uint64_t seed) : random_(seed), profile_(profile) {}

    std::vector<float> normal(int64_t count) {
        std::normal_distribution<float> distribution;
        std::vector<float> values(static_cast<size_t>(count));
        for (float& value : values) value = distribution(random_);
        return values;
    }
    // Of a weight with these blocks. NaN has no fixed bits.
    void expect_equal_products(const PanelProduct& product, const std::vector<float>& x, reference::MatrixView weight,
                               std::vector<std::byte> blocks) {
        constexpr float kInMultiplier = 0.5F;
        weight.blocks = blocks.data();
        const std::vector<float> bias = normal(product.outputs);
        const float* added = product.bias ? bias.data() : nullptr;
        const reference::ConstFloatRows rows{x.data(), product.rows, product.num_k, product.num_k};
        std::vector<float> wanted(static_cast<size_t>(product.rows * product.outputs));
        profile_.define(rows, weight, added, kInMultiplier,
                        reference::dense_rows(wanted.data(), product.rows, product.outputs));
        cpu::AlignedArray<std::byte> panels(profile_.bytes_of(weight));
        const PackedMatrix matrix = profile_.packed(weight, panels.data());
        for (int64_t i = 0; i < matrix.num_panels(); ++i)
            profile_.pack(weight, i, panels.data() + i * panels.size() / matrix.num_panels());
        std::ranges::fill(blocks, std::byte{0xFF});  // the products are those of the panels alone
        for (const cpu::Isa isa : cpu::supported_isas()) {
            const cpu::CpuOps& ops = cpu_ops(isa, profile_.profile);
            const cpu::MatmulLoop loop{.ops = &ops};
            const cpu::RowForm form = row_form(loop, matrix, rows.num_rows);
            ASSERT_TRUE(profile_.holds(form));
            cpu::AlignedArray<float> floats((rows.num_rows + cpu::kMaxBandRows) * rows.width);
            const cpu::RoundedRows rounded =
                round_rows(*ops.rows, form, rows, cpu::row_factors(matrix, kInMultiplier), floats.data(), nullptr);
            std::vector<float> got(wanted.size());
            for (int64_t panel = 0; panel < matrix.num_panels(); ++panel)
                multiply_panel(loop, matrix, added, rounded, panel, nullptr,
                               reference::dense_rows(got.data(), rows.num_rows, matrix.num_outputs()));
            for (size_t i = 0; i < got.size(); ++i) {
                if (std::isnan(wanted[i]))
                    ASSERT_TRUE(std::isnan(got[i])) << isa_name(isa) << ", " << product.rows << " rows, " << i;
                else
                    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(wanted[i]))
                        << isa_name(isa) << ", " << product.rows << " rows, " << i << ": " << got[i] << ", "
                        << wanted[i];
            }
        }
    }
    std::mt19937_64 random_;

private:
    const PanelProfile& profile_;
};

}  // namespace verbatim::tests
