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
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

TraceDriver::TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests,
                         TokenStore& store, Dispatcher* dispatcher)
    : config_(config),
      trace_(trace),
      requests_(requests),
      store_(store),
      dispatcher_(dispatcher),
      place_of_row_(trace.rows.size()),
      waiting_(trace.rows.size()),
      request_of_(trace.rows.size()),
      is_routed_(trace.rows.size()),
      is_sent_(trace.rows.size()),
      is_moved_(trace.rows.size()),
      is_over_(trace.rows.size()),
      lost_a_row_(trace.conversations.size()) {
    CHECK_GE(config.step_ns, 0);
}

TraceDriver::TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests,
                         Engine& engine, TokenStore& store)
    : TraceDriver(config, trace, requests, store, nullptr) {
    add_engine(engine, config.hooks);
}

TraceDriver::TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests,
                         TokenStore& store, Dispatcher& dispatcher)
    : TraceDriver(config, trace, requests, store, &dispatcher) {
    CHECK(config.hooks == nullptr, "each of several engines has hooks of its own");
}

EngineNumber TraceDriver::add_engine(Engine& engine, DriverHooks* hooks) {
    Place& place = places_.emplace_back();
    place.engine = &engine;
    place.hooks = hooks;
    return places_.size() - 1;
}

void TraceDriver::take_engine(EngineNumber number) {
    CHECK(is_free(number), "engine {} has something to do", number);
    Place& place = places_.at(number);
    place.engine = nullptr;
    place.hooks = nullptr;
}

bool TraceDriver::is_free(EngineNumber number) const {
    const Place& place = places_.at(number);
    return place.engine != nullptr && !place.in_step() && num_rows_at(number) == 0 && place.engine->idle();
}

bool TraceDriver::is_busy() const {
    return num_over_ < report_.rows || std::ranges::any_of(places_, [](const Place& place) {
               return place.in_step() || (place.engine != nullptr && !place.engine->idle());
           });
}

Result<DriverReport> TraceDriver::run(const std::function<void(int64_t)>& after_step, const Recover& recover) {
    CHECK(!recover || dispatcher_ == nullptr, "one engine alone is replaced");
    report_.rows = static_cast<int64_t>(trace_.rows.size());
    report_.times.resize(trace_.rows.size());
    RETURN_IF_ERROR(check_times());
    plan_rows();
    recovers_ = static_cast<bool>(recover);
    while (is_busy()) {
        end_steps(after_step);
        if (dispatcher_ != nullptr && dispatcher_->next_event_ns() <= now_ns_) dispatcher_->at_event(now_ns_);
        submit_read();
        send_due();
        send_while_running();
        ASSIGN_OR_RETURN(const bool failed, begin_steps(recover));
        if (!failed) RETURN_IF_ERROR(advance());
    }
    report_.virtual_ns = now_ns_;
    return report_;
}

void TraceDriver::end_steps(const std::function<void(int64_t)>& after_step) {
    for (Place& place : places_) {
        if (place.in_step() && place.step_ends_ns <= now_ns_) end_step(place, after_step);
    }
}

void TraceDriver::end_step(Place& place, const std::function<void(int64_t)>& after_step) {
    CHECK(place.in_step() && place.step_begins_ns <= place.step_ends_ns, "a step from {} to {} ns",
          place.step_begins_ns, place.step_ends_ns);
    place.busy_ns += place.step_ends_ns - place.step_begins_ns;
    place.step_ends_ns = -1;
    report_.peak_running =
        std::max(report_.peak_running, static_cast<int64_t>(place.engine->scheduler().scheduled().size()));
    read_events(place);
    leave(place);
    send_while_running();
    if (place.hooks != nullptr) place.hooks->stepped(now_ns_);
    if (config_.verify_every_step) place.engine->verify();
    if (after_step) after_step(num_over_);
}

// True after a failure that was recovered from.
Result<bool> TraceDriver::begin_steps(const Recover& recover) {
    for (Place& place : places_) {
        if (place.in_step() || place.engine == nullptr || place.engine->idle()) continue;
        if (place.hooks != nullptr) place.hooks->before_step(now_ns_);
        // Nothing runs, and the next request in order waits for a head: the clock jumps to when it is read.
        if (place.engine->waits_for_head() && next_head_ns(place) != kNever) continue;
        report_idle_clients(place);
        const Result<bool> stepped = place.engine->step();
        if (!stepped) {
            RETURN_IF_ERROR(recover_from(place, stepped.error(), recover));
            return true;
        }
        if (!*stepped) continue;
        place.step_begins_ns = now_ns_;
        place.step_ends_ns = now_ns_ + (config_.step_ns > 0 ? config_.step_ns : place.engine->elapsed_ns());
        CHECK_GE(place.step_ends_ns, now_ns_);
    }
    return false;
}

// To the next event. A single engine's rows that come during a step wait for its end in any case.
Status TraceDriver::advance() {
    int64_t next_ns = kNever;
    bool any_step = false;
    for (const Place& place : places_) {
        any_step |= place.in_step();
        const int64_t comes_ns = std::min(next_arrival_ns(place), next_head_ns(place));
        next_ns = std::min(next_ns, place.in_step() ? place.step_ends_ns : comes_ns);
    }
    if (!due_.empty() && (dispatcher_ != nullptr || !any_step)) next_ns = std::min(next_ns, due_.top().time_ns);
    if (next_ns == kNever) {
        if (!is_busy()) return {};
        const auto stuck = std::ranges::find(is_over_, 0) - is_over_.begin();
        CHECK(stuck < std::ssize(is_over_), "an engine has work after the last row, and does none");
        const std::string why = report_.unexpected.empty() ? "" : report_.unexpected.front() + ": ";
        return error("{}{}: can never start: the row it should run concurrently with is over", why,
                     describe(RowIndex(stuck)));
    }
    if (dispatcher_ != nullptr) next_ns = std::min(next_ns, dispatcher_->next_event_ns());
    now_ns_ = std::max(now_ns_, next_ns);
    return {};
}

Status TraceDriver::recover_from(Place& place, const Error& error, const Recover& recover) {
    if (!recover || num_over_ == num_over_at_failure_) return tl::unexpected(error);
    num_over_at_failure_ = num_over_;
    read_events(place);
    RETURN_IF_ERROR(recover(error));
    for (FailedTurn& turn : place.engine->take_failed_turns()) {
        ++report_.resent;
        submit(place.failed.at(turn.request), std::move(turn.again));
    }
    place.failed.clear();
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
    size_t num_waiting = 0;
    for (size_t i = 0; i < trace_.rows.size(); ++i) {
        const Row& row = trace_.rows[i];
        if (row.start == Start::kWhileRunning) {
            while_running_.push_back(RowIndex(i));
        } else if (row.wait_for != kNoRow && waits(row)) {
            waiting_[at(row.wait_for)].push_back(RowIndex(i));
            ++num_waiting;
        } else {
            times(RowIndex(i)).wanted_ns = row.arrival_ns;
            due_.push({row.arrival_ns, RowIndex(i)});
        }
    }
    CHECK_EQ(while_running_.size() + num_waiting + due_.size(), trace_.rows.size());
}

// A client that does not wait for answers sends by the trace's clock. Only turns can be affected.
bool TraceDriver::waits(const Row& row) const {
    if (config_.busy == Busy::kWait || row.start != Start::kArrival || !traces::is_request(row.event)) return true;
    const Row& before = trace_.row(row.wait_for);
    return !traces::is_request(before.event) || before.conversation != row.conversation;
}

// Every row that is due gets its place.
void TraceDriver::route_due() {
    while (!due_.empty() && due_.top().time_ns <= now_ns_) {
        const Due due = due_.top();
        due_.pop();
        if (times(due.row).due_ns < 0) times(due.row).due_ns = due.time_ns;
        const size_t row = at(due.row);
        if (dispatcher_ != nullptr && is_routed_[row] == 0) {
            const RowIndex from = trace_.rows[row].from;
            const bool reads = dispatcher_->reads_prompts() && traces::is_request(trace_.rows[row].event) &&
                               (from == kNoRow || is_sent_[at(from)] != 0);
            if (reads) made_.emplace(due.row, requests_.make(due.row));
            place_of_row_[row] = dispatcher_->choose(due.row, reads ? &requests_.prompt(due.row) : nullptr, now_ns_);
            CHECK(place_of(due.row).engine != nullptr, "row {} is sent to an engine that left", row);
        }
        is_routed_[row] = 1;
        place_of(due.row).due.insert(due);
    }
}

// What is sent can be over at once, and others due.
void TraceDriver::send_due() {
    route_due();
    for (bool sends = true; sends;) {
        sends = false;
        for (Place& place : places_) {
            while (!place.in_step() && !place.due.empty()) {
                sends = true;
                const RowIndex row = place.due.extract(place.due.begin()).value().row;
                send(row);
                route_due();
            }
        }
    }
}

void TraceDriver::send_while_running() {
    std::erase_if(while_running_, [&](RowIndex row) {
        const RowIndex first = trace_.row(row).wait_for;
        const bool never_runs = is_over_[at(first)] != 0 && lost_a_row(first);
        const auto beside = request_of_[at(first)];
        const Place& place = place_of(first);
        if (place.in_step()) return false;
        const Sequence* sequence = beside ? place.engine->find(*beside) : nullptr;
        if (!never_runs && (sequence == nullptr || sequence->num_computed_tokens == 0)) return false;
        times(row).wanted_ns = times(row).due_ns = now_ns_;
        place_of_row_[at(row)] = place_of_row_[at(first)];
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
    CHECK(is_sent_[at(row)] == 0, "row {} is sent twice", index(row));
    is_sent_[at(row)] = 1;
    if (traces::is_request(trace_.row(row).event)) {
        submit(row, request_of(row));
    } else {
        apply_name_event(row);
    }
    const auto [first, last] = held_.equal_range(row);
    for (auto held = first; held != last; ++held) due_.push({now_ns_, held->second});
    held_.erase(first, last);
}

ChatRequest TraceDriver::request_of(RowIndex row) {
    auto made = made_.extract(row);
    ChatRequest request = made.empty() ? requests_.make(row) : std::move(made.mapped());
    const RowIndex from = trace_.row(row).from;
    const bool regenerates = request.input == InputKind::kRegenerate && from != kNoRow;
    if (regenerates && place_of_row_[at(row)] != place_of_row_[at(from)]) {
        request.input = InputKind::kHistory;  // this engine has no turn to answer again
        request.messages = {{requests_.prompt(row), /*checkpoint=*/false}};
    }
    return request;
}

int64_t TraceDriver::next_arrival_ns(const Place& place) const {
    int64_t next_ns = kNever;
    if (!place.due.empty()) next_ns = place.due.begin()->time_ns;
    if (!place.reading.empty()) next_ns = std::min(next_ns, place.reading.begin()->first.time_ns);
    return next_ns;
}

int64_t TraceDriver::next_head_ns(const Place& place) const {
    const int64_t read_ns = place.hooks == nullptr ? kNever : place.hooks->next_head_ns();
    return read_ns > now_ns_ ? read_ns : kNever;
}

void TraceDriver::submit_read() {
    for (Place& place : places_) {
        while (!place.in_step() && !place.reading.empty() && place.reading.begin()->first.time_ns <= now_ns_) {
            auto read = place.reading.extract(place.reading.begin());
            CHECK(place.hooks != nullptr, "row {} waits for a head without a tier", index(read.key().row));
            place.hooks->head_read(read.key().row, read.mapped());
            submit_now(place, read.key().row, std::move(read.mapped()));
        }
    }
}

void TraceDriver::submit(RowIndex row, ChatRequest request) {
    Place& place = place_of(row);
    if (place.hooks != nullptr) {
        std::optional<ChatRequest> then;
        const bool for_another = dispatcher_ != nullptr && dispatcher_->computes_prompts(place_of_row_[at(row)]);
        if (for_another && request.max_tokens != 0) then = request;
        place.hooks->prepare(row, request);
        if (then) made_.emplace(row, *std::move(then));
        const int64_t ready_ns = place.hooks->ready_ns(row, request, now_ns_);
        if (ready_ns > now_ns_) {
            place.reading.emplace(Due{ready_ns, row}, std::move(request));
            return;
        }
    }
    submit_now(place, row, std::move(request));
}

void TraceDriver::submit_now(Place& place, RowIndex row, ChatRequest request) {
    CHECK(!request_of_[at(row)] && is_over_[at(row)] == 0, "row {} runs or is over", index(row));
    std::optional<ChatRequest> again;
    if (config_.busy == Busy::kUncached) again = request;
    auto accepted = place.engine->submit(std::move(request));
    const bool busy = !accepted && config_.busy != Busy::kWait && accepted.error().reason == RefusalReason::kBusy &&
                      trace_.row(row).expect != Expect::kBusy;
    if (busy) {
        ++report_.busy;
        lost_a_row_[static_cast<size_t>(index(trace_.row(row).conversation))] = 1;
        if (config_.busy == Busy::kRefuse) return over(row, RowOutcome::kBusy);
        accepted = submit_uncached(place, row, *std::move(again));
    }
    if (!accepted) {
        made_.erase(row);
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
    if (is_moved_[at(row)] == 0) ++report_.turns;
    request_of_[at(row)] = accepted->request;
    Running& running = place.running[accepted->request] = {.row = row, .apart = busy, .text = {}, .then = {}};
    if (auto then = made_.extract(row); !then.empty()) running.then = std::move(then.mapped());
    if (!waiting_[at(row)].empty()) ++place.num_awaited;
    if (trace_.row(row).abort_after >= 0) place.leaving.push_back(accepted->request);
    times(row).prompt_tokens = place.engine->find(accepted->request)->num_prompt_tokens();
    if (place.hooks != nullptr) place.hooks->accepted(row, accepted->request);
}

// Submits the whole prompt under a unique name.
OrRefusal<Accepted> TraceDriver::submit_uncached(Place& place, RowIndex row, ChatRequest request) {
    CHECK(config_.busy == Busy::kUncached, "row {} must not run apart", index(row));
    request.conversation.conversation_id += fmt::format("/row{}", index(row));
    request.input = InputKind::kHistory;
    request.messages = {{requests_.prompt(row), /*checkpoint=*/false}};
    request.turn_id.reset();
    request.parent.reset();
    request.use_cache = false;
    return place.engine->submit(std::move(request));
}

void TraceDriver::apply_name_event(RowIndex index) {
    const Row& row = trace_.row(index);
    CHECK(!traces::is_request(row.event), "row {} is a request", verbatim::index(index));
    const ConversationKey key = requests_.key(row.conversation);
    Place& place = place_of(index);
    Engine& engine = *place.engine;
    OrRefusal<int64_t> done = 0;
    // A replica without the turn has nothing to fork: the requests that follow have their whole history.
    const bool elsewhere = dispatcher_ != nullptr && row.event == TraceEvent::kFork &&
                           (&place_of(row.from) != &place || !turn_count_at(row.from));
    if (elsewhere) return over(index, RowOutcome::kDone);
    if (row.event == TraceEvent::kDelete) {
        const Ledger::Conversation* conversation = engine.ledger().find(key);
        const TokenSeq committed = conversation == nullptr ? TokenSeq() : conversation->committed;
        done = engine.remove(key);
        if (done && place.hooks != nullptr) place.hooks->deleted(key, committed);
    } else if (const auto num_turns = turn_count_at(row.from)) {
        const ConversationKey origin = requests_.key(trace_.row(row.from).conversation);
        const bool forks = row.event == TraceEvent::kFork;
        done = forks ? engine.fork(origin, key.conversation_id, num_turns) : engine.rewind(key, *num_turns);
        if (done && forks && place.hooks != nullptr)
            place.hooks->forked(origin, key, engine.ledger().find(key)->committed);
    } else {
        done = tl::unexpected(Refusal{.reason = RefusalReason::kNoSuchTurn,
                                      .problem = fmt::format(": {}: committed nothing to go to", describe(row.from))});
    }
    if (!done) return over(index, refused(index, done.error()));
    expect(index, Expect::kServed, "done");
    over(index, RowOutcome::kDone);
}

// The number of turns in the conversation of `row` when it committed; empty if no turn of it is left.
std::optional<size_t> TraceDriver::turn_count_at(RowIndex row) {
    const Version version = requests_.version(row);
    const auto* conversation = place_of(row).engine->ledger().find(requests_.key(trace_.row(row).conversation));
    if (version == kNoVersion || conversation == nullptr) return std::nullopt;
    const auto turn = std::ranges::find(conversation->turns, version, &Turn::version);
    if (turn == conversation->turns.end()) return std::nullopt;
    return static_cast<size_t>(turn - conversation->turns.begin()) + 1;
}

// A row that is over brings those that wait for it, and a computed prompt goes to another engine. Rows that run can be
// over at the step's end, rows that came during the step after it, rows that wait for a head when it is there.
int64_t TraceDriver::brings_no_row_for_ns(EngineNumber number) const {
    const Place& place = places_[number];
    const bool moves_rows = dispatcher_->computes_prompts(number);
    const auto brings = [&](const Due& due) { return moves_rows || !waiting_[at(due.row)].empty(); };
    const int64_t step_ns = place.in_step() ? place.step_ends_ns - now_ns_ : 1;
    const bool any_runs = place.num_awaited > 0 || (moves_rows && !place.running.empty());
    if (any_runs || std::ranges::any_of(place.due, brings)) return step_ns;
    const auto read = std::ranges::find_if(place.reading, [&](const auto& of_row) { return brings(of_row.first); });
    return read == place.reading.end() ? kNever : std::max(step_ns, read->first.time_ns - now_ns_);
}

// Steps that begin within this time may be merged at the place: no other engine ends a step before that brings a row.
int64_t TraceDriver::others_bring_no_row_for_ns(const Place& place) const {
    int64_t until_ns = kNever;
    if (!held_.empty() || !while_running_.empty()) return 1;
    for (EngineNumber i = 0; i < places_.size(); ++i) {
        if (&places_[i] != &place) until_ns = std::min(until_ns, brings_no_row_for_ns(i));
    }
    return until_ns;
}

// A step gives a client at most one token. The step after which a client leaves is excluded.
void TraceDriver::report_idle_clients(const Place& place) const {
    if (place.hooks == nullptr) return;
    int64_t num_steps = kNever;
    for (const RequestId request : place.leaving) {
        const Running& running = place.running.at(request);
        num_steps =
            std::min(num_steps, trace_.row(running.row).abort_after - static_cast<int64_t>(running.text.size()) - 1);
    }
    int64_t arrival_ns = std::min(next_arrival_ns(place), next_head_ns(place));
    if (!due_.empty()) arrival_ns = std::min(arrival_ns, due_.top().time_ns);
    int64_t until_ns = arrival_ns < kNever ? arrival_ns - now_ns_ : kNever;
    if (dispatcher_ != nullptr) until_ns = std::min(until_ns, others_bring_no_row_for_ns(place));
    place.hooks->clients_idle_until(num_steps, until_ns);
}

}  // namespace verbatim
