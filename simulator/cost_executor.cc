#include "simulator/cost_executor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/prng.h"

namespace verbatim {
namespace {

// Any token except kStopToken.
TokenId any_token(uint64_t seed, int32_t vocab_size) {
    return 1 + static_cast<TokenId>(Prng(seed).below(static_cast<uint64_t>(vocab_size) - 1));
}

}  // namespace

CostExecutor::CostExecutor(CostModel* cost, int32_t vocab_size, uint64_t engine)
    : cost_(cost), vocab_size_(vocab_size), engine_(engine) {
    CHECK_GT(vocab_size, 1);
}

uint64_t CostExecutor::seed_of(RequestId request) const {
    return static_cast<uint64_t>(index(request)) * 0x9e3779b97f4a7c15u + (engine_ << 40u);
}

void CostExecutor::expect_answer(RequestId request, int64_t num_tokens) {
    CHECK_GE(num_tokens, 0);
    planned_[request] = {num_tokens, {}};
}

void CostExecutor::expect_answer(RequestId request, std::vector<TokenId> tokens) {
    const auto num_tokens = static_cast<int64_t>(tokens.size());
    planned_[request] = {num_tokens, std::move(tokens)};
}

Status CostExecutor::execute(const StepPlan& plan, StepResult& result) {
    result.clear(plan.step);
    result.materialised_through_step = plan.step;
    ++num_plans_;
    work_.clear();
    for (const SequenceStart& one : plan.new_sequences) start(one);
    work_.add(plan);
    for (const ScheduledSequence& sequence : plan.sequences) {
        slot(sequence.slot).num_tokens = sequence.known_end();
        if (sequence.num_sampled_positions > 0) draw_window(plan, sequence, result);
    }
    price_work();
    ASSIGN_OR_RETURN(result.elapsed_ns, elapsed_ns(plan));
    return {};
}

void CostExecutor::price_work() {
    if (work_.num_tokens > 0) work_.step = num_priced_++;
    price_ = cost_ != nullptr ? cost_->price(work_) : Price{};
    total_.add(price_);
}

void CostExecutor::take_equal_steps_for(int64_t num_steps, int64_t until_ns) {
    max_equal_steps_ = num_steps;
    equal_steps_until_ns_ = until_ns;
}

void CostExecutor::take_equal_steps(std::span<const SequenceSlot> slots, int64_t max_steps, EqualSteps& steps) {
    CHECK(!slots.empty(), "equal steps without a sequence");
    steps = {.tokens = std::move(steps.tokens)};
    max_steps = std::min(max_steps, max_equal_steps_);
    StepWork work;
    work.num_tokens = work.num_logit_rows = static_cast<int64_t>(slots.size());
    for (const SequenceSlot id : slots) {
        const Slot& decoding = slot(id);
        work.add_decode(decoding.num_tokens + 1);
        max_steps = std::min(max_steps, decoding.answer->num_tokens - decoding.num_drawn - 1);
    }
    for (; steps.num_steps < max_steps && steps.elapsed_ns < equal_steps_until_ns_; ++steps.num_steps) {
        work_ = work;
        price_work();
        steps.elapsed_ns += priced_ns();
        work.decode_context += work.num_decodes;
        ++work.longest_decode;
    }
    steps.tokens.resize(slots.size() * static_cast<size_t>(steps.num_steps));
    std::span<TokenId> tokens(steps.tokens);
    for (const SequenceSlot id : slots) {
        Slot& decoding = slot(id);
        decoding.num_tokens += steps.num_steps;
        draw(decoding, tokens.first(static_cast<size_t>(steps.num_steps)));
        tokens = tokens.subspan(static_cast<size_t>(steps.num_steps));
    }
}

int64_t CostExecutor::priced_ns() const {
    return cost_ == nullptr ? 0 : std::max<int64_t>(1, std::llround(price_.total_ns()));
}

Result<int64_t> CostExecutor::elapsed_ns(const StepPlan& plan) const {
    const auto place = static_cast<size_t>(plan.step);
    if (!recorded_ns_.empty() && place >= recorded_ns_.size())
        return error("the recorded run has {} steps, this one goes on", recorded_ns_.size());
    if (!recorded_ns_.empty()) return recorded_ns_[place];
    return plan.sequences.empty() ? 0 : priced_ns();
}

auto CostExecutor::slot(SequenceSlot id) -> Slot& {
    CHECK_GE(index(id), 0);
    const auto place = static_cast<size_t>(index(id));
    if (slots_.size() <= place) slots_.resize(place + 1);
    return slots_[place];
}

auto CostExecutor::answer_to(RequestId request) const -> const Answer& {
    const auto planned = planned_.find(request);
    CHECK(planned != planned_.end(), "request {} has no answer length: expect_answer() comes first", index(request));
    return planned->second;
}

// After a preemption the request restarts with the tokens that it has drawn.
void CostExecutor::start(const SequenceStart& start) {
    CHECK(start.num_prompt_tokens > 0 && start.num_prompt_tokens <= start.tokens.size(),
          "request {} starts with {} tokens, {} of them its prompt's", index(start.request), start.tokens.size(),
          start.num_prompt_tokens);
    slot(start.slot) = {.request = start.request,
                        .num_tokens = start.num_computed_tokens,
                        .num_drawn = start.tokens.size() - start.num_prompt_tokens,
                        .answer = &answer_to(start.request)};
}

TokenId CostExecutor::token_of(RequestId request, const Answer& answer, int64_t place) const {
    if (place < static_cast<int64_t>(answer.recorded.size())) return answer.recorded[static_cast<size_t>(place)];
    if (place + 1 >= answer.num_tokens) return kStopToken;
    return any_token(seed_of(request) + static_cast<uint64_t>(place), vocab_size_);
}

TokenId CostExecutor::token_at(RequestId request, int64_t place) const {
    return token_of(request, answer_to(request), place);
}

// Fills `tokens` with the next tokens; none of them ends the answer.
void CostExecutor::draw(Slot& slot, std::span<TokenId> tokens) const {
    if (!slot.answer->recorded.empty()) {
        for (TokenId& token : tokens) token = draw(slot);
        return;
    }
    uint64_t seed = seed_of(slot.request) + static_cast<uint64_t>(slot.num_drawn);
    const int32_t vocab_size = vocab_size_;
    for (TokenId& token : tokens) token = any_token(seed++, vocab_size);
    slot.num_drawn += std::ssize(tokens);
    CHECK(slot.num_drawn < slot.answer->num_tokens, "request {} draws {} of {} tokens", index(slot.request),
          slot.num_drawn, slot.answer->num_tokens);
}

TokenId CostExecutor::draw(Slot& slot) const { return token_of(slot.request, *slot.answer, slot.num_drawn++); }

// One token, and one more for every accepted draft.
void CostExecutor::draw_window(const StepPlan& plan, const ScheduledSequence& sequence, StepResult& result) {
    Slot& drawing = slot(sequence.slot);
    const auto drafts = plan.drafts(sequence);
    drawn_.assign(1, draw(drawing));
    for (const TokenId draft : drafts) {
        if (draft != drawn_.back()) break;
        drawn_.push_back(draw(drawing));
    }
    CHECK_LE(drawn_.size(), drafts.size() + 1);
    drawing.num_tokens += static_cast<int64_t>(drawn_.size()) - 1;
    result.add(sequence.slot, drawn_);
}

}  // namespace verbatim
