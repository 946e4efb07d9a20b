// The plain loops of sampling, as `verbatim kernel list --contract sampling` defines it: correct and slow.
#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/draw.h"

namespace {

using verbatim::reference::gumbel_noise;
using verbatim::reference::penalised_logit;
using verbatim::reference::sampling_mass;
using verbatim::reference::sampling_weight;

// Step 1.
void penalise(const verbatim_sampling& op, int64_t r, std::vector<float>& logits) {
    const verbatim_draw& draw = op.draws[r];
    std::map<int32_t, int64_t> times;
    for (int32_t i = 0; i < op.num_prompt[r]; ++i) times[op.prompt[r * op.max_prompt + i]];
    for (int32_t i = 0; i < op.num_generated[r]; ++i) ++times[op.generated[r * op.max_generated + i]];
    for (const auto& [id, count] : times) {
        logits[id] = penalised_logit(logits[id],
                                     {draw.repetition_penalty, draw.presence_penalty, draw.frequency_penalty}, count);
    }
}

// Steps 3 and 4: the kept ids.
std::vector<int32_t> kept(const verbatim_draw& draw, const std::vector<float>& logits) {
    std::vector<int32_t> ids(logits.size());
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    std::sort(ids.begin(), ids.end(),
              [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; });
    if (draw.top_k > 0 && static_cast<size_t>(draw.top_k) < ids.size()) ids.resize(draw.top_k);
    if (draw.top_p >= 1.0F) return ids;
    uint64_t total = 0;
    for (const int32_t id : ids) total += sampling_weight(logits[id], logits[ids[0]]);
    const uint64_t mass = sampling_mass(draw.top_p, total);
    uint64_t sum = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
        sum += sampling_weight(logits[ids[i]], logits[ids[0]]);
        if (sum >= mass) {
            ids.resize(i + 1);
            break;
        }
    }
    return ids;
}

int32_t sample(const verbatim_sampling& op, int64_t r) {
    const verbatim_draw& draw = op.draws[r];
    const float* from = op.logits.data + r * op.logits.stride;
    std::vector<float> logits(from, from + op.logits.width);
    penalise(op, r, logits);
    const auto first_greatest = [](const std::vector<float>& values) {
        return static_cast<int32_t>(std::max_element(values.begin(), values.end()) - values.begin());
    };
    if (draw.temperature == 0.0F) return first_greatest(logits);
    for (float& l : logits) l = l / draw.temperature;
    std::vector<int32_t> ids = kept(draw, logits);
    std::sort(ids.begin(), ids.end());
    std::vector<float> scores;
    for (const int32_t id : ids) scores.push_back(logits[id] + gumbel_noise(draw.seed, draw.position, id));
    return ids[first_greatest(scores)];
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    for (int64_t r = 0; r < op.logits.num_rows; ++r) op.tokens[r] = sample(op, r);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "sampling",
    .profile = "exact",
    .machine = "cpu",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
