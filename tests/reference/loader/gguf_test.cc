#include "reference/loader/gguf.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

using tests::ScratchFolder;

Result<GgufContents> parse_bytes(const std::string& file) {
    return parse_gguf(std::as_bytes(std::span(file)), "bad.gguf");
}

template <typename T>
std::string as_bytes_of(T value) {
    std::string bytes(sizeof value, '\0');
    std::memcpy(bytes.data(), &value, sizeof value);
    return bytes;
}
std::string text(std::string_view value) { return as_bytes_of(uint64_t{value.size()}) + std::string(value); }

// The parts of a file: the counts are those of the lists.
struct Parts {
    std::string magic = "GGUF";
    uint32_t version = 3;
    std::vector<std::string> pairs = {};
    std::vector<std::string> tensors = {};
    std::string data = {};

    [[nodiscard]] std::string file(size_t alignment = 32) const {
        std::string out =
            magic + as_bytes_of(version) + as_bytes_of(uint64_t{tensors.size()}) + as_bytes_of(uint64_t{pairs.size()});
        for (const auto* list : {&pairs, &tensors})
            for (const std::string& part : *list) out += part;
        if (!tensors.empty() || !data.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
        return out + data;
    }
};

std::string tensor(std::string_view name, std::vector<uint64_t> extents, uint32_t type, uint64_t offset) {
    std::string out = text(name) + as_bytes_of(static_cast<uint32_t>(extents.size()));
    for (const uint64_t extent : extents) out += as_bytes_of(extent);
    return out + as_bytes_of(type) + as_bytes_of(offset);
}
std::string pair(std::string_view key, uint32_t type, const std::string& value) {
    return text(key) + as_bytes_of(type) + value;
}
// One tensor "w" of 32 float32 with this header.
std::string gguf_of_tensor(const std::string& header) {
    return Parts{.tensors = {header}, .data = std::string(128, 'x')}.file();
}
std::string gguf_of_pair(const std::string& pair) { return Parts{.pairs = {pair}}.file(); }

struct BadGguf {
    std::string claim;
    std::string file;
    std::string wanted_error;
};
void PrintTo(const BadGguf& bad, std::ostream* out) { *out << bad.claim; }

const std::vector<BadGguf> kBadGgufs = {
    {"Empty", "", "does not begin with \"GGUF\""},
    {"Safetensors", std::string(64, '{'), "this is no GGUF file"},
    {"VersionOne", Parts{.version = 1}.file(), "GGUF version 1, wanted 2 or 3"},
    {"BigEndian", Parts{.version = 0x0300'0000}.file(), "big-endian"},
    {"MorePairsThanBytes", "GGUF" + as_bytes_of(3u) + as_bytes_of(uint64_t{0}) + as_bytes_of(uint64_t{1} << 40),
     "1099511627776 metadata pairs at byte 16 do not fit"},
    {"MoreTensorsThanBytes", "GGUF" + as_bytes_of(3u) + as_bytes_of(UINT64_MAX) + as_bytes_of(uint64_t{0}),
     "18446744073709551615 tensors at byte 8 do not fit"},
    {"KeyLeavesTheFile", gguf_of_pair(as_bytes_of(UINT64_MAX) + std::string(20, 'k')), "a key of 18446744073709551615"},
    {"UnknownValueType", gguf_of_pair(pair("k", 13, "0123")), "\"k\": value type 13 is not one of the format's"},
    {"StringLeavesTheFile", gguf_of_pair(pair("k", 8, as_bytes_of(uint64_t{99}) + "short")), "a string of 99 bytes"},
    {"ArrayLeavesTheFile", gguf_of_pair(pair("k", 9, as_bytes_of(4u) + as_bytes_of(uint64_t{1} << 62))),
     "4611686018427387904 array elements"},
    {"ArrayOfStringsLeavesTheFile", gguf_of_pair(pair("k", 9, as_bytes_of(8u) + as_bytes_of(uint64_t{1} << 60))),
     "strings at byte"},
    {"ArrayOfArrays", gguf_of_pair(pair("k", 9, as_bytes_of(9u) + as_bytes_of(uint64_t{0}))), "an array of type 9"},
    {"GreatInteger", gguf_of_pair(pair("k", 10, as_bytes_of(UINT64_MAX))), "wanted less than 2^63"},
    {"KeyTwice", Parts{.pairs = {pair("k", 0, "1"), pair("k", 0, "1")}}.file(), "\"k\": the key occurs twice"},
    {"AlignmentOfThree", gguf_of_pair(pair("general.alignment", 4, as_bytes_of(3u))),
     "general.alignment = 3, wanted a"},
    {"AlignmentOfZero", gguf_of_pair(pair("general.alignment", 4, as_bytes_of(0u))), "general.alignment = 0"},
    {"AlignmentIsAText", gguf_of_pair(pair("general.alignment", 8, text("32"))), "general.alignment = \"32\""},
    {"LongName", gguf_of_tensor(tensor(std::string(65, 'n'), {32}, 0, 0)), "the name has 65 bytes, wanted at most 64"},
    {"NoExtents", gguf_of_tensor(tensor("w", {}, 0, 0)), "tensor \"w\": 0 extents, wanted 1 to 4"},
    {"FiveExtents", gguf_of_tensor(tensor("w", {32, 1, 1, 1, 1}, 0, 0)), "5 extents"},
    {"ExtentOfZero", gguf_of_tensor(tensor("w", {32, 0}, 0, 0)), "extent 1 is 0"},
    {"ProductOverflows", gguf_of_tensor(tensor("w", {uint64_t{1} << 33, uint64_t{1} << 33}, 0, 0)),
     "extent 1 is 8589934592"},
    {"RemovedType", gguf_of_tensor(tensor("w", {32}, 4, 0)),
     "type number 4 is not supported: wanted one of F32, F16, Q4_0"},
    {"NamedType", gguf_of_tensor(tensor("w", {256}, 16, 0)), "type IQ2_XXS is not supported"},
    {"HalfABlock", gguf_of_tensor(tensor("w", {48}, 8, 0)),
     "rows of 48 elements are not whole blocks of Q8_0, which has 32"},
    {"OffsetLeavesAGap", gguf_of_tensor(tensor("w", {32}, 0, 32)), "begins at byte 32 of the data, wanted 0"},
    {"Overlap",
     Parts{.tensors = {tensor("a", {32}, 0, 0), tensor("b", {16}, 0, 64)}, .data = std::string(128, 'x')}.file(),
     "tensor \"b\": begins at byte 64 of the data, wanted 128"},
    {"DataIsShort", gguf_of_tensor(tensor("w", {64}, 0, 0)),
     "256 bytes from byte 0 of the data leave the file, which has 128: is it truncated?"},
    {"DataIsLong", gguf_of_tensor(tensor("w", {8}, 0, 0)), "96 bytes after the last tensor belong to none"},
    {"TensorTwice",
     Parts{.tensors = {tensor("a", {8}, 0, 0), tensor("a", {8}, 0, 32)}, .data = std::string(64, 'x')}.file(),
     "tensor \"a\" occurs twice"},
};

class MalformedGguf : public testing::TestWithParam<BadGguf> {};

TEST_P(MalformedGguf, IsAnErrorThatSaysWhat) {
    const auto contents = parse_bytes(GetParam().file);
    ASSERT_FALSE(contents);
    EXPECT_NE(contents.error().message.find(GetParam().wanted_error), std::string::npos) << contents.error().message;
    EXPECT_TRUE(contents.error().message.starts_with("bad.gguf: ")) << contents.error().message;
}

INSTANTIATE_TEST_SUITE_P(Files, MalformedGguf, testing::ValuesIn(kBadGgufs),
                         [](const auto& info) { return info.param.claim; });

// A file with every kind of value, and a tensor with and one without blocks.
std::string sound_file() {
    static const std::vector<float> numbers = {1.5F, -2.0F};
    const GgufMetadata metadata = {
        {"a.count", int64_t{7}},
        {"a.negative", int64_t{-7}},
        {"a.real", 0.25},
        {"a.flag", true},
        {"a.text", std::string_view("granitehybrid")},
        {"a.numbers", GgufNumbers{6, std::as_bytes(std::span(numbers))}},
        {"a.strings", GgufStrings{"one", "", "three"}},
    };
    const std::vector<GgufLayout> tensors = {{"blocks", {3, 64}, find_block_format("Q8_0")},
                                             {"dense", {5}, find_block_format("F32")}};
    std::string file = gguf_prefix(metadata, tensors);
    for (const GgufLayout& tensor : tensors) {
        file.append(static_cast<size_t>(tensor.num_bytes()), '\x42');
        file.resize((file.size() + 31) / 32 * 32);
    }
    return file;
}

TEST(Gguf, WhatIsWrittenIsReadBack) {
    const std::string file = sound_file();
    const auto contents = parse_bytes(file);
    ASSERT_TRUE(contents) << contents.error().message;
    const GgufMetadata& metadata = contents->metadata;
    EXPECT_EQ(std::get<int64_t>(metadata.at("a.count")), 7);
    EXPECT_EQ(std::get<int64_t>(metadata.at("a.negative")), -7);
    EXPECT_EQ(std::get<double>(metadata.at("a.real")), 0.25);
    EXPECT_TRUE(std::get<bool>(metadata.at("a.flag")));
    EXPECT_EQ(std::get<std::string_view>(metadata.at("a.text")), "granitehybrid");
    EXPECT_EQ(std::get<GgufNumbers>(metadata.at("a.numbers")).at(1), -2.0);
    EXPECT_EQ(std::get<GgufStrings>(metadata.at("a.strings")), (GgufStrings{"one", "", "three"}));
    ASSERT_EQ(contents->tensors.size(), 2u);
    EXPECT_EQ(contents->tensors[0].name, "blocks");
    EXPECT_EQ(contents->tensors[0].shape, (std::vector<int64_t>{3, 64}));
    EXPECT_EQ(contents->tensors[0].format->name, "Q8_0");
    EXPECT_EQ(contents->tensors[0].bytes.size(), 3u * 2 * 34);
    EXPECT_EQ(contents->tensors[1].bytes.size(), 20u);
}

TEST(Gguf, VersionTwoIsReadToo) {
    std::string file = sound_file();
    file[4] = 2;
    EXPECT_TRUE(parse_bytes(file));
}

TEST(Gguf, EveryTruncationOfASoundFileIsAnError) {
    const std::string file = sound_file();
    // The last tensor ends 12 bytes before the file, which is padded.
    for (size_t length = 0; length < file.size() - 12; ++length)
        EXPECT_FALSE(parse_bytes(file.substr(0, length))) << length;
}

TEST(Gguf, TenThousandMutationsAreReadOrRefused) {
    const std::string sound = sound_file();
    std::mt19937_64 random(43);
    int num_read = 0;
    for (int i = 0; i < 10'000; ++i) {
        std::string file = sound;
        const auto num_changes = 1 + random() % 4;
        for (uint64_t change = 0; change < num_changes; ++change) {
            const size_t place = random() % file.size();
            switch (random() % 4) {
                case 0: file[place] = static_cast<char>(random()); break;
                case 1: file[place] = static_cast<char>(file[place] ^ 1 << random() % 8); break;
                case 2: file.resize(place + 1); break;
                default: file.insert(place, std::string(random() % 40, static_cast<char>(random() % 3 * 127))); break;
            }
        }
        const auto contents = parse_bytes(file);
        if (!contents) continue;
        ++num_read;
        for (const GgufTensor& tensor : contents->tensors) {
            ASSERT_LE(tensor.bytes.size(), file.size());
            std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
            dequantise(*tensor.format, tensor.bytes, values);
        }
        for (const auto& [key, value] : contents->metadata) ASSERT_FALSE(value_text(value).empty());
    }
    EXPECT_GT(num_read, 100);
    EXPECT_LT(num_read, 9'900);
}

// --- split files

class SplitGguf : public testing::Test {
protected:
    // Part `number` of `count`, with a tensor of this name.
    void write(const std::string& file_name, int64_t number, int64_t count, const std::string& tensor) {
        const GgufMetadata metadata = {
            {"split.no", number}, {"split.count", count}, {"only.in", std::string_view(tensor)}};
        const std::vector<GgufLayout> tensors = {{tensor, {8}, find_block_format("F32")}};
        std::ofstream(scratch_.path() / file_name, std::ios::binary)
            << gguf_prefix(metadata, tensors) << std::string(32, '\0');
    }
    [[nodiscard]] Result<GgufFile> open(const std::string& file_name) const {
        return open_gguf(scratch_.path() / file_name);
    }
    ScratchFolder scratch_;
};

TEST_F(SplitGguf, PartsAreFoundByTheFirstOnesName) {
    write("m-00001-of-00002.gguf", 0, 2, "a");
    write("m-00002-of-00002.gguf", 1, 2, "b");
    const auto file = open("m-00001-of-00002.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->files.size(), 2u);
    EXPECT_EQ(file->tensors.size(), 2u);
    EXPECT_EQ(std::get<std::string_view>(file->metadata.at("only.in")), "a");
}

TEST_F(SplitGguf, APartThatDoesNotFitIsAnError) {
    const auto expect_error = [&](const std::string& file_name, std::string_view wanted) {
        const auto file = open(file_name);
        ASSERT_FALSE(file);
        EXPECT_NE(file.error().message.find(wanted), std::string::npos) << file.error().message;
    };
    write("m-00001-of-00002.gguf", 0, 2, "a");
    expect_error("m-00001-of-00002.gguf", "m-00002-of-00002.gguf: ");  // is missing
    write("m-00002-of-00002.gguf", 1, 2, "a");
    expect_error("m-00001-of-00002.gguf", "tensor \"a\" is in an earlier part, too");
    expect_error("m-00002-of-00002.gguf", "is part 2 of a split file, wanted part 1: name the first part");
    write("m-00002-of-00002.gguf", 1, 3, "b");
    expect_error("m-00001-of-00002.gguf", "split.count = 3, that of the first part is 2");
    write("m-00002-of-00002.gguf", 0, 2, "b");
    expect_error("m-00001-of-00002.gguf", "is part 1 of a split file, wanted part 2");
    write("renamed.gguf", 0, 2, "a");
    expect_error("renamed.gguf", "the file's name ends otherwise than -00001-of-00002.gguf");
}

}  // namespace
}  // namespace verbatim::reference
