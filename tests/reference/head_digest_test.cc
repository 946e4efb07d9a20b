#include "reference/head_digest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace verbatim::reference {
namespace {

constexpr int64_t kLength = 3;

// One Mamba layer, one attention layer, one with both.
ModelConfig config_of_three() {
    MambaConfig mamba;
    mamba.n_heads = 2;
    mamba.head_dim = 2;
    mamba.d_state = 2;
    mamba.d_conv = 3;
    AttentionConfig attention;
    attention.n_heads = 2;
    attention.n_kv_heads = 1;
    attention.head_dim = 2;
    ModelConfig config;
    config.layers.resize(3);
    config.layers[0].mamba = mamba;
    config.layers[1].attention = attention;
    config.layers[2].mamba = mamba;
    config.layers[2].attention = attention;
    return config;
}

struct State {
    std::vector<float> ssm = std::vector<float>(8, 1.0F);
    std::vector<float> conv = std::vector<float>(16, 2.0F);
    std::vector<uint16_t> k = std::vector<uint16_t>(kLength * 2, 3);
    std::vector<uint16_t> v = std::vector<uint16_t>(kLength * 2, 4);

    [[nodiscard]] std::span<const std::byte> bytes(StateKind kind) const {
        if (kind == StateKind::kSsm) return std::as_bytes(std::span(ssm));
        if (kind == StateKind::kConv) return std::as_bytes(std::span(conv));
        return std::as_bytes(std::span(kind == StateKind::kK ? k : v));
    }
};

// Feeds the parts in pieces of `piece` elements.
Digest digest_of(const std::vector<State>& states, size_t piece = 1000) {
    const StateTensors tensors = state_tensors(config_of_three());
    HeadDigester digester(tensors, kLength);
    for (const StateTensor& tensor : tensors) {
        auto bytes = states[tensor.layer].bytes(tensor.kind);
        while (!bytes.empty()) {
            const size_t count = std::min(piece * static_cast<size_t>(element_bytes(tensor.dtype)), bytes.size());
            digester.add(tensor, bytes.first(count));
            bytes = bytes.subspan(count);
        }
    }
    return digester.digest();
}

TEST(HeadDigest, DoesNotDependOnThePieces) {
    const std::vector<State> states(3);
    const Digest whole = digest_of(states);
    for (const size_t piece : {1, 2, 3, 7}) EXPECT_EQ(digest_of(states, piece), whole);
}

TEST(HeadDigest, APartSummedElsewhereGivesTheSameDigest) {
    const std::vector<State> states(3);
    // From both ends, in two parts.
    const auto sum_of = [](const auto& values) {
        ElementSum odd;
        ElementSum even;
        for (auto i = static_cast<int64_t>(values.size()) - 1; i >= 0; --i) {
            if constexpr (sizeof(values[0]) == 4)
                (i % 2 == 0 ? even : odd).add(i, bits_from_float(values[i]));
            else
                (i % 2 == 0 ? even : odd).add(i, values[i]);
        }
        odd.add(even);
        return odd;
    };
    const StateTensors tensors = state_tensors(config_of_three());
    HeadDigester digester(tensors, kLength);
    for (const StateTensor& tensor : tensors) {
        const State& state = states[tensor.layer];
        if (tensor.kind == StateKind::kSsm) digester.add(tensor, sum_of(state.ssm));
        if (tensor.kind == StateKind::kConv) digester.add(tensor, sum_of(state.conv));
        if (tensor.kind == StateKind::kK) digester.add(tensor, sum_of(state.k));
        if (tensor.kind == StateKind::kV) digester.add(tensor, sum_of(state.v));
    }
    EXPECT_EQ(digester.digest(), digest_of(states));
}

TEST(HeadDigest, TheOrderOfElementsCounts) {
    std::vector<State> states(3);
    states[1].k = {1, 2, 3, 4, 5, 6};
    const Digest before = digest_of(states);
    std::swap(states[1].k[0], states[1].k[5]);
    EXPECT_NE(digest_of(states), before);
    std::swap(states[1].k, states[1].v);
    const Digest swapped = digest_of(states);
    std::swap(states[1], states[2]);
    EXPECT_NE(digest_of(states), swapped);
}

// Places and values next to each other, as they are in a cache that is mostly alike: no two elements have one number.
TEST(ElementSum, NoTwoElementsHaveTheSameNumber) {
    std::set<uint64_t> low;
    std::set<uint64_t> high;
    const std::vector<int64_t> places = {
        0, 1, 2, 3, 255, 256, 65535, 65536, (int64_t{1} << 32) - 1, int64_t{1} << 32, int64_t{1} << 40};
    for (const int64_t place : places) {
        for (uint32_t bits = 0; bits < 3000; ++bits) {
            ElementSum one;
            one.add(place, bits);
            low.insert(one.low);
            high.insert(one.high);
        }
    }
    EXPECT_EQ(low.size(), places.size() * 3000);
    EXPECT_EQ(high.size(), places.size() * 3000);
}

TEST(HeadDigest, EveryElementOfEveryPartCounts) {
    std::set<std::string> digests = {digest_of(std::vector<State>(3)).hex()};
    size_t num_changes = 0;
    const auto change = [&](const std::function<void(std::vector<State>&)>& deed) {
        std::vector<State> states(3);
        deed(states);
        digests.insert(digest_of(states).hex());
        ++num_changes;
    };
    for (const size_t layer : {0, 2}) {
        for (size_t i = 0; i < 8; ++i) change([&](auto& states) { states[layer].ssm[i] = -1.0F; });
        for (size_t i = 0; i < 16; ++i) change([&](auto& states) { states[layer].conv[i] = -1.0F; });
    }
    for (const size_t layer : {1, 2}) {
        for (size_t i = 0; i < kLength * 2; ++i) change([&](auto& states) { states[layer].k[i] = 9; });
        for (size_t i = 0; i < kLength * 2; ++i) change([&](auto& states) { states[layer].v[i] = 9; });
    }
    EXPECT_EQ(digests.size(), num_changes + 1);
}

TEST(HeadDigest, ALengthOfZeroHasStatesAndNoKv) {
    const StateTensors tensors = state_tensors(config_of_three());
    HeadDigester digester(tensors, 0);
    const State state;
    for (const StateTensor& tensor : tensors) {
        if (tensor.per == StatePer::kSequence) digester.add(tensor, state.bytes(tensor.kind));
    }
    EXPECT_NE(digester.digest(), Digest{});
}

TEST(HeadDigestDeathTest, RefusesAnotherOrderOtherSizesAndAnUnfinishedHead) {
    const StateTensors tensors = state_tensors(config_of_three());
    const StateTensor& ssm = tensors[tensors.place(0, StateKind::kSsm)];
    const StateTensor& conv = tensors[tensors.place(0, StateKind::kConv)];
    const StateTensor& k = tensors[tensors.place(1, StateKind::kK)];
    const State state;
    HeadDigester digester(tensors, kLength);
    EXPECT_DEATH(digester.add(conv, state.bytes(conv.kind)), "layer 0 conv came, layer 0 ssm has 0 of 8");
    EXPECT_DEATH(digester.add(k, state.bytes(k.kind)), "layer 1 k came");
    EXPECT_DEATH(digester.add(ssm, std::vector<std::byte>(9 * 4)), "9 vs 8");
    EXPECT_DEATH(digester.add(ssm, std::vector<std::byte>(7)), "7 bytes of float32");
    EXPECT_DEATH((void)digester.digest(), "layer 0 ssm has 0 of 8 elements");
}

}  // namespace
}  // namespace verbatim::reference
