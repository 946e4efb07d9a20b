// simulator/cost_executor.h: owns the executor that computes nothing: it returns what a step would take on a device,
// and ends turns where the trace says.
//
//   X1  a turn draws exactly its planned number of tokens: the last one is `kStopToken`, no other is. The scheduler
//       learns the length only from the stop token
//   X2  tokens depend on (engine's number, request, position in the answer) alone: different answers have different
//       text
//   X3  a step without sequences takes no time, every other step at least a nanosecond
//   X4  a window's drafts are accepted up to the first one that differs from the drawn token
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/executor.h"
#include "simulator/step_cost.h"

namespace verbatim {

class CostExecutor final : public Executor {
public:
    static constexpr TokenId kStopToken = 0;

    // Borrows `cost`; null: nothing takes any time. `engine`: the number of its engine among several. REQUIRES:
    // vocab_size > 1.
    CostExecutor(CostModel* cost, int32_t vocab_size, uint64_t engine = 0);

    // Sets the length of the request's answer. REQUIRES: called before the request starts; num_tokens >= 0.
    void expect_answer(RequestId request, int64_t num_tokens);
    // Sets the tokens of the request's answer, from a recorded run; X1 and X2 do not hold for it.
    void expect_answer(RequestId request, std::vector<TokenId> tokens);
    // Steps take these recorded times, from step 0 on, instead of the model's costs.
    void replay_times(std::span<const int64_t> elapsed_ns) { recorded_ns_ = elapsed_ns; }

    // Allows decode-only steps without plans: at most this many, and none that begins at `until_ns` from now or later.
    // By default none.
    void take_equal_steps_for(int64_t num_steps, int64_t until_ns);

    Status execute(const StepPlan& plan, StepResult& result) override;
    [[nodiscard]] bool takes_equal_steps() const override { return max_equal_steps_ > 0; }
    void take_equal_steps(std::span<const SequenceSlot> slots, int64_t max_steps, EqualSteps& steps) override;
    std::optional<Digest> head_digest(const HeadImage&) override { return std::nullopt; }
    // Heads have no bytes.
    [[nodiscard]] Status check_head(int64_t, std::span<const std::byte>, const Digest&) const override { return {}; }
    Status write_head(const HeadImage&, std::span<const std::byte>) override { return {}; }
    [[nodiscard]] std::string numerics_id() const override { return "cost/1"; }

    [[nodiscard]] const Price& last_price() const { return price_; }
    [[nodiscard]] const Price& total_price() const { return total_; }
    // Token `place` of the request's answer. REQUIRES: expect_answer was called.
    [[nodiscard]] TokenId token_at(RequestId request, int64_t place) const;
    [[nodiscard]] int64_t num_plans() const { return num_plans_; }
    [[nodiscard]] const StepWork& last_work() const { return work_; }

private:
    struct Answer {
        int64_t num_tokens = 0;
        std::vector<TokenId> recorded;  // empty: any
    };
    struct Slot {
        RequestId request{-1};
        int64_t num_tokens = 0;  // in the cache
        int64_t num_drawn = 0;
        const Answer* answer = nullptr;
    };
    [[nodiscard]] Slot& slot(SequenceSlot id);
    void start(const SequenceStart& start);
    [[nodiscard]] const Answer& answer_to(RequestId request) const;
    [[nodiscard]] TokenId token_of(RequestId request, const Answer& answer, int64_t place) const;
    [[nodiscard]] uint64_t seed_of(RequestId request) const;
    [[nodiscard]] TokenId draw(Slot& slot) const;
    void draw(Slot& slot, std::span<TokenId> tokens) const;
    void draw_window(const StepPlan& plan, const ScheduledSequence& sequence, StepResult& result);
    void price_work();
    [[nodiscard]] int64_t priced_ns() const;
    [[nodiscard]] Result<int64_t> elapsed_ns(const StepPlan& plan) const;

    CostModel* cost_;
    int32_t vocab_size_;
    uint64_t engine_;
    std::vector<Slot> slots_;
    std::unordered_map<RequestId, Answer> planned_;  // node addresses are stable
    std::span<const int64_t> recorded_ns_;
    int64_t num_plans_ = 0;
    int64_t num_priced_ = 0;
    int64_t max_equal_steps_ = 0;
    int64_t equal_steps_until_ns_ = 0;
    std::vector<TokenId> drawn_;  // of a window
    StepWork work_;
    Price price_;
    Price total_;
};

}  // namespace verbatim
