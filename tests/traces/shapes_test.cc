#include "traces/shapes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "traces/verbatim_csv.h"

namespace verbatim::traces {
namespace {

constexpr Shape kShapes[] = {Shape::kDocuments, Shape::kOneShots, Shape::kToolLoops, Shape::kTemplates};

TEST(Shapes, TheSameSeedGivesTheSameTrace) {
    for (const Shape shape : kShapes) {
        const auto text = [&](uint64_t seed) {
            return *verbatim_csv_bytes(generate_shape({.shape = shape, .seed = seed, .requests = 100}), "made.csv");
        };
        EXPECT_EQ(text(1), text(1));
        EXPECT_NE(text(1), text(2));
    }
}

TEST(Shapes, AreValidTracesOfSoManyRequestsInOrder) {
    for (const Shape shape : kShapes) {
        const Trace trace = generate_shape({.shape = shape, .requests = 500});
        EXPECT_TRUE(validate(trace).has_value());
        EXPECT_EQ(trace.rows.size(), 500u);
    }
}

TEST(Shapes, DocumentsHaveManyQuestionsAndFewHaveMost) {
    const Trace trace = generate_shape({.shape = Shape::kDocuments, .requests = 800});
    std::map<uint64_t, int> questions;
    for (const Row& row : trace.rows) {
        if (row.from != kNoRow) continue;
        ++questions[trace.pieces[row.first_piece + 1].space];
    }
    int most = 0;
    for (const auto& [space, count] : questions) most = std::max(most, count);
    EXPECT_GT(questions.size(), 50u);
    EXPECT_GT(most, 80);
}

TEST(Shapes, WrongNumbersAreErrors) {
    EXPECT_FALSE(validate(ShapeOptions{.requests = 0}).has_value());
    EXPECT_FALSE(validate(ShapeOptions{.rate = 0}).has_value());
    EXPECT_TRUE(validate(ShapeOptions{}).has_value());
}

}  // namespace
}  // namespace verbatim::traces
