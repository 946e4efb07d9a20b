// Every boundary that a length can meet, and two tokens to either side of it: blocks (16), tiles of attention (64),
// chunks.
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "tests/properties/numeric_scene.h"
#include "tests/reference/families.h"
#include "tests/support/sanitized.h"

namespace verbatim::tests {
namespace {

constexpr int64_t kReach = kSanitized ? 0 : 2;  // to either side

std::set<int64_t> around(std::initializer_list<int64_t> boundaries) {
    std::set<int64_t> lengths;
    for (const int64_t boundary : boundaries) {
        for (int64_t length = boundary - kReach; length <= boundary + kReach; ++length) lengths.insert(length);
    }
    return lengths;
}

class LengthSweep : public ::testing::TestWithParam<Family> {
protected:
    // A head of `head` tokens, and a turn of `suffix` more that attaches to it.
    void attach_at(int64_t head, int64_t suffix, const SceneOptions& options) {
        SCOPED_TRACE(fmt::format("head {}, suffix {}, block_size {}, step_tokens {}", head, suffix, options.block_size,
                                 options.step_tokens));
        NumericScene scene(GetParam().draw(7), 7, options);
        scene.complete(scene.history("a", scene.text(1, head), 1));
        const FinishedEvent event = scene.complete(scene.suffix("a", scene.text(2, suffix), 2));
        EXPECT_EQ(event.num_reused_tokens, head);
        EXPECT_EQ(scene.engine.stats().tail_copies, scene.has_kv() && head % options.block_size != 0 ? 1 : 0);
        EXPECT_EQ(scene.engine.stats().state_copies, scene.has_state() ? 1 : 0);
        EXPECT_EQ(scene.first_difference(), "");
        scene.expect_home();
    }
};

TEST_P(LengthSweep, AttachedHeadsAroundEveryBlockAndTile) {
    for (const int64_t head : around({16, 32, 64, 128})) attach_at(head, 5, {.step_tokens = 512});
}

TEST_P(LengthSweep, SuffixesThatEndAroundEveryTile) {
    for (const int64_t end : around({64, 128})) attach_at(19, end - 20, {.block_size = 16, .step_tokens = 512});
}

TEST_P(LengthSweep, ChunksThatEndAroundEveryBlockAndTile) {
    for (const int64_t chunk : around({16, 64})) {
        attach_at(61, 70, {.block_size = 16, .step_tokens = static_cast<int32_t>(chunk)});
    }
}

TEST_P(LengthSweep, BlocksOfAnySizeAroundATile) {
    for (const int32_t block_size : {1, 2, 3, 5, 16, 64}) {
        for (const int64_t head : around({64})) {
            attach_at(head, 67, {.block_size = block_size, .num_blocks = 400 / block_size + 4, .step_tokens = 33});
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Families, LengthSweep, ::testing::ValuesIn(kAllFamilies),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace verbatim::tests
