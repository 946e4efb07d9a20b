#include "reference/requested_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/fields.h"

namespace verbatim::reference {
namespace {

// A field of a struct, by its name.
struct NamedField {
    std::string name;
    std::string text;
    double number = 0;
};

// All fields but tokens, structs inside structs field by field.
template <typename T>
void list_fields(const std::string& name, const T& value, std::vector<NamedField>& fields) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
        fields.push_back({name, to_text(value), static_cast<double>(value)});
    } else if constexpr (kIsVector<T>) {
        fields.push_back({name, to_text(value)});
    } else if constexpr (!std::is_same_v<T, TokenSeq>) {
        visit_fields(value, [&](std::string_view field, const auto& inner) {
            list_fields(fmt::format("{}.{}", name, field), inner, fields);
        });
    }
}

// The first field that differs. REQUIRES: one does.
PlanFault first_different_field(const SequenceStart& planned, const SequenceStart& requested) {
    std::vector<NamedField> mine;
    std::vector<NamedField> other;
    list_fields("starts", planned, mine);
    list_fields("starts", requested, other);
    for (size_t i = 0; i < mine.size(); ++i) {
        if (mine[i].text == other[i].text) continue;
        return {.request = requested.request,
                .field = mine[i].name,
                .detail = fmt::format("{} in the plan, {} in the request", mine[i].text, other[i].text),
                .planned = mine[i].number,
                .requested = other[i].number};
    }
    CHECK(false, "the starts of request {} are equal", index(requested.request));
}

PlanFault different_token(RequestId request, const char* field, int64_t position, TokenId planned, TokenId requested) {
    return {
        .request = request,
        .position = position,
        .field = field,
        .detail = fmt::format("token {} at position {} in the plan, {} in the request", planned, position, requested),
        .planned = static_cast<double>(planned),
        .requested = static_cast<double>(requested)};
}

}  // namespace

void RequestedPlan::note(PlanFault fault) {
    if (!fault_) fault_ = std::move(fault);
}

Status RequestedPlan::refuse(RequestId request, std::string field, std::string detail) {
    Status refused = error("the plan is refused: request {}: {}: {}", index(request), field, detail);
    note({.request = request, .field = std::move(field), .detail = std::move(detail)});
    return refused;
}

RequestedPlan::Slot& RequestedPlan::slot(SequenceSlot slot) {
    const auto place = static_cast<size_t>(index(slot));
    CHECK_LT(place, static_cast<size_t>(kMaxSlots));
    if (place >= slots_.size()) slots_.resize(place + 1);
    return slots_[place];
}

RequestId RequestedPlan::request_of(SequenceSlot slot) const {
    const auto place = static_cast<size_t>(index(slot));
    return index(slot) >= 0 && place < slots_.size() ? slots_[place].request : RequestId{-1};
}

Status RequestedPlan::take(const StepPlan& plan) {
    fault_.reset();
    RETURN_IF_ERROR(take_shape(plan));
    for (const SequenceSlot ended : plan.finished_slots) {
        if (index(ended) >= 0 && index(ended) < static_cast<int32_t>(slots_.size())) slot(ended).live = false;
    }
    requested_ = plan;
    requested_.tokens.clear();
    for (SequenceStart& start : requested_.new_sequences) RETURN_IF_ERROR(take_start(plan, start));
    for (ScheduledSequence& sequence : requested_.sequences) RETURN_IF_ERROR(take_sequence(plan, sequence));
    if (const Status applied = rules_.apply(plan); !applied) {
        return refuse(request_of(rules_.refused_slot()), "refused", applied.error().message);
    }
    return {};
}

// What must hold before the plan's parts can be read.
Status RequestedPlan::take_shape(const StepPlan& plan) {
    const std::optional<int64_t> last = std::exchange(last_step_, plan.step);
    if (last && plan.step != *last + 1) {
        return refuse(RequestId{-1}, "step", fmt::format("step {} comes after step {}", plan.step, *last));
    }
    for (const SequenceStart& start : plan.new_sequences) {
        if (plan.holds_slices_of(start) && index(start.slot) >= 0 && index(start.slot) < kMaxSlots) continue;
        return refuse(start.request, "starts",
                      fmt::format("it starts in slot {}, with blocks [{}, +{}) of {}", index(start.slot),
                                  start.blocks.begin, start.blocks.count, plan.blocks.size()));
    }
    for (const ScheduledSequence& sequence : plan.sequences) {
        if (plan.holds_slices_of(sequence)) continue;
        const auto start = std::ranges::find(plan.new_sequences, sequence.slot, &SequenceStart::slot);
        return refuse(
            start != plan.new_sequences.end() ? start->request : request_of(sequence.slot), "sequences",
            fmt::format("slot {} names tokens, blocks, state writes or a mask outside the plan's {}, {}, {}, {}",
                        index(sequence.slot), plan.tokens.size(), plan.blocks.size(), plan.state_writes.size(),
                        plan.mask_runs.size()));
    }
    return {};
}

Status RequestedPlan::take_start(const StepPlan& plan, SequenceStart& start) {
    const AskedRequest* asked = book_.find(start.request);
    if (asked == nullptr) {
        return refuse(start.request, "starts.request",
                      fmt::format("it starts in slot {}, and no request of this number runs", index(start.slot)));
    }
    const auto num_starts = std::ranges::count(plan.new_sequences, start.slot, &SequenceStart::slot);
    const auto num_shares = std::ranges::count(plan.sequences, start.slot, &ScheduledSequence::slot);
    if (num_starts != 1 || num_shares != 1) {
        return refuse(start.request, "starts.slot",
                      fmt::format("it starts in slot {}, where {} requests start and {} compute", index(start.slot),
                                  num_starts, num_shares));
    }
    const SequenceStart planned = start;
    start.tokens = book_.tokens_of(*asked);
    start.num_prompt_tokens = asked->prompt.size();
    start.sampling = asked->sampling;
    const int64_t common = planned.tokens.common_prefix(start.tokens);
    if (planned.tokens.size() != start.tokens.size()) {
        return refuse(start.request, "starts.tokens",
                      fmt::format("{} tokens in the plan, {} in the request, the first {} of them equal",
                                  planned.tokens.size(), start.tokens.size(), common));
    }
    if (common < start.tokens.size()) {
        note(different_token(start.request, "starts.tokens", common, planned.tokens.at(common),
                             start.tokens.at(common)));
    } else if (!(planned == start)) {
        note(first_different_field(planned, start));
    }
    const bool is_draft_path =
        std::ranges::any_of(slots_, [&](const Slot& other) { return other.live && other.request == start.request; });
    slot(start.slot) = {
        .live = true, .is_draft_path = is_draft_path, .request = start.request, .num_known = start.tokens.size()};
    return {};
}

Status RequestedPlan::take_sequence(const StepPlan& plan, ScheduledSequence& sequence) {
    const RequestId request = request_of(sequence.slot);
    const AskedRequest* asked = book_.find(request);
    if (request == RequestId{-1} || asked == nullptr || !slot(sequence.slot).live) {
        return refuse(request, "sequences.slot",
                      fmt::format("slot {} computes, and no running request is in it", index(sequence.slot)));
    }
    const Arithmetic wanted = slot(sequence.slot).is_draft_path ? Arithmetic::kOrdinary : asked->arithmetic;
    if (sequence.arithmetic != wanted) {
        note({.request = request,
              .field = "sequences.arithmetic",
              .detail = fmt::format("{} in the plan, {} in the request", to_text(sequence.arithmetic), to_text(wanted)),
              .planned = static_cast<double>(sequence.arithmetic),
              .requested = static_cast<double>(wanted)});
        sequence.arithmetic = wanted;
    }
    RETURN_IF_ERROR(take_appended(plan, *asked, sequence));
    const int64_t num_known = slot(sequence.slot).num_known + sequence.appended.count;
    const bool draws = asked->draws && sequence.num_new_tokens > 0 && sequence.end() == num_known;
    if (draws != (sequence.num_sampled_positions > 0)) {
        return refuse(request, "sequences.num_draws",
                      fmt::format("{} where {} of {} known tokens are computed", sequence.num_sampled_positions,
                                  sequence.end(), num_known));
    }
    take_mask(plan, *asked, draws && !slot(sequence.slot).is_draft_path, sequence);
    return check_scored(*asked, sequence);
}

// Of the next token, as the request got it.
void RequestedPlan::take_mask(const StepPlan& plan, const AskedRequest& asked, bool draws,
                              ScheduledSequence& sequence) {
    static const TokenMask kNone;
    const TokenMask& wanted = draws && !asked.masks.empty() ? asked.masks.front() : kNone;
    const auto planned = plan.mask_of(sequence);
    if (std::ranges::equal(planned, wanted.runs)) return;
    note({.request = slot(sequence.slot).request,
          .position = asked.num_tokens(),
          .field = "sequences.mask",
          .detail = fmt::format("a mask of {} runs in the plan, another one of {} in the request", planned.size(),
                                wanted.runs.size()),
          .planned = static_cast<double>(planned.size()),
          .requested = static_cast<double>(wanted.runs.size())});
    sequence.mask = {static_cast<uint32_t>(requested_.mask_runs.size()), static_cast<uint32_t>(wanted.runs.size())};
    requested_.mask_runs.insert(requested_.mask_runs.end(), wanted.runs.begin(), wanted.runs.end());
}

// The positions that the request wants the logits of, and has not got yet.
Status RequestedPlan::check_scored(const AskedRequest& asked, const ScheduledSequence& sequence) {
    const Slot& of = slot(sequence.slot);
    const int64_t first = std::max(asked.first_scored, sequence.num_computed_tokens);
    const int64_t wanted = std::max<int64_t>(std::min(sequence.known_end(), asked.scored_end()) - first, 0);
    if (sequence.num_scored_positions == (of.is_draft_path ? 0 : wanted)) return {};
    return refuse(of.request, "sequences.num_scored",
                  fmt::format("{} where positions from {} to {} are computed, and from {} to {} are to be scored",
                              sequence.num_scored_positions, sequence.num_computed_tokens, sequence.known_end(),
                              asked.first_scored, asked.scored_end()));
}

// The tokens that the slot's executor does not have yet, then drafts. A draft path also gets its sampled drafts.
Status RequestedPlan::take_appended(const StepPlan& plan, const AskedRequest& asked, ScheduledSequence& sequence) {
    const Slot& known = slot(sequence.slot);
    const auto planned = plan.appended(sequence);
    const auto count = static_cast<int64_t>(planned.size());
    const int64_t missing = std::max<int64_t>(0, asked.num_tokens() - known.num_known);
    if (count < missing || (!known.is_draft_path && count != missing + sequence.num_drafts())) {
        return refuse(known.request, "sequences.appended",
                      fmt::format("{} tokens are appended, {} of them drafts, and the executor does not know {} of the "
                                  "request's {}",
                                  count, sequence.num_drafts(), missing, asked.num_tokens()));
    }
    sequence.appended.begin = static_cast<uint32_t>(requested_.tokens.size());
    requested_.tokens.insert(requested_.tokens.end(), planned.begin(), planned.end());
    for (int64_t i = 0; i < missing; ++i) {
        TokenId& token = requested_.tokens[sequence.appended.begin + static_cast<size_t>(i)];
        const TokenId wanted = asked.token(known.num_known + i);
        if (token != wanted) note(different_token(known.request, "tokens", known.num_known + i, token, wanted));
        token = wanted;
    }
    return {};
}

void RequestedPlan::executed(const StepPlan& plan, const StepResult& result) {
    auto drawn = result.drawn.begin();
    for (const ScheduledSequence& sequence : plan.sequences) {
        Slot& known = slot(sequence.slot);
        if (!known.is_draft_path) book_.scored(known.request, sequence.known_end());
        known.num_known += static_cast<int64_t>(sequence.appended.count) - sequence.num_drafts();
        CHECK_GE(known.num_known, sequence.num_computed_tokens);
        if (sequence.num_sampled_positions == 0) continue;
        CHECK(drawn != result.drawn.end() && drawn->slot == sequence.slot, "slot {} draws and gets no token",
              index(sequence.slot));
        if (!known.is_draft_path) book_.expect(known.request, result.tokens_of(*drawn));
        ++drawn;
    }
    CHECK(drawn == result.drawn.end(), "{} slots get tokens and do not sample", result.drawn.end() - drawn);
    rules_.advance(plan, result.drawn);
}

}  // namespace verbatim::reference
