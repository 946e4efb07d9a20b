// tests/reference/families.h: the families of models, for tests that go through all of them.
#pragma once

#include "reference/model/model_config.h"

namespace verbatim::tests {

inline constexpr reference::Architecture kFamilies[] = {
    reference::Architecture::kGraniteHybrid, reference::Architecture::kLlama,    reference::Architecture::kBamba,
    reference::Architecture::kNemotronH,     reference::Architecture::kFalconH1, reference::Architecture::kMamba2};

}  // namespace verbatim::tests
