// What is not there, or too much: every value of a plan is read in step_plan_test.cc.
#include "engine/fields.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace verbatim::tests {
namespace {

struct TwoFields {
    uint32_t first = 0;
    std::vector<uint16_t> second;
    friend bool operator==(const TwoFields&, const TwoFields&) = default;
};

class Fields : public ::testing::Test {
protected:
    Fields() { write_fields(bytes, TwoFields{7, {1, 2, 3}}); }
    [[nodiscard]] std::string problem() {
        const auto read = read_fields<TwoFields>(bytes, store);
        return read ? "" : read.error().message;
    }
    TokenStore store{10};
    std::vector<std::byte> bytes;  // 4, a count in 8, 6
};

TEST_F(Fields, WhatWasWrittenIsRead) {
    EXPECT_EQ(bytes.size(), 18u);
    EXPECT_EQ(read_fields<TwoFields>(bytes, store), (TwoFields{7, {1, 2, 3}}));
}

TEST_F(Fields, AnErrorSaysHowManyBytesAreLeft) {
    bytes.resize(17);
    EXPECT_EQ(problem(), "byte 12, second: 3 elements in the 5 bytes that are left");
    bytes.resize(9);
    EXPECT_EQ(problem(), "byte 4, second: 8 bytes are wanted, 5 are left");
}

// As many elements as the bytes that are left and those before them could hold.
TEST_F(Fields, ACountIsOfTheBytesThatAreLeft) {
    bytes[4] = std::byte{9};
    EXPECT_EQ(problem(), "byte 12, second: 9 elements in the 6 bytes that are left");
}

}  // namespace
}  // namespace verbatim::tests
