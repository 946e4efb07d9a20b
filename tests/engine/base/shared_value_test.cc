#include "engine/base/shared_value.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace verbatim {
namespace {

TEST(SharedValue, CopiesShareOneValueAndTheDefaultOneTakesNoMemory) {
    const SharedValue<std::string> none;
    EXPECT_EQ(*none, "");
    EXPECT_EQ(none.num_holders(), 0);
    SharedValue<std::string> first(std::string("a"));
    {
        const SharedValue<std::string> second = first;
        EXPECT_EQ(&*second, &*first);
        EXPECT_EQ(first.num_holders(), 2);
    }
    EXPECT_EQ(first.num_holders(), 1);
    const SharedValue<std::string> equal(std::string("a"));
    EXPECT_NE(&*equal, &*first);
    EXPECT_EQ(equal, first);
    EXPECT_NE(none, first);
    first = "";
    EXPECT_EQ(first.num_holders(), 0);
    EXPECT_EQ(first, none);
}

TEST(SharedValues, EqualValuesAreOneUntilTheLastHolderGoes) {
    SharedValues<std::string> values;
    SharedValue<std::string> first = values.share("a");
    SharedValue<std::string> second = values.share("a");
    SharedValue<std::string> other = values.share("b");
    SharedValue<std::string> none = values.share("");
    EXPECT_EQ(&*first, &*second);
    EXPECT_EQ(values.size(), 2u);
    values.give_back(first);
    values.give_back(none);
    EXPECT_EQ(*first, "");
    EXPECT_EQ(*second, "a");
    EXPECT_EQ(values.size(), 2u);
    values.give_back(second);
    EXPECT_EQ(values.size(), 1u);
    EXPECT_EQ(*other, "b");
}

TEST(SharedValuesDeathTest, WhatWasNotGivenOutDoesNotComeBack) {
    SharedValues<std::string> values;
    SharedValue<std::string> foreign(std::string("a"));
    const SharedValue<std::string> copy = foreign;
    EXPECT_DEATH(values.give_back(foreign), "was not given out");
}

}  // namespace
}  // namespace verbatim
