// tools/simulate/choices.h: what cache modes and eviction policies are called.
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
            {"none", CacheMode::kNone}};
}

inline Choices<EvictionChoice> eviction_choices() {
    return {{"value", EvictionChoice::kValue},
            {"lru", EvictionChoice::kLru},
            {"lfu", EvictionChoice::kLfu},
            {"size", EvictionChoice::kSize},
            {"flops", EvictionChoice::kFlops}};
}

template <typename T>
std::optional<T> choice_by_name(const Choices<T>& choices, const std::string& name) {
    const auto found = std::ranges::find(choices, name, &std::pair<std::string, T>::first);
    return found == choices.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace verbatim::tools
