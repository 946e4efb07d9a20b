#include "reference/numeric_executor.h"

#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "reference/numerics/float_environment.h"

namespace verbatim::reference {

NumericExecutor::NumericExecutor(const ModelConfig& config, StateTensors tensors, SlotTablesConfig tables,
                                 Profile profile)
    : config_(config), tensors_(std::move(tensors)), tables_(tables), profile_(profile) {}

std::string NumericExecutor::numerics_id() const { return std::string(reference::numerics_id(profile_)); }

void NumericExecutor::set_observer(StepObserver observer, ObservedFor purpose) {
    observers_[static_cast<size_t>(purpose)] = std::move(observer);
    const auto& [comparison, record] = observers_;
    if (comparison && record) {
        observer_ = [this](const Observation& observation) {
            for (const StepObserver& each : observers_) each(observation);
        };
    } else {
        observer_ = comparison ? comparison : record;
    }
}

Status NumericExecutor::execute(const StepPlan& plan, StepResult& result) {
    assert_float_environment();
    const Status applied = tables_.apply(plan);
    CHECK(applied.has_value(), "{}", applied.error().message);
    compute(plan);
    complete_masks(plan);
    if (Status status = computed(); !status) {
        forget_slots();
        return status;
    }
    result.clear(plan.step);
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_sampled_positions > 0) draw(sequence, result);
    }
    result.materialised_through_step = plan.step;
    tables_.advance(plan, result.drawn);
    return {};
}

// A step that has failed has its masks, too: the engine reports its plan.
void NumericExecutor::complete_masks(const StepPlan& plan) {
    if (!complete_masks_) return;
    complete_masks_();
    const Status applied = tables_.apply_masks(plan);
    CHECK(applied.has_value(), "{}", applied.error().message);
}

// The token at a position is drawn with that absolute position and what stands before it, whatever was attached,
// cached, preempted or drafted.
SamplingArgs NumericExecutor::draw_args(const ScheduledSequence& sequence, int32_t draw) const {
    const SlotTable& table = tables_.at(sequence.slot);
    const int64_t end = sequence.end() - sequence.num_sampled_positions + draw + 1;
    const int64_t num_prompt = table.num_prompt_tokens;
    const std::span<const TokenId> known(table.tokens);
    return {.logits = {},
            .params = table.sampling,
            .prefix = {known.first(num_prompt), known.subspan(num_prompt, end - num_prompt)},
            .position = static_cast<uint64_t>(end),
            .mask_runs = table.mask_runs};
}

// Row by row, as long as the token drawn is the draft that stands in the next row.
void NumericExecutor::draw(const ScheduledSequence& sequence, StepResult& result) {
    const std::span<const TokenId> known(tables_.at(sequence.slot).tokens);
    const auto drafts = known.subspan(static_cast<size_t>(sequence.known_end()));
    CHECK_GE(std::ssize(drafts), sequence.num_drafts());
    accepted_.clear();
    std::optional<int32_t> fault;
    for (int32_t row = 0; row < sequence.num_sampled_positions; ++row) {
        if (row > 0) compute_accepted_draft(sequence, row);
        fault = fault_layer(sequence.slot, row);
        if (fault) break;
        accepted_.push_back(draw(sequence, row));
        if (row == sequence.num_drafts() || accepted_.back() != drafts[row]) break;
    }
    CHECK(fault || !accepted_.empty(), "slot {} samples no token", index(sequence.slot));
    result.add(sequence.slot, accepted_, fault.value_or(-1));
}

TokenId NumericExecutor::draw(const ScheduledSequence& sequence, int32_t draw) {
    if (const auto token = drawn_token(sequence.slot, draw)) {
        CHECK(*token >= 0 && *token < config_.vocab_size, "slot {} samples token {} of {}", index(sequence.slot),
              *token, config_.vocab_size);
        return *token;
    }
    SamplingArgs args = draw_args(sequence, draw);
    args.logits = logits(sequence.slot, draw);
    return draw_token(args);
}

std::optional<Digest> NumericExecutor::head_digest(const HeadImage& image) {
    HeadDigester digester(tensors_, image.length);
    if (!sum_head(image, digester)) return std::nullopt;
    return digester.digest();
}

std::optional<std::vector<std::byte>> NumericExecutor::head_bytes(const HeadImage& image) {
    std::vector<std::byte> bytes;
    bytes.reserve(static_cast<size_t>(head_num_bytes(tensors_, image.length)));
    const bool held = read_head(
        image, [&](const HeadPiece& piece) { bytes.insert(bytes.end(), piece.bytes.begin(), piece.bytes.end()); });
    CHECK(!held || std::ssize(bytes) == head_num_bytes(tensors_, image.length), "{} bytes of a head of {} tokens",
          bytes.size(), image.length);
    return held ? std::optional(std::move(bytes)) : std::nullopt;
}

Status NumericExecutor::check_head(int64_t length, std::span<const std::byte> bytes, const Digest& digest) const {
    if (!keeps_heads()) return {};
    if (static_cast<int64_t>(bytes.size()) != head_num_bytes(tensors_, length)) {
        return error("a head of {} tokens takes {} bytes in this model, got {}", length,
                     head_num_bytes(tensors_, length), bytes.size());
    }
    if (digest == Digest{}) return {};
    const Digest got = digest_of_head(tensors_, length, bytes);
    if (got != digest) return error("the bytes have digest {}, wanted {}", got.hex(), digest.hex());
    return {};
}

bool NumericExecutor::sum_head(const HeadImage& image, HeadDigester& digester) {
    return read_head(image, [&](const HeadPiece& piece) { digester.add(piece.tensor, piece.bytes); });
}

}  // namespace verbatim::reference
