// Values as few bytes, and the shapes that say how they lie there.
#include "reference/records/codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "engine/engine.h"
#include "engine/ingestion.h"
#include "reference/records/format.h"

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::HasSubstr;

// Two versions of one struct.
struct Older {
    int32_t kept = 0;
    std::vector<std::string> gone;
    std::optional<uint64_t> also_gone;
    float last = 0;
};
struct Newer {
    float last = 0;
    int32_t added = 77;
    int64_t kept = 0;
};

template <typename T>
T through(const T& value, TokenStore& store) {
    const auto shape = parse_shape(shape_of<T>());
    CHECK(shape.has_value());
    const auto read = decode<T>(*shape, encode(value), store);
    CHECK(read.has_value(), "{}", read.error().message);
    return *read;
}

TEST(RecordCodec, ValuesRoundTrip) {
    TokenStore store(1000);
    Call call;
    call.step = -5;
    call.id = RequestId{1LL << 40};
    call.request.conversation = {{"salt"}, "ann"};
    const std::array<TokenId, 3> ids = {999, 0, 5};
    TokenSeq tokens = store.store(ids);
    tokens.append(store.derive(12, 3, 100000));
    call.request.messages.push_back({tokens, false});
    call.request.seed = ~uint64_t{0};
    call.request.sampling.temperature = -0.5F;
    call.request.stop_strings = {{1, 2}, {}};
    call.num_turns = 7;
    call.drafts = {{RequestId{2}, {5, 6}}, {RequestId{3}, {}}};
    EXPECT_EQ(through(call, store), call);
    EXPECT_LT(encode(call).size(), 200u);  // tokens made by rule cost nothing
    StepRecord step;
    step.plan.emplace().step = 9;
    step.sequences.push_back({RequestId{3}, 4, 9, {5, 6}, {1, ~uint64_t{0}}, 17, std::string("\0\1\2", 3), {{1, 2}}});
    EXPECT_EQ(through(step, store), step);
    EXPECT_EQ(through(EngineConfig{}, store).cache.keep_turn_heads, EngineConfig{}.cache.keep_turn_heads);
}

TEST(RecordCodec, ANewFieldHasItsDefaultAndARemovedOneIsSkipped) {
    TokenStore store(10);
    const auto shape = parse_shape(shape_of<Older>());
    ASSERT_TRUE(shape);
    const auto read = decode<Newer>(*shape, encode(Older{-3, {"a", "bc"}, 5, 2.5F}), store);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->kept, -3);
    EXPECT_EQ(read->added, 77);
    EXPECT_EQ(read->last, 2.5F);
}

TEST(RecordCodec, AFieldOfAnotherTypeIsAnError) {
    TokenStore store(10);
    const auto shape = parse_shape("{kept:s}");
    ASSERT_TRUE(shape);
    const auto read = decode<Newer>(*shape, encode(std::string("x")), store);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message, "kept: was recorded as 's', this program reads 'i'");
}

TEST(RecordCodec, TruncatedOrOutOfRangeValuesAreErrors) {
    TokenStore store(10);
    Call call;
    const std::array<TokenId, 2> ids = {1, 9};
    call.request.messages.push_back({store.store(ids), true});
    const auto shape = parse_shape(shape_of<Call>());
    const std::vector<std::byte> bytes = encode(call);
    for (size_t count = 0; count < bytes.size(); ++count) {
        EXPECT_FALSE(decode<Call>(*shape, std::span(bytes).first(count), store)) << count;
    }
    std::vector<std::byte> wrong = bytes;
    wrong[0] = std::byte{2 * static_cast<int>(CallKind::kCount)};
    EXPECT_THAT(decode<Call>(*shape, wrong, store).error().message,
                HasSubstr(fmt::format("kind: {} is none of its values", static_cast<int>(CallKind::kCount))));
    TokenStore smaller(9);
    EXPECT_THAT(decode<Call>(*shape, bytes, smaller).error().message, HasSubstr("token 9 of a vocabulary of 9"));
    wrong = bytes;
    wrong.push_back(std::byte{0});
    EXPECT_THAT(decode<Call>(*shape, wrong, store).error().message, HasSubstr("1 bytes are left"));
}

// A value of shape `text` in these bytes: what is wrong with it.
template <typename T>
std::string error_of(const std::string& text, const std::vector<int>& bytes) {
    TokenStore store(10);
    std::vector<std::byte> in;
    for (const int byte : bytes) in.push_back(static_cast<std::byte>(byte));
    const auto read = decode<T>(*parse_shape(text), in, store);
    return read ? "none" : read.error().message;
}

TEST(RecordCodec, IntegersHaveSixtyFourBits) {
    TokenStore store(10);
    for (const int64_t value : {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                                int64_t{1} << 62, -(int64_t{1} << 62), int64_t{-1}, int64_t{63}, int64_t{64}}) {
        EXPECT_EQ(through(value, store), value);
    }
    std::vector<int> bytes(9, 0xFF);
    bytes.push_back(0x01);
    EXPECT_EQ(error_of<int64_t>("i", bytes), "none");
    bytes.back() = 0x02;
    EXPECT_EQ(error_of<int64_t>("i", bytes), "byte 10, value: an integer of more than 64 bits");
    bytes.back() = 0x81;
    bytes.push_back(0x00);
    EXPECT_EQ(error_of<int64_t>("i", bytes), "byte 10, value: an integer of more than 64 bits");
}

TEST(RecordCodec, ErrorsNameWhatIsLeft) {
    EXPECT_EQ(error_of<uint64_t>("u", {1, 2, 3}), "byte 0, value: 8 bytes are wanted, 3 are left");
    EXPECT_EQ(error_of<std::optional<uint64_t>>("?u", {1, 1, 2, 3}), "byte 1, value: 8 bytes are wanted, 3 are left");
    EXPECT_EQ(error_of<int64_t>("i", {2, 2, 2}), "2 bytes are left after 1");
    EXPECT_EQ(error_of<std::string>("s", {2, 'a'}), "byte 1, value: 2 elements in the 1 bytes that are left");
    EXPECT_EQ(error_of<std::string>("s", {1, 'a'}), "none");
    EXPECT_EQ(error_of<std::optional<uint64_t>>("?u", {2, 0, 0, 0, 0, 0, 0, 0, 0}),
              "byte 1, value: 2 is neither there nor not");
    TokenStore store(10);
    EXPECT_EQ(through(std::string("x"), store), "x");
}

TEST(RecordCodec, StoredTokensAreOfTheVocabulary) {
    EXPECT_EQ(error_of<TokenSeq>("t", {1, 0, 2, 0, 18}), "none");
    EXPECT_EQ(error_of<TokenSeq>("t", {1, 0, 1, 20}), "byte 4, value: token 10 of a vocabulary of 10");
    EXPECT_EQ(error_of<TokenSeq>("t", {1, 0, 1, 1}), "byte 4, value: token -1 of a vocabulary of 10");
    EXPECT_EQ(error_of<TokenSeq>("t", {1, 2}), "byte 2, value: 2 is no kind of run");
}

TEST(RecordCodec, DerivedTokensAreBounded) {
    const auto derived = [](const std::vector<std::array<uint64_t, 3>>& runs) {
        std::vector<std::byte> bytes;
        Encoder encoder(bytes);
        encoder.write_count(runs.size());
        for (const auto& [space, begin, length] : runs) {
            encoder.write_count(1);
            encoder.append(&space, sizeof space);
            encoder.write_count(begin);
            encoder.write_count(length);
        }
        TokenStore store(10);
        const auto read = decode<TokenSeq>(*parse_shape("t"), bytes, store);
        return read ? "none" : read.error().message;
    };
    constexpr uint64_t kSpaces = uint64_t{1} << 63;
    constexpr uint64_t kMost = uint64_t{1} << 31;
    EXPECT_EQ(derived({{kSpaces - 1, kSpaces / 2 - 1, 3}}), "none");
    EXPECT_THAT(derived({{kSpaces, 5, 3}}), HasSubstr("3 tokens from 5 of space 9223372036854775808"));
    EXPECT_THAT(derived({{7, kSpaces / 2, 3}}), HasSubstr("3 tokens from 4611686018427387904 of space 7"));
    EXPECT_EQ(derived({{7, 0, kMost}}), "none");
    EXPECT_THAT(derived({{7, 0, kMost + 1}}), HasSubstr("2147483649 tokens from 0 of space 7"));
    EXPECT_EQ(derived({{7, 0, kMost / 2}, {8, 0, kMost / 2}}), "none");
    EXPECT_THAT(derived({{7, 0, kMost / 2}, {8, 0, kMost / 2 + 1}}), HasSubstr("1073741825 tokens from 0 of space 8"));
}

TEST(RecordCodec, ShapesHaveABound) {
    EXPECT_TRUE(parse_shape(std::string(12, '[') + "i"));
    EXPECT_FALSE(parse_shape(std::string(13, '[') + "i"));
    EXPECT_TRUE(parse_shape(std::string(12, '?') + "i"));
    const auto with_fields = [](int count) {
        std::string text = "{";
        for (int i = 0; i < count; ++i) text += "a:i,";
        text.back() = '}';
        return text;
    };
    EXPECT_TRUE(parse_shape(with_fields(4095)));
    EXPECT_FALSE(parse_shape(with_fields(4096)));
}

TEST(RecordCodec, InvalidShapesAreRefused) {
    for (const char* text : {"", "x", "{", "{a", "{a:", "{a:i", "{a:i,", "{:i}", "ii", "[", "{}", "{a:i}}"}) {
        EXPECT_FALSE(parse_shape(text)) << text;
    }
    EXPECT_FALSE(parse_shape(std::string(100, '[') + "i"));
}

}  // namespace
}  // namespace verbatim::tests
