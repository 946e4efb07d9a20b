#include "reference/reference_executor.h"

#include <algorithm>
#include <tuple>

#include "engine/base/check.h"
#include "reference/ops/finite.h"

namespace verbatim::reference {
namespace {

// Rows of activations at a time; changes no bit.
constexpr int64_t kPieceTokens = 256;

SlotTablesConfig tables_config(const ModelConfig& config) {
    return {.vocab_size = config.vocab_size, .check_memory = false};
}

}  // namespace

ReferenceExecutor::ReferenceExecutor(const ModelConfig& config, const ModelWeights& weights, int32_t num_threads,
                                     Profile profile)
    : NumericExecutor(config, state_tensors(config), tables_config(config), profile),
      model_(config, weights, profile),
      pool_(num_threads) {}

std::string ReferenceExecutor::numerics_id() const {
    return std::string(reference::numerics_id(profile(), model_.weights().quantised));
}

void ReferenceExecutor::compute(const StepPlan& plan) {
    for (const SequenceSlot slot : plan.finished_slots) {
        if (static_cast<size_t>(index(slot)) < running_.size()) running_[index(slot)] = {};
    }
    running_.resize(tables().num_slots());
    int64_t max_length = 0;
    for (const ScheduledSequence& scheduled : plan.sequences) {
        max_length = std::max(max_length, scheduled.end());
        Running& running = running_[index(scheduled.slot)];
        if (running.sequence) continue;
        running.sequence = std::make_unique<ReferenceSequence>(model_);
        num_recomputed_tokens_ += scheduled.num_computed_tokens;
    }
    // The model's tables grow before the threads share them.
    for (size_t i = 0; i < config().layers.size(); ++i) {
        const auto& attention = config().layers[i].attention;
        if (attention && attention->rope.kind != RopeKind::kNone)
            model_.rope_table(static_cast<int32_t>(i), max_length);
    }
    pool_.for_each(static_cast<int64_t>(plan.sequences.size()), [&](int64_t i) { compute(plan, plan.sequences[i]); });
}

void ReferenceExecutor::compute(const StepPlan& plan, const ScheduledSequence& scheduled) {
    if (scheduled.num_new_tokens == 0) return;  // its row moves; there is none here
    Running& running = running_[index(scheduled.slot)];
    running.drawn_at.clear();
    if (running.sequence->length() == 0) append(scheduled.slot, scheduled.num_computed_tokens, LogitRows::kNone, false);
    CHECK_EQ(running.sequence->length(), scheduled.num_computed_tokens);
    running.logits.clear();
    running.scored.clear();
    const int64_t end = scheduled.known_end();
    const int64_t first_scored = scheduled.end() - scheduled.num_logit_positions();
    const int64_t num_sampled_known = scheduled.num_sampled_positions > 0 ? 1 : 0;
    const auto writes = plan.writes_of(scheduled);
    for (const StateWrite& write : writes) {
        if (write.length == end) break;
        append_scoring(scheduled.slot, write.length, first_scored);
        CHECK_EQ(running.sequence->length(), write.length);  // writes ascend, and the state is that length's
        running.passed[write.length] = state_row_of(*running.sequence);
    }
    append_scoring(scheduled.slot, end - num_sampled_known, first_scored);
    if (num_sampled_known > 0) append_drawing(scheduled.slot, end);
    CHECK_EQ(running.sequence->length(), end);
    if (!writes.empty() && writes.back().length == end) running.passed[end] = state_row_of(*running.sequence);
}

void ReferenceExecutor::compute_accepted_draft(const ScheduledSequence& sequence, int32_t draw) {
    Running& running = running_[index(sequence.slot)];
    CHECK_EQ(running.sequence->length(), sequence.known_end() + draw - 1);
    running.drawn_at[running.sequence->length()] = state_row_of(*running.sequence);
    append_drawing(sequence.slot, sequence.known_end() + draw);
}

// Computes up to length `end`, with the logits of the positions from `first_scored` on.
void ReferenceExecutor::append_scoring(SequenceSlot slot, int64_t end, int64_t first_scored) {
    Running& running = running_[index(slot)];
    append(slot, std::min(end, first_scored), LogitRows::kNone, true);
    while (running.sequence->length() < end) {
        append(slot, std::min(end, running.sequence->length() + kPieceTokens), LogitRows::kAll, true);
        const ConstFloatRows rows = running.sequence->logits();
        for (int64_t r = 0; r < rows.num_rows; ++r) running.scored.emplace_back(rows.row(r), rows.row(r) + rows.width);
    }
}

void ReferenceExecutor::append_drawing(SequenceSlot slot, int64_t end) {
    append(slot, end, LogitRows::kLast, true);
    Running& running = running_[index(slot)];
    const ConstFloatRows rows = running.sequence->logits();
    CHECK_EQ(rows.num_rows, 1);
    running.logits.emplace_back(rows.row(0), rows.row(0) + rows.width);
}

// Computes up to length `end`; `which` is about the last piece.
void ReferenceExecutor::append(SequenceSlot slot, int64_t end, LogitRows which, bool observed) {
    ReferenceSequence& sequence = *running_[index(slot)].sequence;
    const std::span<const TokenId> tokens(tables().at(slot).tokens);
    CHECK_LE(end, std::ssize(tokens));
    while (sequence.length() < end) {
        const int64_t begin = sequence.length();
        const int64_t count = std::min(kPieceTokens, end - begin);
        ReferenceSequence::Observer pass_on;
        if (observed && observer()) {
            pass_on = [&](const WalkPoint& point, ConstFloatRows rows) {
                observer()({slot, begin + count - rows.num_rows, point, rows});
            };
        }
        sequence.append(tokens.subspan(begin, count), begin + count == end ? which : LogitRows::kNone, pass_on);
    }
}

ReferenceExecutor::StateRow ReferenceExecutor::state_row_of(const ReferenceSequence& sequence) const {
    StateRow row;
    for (size_t i = 0; i < tensors().size(); ++i) {
        if (tensors()[i].per != StatePer::kSequence) continue;
        const auto bytes = sequence.tensor(i);
        row.insert(row.end(), bytes.begin(), bytes.end());
    }
    return row;
}

bool ReferenceExecutor::read_head(const HeadImage& image, const HeadReader& reader) {
    if (image.writer == kNoSlot || !tables().is_live(image.writer)) return false;
    const Running& running = running_[index(image.writer)];
    if (!running.sequence || image.length > running.sequence->length()) return false;
    const bool has_state = tensors().has_any(StatePer::kSequence);
    StateRow now;
    const auto passed = running.passed.find(image.length);
    const auto drawn = running.drawn_at.find(image.length);
    if (image.length == running.sequence->length()) {
        now = state_row_of(*running.sequence);
    } else if (drawn != running.drawn_at.end()) {
        now = drawn->second;
    } else if (has_state && passed == running.passed.end()) {
        return false;
    }
    std::span<const std::byte> row = now.empty() && has_state ? passed->second : now;
    for (size_t i = 0; i < tensors().size(); ++i) {
        const StateTensor& tensor = tensors()[i];
        const auto num_bytes = static_cast<size_t>(tensor.num_bytes());
        if (tensor.per == StatePer::kToken) {
            reader({tensor, running.sequence->tensor(i).first(num_bytes * static_cast<size_t>(image.length))});
            continue;
        }
        reader({tensor, row.first(num_bytes)});
        row = row.subspan(num_bytes);
    }
    CHECK(row.empty(), "{} bytes of a state belong to no tensor", row.size());
    return true;
}

std::span<const float> ReferenceExecutor::logits(SequenceSlot slot, int32_t draw) {
    CHECK(tables().is_live(slot), "slot {}", index(slot));
    const auto& [drawn, scored] = std::tie(running_[index(slot)].logits, running_[index(slot)].scored);
    const auto row = draw + (draw < 0 ? std::ssize(scored) : 0);
    const auto& rows = draw < 0 ? scored : drawn;
    CHECK(row >= 0 && row < std::ssize(rows), "slot {} scored {} rows and sampled {} in the last step, not row {}",
          index(slot), scored.size(), drawn.size(), draw);
    return rows[static_cast<size_t>(row)];
}

// REQUIRES: the draw's row was computed last.
std::optional<int32_t> ReferenceExecutor::fault_layer(SequenceSlot slot, int32_t draw) {
    const ReferenceSequence& sequence = *running_[index(slot)].sequence;
    CHECK_EQ(std::ssize(running_[index(slot)].logits), draw + 1);
    for (size_t i = 0; i < tensors().size(); ++i) {
        const StateTensor& tensor = tensors()[i];
        if (tensor.per == StatePer::kSequence && !is_finite(tensor.dtype, sequence.tensor(i))) return tensor.layer;
    }
    if (first_not_finite(logits(slot, draw))) return static_cast<int32_t>(config().layers.size());
    return std::nullopt;
}

}  // namespace verbatim::reference
