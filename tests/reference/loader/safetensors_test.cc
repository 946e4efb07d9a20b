#include "reference/loader/safetensors.h"

#include <gtest/gtest.h>

#include "tests/reference/loader/checkpoint_builder.h"

namespace verbatim::reference {
namespace {

Result<std::vector<TensorEntry>> parse(const std::string& file) {
    return parse_safetensors(std::as_bytes(std::span(file)), "bad.safetensors");
}

struct BadFile {
    std::string claim;
    std::string file;
    std::string wanted_error;
};

void PrintTo(const BadFile& bad, std::ostream* out) { *out << bad.claim; }

std::string length_prefix(uint64_t length) {
    std::string bytes(sizeof length, '\0');
    std::memcpy(bytes.data(), &length, sizeof length);
    return bytes;
}

// One tensor "a" with this entry, over eight bytes of data.
std::string one_tensor(const std::string& entry) { return safetensors_file(R"({"a":)" + entry + "}", "01234567"); }

const std::vector<BadFile> kBadFiles = {
    {"EmptyFile", "", "has 0 bytes, wanted at least 8"},
    {"ShorterThanItsLength", "1234567", "has 7 bytes, wanted at least 8"},
    {"HeaderLongerThanFile", length_prefix(100) + "{}", "header of 100 bytes does not fit into the file's 10"},
    {"HeaderLengthOverflows", length_prefix(UINT64_MAX) + "{}", "header of 18446744073709551615 bytes"},
    {"HeaderLengthWrapsAround", length_prefix(UINT64_MAX - 7) + "{}", "does not fit"},
    {"HeaderEndsInTheMiddle", length_prefix(9) + R"({"a": {"d)", "line 1"},
    {"HeaderIsNoJson", safetensors_file("{nonsense}", ""), "header: parse error at line 1"},
    {"HeaderIsAList", safetensors_file("[]", ""), "does not begin with '{'"},
    {"HeaderIsEmpty", safetensors_file("", ""), "does not begin with '{'"},
    {"HeaderNestsDeeply", safetensors_file("{\"a\":" + std::string(100, '['), ""), "nested deeper than 64"},
    {"HeaderEndsInANul", safetensors_file(std::string("{}\0x", 4), ""), "header: NUL byte at line 1, column 3"},
    {"HeaderIsNoUtf8", safetensors_file("{\"\xc3\x28\": 1}", ""), "ill-formed UTF-8"},
    {"DuplicateName",
     safetensors_file(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                      "01234567"),
     "key \"a\" occurs twice"},
    {"DuplicateField", one_tensor(R"({"dtype":"U8","dtype":"I8","shape":[8],"data_offsets":[0,8]})"), "occurs twice"},
    {"EntryIsNoObject", one_tensor("7"), "tensor \"a\": got 7, wanted an object"},
    {"NoDtype", one_tensor(R"({"shape":[8],"data_offsets":[0,8]})"), "got no dtype"},
    {"DtypeIsNoString", one_tensor(R"({"dtype":8,"shape":[8],"data_offsets":[0,8]})"), "got no dtype"},
    {"UnknownDtype", one_tensor(R"({"dtype":"F4","shape":[8],"data_offsets":[0,8]})"), "dtype \"F4\" is not one of"},
    {"NoShape", one_tensor(R"({"dtype":"U8","data_offsets":[0,8]})"), "got no shape"},
    {"ShapeIsNoList", one_tensor(R"({"dtype":"U8","shape":8,"data_offsets":[0,8]})"), "got no shape"},
    {"NegativeExtent", one_tensor(R"({"dtype":"U8","shape":[-8],"data_offsets":[0,8]})"), "not a natural number"},
    {"FractionalExtent", one_tensor(R"({"dtype":"U8","shape":[8.0],"data_offsets":[0,8]})"), "not a natural number"},
    {"HugeExtent", one_tensor(R"({"dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,8]})"), "not a natural"},
    {"ProductOverflows", one_tensor(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"),
     "more than 2^64 bytes"},
    {"ProductWrapsToTheRightSize",
     one_tensor(R"({"dtype":"F64","shape":[2305843009213693953,1],"data_offsets":[0,8]})"), "more than 2^64 bytes"},
    {"TooManyExtents", one_tensor(R"({"dtype":"U8","shape":[8,1,1,1,1,1,1,1,1],"data_offsets":[0,8]})"),
     "shape has 9 extents"},
    {"ShapeIsNotTheBytes", one_tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"),
     "shape [3] of F32 takes 12 bytes, data_offsets give 8"},
    {"NoOffsets", one_tensor(R"({"dtype":"U8","shape":[8]})"), "got no data_offsets"},
    {"OneOffset", one_tensor(R"({"dtype":"U8","shape":[8],"data_offsets":[8]})"), "got no data_offsets"},
    {"NegativeOffset", one_tensor(R"({"dtype":"U8","shape":[8],"data_offsets":[-8,0]})"), "got no data_offsets"},
    {"OffsetsRunBackwards", one_tensor(R"({"dtype":"U8","shape":[8],"data_offsets":[8,0]})"), "run backwards"},
    {"OffsetsLeaveTheFile", one_tensor(R"({"dtype":"U8","shape":[9],"data_offsets":[0,9]})"),
     "leave the file, which has 8 bytes of data: is it truncated?"},
    {"OffsetOverflows", one_tensor(R"({"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]})"),
     "got no data_offsets"},
    {"UnknownFieldOfATensor", one_tensor(R"({"dtype":"U8","shape":[8],"data_offsets":[0,8],"scale":2})"),
     "key \"scale\" is not part of the format"},
    {"Overlap",
     safetensors_file(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                      "01234567"),
     "tensor \"b\" begins at byte 4 of the data, wanted 5: it overlaps another"},
    {"Hole",
     safetensors_file(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                      "01234567"),
     "tensor \"b\" begins at byte 4 of the data, wanted 3: there is a hole before it"},
    {"HoleAtTheBeginning", one_tensor(R"({"dtype":"U8","shape":[4],"data_offsets":[4,8]})"), "wanted 0"},
    {"BytesAfterTheLastTensor", one_tensor(R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})"),
     "4 bytes of data belong to no tensor (after byte 4)"},
    {"DataWithoutTensors", safetensors_file("{}", "0123"), "4 bytes of data belong to no tensor"},
    {"MetadataIsNoObject", safetensors_file(R"({"__metadata__":"pt"})", ""), "__metadata__ is not an object"},
    {"MetadataIsNoString", safetensors_file(R"({"__metadata__":{"format":1}})", ""), "\"format\" is not a string"},
};

class MalformedSafetensors : public testing::TestWithParam<BadFile> {};

TEST_P(MalformedSafetensors, IsAnErrorThatSaysWhat) {
    const auto entries = parse(GetParam().file);
    ASSERT_FALSE(entries);
    EXPECT_NE(entries.error().message.find(GetParam().wanted_error), std::string::npos) << entries.error().message;
    EXPECT_TRUE(entries.error().message.starts_with("bad.safetensors: ")) << entries.error().message;
}

INSTANTIATE_TEST_SUITE_P(Files, MalformedSafetensors, testing::ValuesIn(kBadFiles),
                         [](const auto& info) { return info.param.claim; });

TEST(Safetensors, EveryTruncationOfASoundFileIsAnError) {
    const std::string file =
        safetensors_file(R"({"a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]}})", "01234567");
    ASSERT_TRUE(parse(file));
    for (size_t length = 0; length < file.size(); ++length) EXPECT_FALSE(parse(file.substr(0, length))) << length;
}

TEST(Safetensors, TensorsAreInTheOrderOfTheirData) {
    const std::string file = safetensors_file(
        R"({"__metadata__":{"format":"pt"},"a":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},)"
        R"("b":{"dtype":"U8","shape":[],"data_offsets":[4,5]},"c":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
        R"("d":{"dtype":"F64","shape":[0,7],"data_offsets":[8,8]}})",
        "01234567");
    const auto entries = parse(file);
    ASSERT_TRUE(entries) << entries.error().message;
    ASSERT_EQ(entries->size(), 4u);
    EXPECT_EQ((*entries)[0].name, "c");
    EXPECT_EQ((*entries)[1].num_elements(), 1);
    EXPECT_EQ((*entries)[2].name, "a");
    EXPECT_EQ(static_cast<char>((*entries)[2].bytes[0]), '5');
    EXPECT_EQ((*entries)[3].num_elements(), 0);
}

TEST(Safetensors, WhatIsWrittenIsReadBackAndItsDataIsAligned) {
    const std::vector<TensorLayout> layouts = {{"w", TensorDtype::kBf16, {3, 2}}, {"v", TensorDtype::kF32, {1, 1, 2}}};
    const std::string prefix = safetensors_prefix(layouts);
    EXPECT_EQ(prefix.size() % 8, 0u);
    const std::string file = prefix + std::string(20, 'x');
    const auto entries = parse(file);
    ASSERT_TRUE(entries) << entries.error().message;
    for (size_t i = 0; i < layouts.size(); ++i) {
        EXPECT_EQ((*entries)[i].name, layouts[i].name);
        EXPECT_EQ((*entries)[i].dtype, layouts[i].dtype);
        EXPECT_EQ((*entries)[i].shape, layouts[i].shape);
    }
}

}  // namespace
}  // namespace verbatim::reference
