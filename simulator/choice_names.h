// simulator/choice_names.h: what cache modes, eviction policies and weight formats are called.
#pragma once

#include <algorithm>
#include <string>

#include "engine/base/choices.h"
#include "simulator/eviction_policies.h"
#include "simulator/run.h"

namespace verbatim {

inline Choices<CacheMode> cache_mode_choices() {
    return {{"exact", CacheMode::kExact},
            {"prefix", CacheMode::kPrefix},
            {"attention", CacheMode::kAttention},
            {"block-aligned", CacheMode::kBlockAligned},
            {"none", CacheMode::kNone},
            {"vllm-align", CacheMode::kVllmAlign},
            {"sglang-radix", CacheMode::kSglangRadix},
            {"sglang-radix-pools", CacheMode::kSglangRadixPools},
            {"sglang-radix-no-buffer", CacheMode::kSglangRadixNoBuffer},
            {"marconi", CacheMode::kMarconi}};
}

// Without the policies of other engines, which run without times (rival_of()).
inline Choices<CacheMode> timed_cache_mode_choices() {
    Choices<CacheMode> choices = cache_mode_choices();
    std::erase_if(choices, [](const auto& choice) { return rival_of(choice.second).has_value(); });
    return choices;
}

inline std::string name_of(CacheMode mode) { return name_among(cache_mode_choices(), mode); }

inline Choices<WeightFormat> weight_format_choices() {
    return {{"bf16", WeightFormat::kBf16}, {"fp8", WeightFormat::kFp8},     {"int8", WeightFormat::kInt8},
            {"int4", WeightFormat::kInt4}, {"mxfp4", WeightFormat::kMxfp4}, {"nvfp4", WeightFormat::kNvfp4}};
}

// Of SimulateConfig::kv_value_bytes.
inline Choices<int32_t> kv_dtype_choices() { return {{"bf16", 2}, {"fp8", 1}}; }

inline std::string name_of(WeightFormat format) { return name_among(weight_format_choices(), format); }

inline Choices<Route> route_choices() {
    return {{"round-robin", Route::kRoundRobin},
            {"conversation", Route::kConversation},
            {"least-loaded", Route::kLeastLoaded},
            {"prefix-aware", Route::kPrefixAware},
            {"prefix-aware-dynamo", Route::kPrefixAwareDynamo},
            {"trace", Route::kTrace}};
}

inline Choices<EvictionChoice> eviction_choices() {
    return {{"value", EvictionChoice::kValue},
            {"lru", EvictionChoice::kLru},
            {"lfu", EvictionChoice::kLfu},
            {"size", EvictionChoice::kSize},
            {"flops", EvictionChoice::kFlops}};
}

inline std::string name_of(EvictionChoice eviction) { return name_among(eviction_choices(), eviction); }

}  // namespace verbatim
