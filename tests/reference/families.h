// tests/reference/families.h: the families of models, for tests that go through all of them.
#pragma once

#include "reference/model/model_config.h"

namespace verbatim::tests {

// Those whose operations all have a CUDA kernel and an entry in the sandbox.
inline constexpr reference::Architecture kSandboxFamilies[] = {
    reference::Architecture::kGraniteHybrid, reference::Architecture::kLlama,    reference::Architecture::kBamba,
    reference::Architecture::kNemotronH,     reference::Architecture::kFalconH1, reference::Architecture::kMamba2};

inline constexpr reference::Architecture kFamilies[] = {
    reference::Architecture::kGraniteHybrid, reference::Architecture::kLlama,    reference::Architecture::kBamba,
    reference::Architecture::kNemotronH,     reference::Architecture::kFalconH1, reference::Architecture::kMamba2,
    reference::Architecture::kQwen35};

}  // namespace verbatim::tests
