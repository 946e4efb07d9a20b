#include "kernels/cpu/ops/paged_attention.h"

#include <gtest/gtest.h>

#include "reference/ops/attention.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::bits_of;
using reference::dense_rows;
using reference::StateKind;
using reference::Values;

struct Shape {
    int64_t n_heads, n_kv_heads, head_dim;
    int32_t block_size;
    int64_t first_position, num_rows;
};

std::string name_of(Isa isa, Values kind, const Shape& s) {
    return fmt::format("{}, values {}, {}/{} heads of {}, blocks of {}, rows {} + {}", isa_name(isa),
                       static_cast<int>(kind), s.n_heads, s.n_kv_heads, s.head_dim, s.block_size, s.first_position,
                       s.num_rows);
}

reference::StateTensors one_layer(const Shape& shape) {
    const auto tensor = [&](StateKind kind) {
        return reference::StateTensor{
            0, kind, reference::StatePer::kToken, reference::StateDtype::kBf16, {shape.n_kv_heads, shape.head_dim}};
    };
    return reference::StateTensors({tensor(StateKind::kK), tensor(StateKind::kV)});
}

int64_t num_blocks_of(const Shape& shape) {
    return (shape.first_position + shape.num_rows + shape.block_size - 1) / shape.block_size;
}

// Stores every position; the table has the last block first.
std::vector<BlockId> fill(const Shape& shape, const std::vector<float>& k, const std::vector<float>& v, PagedKv& kv) {
    const int64_t num_blocks = num_blocks_of(shape);
    std::vector<BlockId> blocks;
    for (int64_t i = 0; i < num_blocks; ++i) blocks.push_back(BlockId{static_cast<int32_t>(num_blocks - 1 - i)});
    for (int64_t p = 0; p < shape.first_position + shape.num_rows; ++p) {
        for (int64_t head = 0; head < shape.n_kv_heads; ++head) {
            const int64_t at = (p * shape.n_kv_heads + head) * shape.head_dim;
            kv.store(0, blocks[p / shape.block_size], static_cast<int32_t>(p % shape.block_size), head, &k[at], &v[at]);
        }
    }
    return blocks;
}

std::vector<uint16_t> rounded(const std::vector<float>& values) {
    std::vector<uint16_t> bits;
    for (const float value : values) bits.push_back(reference::round_to_bf16(value));
    return bits;
}

void expect_definition(Isa isa, Values kind, const Shape& shape) {
    const int64_t length = shape.first_position + shape.num_rows;
    const int64_t kv_width = shape.n_kv_heads * shape.head_dim;
    const int64_t q_width = shape.n_heads * shape.head_dim;
    const auto k = reference::draw_values(length * kv_width, 1, kind);
    const auto v = reference::draw_values(length * kv_width, 2, kind);
    const auto q = reference::draw_values(shape.num_rows * q_width, 3, kind);
    PagedKv kv(one_layer(shape), shape.block_size, static_cast<int32_t>(num_blocks_of(shape)));
    const auto blocks = fill(shape, k, v, kv);
    const auto k_bits = rounded(k);
    const auto v_bits = rounded(v);
    std::vector<float> want(shape.num_rows * q_width);
    std::vector<float> got(shape.num_rows * q_width);
    const auto q_rows = dense_rows<const float>(q.data(), shape.num_rows, q_width);
    reference::attention({.first_position = shape.first_position,
                          .n_heads = shape.n_heads,
                          .n_kv_heads = shape.n_kv_heads,
                          .head_dim = shape.head_dim,
                          .scale = 0.3F,
                          .q = q_rows,
                          .k = dense_rows<const uint16_t>(k_bits.data(), length, kv_width),
                          .v = dense_rows<const uint16_t>(v_bits.data(), length, kv_width),
                          .out = dense_rows(want.data(), shape.num_rows, q_width)});
    const PagedAttentionArgs args{.layer = 0,
                                  .first_position = shape.first_position,
                                  .n_heads = shape.n_heads,
                                  .n_kv_heads = shape.n_kv_heads,
                                  .head_dim = shape.head_dim,
                                  .scale = 0.3F,
                                  .kv = &kv,
                                  .blocks = blocks,
                                  .q = q_rows,
                                  .out = dense_rows(got.data(), shape.num_rows, q_width)};
    constexpr int64_t kRows = 40;
    AttentionScratch scratch;
    scratch.reserve(args, kRows);
    for (int64_t head = 0; head < shape.n_kv_heads; ++head) {
        for (int64_t row = 0; row < shape.num_rows; row += kRows) {
            paged_attention(cpu_ops(isa), args, head, {row, std::min(row + kRows, shape.num_rows)}, scratch);
        }
    }
    ASSERT_EQ(bits_of(got), bits_of(want)) << name_of(isa, kind, shape);
}

TEST(PagedAttention, EveryInstructionSetAndBlockSizeHasTheBitsOfTheDefinition) {
    const Shape shapes[] = {{1, 1, 1, 16, 0, 3},    {2, 1, 7, 1, 0, 70},      {4, 2, 16, 3, 60, 9},
                            {3, 3, 20, 16, 0, 130}, {6, 2, 64, 16, 510, 5},   {2, 2, 80, 20, 127, 3},
                            {4, 1, 33, 32, 63, 2},  {8, 2, 128, 64, 1000, 1}, {1, 1, 258, 16, 30, 4},
                            {2, 1, 65, 5, 600, 2}};
    for (const Isa isa : supported_isas()) {
        for (const Values kind : {Values::kNormal, Values::kTiny, Values::kCancelling}) {
            for (const Shape& shape : shapes) expect_definition(isa, kind, shape);
        }
    }
}

TEST(PagedKv, ReadsBackWhatWasStoredInLogicalOrder) {
    const Shape shape{4, 2, 5, 3, 0, 1};
    const reference::StateTensors tensors = one_layer(shape);
    PagedKv kv(tensors, 3, 2);
    const auto values = reference::draw_values(2 * 3 * 2 * 5 * 2, 1);
    std::vector<std::vector<float>> k, v;
    for (int64_t i = 0; i < 12; ++i) {  // [block, slot, head]
        k.emplace_back(values.begin() + i * 5, values.begin() + i * 5 + 5);
        v.emplace_back(values.begin() + 60 + i * 5, values.begin() + 60 + i * 5 + 5);
        kv.store(0, BlockId{static_cast<int32_t>(i / 6)}, static_cast<int32_t>(i / 2 % 3), i % 2, k.back().data(),
                 v.back().data());
    }
    const auto expect = [&](int32_t block, int32_t slot, int32_t from_block) {
        std::vector<uint16_t> row(10);
        for (const bool is_k : {true, false}) {
            kv.read(tensors[is_k ? 0 : 1], BlockId{block}, slot, std::as_writable_bytes(std::span(row)));
            for (int64_t i = 0; i < 10; ++i) {
                const auto& stored = (is_k ? k : v)[(from_block * 3 + slot) * 2 + i / 5];
                EXPECT_EQ(row[i], reference::round_to_bf16(stored[i % 5])) << block << " " << slot << " " << i;
            }
        }
    };
    for (int32_t slot = 0; slot < 3; ++slot) expect(0, slot, 0);
    for (int32_t slot = 0; slot < 3; ++slot) expect(1, slot, 1);
    // A tail copy takes the valid slots and leaves the others as they were.
    kv.copy({BlockId{0}, BlockId{1}, 1});
    expect(1, 0, 0);
    expect(1, 1, 1);
    expect(1, 2, 1);
}

}  // namespace
}  // namespace verbatim::cpu
