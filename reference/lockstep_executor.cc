#include "reference/lockstep_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "engine/base/check.h"

namespace verbatim::reference {
namespace {

template <typename Real>
bool same(Real a, Real b) {
    using Bits = std::conditional_t<sizeof(Real) == 4, uint32_t, uint64_t>;
    return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b) || (std::isnan(a) && std::isnan(b));
}

// The first element that differs, and that there is one.
template <typename Real>
std::optional<int64_t> first_different(std::span<const Real> a, std::span<const Real> b) {
    for (size_t i = 0; i < a.size(); ++i) {
        if (!same(a[i], b[i])) return static_cast<int64_t>(i);
    }
    return std::nullopt;
}

// A head's elements, written out in binary64, which holds them exactly.
struct HeadTensor {
    int32_t layer = 0;
    StateKind kind;
    std::vector<double> values;
};
std::vector<HeadTensor> read_tensors(NumericExecutor& executor, const HeadImage& image) {
    std::vector<HeadTensor> tensors;
    executor.read_head(image, [&](const HeadPiece& piece) {
        const auto& [layer, kind, per, dtype, shape] = piece.tensor;
        if (tensors.empty() || tensors.back().layer != layer || tensors.back().kind != kind) {
            tensors.push_back({layer, kind, {}});
        }
        const auto count = static_cast<int64_t>(piece.bytes.size()) / element_bytes(dtype);
        for (int64_t i = 0; i < count; ++i) tensors.back().values.push_back(element(dtype, piece.bytes, i));
    });
    return tensors;
}

// An upper bound of what one position writes over a whole walk: every buffer's width, for every time it is written.
int64_t activation_bytes(const ModelConfig& config) {
    int64_t floats = config.hidden_size;
    for (const LayerConfig& layer : config.layers) {
        floats += 6 * int64_t{config.hidden_size};
        if (layer.mamba) floats += 7 * layer.mamba->in_rows() + config.hidden_size;
        if (layer.delta) floats += 3 * layer.delta->conv_dim() + 5 * layer.delta->value_rows() + config.hidden_size;
        if (layer.attention)
            floats += 6 * layer.attention->q_rows() + 5 * layer.attention->kv_rows() + config.hidden_size;
        if (layer.mlp) floats += 3 * int64_t{layer.mlp->d_ff} + config.hidden_size;
        if (layer.moe)
            floats += layer.moe->n_experts + 2 * int64_t{layer.moe->n_chosen} + 2 * int64_t{layer.moe->d_latent} +
                      3 * int64_t{config.hidden_size} + 1;
    }
    return floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace

std::string to_string(const Difference& d) {
    if (!d.detail.empty()) return fmt::format("step {}, request {}, {}: {}", d.step, index(d.request), d.op, d.detail);
    return fmt::format("step {}, request {}, position {}, layer {}, {}, element {}: {:.9g} and {:.9g}", d.step,
                       index(d.request), d.position, d.layer, d.op, d.element, d.primary, d.secondary);
}

LockstepCounts& LockstepCounts::operator+=(const LockstepCounts& other) {
    for (int64_t LockstepCounts::*count :
         {&LockstepCounts::compared_logits, &LockstepCounts::compared_states, &LockstepCounts::compared_operations,
          &LockstepCounts::unwatched_steps, &LockstepCounts::watched_positions, &LockstepCounts::unwatched_positions,
          &LockstepCounts::ordinary_positions, &LockstepCounts::ordinary_logits, &LockstepCounts::uncompared_states}) {
        this->*count += other.*count;
    }
    return *this;
}

LockstepExecutor::LockstepExecutor(NumericExecutor& primary, NumericExecutor& secondary, LockstepOptions options)
    : primary_(primary),
      secondary_(secondary),
      options_(options),
      one_arithmetic_(primary.numerics_id() == primary.ordinary_numerics_id()),
      row_bytes_(activation_bytes(primary.config())) {
    CHECK(primary.config() == secondary.config(), "lockstep over two models");
}

void LockstepExecutor::take_requests_from(RequestBook* book) {
    CHECK(book == nullptr || step_ < 0, "requests come after step {}", step_);
    if (book_ != nullptr) book_->on_wrong_token(nullptr);
    book_ = book;
    requested_.reset();
    if (book == nullptr) return;
    requested_.emplace(*book, primary_.tables().config());
    book->on_wrong_token([this](const WrongToken& wrong) {
        report({.step = step_,
                .request = wrong.request,
                .position = wrong.position,
                .op = "reported token",
                .primary = static_cast<double>(wrong.reported),
                .secondary = static_cast<double>(wrong.wanted)});
    });
}

Status LockstepExecutor::take_requested(const StepPlan& plan) {
    const Status taken = requested_->take(plan);
    if (const auto& fault = requested_->fault()) {
        report({.step = plan.step,
                .request = fault->request,
                .position = fault->position,
                .op = "plan " + fault->field,
                .primary = fault->planned,
                .secondary = fault->requested,
                .detail = fault->detail});
    }
    CHECK(taken || first_difference_, "step {}: a plan is refused without a difference", plan.step);
    return taken ? Status() : error("step {}: {}", plan.step, taken.error().message);
}

Status LockstepExecutor::execute(const StepPlan& plan, StepResult& result) {
    step_ = plan.step;
    if (requested_) RETURN_IF_ERROR(take_requested(plan));
    const StepPlan& requested = requested_ ? requested_->plan() : plan;
    watch(requested);
    RETURN_IF_ERROR(primary_.execute(plan, result));
    if (requested_) requested_->executed(plan, result);
    if (lengths_differ_) return {};
    RETURN_IF_ERROR(secondary_.execute(requested, secondary_result_));
    CHECK(result.step == step_ && secondary_result_.step == step_, "step {} has results of {} and {}", step_,
          result.step, secondary_result_.step);
    // Oldest sequence first, and of a sequence the operation that differs before the logits that follow from it.
    for (const ScheduledSequence& sequence : plan.sequences) {
        Watch& watch = watches_[index(sequence.slot)];
        counts_.compared_operations += watch.num_rows;
        if (watch.difference) report(*watch.difference);
    }
    compare_draws(requested, result, secondary_result_);
    count(requested);
    if (options_.stop_at_first && first_difference_) return error("{}", to_string(*first_difference_));
    return {};
}

// What the step adds to the share that is compared.
void LockstepExecutor::count(const StepPlan& plan) {
    for (const ScheduledSequence& sequence : plan.sequences) {
        const RequestId request = primary_.tables().at(sequence.slot).request;
        if (!compares(sequence)) {
            counts_.ordinary_positions += sequence.num_new_tokens;
            counts_.ordinary_logits += int64_t{sequence.num_logit_positions()} * primary_.config().vocab_size;
            ordinary_requests_.insert(request);
            continue;
        }
        (is_watched_ ? counts_.watched_positions : counts_.unwatched_positions) += sequence.num_new_tokens;
        if (sequence.num_logit_positions() > 0) compared_requests_.insert(request);
    }
}

bool LockstepExecutor::fits(const StepPlan& plan) const {
    int64_t num_rows = 0;
    int64_t num_sampled_positions = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        num_rows += sequence.num_new_tokens;
        num_sampled_positions += std::max(sequence.num_logit_positions(), 1);
    }
    const int64_t head_bytes = primary_.config().vocab_size * int64_t{8} * num_sampled_positions;
    return num_rows * row_bytes_ + head_bytes <= options_.max_watched_bytes;
}

void LockstepExecutor::watch(const StepPlan& plan) {
    for (const ScheduledSequence& sequence : plan.sequences) {
        const auto slot = static_cast<size_t>(index(sequence.slot));
        CHECK_LT(slot, static_cast<size_t>(kMaxSlots));
        if (slot >= watches_.size()) watches_.resize(slot + 1);
        watches_[slot] = {.is_compared = compares(sequence)};
    }
    // After the first difference everything differs: there is nothing more to learn from operations.
    const bool wanted = options_.watch_operations && !first_difference_;
    const bool watched = wanted && fits(plan);
    counts_.unwatched_steps += wanted && !watched ? 1 : 0;
    is_watched_ = watched;
    primary_.set_observer(watched ? [this](const Observation& o) { keep(o); } : StepObserver());
    secondary_.set_observer(watched ? [this](const Observation& o) { compare(o); } : StepObserver());
}

// An executor may pass a sequence's rows in pieces, each a whole walk: its operations continue those of the previous
// piece.
void LockstepExecutor::keep(const Observation& observation) {
    Watch& watch = watches_[index(observation.slot)];
    if (!watch.is_compared) return;
    if (observation.point.op == WalkOp::kEmbed) watch.next = 0;
    if (watch.next == watch.written.size()) {
        watch.written.push_back({observation.point, observation.first_position, 0, {}});
    }
    Written& written = watch.written[watch.next++];
    CHECK(written.point == observation.point, "a walk goes from {} to {}", to_string(written.point),
          to_string(observation.point));
    CHECK_EQ(observation.first_position, written.first_position + written.num_rows);
    written.num_rows += observation.rows.num_rows;
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        const float* row = observation.rows.row(r);
        written.values.insert(written.values.end(), row, row + observation.rows.width);
    }
    CHECK_EQ(std::ssize(written.values), written.num_rows * observation.rows.width);  // pieces of one width
}

void LockstepExecutor::compare(const Observation& observation) {
    Watch& watch = watches_[index(observation.slot)];
    if (observation.point.op == WalkOp::kEmbed) watch.next = 0;
    if (watch.difference || !watch.is_compared) return;
    CHECK(watch.next < watch.written.size() && watch.written[watch.next].point == observation.point,
          "the walks part at {}", to_string(observation.point));
    compare_rows(watch, observation, watch.written[watch.next++]);
}

void LockstepExecutor::compare_rows(Watch& watch, const Observation& observation, const Written& written) {
    const auto width = static_cast<size_t>(observation.rows.width);
    CHECK_EQ(std::ssize(written.values), written.num_rows * observation.rows.width);
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        const int64_t position = observation.first_position + r;
        const int64_t row = position - written.first_position;
        CHECK(row >= 0 && row < written.num_rows, "position {} was not computed by both", position);
        const std::span<const float> mine(written.values.data() + row * observation.rows.width, width);
        const std::span<const float> other(observation.rows.row(r), width);
        ++watch.num_rows;
        const auto element = first_different(mine, other);
        if (!element) continue;
        const WalkPoint& point = observation.point;
        watch.difference = {step_,
                            primary_.tables().at(observation.slot).request,
                            position,
                            point.layer,
                            fmt::format("{} {}", walk_op_name(point.op), buffer_name(point.buffer)),
                            point.columns.first + *element,
                            mine[*element],
                            other[*element]};
        return;
    }
}

void LockstepExecutor::compare_draws(const StepPlan& plan, const StepResult& mine, const StepResult& other) {
    CHECK_EQ(mine.drawn.size(), other.drawn.size());
    size_t i = 0;
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (compares(sequence)) compare_scored(sequence);
        if (sequence.num_sampled_positions == 0) continue;
        CHECK_LT(i, mine.drawn.size());
        const SampledTokens& a = mine.drawn[i];
        const SampledTokens& b = other.drawn[i++];
        CHECK(a.slot == sequence.slot && b.slot == sequence.slot, "slot {} samples, results are of {} and {}",
              index(sequence.slot), index(a.slot), index(b.slot));
        const auto a_tokens = mine.tokens_of(a);
        const auto b_tokens = other.tokens_of(b);
        lengths_differ_ |= a.num_rows() != b.num_rows();
        if (!compares(sequence)) continue;
        // Rows that both drew from; behind a different token they have nothing in common.
        for (uint32_t row = 0; row < std::min(a.num_rows(), b.num_rows()); ++row) {
            const Draw drawn{sequence,
                             static_cast<int32_t>(row),
                             row < a_tokens.size() ? a_tokens[row] : kNoToken,
                             row < b_tokens.size() ? b_tokens[row] : kNoToken,
                             a.fault_layer,
                             b.fault_layer};
            if (!compare_draw(drawn)) break;
        }
    }
}

void LockstepExecutor::compare_scored(const ScheduledSequence& sequence) {
    int32_t row = -sequence.num_scored_positions;
    while (row < 0 && compare_draw({.sequence = sequence, .row = row})) ++row;
}

// False when there was a difference.
bool LockstepExecutor::compare_draw(const Draw& draw) {
    const ScheduledSequence& sequence = draw.sequence;
    Difference difference{step_, primary_.tables().at(sequence.slot).request,
                          sequence.end() - sequence.num_sampled_positions + draw.row,
                          static_cast<int32_t>(primary_.config().layers.size()), "logits"};
    const auto a_logits = primary_.logits(sequence.slot, draw.row);
    const auto b_logits = secondary_.logits(sequence.slot, draw.row);
    CHECK_EQ(a_logits.size(), b_logits.size());
    counts_.compared_logits += static_cast<int64_t>(a_logits.size());
    const bool is_fault = draw.token == kNoToken || draw.other_token == kNoToken;
    if (const auto element = first_different(a_logits, b_logits)) {
        difference.element = *element;
        difference.primary = a_logits[*element];
        difference.secondary = b_logits[*element];
    } else if (is_fault && draw.fault_layer != draw.other_fault_layer) {
        difference.op = "fault";
        difference.primary = draw.fault_layer;
        difference.secondary = draw.other_fault_layer;
    } else if (draw.token != draw.other_token) {
        difference.op = "token";
        difference.primary = draw.token;
        difference.secondary = draw.other_token;
    } else {
        return true;
    }
    report(std::move(difference));
    return false;
}

std::optional<Digest> LockstepExecutor::head_digest(const HeadImage& image) {
    const auto mine = primary_.head_digest(image);
    if (!image.deterministic || lengths_differ_) return mine;
    const auto other = secondary_.head_digest(image);
    if (mine && !other) {
        ++counts_.uncompared_states;
        if (image.writer != kNoSlot) report_missing_head(image);
    }
    if (!mine || !other) return mine;
    ++counts_.compared_states;
    if (*mine != *other) compare_heads(image);
    return mine;
}

Status LockstepExecutor::check_head(int64_t length, std::span<const std::byte> bytes, const Digest& digest) const {
    RETURN_IF_ERROR(primary_.check_head(length, bytes, digest));
    return secondary_.check_head(length, bytes, digest);
}

Status LockstepExecutor::write_head(const HeadImage& image, std::span<const std::byte> bytes) {
    RETURN_IF_ERROR(primary_.write_head(image, bytes));
    return secondary_.write_head(image, bytes);
}

// The uncached reference keeps a living writer's state at the lengths that the plans' StateWrites name.
void LockstepExecutor::report_missing_head(const HeadImage& image) {
    report({.step = step_,
            .request = primary_.tables().at(image.writer).request,
            .position = image.length,
            .op = "head without a state write"});
}

// Digests differ: which element?
void LockstepExecutor::compare_heads(const HeadImage& image) {
    if (first_difference_) return;
    Difference difference{step_, RequestId{-1}, image.length, -1, "head digest"};
    if (image.writer != kNoSlot && primary_.tables().is_live(image.writer)) {
        difference.request = primary_.tables().at(image.writer).request;
    }
    const auto mine = read_tensors(primary_, image);
    const auto other = read_tensors(secondary_, image);
    for (size_t i = 0; i < std::min(mine.size(), other.size()); ++i) {
        CHECK_EQ(mine[i].values.size(), other[i].values.size());
        const auto element = first_different<double>(mine[i].values, other[i].values);
        if (!element) continue;
        difference.layer = mine[i].layer;
        difference.op = fmt::format("head {}", mine[i].kind.name);
        difference.element = *element;
        difference.primary = mine[i].values[*element];
        difference.secondary = other[i].values[*element];
        break;
    }
    report(std::move(difference));
}

void LockstepExecutor::report(Difference difference) {
    if (!first_difference_) first_difference_ = std::move(difference);
}

}  // namespace verbatim::reference
