#include "simulator/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <future>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "engine/base/check.h"
#include "simulator/metrics.h"
#include "simulator/plan_search.h"
#include "traces/transform.h"

namespace verbatim {
namespace {

constexpr int64_t kApartNs = int64_t{3600} * traces::kNsPerSecond;  // longer than any request takes

SimulateConfig config_of(const PlanConfig& config, const PlanCandidate& candidate, int32_t num_replicas) {
    SimulateConfig simulate = config.simulate;
    simulate.step_tokens = candidate.step_tokens;
    simulate.max_num_sequences = candidate.max_num_sequences;
    simulate.weights = candidate.weights;
    simulate.kv_value_bytes = candidate.kv_value_bytes;
    simulate.parallelism = candidate.parallelism;
    simulate.num_replicas = num_replicas;
    simulate.bounds_rooflines = false;
    return simulate;
}

Trial trial_of(const PlanConfig& config, const SimulateRun& run, double rate_scale) {
    Trial trial{.num_replicas = run.config.num_replicas,
                .num_gpus = run.config.num_replicas * run.config.parallelism.num_gpus(),
                .rate_scale = rate_scale,
                .keeps = true};
    const std::vector<RowTimes>& rows = run.result.driver.times;
    for (const Objective& objective : config.objectives) {
        trial.measured.push_back(measure(objective, rows));
        trial.keeps &= trial.measured.back().keeps(objective);
    }
    const Metrics metrics = metrics_of(rows, run.memory.pools.block_size, slo_of(config.objectives));
    trial.requests = run.result.requests;
    trial.answered = metrics.requests;
    trial.hit_rate = metrics.hit_rate.token;
    trial.ttft = metrics.ttft;
    trial.tpot = metrics.tpot;
    trial.e2e = metrics.e2e;
    trial.client_wait = metrics.client_wait;
    trial.within_limits = metrics.requests_in_slo;
    trial.rejected = run.result.driver.rejected;
    trial.unexpected = run.result.driver.unexpected;
    trial.duration_s = static_cast<double>(run.result.driver.virtual_ns) * 1e-9;
    trial.preemptions = run.result.stats.preemptions;
    trial.is_bounded = is_bounded(run);
    for (const RowTimes& row : rows) {
        if (!is_answered(row)) continue;
        trial.output_tokens += row.output_tokens;
        trial.prompt_tokens += row.prompt_tokens;
    }
    // What answers nothing keeps no objective.
    trial.keeps &= trial.answered > 0;
    return trial;
}

// Trials that a candidate takes, about: doubling and bisection.
int32_t usual_trials(const PlanConfig& config) {
    if (config.rates)
        return 2 + static_cast<int32_t>(
                       std::log2(1 + std::log(config.rates->high / config.rates->low) / std::log(kRateStep)));
    return 2 + 2 * static_cast<int32_t>(std::log2(config.max_replicas));
}

// What all candidates have done, for PlanConfig::progress.
class PlanProgress {
public:
    PlanProgress(const PlanConfig& config, size_t num_candidates)
        : config_(config), total_(static_cast<double>(usual_trials(config)) * static_cast<double>(num_candidates)) {}
    // A trial of a candidate that had `before`.
    void trial(int32_t before) {
        if (before < usual_trials(config_)) add(1);
    }
    void candidate(int32_t num_trials) { add(std::max(0, usual_trials(config_) - num_trials)); }

private:
    void add(int32_t num_trials) {
        if (!config_.progress) return;
        const std::lock_guard lock(mutex_);
        done_ += num_trials;
        config_.progress(done_ / total_);
    }
    const PlanConfig& config_;
    double total_;
    std::mutex mutex_;
    double done_ = 0;
};

// The trials of one candidate, each made once.
class Trials {
public:
    Trials(const PlanConfig& config, const ModelShape& model, const PlanCandidate& candidate, const Device& device,
           const traces::Trace& trace, PlanProgress* progress)
        : config_(config), model_(model), candidate_(candidate), device_(device), trace_(trace), progress_(progress) {}

    Result<const Trial*> at(int32_t num_replicas, double rate_scale) {
        const std::pair key(num_replicas, rate_scale);
        const auto known = made_.find(key);
        if (known != made_.end()) return &known->second;
        ASSIGN_OR_RETURN(Trial trial, try_plan(config_, model_, candidate_, device_, num_replicas, rate_scale, trace_));
        if (progress_ != nullptr) progress_->trial(count());
        return &made_.emplace(key, std::move(trial)).first->second;
    }
    Result<bool> keeps(int32_t num_replicas, double rate_scale) {
        ASSIGN_OR_RETURN(const Trial* trial, at(num_replicas, rate_scale));
        return trial->keeps;
    }
    [[nodiscard]] const Trial* find(int32_t num_replicas, double rate_scale) const {
        const auto known = made_.find({num_replicas, rate_scale});
        return known == made_.end() ? nullptr : &known->second;
    }
    // The slowest trial above `rate_scale`.
    [[nodiscard]] const Trial* next_rate(int32_t num_replicas, double rate_scale) const {
        const auto next = made_.upper_bound({num_replicas, rate_scale});
        return next == made_.end() ? nullptr : &next->second;
    }
    [[nodiscard]] int32_t count() const { return static_cast<int32_t>(made_.size()); }
    [[nodiscard]] std::vector<Trial> all() const {
        std::vector<Trial> trials;
        for (const auto& [key, trial] : made_) trials.push_back(trial);
        return trials;
    }

private:
    const PlanConfig& config_;
    const ModelShape& model_;
    const PlanCandidate& candidate_;
    const Device& device_;
    const traces::Trace& trace_;
    PlanProgress* progress_;  // null: not reported
    std::map<std::pair<int32_t, double>, Trial> made_;
};

std::optional<Trial> copy_of(const Trial* trial) { return trial == nullptr ? std::nullopt : std::optional(*trial); }

// What is asked of a configuration: so many replicas, or so many times the rate.
struct Asked {
    int32_t least_replicas = 1;
    int32_t most_replicas = 1;
    std::optional<RateRange> rates;
};
Asked all_of(const PlanConfig& config) { return {1, config.max_replicas, config.rates}; }

// L1; empty: none of what is asked keeps the objectives.
Result<std::optional<Trial>> find_best(const PlanConfig& config, const Asked& asked, Trials& trials) {
    if (asked.rates) {
        const auto keeps = [&](double rate) { return trials.keeps(asked.most_replicas, rate); };
        ASSIGN_OR_RETURN(const auto found, highest(asked.rates->low, asked.rates->high, keeps));
        return found ? copy_of(trials.find(asked.most_replicas, *found)) : std::nullopt;
    }
    const auto keeps = [&](int64_t count) { return trials.keeps(static_cast<int32_t>(count), config.rate_scale); };
    ASSIGN_OR_RETURN(const auto found, fewest(asked.least_replicas, asked.most_replicas, keeps));
    return found ? copy_of(trials.find(static_cast<int32_t>(*found), config.rate_scale)) : std::nullopt;
}

// The neighbour of `best` that was tried; without one the largest or slowest of what is asked.
const Trial* find_worse(const PlanConfig& config, const std::optional<Trial>& best, const Trials& trials) {
    if (!config.rates) return trials.find(best ? best->num_replicas - 1 : config.max_replicas, config.rate_scale);
    return best ? trials.next_rate(config.max_replicas, best->rate_scale)
                : trials.find(config.max_replicas, config.rates->low);
}

Result<CandidatePlan> plan_candidate(const PlanConfig& config, const ModelShape& model, const PlanCandidate& candidate,
                                     const Device& device, const traces::Trace& trace, PlanProgress& progress) {
    CandidatePlan plan{.candidate = candidate};
    const SimulateConfig simulate = config_of(config, candidate, 1);
    if (const auto memory = plan_deployment(simulate, model, device); !memory) {
        plan.problem = memory.error().message;
        progress.candidate(0);
        return plan;
    }
    Trials trials(config, model, candidate, device, trace, &progress);
    ASSIGN_OR_RETURN(plan.best, find_best(config, all_of(config), trials));
    plan.worse = copy_of(find_worse(config, plan.best, trials));
    plan.tried = trials.all();
    progress.candidate(plan.num_trials());
    if (!plan.best || plan.worse) {
        ASSIGN_OR_RETURN(plan.alone, try_plan(config, model, candidate, device, 1, 1, spread_out(trace)));
    }
    return plan;
}

// L4: fast kernels do with no more than the answer has, and slow ones with no less.
Asked bound_of(const PlanConfig& config, const Trial& answer, bool is_fast) {
    Asked asked = all_of(config);
    if (config.rates) {
        (is_fast ? asked.rates->low : asked.rates->high) = answer.rate_scale;
    } else {
        (is_fast ? asked.most_replicas : asked.least_replicas) = answer.num_replicas;
    }
    return asked;
}

Result<PlanBounds> find_bounds(const Plan& plan, const ModelShape& model, const traces::Trace& trace) {
    const CandidatePlan& answer = plan.candidates[*plan.answer];
    const Device& device = plan.devices.at(answer.candidate.device);
    const BoundFactors factors = bound_factors(config_of(plan.config, answer.candidate, 1), device);
    const auto search = [&](bool is_fast) -> Result<PlanBound> {
        PlanBound bound{.factors = is_fast ? factors.fast : factors.slow};
        PlanConfig config = plan.config;
        config.simulate.factors = bound.factors;
        Trials trials(config, model, answer.candidate, device, trace, nullptr);
        ASSIGN_OR_RETURN(const Trial* same, trials.at(answer.best->num_replicas, answer.best->rate_scale));
        bound.answer = *same;
        ASSIGN_OR_RETURN(bound.best, find_best(config, bound_of(config, *answer.best, is_fast), trials));
        return bound;
    };
    const auto when = plan.config.num_threads > 1 ? std::launch::async : std::launch::deferred;
    auto fast = std::async(when, search, /*is_fast=*/true);
    PlanBounds bounds;
    ASSIGN_OR_RETURN(bounds.slow, search(/*is_fast=*/false));
    ASSIGN_OR_RETURN(bounds.fast, fast.get());
    return bounds;
}

// L2; less is better.
auto rank(const PlanConfig& config, const CandidatePlan& plan, size_t place) {
    const double first = config.rates ? -plan.best->requests_per_s() / plan.best->num_gpus : plan.best->num_gpus;
    const double tokens = static_cast<double>(plan.best->output_tokens) / std::max(plan.best->duration_s, 1e-9);
    return std::tuple(first, -tokens, place);
}

void choose(Plan& plan) {
    std::vector<size_t> found;
    for (size_t i = 0; i < plan.candidates.size(); ++i) {
        if (plan.candidates[i].best) found.push_back(i);
    }
    std::ranges::sort(found, {}, [&](size_t i) { return rank(plan.config, plan.candidates[i], i); });
    if (!found.empty()) plan.answer = found[0];
    if (found.size() > 1) plan.runner_up = found[1];
}

}  // namespace

traces::Trace spread_out(const traces::Trace& trace) {
    traces::Trace apart = trace;
    int64_t number = 0;
    for (traces::Row& row : apart.rows) row.arrival_ns = kApartNs * number++;
    return apart;
}

Result<Trial> try_plan(const PlanConfig& config, const ModelShape& model, const PlanCandidate& candidate,
                       const Device& device, int32_t num_replicas, double rate_scale, const traces::Trace& trace) {
    const SimulateConfig simulate = config_of(config, candidate, num_replicas);
    if (rate_scale == 1) {
        ASSIGN_OR_RETURN(const SimulateRun run, run_simulate(simulate, model, device, "", trace));
        return trial_of(config, run, rate_scale);
    }
    traces::Trace scaled = trace;
    traces::scale_times(scaled, rate_scale, 1);
    ASSIGN_OR_RETURN(const SimulateRun run, run_simulate(simulate, model, device, "", scaled));
    return trial_of(config, run, rate_scale);
}

Result<Plan> make_plan(const PlanConfig& config, const ModelShape& model, const std::vector<PlanCandidate>& candidates,
                       const std::map<std::string, Device>& devices, const std::string& trace_name,
                       const traces::Trace& trace) {
    CHECK(!candidates.empty());
    Plan plan{.trace = trace_name,
              .model = model.name,
              .is_stored = !model.stored.empty(),
              .config = config,
              .devices = devices};
    std::vector<std::optional<Result<CandidatePlan>>> found(candidates.size());
    std::atomic<size_t> next = 0;
    PlanProgress progress(config, candidates.size());
    const auto work = [&] {
        for (size_t i = next++; i < candidates.size(); i = next++)
            found[i] = plan_candidate(config, model, candidates[i], devices.at(candidates[i].device), trace, progress);
    };
    {
        std::vector<std::jthread> threads;
        const auto wanted = std::min<size_t>(static_cast<size_t>(config.num_threads), candidates.size());
        for (size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
        work();
    }
    for (auto& one : found) {
        ASSIGN_OR_RETURN(plan.candidates.emplace_back(), std::move(*one));
    }
    choose(plan);
    if (config.bounds && plan.answer && plan.candidates[*plan.answer].best->is_bounded) {
        ASSIGN_OR_RETURN(plan.bounds, find_bounds(plan, model, trace));
    }
    return plan;
}

}  // namespace verbatim
