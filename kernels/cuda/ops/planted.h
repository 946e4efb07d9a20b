// kernels/cuda/ops/planted.h: faults that the emulated kernels can be told to have, so that a test can show that the
// emulator finds and names each. Under nvcc there are none.
#pragma once

#include <cstdint>

namespace verbatim::cuda {

enum class KernelBug : uint8_t {
    kNone,
    kMissingBarrier,       // the scan adds its chunks before they are there
    kBarrierInBranch,      // a norm's barrier, for half of its threads only
    kWrongMask,            // a norm's shuffle names lanes that do not take part
    kTileOffByOne,         // a matmul's stage has one row too many
    kUnalignedLoad,        // four weights at once from an odd place
    kReadPastPage,         // attention reads the position after the last visible one
    kUninitialisedShared,  // attention's sum over a tile leaves masked positions unwritten
    kStageTooEarly,        // a matmul brings its next stage where the last one is still being read
    kStageNotThere,        // a matmul of few rows reads a stage that other lanes have not brought yet
    kTwoWriters,           // two blocks of a conv write one channel
    kWarpOrderAssumed,     // a norm reads another lane's partial sum without a warp barrier
    kRedundantWriters,     // every thread of a channel writes the scan's y, not one of them
    kPaddingRead,          // the embedding reads a token beyond the batch
    kTensorNotAwaited,     // the tensor cores' matmul reads a stage before its copies have landed
    kTensorNoBarrier,      // it reads what other threads have copied without a barrier
    kTensorHalfWarp,       // it multiplies with half of a warp
    kTensorWrongLane,      // it takes its inputs' fragments from a neighbour's row: nothing but wrong bits
    kTensorUnseenValues,   // attention on tensor cores reads V of a position that nobody sees
    kValuesEarly,          // attention takes its sums before the other warps have left them
    kTensorLaterRow,       // and multiplies by V that only a later row sees: nothing but wrong bits
    kRunOfNobody,          // a row leaves a run that it does not see, in the next row's place
    kPenaltyOverrun,       // a row's penalties take the first token of the next row's
    kDrawNotAtomic,        // top-k and top-p add up what threads bring by reading and writing
    kDrawNotCleared,       // onto what is not cleared
    kDrawAnswerEarly,      // and read the digit that is found before it is there
    kDrawTailOverrun,      // the vocabulary's tail has one token too many
    kDrawHalfMask,         // the best of a warp, by shuffles that name only the lanes that matter
    kDrawWarpOnly,         // the best of two warps, with a warp's barrier between them
    kConvOtherSequence,    // a conv looks back at the rows of the sequence before: nothing but wrong bits
    kConvEachFirstRow,     // each of a sequence's first rows takes its window, not one thread for all
    kScanNotAwaited,       // the scan reads a tile before its copies have landed
    kScanTooFewTiles,      // a tile comes where x of the one before the last is still read
    kScanSnapshotLate,     // a snapshot is taken at its tile's end: nothing but wrong bits
    kSumNotCleared,        // a head's sums are added to what a block has not cleared yet
    kCount,
};

#if defined(__CUDACC__)
#define SIMT_BUG(bug) false
#else
inline KernelBug& planted_kernel_bug() {
    static KernelBug bug = KernelBug::kNone;
    return bug;
}
#define SIMT_BUG(bug) (::verbatim::cuda::planted_kernel_bug() == ::verbatim::cuda::KernelBug::bug)
#endif

}  // namespace verbatim::cuda
