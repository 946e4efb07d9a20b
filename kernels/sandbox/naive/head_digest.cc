// The plain loops of head_digest, as `verbatim kernel list --contract head_digest` defines it: correct and slow.
#include <cstdint>
#include <cstring>

#include "kernels/sandbox/kernel.h"
#include "reference/numerics/element_sum.h"

namespace {

using verbatim::reference::ElementSum;

uint32_t bits_of(const verbatim_head_digest& op, int64_t r, int64_t i) {
    const auto* elements = static_cast<const unsigned char*>(op.elements);
    uint32_t bits = 0;
    std::memcpy(&bits, elements + (r * op.stride + i) * op.element_bytes, op.element_bytes);
    return bits;
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_head_digest& op = *run->args.head_digest;
    for (int64_t r = 0; r < op.num_rows; ++r) {
        const int64_t first = op.first_index != nullptr ? op.first_index[r] : 0;
        ElementSum sum;
        for (int64_t i = 0; i < op.width; ++i) sum.add(first + i, bits_of(op, r, i));
        op.sums[2 * r] = sum.low;
        op.sums[2 * r + 1] = sum.high;
    }
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "head_digest",
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
