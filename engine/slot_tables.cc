#include "engine/slot_tables.h"

#include <algorithm>

#include "engine/base/check.h"
#include "engine/request/token_mask.h"

namespace verbatim {
namespace {

int64_t num_blocks(std::span<const BlockRun> runs) {
    int64_t sum = 0;
    for (const BlockRun& run : runs) sum += run.count;
    return sum;
}

}  // namespace

SlotTables::SlotTables(SlotTablesConfig config) : config_(config) {
    CHECK_GT(config.vocab_size, 0);
    CHECK_GT(config.pools.block_size, 0);
    CHECK(config.pools.num_blocks >= 0 && config.pools.num_state_rows >= 0);
    tables_of_block_.assign(config.pools.num_blocks, 0);
    owner_of_row_.assign(config.pools.num_state_rows, kNoSlot);
    row_destination_.assign(config.pools.num_state_rows, -1);
}

bool SlotTables::is_live(SequenceSlot slot) const {
    return index(slot) >= 0 && index(slot) < num_slots() && slots_[index(slot)].live;
}

const SlotTable& SlotTables::at(SequenceSlot slot) const {
    CHECK(is_live(slot), "slot {} of {}", index(slot), num_slots());
    return slots_[index(slot)];
}

Status SlotTables::apply(const StepPlan& plan) {
    checked_slot_ = kNoSlot;
    RETURN_IF_ERROR(plan.check_slices());
    for (const SequenceSlot slot : plan.finished_slots) RETURN_IF_ERROR(end(checked_slot_ = slot));
    for (const SequenceStart& sequence_start : plan.new_sequences) {
        checked_slot_ = sequence_start.slot;
        RETURN_IF_ERROR(start(plan, sequence_start));
    }
    int64_t last_admission = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        checked_slot_ = sequence.slot;
        RETURN_IF_ERROR(extend(plan, sequence));
        const int64_t admission = at(sequence.slot).admission;
        if (admission <= last_admission) {
            return error(
                "step {}: slot {} (admission {}) is scheduled after admission {}: each slot once, oldest first",
                plan.step, index(sequence.slot), admission, last_admission);
        }
        last_admission = admission;
    }
    CHECK_LE(last_admission, num_admitted_);
    return config_.check_memory ? check_memory(plan) : Status();
}

Status SlotTables::check_memory(const StepPlan& plan) {
    for (const ScheduledSequence& sequence : plan.sequences) {
        checked_slot_ = sequence.slot;
        RETURN_IF_ERROR(check_written_blocks(sequence));
    }
    RETURN_IF_ERROR(check_copies(plan));
    for (const ScheduledSequence& sequence : plan.sequences) {
        checked_slot_ = sequence.slot;
        RETURN_IF_ERROR(check_state(plan, sequence));
    }
    return check_row_uses(plan);
}

void SlotTables::advance(const StepPlan& plan, std::span<const SampledTokens> drawn) {
    for (const ScheduledSequence& sequence : plan.sequences) {
        SlotTable& table = slots_[index(sequence.slot)];
        CHECK(sequence.num_sampled_positions == 0 || !drawn.empty(),
              "slot {} samples, and the result has no tokens of it", index(sequence.slot));
        table.length = length_after(sequence, sequence.num_sampled_positions > 0 ? &drawn.front() : nullptr);
        if (sequence.num_sampled_positions > 0) drawn = drawn.subspan(1);
        table.tokens.resize(table.tokens.size() - static_cast<size_t>(sequence.num_drafts()));
        CHECK(table.length <= static_cast<int64_t>(table.tokens.size()) + sequence.num_drafts(),
              "slot {} has computed {} tokens and knows {}", index(sequence.slot), table.length, table.tokens.size());
        table.stepped = true;
        if (has_state() && sequence.state_dst != kNoState) {
            table.source = sequence.state_dst;
            table.state_length = sequence.known_end();
        }
    }
    CHECK(drawn.empty(), "{} sequences too many were told tokens", drawn.size());
}

Status SlotTables::end(SequenceSlot slot) {
    if (!is_live(slot)) return error("slot {} ends, but it is not live", index(slot));
    SlotTable& table = slots_[index(slot)];
    for (const BlockId block : table.blocks) CHECK_GE(--tables_of_block_[index(block)], 0);
    if (is_row(table.state)) {
        SequenceSlot& owner = owner_of_row_[index(table.state)];
        CHECK(owner == slot, "row {} of slot {} is slot {}'s", index(table.state), index(slot), index(owner));
        owner = kNoSlot;
    }
    table = SlotTable{};
    return {};
}

Status SlotTables::start(const StepPlan& plan, const SequenceStart& start) {
    const int32_t slot = index(start.slot);
    if (slot < 0 || slot >= kMaxSlots)
        return error("step {}: start of slot {}, wanted one of {}", plan.step, slot, kMaxSlots);
    if (is_live(start.slot)) {
        return error("step {}: slot {} starts for request {}, but request {} has not ended", plan.step, slot,
                     index(start.request), index(slots_[slot].request));
    }
    if (start.num_prompt_tokens < 0 || start.num_prompt_tokens > start.tokens.size() || start.num_computed_tokens < 0 ||
        start.num_computed_tokens >= start.tokens.size()) {
        return error("step {}: slot {} starts with {} tokens, {} of the prompt, {} computed", plan.step, slot,
                     start.tokens.size(), start.num_prompt_tokens, start.num_computed_tokens);
    }
    if (slot >= num_slots()) slots_.resize(slot + 1);
    SlotTable& table = slots_[slot];
    CHECK(table.tokens.empty() && table.blocks.empty(), "slot {} starts with what another left", slot);
    table.live = true;
    table.request = start.request;
    table.admission = ++num_admitted_;
    table.num_prompt_tokens = start.num_prompt_tokens;
    table.num_attached_tokens = start.num_computed_tokens;
    table.length = start.num_computed_tokens;
    table.state_length = start.num_computed_tokens;
    table.tokens = start.tokens.to_vector();
    table.sampling = start.sampling;
    if (!config_.check_memory) return {};
    const int64_t want = config_.pools.num_blocks > 0 ? start.num_computed_tokens / config_.pools.block_size : 0;
    if (num_blocks(plan.blocks_of(start)) != want) {
        return error("step {}: slot {} attaches {} tokens with {} full blocks, {} are needed", plan.step, slot,
                     start.num_computed_tokens, num_blocks(plan.blocks_of(start)), want);
    }
    for (const BlockRun& run : plan.blocks_of(start)) {
        for (int32_t i = 0; i < run.count; ++i) {
            const BlockId block{index(run.first) + i};
            RETURN_IF_ERROR(count_block(block, 1));
            table.blocks.push_back(block);
        }
    }
    return {};
}

Status SlotTables::extend(const StepPlan& plan, const ScheduledSequence& sequence) {
    const int32_t slot = index(sequence.slot);
    if (!is_live(sequence.slot)) return error("step {}: slot {} is scheduled, but it is not live", plan.step, slot);
    SlotTable& table = slots_[slot];
    CHECK(table.admission > 0 && table.num_prompt_tokens >= 0, "slot {} lives, and was never started", slot);
    const auto appended = plan.appended(sequence);
    for (const TokenId token : appended) {
        if (token < 0 || token >= config_.vocab_size) {
            return error("step {}: slot {} appends token {} of a vocabulary of {}", plan.step, slot, token,
                         config_.vocab_size);
        }
    }
    const bool only_moves = sequence.num_new_tokens == 0 && (sequence.state_dst != kNoState || !has_state());
    if (only_moves && sequence.num_computed_tokens >= (has_state() ? table.state_length : 0)) {
        table.length = std::min(table.length, sequence.num_computed_tokens);
        table.tokens.resize(std::min(table.tokens.size(), static_cast<size_t>(sequence.num_computed_tokens)));
    }
    table.tokens.insert(table.tokens.end(), appended.begin(), appended.end());
    const int64_t known = static_cast<int64_t>(table.tokens.size());
    const int64_t end = sequence.end();
    if (sequence.num_computed_tokens != table.length || (sequence.num_new_tokens < 1 && !only_moves) || end > known) {
        return error("step {}: slot {} computes {} tokens from {}, but it has {} computed and {} known", plan.step,
                     slot, sequence.num_new_tokens, sequence.num_computed_tokens, table.length, known);
    }
    if (sequence.num_sampled_positions > 0 && end != known) {
        return error("step {}: slot {} draws token {}, but it knows {} already", plan.step, slot, end, known);
    }
    if (sequence.num_sampled_positions < 0 || sequence.num_sampled_positions > sequence.num_new_tokens ||
        sequence.num_drafts() > static_cast<int32_t>(appended.size())) {
        return error("step {}: slot {} draws {} times over {} new tokens, of which {} were appended", plan.step, slot,
                     sequence.num_sampled_positions, sequence.num_new_tokens, appended.size());
    }
    if (sequence.num_scored_positions < 0 || sequence.num_logit_positions() > sequence.num_new_tokens) {
        return error("step {}: slot {} scores {} and samples {} of {} new tokens", plan.step, slot,
                     sequence.num_scored_positions, sequence.num_sampled_positions, sequence.num_new_tokens);
    }
    RETURN_IF_ERROR(take_mask(plan, sequence));
    if (!config_.check_memory) return {};
    for (const BlockRun& run : plan.new_blocks(sequence)) {
        for (int32_t i = 0; i < run.count; ++i) {
            const BlockId block{index(run.first) + i};
            RETURN_IF_ERROR(count_block(block, 0));
            ++tables_of_block_[index(block)];
            table.blocks.push_back(block);
        }
    }
    const int64_t slots = static_cast<int64_t>(table.blocks.size()) * config_.pools.block_size;
    if (config_.pools.num_blocks > 0 && slots < end) {
        return error("step {}: slot {} computes up to position {}, but its {} blocks hold {}", plan.step, slot, end,
                     table.blocks.size(), slots);
    }
    return {};
}

Status SlotTables::apply_masks(const StepPlan& plan) {
    for (const ScheduledSequence& sequence : plan.sequences) RETURN_IF_ERROR(take_mask(plan, sequence));
    return {};
}

Status SlotTables::take_mask(const StepPlan& plan, const ScheduledSequence& sequence) {
    const int32_t slot = index(sequence.slot);
    CHECK(is_live(sequence.slot), "slot {} has a mask, and is not live", slot);
    const std::span<const int32_t> mask = plan.mask_of(sequence);
    if (!mask.empty() && (sequence.num_sampled_positions != 1 || !is_valid_mask(mask, config_.vocab_size))) {
        return error("step {}: slot {} samples {} times under a mask of {} runs, which {}", plan.step, slot,
                     sequence.num_sampled_positions, mask.size(),
                     is_valid_mask(mask, config_.vocab_size) ? "is of one position" : "is none of the vocabulary");
    }
    slots_[slot].mask_runs.assign(mask.begin(), mask.end());
    return {};
}

// `times` = 1: one more table may name the block; 0: none does so far.
Status SlotTables::count_block(BlockId block, int32_t times) {
    if (index(block) < 0 || index(block) >= config_.pools.num_blocks) {
        return error("block {} of a pool of {}", index(block), config_.pools.num_blocks);
    }
    if (times == 0 && tables_of_block_[index(block)] != 0) {
        return error("block {} is new, but {} live tables name it", index(block), tables_of_block_[index(block)]);
    }
    tables_of_block_[index(block)] += times;
    CHECK_GE(tables_of_block_[index(block)], 0);
    return {};
}

Status SlotTables::check_written_blocks(const ScheduledSequence& sequence) const {
    if (config_.pools.num_blocks == 0 || sequence.num_new_tokens == 0) return {};
    const SlotTable& table = at(sequence.slot);
    const int64_t last = (sequence.end() - 1) / config_.pools.block_size;
    for (int64_t i = table.length / config_.pools.block_size; i <= last; ++i) {
        const int32_t block = index(table.blocks[i]);
        if (tables_of_block_[block] != 1) {
            return error("slot {} writes block {} (place {} of its table), but {} live tables name it",
                         index(sequence.slot), block, i, tables_of_block_[block]);
        }
    }
    return {};
}

Status SlotTables::check_copies(const StepPlan& plan) {
    size_t num_tails = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        const SlotTable& table = at(sequence.slot);
        const auto num_slots = static_cast<int32_t>(table.length % config_.pools.block_size);
        if (table.stepped || num_slots == 0 || config_.pools.num_blocks == 0) continue;
        ++num_tails;
        checked_slot_ = sequence.slot;
        CHECK(table.blocks.size() > static_cast<size_t>(table.length / config_.pools.block_size),
              "slot {} attaches {} tokens in {} blocks", index(sequence.slot), table.length, table.blocks.size());
        const BlockId tail = table.blocks[table.length / config_.pools.block_size];
        const auto copies = std::count_if(plan.copies.begin(), plan.copies.end(), [&](const BlockCopy& copy) {
            return copy.dst == tail && copy.num_slots == num_slots;
        });
        if (copies != 1) {
            return error(
                "step {}: slot {} attaches {} tokens: {} copies of {} slots to its tail block {}, one is needed",
                plan.step, index(sequence.slot), table.length, copies, num_slots, index(tail));
        }
    }
    checked_slot_ = kNoSlot;
    if (plan.copies.size() != num_tails) {
        return error("step {}: {} copies for {} tails", plan.step, plan.copies.size(), num_tails);
    }
    for (const BlockCopy& copy : plan.copies) {
        const auto is_src = [&](const BlockCopy& other) { return other.dst == copy.src; };
        if (index(copy.src) < 0 || index(copy.src) >= config_.pools.num_blocks) {
            return error("step {}: a copy from block {} of a pool of {}", plan.step, index(copy.src),
                         config_.pools.num_blocks);
        }
        if (std::any_of(plan.copies.begin(), plan.copies.end(), is_src)) {
            return error("step {}: block {} is copied and copied to", plan.step, index(copy.src));
        }
    }
    return {};
}

bool SlotTables::is_row(StateIndex row) const { return index(row) >= 0 && index(row) < config_.pools.num_state_rows; }

Status SlotTables::check_state(const StepPlan& plan, const ScheduledSequence& sequence) {
    SlotTable& table = slots_[index(sequence.slot)];
    CHECK(table.live, "slot {} computes, and is not live", index(sequence.slot));
    int64_t last_length = table.length;
    for (const StateWrite& write : plan.writes_of(sequence)) {
        if (write.length <= last_length || write.length > sequence.known_end() || has_state() != is_row(write.dst)) {
            return error("step {}: slot {} writes its state at {} to row {}, while it computes {} tokens from {}",
                         plan.step, index(sequence.slot), write.length, index(write.dst), sequence.num_new_tokens,
                         table.length);
        }
        last_length = write.length;
    }
    if (!has_state()) {
        if (sequence.state_src == kNoState && sequence.state_dst == kNoState) return {};
        return error("step {}: slot {} names state rows {} and {}, but the model has no state", plan.step,
                     index(sequence.slot), index(sequence.state_src), index(sequence.state_dst));
    }
    RETURN_IF_ERROR(check_rows(plan, sequence));
    table.source = sequence.state_src;
    if (sequence.state_dst != kNoState) table.state = sequence.state_dst;
    return {};
}

Status SlotTables::check_rows(const StepPlan& plan, const ScheduledSequence& sequence) const {
    const SlotTable& table = at(sequence.slot);
    const StateIndex src = sequence.state_src;
    const StateIndex dst = sequence.state_dst;
    const bool src_is_right = table.stepped      ? src == table.source
                              : table.length > 0 ? is_row(src) && src != dst
                                                 : src == kNoState;
    const bool dst_is_right = dst == kNoState || (table.state == kNoState ? is_row(dst) : dst == table.state);
    if (!src_is_right || !dst_is_right) {
        return error("step {}: slot {} at length {} reads state row {} and writes {}; its own is {}", plan.step,
                     index(sequence.slot), table.length, index(src), index(dst), index(table.state));
    }
    const int64_t logged_from = dst != kNoState ? sequence.known_end() : sequence.num_state_tokens;
    if (sequence.num_state_tokens == table.state_length && sequence.end() - logged_from <= config_.max_log_tokens) {
        return {};
    }
    return error("step {}: slot {} has a state after {} of {} tokens, not {}, and logs {} more; a log holds {}",
                 plan.step, index(sequence.slot), table.state_length, table.length, sequence.num_state_tokens,
                 sequence.end() - logged_from, config_.max_log_tokens);
}

Status SlotTables::check_row_uses(const StepPlan& plan) {
    if (config_.pools.num_state_rows == 0) return {};
    const auto claim = [&](StateIndex row, SequenceSlot slot) -> Status {
        CHECK(is_row(row), "row {} of {}", index(row), config_.pools.num_state_rows);
        if (row_destination_[index(row)] == plan.step)
            return error("step {}: state row {} is written twice", plan.step, index(row));
        row_destination_[index(row)] = plan.step;
        const SequenceSlot owner = owner_of_row_[index(row)];
        if (owner == kNoSlot || owner == slot) return {};
        return error("step {}: slot {} writes state row {}, which is slot {}'s", plan.step, index(slot), index(row),
                     index(owner));
    };
    for (const ScheduledSequence& sequence : plan.sequences) {
        checked_slot_ = sequence.slot;
        if (sequence.state_dst == kNoState) continue;
        RETURN_IF_ERROR(claim(sequence.state_dst, sequence.slot));
        owner_of_row_[index(sequence.state_dst)] = sequence.slot;
    }
    for (const ScheduledSequence& sequence : plan.sequences) {
        checked_slot_ = sequence.slot;
        for (const StateWrite& write : plan.writes_of(sequence)) RETURN_IF_ERROR(claim(write.dst, kNoSlot));
    }
    for (const ScheduledSequence& sequence : plan.sequences) {
        const StateIndex src = sequence.state_src;
        checked_slot_ = sequence.slot;
        if (src == kNoState || src == sequence.state_dst || row_destination_[index(src)] != plan.step) continue;
        return error("step {}: slot {} reads state row {}, which the step also writes", plan.step, index(sequence.slot),
                     index(src));
    }
    return {};
}

}  // namespace verbatim
