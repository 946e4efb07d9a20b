// What a name remembers of heads that are gone.
#include "engine/cache/name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>

namespace verbatim {
namespace {

using ::testing::ElementsAre;

constexpr NotReused kEvicted = NotReused::kEvicted;
constexpr NotReused kLetGo = NotReused::kNotRetained;

TEST(Name, HeadsThatAreGoneAreRememberedByLength) {
    Name name;
    for (const int64_t length : {20, 10, 30}) name.note_gone(length, kLetGo);
    EXPECT_THAT(name.gone,
                ElementsAre(GoneHeads{10, 10, kLetGo}, GoneHeads{20, 20, kLetGo}, GoneHeads{30, 30, kLetGo}));
}

TEST(Name, TheNewestReasonOfOneLengthCounts) {
    Name name;
    name.note_gone(10, kLetGo);
    name.note_gone(10, kEvicted);
    EXPECT_THAT(name.gone, ElementsAre(GoneHeads{10, 10, kEvicted}));
}

TEST(Name, WhatLayBeyondALengthIsForgotten) {
    Name name;
    name.note_gone(10, kLetGo);
    name.note_gone(20, kLetGo);
    name.note_gone(30, kEvicted);
    name.forget_gone_beyond(20);
    EXPECT_THAT(name.gone, ElementsAre(GoneHeads{10, 10, kLetGo}, GoneHeads{20, 20, kLetGo}));
    name.forget_gone_beyond(9);
    EXPECT_TRUE(name.gone.empty());
}

TEST(Name, BeyondTheMostTheTwoShortestBecomeOne) {
    Name name;
    const auto most = static_cast<int64_t>(Name::kMaxGone);
    for (int64_t length = 1; length <= most + 1; ++length) name.note_gone(10 * length, kEvicted);
    EXPECT_EQ(name.gone.size(), Name::kMaxGone);
    EXPECT_EQ(*name.gone.begin(), (GoneHeads{10, 20, kEvicted}));
    EXPECT_EQ(*std::next(name.gone.begin()), (GoneHeads{30, 30, kEvicted}));
    name.forget_gone_beyond(15);
    EXPECT_THAT(name.gone, ElementsAre(GoneHeads{10, 15, kEvicted})) << "a part of what is one";
}

TEST(Name, AConversationThatNeverEndsIsRememberedInBoundedSpace) {
    Name name;
    for (int64_t length = 1; length <= 10000; ++length) name.note_gone(length, length % 2 == 0 ? kEvicted : kLetGo);
    EXPECT_EQ(name.gone.size(), Name::kMaxGone);
    EXPECT_EQ(name.gone.front().first, 1);
    name.note_gone(5, kEvicted);  // inside what is no longer distinguished
    EXPECT_EQ(name.gone.size(), Name::kMaxGone);
    EXPECT_EQ(name.gone.back(), (GoneHeads{10000, 10000, kEvicted}));
}

}  // namespace
}  // namespace verbatim
