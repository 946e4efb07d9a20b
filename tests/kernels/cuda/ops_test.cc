// Every operation whose order of sums matters, by itself in the emulator: the bits of its definition at the shapes that small models do
// not have, in any order of threads.
#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

TEST(CudaOps, HaveTheBitsOfTheirDefinitionsInAnyOrderOfThreads) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        expect_every_op(*device);
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

}  // namespace
}  // namespace verbatim::cuda
