#include "reference/records/run_again.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "reference/records/rerun.h"
#include "reference/records/run_recorder.h"
#include "reference/records/step_digests.h"

namespace verbatim::records {
namespace {

using reference::NumericExecutor;
using reference::Observation;

constexpr int32_t kMaxWindow = 128;
constexpr int32_t kVerifyWindow = 8;  // rows, where the run had no such window
constexpr int32_t kVerifyShare = 4;   // of a step's tokens one in so many may verify

// An executor, looked at; stops when there is nothing more to see.
class WatchedExecutor final : public WrappingExecutor {
public:
    WatchedExecutor(NumericExecutor& inner, StepWatch& watch)
        : WrappingExecutor(inner), numeric_(inner), watch_(watch) {}
    ~WatchedExecutor() override { observe(false); }

    Status execute(const StepPlan& plan, StepResult& result) override {
        observe(watch_.wants_operations(plan));
        watch_.before(plan, numeric_);
        RETURN_IF_ERROR(inner().execute(plan, result));
        watch_.after(plan, numeric_);
        return watch_.is_done() ? error("nothing more is to be seen") : Status{};
    }
    std::optional<Digest> head_digest(const HeadImage& image) override {
        watch_.head(image, numeric_);
        return inner().head_digest(image);
    }

private:
    void observe(bool wanted) {
        numeric_.set_observer(wanted ? [this](const Observation& o) { watch_.observe(o); } : reference::StepObserver(),
                              NumericExecutor::ObservedFor::kRecord);
    }

    NumericExecutor& numeric_;
    StepWatch& watch_;
};

// The steps that failed in the record.
std::set<int64_t> failed_steps(const Record& record) {
    std::set<int64_t> steps;
    for (const Call& call : calls_of(record)) {
        if (call.kind == CallKind::kFailStep) steps.insert(call.step - 1);
    }
    return steps;
}

// Another executor, which fails in the steps that failed in the record: it computes nothing in them.
class FailingAgain final : public WrappingExecutor {
public:
    // Borrows `inner`, and `numeric` in it.
    FailingAgain(Executor& inner, NumericExecutor& numeric, std::set<int64_t> steps)
        : WrappingExecutor(inner), numeric_(numeric), steps_(std::move(steps)) {}

    Status execute(const StepPlan& plan, StepResult& result) override {
        if (!steps_.contains(plan.step)) return inner().execute(plan, result);
        numeric_.forget_slots();
        return error("step {} failed in the record", plan.step);
    }

private:
    NumericExecutor& numeric_;
    std::set<int64_t> steps_;
};

// The executor of a run, with what looks at it; a fresh one after each that failed.
class RunExecutor {
public:
    // Borrows all of them. `failed`: the steps in which it fails.
    RunExecutor(const RunAgainOptions& options, const EngineConfig& config, bool has_ordinary, RunRecorder& recorder,
                std::set<int64_t> failed)
        : options_(options),
          config_(config),
          has_ordinary_(has_ordinary),
          recorder_(recorder),
          failed_(std::move(failed)) {}

    // The one before is gone first: both may not fit into memory.
    Result<Executor*> fresh() {
        recorder_.take_digests_of(nullptr);
        failing_.reset();
        watched_.reset();
        digesting_.reset();
        numeric_.reset();
        ASSIGN_OR_RETURN(numeric_, options_.make_executor(config_, has_ordinary_));
        Executor* used = numeric_.get();
        if (options_.watch != nullptr) {
            used = &watched_.emplace(*numeric_, *options_.watch);
        } else if (options_.digests != DigestLevel::kNone) {
            used = &digesting_.emplace(*numeric_, *numeric_, options_.digests);
            recorder_.take_digests_of(&*digesting_);
        }
        if (!failed_.empty()) used = &failing_.emplace(*used, *numeric_, failed_);
        return used;
    }

private:
    const RunAgainOptions& options_;
    const EngineConfig& config_;
    const bool has_ordinary_;
    RunRecorder& recorder_;
    const std::set<int64_t> failed_;
    std::shared_ptr<NumericExecutor> numeric_;
    std::optional<WatchedExecutor> watched_;
    std::optional<DigestingExecutor> digesting_;
    std::optional<FailingAgain> failing_;
};

// The head of a kImportHead call, on an executor that computes nothing else.
Result<MadeHead> make_head(const Call& call, const RunAgainOptions& options, const EngineConfig& config,
                           TokenStore& store) {
    ASSIGN_OR_RETURN(const std::shared_ptr<NumericExecutor> executor, options.make_executor(config, false));
    ASSIGN_OR_RETURN(HeadCopy made, compute_head(config, *executor, store, call.request.messages.front().tokens));
    return MadeHead{made.digest, std::move(made.bytes)};
}

// Guesses what the run answered, so that windows are accepted until a request is answered something else.
class AnswerDrafter final : public Drafter {
public:
    // Requests are known by their prompts and seeds.
    explicit AnswerDrafter(const Record& record) {
        std::map<RequestId, Digest> prompts;
        std::map<RequestId, uint64_t> seeds;
        for (const Entry& entry : record.entries) {
            if (const auto* call = std::get_if<Call>(&entry)) {
                if (call->kind == CallKind::kSubmit) seeds[call->id] = call->request.seed.value_or(0);
            } else if (const auto* step = std::get_if<StepRecord>(&entry)) {
                for (const StartRecord& start : step->starts) prompts[start.request] = start.prompt;
            } else {
                for (const ReportedToken& token : std::get<Reported>(entry).tokens) {
                    if (token.token < 0 || token.token >= record.store->vocab_size()) continue;  // it may be anything
                    answers_[{prompts[token.request], seeds[token.request]}].push_back(token.token);
                }
            }
        }
    }
    void draft(std::span<DraftJob> jobs) override {
        for (DraftJob& job : jobs) {
            Digest& prompt = prompts_[job.request];
            if (prompt == Digest{}) {
                Digester digester;
                job.prompt->add_to(digester);
                prompt = digester.digest();
            }
            const auto found = answers_.find({prompt, job.sampling.seed});
            const std::span<const TokenId> answer =
                found == answers_.end() ? std::span<const TokenId>() : std::span(found->second);
            const auto rest = answer.subspan(std::min(answer.size(), job.output.size()));
            const auto drafts = rest.first(std::min(rest.size(), static_cast<size_t>(job.max_drafts)));
            job.drafts.assign(drafts.begin(), drafts.end());
        }
    }
    void ended(RequestId request) override { prompts_.erase(request); }

private:
    std::map<std::pair<Digest, uint64_t>, std::vector<TokenId>> answers_;
    std::map<RequestId, Digest> prompts_;
};

// What a window of that size needs is there in the record's own configuration or under the schedule.
Status check(const EngineConfig& config) {
    if (config.scheduler.max_window > kMaxWindow)
        return error("windows of {} are too large", config.scheduler.max_window);
    if (config.scheduler.max_state_lag_tokens > kMaxWindow)
        return error("rows {} tokens behind are too many", config.scheduler.max_state_lag_tokens);
    return validate(config);
}

// Of as many bytes in blocks of `size` tokens, and no smaller than what accepts every request that `pools` accept: a
// request's tokens and one more block, for the copy of an attached tail.
PoolSizes with_blocks_of(const PoolSizes& pools, int32_t size) {
    const int64_t slots = int64_t{pools.num_blocks} * pools.block_size;
    const int64_t longest = slots - pools.block_size;
    const int64_t num_blocks = std::max(slots / size, (longest + size - 1) / size + 1);
    PoolSizes other = pools;
    other.block_size = size;
    other.num_blocks = static_cast<int32_t>(std::min<int64_t>(num_blocks, std::numeric_limits<int32_t>::max()));
    return other;
}

// The same of a cache under one budget: a block weighs as much more as it is larger. The budget grows where the largest
// request that it accepts would no longer fit.
void set_block_size(CacheConfig& cache, int32_t size) {
    const CacheConfig before = cache;
    const int32_t size_before = before.pools.block_size;
    cache.pools = with_blocks_of(before.pools, size);
    cache.kv_block_bytes = (before.kv_block_bytes * size + size_before - 1) / size_before;
    if (before.budget_bytes == 0 || before.kv_block_bytes == 0) return;
    const int64_t row = before.has_state ? before.state_row_bytes : 0;
    const int64_t affordable =
        std::min<int64_t>(before.pools.num_blocks, (before.budget_bytes - row) / before.kv_block_bytes);
    const int64_t longest = (affordable - 1) * size_before;
    const int64_t needed = (longest + size - 1) / size + 1;
    cache.budget_bytes = std::max(before.budget_bytes, row + needed * cache.kv_block_bytes);
}

// Its entries.
Record with_calls_uncached(const Record& record) {
    Record changed;
    changed.entries = record.entries;
    for (Entry& entry : changed.entries) {
        if (Call* call = std::get_if<Call>(&entry)) call->request.use_cache = false;
    }
    return changed;
}

}  // namespace

// --- schedules

bool Schedule::as_recorded() const { return *this == Schedule{}; }

Result<Schedule> parse_schedule(std::span<const std::string> words) {
    Schedule schedule;
    const std::map<std::string, std::optional<int32_t>*> numbers = {{"batch", &schedule.batch},
                                                                    {"chunks", &schedule.chunks},
                                                                    {"blocks", &schedule.blocks},
                                                                    {"windows", &schedule.windows}};
    std::set<std::string> given;
    for (const std::string& word : words) {
        const size_t sign = word.find('=');
        const std::string key = word.substr(0, sign);
        const std::string value = sign == std::string::npos ? "" : word.substr(sign + 1);
        const bool is_of_requests = key == "policy" && (value == "exact" || value == "verify");
        if (!given.insert(is_of_requests ? "policy of requests" : key).second)
            return error("{}: {} is given twice, and a schedule has it once: verify the record again for the other one",
                         word, key);
        if (word == "cache=off") {
            schedule.no_cache = true;
        } else if (key == "admission") {
            schedule.admission = admission_order_by_name(value);
            if (!schedule.admission) return error("{}: wanted admission=arrival or admission=fewest-tokens", word);
        } else if (is_of_requests) {
            schedule.requests = value;
        } else if (key == "policy" && !value.empty()) {
            schedule.policy = value;
        } else if (const auto found = numbers.find(key); found != numbers.end()) {
            int32_t number = 0;
            const char* end = value.data() + value.size();
            const auto parsed = std::from_chars(value.data(), end, number);
            if (parsed.ec != std::errc{} || parsed.ptr != end || number < 1)
                return error("{}: wanted {}=N, a number from 1", word, key);
            *found->second = number;
        } else {
            return error("{}: wanted batch=N, chunks=N, cache=off, blocks=N, windows=N, admission=ORDER or policy=NAME",
                         word);
        }
    }
    return schedule;
}

std::string to_string(const Schedule& schedule) {
    std::vector<std::string> words;
    const auto add = [&](const char* key, const std::optional<int32_t>& value) {
        if (value) words.push_back(fmt::format("{}={}", key, *value));
    };
    add("batch", schedule.batch);
    add("chunks", schedule.chunks);
    if (schedule.no_cache) words.emplace_back("cache=off");
    add("blocks", schedule.blocks);
    add("windows", schedule.windows);
    if (schedule.admission) words.push_back(fmt::format("admission={}", name(*schedule.admission)));
    if (!schedule.policy.empty()) words.push_back("policy=" + schedule.policy);
    if (!schedule.requests.empty()) words.push_back("policy=" + schedule.requests);
    return words.empty() ? "as recorded" : fmt::format("{}", fmt::join(words, " "));
}

std::string requests_under(const RunDescription& recorded, const Schedule& schedule) {
    return schedule.requests.empty() ? recorded.policy : schedule.requests;
}

Result<EngineConfig> config_under(const RunDescription& recorded, const Schedule& schedule) {
    EngineConfig config = recorded.engine;
    if (schedule.batch) config.scheduler.max_num_sequences = *schedule.batch;
    if (schedule.chunks) config.scheduler.step_tokens = *schedule.chunks;
    if (schedule.admission) config.scheduler.admission = *schedule.admission;
    if (schedule.blocks && config.cache.has_kv) set_block_size(config.cache, *schedule.blocks);
    if (!schedule.as_recorded()) {
        const bool verifies = requests_under(recorded, schedule) == "verify";
        const bool verified = recorded.engine.scheduler.verify_tokens > 0;
        const int32_t window = !verifies ? 1 : verified ? recorded.engine.scheduler.max_window : kVerifyWindow;
        config.scheduler.max_window = schedule.windows.value_or(window);
        config.scheduler.paced_windows = false;
        config.scheduler.verify_tokens = verifies ? std::max(1, config.scheduler.step_tokens / kVerifyShare) : 0;
        config.scheduler.max_state_lag_tokens = 0;
    }
    if (const Status valid = check(config); !valid) return error("{}: {}", to_string(schedule), valid.error().message);
    return config;
}

// --- running

Result<Record> run_again(const Record& record, const RunAgainOptions& options) {
    ASSIGN_OR_RETURN(const EngineConfig config, config_under(record.run, options.schedule));
    const std::string requests = requests_under(record.run, options.schedule);
    const std::string policy_name = options.schedule.policy.empty() ? record.run.eviction : options.schedule.policy;
    std::unique_ptr<EvictionPolicy> policy;
    if (options.make_policy) {
        ASSIGN_OR_RETURN(policy, options.make_policy(policy_name));
    } else {
        policy = std::make_unique<LruEviction>();
    }
    Record made;
    made.run = record.run;
    made.store = record.store;
    made.run.engine = config;
    made.run.digests = options.digests;
    made.run.executor = options.executor;
    made.run.isa = options.isa;
    made.run.eviction = policy_name;
    made.run.policy = requests;
    RecordKeeper keeper(made);
    RunRecorder recorder(options.digests, keeper);
    const bool as_recorded = options.schedule.as_recorded() && !options.by_causes;
    RunExecutor executor(options, config, !requests.empty(), recorder,
                         as_recorded ? failed_steps(record) : std::set<int64_t>{});
    ASSIGN_OR_RETURN(Executor* const first, executor.fresh());
    made.run.numerics = first->numerics_id();
    made.run.ordinary_numerics = first->ordinary_numerics_id();
    Engine engine(config, *first, *policy, *record.store, recorder);

    const bool uncached = options.schedule.no_cache;
    const Record changed = uncached ? with_calls_uncached(record) : Record{};
    const Record& source = uncached ? changed : record;
    const RerunLimits limits{
        .max_steps = options.max_steps,
        .after_step = options.after_step,
        .fresh_executor = [&] { return executor.fresh(); },
        .make_head = [&](const Call& call) { return make_head(call, options, config, *record.store); }};
    Status ran;
    RecordedDrafter recorded_drafts(record);
    AnswerDrafter answers(record);
    if (as_recorded) {
        recorded_drafts.listen_to(engine);
        if (recorded_drafts.has_drafts())
            engine.draft_with(&recorded_drafts, config.scheduler.max_window, /*paced_windows=*/false);
        ran = rerun_as_recorded(source, engine, *first, limits);
    } else {
        if (options.schedule.windows) engine.draft_with(&answers);
        ran = rerun_by_causes(source, engine, *first, limits);
    }
    recorder.finish(ran ? "" : ran.error().message);
    if (options.at_end) options.at_end(engine);
    return made;
}

}  // namespace verbatim::records
