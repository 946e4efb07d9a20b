#include "reference/records/run_again.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
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
class WatchedExecutor final : public Executor {
public:
    WatchedExecutor(NumericExecutor& inner, StepWatch& watch) : inner_(inner), watch_(watch) {}
    ~WatchedExecutor() override { observe(false); }

    Status execute(const StepPlan& plan, StepResult& result) override {
        observe(watch_.wants_operations(plan));
        watch_.before(plan, inner_);
        RETURN_IF_ERROR(inner_.execute(plan, result));
        watch_.after(plan, inner_);
        return watch_.is_done() ? error("nothing more is to be seen") : Status{};
    }
    std::optional<Digest> head_digest(const HeadImage& image) override {
        watch_.head(image, inner_);
        return inner_.head_digest(image);
    }
    [[nodiscard]] std::string numerics_id() const override { return inner_.numerics_id(); }
    [[nodiscard]] std::string ordinary_numerics_id() const override { return inner_.ordinary_numerics_id(); }

private:
    void observe(bool wanted) {
        inner_.set_observer(wanted ? [this](const Observation& o) { watch_.observe(o); } : reference::StepObserver(),
                            NumericExecutor::ObservedFor::kRecord);
    }

    NumericExecutor& inner_;
    StepWatch& watch_;
};

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
                for (const ToldToken& token : std::get<Told>(entry).tokens) {
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
            if (found == answers_.end() || found->second.size() <= job.output.size()) continue;
            const auto rest = std::span(found->second).subspan(job.output.size());
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
    if (config.scheduler.max_row_lag > kMaxWindow)
        return error("rows {} tokens behind are too many", config.scheduler.max_row_lag);
    return validate(config);
}

Record with_calls_uncached(const Record& record) {
    Record changed;
    changed.run = record.run;
    changed.end = record.end;
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
    for (const std::string& word : words) {
        const size_t sign = word.find('=');
        const std::string key = word.substr(0, sign);
        const std::string value = sign == std::string::npos ? "" : word.substr(sign + 1);
        if (word == "cache=off") {
            schedule.no_cache = true;
        } else if (key == "admission") {
            schedule.admission = admission_order_by_name(value);
            if (!schedule.admission) return error("{}: wanted admission=arrival or admission=fewest-tokens", word);
        } else if (key == "policy" && (value == "exact" || value == "verify")) {
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
    if (schedule.blocks && config.cache.has_kv) {
        const int64_t slots = int64_t{config.cache.pools.num_blocks} * config.cache.pools.block_size;
        config.cache.pools.block_size = *schedule.blocks;
        config.cache.pools.num_blocks =
            static_cast<int32_t>(std::min<int64_t>(slots / *schedule.blocks, std::numeric_limits<int32_t>::max()));
    }
    if (!schedule.as_recorded()) {
        const bool verifies = requests_under(recorded, schedule) == "verify";
        const bool verified = recorded.engine.scheduler.verify_tokens > 0;
        const int32_t window = !verifies ? 1 : verified ? recorded.engine.scheduler.max_window : kVerifyWindow;
        config.scheduler.max_window = schedule.windows.value_or(window);
        config.scheduler.paced_windows = false;
        config.scheduler.verify_tokens = verifies ? std::max(1, config.scheduler.step_tokens / kVerifyShare) : 0;
        config.scheduler.max_row_lag = 0;
    }
    if (const Status valid = check(config); !valid) return error("{}: {}", to_string(schedule), valid.error().message);
    return config;
}

// --- running

Result<Record> run_again(const Record& record, const RunAgainOptions& options) {
    ASSIGN_OR_RETURN(const EngineConfig config, config_under(record.run, options.schedule));
    const std::string requests = requests_under(record.run, options.schedule);
    ASSIGN_OR_RETURN(const auto executor, options.make_executor(config, !requests.empty()));
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
    made.run.numerics = executor->numerics_id();
    made.run.ordinary_numerics = executor->ordinary_numerics_id();
    RecordKeeper keeper(made);
    RunRecorder recorder(options.digests, keeper);
    std::optional<WatchedExecutor> watched;
    if (options.watch != nullptr) watched.emplace(*executor, *options.watch);
    std::optional<DigestingExecutor> digesting;
    if (!watched && options.digests != DigestLevel::kNone) digesting.emplace(*executor, *executor, options.digests);
    recorder.take_digests_of(digesting ? &*digesting : nullptr);
    Executor& used = watched     ? static_cast<Executor&>(*watched)
                     : digesting ? static_cast<Executor&>(*digesting)
                                 : *executor;
    Engine engine(config, used, *policy, *record.store, recorder);

    const bool uncached = options.schedule.no_cache;
    const Record changed = uncached ? with_calls_uncached(record) : Record{};
    const Record& source = uncached ? changed : record;
    const RerunLimits limits{.max_steps = options.max_steps, .after_step = options.after_step};
    Status ran;
    const bool drafts_itself = config.scheduler.verify_tokens > 0;
    RecordedDrafter recorded_drafts(record);
    AnswerDrafter answers(record);
    if (options.schedule.as_recorded() && !options.by_causes) {
        recorded_drafts.listen_to(engine);
        if (recorded_drafts.has_drafts() && !drafts_itself) engine.draft_with(&recorded_drafts);
        ran = rerun_as_recorded(source, engine, used, limits);
    } else {
        if (options.schedule.windows && !drafts_itself) engine.draft_with(&answers);
        ran = rerun_by_causes(source, engine, used, limits);
    }
    recorder.finish(ran ? "" : ran.error().message);
    if (options.at_end) options.at_end(engine);
    return made;
}

}  // namespace verbatim::records
