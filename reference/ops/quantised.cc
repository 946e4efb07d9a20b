#include "reference/ops/quantised.h"

#include <vector>

#include "reference/numerics/bf16.h"
#include "reference/ops/matmul.h"

namespace verbatim::reference {
namespace {

void check_blocks(const BlockRows& rows, int64_t num_columns) {
    CHECK(rows.format != nullptr && rows.blocks != nullptr, "a matrix without blocks");
    CHECK_EQ(num_columns % rows.format->num_weights, 0);
}

}  // namespace

void BlockRows::read(int64_t r, std::span<float> values) const {
    const int64_t row_bytes = format->row_bytes(static_cast<int64_t>(values.size()));
    dequantise(*format, {blocks + r * row_bytes, static_cast<size_t>(row_bytes)}, values);
}

void check(const QuantisedMatmulArgs& args) {
    CHECK_GT(args.x.width, 0);
    CHECK_GT(args.out.width, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_blocks(args.weight, args.x.width);
    check_pointer(args.bias, 0);
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "a matmul cannot write what it reads");
}

void quantised_matmul(const QuantisedMatmulArgs& args) {
    check(args);
    const int64_t num_k = args.x.width;
    std::vector<float> a(static_cast<size_t>(args.x.num_rows * num_k));
    for (int64_t m = 0; m < args.x.num_rows; ++m)
        for (int64_t k = 0; k < num_k; ++k) a[m * num_k + k] = bf16_value(args.x.row(m)[k] * args.in_multiplier);
    std::vector<float> w(static_cast<size_t>(num_k));
    for (int64_t n = 0; n < args.out.width; ++n) {
        args.weight.read(n, w);
        for (int64_t m = 0; m < args.x.num_rows; ++m) {
            const float total = dot_n3_of_floats(&a[m * num_k], w.data(), num_k);
            args.out.row(m)[n] = args.bias != nullptr ? total + args.bias[n] : total;
        }
    }
}

void check(const QuantisedEmbeddingArgs& args) {
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.tokens, args.out.num_rows);
    check_blocks(args.table, args.out.width);
    for (int64_t r = 0; r < args.out.num_rows; ++r) {
        CHECK(args.tokens[r] >= 0 && args.tokens[r] < args.vocab_size, "token {} of row {}, vocabulary {}",
              args.tokens[r], r, args.vocab_size);
    }
}

void quantised_embedding(const QuantisedEmbeddingArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.out.num_rows; ++r) {
        float* out = args.out.row(r);
        args.table.read(args.tokens[r], {out, static_cast<size_t>(args.out.width)});
        for (int64_t i = 0; i < args.out.width; ++i) out[i] *= args.multiplier;
    }
}

}  // namespace verbatim::reference
