// Steps that only differ in their tokens. When every running request decodes and no request can come, end, give way or
// be published, the scheduler has nothing to decide: the next plans are known. Such steps are taken together.
//   Q1  what is decided, published and sent to clients is what one plan for each step would give, the steps' numbers
//       and the ids of blocks among it; so is every later plan. Clients get a request's tokens of these steps together
//   Q2  no turn ends in them: the step that ends one has a plan
// Recorders see no plans and no results of them.
#include <algorithm>

#include "engine/base/check.h"
#include "engine/engine.h"

namespace verbatim {
namespace {

// It has been given tokens, and all that it needs for the next one is to compute the last of them.
bool only_decodes(const Sequence& sequence) {
    const bool whole = sequence.request.ignore_stop || sequence.request.stop_strings.empty();
    return whole && sequence.decodes() && !sequence.output.empty() && sequence.snapshots.empty() &&
           sequence.request.forced_output.empty() && !sequence.has_grammar() &&
           sequence.output.size() >= sequence.request.known_output.size();
}

}  // namespace

// How many of the next steps are equal; 0 when the next one must be planned.
int64_t Engine::num_equal_steps() const {
    const std::vector<Sequence*>& running = scheduler_.running();
    const auto num_running = static_cast<int32_t>(running.size());
    const SchedulerConfig& limits = config_.scheduler;
    const bool closed = scheduler_.waiting().empty() || num_running == limits.max_num_sequences;
    if (limits.max_state_lag_tokens > 0) return 0;  // steps that write rows and steps that do not
    if (running.empty() || !closed || drafting_.enabled() || num_running > limits.step_tokens) return 0;
    if (scheduler_.owes_ends() || !publication_.empty() || materialised_ != next_step_ - 1) return 0;
    int64_t num_steps = INT32_MAX;
    for (const Sequence* sequence : running) {
        if (!only_decodes(*sequence) || scheduler_.verifies(*sequence)) return 0;
        num_steps = std::min(num_steps, sequence->max_tokens - static_cast<int64_t>(sequence->output.size()) - 1);
    }
    CHECK_GE(num_steps, 0);
    const KvGroup& kv = cache_.kv();
    int64_t missing = 0;
    for (const Sequence* sequence : running)
        missing += kv.blocks_missing(sequence->memory.blocks, sequence->num_tokens() + num_steps - 1);
    // So many steps cross at most so many borders of blocks.
    if (missing > kv.pool().num_free()) num_steps = int64_t{kv.pool().num_free() / num_running} * kv.block_size();
    return num_steps;
}

bool Engine::take_equal_steps() {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    const int64_t max_steps = num_equal_steps();
    if (max_steps == 0) return false;
    const std::vector<Sequence*>& running = scheduler_.running();
    std::vector<SequenceSlot> slots;
    slots.reserve(running.size());
    for (const Sequence* sequence : running) slots.push_back(sequence->slot);
    executor_->take_equal_steps(slots, max_steps, equal_steps_);
    const int64_t num_steps = equal_steps_.num_steps;
    CHECK(num_steps <= max_steps && equal_steps_.tokens.size() == slots.size() * static_cast<size_t>(num_steps),
          "{} tokens of {} steps, at most {}", equal_steps_.tokens.size(), num_steps, max_steps);
    if (num_steps == 0) return false;
    grow_for_equal_steps(num_steps);
    next_step_ += num_steps;
    plan_.step = next_step_ - 1;
    run_context().step = plan_.step;
    stats_.steps += num_steps;
    std::span<const TokenId> tokens(equal_steps_.tokens);
    for (Sequence* sequence : running) {
        take_equal_tokens(*sequence, tokens.first(static_cast<size_t>(num_steps)));
        account(*sequence, num_steps);
        tokens = tokens.subspan(static_cast<size_t>(num_steps));
        scheduler_.has_decoded(*sequence, plan_.step);
    }
    materialised_ = plan_.step;
    elapsed_ns_ = equal_steps_.elapsed_ns;
    cache_.complete_step(materialised_);
    return true;
}

// As take_token() takes each of them, for tokens that end nothing and are sent as they come.
void Engine::take_equal_tokens(Sequence& sequence, std::span<const TokenId> tokens) {
    const ChatRequest& request = sequence.request;
    std::vector<TokenId>& output = sequence.output;
    CHECK(static_cast<int64_t>(output.size() + tokens.size()) < sequence.max_tokens && !sequence.ending &&
              sequence.num_emitted == output.size(),
          "request {} has {} of {} tokens, {} told, and is told {} more", index(sequence.id), output.size(),
          sequence.max_tokens, sequence.num_emitted, tokens.size());
    const int32_t vocab_size = store_.vocab_size();
    int outside = 0;
    for (const TokenId token : tokens) outside += static_cast<int>(token < 0) | static_cast<int>(token >= vocab_size);
    CHECK(outside == 0, "the executor drew {} tokens that are none of {}", outside, vocab_size);
    if (!request.ignore_stop) {
        for (const TokenId stop : request.stop_tokens)
            CHECK(std::ranges::count(tokens, stop) == 0, "request {} ends among equal steps", index(sequence.id));
    }
    output.insert(output.end(), tokens.begin(), tokens.end());
    stats_.generated_tokens += static_cast<int64_t>(tokens.size());
    events_.emplace_back(TokensEvent{sequence.id, event_tokens_.size(), tokens.size()});
    event_tokens_.insert(event_tokens_.end(), tokens.begin(), tokens.end());
    recorder_.on_tokens(sequence.id, tokens);
    sequence.num_emitted = output.size();
}

std::span<const TokenId> Engine::tokens_of(const TokensEvent& event) const {
    CHECK(event.first_token + event.num_tokens <= taken_event_tokens_.size(), "tokens [{}, +{}) of {} that were told",
          event.first_token, event.num_tokens, taken_event_tokens_.size());
    return std::span(taken_event_tokens_).subspan(event.first_token, event.num_tokens);
}

// In the order in which the steps would have asked for blocks: step by step, and in each by sequence.
void Engine::grow_for_equal_steps(int64_t num_steps) {
    const KvGroup& kv = cache_.kv();
    if (!kv.enabled()) return;
    for (int64_t step = 0; step < num_steps; ++step) {
        for (Sequence* sequence : scheduler_.running()) {
            const int64_t end = sequence->num_tokens() + step;
            if (end > int64_t{sequence->memory.blocks.num_blocks} * kv.block_size())
                CHECK(cache_.grow(sequence->memory, end));
        }
    }
}

}  // namespace verbatim
