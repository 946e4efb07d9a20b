// tests/reference/families.h: the model families, for tests that iterate over all of them.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>

#include "reference/model/model_config.h"
#include "reference/model/random_model.h"

namespace verbatim::tests {

// An architecture, or its variant with experts if only some of its models have them.
struct Family {
    reference::Architecture architecture = reference::Architecture::kLlama;
    bool has_experts = false;

    [[nodiscard]] reference::ModelConfig draw(uint64_t seed) const {
        return has_experts ? reference::draw_small_moe_config(architecture, seed)
                           : reference::draw_small_config(architecture, seed);
    }
    [[nodiscard]] std::string name() const {
        return std::string(reference::architecture_name(architecture)) + (has_experts ? "WithExperts" : "");
    }
};
inline void PrintTo(const Family& family, std::ostream* out) { *out << family.name(); }

// The families that the CPU and CUDA kernels support.
inline constexpr Family kAllFamilies[] = {
    {reference::Architecture::kGraniteHybrid},   {reference::Architecture::kLlama},
    {reference::Architecture::kBamba},           {reference::Architecture::kNemotronH},
    {reference::Architecture::kFalconH1},        {reference::Architecture::kMamba2},
    {reference::Architecture::kQwen35},          {reference::Architecture::kGraniteHybrid, true},
    {reference::Architecture::kNemotronH, true}, {reference::Architecture::kQwen35Moe}};

}  // namespace verbatim::tests
