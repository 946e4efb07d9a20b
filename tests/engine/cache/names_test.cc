// Names without a cache around them: what they list, and which heads they tell their owner to give back. What they keep
// is tried with memory under it, in cache_test.cc.
#include "engine/cache/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "tests/support/engine_scene.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct NamesScene {
    explicit NamesScene(const Retention& retention = {}) : names(retention, heads) {}
    static ConversationKey key(const std::string& id) { return {{}, id}; }
    // A head over the tokens first, first + 1, ... that `names` does not know yet.
    Head& make(int64_t length, HeadKind kind = HeadKind::kTurn, TokenId first = 0, bool in_prefix_index = false) {
        const HeadId id{next++};
        return heads.add(id, {.id = id,
                              .kind = kind,
                              .in_prefix_index = in_prefix_index,
                              .tokens = store.store(tests::iota_tokens(first, length)),
                              .numerics_id = SharedValue<std::string>("a/1")});
    }
    Names::Left list(const std::string& id, Head& head) { return done(names.list(key(id), head)); }
    Names::Left done(Names::Left left) {
        for (const HeadId gone : left) heads.erase(gone);
        names.verify();
        return left;
    }

    TokenStore store{1000};
    HeadMap heads;
    Names names;
    int64_t next = 0;
};

TEST(Names, AHeadThatItsLastNameDropsIsReportedOnce) {
    NamesScene scene;
    Head& first = scene.make(4);
    EXPECT_THAT(scene.list("a", first), IsEmpty());
    EXPECT_THAT(scene.list("a", scene.make(8)), IsEmpty());
    EXPECT_THAT(scene.done(scene.names.fork(scene.key("a"), scene.key("b"))), IsEmpty());
    EXPECT_THAT(scene.list("a", scene.make(12)), IsEmpty());  // "b" lists the first one
    EXPECT_THAT(scene.list("b", scene.make(13)), ElementsAre(HeadId{0}));
    EXPECT_THAT(scene.done(scene.names.remove(scene.key("a"))), ElementsAre(HeadId{2}));
    EXPECT_THAT(scene.done(scene.names.remove(scene.key("b"))), ElementsAre(HeadId{1}, HeadId{3}));
    EXPECT_THAT(scene.done(scene.names.remove(scene.key("b"))), IsEmpty());
    EXPECT_EQ(scene.names.find(scene.key("b")), nullptr);
}

TEST(Names, WhatIsFoundByItsTokensStaysTheNamesOwn) {
    NamesScene scene;
    for (const int64_t length : {4, 8, 12}) {
        EXPECT_THAT(scene.list("a", scene.make(length, HeadKind::kTurn, 0, true)), IsEmpty());
    }
    EXPECT_THAT(scene.names.find(scene.key("a"))->former, ElementsAre(HeadId{0}));
    EXPECT_THAT(scene.done(scene.names.rewind(scene.key("a"), 9)), IsEmpty());
    EXPECT_THAT(scene.names.find(scene.key("a"))->former, ElementsAre(HeadId{0}, HeadId{2}));
    EXPECT_THAT(scene.done(scene.names.remove(scene.key("a"))), ElementsAre(HeadId{1}, HeadId{0}, HeadId{2}));
}

TEST(Names, ACommitLeavesOtherHistoriesAndEquals) {
    NamesScene scene;
    EXPECT_THAT(scene.list("a", scene.make(6, HeadKind::kCheckpoint, 50)), IsEmpty());
    EXPECT_THAT(scene.list("a", scene.make(8, HeadKind::kCheckpoint)), IsEmpty());
    EXPECT_THAT(scene.list("a", scene.make(8)), ElementsAre(HeadId{0}, HeadId{1}));
}

TEST(Names, AHeadThatGoesIsRememberedByItsLength) {
    NamesScene scene;
    Head& head = scene.make(6);
    EXPECT_THAT(scene.list("a", head), IsEmpty());
    scene.names.take_off(head, NotReused::kEvicted);
    scene.heads = {};
    scene.names.verify();
    EXPECT_THAT(scene.names.find(scene.key("a"))->gone, ElementsAre(GoneHeads{6, 6, NotReused::kEvicted}));
}

TEST(Names, ANameThatNeverCommittedGoesWithItsLastHead) {
    NamesScene scene;
    Head& head = scene.make(6, HeadKind::kPrompt);
    EXPECT_THAT(scene.list("a", head), IsEmpty());
    EXPECT_THAT(scene.done(scene.names.fork(scene.key("a"), scene.key("b"))), IsEmpty());
    scene.names.take_off(head, NotReused::kEvicted);
    EXPECT_EQ(scene.names.find(scene.key("a")), nullptr);
    EXPECT_NE(scene.names.find(scene.key("b")), nullptr) << "a fork has committed turns";
}

TEST(Names, TheNewestBranchPointStays) {
    NamesScene scene;
    EXPECT_THAT(scene.list("a", scene.make(4, HeadKind::kBranch)), IsEmpty());
    EXPECT_THAT(scene.list("a", scene.make(8, HeadKind::kBranch)), ElementsAre(HeadId{0}));
}

// Turns of 4, 8, 12 and 16 tokens, of which two are listed.
TEST(Names, HeadsThatWentAreForgottenBeyondWhereTheHistoryTurnsOff) {
    const GoneHeads four{4, 4, NotReused::kNotRetained};
    const GoneHeads eight{8, 8, NotReused::kNotRetained};
    for (const bool rewinds : {false, true}) {
        NamesScene scene;
        for (const int64_t length : {4, 8, 12, 16}) scene.list("a", scene.make(length));
        EXPECT_THAT(scene.names.find(scene.key("a"))->gone, ElementsAre(four, eight));
        if (rewinds) {
            EXPECT_THAT(scene.done(scene.names.rewind(scene.key("a"), 6)), ElementsAre(HeadId{3}, HeadId{2}));
        } else {
            Head& other = scene.make(20);
            other.tokens = other.tokens.slice(0, 6);
            other.tokens.append(scene.store.store(tests::iota_tokens(500, 14)));
            EXPECT_THAT(scene.list("a", other), ElementsAre(HeadId{3}, HeadId{2}));
        }
        EXPECT_THAT(scene.names.find(scene.key("a"))->gone, ElementsAre(four));
    }
}

TEST(Names, WhatIsLostIsWhatIsNeitherListedNorKnownToHaveGone) {
    NamesScene scene;
    for (const int64_t length : {4, 8, 12}) scene.list("a", scene.make(length));
    scene.names.note_lost(scene.key("a"), std::vector<int64_t>{4, 6, 8});
    EXPECT_THAT(scene.names.find(scene.key("a"))->gone,
                ElementsAre(GoneHeads{4, 4, NotReused::kNotRetained}, GoneHeads{6, 6, NotReused::kLost}));
}

// Of the checkpoints before the four newest and behind the shortest, the one goes that is missed least: what a history
// that turns off before the next longer one computes without it, over what it computes anyway.
TEST(Names, TheCheckpointGoesThatIsMissedLeast) {
    int64_t num_gone = 0;
    int64_t num_in_the_middle = 0;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        const Retention retention{.checkpoints = static_cast<int32_t>(1 + prng.below(8))};
        NamesScene scene(retention);
        std::vector<std::pair<int64_t, HeadId>> listed;  // oldest first
        for (int i = 0; i < 14; ++i) {
            const auto length = static_cast<int64_t>(1 + prng.below(seed % 2 == 0 ? 12 : 200));
            if (std::ranges::count(listed, length, &std::pair<int64_t, HeadId>::first) > 0) continue;
            Head& made = scene.make(length, HeadKind::kCheckpoint);
            listed.emplace_back(length, made.id);
            if (static_cast<int32_t>(listed.size()) <= retention.checkpoints) {
                EXPECT_THAT(scene.list("a", made), IsEmpty());
                continue;
            }
            size_t least = 0;
            std::optional<double> least_missed;
            for (size_t at = 0; at + 4 < listed.size(); ++at) {
                int64_t shorter = -1;
                int64_t longer = INT64_MAX;
                int64_t end = 0;
                for (const auto& [other, id] : listed) {
                    if (other < listed[at].first) shorter = std::max(shorter, other);
                    if (other > listed[at].first) longer = std::min(longer, other);
                    end = std::max(end, other + 1);
                }
                if (shorter < 0) continue;  // a system prompt
                const int64_t next = longer == INT64_MAX ? listed[at].first : longer;
                const double missed = static_cast<double>(end - shorter) / static_cast<double>(end - next);
                if (least_missed && missed >= *least_missed) continue;
                least_missed = missed;
                least = at;
            }
            EXPECT_THAT(scene.list("a", made), ElementsAre(listed[least].second));
            listed.erase(listed.begin() + static_cast<std::ptrdiff_t>(least));
            ++num_gone;
            num_in_the_middle += least > 0 ? 1 : 0;
        }
    }
    EXPECT_GT(num_gone, 500);
    EXPECT_GT(num_in_the_middle, 100);
}

TEST(NamesDeathTest, AHeadIsListedOnceAndUnderItsSalt) {
    NamesScene scene;
    Head& head = scene.make(6);
    EXPECT_DEATH((void)scene.names.list({CacheSalt{"s"}, "a"}, head), "head 0 is of another salt than 'a'");
    EXPECT_THAT(scene.list("a", head), IsEmpty());
    EXPECT_DEATH((void)scene.names.list(scene.key("b"), head), "head 0 has a name already");
}

TEST(NamesDeathTest, VerifySeesHeadsAndNamesThatDoNotKnowEachOther) {
    NamesScene scene;
    Head& head = scene.make(6);
    EXPECT_THAT(scene.list("a", head), IsEmpty());
    Name& name = **head.names.begin();
    const NamedHead listed = std::exchange(name.heads.front(), {6, HeadKind::kTurn, HeadId{7}});
    EXPECT_DEATH(scene.names.verify(), "head 0 is listed 0 times by 'a'");
    name.heads = {listed};
    head.names = {};
    EXPECT_DEATH(scene.names.verify(), "head 0 does not know that 'a' lists it");
    head.names.push_back(&name);
    head.former_names.push_back(&name);
    EXPECT_DEATH(scene.names.verify(), "head 0 is not among the former heads of 'a'");
    head.former_names = {};
    name.former = {head.id};
    EXPECT_DEATH(scene.names.verify(), "head 0 does not know that 'a' let it go");
    name.former.clear();
    name.heads.front().length = 5;
    EXPECT_DEATH(scene.names.verify(), "name 'a' lists head 0 at length 5");
}

TEST(NamesDeathTest, VerifySeesANameThatListsTooMany) {
    NamesScene scene;
    for (const int64_t length : {4, 8}) EXPECT_THAT(scene.list("a", scene.make(length)), IsEmpty());
    Head& third = scene.make(12);
    Name& name = **scene.heads.find(HeadId{0})->names.begin();
    name.heads.push_back({12, HeadKind::kTurn, third.id});
    third.names.push_back(&name);
    EXPECT_DEATH(scene.names.verify(), "'a' lists 3 of 2 turn heads");
}

}  // namespace
}  // namespace verbatim
