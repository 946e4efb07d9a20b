#include "reference/loader/gguf_rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

namespace verbatim::reference {
namespace {

RopeConfig scaling(double factor, int32_t head_dim, int32_t length = 8192) {
    return {.kind = RopeKind::kLlama3,
            .n_rotary_dims = head_dim,
            .theta = 500000.0,
            .factor = factor,
            .original_max_position_embeddings = length};
}

// From `first` on, as llama.cpp's converter computes them with torch. Before them all are 1, behind them the factor.
struct Converted {
    RopeConfig rope;
    size_t first = 0;
    std::vector<float> divisors;
};

const std::vector<Converted>& converted() {
    static const std::vector<Converted> models = {
        // Llama 3.1 8B
        {scaling(8, 128),
         29,
         {1.2074838876724243F, 1.5534145832061768F, 2.026313066482544F, 2.6945300102233887F, 3.684253215789795F,
          5.257327079772949F}},
        // Llama 3.2 1B
        {scaling(32, 64), 15, {1.6513292789459229F, 3.2922627925872803F, 9.666730880737305F}}};
    return models;
}

TEST(RopeDivisors, AreThoseOfTheConverter) {
    for (const Converted& model : converted()) {
        const std::vector<float> divisors = rope_divisors(model.rope);
        ASSERT_EQ(divisors.size(), static_cast<size_t>(model.rope.n_rotary_dims / 2));
        for (size_t i = 0; i < divisors.size(); ++i) {
            const size_t last = model.first + model.divisors.size();
            const float wanted = i < model.first ? 1.0F
                                 : i >= last     ? static_cast<float>(model.rope.factor)
                                                 : model.divisors[i - model.first];
            EXPECT_NEAR(divisors[i], wanted, wanted * 2e-6F) << i;
        }
    }
}

TEST(RopeDivisors, GiveTheScalingBack) {
    for (Converted model : converted()) {
        std::vector<float> divisors = rope_divisors(model.rope);
        EXPECT_EQ(llama3_scaling(divisors, 500000.0), model.rope);
        std::ranges::copy(model.divisors, divisors.begin() + static_cast<int64_t>(model.first));
        EXPECT_EQ(llama3_scaling(divisors, 500000.0), model.rope);
    }
    for (const int32_t length : {64, 1000, 4096, 131072})
        EXPECT_EQ(llama3_scaling(rope_divisors(scaling(8, 128, length)), 500000.0), scaling(8, 128, length)) << length;
}

TEST(RopeDivisors, OfAnotherScalingAreNone) {
    const std::vector<float> right = rope_divisors(scaling(8, 128));
    EXPECT_TRUE(llama3_scaling(right, 500000.0));
    EXPECT_FALSE(llama3_scaling(right, 10000.0));
    EXPECT_FALSE(llama3_scaling({}, 500000.0));
    for (const size_t i : {size_t{0}, size_t{30}, size_t{63}}) {
        for (const float other : {1.01F, 7.0F, 9.0F, 0.0F, -1.0F, std::numeric_limits<float>::quiet_NaN()}) {
            std::vector<float> wrong = right;
            wrong[i] = other;
            EXPECT_FALSE(llama3_scaling(wrong, 500000.0)) << i << " " << other;
        }
    }
}

}  // namespace
}  // namespace verbatim::reference
