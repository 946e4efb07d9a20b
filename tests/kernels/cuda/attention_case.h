// tests/kernels/cuda/attention_case.h: attention over pages on a device, for the last rows of some sequences, compared
// with the definition's bits.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/step_lists.h"
#include "reference/ops/attention.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cuda {

// The result of Device::round_rows for these rows.
inline std::vector<uint32_t> rounded_pairs(const std::vector<float>& x, int64_t width) {
    const int64_t num_rows = std::ssize(x) / width;
    std::vector<uint32_t> pairs(static_cast<size_t>(num_rows * row_pairs_of(width)));
    for (int64_t row = 0; row < num_rows; ++row) {
        for (int64_t i = 0; i < width; ++i) {
            pairs[row * row_pairs_of(width) + i / 2] |= uint32_t{reference::round_to_bf16(x[row * width + i])}
                                                        << (i % 2 * 16);
        }
    }
    return pairs;
}

// Rows [first_position, first_position + num_rows) of a sequence attend.
struct AttendingRows {
    int64_t first_position, num_rows;
    [[nodiscard]] int64_t end() const { return first_position + num_rows; }
};
struct AttentionCaseShape {
    int64_t n_heads, n_kv_heads, head_dim;
    int32_t block_size;
    std::vector<AttendingRows> sequences;
};

class AttentionCase {
public:
    AttentionCase(Device& device, AttentionCaseShape shape, reference::Values kind = reference::Values::kNormal)
        : shape_(std::move(shape)), device_(device) {
        for (size_t i = 0; i < shape_.sequences.size(); ++i) {
            const int64_t length = shape_.sequences[i].end();
            q_.push_back(reference::draw_values(shape_.sequences[i].num_rows * q_width(), 3 * i + 1, kind));
            k_.push_back(reference::draw_values(length * kv_width(), 3 * i + 2, kind));
            v_.push_back(reference::draw_values(length * kv_width(), 3 * i + 3, kind));
        }
    }

    // Sets a sequence's V at a position, for all heads.
    void set_value(size_t sequence, int64_t position, float value) {
        std::fill_n(v_.at(sequence).begin() + position * kv_width(), kv_width(), value);
    }

    // Sets a sequence's K at a position, for all heads.
    void set_key(size_t sequence, int64_t position, float value) {
        std::fill_n(k_.at(sequence).begin() + position * kv_width(), kv_width(), value);
    }

    // With as many rows at once as the shape allows, or one by one. The first output that differs from the
    // definition's, or "".
    std::string difference(reference::Profile profile, bool together = true) {
        const std::vector<float> got = computed(profile, together);
        const std::vector<float> want = defined(profile);
        if (const Status done = device_.synchronize(); !done) return done.error().message;
        for (size_t i = 0; i < want.size(); ++i) {
            const bool both_nan = std::isnan(got[i]) && std::isnan(want[i]);
            if (both_nan || reference::bits_from_float(got[i]) == reference::bits_from_float(want[i])) continue;
            const auto at = static_cast<int64_t>(i);
            return fmt::format("row {}, head {}, dim {}: got {}, want {}", at / q_width(),
                               at % q_width() / shape_.head_dim, at % shape_.head_dim, got[i], want[i]);
        }
        return "";
    }

private:
    [[nodiscard]] int64_t q_width() const { return shape_.n_heads * shape_.head_dim; }
    [[nodiscard]] int64_t kv_width() const { return shape_.n_kv_heads * shape_.head_dim; }
    [[nodiscard]] AttentionShape attention() const {
        return {shape_.n_heads, shape_.n_kv_heads, shape_.head_dim, 0.3F};
    }
    static std::vector<float> joined(const std::vector<std::vector<float>>& parts) {
        std::vector<float> all;
        for (const std::vector<float>& part : parts) all.insert(all.end(), part.begin(), part.end());
        return all;
    }

    // The lists of a step that computes these rows of each sequence; a block table has the last block first.
    void describe(const std::vector<AttendingRows>& rows, StepLists& lists) const {
        std::vector<reference::WalkSequence> parts;
        std::vector<PooledSequence> sequences;
        std::vector<std::vector<BlockId>> tables;
        int32_t num_rows = 0;
        int32_t num_blocks = 0;
        for (const AttendingRows& part : rows) {
            parts.push_back({num_rows, static_cast<int32_t>(part.num_rows), part.first_position});
            num_rows += static_cast<int32_t>(part.num_rows);
            std::vector<BlockId>& table = tables.emplace_back();
            for (int64_t i = 0; i < part.end(); i += shape_.block_size) {
                table.insert(table.begin(), BlockId{num_blocks++});
            }
        }
        for (const std::vector<BlockId>& table : tables)
            sequences.push_back({.slot = SequenceSlot{0}, .blocks = table});
        const std::vector<TokenId> tokens(static_cast<size_t>(num_rows));
        StateLog nothing_logged(device_, {}, 0);
        lists.describe({.batch = {tokens, parts, {}}, .sequences = sequences}, nothing_logged, false);
        lists.upload();
    }

    std::vector<float> computed(reference::Profile profile, bool together) {
        int64_t num_blocks = 0;
        std::vector<AttendingRows> whole;
        for (const AttendingRows& part : shape_.sequences) {
            num_blocks += (part.end() + shape_.block_size - 1) / shape_.block_size;
            whole.push_back({0, part.end()});
        }
        const int64_t slots = num_blocks * shape_.n_kv_heads * shape_.block_size;
        const DeviceArray<uint32_t> k_pages(device_, slots * ((shape_.head_dim + 1) / 2));
        const DeviceArray<uint16_t> v_pages(device_, slots * shape_.head_dim);
        const DevicePages pages{k_pages.data(),    v_pages.data(),    num_blocks,
                                shape_.block_size, shape_.n_kv_heads, shape_.head_dim};
        StepLists stored(device_, 1, 1, false);
        describe(whole, stored);
        const auto rows = [](const DeviceArray<float>& x, int64_t width) {
            return Floats{x.data(), x.count() / width, width, width};
        };
        const DeviceArray<float> k(device_, std::span<const float>(joined(k_)));
        const DeviceArray<float> v(device_, std::span<const float>(joined(v_)));
        device_.store_kv(stored.batch(), rows(k, kv_width()), rows(v, kv_width()), pages);
        const bool has_tiles = together && device_.attends_by_tiles(profile, attention(), shape_.block_size);
        StepLists attending(device_, 1, together ? attend_rows(attention()) : 1, has_tiles);
        describe(shape_.sequences, attending);
        DeviceBatch batch = attending.batch();
        batch.max_runs = attending.first_runs.values.back();
        const DeviceArray<float> q(device_, std::span<const float>(joined(q_)));
        const DeviceArray<float> out(device_, q.count());
        const DeviceArray<float> workspace(device_, attention_floats(batch.max_runs, attention()));
        const DeviceArray<uint32_t> pairs(device_, out.count() / q_width() * row_pairs_of(q_width()));
        device_.attention(profile, batch, attention(), rows(q, q_width()), pages, workspace.data(),
                          rows(out, q_width()), pairs.data());
        std::vector<float> got(static_cast<size_t>(out.count()));
        out.download(0, got);
        std::vector<uint32_t> got_pairs(static_cast<size_t>(pairs.count()));
        pairs.download(0, got_pairs);
        EXPECT_EQ(got_pairs, rounded_pairs(got, q_width()));
        return got;
    }

    [[nodiscard]] std::vector<float> defined(reference::Profile profile) const {
        const auto rounded = [](const std::vector<float>& values) {
            std::vector<uint16_t> bits;
            for (const float value : values) bits.push_back(reference::round_to_bf16(value));
            return bits;
        };
        std::vector<std::vector<float>> outs;
        for (size_t i = 0; i < shape_.sequences.size(); ++i) {
            const AttendingRows& part = shape_.sequences[i];
            const auto k = rounded(k_[i]);
            const auto v = rounded(v_[i]);
            std::vector<float>& out = outs.emplace_back(q_[i].size());
            reference::attention({.first_position = part.first_position,
                                  .n_heads = shape_.n_heads,
                                  .n_kv_heads = shape_.n_kv_heads,
                                  .head_dim = shape_.head_dim,
                                  .scale = attention().scale,
                                  .profile = profile,
                                  .q = reference::dense_rows<const float>(q_[i].data(), part.num_rows, q_width()),
                                  .k = reference::dense_rows<const uint16_t>(k.data(), part.end(), kv_width()),
                                  .v = reference::dense_rows<const uint16_t>(v.data(), part.end(), kv_width()),
                                  .out = reference::dense_rows(out.data(), part.num_rows, q_width())});
        }
        return joined(outs);
    }

    AttentionCaseShape shape_;
    Device& device_;
    std::vector<std::vector<float>> q_, k_, v_;  // by sequence
};

}  // namespace verbatim::cuda
