// kernels/cpu/ops/router.h: owns the router's packed weights on the CPU, and the choice of a row's experts.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/aligned_array.h"
#include "reference/model/weights.h"

namespace verbatim::cpu {

inline constexpr int64_t kRouterLanes = 64;  // experts per panel

// [ceil(n_experts / 64)][hidden, even][64] into `out`, zeros elsewhere.
void pack_router(reference::VectorView router, int64_t n_experts, int64_t hidden, AlignedArray<float>& out);

// Buffers of a choice; reused, so only the first choice allocates.
struct ChoiceScratch {
    std::vector<float> scores;       // s
    std::vector<float> choice;       // c; `taken` marks chosen experts
    std::vector<uint8_t> taken;      // [n_experts] or groups
    std::vector<float> group_score;  // [n_groups]
};

// reference/ops/router.h's choose(), one row: out = ids, ascending, then weights.
void choose_row(const reference::MoeConfig& moe, const float* logits, const float* choice_bias, ChoiceScratch& scratch,
                float* out);

}  // namespace verbatim::cpu
