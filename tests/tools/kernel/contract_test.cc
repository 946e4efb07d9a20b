// Contracts of one's own, without a compiler: their expressions, their numbers, what is wrong with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/contract_operation.h"
#include "kernels/sandbox/element_values.h"
#include "kernels/sandbox/size_expression.h"
#include "kernels/sandbox/small_floats.h"

namespace verbatim::sandbox {
namespace {

using testing::HasSubstr;

int64_t value_of(const std::string& text, const Sizes& sizes = {7, 5, 3}) {
    const std::vector<std::string> names = {"rows", "width", "groups"};
    const auto expression = SizeExpression::read(text, names);
    EXPECT_TRUE(expression.has_value()) << expression.error().message;
    return expression ? expression->at(sizes) : -1;
}

TEST(SizeExpression, OperatorsBindAsInC) {
    EXPECT_EQ(value_of("1 + rows * width - 2"), 34);
    EXPECT_EQ(value_of("(1 + rows)*width % 6"), 4);
    EXPECT_EQ(value_of("20 - 5 - 5"), 10);
    EXPECT_EQ(value_of("rows / groups"), 2);
    EXPECT_EQ(value_of("rows > width && width >= 5 && 3 != groups"), 0);
    EXPECT_EQ(value_of("rows > width && width <= 5 && 3 == groups"), 1);
    EXPECT_EQ(value_of("rows / (groups - 3) + rows % (groups - 3)"), 0);
    EXPECT_EQ(value_of("9223372036854775807 * 9"), INT64_MAX);
}

TEST(SizeExpression, WhatIsNoneIsNamed) {
    const auto problem = [](const char* text) {
        const std::vector<std::string> names = {"rows", "width"};
        const Result<SizeExpression> read = SizeExpression::read(text, names);
        return read ? "" : read.error().message;
    };
    EXPECT_THAT(problem("rows * depth"), HasSubstr("\"depth\" is no size: there are rows, width"));
    EXPECT_THAT(problem("(rows"), HasSubstr("a `(` without its `)`"));
    EXPECT_THAT(problem("rows rows"), HasSubstr("\"rows\" is no part of an expression"));
    EXPECT_THAT(problem("rows *"), HasSubstr("wanted a size or a whole number"));
    EXPECT_THAT(problem(""), HasSubstr("wanted a size or a whole number"));
}

// Every number of a format is itself, and what lies between two is the nearest one, or the even one.
template <typename Read, typename Round>
void expect_rounding(uint32_t count, uint32_t sign, const Read& read, const Round& round) {
    for (uint32_t bits = 0; bits < count; ++bits) {
        const float value = read(bits);
        if (std::isnan(value)) continue;
        ASSERT_EQ(round(value), bits);
        const float next = read(bits + 1);
        if ((bits & (sign - 1)) + 1 >= sign || !std::isfinite(next) || !std::isfinite(value)) continue;
        const float middle = (value + next) / 2;
        ASSERT_EQ(round(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
        ASSERT_EQ(round(std::nextafter(middle, value)), bits) << bits;
        ASSERT_EQ(round(std::nextafter(middle, next)), bits + 1) << bits;
    }
}

TEST(SmallFloats, RoundToNearestEven) {
    expect_rounding(
        0x10000, 0x8000, [](uint32_t b) { return verbatim_f16_to_float(static_cast<uint16_t>(b)); },
        verbatim_float_to_f16);
    expect_rounding(
        0x100, 0x80, [](uint32_t b) { return verbatim_e4m3_to_float(static_cast<uint8_t>(b)); },
        verbatim_float_to_e4m3);
    expect_rounding(
        0x100, 0x80, [](uint32_t b) { return verbatim_e5m2_to_float(static_cast<uint8_t>(b)); },
        verbatim_float_to_e5m2);
    EXPECT_EQ(verbatim_float_to_f16(65520.0F), 0x7C00);
    EXPECT_EQ(verbatim_float_to_f16(65519.0F), 0x7BFF);
    EXPECT_EQ(verbatim_float_to_e4m3(464.0F), 0x7E);
    EXPECT_EQ(verbatim_float_to_e4m3(465.0F), 0x7F);
    EXPECT_EQ(verbatim_float_to_e4m3(-INFINITY), 0xFF);
    EXPECT_EQ(verbatim_float_to_e5m2(61440.0F), 0x7C);
    EXPECT_EQ(verbatim_float_to_bf16(-0x1p-140F), 0x8000);
    EXPECT_EQ(verbatim_float_to_bf16(1.00390625F), 0x3F80);
}

ContractSpec small_contract() {
    return {.name = "scale_rows",
            .formula = "out = x * factor",
            .sizes = {{.name = "rows"}, {.name = "width", .usual = 6}},
            .operands =
                {{.name = "x", .dtype = Dtype::kF16, .width = "width"},
                 {.name = "index", .dtype = Dtype::kI32, .unit = Axis::kCall, .width = "2 * width", .below = "width"},
                 {.name = "out", .role = Role::kOut, .dtype = Dtype::kI8, .width = "width"}},
            .parameters = {{"factor", {0.5F, 2.0F}}}};
}
Result<Operation> made(ContractSpec spec) { return operation_of(std::move(spec), nullptr); }

TEST(Contract, IsAnOperationLikeABuiltInOne) {
    const auto operation = made(small_contract());
    ASSERT_TRUE(operation.has_value()) << operation.error().message;
    EXPECT_EQ(operation->scalars, std::vector<std::string>{"factor"});
    EXPECT_THAT(operation->contract, HasSubstr("index [2 * width] i32 per call, in\n"));
    const Arguments call = make_arguments(*operation, {{4, 6}, ValueClass::kHuge, 9});
    EXPECT_TRUE(call.scalars[0] == 0.5F || call.scalars[0] == 2.0F);
    for (const int32_t index : call.tensor("index").as<int32_t>()) EXPECT_TRUE(index >= 0 && index < 6) << index;
    for (int64_t i = 0; i < 24; ++i) EXPECT_TRUE(std::isfinite(element_value(call.tensor("x"), i)));
    std::vector<std::byte> memory(64);
    Placed placed{.sizes = call.sizes, .scalars = call.scalars, .num_items = 3, .num_rows = 3};
    placed.data[2] = memory.data();
    placed.stride = {8, 12, 9};
    AbiArgs abi;
    const verbatim_call& bound = *operation->bind(placed, abi).call;
    EXPECT_EQ(bound.sizes[0], 3);
    EXPECT_EQ(bound.sizes[1], 6);
    EXPECT_EQ(bound.operands[2].data, memory.data());
    EXPECT_EQ(bound.operands[2].num_units, 3);
    EXPECT_EQ(bound.operands[2].width, 6);
    EXPECT_EQ(bound.operands[2].stride, 9);
    EXPECT_EQ(bound.operands[1].num_units, 1);
}

TEST(Contract, WhatIsWrongIsNamed) {
    const auto problem = [](const auto& spoil) {
        ContractSpec spec = small_contract();
        spoil(spec);
        const auto operation = made(std::move(spec));
        return operation ? "" : operation.error().message;
    };
    using Spec = ContractSpec;
    EXPECT_EQ(problem([](Spec&) {}), "");
    EXPECT_THAT(problem([](Spec& spec) { spec.name = ""; }), HasSubstr("no name"));
    EXPECT_THAT(problem([](Spec& spec) { spec.sizes.clear(); }), HasSubstr("begins with the rows"));
    EXPECT_THAT(problem([](Spec& spec) {
                    spec.is_of_sequences = true;
                    spec.sizes.pop_back();
                }),
                HasSubstr("the sequences, and the tokens of one"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[0].name = "out"; }), HasSubstr("\"out\" is there twice"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[0].width = "depth"; }),
                HasSubstr("width of x \"depth\": \"depth\" is no size: there are rows, width"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[0].width = "3 - width"; }), HasSubstr("width of x is -3"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[0].width = "rows"; }), HasSubstr("depends on rows"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[0].below = "4"; }), HasSubstr("not for f16"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[2].lies_in = "x"; }), HasSubstr("no input of its dtype"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[1].continues = "out"; }), HasSubstr("no output per sequence"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands[0].unit = Axis::kItem; }), HasSubstr("in a contract of rows"));
    EXPECT_THAT(problem([](Spec& spec) { spec.operands.pop_back(); }), HasSubstr("no output"));
    EXPECT_THAT(problem([](Spec& spec) { spec.sizes[1].usual = 0; }), HasSubstr("usual 0 is below 1"));
    EXPECT_THAT(problem([](Spec& spec) { spec.admits = "rows > 9"; }), HasSubstr("do not go together"));
    EXPECT_THAT(problem([](Spec& spec) { spec.shapes = "rows=3,depth=4"; }), HasSubstr("shapes: "));
    EXPECT_THAT(problem([](Spec& spec) { spec.parameters[0].values.clear(); }), HasSubstr("factor has no values"));
}

TEST(Contract, ABuiltInNameIsTaken) {
    ContractSpec spec = small_contract();
    spec.name = "rms_norm";
    auto operation = made(std::move(spec));
    ASSERT_TRUE(operation.has_value());
    EXPECT_THAT(add_operation(*std::move(operation)).error().message, HasSubstr("is a built-in operation"));
}

}  // namespace
}  // namespace verbatim::sandbox
