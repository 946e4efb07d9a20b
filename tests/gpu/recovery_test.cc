// The state of a process after a device's error, on a real device. After a kernel's error CUDA promises work to a new
// process only; this test shows whether cudaDeviceReset is enough. tools/gpu-check runs each test in a separate
// process.
#include <gtest/gtest.h>

#include "kernels/cuda/gpu_device.h"
#include "tests/kernels/cuda/op_cases.h"

namespace verbatim::cuda {
namespace {

// On a fresh device, made after the failed one is destroyed.
void expect_work_on_a_fresh_device() {
    const auto device = make_gpu_device({.resets_after_errors = true});
    ASSERT_TRUE(device) << device.error().message;
    EXPECT_TRUE(norms_as_defined(**device, {3, 130, 2}, Values::kNormal));
}

TEST(GpuRecovery, AFreshDeviceWorksAfterOneThatFoundNoMemory) {
    auto device = make_gpu_device({.resets_after_errors = true});
    if (!device) GTEST_SKIP() << device.error().message;
    constexpr int64_t kTooMuch = int64_t{1} << 50;
    EXPECT_EQ(DeviceArray<uint16_t>(**device, kTooMuch).data(), nullptr);
    const Status done = (*device)->synchronize();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message.find("GPU: cudaMalloc of 2251799813685248 bytes: "), 0u) << done.error().message;
    device->reset();
    expect_work_on_a_fresh_device();
}

TEST(GpuRecovery, AFreshDeviceWorksAfterAReportedKernelError) {
    auto device = make_gpu_device({.resets_after_errors = true});
    if (!device) GTEST_SKIP() << device.error().message;
    (*device)->scale({reinterpret_cast<float*>(8), 1, 1, 1}, 2.0F);  // unallocated memory
    const Status done = (*device)->synchronize();
    ASSERT_FALSE(done);
    EXPECT_NE(done.error().message.find("scale over 1 x 1 x 1 blocks of 64 x 1 x 1"), std::string::npos)
        << done.error().message;
    device->reset();
    expect_work_on_a_fresh_device();
}

}  // namespace
}  // namespace verbatim::cuda
