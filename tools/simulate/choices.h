// tools/simulate/choices.h: what cache modes, eviction policies and weight formats are called.
#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "simulator/eviction_policies.h"
#include "tools/program/choice_option.h"
#include "tools/simulate/run.h"

namespace verbatim::tools {

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

inline std::string name_of(CacheMode mode) {
    const auto choices = cache_mode_choices();
    return std::ranges::find(choices, mode, &std::pair<std::string, CacheMode>::second)->first;
}

inline Choices<WeightFormat> weight_format_choices() {
    return {{"bf16", WeightFormat::kBf16},
            {"fp8", WeightFormat::kFp8},
            {"int8", WeightFormat::kInt8},
            {"int4", WeightFormat::kInt4}};
}

inline std::string name_of(WeightFormat format) {
    const auto choices = weight_format_choices();
    return std::ranges::find(choices, format, &std::pair<std::string, WeightFormat>::second)->first;
}

inline Choices<EvictionChoice> eviction_choices() {
    return {{"value", EvictionChoice::kValue},
            {"lru", EvictionChoice::kLru},
            {"lfu", EvictionChoice::kLfu},
            {"size", EvictionChoice::kSize},
            {"flops", EvictionChoice::kFlops}};
}

inline std::string name_of(EvictionChoice eviction) {
    const auto choices = eviction_choices();
    return std::ranges::find(choices, eviction, &std::pair<std::string, EvictionChoice>::second)->first;
}

template <typename T>
std::optional<T> choice_by_name(const Choices<T>& choices, const std::string& name) {
    const auto found = std::ranges::find(choices, name, &std::pair<std::string, T>::first);
    return found == choices.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace verbatim::tools
