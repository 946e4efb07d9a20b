// Every operation whose order of sums matters, by itself in the emulator: the bits of its definition at the shapes that
// small models do not have, in any order of threads.
#include <gtest/gtest.h>

#include <string>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/op_cases.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

class CudaOps : public testing::TestWithParam<simt::Schedule> {};

TEST_P(CudaOps, HaveTheBitsOfTheirDefinitions) {
    simt::Emulator emulator(GetParam(), 5);
    const auto device = make_emulated_device(emulator);
    expect_every_op(*device);
    EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
}

INSTANTIATE_TEST_SUITE_P(InAnyOrderOfThreads, CudaOps, testing::ValuesIn(schedules()),
                         [](const auto& order) { return name_of(order.param); });

}  // namespace
}  // namespace verbatim::cuda
