// The emulated device's transfers: they land at the last legal moment, and what is under way stays as it is.
#include "kernels/cuda/emulated_device.h"

#include <gtest/gtest.h>

#include "kernels/cuda/device_array.h"

namespace verbatim::cuda {
namespace {

struct Transfers {
    Transfers() : device(make_emulated_device(emulator)), array(*device, 4), pinned(*device) {
        words = reinterpret_cast<int32_t*>(pinned.ensure(16));
        for (int i = 0; i < 4; ++i) words[i] = i;
    }
    simt::Emulator emulator;
    std::unique_ptr<Device> device;
    DeviceArray<int32_t> array;
    PinnedBytes pinned;
    int32_t* words;
};

TEST(DeviceArray, IsMovedRarelyWhenItGrowsSlowly) {
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator);
    DeviceArray<int32_t> array;
    for (int64_t count = 1; count <= 2000; ++count) {
        array.ensure(*device, count);
        EXPECT_GE(array.count(), count);
    }
    EXPECT_LE(device->counts().allocations, 20);
    EXPECT_LT(array.count(), 3000);
    const int64_t before = device->counts().allocations;
    array.ensure(*device, 1);
    EXPECT_EQ(device->counts().allocations, before);
}

TEST(EmulatedDevice, ADownloadIsIncompleteBeforeAWait) {
    Transfers transfers;
    transfers.array.upload(std::vector<int32_t>{5, 6, 7, 8});
    transfers.device->download_later(transfers.words, transfers.array.data(), 16);
    EXPECT_EQ(transfers.words[1], 1);
    EXPECT_TRUE(transfers.device->synchronize());
    EXPECT_EQ(transfers.words[1], 6);
}

TEST(EmulatedDeviceDeathTest, PinnedMemoryMayNotChangeDuringATransfer) {
    Transfers transfers;
    transfers.device->upload_later(transfers.array.data(), transfers.words, 16);
    transfers.words[2] = 77;
    EXPECT_DEATH((void)transfers.device->synchronize(), "pinned memory was written while it was on its way");
    transfers.words[2] = 2;
    EXPECT_TRUE(transfers.device->synchronize());
}

TEST(EmulatedDeviceDeathTest, NothingIsWaitedForOrAllocatedWhileAGraphIsRecorded) {
    Transfers transfers;
    transfers.device->begin_graph();
    EXPECT_DEATH((void)transfers.device->synchronize(), "waiting is asked for while a graph is recorded");
    EXPECT_DEATH((void)transfers.device->allocate(4, 4), "memory is asked for while a graph is recorded");
    (void)transfers.device->end_graph();
}

TEST(EmulatedDevice, AGridBeyondTheLimitsIsAnError) {
    simt::Emulator emulator;
    const auto device = make_emulated_device(emulator);
    constexpr int64_t kWidth = int64_t{65535} * 64 + 1;
    const DeviceArray<float> x(*device, kWidth);
    device->scale({x.data(), 1, kWidth, kWidth}, 2.0F);
    const Status done = device->synchronize();
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().message,
              "emulated GPU: scale over 1 x 65536 x 1 blocks: a grid has up to 2147483647 x 65535 x 65535");
}

}  // namespace
}  // namespace verbatim::cuda
