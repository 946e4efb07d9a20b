// tests/reference/loader/same_model.h: whether two loaded models are the same, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <string>
#include <vector>

#include "reference/loader/gguf_tensors.h"
#include "reference/model/weights.h"
#include "reference/reference_model.h"

namespace verbatim::reference {

inline bool same_bits(VectorView a, VectorView b) {
    const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
    return std::ranges::equal(a, b, {}, bits, bits);
}

// Every matrix and vector of the two models, by their places in a GGUF file.
inline void expect_same_weights(Model& got, Model& wanted) {
    ASSERT_EQ(got.config, wanted.config);
    const auto got_places = gguf_places(got.config, got.weights);
    const auto wanted_places = gguf_places(wanted.config, wanted.weights);
    for (size_t i = 0; i < got_places.size(); ++i) {
        const std::string& name = got_places[i].name;
        if (got_places[i].vector) EXPECT_TRUE(same_bits(*got_places[i].vector, *wanted_places[i].vector)) << name;
        for (size_t m = 0; m < got_places[i].matrices.size(); ++m) {
            const MatrixView& view = *got_places[i].matrices[m];
            const MatrixView& other = *wanted_places[i].matrices[m];
            ASSERT_EQ(view.rows, other.rows) << name;
            ASSERT_EQ(view.cols, other.cols) << name;
            EXPECT_TRUE(std::ranges::equal(view.bytes(), other.bytes())) << name << " " << m;
        }
    }
}

// Behind twenty tokens.
inline std::vector<float> last_logits(const Model& model) {
    ReferenceModel reference(model.config, model.weights);
    ReferenceSequence sequence(reference);
    std::vector<TokenId> tokens;
    for (int32_t i = 0; i < 20; ++i) tokens.push_back(TokenId{i * 7 % model.config.vocab_size});
    sequence.append(tokens, LogitRows::kLast);
    const float* logits = sequence.logits().row(0);
    return {logits, logits + model.config.vocab_size};
}

}  // namespace verbatim::reference
