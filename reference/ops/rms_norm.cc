#include "reference/ops/rms_norm.h"

#include "reference/numerics/math.h"

namespace verbatim::reference {

namespace {

float halve(float* partial) {
    for (int64_t half = kNormPartials / 2; half >= 1; half /= 2) {
        for (int64_t j = 0; j < half; ++j) partial[j] += partial[j + half];
    }
    return partial[0];
}

}  // namespace

VERBATIM_CLONES float sum_n4(const float* x, int64_t n) {
    float partial[kNormPartials] = {};
    const int64_t whole = n - n % kNormPartials;
    for (int64_t first = 0; first < whole; first += kNormPartials) {
        for (int64_t j = 0; j < kNormPartials; ++j) partial[j] += x[first + j];
    }
    for (int64_t i = whole; i < n; ++i) partial[i - whole] += x[i];
    return halve(partial);
}

VERBATIM_CLONES float sum_squares_n4(const float* x, int64_t n) {
    float partial[kNormPartials] = {};
    const int64_t whole = n - n % kNormPartials;
    for (int64_t first = 0; first < whole; first += kNormPartials) {
        for (int64_t j = 0; j < kNormPartials; ++j) partial[j] = fma_f32(x[first + j], x[first + j], partial[j]);
    }
    for (int64_t i = whole; i < n; ++i) partial[i - whole] = fma_f32(x[i], x[i], partial[i - whole]);
    return halve(partial);
}

void check(const RmsNormArgs& args) {
    CHECK_GT(args.x.width, 0);
    check_rows(args.x, args.out.num_rows, args.out.width);
    check_rows(args.out, args.out.num_rows, args.out.width);
    check_pointer(args.weight, args.x.width);
}

void rms_norm(const RmsNormArgs& args) {
    check(args);
    const int64_t n = args.x.width;
    for (int64_t r = 0; r < args.x.num_rows; ++r) {
        const float* x = args.x.row(r);
        float* out = args.out.row(r);
        const float mean = sum_squares_n4(x, n) / static_cast<float>(n);
        const float scale = 1.0F / sqrt_f32(mean + args.eps);
        for (int64_t i = 0; i < n; ++i) out[i] = (x[i] * scale) * args.weight[i];
    }
}

}  // namespace verbatim::reference
