// simulator/trace_driver.h: owns the clients of a trace: it sends the rows to one engine or several on a virtual clock,
// reads the answers, leaves early where the trace says so, and checks that every row gets the result that the trace
// expects.
//
// The clock is virtual, in nanoseconds: it advances to the next step's end or arrival. So a run depends only on the
// trace, the configuration and the steps' times. Simultaneous events have this order: steps end and their results are
// delivered, by engine and in plan order; clients leave; the dispatcher's event; due rows are sent; the next steps are
// planned.
//   V1  a row is sent when it is due, its wait_for row is over, and the row that it takes from or goes back to was
//       sent: a client does not send its next turn before it has the answer (Busy lists the alternatives)
//   V2  rows due at the same time are sent in order of (time, row); a row that becomes due during a step is sent at its
//       end, and its times count from when it was due
//   V3  the run ends when every row is over; a row that can never start is an error
//   V4  after a row was rejected for its length, the rest of its conversation has no expectations
//   V5  a row whose turn ended because the executor failed is sent again, with the seed that it was drawn with
//   V6  a request that waits for a head to be read is submitted at the end of the step in which it is read
//       One that is about to attach waits in the engine (D7): until its head is read the clock jumps if nothing runs
//   V7  per row: due <= first token <= end, and no time is before that of the row it waits for
//   V8  of several engines each has separate steps. A row gets its engine when it is due (Dispatcher), and a row that
//       becomes due during a step of that engine is sent at this step's end
//   V9  merged steps of an engine end before any other engine's step can bring it a row
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "simulator/dispatcher.h"
#include "traces/requests.h"
#include "traces/trace.h"

namespace verbatim {

// What a client does when its next turn is due in the trace while its previous turn still runs.
enum class Busy : uint8_t {
    kWait,      // sends it when it has the answer
    kRefuse,    // sends it anyway, and is refused
    kUncached,  // sends it anyway, as a separate conversation that reuses nothing
};

// Callbacks by which a simulation changes requests and observes steps.
class DriverHooks {
public:
    virtual ~DriverHooks() = default;
    virtual void prepare(traces::RowIndex row, ChatRequest& request) = 0;  // before it is submitted
    virtual void accepted(traces::RowIndex row, RequestId request) = 0;
    virtual void before_step(int64_t /*now_ns*/) {}  // requests may be about to attach
    // When the next head is in memory that a request waits for which is about to attach; the largest number: none is
    // read, or it is not known.
    [[nodiscard]] virtual int64_t next_head_ns() const { return std::numeric_limits<int64_t>::max(); }
    // A conversation of these committed tokens is gone; was made from another one.
    virtual void deleted(const ConversationKey& /*key*/, const TokenSeq& /*committed*/) {}
    virtual void forked(const ConversationKey& /*from*/, const ConversationKey& /*to*/, const TokenSeq& /*committed*/) {
    }
    virtual void stepped(int64_t now_ns) = 0;  // a step has ended, or several that were merged
    // When a head that is read for the request is in memory; `now_ns` or earlier: the request waits for none.
    [[nodiscard]] virtual int64_t ready_ns(traces::RowIndex /*row*/, ChatRequest& /*request*/, int64_t now_ns) {
        return now_ns;
    }
    // The head is read, and the request is submitted next.
    virtual void head_read(traces::RowIndex /*row*/, const ChatRequest& /*request*/) {}
    // No client acts in the next `num_steps` steps, nor before `until_ns` from now: as many steps as begin before then
    // may be merged.
    virtual void clients_idle_until(int64_t /*num_steps*/, int64_t /*until_ns*/) {}
};

struct DriverConfig {
    int64_t step_ns = 100'000'000;   // virtual time of a step; 0: the time in its result
    bool verify_every_step = false;  // Engine::verify after each
    DriverHooks* hooks = nullptr;    // borrowed for the driver's lifetime
    Busy busy = Busy::kWait;
};

enum class RowOutcome : uint8_t { kNotOver, kServed, kAborted, kRecorded, kRefused, kRejected, kBusy, kFailed, kDone };

// A row's outcome and times. Times in ns since the start of the trace; -1: never.
struct RowTimes {
    int64_t wanted_ns = 0;  // the client would have sent it
    int64_t due_ns = -1;    // it could be sent: the awaited answer was there
    int64_t first_token_ns = -1;
    int64_t end_ns = -1;
    int64_t prompt_tokens = 0;
    int64_t reused_tokens = 0;
    int64_t restored_tokens = 0;  // of these, from tiers: memory alone would not have had them
    int64_t output_tokens = 0;
    RowOutcome outcome = RowOutcome::kNotOver;
    friend bool operator==(const RowTimes&, const RowTimes&) = default;
};

struct DriverReport {
    int64_t rows = 0;     // in the trace
    int64_t turns = 0;    // accepted by the engine
    int64_t served = 0;   // answered and committed
    int64_t aborted = 0;  // by the client
    int64_t refused = 0;  // as expected
    // Longer than the model's context or the empty cache, or refused because such a row is missing
    int64_t rejected = 0;
    int64_t recorded = 0;         // answered from the ledger
    int64_t resent = 0;           // sent again after an executor failure
    int64_t busy = 0;             // sent while the previous turn ran: refused, or served as separate conversations
    int64_t client_wait_ns = 0;   // sum over rows of the time between due and the end of the awaited row
    int64_t virtual_ns = 0;       // the whole run
    int64_t peak_running = 0;     // sequences in one step
    std::vector<RowTimes> times;  // per row
    std::vector<std::string> unexpected;  // rows with another result than the trace expects
};

class TraceDriver {
public:
    // After a failed step: gives the engine a fresh executor (Engine::replace_executor), or returns the error.
    using Recover = std::function<Status(const Error& error)>;

    // Borrows all arguments for its lifetime.
    TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests, Engine& engine,
                TokenStore& store);
    // For engines that are added, each with separate hooks. REQUIRES: no config.hooks; no failure recovery.
    TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests,
                TokenStore& store, Dispatcher& dispatcher);

    // Numbers are given in order, from 0 on. Both are borrowed until take_engine() or the driver's end.
    EngineNumber add_engine(Engine& engine, DriverHooks* hooks);
    // The engine leaves. REQUIRES: is_free(number).
    void take_engine(EngineNumber number);
    // No row of it is on its way, and it has nothing to do.
    [[nodiscard]] bool is_free(EngineNumber number) const;
    // Rows that have been sent to the engine or wait for the end of its step, and are not over there.
    [[nodiscard]] int64_t num_rows_at(EngineNumber number) const {
        const Place& place = places_.at(number);
        return static_cast<int64_t>(place.due.size() + place.reading.size() + place.running.size());
    }
    // Of all rows, so far.
    [[nodiscard]] std::vector<RowTimes>& row_times() { return report_.times; }
    // Virtual time that the engine has spent in steps until now.
    [[nodiscard]] int64_t busy_ns(EngineNumber number) const {
        const Place& place = places_.at(number);
        return place.busy_ns + (place.in_step() ? now_ns_ - place.step_begins_ns : 0);
    }

    // Runs the trace to its end. `after_step(finished rows)` is called after every step. Errors: the executor's, if
    // recovery fails or the fresh executor fails before any row is over; or a trace that cannot run.
    Result<DriverReport> run(const std::function<void(int64_t)>& after_step = {}, const Recover& recover = {});

private:
    [[nodiscard]] static size_t at(traces::RowIndex row) { return static_cast<size_t>(index(row)); }
    // `dispatcher`: null where one engine has all rows.
    TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests,
                TokenStore& store, Dispatcher* dispatcher);
    using RowIndex = traces::RowIndex;
    struct Due {
        int64_t time_ns;
        RowIndex row;
        friend auto operator<=>(const Due&, const Due&) = default;
    };
    struct Running {
        RowIndex row{};
        bool apart = false;  // as a separate conversation (Busy::kUncached)
        std::vector<TokenId> text;
        std::optional<ChatRequest> then;  // for another engine, when this one has computed the prompt
    };

    // Where rows are, and what they wait for, at one engine.
    struct Place {
        Engine* engine = nullptr;  // null: it has left
        DriverHooks* hooks = nullptr;
        int64_t step_begins_ns = 0;
        int64_t step_ends_ns = -1;           // -1: no step runs
        int64_t busy_ns = 0;                 // in steps that have ended
        int64_t num_awaited = 0;             // of the rows that run, those that others wait for
        std::set<Due> due;                   // rows that came during the step
        std::map<Due, ChatRequest> reading;  // that wait for a head
        std::unordered_map<RequestId, Running> running;
        std::vector<RequestId> leaving;                  // running rows whose client will leave early
        std::unordered_map<RequestId, RowIndex> failed;  // to be sent again
        [[nodiscard]] bool in_step() const { return step_ends_ns >= 0; }
    };

    [[nodiscard]] Status check_times() const;
    void plan_rows();
    [[nodiscard]] bool is_busy() const;
    [[nodiscard]] Place& place_of(RowIndex row) { return places_[place_of_row_[static_cast<size_t>(index(row))]]; }
    void end_steps(const std::function<void(int64_t)>& after_step);
    void end_step(Place& place, const std::function<void(int64_t)>& after_step);
    Result<bool> begin_steps(const Recover& recover);
    [[nodiscard]] Status advance();
    void route_due();
    void send_due();
    void send_while_running();
    void send(RowIndex row);
    [[nodiscard]] ChatRequest request_of(RowIndex row);
    void submit(RowIndex row, ChatRequest request);
    void submit_now(Place& place, RowIndex row, ChatRequest request);
    void submit_read();
    [[nodiscard]] int64_t next_arrival_ns(const Place& place) const;  // of a due row, or one whose head is read
    // Of a request in the engine that waits for it. The largest number: none will come.
    [[nodiscard]] int64_t next_head_ns(const Place& place) const;
    [[nodiscard]] OrRefusal<Accepted> submit_uncached(Place& place, RowIndex row, ChatRequest request);
    [[nodiscard]] bool waits(const traces::Row& row) const;
    Status recover_from(Place& place, const Error& error, const Recover& recover);
    void apply_name_event(RowIndex row);
    [[nodiscard]] int64_t brings_no_row_for_ns(EngineNumber number) const;
    [[nodiscard]] int64_t others_bring_no_row_for_ns(const Place& place) const;
    void report_idle_clients(const Place& place) const;
    void leave(Place& place);
    void read_events(Place& place);
    void received(Place& place, RequestId request, std::span<const TokenId> tokens);
    void ended(Place& place, const FinishedEvent& event);
    void move_on(Place& from, RowIndex row, ChatRequest request);
    void over(RowIndex row, RowOutcome outcome);
    RowOutcome refused(RowIndex row, const Refusal& refusal);
    void reject(RowIndex row);
    [[nodiscard]] bool lost_a_row(RowIndex row) const;  // for the conversation of `row`
    void expect(RowIndex row, traces::Expect got, const std::string& what);
    [[nodiscard]] std::optional<size_t> turn_count_at(RowIndex row);
    [[nodiscard]] std::string describe(RowIndex row) const;

    [[nodiscard]] RowTimes& times(RowIndex row) { return report_.times[static_cast<size_t>(index(row))]; }

    DriverConfig config_;
    const traces::Trace& trace_;
    traces::RequestMaker& requests_;
    TokenStore& store_;
    Dispatcher* dispatcher_ = nullptr;  // null: one engine has all rows
    DriverReport report_;
    int64_t now_ns_ = 0;
    int64_t num_over_ = 0;
    bool recovers_ = false;
    int64_t num_over_at_failure_ = -1;  // at the last failure
    std::deque<Place> places_;          // by EngineNumber
    std::vector<EngineNumber> place_of_row_;
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::vector<std::vector<RowIndex>> waiting_;        // per row: rows that wait for its end
    std::vector<RowIndex> while_running_;               // rows to send while another runs, in order
    std::vector<std::optional<RequestId>> request_of_;  // per row, while it runs
    std::multimap<RowIndex, RowIndex> held_;            // due rows, by the row that must be sent first
    std::unordered_map<RowIndex, ChatRequest> made_;    // for the dispatcher, before they are sent
    std::vector<uint8_t> is_routed_;                    // per row
    std::vector<uint8_t> is_sent_;                      // per row
    std::vector<uint8_t> is_moved_;                     // per row: another engine has computed its prompt
    std::vector<uint8_t> is_over_;                      // per row
    std::vector<uint8_t> lost_a_row_;                   // per conversation: one of its rows was rejected
};

}  // namespace verbatim
