#include "kernels/sandbox/capture.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "kernels/sandbox/capture_walk.h"
#include "kernels/sandbox/kernel.h"
#include "reference/records/walk_points.h"

namespace verbatim::sandbox {

using reference::HeadPiece;
using reference::NumericExecutor;
using reference::StateKind;
using reference::StatePer;
using reference::StateTensor;

namespace {

// A step whose operations wrote more is captured by its shapes alone.
constexpr int64_t kMostObservedBytes = int64_t{64} << 20;

// Dense, all of it, or none when it is too much.
std::vector<float> floats_of(std::span<const std::byte> bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

}  // namespace

Status check_captured_operation(const std::string& operation) {
    if (find_operation(operation) != nullptr) return {};
    std::vector<const char*> names;
    for (const Operation& known : operations()) names.push_back(known.name);
    return error("--capture {}: no operation of the sandbox; wanted one of {}", operation, fmt::join(names, ", "));
}

CapturingExecutor::CapturingExecutor(Executor& inner, NumericExecutor& numeric, const reference::Model& model,
                                     std::string operation, CallSample& sample)
    : WrappingExecutor(inner),
      numeric_(numeric),
      model_(model),
      operation_(std::move(operation)),
      sample_(sample),
      row_bytes_(records::WalkPoints(model.config).width() * static_cast<int64_t>(sizeof(float))) {}

CapturingExecutor::~CapturingExecutor() { numeric_.set_observer(nullptr, NumericExecutor::ObservedFor::kRecord); }

void CapturingExecutor::begin(const StepPlan& plan) {
    step_ = {};
    step_.number = plan.step;
    int64_t num_rows = 0;
    int32_t num_slots = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_new_tokens == 0) continue;
        step_.sequences.push_back(&sequence);
        num_rows += sequence.num_new_tokens;
        num_slots = std::max(num_slots, index(sequence.slot) + 1);
    }
    place_of_slot_.assign(static_cast<size_t>(num_slots), -1);
    for (size_t i = 0; i < step_.sequences.size(); ++i) {
        place_of_slot_[index(step_.sequences[i]->slot)] = static_cast<int32_t>(i);
    }
    const bool is_walked = operation_ != "sampling" && operation_ != "head_digest";
    step_.is_observed = is_walked && num_rows * row_bytes_ <= kMostObservedBytes;
    step_.written.resize(step_.sequences.size());
    CHECK_LE(step_.sequences.size(), place_of_slot_.size());  // a sequence for each slot
    numeric_.set_observer(nullptr, NumericExecutor::ObservedFor::kRecord);
    if (step_.is_observed) {
        numeric_.set_observer([this](const reference::Observation& seen) { observe(seen); },
                              NumericExecutor::ObservedFor::kRecord);
    }
}

// From several threads, for different slots.
void CapturingExecutor::observe(const reference::Observation& observation) {
    const auto slot = static_cast<size_t>(index(observation.slot));
    CHECK(slot < place_of_slot_.size() && place_of_slot_[slot] >= 0, "slot {} computes and is not scheduled", slot);
    auto& written = step_.written[place_of_slot_[slot]];
    Written& one = written.emplace_back(Written{observation.point, observation.rows.num_rows, {}});
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        const float* row = observation.rows.row(r);
        one.values.insert(one.values.end(), row, row + observation.rows.width);
    }
}

// Rows that sequences go on from. What a sequence has only logged is in none of them: then nothing is known.
void CapturingExecutor::read_states() {
    constexpr std::pair<std::string_view, StateKind> kStates[] = {
        {"conv", StateKind::kConv}, {"scan", StateKind::kSsm}, {"delta_update", StateKind::kDelta}};
    const auto* const state =
        std::ranges::find_if(kStates, [&](const auto& known) { return known.first == operation_; });
    if (state == std::end(kStates)) return;
    const StateKind kind = state->second;
    step_.states.resize(step_.sequences.size());
    step_.states_known = std::ranges::all_of(step_.sequences, [](const ScheduledSequence* sequence) {
        return sequence->state_src == kNoState || sequence->num_state_tokens == sequence->num_computed_tokens;
    });
    for (const StateTensor& tensor : numeric_.tensors()) {
        const int64_t bytes = tensor.num_bytes() * std::ssize(step_.sequences);
        if (tensor.kind == kind && bytes > static_cast<int64_t>(kMostTensorBytes)) step_.states_known = false;
    }
    for (size_t i = 0; step_.states_known && i < step_.sequences.size(); ++i) {
        const StateIndex row = step_.sequences[i]->state_src;
        if (row == kNoState) continue;
        const bool held = numeric_.read_head({.length = 0, .blocks = {}, .state = row}, [&](const HeadPiece& piece) {
            if (piece.tensor.kind == kind) step_.states[i][piece.tensor.layer] = floats_of(piece.bytes);
        });
        step_.states_known = held;
    }
}

Status CapturingExecutor::execute(const StepPlan& plan, StepResult& result) {
    begin(plan);
    read_states();
    RETURN_IF_ERROR(inner().execute(plan, result));
    if (step_.sequences.empty()) return {};
    if (operation_ == "sampling") {
        capture_draws(plan, result);
    } else if (operation_ != "head_digest") {
        capture_walk();
    }
    return {};
}

void CapturingExecutor::capture_walk() {
    const auto read_kv = [&](size_t sequence, int32_t layer) -> std::optional<CaptureWalk::Kv> {
        const ScheduledSequence& of = *step_.sequences[sequence];
        const StateIndex state = of.state_dst != kNoState ? of.state_dst : of.state_src;
        if (state == kNoState && numeric_.tensors().has_any(StatePer::kSequence)) return std::nullopt;
        std::vector<BlockRun> blocks;
        for (const BlockId block : numeric_.tables().at(of.slot).blocks) blocks.push_back({block, 1});
        CaptureWalk::Kv kv;
        const auto take = [&](const HeadPiece& piece) {
            if (piece.tensor.layer != layer) return;
            if (piece.tensor.kind == StateKind::kK) kv.k.insert(kv.k.end(), piece.bytes.begin(), piece.bytes.end());
            if (piece.tensor.kind == StateKind::kV) kv.v.insert(kv.v.end(), piece.bytes.begin(), piece.bytes.end());
        };
        if (!numeric_.read_head({.length = of.end(), .blocks = blocks, .state = state}, take)) return std::nullopt;
        return kv;
    };
    CaptureWalk(model_, operation_, step_, numeric_.tables(), read_kv, sample_).run();
}

// One row for each token that was drawn: what follows a wrong draft was not.
std::vector<CapturingExecutor::DrawnRow> CapturingExecutor::drawn_rows(const StepPlan& plan,
                                                                       const StepResult& result) const {
    std::vector<DrawnRow> rows;
    size_t next = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (sequence.num_sampled_positions == 0) continue;
        const SampledTokens& drawn = result.drawn[next++];
        const SlotTable& table = numeric_.tables().at(sequence.slot);
        if (reference::is_sampled_on_host(table.sampling, table.mask_runs))
            continue;  // the operation has no such parameters
        for (int32_t draw = 0; draw < static_cast<int32_t>(drawn.tokens.count); ++draw)
            rows.push_back({table, sequence.slot, draw, sequence.end() - sequence.num_sampled_positions + draw + 1});
    }
    return rows;
}

void CapturingExecutor::capture_draws(const StepPlan& plan, const StepResult& result) {
    const std::vector<DrawnRow> rows = drawn_rows(plan, result);
    if (rows.empty()) return;
    CHECK_EQ(step_.number, plan.step);
    PrefixWidths widths;
    for (const DrawnRow& row : rows) {
        widths.prompt = std::max(widths.prompt, row.table.num_prompt_tokens);
        widths.generated = std::max(widths.generated, row.num_generated());
    }
    const Sizes sizes = {std::ssize(rows), model_.config.vocab_size, widths.prompt, widths.generated};
    const std::vector<int64_t> item_rows(rows.size(), 1);
    sample_.add(step_.number, 0, {sizes, item_rows, {}}, [&] { return captured_draws(rows, widths); });
}

Captured CapturingExecutor::captured_draws(const std::vector<DrawnRow>& rows, const PrefixWidths& widths) {
    Captured captured{std::vector<int64_t>(rows.size(), 1), {}, {}};
    const int64_t count = std::ssize(rows);
    const bool keeps_logits = count * model_.config.vocab_size * 4 <= static_cast<int64_t>(kMostTensorBytes);
    std::vector<float> logits;
    std::vector<verbatim_draw> draws;
    std::vector<int32_t> num_prompt, num_generated;
    std::vector<int32_t> prompt(static_cast<size_t>(count * widths.prompt));
    std::vector<int32_t> generated(static_cast<size_t>(count * widths.generated));
    for (int64_t r = 0; r < count; ++r) {
        const DrawnRow& row = rows[static_cast<size_t>(r)];
        const SlotTable& table = row.table;
        CHECK(row.end >= table.num_prompt_tokens && row.end <= std::ssize(table.tokens), "{} tokens of {}", row.end,
              table.tokens.size());
        const SamplingParams& params = table.sampling;
        draws.push_back({params.temperature, params.top_k, params.top_p, params.repetition_penalty,
                         params.presence_penalty, params.frequency_penalty, params.seed,
                         static_cast<uint64_t>(row.end)});
        num_prompt.push_back(static_cast<int32_t>(table.num_prompt_tokens));
        num_generated.push_back(static_cast<int32_t>(row.num_generated()));
        const auto begin = table.tokens.begin();
        std::copy(begin, begin + table.num_prompt_tokens, prompt.begin() + r * widths.prompt);
        std::copy(begin + table.num_prompt_tokens, begin + row.end, generated.begin() + r * widths.generated);
        const std::span<const float> scores = numeric_.logits(row.slot, row.draw);
        if (keeps_logits) logits.insert(logits.end(), scores.begin(), scores.end());
    }
    put_values<float>(captured, "logits", logits);
    const auto* words = reinterpret_cast<const uint64_t*>(draws.data());
    put_values<uint64_t>(captured, "draws", {words, draws.size() * sizeof(verbatim_draw) / 8}, /*is_place=*/true);
    put_values<int32_t>(captured, "prompt", prompt, true);
    put_values<int32_t>(captured, "num_prompt", num_prompt, true);
    put_values<int32_t>(captured, "generated", generated, true);
    put_values<int32_t>(captured, "num_generated", num_generated, true);
    return captured;
}

// A call for each of a head's tensors: a row for each token, or one for a state.
std::optional<Digest> CapturingExecutor::head_digest(const HeadImage& image) {
    const std::optional<Digest> digest = inner().head_digest(image);
    if (operation_ != "head_digest" || !digest) return digest;
    for (const StateTensor& tensor : numeric_.tensors()) {
        const bool per_token = tensor.per == StatePer::kToken;
        const int64_t count = per_token ? image.length : 1;
        const int64_t width = tensor.num_elements();
        const int64_t element = tensor.num_bytes() / width;
        const std::vector<int64_t> item_rows(static_cast<size_t>(count), 1);
        if (count == 0 || (element != 2 && element != 4)) continue;
        sample_.add(step_.number, tensor.layer, {{count, width, element, per_token ? 1 : 0}, item_rows, {}}, [&] {
            Captured captured{item_rows, {}, {}};
            std::vector<int64_t> first(static_cast<size_t>(per_token ? count : 0));
            for (size_t i = 0; i < first.size(); ++i) first[i] = static_cast<int64_t>(i) * width;
            put_values<int64_t>(captured, "first_index", first, /*is_place=*/true);
            std::vector<std::byte> elements;
            numeric_.read_head(image, [&](const HeadPiece& piece) {
                if (piece.tensor == tensor) elements.insert(elements.end(), piece.bytes.begin(), piece.bytes.end());
            });
            put_values<std::byte>(captured, "elements", elements);
            return captured;
        });
    }
    return digest;
}

}  // namespace verbatim::sandbox
