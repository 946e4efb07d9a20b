#include "simulator/cluster.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/digest.h"
#include "simulator/simulated_engine.h"
#include "traces/requests.h"

namespace verbatim {
namespace {

using traces::kNoRow;
using traces::Row;
using traces::RowIndex;
using traces::Trace;

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

size_t at(RowIndex row) { return static_cast<size_t>(index(row)); }

// Whether the row needs what an earlier row of its conversation left at a replica (C3).
bool needs_its_replica(const Row& row) {
    const bool can_move = row.event == traces::Event::kHistory || row.event == traces::Event::kRegenerate ||
                          row.event == traces::Event::kFork;
    return !can_move || row.has_parent || row.turn != 0 || row.start == traces::Start::kWhileRunning ||
           row.expect != traces::Expect::kServed;
}

// A trace's rows by their groups.
class Groups {
public:
    explicit Groups(const Trace& trace) : first_(first_rows_of_groups(trace)), number_(trace.rows.size(), -1) {
        stays_.resize(trace.rows.size());
        int64_t number = 0;
        for (size_t i = 0; i < trace.rows.size(); ++i) {
            if (first_[i] == i) number_[i] = number++;
            if (needs_its_replica(trace.rows[i])) stays_[first_[i]] = 1;
        }
    }
    [[nodiscard]] size_t first(RowIndex row) const { return first_[at(row)]; }
    [[nodiscard]] int64_t number(RowIndex row) const { return number_[first(row)]; }
    [[nodiscard]] bool stays(RowIndex row) const { return stays_[first(row)] != 0; }

private:
    std::vector<size_t> first_;
    std::vector<int64_t> number_;  // of first rows
    std::vector<uint8_t> stays_;   // of first rows
};

Status check_rows(const ClusterConfig& cluster, const Trace& trace, const Groups& groups) {
    if (cluster.route == Route::kTrace) RETURN_IF_ERROR(check_named_replicas(trace, cluster.num_replicas));
    const bool moves = cluster.apart.has_value() || cluster.autoscale.has_value();
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        if (moves && groups.stays(RowIndex(i))) {
            return error(
                "{}: row {} of the trace, or one that is related to it, needs what its conversation left at its "
                "replica: wanted requests with their whole history",
                cluster.apart ? "--prefill-replicas" : "--autoscale", i);
        }
    }
    return {};
}

class Cluster final : public Dispatcher {
public:
    Cluster(const ClusterConfig& config, const SharedByEngines& shared, const Groups& groups,
            const std::function<std::unique_ptr<EvictionPolicy>()>& policy)
        : config_(config),
          shared_(shared),
          groups_(groups),
          policy_(policy),
          driver_({.step_ns = 0, .busy = shared.config.busy}, shared.trace, shared.requests, shared.store, *this),
          block_size_(shared.settings.cache.pools.block_size),
          load_of_row_(shared.trace.rows.size()),
          group_at_(shared.trace.rows.size(), kNowhere),
          answered_at_(shared.trace.rows.size(), -1) {
        if (config.autoscale) scaler_.emplace(*config.autoscale);
    }

    Result<ReplicatedResult> run(const std::function<void(int64_t)>& progress) {
        if (config_.apart) {
            for (int32_t i = 0; i < config_.apart->num_prefill; ++i) add(EngineRole::kPrompts, 0, 0);
            for (int32_t i = 0; i < config_.apart->num_decode; ++i) add(EngineRole::kAnswers, 0, 0);
        } else {
            const int32_t number = config_.autoscale ? config_.autoscale->least : config_.num_replicas;
            for (int32_t i = 0; i < number; ++i) add(EngineRole::kWhole, 0, 0);
        }
        ASSIGN_OR_RETURN(DriverReport report, driver_.run(progress));
        return result_of(std::move(report));
    }

    [[nodiscard]] bool reads_prompts() const override { return verbatim::reads_prompts(config_.route); }

    EngineNumber choose(RowIndex row, const TokenSeq* prompt, int64_t) override {
        const EngineRole role = config_.apart ? EngineRole::kPrompts : EngineRole::kWhole;
        EngineNumber& home = group_at_[groups_.first(row)];
        const bool whole_group = !is_per_request(config_.route) || groups_.stays(row);
        const bool is_there = home != kNowhere && replicas_[home].takes_requests;
        if (!whole_group || !is_there) home = choose_among(role, row, prompt);
        send(row, home, prompt);
        return home;
    }

    void first_token(RowIndex row) override { drop_prefill(load_of_row_[at(row)]); }

    void over(RowIndex row, int64_t now_ns) override {
        RowLoad& load = load_of_row_[at(row)];
        // A row that starts while another one runs was not routed: it is where its group is.
        const EngineNumber number = load.at == kNowhere ? group_at_[groups_.first(row)] : load.at;
        Replica& replica = replicas_.at(number);
        ++replica.summary.rows;
        answered_at_[at(row)] = static_cast<int32_t>(number);
        if (load.at != kNowhere) unload(load);
        if (replica.goes && replica.num_requests == 0) leave(number, now_ns);
    }

    [[nodiscard]] bool computes_prompts(EngineNumber engine) const override {
        return replicas_[engine].summary.role == EngineRole::kPrompts;
    }

    Move move(RowIndex row, EngineNumber from, int64_t now_ns) override {
        const TokenSeq& prompt = shared_.requests.prompt(row);
        unload(load_of_row_[at(row)]);
        ++replicas_[from].summary.rows;
        const EngineNumber to = choose_among(EngineRole::kAnswers, row, &prompt);
        send(row, to, &prompt);
        drop_prefill(load_of_row_[at(row)]);
        const int64_t bytes = bytes_to_send(row, prompt, *replicas_[to].simulated);
        int64_t& free_ns = replicas_[from].sends_until_ns;
        free_ns = std::max(free_ns, now_ns) + config_.apart->latency_ns +
                  (bytes * 1000 + config_.apart->bytes_per_us - 1) / config_.apart->bytes_per_us;
        ++transfers_.heads;
        transfers_.bytes += bytes;
        transfers_.wait_ns += free_ns - now_ns;
        return {to, free_ns};
    }

    [[nodiscard]] int64_t next_event_ns() const override {
        int64_t next_ns = scaler_ ? next_check_ns_ : kNever;
        for (const Replica& replica : replicas_) {
            if (replica.ready_ns > 0 && !replica.takes_requests && !replica.goes)
                next_ns = std::min(next_ns, replica.ready_ns);
        }
        return next_ns;
    }

    void at_event(int64_t now_ns) override {
        for (EngineNumber i = 0; i < replicas_.size(); ++i) {
            Replica& replica = replicas_[i];
            if (!replica.goes && replica.ready_ns <= now_ns) replica.takes_requests = true;
            if (replica.goes && replica.simulated && driver_.is_free(i)) release(i);
        }
        if (!scaler_ || next_check_ns_ > now_ns) return;
        scale(now_ns);
        next_check_ns_ = now_ns + config_.autoscale->interval_ns;
    }

private:
    static constexpr EngineNumber kNowhere = std::numeric_limits<EngineNumber>::max();
    struct Replica {
        std::unique_ptr<EvictionPolicy> policy;
        std::unique_ptr<SimulatedEngine> simulated;  // null: released
        ReplicaSummary summary;
        int64_t ready_ns = 0;
        bool takes_requests = false;
        bool goes = false;
        int64_t busy_ns_before = 0;  // at the last check
        int64_t num_requests = 0;
        int64_t prefill_tokens = 0;
        int64_t num_prefills = 0;  // requests without their first token
        int64_t decode_blocks = 0;
        int64_t sends_until_ns = 0;
        SimulationResult result;
    };
    struct RowLoad {
        EngineNumber at = kNowhere;
        int64_t prefill_tokens = 0;
        int64_t decode_blocks = 0;
        bool has_first_token = false;
    };

    void add(EngineRole role, int64_t now_ns, int64_t ready_ns) {
        Replica& replica = replicas_.emplace_back();
        replica.policy = policy_();
        replica.simulated = std::make_unique<SimulatedEngine>(shared_, *replica.policy, replicas_.size() - 1, role);
        replica.summary.begin_ns = now_ns;
        replica.summary.virtual_ns = -1;
        replica.summary.role = role;
        replica.ready_ns = ready_ns;
        replica.takes_requests = ready_ns <= now_ns;
        const EngineNumber number = driver_.add_engine(replica.simulated->engine(), &replica.simulated->hooks());
        CHECK(number + 1 == replicas_.size(), "engine {} of {} replicas", number, replicas_.size());
    }

    [[nodiscard]] ReplicaLoad load_of(const Replica& replica, RowIndex row, const TokenSeq* prompt) const {
        ReplicaLoad load{.num_requests = replica.num_requests,
                         .prefill_tokens = replica.prefill_tokens,
                         .decode_blocks = replica.decode_blocks};
        if (!reads_prompts()) return load;
        const Scheduler& scheduler = replica.simulated->engine().scheduler();
        int64_t num_blocks = 0;
        for (const Sequence* sequence : scheduler.running()) num_blocks += blocks_of(sequence->num_computed_tokens);
        const int64_t all_blocks = shared_.settings.cache.pools.num_blocks;
        load.num_waiting = std::max<int64_t>(0, replica.num_requests - std::ssize(scheduler.running()));
        load.kv_usage = all_blocks == 0 ? 0 : static_cast<double>(num_blocks) / static_cast<double>(all_blocks);
        if (prompt != nullptr)
            load.matched_tokens = replica.simulated->num_held(shared_.trace.row(row).conversation, *prompt);
        return load;
    }

    EngineNumber choose_among(EngineRole role, RowIndex row, const TokenSeq* prompt) const {
        std::vector<EngineNumber> numbers;
        for (EngineNumber i = 0; i < replicas_.size(); ++i) {
            if (replicas_[i].takes_requests && replicas_[i].summary.role == role) numbers.push_back(i);
        }
        CHECK(!numbers.empty(), "no replica takes row {}", index(row));
        const auto count = static_cast<int32_t>(numbers.size());
        const Trace& trace = shared_.trace;
        const Row& first = trace.rows[groups_.first(row)];
        const RowGroup group{groups_.number(row), trace.names[trace.conversation_of(first).name]};
        switch (config_.route) {
            case Route::kRoundRobin: return numbers[static_cast<size_t>(route_in_turns(group, count))];
            case Route::kConversation: return numbers[static_cast<size_t>(route_by_conversation(group, count))];
            case Route::kTrace: {
                const int32_t replica = groups_.stays(row) ? first.replica : trace.row(row).replica;
                return numbers[static_cast<size_t>(replica % count)];
            }
            default: break;
        }
        std::vector<ReplicaLoad> loads;
        for (const EngineNumber number : numbers) loads.push_back(load_of(replicas_[number], row, prompt));
        return numbers[choose_replica(config_.route, loads, prompt == nullptr ? 0 : prompt->size(), block_size_)];
    }

    [[nodiscard]] int64_t blocks_of(int64_t num_tokens) const { return (num_tokens + block_size_ - 1) / block_size_; }

    void send(RowIndex row, EngineNumber number, const TokenSeq* prompt) {
        RowLoad& load = load_of_row_[at(row)];
        Replica& replica = replicas_[number];
        load = {.at = number};
        if (prompt != nullptr) {
            const int64_t held = replica.simulated->num_held(shared_.trace.row(row).conversation, *prompt);
            load.prefill_tokens = prompt->size() - held;
            load.decode_blocks = blocks_of(prompt->size());
        }
        ++replica.num_requests;
        ++replica.num_prefills;
        replica.prefill_tokens += load.prefill_tokens;
        replica.decode_blocks += load.decode_blocks;
    }
    void drop_prefill(RowLoad& load) {
        if (load.at == kNowhere || load.has_first_token) return;
        load.has_first_token = true;
        --replicas_[load.at].num_prefills;
        replicas_[load.at].prefill_tokens -= std::exchange(load.prefill_tokens, 0);
    }
    void unload(RowLoad& load) {
        drop_prefill(load);
        --replicas_[load.at].num_requests;
        replicas_[load.at].decode_blocks -= load.decode_blocks;
        load = {};
    }

    [[nodiscard]] int64_t bytes_to_send(RowIndex row, const TokenSeq& prompt, const SimulatedEngine& to) const {
        const int64_t length = prompt.size() - 1;
        if (length < 1) return 0;
        const ConversationKey key = shared_.requests.key(shared_.trace.row(row).conversation);
        const std::string& numerics_id = to.engine().scheduler().numerics_ids().front();
        const int64_t resident =
            to.engine().cache().resident_prefix(key.salt, prompt.slice(0, length), numerics_id).length;
        return (blocks_of(length) - resident / block_size_) * config_.block_bytes + config_.row_bytes;
    }

    // --- replicas that come and go

    void scale(int64_t now_ns) {
        int32_t number = 0;
        double sum = 0;
        for (EngineNumber i = 0; i < replicas_.size(); ++i) {
            Replica& replica = replicas_[i];
            if (replica.goes) continue;
            ++number;
            sum += metric_of(i);
            replica.busy_ns_before = driver_.busy_ns(i);
        }
        const int32_t wanted = scaler_->wanted(now_ns, number, sum);
        for (; number < wanted; ++number) add(EngineRole::kWhole, now_ns, now_ns + config_.autoscale->startup_ns);
        for (; number > wanted; --number) go(now_ns);
    }
    [[nodiscard]] double metric_of(EngineNumber number) const {
        const Replica& replica = replicas_[number];
        switch (config_.autoscale->metric) {
            case ScaleMetric::kRequests: return static_cast<double>(replica.num_requests);
            case ScaleMetric::kWaiting: return static_cast<double>(replica.num_prefills);
            case ScaleMetric::kBusy:
                return static_cast<double>(driver_.busy_ns(number) - replica.busy_ns_before) /
                       static_cast<double>(config_.autoscale->interval_ns);
        }
        CHECK(false, "metric {}", static_cast<int>(config_.autoscale->metric));
    }
    // The newest one goes, which has the least in its cache.
    void go(int64_t now_ns) {
        for (EngineNumber i = replicas_.size(); i-- > 0;) {
            Replica& replica = replicas_[i];
            if (replica.goes) continue;
            replica.goes = true;
            replica.takes_requests = false;
            if (replica.num_requests == 0) leave(i, now_ns);
            return;
        }
    }
    // It is not paid for any longer. The engine is released at a later event, when the driver has no step of it.
    void leave(EngineNumber number, int64_t now_ns) { replicas_[number].summary.virtual_ns = now_ns; }
    void release(EngineNumber number) {
        driver_.take_engine(number);
        take(replicas_[number], driver_.row_times());
    }
    void take(Replica& replica, std::vector<RowTimes>& times) {
        replica.result = replica.simulated->take_result(times);
        replica.summary.steps = replica.result.stats.steps;
        replica.summary.digest = replica.result.decisions;
        transfers_.without_room += replica.simulated->num_without_room();
        if (replica.summary.role == EngineRole::kAnswers) {  // prompts count where they were computed
            EngineStats& stats = replica.result.stats;
            stats.reused_tokens = stats.reusable_tokens = stats.computed_prompt_tokens = 0;
            stats.not_reused.fill(0);
        }
        replica.simulated.reset();
    }

    ReplicatedResult result_of(DriverReport report) {
        ReplicatedResult result;
        Digester decisions;
        for (Replica& replica : replicas_) {
            if (replica.simulated) take(replica, report.times);
            if (replica.summary.virtual_ns < 0) replica.summary.virtual_ns = report.virtual_ns;
            decisions.add(replica.result.decisions);
            add_result(result.whole, std::move(replica.result), {});
        }
        for (size_t i = 0; i < answered_at_.size(); ++i) {
            const bool served = report.times[i].outcome == RowOutcome::kServed;
            if (served && answered_at_[i] >= 0) ++replicas_[static_cast<size_t>(answered_at_[i])].summary.served;
        }
        for (Replica& replica : replicas_) result.replicas.push_back(replica.summary);
        result.replica_of_row = answered_at_;
        result.transfers = transfers_;
        result.whole.driver = std::move(report);
        result.whole.decisions = decisions.digest();
        return result;
    }

    const ClusterConfig& config_;
    SharedByEngines shared_;
    const Groups& groups_;
    const std::function<std::unique_ptr<EvictionPolicy>()>& policy_;
    TraceDriver driver_;
    int32_t block_size_;
    std::vector<Replica> replicas_;  // by EngineNumber
    std::vector<RowLoad> load_of_row_;
    std::vector<EngineNumber> group_at_;  // by the group's first row
    std::vector<int32_t> answered_at_;
    std::optional<Autoscaler> scaler_;
    int64_t next_check_ns_ = 0;
    TransferCounts transfers_;
};

}  // namespace

Status check_named_replicas(const Trace& trace, int32_t num_replicas) {
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const int32_t replica = trace.rows[i].replica;
        if (replica >= 0 && replica < num_replicas) continue;
        return error("--route trace: row {} of the trace has replica {}, wanted 0 ... {}", i,
                     replica < 0 ? "none" : std::to_string(replica), num_replicas - 1);
    }
    return {};
}

Result<ReplicatedResult> simulate_cluster(const ClusterConfig& cluster, const SimulationConfig& config,
                                          const Trace& trace, CostModel& cost, int32_t vocab_size,
                                          const std::function<std::unique_ptr<EvictionPolicy>()>& policy,
                                          const std::function<void(int64_t)>& progress) {
    CHECK(config.recorded == nullptr && !config.record_steps, "one replica's run alone is recorded or told");
    const EngineConfig settings = engine_settings(config, trace);
    RETURN_IF_ERROR(validate(settings));
    const Groups groups(trace);
    RETURN_IF_ERROR(check_rows(cluster, trace, groups));
    TokenStore store(vocab_size);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    Cluster replicas(cluster, {config, settings, trace, requests, cost, store}, groups, policy);
    ASSIGN_OR_RETURN(ReplicatedResult result, replicas.run(progress));
    result.whole.requests = traces::num_requests(trace);
    result.whole.digest = digest_of(result.whole);
    return result;
}

}  // namespace verbatim
