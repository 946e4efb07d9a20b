// tests/support/plan_builder.h: hand-written plans.
#pragma once

#include <span>
#include <vector>

#include "engine/base/check.h"
#include "engine/step_plan.h"

namespace verbatim {

// The only token of the result's i-th sampling sequence.
inline TokenId token_of(const StepResult& result, size_t i) {
    const SampledTokens& drawn = result.drawn.at(i);
    CHECK_EQ(drawn.tokens.count, 1u);
    return result.tokens_of(drawn).front();
}

namespace tests {

struct StartSpec {
    int32_t slot = 0;
    std::vector<TokenId> tokens = {};
    int64_t num_computed_tokens = 0;
    std::vector<int32_t> blocks = {};  // the attached full ones
    SamplingParams sampling = {};
    int64_t num_prompt_tokens = -1;  // -1: all of `tokens`
};

struct SequenceSpec {
    int32_t slot = 0;
    int64_t num_computed_tokens = 0;
    int32_t num_new_tokens = 0;
    int32_t num_sampled_positions = 0;
    int32_t num_scored_positions = 0;
    int32_t state_src = -1;
    int32_t state_dst = -1;
    int64_t num_state_tokens = -1;  // -1: num_computed_tokens
    std::vector<TokenId> appended = {};
    std::vector<int32_t> new_blocks = {};
    std::vector<StateWrite> state_writes = {};
    Arithmetic arithmetic = Arithmetic::kDeterministic;
};

// Owns one plan; next() starts the following one.
class PlanBuilder {
public:
    explicit PlanBuilder(int32_t vocab_size) : store_(vocab_size) {}

    PlanBuilder& next() {
        plan_.clear(plan_.step + 1);
        return *this;
    }
    PlanBuilder& end(int32_t slot) {
        plan_.finished_slots.push_back(SequenceSlot{slot});
        return *this;
    }
    PlanBuilder& start(const StartSpec& spec) {
        SequenceStart start;
        start.slot = SequenceSlot{spec.slot};
        start.request = RequestId{num_requests_++};
        start.tokens = store_.store(spec.tokens);
        start.num_prompt_tokens = spec.num_prompt_tokens < 0 ? start.tokens.size() : spec.num_prompt_tokens;
        start.num_computed_tokens = spec.num_computed_tokens;
        start.blocks = add_blocks(spec.blocks);
        start.sampling = spec.sampling;
        plan_.new_sequences.push_back(std::move(start));
        return *this;
    }
    PlanBuilder& copy(int32_t src, int32_t dst, int32_t num_slots) {
        plan_.copies.push_back({BlockId{src}, BlockId{dst}, num_slots});
        return *this;
    }
    PlanBuilder& compute(const SequenceSpec& spec) {
        ScheduledSequence sequence;
        sequence.slot = SequenceSlot{spec.slot};
        sequence.arithmetic = spec.arithmetic;
        sequence.num_computed_tokens = spec.num_computed_tokens;
        sequence.num_new_tokens = spec.num_new_tokens;
        sequence.num_sampled_positions = spec.num_sampled_positions;
        sequence.num_scored_positions = spec.num_scored_positions;
        sequence.num_state_tokens = spec.num_state_tokens < 0 ? spec.num_computed_tokens : spec.num_state_tokens;
        sequence.state_src = StateIndex{spec.state_src};
        sequence.state_dst = StateIndex{spec.state_dst};
        sequence.appended = add(plan_.tokens, std::span(spec.appended));
        sequence.new_blocks = add_blocks(spec.new_blocks);
        sequence.state_writes = add(plan_.state_writes, std::span(spec.state_writes));
        plan_.sequences.push_back(sequence);
        return *this;
    }
    [[nodiscard]] const StepPlan& plan() const { return plan_; }

private:
    template <typename T>
    static Slice add(std::vector<T>& all, std::span<const T> part) {
        const Slice slice{static_cast<uint32_t>(all.size()), static_cast<uint32_t>(part.size())};
        all.insert(all.end(), part.begin(), part.end());
        return slice;
    }
    Slice add_blocks(const std::vector<int32_t>& ids) {
        std::vector<BlockRun> runs;
        for (const int32_t id : ids) {
            if (!runs.empty() && index(runs.back().first) + runs.back().count == id) {
                ++runs.back().count;
            } else {
                runs.push_back({BlockId{id}, 1});
            }
        }
        return add(plan_.blocks, std::span(std::as_const(runs)));
    }

    TokenStore store_;
    StepPlan plan_;
    int64_t num_requests_ = 0;
};

}  // namespace tests
}  // namespace verbatim
