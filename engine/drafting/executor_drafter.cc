#include "engine/drafting/executor_drafter.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

ExecutorDrafter::ExecutorDrafter(const ExecutorDrafterConfig& config, Executor& executor, TokenStore& store)
    : config_(config), executor_(executor), store_(store) {
    CHECK(config.pools.block_size > 0 && config.max_num_slots > 0 && config.step_tokens > 0);
    CHECK(config.pools.num_state_rows == 0 || config.pools.num_state_rows >= config.max_num_slots,
          "{} rows for {} slots", config.pools.num_state_rows, config.max_num_slots);
    free_all();
}

void ExecutorDrafter::draft(std::span<DraftJob> jobs) {
    ++round_;
    plan_.clear(plan_.step + 1);
    std::vector<Round> active;
    for (DraftJob& job : jobs) {
        CHECK(
            job.max_drafts >= 1 && (config_.pools.num_state_rows == 0 || job.max_drafts - 1 <= config_.max_log_tokens),
            "{} drafts, a log of {} tokens", job.max_drafts, config_.max_log_tokens);
        CHECK(job.drafts.empty(), "request {} has {} drafts already", index(job.request), job.drafts.size());
        const int32_t slot = slot_for(job.request);
        if (slot < 0) continue;
        const auto num_known = static_cast<int64_t>(job.prompt->size() + static_cast<int64_t>(job.output.size()));
        if (slots_[slot].num_known == num_known) {  // it was asked before, and got no share of the step
            repeat_guesses(slots_[slot], job);
            continue;
        }
        if (!make_room(slot, num_known + job.max_drafts - 1)) continue;
        set_known(slots_[slot], job);
        active.push_back({&job, slot, num_known});
    }
    // The executor wants the oldest slots first; those that start now are the newest.
    std::ranges::stable_sort(active, {}, [this](const Round& round) {
        const Slot& slot = slots_[round.slot];
        return slot.started ? slot.admission : std::numeric_limits<int64_t>::max();
    });
    if (fall_back(active) && take_in(active) && guess(active)) return;
    free_all();  // the executor has failed, and forgotten every slot
}

void ExecutorDrafter::free_all() {
    CHECK(ended_slots_.empty(), "an executor that has forgotten every slot is owed {} ends", ended_slots_.size());
    slots_.clear();
    slot_of_.clear();
    free_blocks_.clear();
    for (int32_t block = config_.pools.num_blocks - 1; block >= 0; --block) free_blocks_.push_back(block);
    freed_.blocks.assign(1, {BlockId{0}, config_.pools.num_blocks});
    freed_.rows.assign(1, {StateIndex{0}, config_.pools.num_state_rows});
}

void ExecutorDrafter::ended(RequestId request) {
    const auto found = slot_of_.find(request);
    if (found == slot_of_.end()) return;
    give_up(found->second);
    CHECK(!slot_of_.contains(request), "request {} has ended, and has a slot", index(request));
}

// --- slots

// Whether so many more of each are within the budget.
bool ExecutorDrafter::fits(int64_t num_blocks, int64_t num_rows) const {
    const PoolBudget& budget = config_.budget;
    if (budget.total_bytes == 0) return true;
    const auto blocks = config_.pools.num_blocks - static_cast<int64_t>(free_blocks_.size()) + num_blocks;
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
    free_blocks_.insert(free_blocks_.end(), of.blocks.rbegin(), of.blocks.rend());
    for (const int32_t block : of.blocks) freed_.blocks.push_back({BlockId{block}, 1});
    if (config_.pools.num_state_rows > 0) freed_.rows.push_back({StateIndex{slot}, 1});
    if (of.started) ended_slots_.push_back(SequenceSlot{slot});
    CHECK(slot_of_.erase(of.request) == 1 || of.request == RequestId{-1}, "slot {} is nobody's", slot);
    CHECK_LE(free_blocks_.size(), static_cast<size_t>(config_.pools.num_blocks));
    of = Slot{};
}

bool ExecutorDrafter::make_room(int32_t slot, int64_t num_tokens) {
    CHECK(slot >= 0 && slot < static_cast<int32_t>(slots_.size()), "slot {} of {}", slot, slots_.size());
    if (config_.pools.num_blocks == 0) return true;
    const auto wanted = static_cast<size_t>((num_tokens + config_.pools.block_size - 1) / config_.pools.block_size);
    const auto missing = [&] { return static_cast<int64_t>(wanted) - std::ssize(slots_[slot].blocks); };
    while (missing() > std::ssize(free_blocks_) || !fits(missing(), 0)) {
        const int32_t oldest = oldest_slot(true);
        if (oldest < 0) return false;
        give_up(oldest);
    }
    auto& blocks = slots_[slot].blocks;
    while (blocks.size() < wanted) {
        blocks.push_back(free_blocks_.back());
        free_blocks_.pop_back();
    }
    CHECK_GE(static_cast<int64_t>(blocks.size()) * config_.pools.block_size, num_tokens);
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
    return step();
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
        if (plan_.sequences.empty()) return true;
        if (!step()) return false;
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
        if (!step()) return false;
        take_guesses(drawing);
    }
}

void ExecutorDrafter::take_guesses(std::span<Round* const> drawing) {
    CHECK_EQ(result_.drawn.size(), drawing.size());
    for (size_t i = 0; i < drawing.size(); ++i) {
        const auto tokens = result_.tokens_of(result_.drawn[i]);
        CHECK(tokens.size() <= 1, "{} guesses at once", tokens.size());
        drawing[i]->goes_on = !tokens.empty();  // nothing is drawn from a NaN
        if (tokens.empty()) continue;
        drawing[i]->job->drafts.push_back(tokens.front());
        slots_[drawing[i]->slot].tokens.push_back(tokens.front());
    }
}

// The slot's share of the next step: its next `count` tokens.
ScheduledSequence& ExecutorDrafter::plan(int32_t slot, int64_t count, bool writes_row) {
    Slot& of = slots_[slot];
    CHECK(count >= 0 && of.length + count <= static_cast<int64_t>(of.tokens.size()), "slot {}: {} tokens from {} of {}",
          slot, count, of.length, of.tokens.size());
    const bool has_state = config_.pools.num_state_rows > 0;
    const StateIndex row = has_state ? StateIndex{slot} : kNoState;
    if (!of.started) {
        of.admission = ++num_admitted_;
        of.num_sent = static_cast<int64_t>(of.tokens.size());
        plan_.new_sequences.push_back({.slot = SequenceSlot{slot},
                                       .request = of.request,
                                       .tokens = store_.store(of.tokens),
                                       .num_prompt_tokens = of.num_prompt,
                                       .sampling = of.sampling});
    }
    ScheduledSequence& sequence = plan_.sequences.emplace_back();
    sequence.slot = SequenceSlot{slot};
    sequence.num_computed_tokens = of.length;
    sequence.num_new_tokens = static_cast<int32_t>(count);
    sequence.state_src = of.started ? row : kNoState;
    sequence.num_state_tokens = has_state ? of.state_length : of.length;
    sequence.state_dst = writes_row ? row : kNoState;
    sequence.appended = {static_cast<uint32_t>(plan_.tokens.size()), 0};
    for (; count > 0 && of.num_sent < static_cast<int64_t>(of.tokens.size()); ++of.num_sent) {
        plan_.tokens.push_back(of.tokens[of.num_sent]);
        ++sequence.appended.count;
    }
    sequence.new_blocks = {static_cast<uint32_t>(plan_.blocks.size()), 0};
    for (; of.num_sent_blocks < of.blocks.size(); ++of.num_sent_blocks) {
        plan_.blocks.push_back({BlockId{of.blocks[of.num_sent_blocks]}, 1});
        ++sequence.new_blocks.count;
    }
    of.started = true;
    of.length += count;
    if (writes_row) of.state_length = of.length;
    CHECK(of.state_length <= of.length && of.num_sent <= static_cast<int64_t>(of.tokens.size()),
          "slot {}: {} tokens in its row, {} computed", slot, of.state_length, of.length);
    num_computed_ += count;
    return sequence;
}

bool ExecutorDrafter::step() {
    if (plan_.sequences.empty()) return true;
    plan_.finished_slots = std::exchange(ended_slots_, {});
    ++num_steps_;
    executor_.take_freed(freed_);
    freed_.clear();
    const Status done = executor_.execute(plan_, result_);
    CHECK(!done || result_.step == plan_.step, "result of step {}, plan of step {}", result_.step, plan_.step);
    plan_.clear(plan_.step + 1);
    return done.has_value();
}

}  // namespace verbatim
