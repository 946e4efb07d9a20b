// tests/kernels/window_run.h: sequences that decode in windows on an executor with pools: partly correct drafts, state
// rows written or deferred, all compared with the uncached reference's token-by-token results.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/prng.h"
#include "reference/ops/sampling.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::tests {

// A sequence's tokens, and the logits that each was sampled from.
struct PlainRun {
    PlainRun(const SceneModel& model, std::vector<TokenId> prompt, const SamplingParams& sampling, int64_t num_output)
        : tokens(std::move(prompt)), num_prompt(static_cast<int64_t>(tokens.size())) {
        reference::ReferenceSequence sequence(model.reference);
        sequence.append(tokens, reference::LogitRows::kLast);
        for (int64_t i = 0; i < num_output; ++i) {
            const float* row = sequence.logits().row(0);
            logits.emplace_back(row, row + sequence.logits().width);
            const std::span<const TokenId> known(tokens);
            tokens.push_back(reference::sample({.logits = logits.back(),
                                                .params = sampling,
                                                .prefix = {known.first(num_prompt), known.subspan(num_prompt)},
                                                .position = static_cast<uint64_t>(tokens.size())}));
            sequence.append(std::span(tokens).last(1), reference::LogitRows::kLast);
        }
    }
    std::vector<TokenId> tokens;  // prompt and output
    int64_t num_prompt = 0;
    std::vector<std::vector<float>> logits;  // by output token
};

struct WindowCounts {
    int64_t accepted_drafts = 0;
    int64_t rolled_back = 0;
    int64_t unwritten_rows = 0;  // steps that deferred a state write
    int64_t replayed = 0;        // tokens
    int64_t moves = 0;
};

// One sequence; windows of several sequences share steps.
class WindowSequence {
public:
    WindowSequence(const PlainRun& right, int32_t slot, int32_t row, int32_t first_block, int32_t vocab_size)
        : right_(right), slot_(slot), row_(row), first_block_(first_block), vocab_size_(vocab_size) {}

    void start(Scene& scene, const SamplingParams& sampling) {
        const auto prompt = right_.tokens.begin() + right_.num_prompt;
        scene.start({.slot = slot_, .tokens = {right_.tokens.begin(), prompt}, .sampling = sampling});
        known_ = right_.num_prompt;
    }
    [[nodiscard]] bool is_over() const { return length_ + 1 >= static_cast<int64_t>(right_.tokens.size()); }
    // A window of up to max_window tokens, or a state catch-up alone. REQUIRES: !is_over().
    void plan(Scene& scene, Prng& prng, int32_t max_window, int32_t max_log, WindowCounts& counts) {
        const int64_t behind = known_ - length_;  // at first the prompt: its window then ends the prefill
        const int64_t left = static_cast<int64_t>(right_.tokens.size()) - known_;
        const auto num_drafts =
            std::min<int64_t>(left - 1, static_cast<int64_t>(prng.below(static_cast<uint64_t>(max_window))));
        drafts_.assign(right_.tokens.begin() + known_, right_.tokens.begin() + known_ + num_drafts);
        const auto wrong = static_cast<size_t>(prng.below(static_cast<uint64_t>(num_drafts) + 2));
        if (wrong < drafts_.size()) drafts_[wrong] = (drafts_[wrong] + 1) % vocab_size_;
        const int64_t logged = length_ - state_length_;
        const bool can_stay = length_ > 0 && logged + behind + num_drafts <= max_log;
        const bool moves = !can_stay || prng.below(2) == 0;
        counts.unwritten_rows += moves ? 0 : 1;
        counts.replayed += logged;
        SequenceSpec spec{.slot = slot_,
                          .num_computed_tokens = length_,
                          .num_new_tokens = static_cast<int32_t>(behind + num_drafts),
                          .num_sampled_positions = 1 + static_cast<int32_t>(num_drafts),
                          .state_src = length_ > 0 ? row_ : -1,
                          .state_dst = moves ? row_ : -1,
                          .num_state_tokens = state_length_,
                          .appended = std::exchange(not_sent_, {})};
        spec.appended.insert(spec.appended.end(), drafts_.begin(), drafts_.end());
        if (length_ == 0) spec.new_blocks = blocks(scene);
        scene.compute(spec);
        if (moves) state_length_ = known_;
        moved_ = false;
    }
    void plan_state_catch_up(Scene& scene, WindowCounts& counts) {
        counts.replayed += length_ - state_length_;
        ++counts.moves;
        // A catch-up drops the known tokens beyond it: the last token comes with the next window.
        std::vector<TokenId> accepted = std::exchange(not_sent_, {not_sent_.back()});
        accepted.pop_back();
        scene.compute({.slot = slot_,
                       .num_computed_tokens = length_,
                       .state_src = row_,
                       .state_dst = row_,
                       .num_state_tokens = state_length_,
                       .appended = accepted});
        state_length_ = length_;
        moved_ = true;
    }
    // The reported tokens are correct, as many as the drafts allow, each sampled from the correct logits.
    void check(const StepResult& result, size_t& next_drawn, reference::NumericExecutor& executor,
               WindowCounts& counts) {
        if (moved_) return;
        const SampledTokens& drawn = result.drawn.at(next_drawn++);
        ASSERT_EQ(drawn.slot, SequenceSlot{slot_});
        const auto told = result.tokens_of(drawn);
        const auto right = std::span(right_.tokens).subspan(static_cast<size_t>(known_));
        const auto agree = static_cast<size_t>(std::ranges::mismatch(drafts_, right).in1 - drafts_.begin());
        ASSERT_EQ(told.size(), agree + 1) << "slot " << slot_ << " at " << known_;
        for (size_t i = 0; i < told.size(); ++i) {
            EXPECT_EQ(told[i], right[i]) << "slot " << slot_ << " at " << known_ << " + " << i;
            const auto& want = right_.logits[static_cast<size_t>(known_ - right_.num_prompt) + i];
            EXPECT_EQ(first_different_bit(executor.logits(SequenceSlot{slot_}, static_cast<int32_t>(i)), want), -1)
                << "slot " << slot_ << " at " << known_ << " + " << i;
        }
        counts.accepted_drafts += static_cast<int64_t>(agree);
        counts.rolled_back += static_cast<int64_t>(drafts_.size() - agree);
        not_sent_.assign(told.begin(), told.end());
        length_ = known_ + static_cast<int64_t>(agree);
        known_ += static_cast<int64_t>(told.size());
    }
    // The sequence's KV and state equal those of its tokens. REQUIRES: its row was advanced.
    void expect_head(Scene& scene, const std::string& where) const {
        scene.expect_head(std::span(right_.tokens).first(static_cast<size_t>(length_)), blocks(scene), row_, where);
    }

private:
    [[nodiscard]] std::vector<int32_t> blocks(const Scene& scene) const {
        return iota(first_block_, scene.blocks_for(static_cast<int64_t>(right_.tokens.size())));
    }

    const PlainRun& right_;
    int32_t slot_;
    int32_t row_;
    int32_t first_block_;
    int32_t vocab_size_;
    int64_t known_ = 0;
    int64_t length_ = 0;
    int64_t state_length_ = 0;
    bool moved_ = false;
    std::vector<TokenId> drafts_;
    std::vector<TokenId> not_sent_;
};

// Three sequences of different lengths and sampling share all steps. REQUIRES: pools for 3 rows and, per sequence,
// blocks_each blocks; max_log >= max_window - 1.
inline WindowCounts run_windows(const SceneModel& model, reference::NumericExecutor& executor, int32_t block_size,
                                int32_t blocks_each, int32_t max_window, int32_t max_log, uint64_t seed) {
    Prng prng(seed);
    WindowCounts counts;
    const std::vector<SamplingParams> sampling{{},
                                               {.temperature = 0.8F, .top_k = 20, .seed = 7},
                                               {.temperature = 1.2F,
                                                .repetition_penalty = 1.3F,
                                                .presence_penalty = 0.5F,
                                                .frequency_penalty = 0.2F,
                                                .seed = 9}};
    std::vector<PlainRun> right;
    std::vector<WindowSequence> sequences;
    for (size_t i = 0; i < sampling.size(); ++i) {
        const auto num_prompt = static_cast<int64_t>(1 + prng.below(20));
        right.emplace_back(model, model.tokens(num_prompt, seed + i), sampling[i], 24);
    }
    Scene scene(model, executor, block_size);
    scene.next();
    for (size_t i = 0; i < right.size(); ++i) {
        const auto number = static_cast<int32_t>(i);
        sequences.emplace_back(right[i], number, number, number * blocks_each, model.model.config.vocab_size);
        sequences.back().start(scene, sampling[i]);
    }
    const auto name = [&] { return fmt::format("seed {}", seed); };
    for (bool first = true;; first = false) {
        if (!first) scene.next();
        std::vector<WindowSequence*> in_step;
        for (WindowSequence& sequence : sequences) {
            if (sequence.is_over() || (!first && prng.below(5) == 0)) continue;
            if (!first && model.has_state && prng.below(6) == 0) {
                sequence.plan_state_catch_up(scene, counts);
            } else {
                sequence.plan(scene, prng, max_window, max_log, counts);
            }
            in_step.push_back(&sequence);
        }
        if (in_step.empty()) {
            if (std::ranges::all_of(sequences, &WindowSequence::is_over)) break;
            continue;
        }
        scene.step();
        size_t next_drawn = 0;
        for (WindowSequence* sequence : in_step) sequence->check(scene.result, next_drawn, executor, counts);
        EXPECT_EQ(next_drawn, scene.result.drawn.size());
        if (::testing::Test::HasFailure()) return counts;
    }
    if (model.has_state) {
        for (WindowSequence& sequence : sequences) sequence.plan_state_catch_up(scene, counts);
        scene.step();
    }
    for (const WindowSequence& sequence : sequences) sequence.expect_head(scene, name());
    return counts;
}

}  // namespace verbatim::tests
