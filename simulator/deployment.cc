#include "simulator/deployment.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "simulator/sharding.h"

namespace verbatim {
namespace {

constexpr int64_t kWindowValueBytes = 4;

double bytes_of(WeightFormat format) {
    switch (format) {
        case WeightFormat::kBf16: return 2;
        case WeightFormat::kFp8: return 1 + 4.0 / (128 * 128);
        case WeightFormat::kInt8: return 1;
        case WeightFormat::kInt4: return 0.5 + 2.0 / 128;
        case WeightFormat::kMxfp4: return 0.5 + 1.0 / 32;
        case WeightFormat::kNvfp4: return 0.5 + 1.0 / 16;
    }
    CHECK(false, "weight format {}", static_cast<int>(format));
}

ProductFormat product_format_of(WeightFormat format) {
    switch (format) {
        case WeightFormat::kFp8: return ProductFormat::kFp8;
        case WeightFormat::kNvfp4: return ProductFormat::kFp4;
        default: return ProductFormat::kBf16;
    }
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

FormatError format_error(WeightFormat format) {
    switch (format) {
        case WeightFormat::kBf16: return {};
        case WeightFormat::kFp8:
        case WeightFormat::kInt8: return {.fast = 0.7, .slow = 1.22};
        case WeightFormat::kInt4:
        case WeightFormat::kMxfp4:
        case WeightFormat::kNvfp4: return {.fast = 0.48, .slow = 1.27};
    }
    CHECK(false, "weight format {}", static_cast<int>(format));
}

ModelShape with_stored_weights(ModelShape model, const reference::StoredWeights& stored) {
    const auto per_value = [](int64_t bytes, int64_t values) {
        return static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, values));
    };
    const bool is_tied = model.embedding_parameters == 0;
    model.weight_value_bytes = per_value(stored.linear_bytes, linear_parameters(model));
    model.head_value_bytes = per_value(is_tied ? stored.embedding_bytes : stored.head_bytes, head_parameters(model));
    model.embedding_value_bytes = per_value(stored.embedding_bytes, model.embedding_parameters);
    model.weight_bytes = stored.num_bytes();
    model.stored = stored.types;
    return model;
}

ModelShape with_weight_format(ModelShape model, WeightFormat format) {
    if (format == WeightFormat::kBf16 && !model.stored.empty()) return model;
    model.stored.clear();
    const auto parameters = static_cast<double>(linear_parameters(model));
    const double saved = parameters * (model.weight_value_bytes - bytes_of(format));
    model.weight_bytes -= std::llround(saved);
    model.weight_value_bytes = bytes_of(format);
    model.products = product_format_of(format);
    return model;
}

ModelShape with_kv_values(ModelShape model, int32_t value_bytes) {
    CHECK(value_bytes == 1 || value_bytes == 2, "KV of {} bytes a value", value_bytes);
    if (value_bytes == 2) return model;
    model.kv_bytes_per_token = 0;
    for (KvShape& kv : model.kvs) {
        kv.bytes_per_token = kv.bytes_per_token / 2 * value_bytes;
        model.kv_bytes_per_token += kv.bytes_per_token * kv.count;
    }
    for (AttentionShape& attention : model.attentions) attention.kv_value_bytes = value_bytes;
    return model;
}

}  // namespace verbatim
