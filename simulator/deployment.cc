#include "simulator/deployment.h"

#include <cmath>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int64_t kWindowValueBytes = 4;

double bytes_of(WeightFormat format) {
    switch (format) {
        case WeightFormat::kBf16: return 2;
        case WeightFormat::kFp8: return 1 + 4.0 / (128 * 128);
        case WeightFormat::kInt8: return 1;
        case WeightFormat::kInt4: return 0.5 + 2.0 / 128;
    }
    CHECK(false, "weight format {}", static_cast<int>(format));
}

int64_t linear_parameters(const ModelShape& model) {
    int64_t parameters = 0;
    for (const MatmulShape& matmul : model.matmuls)
        if (!matmul.on_logits) parameters += matmul.n * matmul.k * matmul.count;
    for (const ExpertsShape& experts : model.experts)
        parameters += experts.parameters() * experts.n_experts * experts.count;
    return parameters;
}

}  // namespace

ModelShape with_state_values(ModelShape model, int64_t value_bytes) {
    CHECK(value_bytes == 2 || value_bytes == 4, "states of {} bytes a value", value_bytes);
    model.state_value_bytes = value_bytes;
    model.state_bytes_per_row = 0;
    for (const StateShape& state : model.states) {
        model.state_bytes_per_row += (state.recurrent * value_bytes + state.window * kWindowValueBytes) * state.count;
    }
    return model;
}

ModelShape with_weight_format(ModelShape model, WeightFormat format) {
    const auto parameters = static_cast<double>(linear_parameters(model));
    const double saved = parameters * (model.weight_value_bytes - bytes_of(format));
    model.weight_bytes -= std::llround(saved);
    model.weight_value_bytes = bytes_of(format);
    return model;
}

}  // namespace verbatim
