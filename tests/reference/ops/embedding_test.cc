#include "reference/ops/embedding.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/reference/ops/op_values.h"

namespace verbatim::reference {
namespace {

TEST(Embedding, CopiesRowsOfTheTableTimesTheMultiplier) {
    const std::vector<uint16_t> table = draw_bf16(10 * 6, 1);
    const std::vector<int32_t> tokens = {9, 0, 9, 4};
    std::vector<float> out(24);
    embedding({.tokens = tokens.data(),
               .table = table.data(),
               .vocab_size = 10,
               .multiplier = 12.0F,
               .out = dense_rows(out.data(), 4, 6)});
    for (int64_t r = 0; r < 4; ++r) {
        for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(out[r * 6 + i], bf16_to_float(table[tokens[r] * 6 + i]) * 12.0F);
    }
}

TEST(EmbeddingDeathTest, RefusesATokenOutsideTheVocabulary) {
    const std::vector<uint16_t> table(60);
    std::vector<float> out(6);
    for (const int32_t token : {-1, 10}) {
        EXPECT_DEATH(
            embedding({.tokens = &token, .table = table.data(), .vocab_size = 10, .out = dense_rows(out.data(), 1, 6)}),
            "of row 0, vocabulary 10");
    }
}

}  // namespace
}  // namespace verbatim::reference
