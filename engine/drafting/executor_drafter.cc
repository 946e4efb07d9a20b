#include "engine/drafting/executor_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

ExecutorDrafter::ExecutorDrafter(const ExecutorDrafterConfig& config, Executor& executor, TokenStore& store)
    : config_(config), scratch_(executor, config.pools), store_(store) {
    CHECK(config.max_num_slots > 0 && config.step_tokens > 0);
    CHECK(config.pools.num_state_rows == 0 || config.pools.num_state_rows >= config.max_num_slots,
          "{} rows for {} slots", config.pools.num_state_rows, config.max_num_slots);
}

void ExecutorDrafter::draft(std::span<DraftJob> jobs) {
    ++round_;
    std::vector<Round> active;
    for (DraftJob& job : jobs) {
        CHECK(
            job.max_drafts >= 1 && (config_.pools.num_state_rows == 0 || job.max_drafts - 1 <= config_.max_log_tokens),
            "{} drafts, a log of {} tokens", job.max_drafts, config_.max_log_tokens);
        CHECK(job.drafts.empty(), "request {} has {} drafts already", index(job.request), job.drafts.size());
        const int32_t slot = slot_for(job.request);
        if (slot < 0) continue;
        const int64_t num_known = job.num_known();
        if (slots_[slot].num_known == num_known) {  // it was asked before, and got no share of the step
            repeat_guesses(slots_[slot], job);
            continue;
        }
        if (!make_room(slot, num_known + job.max_drafts - 1)) continue;
        set_known(slots_[slot], job);
        active.push_back({&job, slot, num_known});
    }
    std::ranges::stable_sort(active, {}, [this](const Round& round) { return slots_[round.slot].order(); });
    if (fall_back(active) && take_in(active) && guess(active)) return;
    free_all();  // the executor has failed, and forgotten every slot
}

void ExecutorDrafter::free_all() {
    scratch_.forget();
    slots_.clear();
    slot_of_.clear();
}

void ExecutorDrafter::ended(RequestId request) {
    const auto found = slot_of_.find(request);
    if (found == slot_of_.end()) return;
    give_up(found->second);
    CHECK(!slot_of_.contains(request), "request {} has ended, and has a slot", index(request));
}

// A window leaves its last draft, which was not computed, and the token behind it.
int64_t ExecutorDrafter::num_behind(const DraftJob& job) const {
    constexpr int64_t kLeftByWindow = 2;
    const auto found = slot_of_.find(job.request);
    const int64_t num_computed = found == slot_of_.end() ? 0 : slots_[found->second].length;
    const int64_t missing = job.num_known() - std::min(num_computed, job.num_known());
    return missing > kLeftByWindow ? missing : 0;
}

// --- slots

// Whether so many more of each are within the budget.
bool ExecutorDrafter::fits(int64_t num_blocks, int64_t num_rows) const {
    const PoolBudget& budget = config_.budget;
    if (budget.total_bytes == 0) return true;
    const auto blocks = config_.pools.num_blocks - scratch_.num_free_blocks() + num_blocks;
    const auto rows = static_cast<int64_t>(slot_of_.size()) + num_rows;
    return blocks * budget.block_bytes + rows * budget.row_bytes <= budget.total_bytes;
}

// Of those that do not draft in this round, the one that drafted longest ago; -1: there is none.
int32_t ExecutorDrafter::oldest_slot(bool with_blocks) const {
    int32_t oldest = -1;
    for (int32_t i = 0; i < static_cast<int32_t>(slots_.size()); ++i) {
        const Slot& slot = slots_[i];
        if (slot.request == RequestId{-1} || slot.last_used == round_ || (with_blocks && slot.blocks.empty())) continue;
        if (oldest < 0 || slot.last_used < slots_[oldest].last_used) oldest = i;
    }
    return oldest;
}

// The request's slot, a free one, or the slot that drafted longest ago; -1: all slots draft in this round.
int32_t ExecutorDrafter::slot_for(RequestId request) {
    int32_t slot = -1;
    if (const auto own = slot_of_.find(request); own != slot_of_.end()) {
        slot = own->second;
    } else {
        const auto free = std::ranges::find(slots_, RequestId{-1}, &Slot::request);
        slot = static_cast<int32_t>(free - slots_.begin());
        if (slot == config_.max_num_slots || !fits(1, 1)) {
            slot = oldest_slot(false);
            if (slot < 0) return -1;
            give_up(slot);
        } else if (free == slots_.end()) {
            slots_.emplace_back();
        }
    }
    CHECK(slot < config_.max_num_slots && (slots_[slot].request == request || slots_[slot].tokens.empty()),
          "slot {} of {} is request {}'s", slot, config_.max_num_slots, index(slots_[slot].request));
    slot_of_[request] = slot;
    slots_[slot].request = request;
    slots_[slot].last_used = round_;
    CHECK_LE(slot_of_.size(), slots_.size());
    return slot;
}

// Its blocks are free, and its executor learns of it with the next step.
void ExecutorDrafter::give_up(int32_t slot) {
    Slot& of = slots_[slot];
    scratch_.end(slot, of);
    CHECK(slot_of_.erase(of.request) == 1 || of.request == RequestId{-1}, "slot {} is nobody's", slot);
    of = Slot{};
}

bool ExecutorDrafter::make_room(int32_t slot, int64_t num_tokens) {
    CHECK(slot >= 0 && slot < static_cast<int32_t>(slots_.size()), "slot {} of {}", slot, slots_.size());
    const auto missing = [&] { return scratch_.num_missing_blocks(slots_[slot], num_tokens); };
    while (missing() > scratch_.num_free_blocks() || !fits(missing(), 0)) {
        const int32_t oldest = oldest_slot(true);
        if (oldest < 0) return false;
        CHECK_NE(oldest, slot);
        give_up(oldest);
    }
    scratch_.grow(slots_[slot], num_tokens);
    return true;
}

// The slot's tokens become what is known now, up to where they agree; what it computed behind that is void.
void ExecutorDrafter::set_known(Slot& slot, const DraftJob& job) {
    const auto num_prompt = static_cast<size_t>(job.prompt->size());
    if (slot.tokens.empty()) {
        slot.tokens = job.prompt->to_vector();
        slot.num_prompt = static_cast<int64_t>(num_prompt);
        slot.sampling = job.sampling;
    }
    CHECK(slot.num_prompt == static_cast<int64_t>(num_prompt) && slot.tokens.size() >= num_prompt,
          "a prompt of {} tokens was one of {}", num_prompt, slot.num_prompt);
    const auto guessed = std::span<const TokenId>(slot.tokens).subspan(num_prompt);
    const auto agree = static_cast<size_t>(std::ranges::mismatch(guessed, job.output).in1 - guessed.begin());
    slot.tokens.resize(num_prompt + agree);
    slot.tokens.insert(slot.tokens.end(), job.output.begin() + static_cast<std::ptrdiff_t>(agree), job.output.end());
    // The last one known is computed again: what follows it is to be drawn.
    slot.keep =
        std::min({slot.length, static_cast<int64_t>(num_prompt + agree), static_cast<int64_t>(slot.tokens.size()) - 1});
    CHECK_LE(slot.state_length, slot.keep);
    slot.num_known = static_cast<int64_t>(slot.tokens.size());
}

void ExecutorDrafter::repeat_guesses(const Slot& slot, DraftJob& job) {
    CHECK(slot.num_known >= 0 && slot.num_known <= static_cast<int64_t>(slot.tokens.size()), "{} known tokens of {}",
          slot.num_known, slot.tokens.size());
    const auto guesses = std::span<const TokenId>(slot.tokens).subspan(static_cast<size_t>(slot.num_known));
    const auto wanted = guesses.first(std::min(guesses.size(), static_cast<size_t>(job.max_drafts)));
    job.drafts.assign(wanted.begin(), wanted.end());
}

// --- steps

// Slots that computed what turned out wrong go back to where they were right.
bool ExecutorDrafter::fall_back(std::span<Round> active) {
    for (const Round& round : active) {
        Slot& slot = slots_[round.slot];
        CHECK(slot.state_length <= slot.keep && slot.keep <= slot.length, "{} of {} tokens are right, {} in the row",
              slot.keep, slot.length, slot.state_length);
        if (slot.keep == slot.length) continue;
        slot.length = slot.num_sent = slot.keep;
        plan(round.slot, 0, true);
    }
    return scratch_.step();
}

// The known tokens, in chunks; with the last of them the first guess.
bool ExecutorDrafter::take_in(std::span<Round> active) {
    for (;;) {
        int64_t budget = config_.step_tokens;
        std::vector<Round*> drawing;
        for (Round& round : active) {
            const Slot& slot = slots_[round.slot];
            const int64_t count = std::min(budget, round.num_known - slot.length);
            CHECK_GE(count, 0);
            if (count == 0) continue;
            budget -= count;
            ScheduledSequence& sequence = plan(round.slot, count, true);
            if (sequence.end() < round.num_known) continue;
            sequence.num_sampled_positions = 1;
            drawing.push_back(&round);
        }
        if (!scratch_.is_scheduled()) return true;
        if (!scratch_.step()) return false;
        take_guesses(drawing);
    }
}

// One guess after another, each of them over those before; no row takes them in.
bool ExecutorDrafter::guess(std::span<Round> active) {
    for (;;) {
        std::vector<Round*> drawing;
        for (Round& round : active) {
            CHECK_LE(static_cast<int32_t>(round.job->drafts.size()), round.job->max_drafts);
            if (!round.goes_on || static_cast<int32_t>(round.job->drafts.size()) == round.job->max_drafts) continue;
            plan(round.slot, 1, false).num_sampled_positions = 1;
            drawing.push_back(&round);
        }
        if (drawing.empty()) return true;
        if (!scratch_.step()) return false;
        take_guesses(drawing);
    }
}

void ExecutorDrafter::take_guesses(std::span<Round* const> drawing) {
    for (size_t i = 0; i < drawing.size(); ++i) {
        const std::optional<TokenId> token = scratch_.sampled(i, drawing.size());
        drawing[i]->goes_on = token.has_value();  // nothing is drawn from a NaN
        if (!token) continue;
        drawing[i]->job->drafts.push_back(*token);
        slots_[drawing[i]->slot].tokens.push_back(*token);
    }
}

// The slot's share of the next step: its next `count` tokens.
ScheduledSequence& ExecutorDrafter::plan(int32_t slot, int64_t count, bool writes_row) {
    Slot& of = slots_[slot];
    CHECK(count >= 0 && of.length + count <= static_cast<int64_t>(of.tokens.size()), "slot {}: {} tokens from {} of {}",
          slot, count, of.length, of.tokens.size());
    const bool has_state = config_.pools.num_state_rows > 0;
    const StateIndex row = has_state ? StateIndex{slot} : kNoState;
    const bool starts = !of.started;
    if (starts) {
        of.num_sent = static_cast<int64_t>(of.tokens.size());
        scratch_.start(slot, of,
                       {.request = of.request,
                        .tokens = store_.store(of.tokens),
                        .num_prompt_tokens = of.num_prompt,
                        .sampling = of.sampling});
    }
    const auto unsent = std::span<const TokenId>(of.tokens).subspan(static_cast<size_t>(of.num_sent));
    ScheduledSequence& sequence = scratch_.schedule(slot, of, count, count > 0 ? unsent : std::span<const TokenId>());
    if (count > 0) of.num_sent = static_cast<int64_t>(of.tokens.size());
    sequence.state_src = starts ? kNoState : row;
    if (has_state) sequence.num_state_tokens = of.state_length;
    sequence.state_dst = writes_row ? row : kNoState;
    if (writes_row) of.state_length = of.length;
    CHECK(of.state_length <= of.length && of.num_sent <= static_cast<int64_t>(of.tokens.size()),
          "slot {}: {} tokens in its row, {} computed", slot, of.state_length, of.length);
    num_computed_ += count;
    return sequence;
}

}  // namespace verbatim
