// simulator/trace_driver.h: the clients of a trace: sends its rows to an engine under a virtual clock, reads the
// answers, leaves early where the trace says so, and checks that every row was told what the trace expects.
//
// The clock is virtual, in nanoseconds: it moves by what a step took and jumps when the engine is idle. So a run
// depends on the trace, the configuration and the steps' times alone. What happens at one time happens in this order:
// the step ends and is told, in plan order; clients leave; rows that are due are sent; the next step is planned.
//   V1  a row is sent when it is due and the row it waits for is over: a client does not send its next turn before it
//       has the answer (Busy says what else it may do); and not before the row that it takes from or goes back to was
//       sent
//   V2  rows that are due together are sent in order of (time, row); what falls due during a step is sent at its end,
//       and its times count from when it was due
//   V3  the run ends when every row is over; a row that can never start is an error
//   V4  once a row was rejected for its length, nothing is expected of what follows in its conversation
//   V5  a row whose turn ended because the executor failed is sent again, with the seed that it was drawn with
//   V6  per row: due <= first token <= end, and no time is before that of the row it waits for
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine/engine.h"
#include "traces/requests.h"
#include "traces/trace.h"

namespace verbatim {

// What a client does whose next turn comes at its time in the trace while the turn before it still runs.
enum class Busy : uint8_t {
    kWait,      // sends it when it has the answer
    kRefuse,    // sends it all the same, and is refused
    kUncached,  // sends it all the same, as a conversation of its own that reuses nothing
};

// What a simulation makes of the clients' requests.
class DriverHooks {
public:
    virtual ~DriverHooks() = default;
    virtual void prepare(traces::RowIndex row, ChatRequest& request) = 0;  // before it is submitted
    virtual void accepted(traces::RowIndex row, RequestId request) = 0;
    virtual void stepped(int64_t now_ns) = 0;  // a step has ended, or several that an engine took as one
    // No client does anything in the next `num_steps` steps, nor before `until_ns` from now: that many, as far as they
    // begin before then, may be taken as one.
    virtual void free_until(int64_t /*num_steps*/, int64_t /*until_ns*/) {}
};

struct DriverConfig {
    int64_t step_ns = 100'000'000;   // virtual time of a step; 0: what its result says that it took
    bool verify_every_step = false;  // Engine::verify after each
    DriverHooks* hooks = nullptr;    // borrowed for the driver's life
    Busy busy = Busy::kWait;
};

enum class RowOutcome : uint8_t { kNotOver, kServed, kAborted, kRecorded, kRefused, kRejected, kBusy, kFailed, kDone };

// What became of a row, and when. Times in ns since the trace began; -1: never.
struct RowTimes {
    int64_t wanted_ns = 0;  // the client would have sent it
    int64_t due_ns = -1;    // it could: it had the answer that it waits for
    int64_t first_token_ns = -1;
    int64_t end_ns = -1;
    int64_t prompt_tokens = 0;
    int64_t reused_tokens = 0;
    int64_t output_tokens = 0;
    RowOutcome outcome = RowOutcome::kNotOver;
    friend bool operator==(const RowTimes&, const RowTimes&) = default;
};

struct DriverReport {
    int64_t rows = 0;      // of the trace
    int64_t turns = 0;     // that the engine accepted
    int64_t served = 0;    // answered and committed
    int64_t aborted = 0;   // left by the client
    int64_t refused = 0;   // as expected
    int64_t rejected = 0;  // longer than the model's context or the empty cache, or refused for want of such a row
    int64_t recorded = 0;  // answered from the ledger
    int64_t resent = 0;    // sent again after the executor had failed
    int64_t busy = 0;      // sent while the turn before ran: refused, or served as a conversation of their own
    int64_t client_wait_ns = 0;           // rows that were due before the row they wait for was over, summed
    int64_t virtual_ns = 0;               // the whole run
    int64_t peak_running = 0;             // sequences in one step
    std::vector<RowTimes> times;          // per row
    std::vector<std::string> unexpected;  // rows that were told something else than the trace expects
};

class TraceDriver {
public:
    // A step has failed: gives the engine a fresh executor (Engine::replace_executor), or passes the error on.
    using Recover = std::function<Status(const Error& error)>;

    // Borrows all of them for its life.
    TraceDriver(const DriverConfig& config, const traces::Trace& trace, traces::RequestMaker& requests, Engine& engine,
                TokenStore& store);

    // Runs the trace to its end. `after_step(rows over)` is called after every step. An error is the executor's when
    // nobody recovers from it or the fresh one fails before any row is over, or a trace that cannot run.
    Result<DriverReport> run(const std::function<void(int64_t)>& after_step = {}, const Recover& recover = {});

private:
    using RowIndex = traces::RowIndex;
    struct Due {
        int64_t time_ns;
        RowIndex row;
        friend auto operator<=>(const Due&, const Due&) = default;
    };
    struct Running {
        RowIndex row{};
        bool apart = false;  // as a conversation of its own (Busy::kUncached)
        std::vector<TokenId> text;
    };

    [[nodiscard]] Status check_times() const;
    void plan_rows();
    void send_due();
    void send_while_running();
    void send(RowIndex row);
    void submit(RowIndex row, ChatRequest request);
    [[nodiscard]] OrRefusal<Accepted> submit_apart(RowIndex row, ChatRequest request);
    [[nodiscard]] bool waits(const traces::Row& row) const;
    Status recover_from(const Error& error, const Recover& recover);
    void apply_name_event(RowIndex row);
    void tell_how_long_clients_are_still() const;
    void leave();
    void read_events();
    void received(RequestId request, std::span<const TokenId> tokens);
    void ended(const EngineEvent& event);
    void over(RowIndex row, RowOutcome outcome);
    RowOutcome refused(RowIndex row, const Refusal& refusal);
    void reject(RowIndex row);
    [[nodiscard]] bool lost_a_row(RowIndex row) const;  // the conversation of `row`
    void expect(RowIndex row, traces::Expect got, const std::string& what);
    [[nodiscard]] std::optional<size_t> turn_count_at(RowIndex row) const;
    [[nodiscard]] std::string describe(RowIndex row) const;

    [[nodiscard]] RowTimes& times(RowIndex row) { return report_.times[static_cast<size_t>(index(row))]; }

    DriverConfig config_;
    const traces::Trace& trace_;
    traces::RequestMaker& requests_;
    Engine& engine_;
    TokenStore& store_;
    DriverReport report_;
    int64_t now_ns_ = 0;
    int64_t num_over_ = 0;
    bool recovers_ = false;
    int64_t num_over_at_failure_ = -1;  // the last one
    std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
    std::vector<std::vector<RowIndex>> waiting_;        // per row: rows that wait for its end
    std::vector<RowIndex> while_running_;               // rows to send while another runs, in order
    std::vector<std::optional<RequestId>> request_of_;  // per row, while it runs
    std::multimap<RowIndex, RowIndex> held_;            // rows that are due, by the row that must be sent before them
    std::vector<uint8_t> is_sent_;                      // per row
    std::vector<uint8_t> is_over_;                      // per row
    std::vector<uint8_t> lost_a_row_;                   // per conversation: a row of it was rejected
    std::unordered_map<RequestId, Running> running_;
    std::vector<RequestId> leaving_;                  // running rows whose client will leave early
    std::unordered_map<RequestId, RowIndex> failed_;  // to be sent again
};

}  // namespace verbatim
