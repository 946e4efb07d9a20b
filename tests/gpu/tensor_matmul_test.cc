// The matmuls of tensor.sm90 on a GPU, where there is one that has its arithmetic, against the integer model. Skipped
// with the reason elsewhere.
#include <gtest/gtest.h>

#include "kernels/cuda/gpu_device.h"
#include "tests/kernels/cuda/tensor_case.h"

namespace verbatim::cuda {
namespace {

// Every number of row tiles, chunks that are cut, and as few large blocks as a device with 132 processors takes.
TEST(Gpu, TensorMatmulsHaveTheBitsOfTheDefinition) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    const Status computes = (*device)->computes_in(reference::Profile::kTensorSm90);
    if (!computes) GTEST_SKIP() << computes.error().message;
    for (const TensorShape& shape : {TensorShape{1, 1, 1},
                                     {1, 70, 2050},
                                     {8, 130, 31},
                                     {9, 470, 1090},
                                     {17, 50, 5000},
                                     {33, 200, 1537},
                                     {129, 193, 100},
                                     {33, 13000, 530}}) {
        TensorCase one(**device, shape);
        for (const bool uses_warpgroups : {true, false}) {
            (*device)->use_warpgroups(uses_warpgroups);
            one.multiply();
            one.expect_bits_of_definition();
        }
    }
}

TEST(GpuSweep, LargeTensorMatmulsHaveTheBitsOfTheDefinition) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    const Status computes = (*device)->computes_in(reference::Profile::kTensorSm90);
    if (!computes) GTEST_SKIP() << computes.error().message;
    for (const TensorShape& shape : {TensorShape{500, 4000, 600}, {1030, 2050, 1025}}) {
        TensorCase one(**device, shape);
        for (const bool uses_warpgroups : {true, false}) {
            (*device)->use_warpgroups(uses_warpgroups);
            one.multiply();
            one.expect_bits_of_definition();
        }
    }
    for (const auto kind : {reference::Values::kTiny, reference::Values::kHuge, reference::Values::kCancelling}) {
        TensorCase few(**device, {5, 400, 2000}, kind);
        few.multiply();
        few.expect_bits_of_definition();
        TensorCase many(**device, {700, 3000, 700}, kind);
        for (const bool uses_warpgroups : {true, false}) {
            (*device)->use_warpgroups(uses_warpgroups);
            many.multiply();
            many.expect_bits_of_definition();
        }
    }
}

TEST(Gpu, FastMatmulsAreNearTheExactDots) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    const Status computes = (*device)->computes_in(reference::Profile::kFast);
    if (!computes) GTEST_SKIP() << computes.error().message;
    for (const TensorShape& shape : {TensorShape{3, 300, 2000}, {600, 3500, 600}}) {
        TensorCase one(**device, shape);
        one.multiply(reference::Profile::kFast);
        const Status done = (*device)->synchronize();
        ASSERT_TRUE(done) << done.error().message;
        const std::vector<float> got = one.computed();
        const std::vector<float> want = one.defined(reference::Profile::kExact);
        const auto k = static_cast<double>(shape.num_k);
        for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], k * (k / 16 + 1) * 0x1p-24) << i;
    }
}

}  // namespace
}  // namespace verbatim::cuda
