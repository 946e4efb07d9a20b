// Where logs lie on the device: what is replayed is what was logged, and is never written over while it is.
#include "kernels/cuda/state_log.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "engine/base/prng.h"
#include "kernels/cuda/emulated_device.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"

namespace verbatim::tests {
namespace {

constexpr int32_t kMaxTokens = 7;

TEST(CudaStateLog, ALogOf7TokensHasTheDocumentedSize) {
    simt::Emulator emulator;
    const auto device = cuda::make_emulated_device(emulator);
    const auto entry_bytes = [&](const char* preset) {
        const auto config = reference::preset(preset);
        const cuda::StateLog log(*device, *config, kMaxTokens);
        return log.bytes_per_slot() / (2 * kMaxTokens);
    };
    EXPECT_EQ(entry_bytes("granite-4.0-h-350m"), 397'824);
    EXPECT_EQ(entry_bytes("granite-4.0-h-micro"), 1'253'376);
    EXPECT_EQ(entry_bytes("qwen3.5-0.8b"), 18 * 4 * (6144 + 4096 + 32));
    EXPECT_EQ(entry_bytes("llama-3.2-1b"), 0);
    EXPECT_EQ(device->counts().allocations, 0);  // nothing is logged yet
}

// Steps of several slots, against a map of what lies where.
TEST(CudaStateLog, AReplayGetsTheLoggedInputsInAnyOrderOfSteps) {
    simt::Emulator emulator;
    const auto device = cuda::make_emulated_device(emulator);
    const auto config = reference::draw_small_config(reference::Architecture::kGraniteHybrid, 3);
    cuda::StateLog log(*device, config, kMaxTokens);
    struct Slot {
        int64_t state = 0;               // tokens in its row
        int64_t length = 0;              // accepted tokens, of which the last ones are logged
        std::map<int32_t, int64_t> put;  // by place in the ring: the token
    };
    std::map<int32_t, Slot> slots;
    Prng prng(5);
    int64_t num_replayed = 0;
    for (int step = 0; step < 2000; ++step) {
        const auto number = static_cast<int32_t>(prng.below(11));
        Slot& slot = slots[number];
        const auto logged = static_cast<int32_t>(slot.length - slot.state);
        const auto drafts = static_cast<int32_t>(prng.below(kMaxTokens + 1));
        const auto rows = static_cast<int32_t>(1 + prng.below(3)) + drafts;
        const bool is_written = logged + rows > kMaxTokens || prng.below(3) == 0;
        const auto place = log.place_of({.slot = SequenceSlot{number},
                                         .state_dst = is_written ? StateIndex{number} : kNoState,
                                         .num_logged_tokens = logged,
                                         .num_sampled_positions = drafts + 1},
                                        rows);
        const int32_t num_kept = is_written ? drafts : rows;
        ASSERT_EQ(place.log, logged + num_kept > 0 ? number : -1);
        const auto at = [&](int32_t entry) { return (place.first_entry + entry) % (2 * kMaxTokens); };
        for (int32_t i = 0; i < logged; ++i) {
            ASSERT_EQ(slot.put[at(i)], slot.state + i) << "step " << step;
            for (int32_t k = 0; k < num_kept; ++k) ASSERT_NE(at(logged + k), at(i)) << "step " << step;
        }
        for (int32_t k = 0; k < num_kept; ++k) slot.put[at(logged + k)] = slot.length + rows - num_kept + k;
        num_replayed += logged;
        const int64_t known_end = slot.length + rows - drafts;
        if (is_written) slot.state = known_end;
        slot.length = known_end + static_cast<int64_t>(prng.below(static_cast<uint64_t>(drafts) + 1));
    }
    EXPECT_GT(num_replayed, 1000);
    EXPECT_GE(log.layer(0).num_slots, 11);
    EXPECT_LE(device->counts().allocations, 3);  // twice as much at least
}

TEST(CudaStateLog, GrowingForAnotherSlotKeepsTheLogs) {
    simt::Emulator emulator;
    const auto device = cuda::make_emulated_device(emulator);
    const auto config = reference::draw_small_config(reference::Architecture::kMamba2, 3);
    cuda::StateLog log(*device, config, kMaxTokens);
    const auto log_one = [&](int32_t slot) {
        (void)log.place_of({.slot = SequenceSlot{slot}, .num_sampled_positions = 1}, 1);
    };
    log_one(1);
    const cuda::DeviceLog before = log.layer(0);
    std::vector<float> values(static_cast<size_t>(before.num_slots * before.slot_floats));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    device->upload(before.data, values.data(), values.size() * sizeof(float));
    log_one(static_cast<int32_t>(before.num_slots) + 3);
    EXPECT_GT(log.layer(0).num_slots, before.num_slots);
    std::vector<float> after(values.size());
    device->download(after.data(), log.layer(0).data, after.size() * sizeof(float));
    EXPECT_EQ(after, values);
}

}  // namespace
}  // namespace verbatim::tests
