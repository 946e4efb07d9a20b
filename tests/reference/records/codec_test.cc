// Values as few bytes, and the shapes that say how they lie there.
#include "reference/records/codec.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

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

TEST(RecordCodec, InvalidShapesAreRefused) {
    for (const char* text : {"", "x", "{", "{a", "{a:", "{a:i", "{a:i,", "{:i}", "ii", "[", "{}", "{a:i}}"}) {
        EXPECT_FALSE(parse_shape(text)) << text;
    }
    EXPECT_FALSE(parse_shape(std::string(100, '[') + "i"));
}

}  // namespace
}  // namespace verbatim::tests
