// The matmul's inner loop of every instruction set against NUMERICS N3's definition, bit by bit.
#include <gtest/gtest.h>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/ops/matmul.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::bf16_to_float;
using reference::bits_from_float;
using reference::Values;

struct Shape {
    int64_t num_rows, num_outputs, num_k;
};

std::string name_of(Isa isa, Values kind, const Shape& shape) {
    return fmt::format("{}, values {}, {} rows, {} outputs, K {}", isa_name(isa), static_cast<int>(kind),
                       shape.num_rows, shape.num_outputs, shape.num_k);
}

void expect_definition(Isa isa, Values kind, const Shape& shape) {
    const auto a = reference::draw_bf16(shape.num_rows * shape.num_k, 1, kind);
    const auto b = reference::draw_bf16(shape.num_outputs * shape.num_k, 2, kind);
    const PackedMatrix packed(reference::MatrixView{b.data(), shape.num_outputs, shape.num_k});
    const int64_t pairs = num_pairs(shape.num_k);
    std::vector<float> floats(shape.num_rows * pairs * 2);
    std::vector<Pair> words(shape.num_rows * pairs);
    for (int64_t r = 0; r < shape.num_rows; ++r) {
        for (int64_t k = 0; k < shape.num_k; ++k) {
            const uint16_t bits = a[r * shape.num_k + k];
            floats[r * pairs * 2 + k] = bf16_to_float(bits);
            words[r * pairs + k / 2] |= Pair{bits} << (k % 2 * 16);
        }
    }
    std::vector<float> totals(shape.num_rows * kPanelOutputs, 77.0F);
    for (int64_t panel = 0; panel < packed.num_panels(); ++panel) {
        cpu_ops(isa).panel({{floats.data(), words.data(), shape.num_rows, pairs}, packed.panel(panel), totals.data()});
        for (int64_t r = 0; r < shape.num_rows; ++r) {
            for (int64_t lane = 0; lane < packed.outputs_in(panel); ++lane) {
                const int64_t n = panel * kPanelOutputs + lane;
                const float want = reference::dot_n3(&a[r * shape.num_k], &b[n * shape.num_k], shape.num_k);
                ASSERT_EQ(bits_from_float(totals[r * kPanelOutputs + lane]), bits_from_float(want))
                    << name_of(isa, kind, shape) << ": row " << r << " output " << n;
            }
        }
    }
}

TEST(Panel, EveryInstructionSetHasTheBitsOfTheDefinition) {
    const Shape shapes[] = {{1, 1, 1},     {1, 64, 2},  {2, 65, 255}, {3, 63, 256},  {4, 64, 257},
                            {5, 130, 600}, {6, 64, 64}, {7, 64, 513}, {13, 20, 768}, {129, 64, 33}};
    for (const Isa isa : supported_isas()) {
        for (const Values kind : reference::kAllValues) {
            for (const Shape& shape : shapes) expect_definition(isa, kind, shape);
        }
    }
}

TEST(Panel, PackingPadsWithZeros) {
    const std::vector<uint16_t> ones(3 * 5, 0x3F80);
    const PackedMatrix packed(reference::MatrixView{ones.data(), 3, 5});
    EXPECT_EQ(packed.num_panels(), 1);
    for (int64_t j = 0; j < 3; ++j) {
        for (int64_t lane = 0; lane < kPanelOutputs; ++lane) {
            const Pair want = lane >= 3 ? 0u : j == 2 ? 0x00003F80u : 0x3F803F80u;
            EXPECT_EQ(packed.panel(0)[j * kPanelOutputs + lane], want) << j << " " << lane;
        }
    }
}

TEST(Isa, TheFastestIsSupported) {
    const auto isas = supported_isas();
    EXPECT_EQ(isas.front(), Isa::kPortable);
    EXPECT_NE(std::find(isas.begin(), isas.end(), best_isa()), isas.end());
}

}  // namespace
}  // namespace verbatim::cpu
