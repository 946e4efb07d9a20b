// Names without a cache around them: what they list, and which heads they tell their owner to give back. What they keep
// is tried with memory under it, in cache_test.cc.
#include "engine/cache/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/support/engine_scene.h"

namespace verbatim {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct NamesScene {
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
    Names names{Retention{}, heads};
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
    scene.names.take_off(head, NotReused::kEvicted);
    EXPECT_EQ(scene.names.find(scene.key("a")), nullptr);
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
