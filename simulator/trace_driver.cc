#include "simulator/trace_driver.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

using TraceEvent = traces::Event;
using traces::Expect;
using traces::kNoRow;
using traces::Row;
using traces::Start;

size_t at(traces::RowIndex row) { return static_cast<size_t>(index(row)); }

const char* name(Expect expect) {
    switch (expect) {
        case Expect::kServed: return "served";
        case Expect::kBusy: return "busy";
        case Expect::kRefused: return "refused";
        case Expect::kRecorded: return "recorded";
    }
    CHECK(false, "expectation {}", static_cast<int>(expect));
}

}  // namespace

TraceDriver::TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests,
                         Engine& engine, TokenStore& store)
    : config_(config),
      trace_(trace),
      requests_(requests),
      engine_(engine),
      store_(store),
      waiting_(trace.rows.size()),
      request_of_(trace.rows.size()),
      is_sent_(trace.rows.size()),
      is_over_(trace.rows.size()),
      lost_a_row_(trace.conversations.size()) {
    CHECK_GT(config.step_ns, 0);
}

Result<DriverReport> TraceDriver::run(const std::function<void(int64_t)>& after_step, const Recover& recover) {
    plan_rows();
    recovers_ = static_cast<bool>(recover);
    report_.rows = static_cast<int64_t>(trace_.rows.size());
    while (num_over_ < report_.rows || !engine_.idle()) {
        send_due();
        send_while_running();
        const Result<bool> stepped = engine_.step();
        if (!stepped) {
            RETURN_IF_ERROR(recover_from(stepped.error(), recover));
        } else if (*stepped) {
            now_ns_ += config_.step_ns;
            report_.peak_running =
                std::max(report_.peak_running, static_cast<int64_t>(engine_.scheduler().scheduled().size()));
            read_events();
            leave();
            send_while_running();
            if (config_.verify_every_step) engine_.verify();
            if (after_step) after_step(num_over_);
        } else if (!due_.empty()) {
            now_ns_ = std::max(now_ns_, due_.top().time_ns);
        } else if (num_over_ < report_.rows) {
            const auto stuck = std::ranges::find(is_over_, 0) - is_over_.begin();
            return error("{}: can never start: the row it is to run beside is over", describe(RowIndex(stuck)));
        }
    }
    report_.virtual_ns = now_ns_;
    return report_;
}

Status TraceDriver::recover_from(const Error& error, const Recover& recover) {
    if (!recover || num_over_ == num_over_at_failure_) return tl::unexpected(error);
    num_over_at_failure_ = num_over_;
    read_events();
    RETURN_IF_ERROR(recover(error));
    for (FailedTurn& turn : engine_.take_failed_turns()) {
        ++report_.resent;
        submit(failed_.at(turn.request), std::move(turn.again));
    }
    failed_.clear();
    return {};
}

void TraceDriver::plan_rows() {
    for (size_t i = 0; i < trace_.rows.size(); ++i) {
        const Row& row = trace_.rows[i];
        if (row.start == Start::kWhileRunning) {
            while_running_.push_back(RowIndex(i));
        } else if (row.wait_for != kNoRow) {
            waiting_[at(row.wait_for)].push_back(RowIndex(i));
        } else {
            due_.push({row.arrival_ns, RowIndex(i)});
        }
    }
}

// --- sending

void TraceDriver::send_due() {
    while (!due_.empty() && due_.top().time_ns <= now_ns_) {
        const RowIndex row = due_.top().row;
        due_.pop();
        send(row);
    }
}

void TraceDriver::send_while_running() {
    std::erase_if(while_running_, [&](RowIndex row) {
        const RowIndex first = trace_.row(row).wait_for;
        if (is_over_[at(first)] != 0 && lost_a_row(first)) {  // it will never run
            send(row);
            return true;
        }
        const auto beside = request_of_[at(first)];
        const Sequence* sequence = beside ? engine_.find(*beside) : nullptr;
        if (sequence == nullptr || sequence->num_computed_tokens == 0) return false;
        send(row);
        return true;
    });
}

void TraceDriver::send(RowIndex row) {
    const RowIndex from = trace_.row(row).from;
    if (from != kNoRow && is_sent_[at(from)] == 0) {
        held_.emplace(from, row);
        return;
    }
    is_sent_[at(row)] = 1;
    if (traces::is_request(trace_.row(row).event)) {
        submit(row, requests_.make(row));
    } else {
        apply_name_event(row);
    }
    const auto [first, last] = held_.equal_range(row);
    for (auto held = first; held != last; ++held) due_.push({now_ns_, held->second});
    held_.erase(first, last);
}

void TraceDriver::submit(RowIndex row, ChatRequest request) {
    auto accepted = engine_.submit(std::move(request));
    if (!accepted) {
        refused(row, accepted.error());
        over(row);
        return;
    }
    if (accepted->recorded) {
        ++report_.recorded;
        expect(row, Expect::kRecorded, "answered from the ledger");
        requests_.answered(row, accepted->recorded->output, accepted->recorded->version);
        over(row);
        return;
    }
    ++report_.turns;
    request_of_[at(row)] = accepted->request;
    running_.emplace(accepted->request, Running{row, {}});
}

void TraceDriver::apply_name_event(RowIndex index) {
    const Row& row = trace_.row(index);
    const ConversationKey key = requests_.key(row.conversation);
    OrRefusal<int64_t> done = 0;
    if (row.event == TraceEvent::kDelete) {
        done = engine_.remove(key);
    } else if (const auto num_turns = turn_count_at(row.from)) {
        const ConversationKey origin = requests_.key(trace_.row(row.from).conversation);
        done = row.event == TraceEvent::kFork ? engine_.fork(origin, key.conversation_id, num_turns)
                                              : engine_.rewind(key, *num_turns);
    } else {
        done = tl::unexpected(Refusal{RefusalReason::kNoSuchTurn, describe(row.from) + ": committed nothing to go to"});
    }
    if (!done) {
        refused(index, done.error());
    } else {
        expect(index, Expect::kServed, "done");
    }
    over(index);
}

// How many turns the conversation of `row` had when it had committed; empty when it committed nothing that is left.
std::optional<size_t> TraceDriver::turn_count_at(RowIndex row) const {
    const Version version = requests_.version(row);
    const auto* conversation = engine_.ledger().find(requests_.key(trace_.row(row).conversation));
    if (version == kNoVersion || conversation == nullptr) return std::nullopt;
    const auto turn = std::ranges::find(conversation->turns, version, &Turn::version);
    if (turn == conversation->turns.end()) return std::nullopt;
    return static_cast<size_t>(turn - conversation->turns.begin()) + 1;
}

// --- reading

// Clients that have seen enough. One that leaves before the first token waits until the engine has begun on it.
void TraceDriver::leave() {
    std::vector<RequestId> leaving;
    for (const auto& [request, running] : running_) {
        const int64_t after = trace_.row(running.row).abort_after;
        if (after < 0 || static_cast<int64_t>(running.text.size()) < after) continue;
        const Sequence* sequence = engine_.find(request);
        if (sequence != nullptr && sequence->num_computed_tokens > 0) leaving.push_back(request);
    }
    std::ranges::sort(leaving);
    for (const RequestId request : leaving) CHECK(engine_.abort(request));
    if (!leaving.empty()) read_events();
}

void TraceDriver::read_events() {
    for (const EngineEvent& event : engine_.take_events()) {
        Running& running = running_.at(event.request);
        if (event.kind == EngineEvent::Kind::kToken) {
            running.text.push_back(event.token);
            continue;
        }
        ended(event);
    }
}

void TraceDriver::ended(const EngineEvent& event) {
    const Running& running = running_.at(event.request);
    const RowIndex row = running.row;
    const bool sent_again = recovers_ && event.reason == FinishReason::kExecutorFailed;
    if (event.committed) {
        ++report_.served;
        requests_.answered(row, store_.store(running.text), event.version);
        expect(row, Expect::kServed, "answered");
    } else if (event.reason == FinishReason::kAborted) {
        ++report_.aborted;
        expect(row, Expect::kServed, "left");
    } else if (sent_again) {
        failed_.emplace(event.request, row);
    } else {
        report_.unexpected.push_back(fmt::format("{}: the turn ended as {} at step {}, layer {}", describe(row),
                                                 verbatim::name(event.reason), event.step, event.fault_layer));
    }
    running_.erase(event.request);
    request_of_[at(row)].reset();
    if (!sent_again) over(row);
}

void TraceDriver::over(RowIndex row) {
    is_over_[at(row)] = 1;
    ++num_over_;
    for (const RowIndex next : waiting_[at(row)]) {
        const Row& waiting = trace_.row(next);
        const int64_t think_ns = waiting.start == Start::kAfterAnswer ? waiting.think_ns : 0;
        if (waiting.start == Start::kArrival) {
            report_.client_wait_ns += std::max<int64_t>(0, now_ns_ - waiting.arrival_ns);
        }
        due_.push({std::max(waiting.arrival_ns, now_ns_ + think_ns), next});
    }
}

void TraceDriver::reject(RowIndex row) {
    ++report_.rejected;
    lost_a_row_[static_cast<size_t>(index(trace_.row(row).conversation))] = 1;
}

bool TraceDriver::lost_a_row(RowIndex row) const {
    return row != kNoRow && lost_a_row_[static_cast<size_t>(index(trace_.row(row).conversation))] != 0;
}

// What does not fit is rejected and counted, and so is what is refused because a row before it was rejected. Every
// other refusal must be one that the trace expects.
void TraceDriver::refused(RowIndex row, const Refusal& refusal) {
    const bool too_long = refusal.reason == RefusalReason::kTooLong || refusal.reason == RefusalReason::kTooLarge;
    if (too_long || lost_a_row(row) || lost_a_row(trace_.row(row).from)) {
        reject(row);
        return;
    }
    ++report_.refused;
    expect(row, refusal.reason == RefusalReason::kBusy ? Expect::kBusy : Expect::kRefused, refusal.message);
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
