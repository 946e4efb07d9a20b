// The plain loops of head_digest for CUDA, per `verbatim kernel list --contract head_digest`: correct and slow.
#include <cstdint>

#include "kernels/sandbox/cuda_kernel.h"
#include "reference/numerics/element_sum.h"

namespace {

namespace simt = verbatim::simt;
namespace sandbox = verbatim::sandbox;
using verbatim::reference::ElementSum;

// One thread per row; elements are words or halves of words.
template <typename Word>
struct HeadDigest {
    sandbox::RowsView<const Word> elements;
    simt::Global<const int64_t> first_index;
    bool has_first;
    simt::Global<uint64_t> sums;

    SIMT_FUNCTION void operator()() const {
        const int64_t row = sandbox::global_thread();
        if (row >= elements.num_rows) return;
        const int64_t first = has_first ? static_cast<int64_t>(first_index[row]) : 0;
        ElementSum sum;
        for (int64_t i = 0; i < elements.width; ++i) {
            sum.add(first + i, static_cast<uint32_t>(elements.data[elements.at(row, i)]));
        }
        sums[2 * row] = sum.low;
        sums[2 * row + 1] = sum.high;
    }
};

template <typename Word>
void launch_digest(const verbatim_run& run, const verbatim_head_digest& op) {
    const int32_t threads = sandbox::block_threads(run, 32);
    sandbox::launch(run, "head_digest", {sandbox::blocks_for(op.num_rows, threads)}, {threads},
                    HeadDigest<Word>{sandbox::rows_view(run, static_cast<const Word*>(op.elements), op.num_rows,
                                                        op.width, op.stride),
                                     sandbox::view(run, op.first_index, op.num_rows), op.first_index != nullptr,
                                     sandbox::view(run, op.sums, 2 * op.num_rows)});
}

int32_t run(const verbatim_kernel*, const verbatim_run* run) {
    const verbatim_head_digest& op = *run->args.head_digest;
    op.element_bytes == 2 ? launch_digest<uint16_t>(*run, op) : launch_digest<uint32_t>(*run, op);
    return 0;
}

const verbatim_kernel kKernel = {
    .abi = VERBATIM_KERNEL_ABI,
    .name = "naive",
    .operation = "head_digest",
    .profile = "exact",
    .machine = "cuda",
    .self = nullptr,
    .supports = nullptr,
    .workspace_bytes = nullptr,
    .packed_bytes = nullptr,
    .pack = nullptr,
    .run = run,
};

}  // namespace

VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) { return index == 0 ? &kKernel : nullptr; }
