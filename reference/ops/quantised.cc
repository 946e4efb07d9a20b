#include "reference/ops/quantised.h"

#include <algorithm>
#include <span>
#include <vector>

#include "reference/ops/fp8_matmul.h"
#include "reference/ops/int8_matmul.h"
#include "reference/ops/matmul.h"

namespace verbatim::reference {
namespace {

void check_blocks(const MatrixView& matrix, int64_t rows, int64_t cols) {
    CHECK(matrix.format != nullptr && matrix.blocks != nullptr, "a matrix without blocks");
    CHECK_EQ(matrix.rows, rows);
    CHECK_EQ(matrix.cols, cols);
    CHECK_EQ(cols % matrix.format->num_weights, 0);
}

}  // namespace

void check(const QuantisedMatmulArgs& args) {
    CHECK_GT(args.x.width, 0);
    CHECK_GT(args.out.width, 0);
    check_rows(args.x, args.out.num_rows, args.x.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_blocks(args.weight, args.out.width, args.x.width);
    check_pointer(args.bias, 0);
    CHECK(args.x.data != args.out.data || args.out.num_rows == 0, "a matmul cannot write what it reads");
}

void quantised_matmul(const QuantisedMatmulArgs& args) {
    check(args);
    const int64_t num_k = args.x.width;
    // Rows of all of K: a block may be longer than what is left of a chunk.
    std::vector<float> rows(static_cast<size_t>(kDotOutputs * num_k));
    const auto read = [&](int64_t n, int64_t k, int64_t count, float* tile) {
        for (int64_t lane = 0; lane < std::min(kDotOutputs, args.out.width - n); ++lane) {
            const auto row = std::span(rows).subspan(static_cast<size_t>(lane * num_k), static_cast<size_t>(num_k));
            if (k == 0) args.weight.read_row(n + lane, row);
            for (int64_t i = 0; i < count; ++i) tile[i * kDotOutputs + lane] = row[static_cast<size_t>(k + i)];
        }
    };
    tiled_matmul({.x = args.x, .bias = args.bias, .in_multiplier = args.in_multiplier, .out = args.out, .read = read});
}

void check(const QuantisedEmbeddingArgs& args) {
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.tokens, args.out.num_rows);
    check_blocks(args.table, args.table.rows, args.out.width);
    for (int64_t r = 0; r < args.out.num_rows; ++r) {
        CHECK(args.tokens[r] >= 0 && args.tokens[r] < args.table.rows, "token {} of row {}, vocabulary {}",
              args.tokens[r], r, args.table.rows);
    }
}

void quantised_embedding(const QuantisedEmbeddingArgs& args) {
    check(args);
    for (int64_t r = 0; r < args.out.num_rows; ++r) {
        float* out = args.out.row(r);
        args.table.read_row(args.tokens[r], {out, static_cast<size_t>(args.out.width)});
        for (int64_t i = 0; i < args.out.width; ++i) out[i] *= args.multiplier;
    }
}

void linear(const LinearArgs& args) {
    const float* bias = args.bias.empty() ? nullptr : args.bias.data();
    if (!args.weight.is_quantised()) {
        return matmul({.x = args.x,
                       .weight = args.weight.data,
                       .bias = bias,
                       .in_multiplier = args.in_multiplier,
                       .profile = args.profile,
                       .out = args.out});
    }
    CHECK(takes_blocks(args.profile), "weights in blocks have no {} profile", name(args.profile));
    if (args.profile == Profile::kExactInt8 && find_integer_format(*args.weight.format) != nullptr) {
        return int8_matmul(
            {.x = args.x, .weight = args.weight, .bias = bias, .in_multiplier = args.in_multiplier, .out = args.out});
    }
    if (args.profile == Profile::kExactFp8 && args.weight.activations != Fp8Sharing::kNone) {
        return fp8_matmul(
            {.x = args.x, .weight = args.weight, .bias = bias, .in_multiplier = args.in_multiplier, .out = args.out});
    }
    quantised_matmul(
        {.x = args.x, .weight = args.weight, .bias = bias, .in_multiplier = args.in_multiplier, .out = args.out});
}

}  // namespace verbatim::reference
