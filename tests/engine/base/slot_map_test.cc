#include "engine/base/slot_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace verbatim {
namespace {

TEST(SlotMap, TheNumberThatWasFreedLastIsUsedAgainFirst) {
    SlotMap<std::string, uint32_t> slots;
    for (const char* value : {"a", "b", "c"}) (void)slots.add(value);
    slots.free(0);
    slots.free(2);
    EXPECT_EQ(slots.size(), 1u);
    EXPECT_THAT(slots.all(), testing::ElementsAre("", "b", "")) << "free ones are empty";
    EXPECT_EQ(slots.add("d"), 2u);
    EXPECT_EQ(slots.add("e"), 0u);
    EXPECT_EQ(slots.add("f"), 3u);
    EXPECT_EQ(slots[0], "e");
    EXPECT_EQ(slots.size(), 4u);
    EXPECT_EQ(slots.num_numbers(), 4u);
}

}  // namespace
}  // namespace verbatim
