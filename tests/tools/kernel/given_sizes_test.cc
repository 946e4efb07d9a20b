#include "kernels/sandbox/given_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/check.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

TEST(GivenSizes, ConstantsAreTheIntegersOfTheCode) {
    EXPECT_THAT(constants_of("if (m >= 64) x = 0x10; y = 256u * n; z = 4096LL;"), ElementsAre(16, 64, 256, 4096));
    EXPECT_THAT(constants_of("float a = 3.5F; b = 12.; c = 7e3; d = x12; e = .25; 1; 0; 99999999;"), IsEmpty());
    EXPECT_THAT(constants_of("// 77\n/* 88 * 89 */ \"90\" 'a'\n#include <x86.h 91>\n#define N 92\n"), ElementsAre(92));
    EXPECT_THAT(constants_of(""), IsEmpty());
    EXPECT_THAT(constants_of("a >= 3 * 32 + 4; b = 1 << 10; c = 7 * x * 5;"),
                ElementsAre(3, 4, 5, 7, 10, 32, 96, 100, 1024));
    std::string many;
    for (int i = 100; i < 200; ++i) many += std::to_string(i) + " ";
    EXPECT_THAT(constants_of(many), SizeIs(32));
    // What something is compared with comes first.
    EXPECT_THAT(constants_of(many + "if (m > 2 * 350) x(); if (n % 777 == 0) x();"),
                testing::AllOf(SizeIs(32), testing::IsSupersetOf({2, 100, 350, 700, 777})));
}

TEST(GivenSizes, ConstantsAreNamedToo) {
    EXPECT_THAT(constants_of("constexpr int kTile = 96, kTiles = 7; if (m >= kTile * kTiles) x();"),
                ElementsAre(7, 96, 672));
    EXPECT_THAT(constants_of("#define TILE 40\nint f() { return m / (TILE * 9); }"), ElementsAre(9, 40, 360));
    EXPECT_THAT(constants_of("enum { kA = 12 };\ntemplate <int kB = 11>\nint f() { return m > kA * kB; }"),
                ElementsAre(11, 12, 132));
    EXPECT_THAT(constants_of("static const int kA = 5 * 6; int kB = 70; m > kA * 8; m > kB * 9;"),
                ElementsAre(5, 6, 8, 9, 30, 70, 240));
}

TEST(GivenSizes, AShapeLeavesTheOthersUsual) {
    const Operation& matmul = *find_operation("matmul");
    const auto shape = read_shape(matmul, "n=7,rows=200");
    ASSERT_TRUE(shape);
    EXPECT_EQ(describe(matmul, *shape), describe(matmul, Sizes{200, 7, matmul.sizes[2].usual, 0}));
}

TEST(GivenSizes, ClassesOfValuesAreTriedAlone) {
    const auto values = read_values("tiny,integers,tiny");
    ASSERT_TRUE(values);
    EXPECT_THAT(*values, ElementsAre(ValueClass::kTiny, ValueClass::kIntegers));
    for (const char* bad : {"", "tiny,", "odd", "tiny integers"}) {
        const auto none = read_values(bad);
        ASSERT_FALSE(none) << bad;
        EXPECT_THAT(none.error().message, testing::HasSubstr("cancelling")) << bad;
    }
    for (const Operation& operation : operations()) {
        const KernelInfo kernel{"mine", operation.name, "fast", "cpu", -1, nullptr};
        const GivenSizes given{.values = *values};
        const auto cases = check_cases(operation, kernel, Effort::kFull, 1, given);
        EXPECT_GT(cases.size(), 40u) << operation.name;
        for (const CheckCase& check : cases)
            EXPECT_TRUE(check.one.values == ValueClass::kTiny || check.one.values == ValueClass::kIntegers);
        for (const KernelCase& one : invariance_cases(operation, kernel, Effort::kShort, 1, given))
            EXPECT_EQ(one.values, ValueClass::kTiny) << operation.name;
    }
}

// Every operation meets the batches of real steps.
TEST(GivenSizes, EveryOperationIsTriedWithRealBatches) {
    for (const Operation& operation : operations()) {
        for (const char* machine : {"cpu", "cuda"}) {
            const KernelInfo kernel{
                .name = "mine", .operation = operation.name, .profile = "exact", .machine = machine};
            int64_t most = 0;
            int num_real = 0;
            for (const CheckCase& check : check_cases(operation, kernel, Effort::kShort, 1)) {
                most = std::max(most, check.one.sizes[0]);
                num_real += is_real(operation, check.one.sizes) ? 1 : 0;
            }
            EXPECT_GE(most, operation.sizes[0].real.back()) << operation.name << " on " << machine;
            EXPECT_GE(num_real, 6) << operation.name << " on " << machine;
        }
    }
}

// The call is the same whatever the batch is: the items' own tensors do not change.
TEST(GivenSizes, OtherBoundsKeepTheItems) {
    int num_bounded = 0;
    for (const Operation& operation : operations()) {
        if (operation.bounded_otherwise == nullptr) continue;
        Sizes sizes{};
        for (size_t i = 0; i < operation.sizes.size(); ++i) sizes[i] = operation.sizes[i].usual;
        const Arguments call = make_arguments(operation, {sizes, ValueClass::kNormal, 1});
        for (const Arguments& other : operation.bounded_otherwise(call)) {
            ++num_bounded;
            EXPECT_EQ(other.item_rows, call.item_rows) << operation.name;
            if (operation.admits != nullptr) EXPECT_TRUE(operation.admits(other)) << operation.name;
        }
    }
    EXPECT_GE(num_bounded, 8);
}

}  // namespace
}  // namespace verbatim::tools
