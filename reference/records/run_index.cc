#include "reference/records/run_index.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::records {

RunIndex::RunIndex(const Record& record) : record_(record) {
    for (const Entry& entry : record.entries) {
        std::visit([this](const auto& value) { add(value); }, entry);
    }
    CHECK_EQ(names_.size(), requests_.size());
}

const RequestIndex* RunIndex::find(const RequestName& name) const {
    const auto found = requests_.find(name);
    return found == requests_.end() ? nullptr : &found->second;
}

const RequestIndex* RunIndex::find(RequestId id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? nullptr : &requests_.at(found->second);
}

RequestIndex* RunIndex::at(RequestId id) {
    const auto found = names_.find(id);
    return found == names_.end() ? nullptr : &requests_.at(found->second);
}

const StepRecord* RunIndex::step(int64_t step) const {
    const auto found = steps_.find(step);
    return found == steps_.end() ? nullptr : found->second;
}

int64_t RunIndex::num_tokens() const {
    int64_t count = 0;
    for (const auto& [name, request] : requests_) count += static_cast<int64_t>(request.tokens.size());
    return count;
}

int64_t RunIndex::num_computed() const {
    int64_t count = 0;
    for (const auto& [number, step] : steps_) {
        for (const SequenceRecord& sequence : step->sequences) count += sequence.end - sequence.begin;
    }
    return count;
}

void RunIndex::add(const Call& call) {
    if (call.kind == CallKind::kEndTurn) ended_by_client_.insert(call.id);
    if (call.kind != CallKind::kSubmit || index(call.id) < 0 || names_.contains(call.id)) return;
    RequestName name{call.request.conversation, num_accepted_[call.request.conversation]++};
    RequestIndex& request = requests_[name];
    request.id = call.id;
    request.name = name;
    request.deterministic = call.request.deterministic;
    request.submitted_step = call.step;
    names_.emplace(call.id, std::move(name));
}

void RunIndex::add(const StepRecord& step) {
    steps_[step.step] = &step;
    last_step_ = step.step;
    for (const StartRecord& start : step.starts) {
        RequestIndex* request = at(start.request);
        if (request == nullptr || start.beside || request->num_starts++ > 0) continue;
        request->num_prompt_tokens = start.num_prompt_tokens;
        request->num_attached_tokens = start.num_attached_tokens;
        request->prompt = start.prompt;
    }
    for (size_t order = 0; order < step.sequences.size(); ++order) {
        const SequenceRecord& sequence = step.sequences[order];
        RequestIndex* request = at(sequence.request);
        if (request == nullptr || (sequence.ordinary && request->deterministic)) continue;
        request->shares.push_back({&step, order});
        int64_t position = sequence.end - static_cast<int64_t>(sequence.logits.size());
        for (const uint64_t sum : sequence.logits) request->logits[position++] = {step.step, order, sum};
    }
}

void RunIndex::add(const Reported& reported) {
    for (const ReportedToken& token : reported.tokens) {
        if (RequestIndex* request = at(token.request)) request->tokens.push_back({last_step_, token.token});
    }
    for (const Event& event : reported.events) {
        RequestIndex* request = at(event.request);
        if (request == nullptr) continue;
        request->is_committed |= event.kind == EventKind::kCommit;
        request->is_discarded |= event.kind == EventKind::kDiscard;
        const auto reason = static_cast<FinishReason>(event.value);
        const bool came_to_its_end = event.kind == EventKind::kCommit ||
                                     (event.kind == EventKind::kDiscard &&
                                      (reason == FinishReason::kLeaseLost || reason == FinishReason::kNonFinite));
        request->ended_by_itself |= came_to_its_end && !ended_by_client_.contains(event.request);
        if (event.kind == EventKind::kPublish && event.digest != Digest{})
            request->states[event.value] = {event.step, event.digest};
    }
}

std::string what_is_left(const RunIndex& index) {
    const auto has_no_end = [](const auto& entry) { return !entry.second.has_end(); };
    return fmt::format("{} steps; {} requests, {} of them without an end", index.num_steps(), index.requests().size(),
                       std::ranges::count_if(index.requests(), has_no_end));
}

}  // namespace verbatim::records
