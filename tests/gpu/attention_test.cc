// Attention on a GPU, where there is one, against the definition; in tensor.sm90 where it has that arithmetic. Skipped
// with the reason elsewhere.
#include <gtest/gtest.h>

#include <limits>

#include "kernels/cuda/gpu_device.h"
#include "tests/kernels/cuda/attention_case.h"

namespace verbatim::cuda {
namespace {

// Rows one by one and together, groups of heads of every kind, several runs, and a value that is not finite before the
// last rows.
void expect_definition(Device& device, reference::Profile profile) {
    const AttentionCaseShape shapes[] = {{1, 1, 5, 16, {{0, 21}, {60, 9}}},
                                         {40, 8, 64, 16, {{0, 300}, {1020, 40}, {2000, 1}}},
                                         {32, 8, 128, 16, {{100, 77}, {510, 7}, {3000, 1}}},
                                         {9, 3, 80, 8, {{500, 30}}},
                                         {16, 1, 256, 5, {{1500, 20}, {3, 1}}}};
    for (const AttentionCaseShape& shape : shapes) {
        for (const bool together : {false, true}) {
            AttentionCase one(device, shape);
            EXPECT_EQ(one.difference(profile, together), "");
            one.set_value(0, shape.sequences[0].end() - 2, std::numeric_limits<float>::infinity());
            EXPECT_EQ(one.difference(profile, together), "");
        }
    }
}

TEST(Gpu, AttentionHasTheBitsOfTheDefinition) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    expect_definition(**device, reference::Profile::kExact);
}

TEST(Gpu, AttentionOnTensorCoresHasTheBitsOfTheDefinition) {
    const auto device = make_gpu_device();
    if (!device) GTEST_SKIP() << device.error().message;
    const Status computes = (*device)->computes_in(reference::Profile::kTensorSm90);
    if (!computes) GTEST_SKIP() << computes.error().message;
    expect_definition(**device, reference::Profile::kTensorSm90);
}

}  // namespace
}  // namespace verbatim::cuda
