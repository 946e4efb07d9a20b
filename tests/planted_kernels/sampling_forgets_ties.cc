// Calls itself fast, and takes the highest id among equals: a token has no tolerance.
#include <cstdint>

#include "tests/planted_kernels/planted.h"

namespace {

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_sampling& op = *run->args.sampling;
    for (int64_t r = 0; r < op.logits.num_rows; ++r) {
        const float* logits = op.logits.data + r * op.logits.stride;
        int32_t best = 0;
        for (int32_t id = 1; id < op.logits.width; ++id) {
            if (logits[id] >= logits[best]) best = id;
        }
        op.tokens[r] = best;
    }
    return 0;
}

}  // namespace

PLANTED_KERNEL("sampling", "fast", "cpu", run)
