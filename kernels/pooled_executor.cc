#include "kernels/pooled_executor.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

using reference::Buffer;
using reference::ConstFloatRows;
using reference::HeadReader;
using reference::StatePer;
using reference::StateTensor;
using reference::StateTensors;
using reference::WalkSequence;

// --- the backend

void PooledWalk::set_step(const reference::ModelConfig& config, const PooledStep& step) {
    const auto given = [](const auto* function) { return function != nullptr && *function ? function : nullptr; };
    sequences_ = step.sequences;
    observer_ = given(step.observer);
    hidden_rows_ = given(step.hidden_rows);
    hidden_ = given(step.hidden);
    last_layer_ = static_cast<int32_t>(config.layers.size()) - 1;
    CHECK_EQ(config.reads_hidden, hidden_ != nullptr);
}

void PooledWalk::read_hidden(reference::FloatRows rows) const {
    CHECK(hidden_ != nullptr, "{} hidden rows are handed in by nothing", rows.num_rows);
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const WalkSequence& part = batch_.sequences[i];
        (*hidden_)(sequences_[i].slot, part.first_position, rows.rows(part.first_row, part.num_rows));
    }
}

void PooledWalk::begin(const reference::WalkBatch& batch) {
    CHECK_EQ(batch.sequences.size(), sequences_.size());
    batch_ = batch;
    positions_.resize(batch.tokens.size());
    sequence_of_row_.resize(batch.tokens.size());
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
        const WalkSequence& part = batch.sequences[i];
        for (int32_t r = 0; r < part.num_rows; ++r) {
            positions_[part.first_row + r] = part.first_position + r;
            sequence_of_row_[part.first_row + r] = i;
        }
    }
}

int64_t PooledWalk::num_rows(Buffer buffer) const {
    return buffer == Buffer::kHead || buffer == Buffer::kLogits ? batch_.num_logit_rows() : batch_.num_rows();
}

void PooledWalk::observe(const reference::WalkPoint& point) {
    if (hidden_rows_ != nullptr && point.op == reference::WalkOp::kLayer && point.layer == last_layer_)
        show_rows(point, *hidden_rows_);
    if (observer_ == nullptr) return;
    if (point.buffer == Buffer::kHead || point.buffer == Buffer::kLogits)
        show_logit_rows(point, *observer_);
    else
        show_rows(point, *observer_);
}

void PooledWalk::show_rows(const reference::WalkPoint& point, const reference::StepObserver& observer) {
    const ConstFloatRows all = host_rows(point.buffer).columns(point.columns.first, point.columns.count);
    CHECK_EQ(all.num_rows, batch_.num_rows());
    for (size_t i = 0; i < sequences_.size(); ++i) {
        const WalkSequence& part = batch_.sequences[i];
        observer({sequences_[i].slot, part.first_position, point, all.rows(part.first_row, part.num_rows)});
    }
}

// Those of one sequence at a time.
void PooledWalk::show_logit_rows(const reference::WalkPoint& point, const reference::StepObserver& observer) {
    const ConstFloatRows all = host_rows(point.buffer).columns(point.columns.first, point.columns.count);
    int64_t count = 0;
    for (int64_t first = 0; first < batch_.num_logit_rows(); first += count) {
        const int32_t row = batch_.logit_rows[first];
        const size_t sequence = sequence_of_row_[row];
        count = std::ranges::count_if(batch_.logit_rows.subspan(first),
                                      [&](int32_t other) { return sequence_of_row_[other] == sequence; });
        CHECK_GT(count, 0);
        observer({sequences_[sequence].slot, positions_[row], point, all.rows(first, count)});
    }
}

// --- the executor

namespace {

SlotTablesConfig tables_config(int32_t vocab_size, const StateTensors& tensors, const PooledExecutorConfig& pooled) {
    return {.vocab_size = vocab_size,
            .pools = {.block_size = pooled.pools.block_size,
                      .num_blocks = tensors.has_any(StatePer::kToken) ? pooled.pools.num_blocks : 0,
                      .num_state_rows = tensors.has_any(StatePer::kSequence) ? pooled.pools.num_state_rows : 0},
            .max_log_tokens = pooled.max_log_tokens};
}

}  // namespace

PooledExecutor::PooledExecutor(const reference::ModelConfig& config, StateTensors tensors,
                               const PooledExecutorConfig& pooled, const UnitSizes& sizes, reference::Profile profile)
    : NumericExecutor(config, tensors, tables_config(config.vocab_size, tensors, pooled), profile),
      places_({tables().config().pools, pooled.budget, sizes.block, sizes.row}) {}

// --- places

void PooledExecutor::take_freed(const FreedUnits& freed) {
    if (!places_.is_shared()) return;
    for (const BlockRun& run : freed.blocks) places_.free(UnitKind::kBlock, index(run.first), run.count);
    for (const RowRun& run : freed.rows) places_.free(UnitKind::kRow, index(run.first), run.count);
    const std::vector<ArenaRange> unused = places_.take_unused();
    if (!unused.empty()) backend().give_back(unused);
}

bool PooledExecutor::hold_runs(std::span<const BlockRun> runs) {
    for (const BlockRun& run : runs) {
        for (int32_t i = 0; i < run.count; ++i) {
            if (!places_.hold(UnitKind::kBlock, index(run.first) + i, changes_)) return false;
        }
    }
    return true;
}

bool PooledExecutor::hold_row(StateIndex row) {
    return row == kNoState || places_.hold(UnitKind::kRow, index(row), changes_);
}

// Every unit that the plan names has a place after it.
bool PooledExecutor::hold_units(const StepPlan& plan) {
    if (!hold_runs(plan.blocks)) return false;
    for (const BlockCopy& copy : plan.copies) {
        if (!hold_runs(std::array{BlockRun{copy.src, 1}, BlockRun{copy.dst, 1}})) return false;
    }
    for (const ScheduledSequence& scheduled : plan.sequences) {
        if (!hold_row(scheduled.state_src) || !hold_row(scheduled.state_dst)) return false;
    }
    return std::ranges::all_of(plan.state_writes, [this](const StateWrite& write) { return hold_row(write.dst); });
}

// A unit that is freed while it is used, which is an engine's bug, reads as another one: comparisons find it.
BlockId PooledExecutor::placed(BlockId block) const {
    return places_.is_shared() ? BlockId{places_.place(UnitKind::kBlock, index(block)).value_or(0)} : block;
}

StateIndex PooledExecutor::placed(StateIndex row) const {
    if (!places_.is_shared() || row == kNoState) return row;
    return StateIndex{places_.place(UnitKind::kRow, index(row)).value_or(0)};
}

// The lists that the step's sequences and copies are slices of.
void PooledExecutor::place_lists(const StepPlan& plan) {
    placed_writes_.clear();
    for (const StateWrite& write : plan.state_writes) placed_writes_.push_back({write.length, placed(write.dst)});
    placed_copies_.clear();
    for (const BlockCopy& copy : plan.copies) {
        placed_copies_.push_back({placed(copy.src), placed(copy.dst), copy.num_slots});
    }
    placed_blocks_.clear();
    for (const ScheduledSequence& scheduled : plan.sequences) {
        for (const BlockId block : tables().at(scheduled.slot).blocks) placed_blocks_.push_back(placed(block));
    }
}

// The image with places instead of units; `runs` keeps its blocks. Empty: one of its units is not held here.
std::optional<HeadImage> PooledExecutor::placed(const HeadImage& image, std::vector<BlockRun>& runs) const {
    if (!holds(image)) return std::nullopt;
    if (!places_.is_shared()) return image;
    if (image.state != kNoState && !places_.place(UnitKind::kRow, index(image.state))) return std::nullopt;
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count; ++i) {
            const auto place = places_.place(UnitKind::kBlock, index(run.first) + i);
            if (!place) return std::nullopt;
            runs.push_back({BlockId{*place}, 1});
        }
    }
    HeadImage placed_image = image;
    placed_image.blocks = runs;
    placed_image.state = placed(image.state);
    return placed_image;
}

// --- steps

void PooledExecutor::Share::clear() {
    tokens.clear();
    walk_sequences.clear();
    sequences.clear();
    moves.clear();
    logit_rows.clear();
    draws.clear();
}

PooledBackend& PooledExecutor::backend_of(Arithmetic arithmetic) {
    PooledBackend* ordinary = arithmetic == Arithmetic::kOrdinary ? ordinary_backend() : nullptr;
    return ordinary != nullptr ? *ordinary : backend();
}

void PooledExecutor::compute(const StepPlan& plan) {
    slots_.assign(tables().num_slots(), {});
    std::span<const BlockCopy> copies = plan.copies;
    held_ = {};
    if (places_.is_shared()) {
        changes_.clear();
        if (!hold_units(plan)) {
            held_ = error("step {}: the plan's units do not fit: {} bytes, of which {} are held", plan.step,
                          places_.arena_bytes(), places_.use().held);
            return;
        }
        if (!changes_.empty()) backend().change(changes_);
        place_lists(plan);
        copies = placed_copies_;
    }
    list_sequences(plan);
    for (const Arithmetic arithmetic : {Arithmetic::kDeterministic, Arithmetic::kOrdinary}) {
        const Share& share = shares_[static_cast<size_t>(arithmetic)];
        if (share.empty() && copies.empty()) continue;
        backend_of(arithmetic)
            .run({{share.tokens, share.walk_sequences, share.logit_rows},
                  share.sequences,
                  share.moves,
                  std::exchange(copies, {}),
                  share.draws,
                  &observer(),
                  &hidden_rows_,
                  &hidden_});
    }
}

Status PooledExecutor::computed() {
    if (!held_) return held_;
    return backend_status();
}

// Whether all of the step's sequences form one batch in the deterministic arithmetic.
bool PooledExecutor::joins(const StepPlan& plan) {
    if (ordinary_backend() == nullptr) return true;
    int64_t num_rows = 0;
    bool has_deterministic = false;
    for (const ScheduledSequence& scheduled : plan.sequences) {
        num_rows += scheduled.num_new_tokens;
        has_deterministic |= scheduled.arithmetic == Arithmetic::kDeterministic && scheduled.num_new_tokens > 0;
    }
    return has_deterministic && num_rows <= max_joined_rows();
}

void PooledExecutor::list_sequences(const StepPlan& plan) {
    for (Share& share : shares_) share.clear();
    const bool joined = joins(plan);
    const std::vector<StateWrite>& writes = places_.is_shared() ? placed_writes_ : plan.state_writes;
    size_t first_block = 0;
    for (const ScheduledSequence& scheduled : plan.sequences) {
        const Arithmetic arithmetic = joined ? Arithmetic::kDeterministic : scheduled.arithmetic;
        Share& share = shares_[static_cast<size_t>(arithmetic)];
        const int64_t num_logged = scheduled.num_computed_tokens - scheduled.num_state_tokens;
        CHECK_GE(num_logged, 0);
        auto& list = scheduled.num_new_tokens > 0 ? share.sequences : share.moves;
        std::span<const BlockId> blocks = tables().at(scheduled.slot).blocks;
        if (places_.is_shared()) blocks = std::span(placed_blocks_).subspan(first_block, blocks.size());
        first_block += blocks.size();
        list.push_back({.slot = scheduled.slot,
                        .blocks = blocks,
                        .state_src = placed(scheduled.state_src),
                        .state_dst = placed(scheduled.state_dst),
                        .num_logged_tokens = static_cast<int32_t>(num_logged),
                        .num_sampled_positions = scheduled.num_sampled_positions,
                        .num_scored_positions = scheduled.num_scored_positions,
                        .writes = part_of(writes, scheduled.state_writes)});
        if (scheduled.num_new_tokens > 0) list_rows(scheduled, arithmetic);
    }
    CHECK(!places_.is_shared() || first_block == placed_blocks_.size(), "{} of {} placed blocks are named", first_block,
          placed_blocks_.size());
}

void PooledExecutor::list_rows(const ScheduledSequence& scheduled, Arithmetic arithmetic) {
    Share& share = shares_[static_cast<size_t>(arithmetic)];
    const auto first_row = static_cast<int32_t>(share.tokens.size());
    CHECK_LE(scheduled.end(), std::ssize(tables().at(scheduled.slot).tokens));
    const auto first = tables().at(scheduled.slot).tokens.begin() + scheduled.num_computed_tokens;
    share.tokens.insert(share.tokens.end(), first, first + scheduled.num_new_tokens);
    share.walk_sequences.push_back({first_row, scheduled.num_new_tokens, scheduled.num_computed_tokens});
    slots_[index(scheduled.slot)] = {arithmetic, static_cast<int64_t>(share.logit_rows.size()),
                                     scheduled.num_scored_positions, scheduled.num_sampled_positions};
    const int32_t first_draw = first_row + scheduled.num_new_tokens - scheduled.num_sampled_positions;
    for (int32_t draw = -scheduled.num_scored_positions; draw < scheduled.num_sampled_positions; ++draw) {
        share.logit_rows.push_back(first_draw + draw);
        share.draws.push_back(draw < 0 ? reference::SamplingArgs{} : draw_args(scheduled, draw));
    }
    CHECK_EQ(share.draws.size(), share.logit_rows.size());
}

int64_t PooledExecutor::logit_row(SequenceSlot slot, int32_t draw) const {
    CHECK(tables().is_live(slot), "slot {}", index(slot));
    const Slot& of = slots_[index(slot)];
    CHECK(draw >= -of.num_scored_positions && draw < of.num_sampled_positions,
          "slot {} scored {} rows and sampled {} in the last step, not row {}", index(slot), of.num_scored_positions,
          of.num_sampled_positions, draw);
    return of.first_logit_row + of.num_scored_positions + draw;
}

std::span<const float> PooledExecutor::logits(SequenceSlot slot, int32_t draw) {
    return backend_of(slot).logits(logit_row(slot, draw));
}

std::optional<int32_t> PooledExecutor::fault_layer(SequenceSlot slot, int32_t draw) {
    return backend_of(slot).fault_layer(logit_row(slot, draw));
}

std::optional<TokenId> PooledExecutor::drawn_token(SequenceSlot slot, int32_t draw) {
    const SlotTable& table = tables().at(slot);
    if (reference::is_sampled_on_host(table.sampling, table.mask_runs)) return std::nullopt;
    return backend_of(slot).drawn(logit_row(slot, draw));
}

bool PooledExecutor::holds(const HeadImage& image) const {
    const PoolSizes& pools = tables().config().pools;
    int64_t num_slots = 0;
    for (const BlockRun& run : image.blocks) num_slots += int64_t{run.count} * pools.block_size;
    return pools.num_blocks == 0 || num_slots >= image.length;
}

bool PooledExecutor::sum_head(const HeadImage& image, reference::HeadDigester& digester) {
    if (!backend().sums_heads()) return NumericExecutor::sum_head(image, digester);
    std::vector<BlockRun> runs;
    const auto here = placed(image, runs);
    return here && backend().sum_head(*here, digester);
}

bool PooledExecutor::read_head(const HeadImage& image, const HeadReader& reader) {
    std::vector<BlockRun> runs;
    const auto here = placed(image, runs);
    if (!here) return false;
    for (const StateTensor& tensor : tensors()) {
        if (tensor.per == StatePer::kToken)
            read_blocks(tensor, *here, reader);
        else
            reader({tensor, backend().read_row(tensor, here->state)});
    }
    return true;
}

// Reads one block at a time.
void PooledExecutor::read_blocks(const StateTensor& tensor, const HeadImage& image, const HeadReader& reader) {
    const int64_t block_size = tables().config().pools.block_size;
    const int64_t num_bytes = tensor.num_bytes();
    std::vector<std::byte> slots(static_cast<size_t>(block_size * num_bytes));
    int64_t left = image.length;
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count && left > 0; ++i) {
            const auto count = static_cast<int32_t>(std::min(left, block_size));
            const std::span<std::byte> piece = std::span(slots).first(static_cast<size_t>(count * num_bytes));
            backend().read_block(tensor, BlockId{index(run.first) + i}, count, piece);
            reader({tensor, piece});
            left -= count;
        }
    }
    CHECK_EQ(left, 0);  // the image's blocks hold all of its tokens
}

Status PooledExecutor::write_head(const HeadImage& image, std::span<const std::byte> bytes) {
    CHECK_EQ(static_cast<int64_t>(bytes.size()), reference::head_num_bytes(tensors(), image.length));
    if (places_.is_shared()) {
        changes_.clear();
        if (!hold_runs(image.blocks) || !hold_row(image.state)) {
            return error("a head of {} tokens does not fit: {} bytes, of which {} are held", image.length,
                         places_.arena_bytes(), places_.use().held);
        }
        if (!changes_.empty()) backend().change(changes_);
    }
    std::vector<BlockRun> runs;
    const auto here = placed(image, runs);
    CHECK(here.has_value(), "a head of {} tokens has units that are not held", image.length);
    for (const StateTensor& tensor : tensors()) {
        const auto size = static_cast<size_t>(reference::part_num_bytes(tensor, image.length));
        if (tensor.per == StatePer::kToken)
            write_blocks(tensor, *here, bytes.first(size));
        else
            backend().write_row(tensor, here->state, bytes.first(size));
        bytes = bytes.subspan(size);
    }
    CHECK(bytes.empty(), "{} bytes of a head belong to no tensor", bytes.size());
    return backend_status();
}

void PooledExecutor::write_blocks(const StateTensor& tensor, const HeadImage& image, std::span<const std::byte> bytes) {
    const int64_t block_size = tables().config().pools.block_size;
    int64_t left = image.length;
    int32_t num_resident = image.num_resident_blocks;
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count && left > 0; ++i) {
            const auto count = static_cast<int32_t>(std::min(left, block_size));
            const auto size = static_cast<size_t>(count * tensor.num_bytes());
            const bool is_resident = num_resident-- > 0;
            if (!is_resident) backend().write_block(tensor, BlockId{index(run.first) + i}, count, bytes.first(size));
            bytes = bytes.subspan(size);
            left -= count;
        }
    }
    CHECK(left == 0 && bytes.empty(), "{} tokens and {} bytes have no block", left, bytes.size());
}

}  // namespace verbatim
