// tests/reference/executor_scene.h: an executor driven by hand-written plans, and the uncached reference's results.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "reference/model/random_model.h"
#include "reference/numeric_executor.h"
#include "reference/reference_model.h"
#include "tests/support/plan_builder.h"

namespace verbatim::tests {

inline std::vector<TokenId> draw_tokens(int64_t count, int32_t vocab_size, uint64_t seed) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        tokens.push_back(static_cast<TokenId>((seed >> 33) % static_cast<uint64_t>(vocab_size)));
    }
    return tokens;
}

inline std::vector<int32_t> iota(int32_t first, int64_t count) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(first + static_cast<int32_t>(i));
    return ids;
}

// The first place where two rows of floats have different bits; -1: none.
inline int64_t first_different_bit(std::span<const float> a, std::span<const float> b) {
    if (a.size() != b.size()) return static_cast<int64_t>(std::min(a.size(), b.size()));
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return static_cast<int64_t>(i);
    }
    return -1;
}

// The expected results: whole sequences, alone, without a cache.
struct Uncached {
    std::vector<float> logits;
    Digest digest;
};
inline Uncached uncached(reference::ReferenceModel& model, std::span<const TokenId> tokens) {
    reference::ReferenceSequence sequence(model);
    sequence.append(tokens, reference::LogitRows::kLast);
    const auto row = sequence.logits();
    return {{row.row(0), row.row(0) + row.width}, sequence.digest()};
}

// A model, and the blocks and rows for a sequence of some length.
struct SceneModel {
    // `profile`: of the reference. `prepare` changes the weights before the reference reads them.
    SceneModel(
        reference::ModelConfig config, uint64_t seed, reference::Profile profile = reference::Profile::kExact,
        const std::function<void(reference::Model&)>& prepare = [](reference::Model&) {})
        : model(reference::make_random_model(config, seed)), owned_reference(make_reference(profile, prepare)) {
        const auto geometry = reference::geometry(model.config);
        has_kv = geometry.kv_bytes_per_token > 0;
        has_state = geometry.state_bytes_per_row > 0;
    }
    [[nodiscard]] std::vector<TokenId> tokens(int64_t count, uint64_t seed) const {
        return draw_tokens(count, model.config.vocab_size, seed);
    }

    reference::Model model;
    std::unique_ptr<reference::ReferenceModel> owned_reference;
    reference::ReferenceModel& reference = *owned_reference;  // its tables grow under tests that change nothing else
    bool has_kv = false;
    bool has_state = false;

private:
    std::unique_ptr<reference::ReferenceModel> make_reference(reference::Profile profile,
                                                              const std::function<void(reference::Model&)>& prepare) {
        prepare(model);
        return std::make_unique<reference::ReferenceModel>(model.config, model.weights, profile);
    }
};

// Plans for one executor. Ids of blocks and rows are chosen by the test; a model without KV or state gets none.
class Scene {
public:
    Scene(const SceneModel& model, reference::NumericExecutor& executor, int32_t block_size)
        : model_(model), executor_(executor), block_size_(block_size), plans_(model.model.config.vocab_size) {}

    Scene& next() {
        plans_.next();
        return *this;
    }
    Scene& end(int32_t slot) {
        plans_.end(slot);
        return *this;
    }
    Scene& start(StartSpec spec) {
        if (!model_.has_kv) spec.blocks.clear();
        plans_.start(spec);
        return *this;
    }
    Scene& copy(int32_t src, int32_t dst, int32_t num_slots) {
        if (model_.has_kv && num_slots > 0) plans_.copy(src, dst, num_slots);
        return *this;
    }
    Scene& compute(SequenceSpec spec) {
        if (!model_.has_kv) spec.new_blocks.clear();
        if (!model_.has_state) {
            spec.state_src = spec.state_dst = index(kNoState);
            spec.state_writes.clear();
        }
        plans_.compute(spec);
        return *this;
    }
    // Runs the plan; sampled tokens are in `result`.
    void step() { ASSERT_TRUE(executor_.execute(plans_.plan(), result)); }

    [[nodiscard]] int64_t blocks_for(int64_t length) const { return (length + block_size_ - 1) / block_size_; }

    // The logits that slot drew from have the bits of an uncached run over `tokens`.
    void expect_uncached(int32_t slot, std::span<const TokenId> tokens, const std::string& where) {
        const Uncached want = uncached(model_.reference, tokens);
        const auto got = executor_.logits(SequenceSlot{slot}, 0);
        const int64_t different = first_different_bit(got, want.logits);
        EXPECT_EQ(different, -1) << where << ": logit " << different << " is " << got[different] << ", uncached "
                                 << want.logits[different];
    }
    // The head in these places has the digest of an uncached run over `tokens`.
    void expect_head(std::span<const TokenId> tokens, const std::vector<int32_t>& blocks, int32_t row,
                     const std::string& where) {
        const auto got = head(static_cast<int64_t>(tokens.size()), blocks, row);
        ASSERT_TRUE(got.has_value()) << where;
        EXPECT_EQ(got->hex(), uncached(model_.reference, tokens).digest.hex()) << where;
    }
    std::optional<Digest> head(int64_t length, const std::vector<int32_t>& blocks, int32_t row) {
        std::vector<BlockRun> runs;
        for (const int32_t block : blocks) runs.push_back({BlockId{block}, 1});
        if (!model_.has_kv) runs.clear();
        return executor_.head_digest({.length = length, .blocks = runs, .state = StateIndex{row}});
    }

    StepResult result;

private:
    const SceneModel& model_;
    reference::NumericExecutor& executor_;
    int32_t block_size_;
    PlanBuilder plans_;
};

}  // namespace verbatim::tests
