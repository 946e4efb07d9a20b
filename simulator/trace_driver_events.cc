// What becomes of the rows that were sent: tokens, ends, refusals, and the rows that wait for them.
#include <algorithm>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "simulator/trace_driver.h"
#include "traces/verbatim_csv_format.h"

namespace verbatim {
namespace {

using traces::Expect;
using traces::kNoRow;
using traces::Row;
using traces::Start;

std::string_view name(Expect expect) { return traces::csv_format::kExpects.at(static_cast<size_t>(expect)); }

}  // namespace

// Clients that have seen enough leave. One that leaves before the first token waits until its prefill has begun.
void TraceDriver::leave(Place& place) {
    std::vector<RequestId> leaving;
    std::erase_if(place.leaving, [&](RequestId request) {
        const auto found = place.running.find(request);
        if (found == place.running.end()) return true;
        const int64_t after = trace_.row(found->second.row).abort_after;
        if (static_cast<int64_t>(found->second.text.size()) < after) return false;
        const Sequence* sequence = place.engine->find(request);
        if (sequence == nullptr || sequence->num_computed_tokens == 0) return false;
        leaving.push_back(request);
        return true;
    });
    std::ranges::sort(leaving);
    for (const RequestId request : leaving) CHECK(place.engine->abort(request));
    if (!leaving.empty()) read_events(place);
}

void TraceDriver::read_events(Place& place) {
    for (const EngineEvent& event : place.engine->take_events()) {
        if (const auto* one = std::get_if<TokenEvent>(&event)) {
            received(place, one->request, {&one->token, 1});
        } else if (const auto* several = std::get_if<TokensEvent>(&event)) {
            received(place, several->request, place.engine->tokens_of(*several));
        } else {
            ended(place, std::get<FinishedEvent>(event));
        }
    }
}

void TraceDriver::received(Place& place, RequestId request, std::span<const TokenId> tokens) {
    Running& running = place.running.at(request);
    CHECK(!tokens.empty() && times(running.row).due_ns <= now_ns_, "row {} gets {} tokens before it is due",
          index(running.row), tokens.size());
    if (running.text.empty()) {
        times(running.row).first_token_ns = now_ns_;
        if (dispatcher_ != nullptr) dispatcher_->first_token(running.row);
    }
    running.text.insert(running.text.end(), tokens.begin(), tokens.end());
}

void TraceDriver::ended(Place& place, const FinishedEvent& event) {
    auto node = place.running.extract(event.request);
    CHECK(!node.empty(), "request {} ends and does not run", index(event.request));
    Running& running = node.mapped();
    const RowIndex row = running.row;
    const bool sent_again = recovers_ && event.reason == FinishReason::kExecutorFailed;
    if (!waiting_[at(row)].empty()) --place.num_awaited;
    request_of_[at(row)].reset();
    if (is_moved_[at(row)] == 0) times(row).reused_tokens = event.num_reused_tokens;
    times(row).output_tokens = event.num_output_tokens;
    if (event.committed && running.then) return move_on(place, row, *std::move(running.then));
    RowOutcome outcome = RowOutcome::kServed;
    if (event.committed) {
        ++report_.served;
        requests_.answered(row, store_.store(running.text), running.apart ? kNoVersion : event.version);
        expect(row, Expect::kServed, "answered");
    } else if (event.reason == FinishReason::kAborted) {
        ++report_.aborted;
        outcome = RowOutcome::kAborted;
        expect(row, Expect::kServed, "left");
    } else if (sent_again) {
        place.failed.emplace(event.request, row);
    } else {
        outcome = RowOutcome::kFailed;
        report_.unexpected.push_back(fmt::format("{}: the turn ended as {} at step {}, layer {}", describe(row),
                                                 verbatim::name(event.reason), event.step, event.fault_layer));
    }
    if (!sent_again) over(row, outcome);
}

// The prompt is computed: its head goes to another engine, which generates the answer.
void TraceDriver::move_on(Place& from, RowIndex row, ChatRequest request) {
    const EngineNumber number = place_of_row_[at(row)];
    CHECK(&from == &places_[number], "row {} is at another engine", index(row));
    const Dispatcher::Move move = dispatcher_->move(row, number, now_ns_);
    CHECK(move.ready_ns >= now_ns_, "row {} moves into the past", index(row));
    is_moved_[at(row)] = 1;
    place_of_row_[at(row)] = move.to;
    Place& to = places_.at(move.to);
    to.hooks->prepare(row, request);
    to.reading.emplace(Due{move.ready_ns, row}, std::move(request));
}

void TraceDriver::over(RowIndex row, RowOutcome outcome) {
    CHECK(is_over_[at(row)] == 0 && num_over_ < report_.rows, "row {} is over twice", index(row));
    is_over_[at(row)] = 1;
    ++num_over_;
    times(row).end_ns = now_ns_;
    times(row).outcome = outcome;
    if (dispatcher_ != nullptr) dispatcher_->over(row, now_ns_);
    for (const RowIndex next : waiting_[at(row)]) {
        const Row& waiting = trace_.row(next);
        const int64_t think_ns = waiting.start == Start::kAfterAnswer ? waiting.think_ns : 0;
        if (waiting.start == Start::kArrival) {
            report_.client_wait_ns += std::max<int64_t>(0, now_ns_ - waiting.arrival_ns);
        }
        const bool by_clock = waiting.start == Start::kArrival;
        times(next).wanted_ns = by_clock ? waiting.arrival_ns : std::max(waiting.arrival_ns, now_ns_ + think_ns);
        due_.push({std::max(waiting.arrival_ns, now_ns_ + think_ns), next});
    }
}

void TraceDriver::reject(RowIndex row) {
    if (traces::is_request(trace_.row(row).event)) ++report_.rejected;
    lost_a_row_[static_cast<size_t>(index(trace_.row(row).conversation))] = 1;
}

bool TraceDriver::lost_a_row(RowIndex row) const {
    return row != kNoRow && lost_a_row_[static_cast<size_t>(index(trace_.row(row).conversation))] != 0;
}

// A row that does not fit is rejected and counted, and so is a row refused because an earlier row was rejected. Every
// other refusal must be one that the trace expects.
RowOutcome TraceDriver::refused(RowIndex row, const Refusal& refusal) {
    const bool too_long = refusal.reason == RefusalReason::kTooLong || refusal.reason == RefusalReason::kTooLarge;
    if (too_long || lost_a_row(row) || lost_a_row(trace_.row(row).from)) {
        reject(row);
        return RowOutcome::kRejected;
    }
    ++report_.refused;
    expect(row, refusal.reason == RefusalReason::kBusy ? Expect::kBusy : Expect::kRefused, refusal.message());
    return RowOutcome::kRefused;
}

void TraceDriver::expect(RowIndex row, Expect got, const std::string& what) {
    const Expect wanted = trace_.row(row).expect;
    if (wanted == got || lost_a_row(row)) return;
    report_.unexpected.push_back(
        fmt::format("{}: expected {}, got {}: {}", describe(row), name(wanted), name(got), what));
}

std::string TraceDriver::describe(RowIndex row) const {
    const Row& described = trace_.row(row);
    const std::string& row_name = trace_.names[described.name];
    return fmt::format("trace row {} ({}'{}')", index(row), row_name.empty() ? "" : row_name + ", ",
                       trace_.names[trace_.conversation_of(described).name]);
}

}  // namespace verbatim
