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

Status NumericExecutor::execute(const StepPlan& plan, StepResult& result) {
    assert_float_environment();
    const Status applied = tables_.apply(plan);
    CHECK(applied.has_value(), "{}", applied.error().message);
    compute(plan);
    if (Status status = computed(); !status) {
        tables_ = SlotTables(tables_.config());  // see Executor::execute
        return status;
    }
    result.step = plan.step;
    result.sampled.clear();
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.samples) result.sampled.push_back(draw(sequence));
    }
    result.materialised_through_step = plan.step;
    tables_.advance(plan);
    return {};
}

// The token at position `end` is drawn with that absolute position, whatever was attached, cached or preempted before.
SamplingArgs NumericExecutor::draw_args(const ScheduledSequence& sequence) const {
    const SlotTable& table = tables_.at(sequence.slot);
    const int64_t end = sequence.num_computed_tokens + sequence.num_new_tokens;
    const int64_t num_prompt = table.num_prompt_tokens;
    const std::span<const TokenId> known(table.tokens);
    return {.logits = {},
            .params = table.sampling,
            .prefix = {known.first(num_prompt), known.subspan(num_prompt, end - num_prompt)},
            .position = static_cast<uint64_t>(end)};
}

SampledToken NumericExecutor::draw(const ScheduledSequence& sequence) {
    if (const auto fault = fault_layer(sequence.slot)) return {sequence.slot, 0, *fault};
    if (const auto token = drawn_token(sequence.slot)) return {sequence.slot, *token, -1};
    SamplingArgs args = draw_args(sequence);
    args.logits = logits(sequence.slot);
    return {sequence.slot, draw_token(args), -1};
}

std::optional<Digest> NumericExecutor::head_digest(const HeadImage& image) {
    HeadDigester digester(tensors_, image.length);
    if (!sum_head(image, digester)) return std::nullopt;
    return digester.digest();
}

bool NumericExecutor::sum_head(const HeadImage& image, HeadDigester& digester) {
    return read_head(image, [&](const HeadPiece& piece) { digester.add(piece.tensor, piece.bytes); });
}

}  // namespace verbatim::reference
