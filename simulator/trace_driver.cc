#include "simulator/trace_driver.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

using TraceEvent = traces::Event;
using traces::Expect;
using traces::kNoRow;
using traces::Row;
using traces::Start;

constexpr int64_t kMaxTimeNs = int64_t{1} << 62;  // 146 years

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
    CHECK_GE(config.step_ns, 0);
}

Result<DriverReport> TraceDriver::run(const std::function<void(int64_t)>& after_step, const Recover& recover) {
    report_.rows = static_cast<int64_t>(trace_.rows.size());
    report_.times.resize(trace_.rows.size());
    RETURN_IF_ERROR(check_times());
    plan_rows();
    recovers_ = static_cast<bool>(recover);
    while (num_over_ < report_.rows || !engine_.idle()) {
        submit_read();
        send_due();
        send_while_running();
        report_idle_clients();
        if (config_.hooks != nullptr) config_.hooks->before_step();
        const Result<bool> stepped = engine_.step();
        if (!stepped) {
            RETURN_IF_ERROR(recover_from(stepped.error(), recover));
        } else if (*stepped) {
            now_ns_ += config_.step_ns > 0 ? config_.step_ns : engine_.elapsed_ns();
            report_.peak_running =
                std::max(report_.peak_running, static_cast<int64_t>(engine_.scheduler().scheduled().size()));
            read_events();
            leave();
            send_while_running();
            if (config_.hooks != nullptr) config_.hooks->stepped(now_ns_);
            if (config_.verify_every_step) engine_.verify();
            if (after_step) after_step(num_over_);
        } else if (!due_.empty() || !reading_.empty()) {
            now_ns_ = std::max(now_ns_, next_arrival_ns());
        } else if (num_over_ < report_.rows) {
            const auto stuck = std::ranges::find(is_over_, 0) - is_over_.begin();
            return error("{}: can never start: the row it should run concurrently with is over",
                         describe(RowIndex(stuck)));
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

// Each row's earliest arrival must leave half of the range for the steps' times.
Status TraceDriver::check_times() const {
    std::vector<int64_t> earliest;
    earliest.reserve(trace_.rows.size());
    for (const Row& row : trace_.rows) {
        int64_t time_ns = row.arrival_ns;
        const int64_t think_ns = row.start == Start::kAfterAnswer ? std::min(row.think_ns, kMaxTimeNs) : 0;
        if (row.wait_for != kNoRow) time_ns = std::max(time_ns, earliest[at(row.wait_for)] + think_ns);
        if (time_ns > kMaxTimeNs) {
            return error(
                "{}: can come {} ns after the begin at the earliest, the clock goes to {}: are think times "
                "too long?",
                describe(RowIndex(earliest.size())), time_ns, kMaxTimeNs);
        }
        earliest.push_back(time_ns);
    }
    return {};
}

void TraceDriver::plan_rows() {
    for (size_t i = 0; i < trace_.rows.size(); ++i) {
        const Row& row = trace_.rows[i];
        if (row.start == Start::kWhileRunning) {
            while_running_.push_back(RowIndex(i));
        } else if (row.wait_for != kNoRow && waits(row)) {
            waiting_[at(row.wait_for)].push_back(RowIndex(i));
        } else {
            times(RowIndex(i)).wanted_ns = row.arrival_ns;
            due_.push({row.arrival_ns, RowIndex(i)});
        }
    }
}

// A client that does not wait for answers sends by the trace's clock. Only turns can be affected.
bool TraceDriver::waits(const Row& row) const {
    if (config_.busy == Busy::kWait || row.start != Start::kArrival || !traces::is_request(row.event)) return true;
    const Row& before = trace_.row(row.wait_for);
    return !traces::is_request(before.event) || before.conversation != row.conversation;
}

// --- sending

void TraceDriver::send_due() {
    while (!due_.empty() && due_.top().time_ns <= now_ns_) {
        const auto [time_ns, row] = due_.top();
        due_.pop();
        if (times(row).due_ns < 0) times(row).due_ns = time_ns;
        send(row);
    }
}

void TraceDriver::send_while_running() {
    std::erase_if(while_running_, [&](RowIndex row) {
        const RowIndex first = trace_.row(row).wait_for;
        const bool never_runs = is_over_[at(first)] != 0 && lost_a_row(first);
        const auto beside = request_of_[at(first)];
        const Sequence* sequence = beside ? engine_.find(*beside) : nullptr;
        if (!never_runs && (sequence == nullptr || sequence->num_computed_tokens == 0)) return false;
        times(row).wanted_ns = times(row).due_ns = now_ns_;
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

int64_t TraceDriver::next_arrival_ns() const {
    int64_t next_ns = std::numeric_limits<int64_t>::max();
    if (!due_.empty()) next_ns = due_.top().time_ns;
    if (!reading_.empty()) next_ns = std::min(next_ns, reading_.begin()->first.time_ns);
    return next_ns;
}

void TraceDriver::submit_read() {
    while (!reading_.empty() && reading_.begin()->first.time_ns <= now_ns_) {
        auto read = reading_.extract(reading_.begin());
        config_.hooks->head_read(read.key().row, read.mapped());
        submit_now(read.key().row, std::move(read.mapped()));
    }
}

void TraceDriver::submit(RowIndex row, ChatRequest request) {
    if (config_.hooks != nullptr) {
        config_.hooks->prepare(row, request);
        const int64_t ready_ns = config_.hooks->ready_ns(row, request, now_ns_);
        if (ready_ns > now_ns_) {
            reading_.emplace(Due{ready_ns, row}, std::move(request));
            return;
        }
    }
    submit_now(row, std::move(request));
}

void TraceDriver::submit_now(RowIndex row, ChatRequest request) {
    std::optional<ChatRequest> again;
    if (config_.busy == Busy::kUncached) again = request;
    auto accepted = engine_.submit(std::move(request));
    const bool busy = !accepted && config_.busy != Busy::kWait && accepted.error().reason == RefusalReason::kBusy &&
                      trace_.row(row).expect != Expect::kBusy;
    if (busy) {
        ++report_.busy;
        lost_a_row_[static_cast<size_t>(index(trace_.row(row).conversation))] = 1;
        if (config_.busy == Busy::kRefuse) return over(row, RowOutcome::kBusy);
        accepted = submit_uncached(row, *std::move(again));
    }
    if (!accepted) {
        over(row, refused(row, accepted.error()));
        return;
    }
    if (accepted->recorded) {
        ++report_.recorded;
        expect(row, Expect::kRecorded, "answered from the ledger");
        requests_.answered(row, accepted->recorded->output, accepted->recorded->version);
        over(row, RowOutcome::kRecorded);
        return;
    }
    ++report_.turns;
    request_of_[at(row)] = accepted->request;
    running_.emplace(accepted->request, Running{row, busy, {}});
    if (trace_.row(row).abort_after >= 0) leaving_.push_back(accepted->request);
    times(row).prompt_tokens = engine_.find(accepted->request)->num_prompt_tokens();
    if (config_.hooks != nullptr) config_.hooks->accepted(row, accepted->request);
}

// Submits the whole prompt under a unique name.
OrRefusal<Accepted> TraceDriver::submit_uncached(RowIndex row, ChatRequest request) {
    request.conversation.conversation_id += fmt::format("/row{}", index(row));
    request.input = InputKind::kHistory;
    request.messages = {{requests_.prompt(row), /*checkpoint=*/false}};
    request.turn_id.reset();
    request.parent.reset();
    request.use_cache = false;
    return engine_.submit(std::move(request));
}

void TraceDriver::apply_name_event(RowIndex index) {
    const Row& row = trace_.row(index);
    const ConversationKey key = requests_.key(row.conversation);
    OrRefusal<int64_t> done = 0;
    if (row.event == TraceEvent::kDelete) {
        const Ledger::Conversation* conversation = engine_.ledger().find(key);
        const TokenSeq committed = conversation == nullptr ? TokenSeq() : conversation->committed;
        done = engine_.remove(key);
        if (done && config_.hooks != nullptr) config_.hooks->deleted(key.salt, committed);
    } else if (const auto num_turns = turn_count_at(row.from)) {
        const ConversationKey origin = requests_.key(trace_.row(row.from).conversation);
        done = row.event == TraceEvent::kFork ? engine_.fork(origin, key.conversation_id, num_turns)
                                              : engine_.rewind(key, *num_turns);
    } else {
        done = tl::unexpected(Refusal{.reason = RefusalReason::kNoSuchTurn,
                                      .problem = fmt::format(": {}: committed nothing to go to", describe(row.from))});
    }
    if (!done) return over(index, refused(index, done.error()));
    expect(index, Expect::kServed, "done");
    over(index, RowOutcome::kDone);
}

// The number of turns in the conversation of `row` when it committed; empty if no turn of it is left.
std::optional<size_t> TraceDriver::turn_count_at(RowIndex row) const {
    const Version version = requests_.version(row);
    const auto* conversation = engine_.ledger().find(requests_.key(trace_.row(row).conversation));
    if (version == kNoVersion || conversation == nullptr) return std::nullopt;
    const auto turn = std::ranges::find(conversation->turns, version, &Turn::version);
    if (turn == conversation->turns.end()) return std::nullopt;
    return static_cast<size_t>(turn - conversation->turns.begin()) + 1;
}

// --- reading

// A step gives a client at most one token. The step after which a client leaves is excluded.
void TraceDriver::report_idle_clients() const {
    if (config_.hooks == nullptr) return;
    int64_t num_steps = std::numeric_limits<int64_t>::max();
    for (const RequestId request : leaving_) {
        const Running& running = running_.at(request);
        num_steps =
            std::min(num_steps, trace_.row(running.row).abort_after - static_cast<int64_t>(running.text.size()) - 1);
    }
    const bool any_arrives = !due_.empty() || !reading_.empty();
    config_.hooks->clients_idle_until(num_steps, any_arrives ? next_arrival_ns() - now_ns_ : next_arrival_ns());
}

// Clients that have seen enough leave. One that leaves before the first token waits until its prefill has begun.
void TraceDriver::leave() {
    std::vector<RequestId> leaving;
    std::erase_if(leaving_, [&](RequestId request) {
        const auto found = running_.find(request);
        if (found == running_.end()) return true;
        const int64_t after = trace_.row(found->second.row).abort_after;
        if (static_cast<int64_t>(found->second.text.size()) < after) return false;
        const Sequence* sequence = engine_.find(request);
        if (sequence == nullptr || sequence->num_computed_tokens == 0) return false;
        leaving.push_back(request);
        return true;
    });
    std::ranges::sort(leaving);
    for (const RequestId request : leaving) CHECK(engine_.abort(request));
    if (!leaving.empty()) read_events();
}

void TraceDriver::read_events() {
    for (const EngineEvent& event : engine_.take_events()) {
        if (const auto* one = std::get_if<TokenEvent>(&event)) {
            received(one->request, {&one->token, 1});
        } else if (const auto* several = std::get_if<TokensEvent>(&event)) {
            received(several->request, engine_.tokens_of(*several));
        } else {
            ended(std::get<FinishedEvent>(event));
        }
    }
}

void TraceDriver::received(RequestId request, std::span<const TokenId> tokens) {
    Running& running = running_.at(request);
    if (running.text.empty()) times(running.row).first_token_ns = now_ns_;
    running.text.insert(running.text.end(), tokens.begin(), tokens.end());
}

void TraceDriver::ended(const FinishedEvent& event) {
    const Running& running = running_.at(event.request);
    const RowIndex row = running.row;
    const bool sent_again = recovers_ && event.reason == FinishReason::kExecutorFailed;
    times(row).reused_tokens = event.num_reused_tokens;
    times(row).output_tokens = event.num_output_tokens;
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
        failed_.emplace(event.request, row);
    } else {
        outcome = RowOutcome::kFailed;
        report_.unexpected.push_back(fmt::format("{}: the turn ended as {} at step {}, layer {}", describe(row),
                                                 verbatim::name(event.reason), event.step, event.fault_layer));
    }
    running_.erase(event.request);
    request_of_[at(row)].reset();
    if (!sent_again) over(row, outcome);
}

void TraceDriver::over(RowIndex row, RowOutcome outcome) {
    is_over_[at(row)] = 1;
    ++num_over_;
    times(row).end_ns = now_ns_;
    times(row).outcome = outcome;
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
    ++report_.rejected;
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
