#include "tools/plan/report.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "simulator/choice_names.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// "2.18 s", "43.1 ms".
std::string show_time(int64_t ns) {
    return ns >= 1'000'000'000 ? fmt::format("{:.3g} s", seconds(ns)) : fmt::format("{:.3g} ms", seconds(ns) * 1e3);
}

std::string show_value(const Measured& measured) { return measured.has_value ? show_time(measured.value_ns) : "-"; }

std::string kv_name(const PlanCandidate& candidate) { return name_among(kv_dtype_choices(), candidate.kv_value_bytes); }

// A quantised checkpoint without --weights has the types that it is stored in, as in verbatim simulate.
std::string weights_name(const Plan& plan, const PlanCandidate& candidate) {
    return plan.is_stored && candidate.weights == WeightFormat::kBf16 ? "as stored" : name_of(candidate.weights);
}

// "tp 4 ep 4"; nothing for one GPU.
std::string split_name(const Parallelism& parallelism) {
    std::string text;
    for (const auto& [name, count] : {std::pair{"tp", parallelism.tensor}, std::pair{"ep", parallelism.experts},
                                      std::pair{"pp", parallelism.pipeline}}) {
        if (count > 1) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, count);
    }
    return text;
}

// Of these objectives the first one that is not kept.
std::optional<size_t> first_broken(const Plan& plan, const Trial& trial) {
    for (size_t i = 0; i < trial.measured.size(); ++i) {
        if (!trial.measured[i].keeps(plan.config.objectives[i])) return i;
    }
    return std::nullopt;
}

std::string wanted(const Objective& objective) {
    return fmt::format("{}, wanted {}", name(objective), show_time(objective.limit_ns));
}

std::string where(const Plan& plan, const Trial& trial) {
    if (plan.config.rates) return fmt::format("at {:.3g} times the rate", trial.rate_scale);
    return fmt::format("with {} replica{}", trial.num_replicas, trial.num_replicas == 1 ? "" : "s");
}

std::string nothing_does(const Plan& plan, const CandidatePlan& candidate) {
    const auto alone = first_broken(plan, *candidate.alone);
    if (alone) {
        const Objective& objective = plan.config.objectives[*alone];
        const Measured& measured = candidate.alone->measured[*alone];
        return fmt::format(
            "no number of replicas does: one prompt of {} tokens{} alone takes {}{} ({})", measured.prompt_tokens,
            measured.reused_tokens > 0 ? fmt::format(", {} of them reused,", measured.reused_tokens) : "",
            show_time(measured.value_ns), objective.latency == Latency::kTpot ? " a token" : "", wanted(objective));
    }
    const auto broken = first_broken(plan, *candidate.worse);
    if (!broken) return fmt::format("{} no request is answered", where(plan, *candidate.worse));
    return fmt::format("not {}: {} is {}, and {} alone ({})", where(plan, *candidate.worse),
                       name(plan.config.objectives[*broken]), show_value(candidate.worse->measured[*broken]),
                       show_value(candidate.alone->measured[*broken]), wanted(plan.config.objectives[*broken]));
}

ordered_json trial_json(const Plan& plan, const PlanCandidate& candidate, const Trial& trial) {
    ordered_json json = {{"replicas", trial.num_replicas},
                         {"gpus", trial.num_gpus},
                         {"rate_scale", trial.rate_scale},
                         {"keeps", trial.keeps}};
    for (size_t i = 0; i < trial.measured.size(); ++i) {
        const Measured& measured = trial.measured[i];
        json["values_s"][name(plan.config.objectives[i])] =
            measured.has_value ? ordered_json(seconds(measured.value_ns)) : ordered_json(nullptr);
    }
    json["requests"] = trial.requests;
    json["answered"] = trial.answered;
    json["rejected"] = trial.rejected;
    json["unexpected"] = trial.unexpected;
    json["requests_per_s"] = trial.requests_per_s();
    json["output_tokens_per_s"] =
        trial.duration_s > 0 ? static_cast<double>(trial.output_tokens) / trial.duration_s : 0;
    json["goodput"] = {{"requests", trial.within_limits}, {"requests_per_s", trial.goodput_per_s()}};
    for (const auto& [key, times] : {std::pair{"ttft_s", &trial.ttft}, std::pair{"tpot_s", &trial.tpot},
                                     std::pair{"e2e_s", &trial.e2e}, std::pair{"client_wait_s", &trial.client_wait}}) {
        if (times->count > 0) json[key] = {{"p50", times->p50}, {"p99", times->p99}};
    }
    json["hit_rate"] = trial.hit_rate;
    json["preemptions"] = trial.preemptions;
    const Costs costs = costs_of(plan, candidate, trial);
    const auto or_null = [](const auto& value) { return value ? ordered_json(*value) : ordered_json(nullptr); };
    json["dollars_per_million_tokens"] = or_null(costs.dollars_per_million_tokens);
    json["joules_per_token"] = or_null(costs.joules_per_token);
    return json;
}

ordered_json candidate_json(const Plan& plan, const CandidatePlan& candidate) {
    ordered_json json = {{"device", candidate.candidate.device},
                         {"weights", weights_name(plan, candidate.candidate)},
                         {"kv_dtype", kv_name(candidate.candidate)},
                         {"tp", candidate.candidate.parallelism.tensor},
                         {"ep", candidate.candidate.parallelism.experts},
                         {"pp", candidate.candidate.parallelism.pipeline},
                         {"step_tokens", candidate.candidate.step_tokens},
                         {"max_sequences", candidate.candidate.max_num_sequences},
                         {"trials", candidate.num_trials()}};
    const auto trial = [&](const std::optional<Trial>& one) {
        return one ? trial_json(plan, candidate.candidate, *one) : ordered_json(nullptr);
    };
    json["best"] = trial(candidate.best);
    json["worse"] = trial(candidate.worse);
    json["alone"] = trial(candidate.alone);
    json["tried"] = ordered_json::array();
    for (const Trial& one : candidate.tried) json["tried"].push_back(trial_json(plan, candidate.candidate, one));
    json["explanation"] = explanation(plan, candidate);
    return json;
}

ordered_json bound_json(const Plan& plan, const PlanBound& bound) {
    const PlanCandidate& candidate = plan.candidates[*plan.answer].candidate;
    return {{"factors", {{"rooflines", bound.factors.rooflines}, {"others", bound.factors.others}}},
            {"answer", trial_json(plan, candidate, bound.answer)},
            {"best", bound.best ? trial_json(plan, candidate, *bound.best) : ordered_json(nullptr)}};
}

// "3 GPUs", "1.2 times the rate".
std::string bound_text(const Plan& plan, const PlanBound& bound) {
    if (!bound.best) return "none of what was asked";
    if (plan.config.rates) return fmt::format("{:.3g} times the rate", bound.best->rate_scale);
    return fmt::format("{} GPU{}", bound.best->num_gpus, bound.best->num_gpus == 1 ? "" : "s");
}

void add_column(const Plan& plan, size_t place, std::vector<std::vector<std::string>>& rows) {
    const CandidatePlan& candidate = plan.candidates[place];
    const Trial& trial = *candidate.best;
    const std::string split = split_name(candidate.candidate.parallelism);
    std::vector<std::string> cells = {candidate.candidate.device,
                                      weights_name(plan, candidate.candidate),
                                      kv_name(candidate.candidate),
                                      split.empty() ? "one GPU" : split,
                                      fmt::format("{}", candidate.candidate.step_tokens),
                                      fmt::format("{}", candidate.candidate.max_num_sequences),
                                      fmt::format("{}", trial.num_gpus),
                                      fmt::format("{:.3g}", trial.rate_scale)};
    for (const Measured& measured : trial.measured) cells.push_back(show_value(measured));
    const Distribution& wait = trial.client_wait;
    cells.push_back(wait.count > 0 ? show_time(static_cast<int64_t>(wait.p99 * 1e9)) : "-");
    cells.push_back(fmt::format("{} of {}", trial.answered, trial.requests));
    const auto per_s = [&](int64_t count) { return static_cast<double>(count) / std::max(trial.duration_s, 1e-9); };
    cells.push_back(fmt::format("{:.3f}", trial.requests_per_s()));
    cells.push_back(fmt::format("{:.3f}", trial.goodput_per_s()));
    cells.push_back(fmt::format("{:.1f}", per_s(trial.output_tokens)));
    cells.push_back(fmt::format("{:.2f} %", 100 * trial.hit_rate));
    cells.push_back(fmt::format("{}", trial.rejected));
    const Costs costs = costs_of(plan, candidate.candidate, trial);
    const auto shown = [](const std::optional<double>& value, const char* unit) {
        return value ? fmt::format("{}{:.3g}{}", unit[0] == '$' ? "$ " : "", *value, unit[0] == '$' ? "" : unit) : "-";
    };
    cells.push_back(shown(costs.dollars_per_million_tokens, "$"));
    cells.push_back(shown(costs.joules_per_token, " J"));
    CHECK_EQ(cells.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) rows[i].push_back(cells[i]);
}

std::string chosen_table(const Plan& plan) {
    std::vector<std::vector<std::string>> rows = {{"device"},        {"weights"},   {"KV"},   {"a replica"},
                                                  {"tokens a step"}, {"sequences"}, {"GPUs"}, {"rate"}};
    for (const Objective& objective : plan.config.objectives)
        rows.push_back({fmt::format("{}, at most {}", name(objective), show_time(objective.limit_ns))});
    for (const char* label : {"client wait, p99", "requests answered", "requests per second",
                              "of these within all limits", "tokens per second", "prompt tokens reused", "rejected",
                              "per million tokens of answers", "per token of answers, at full power"}) {
        rows.push_back({label});
    }
    std::vector<std::string> header = {"", "answer"};
    add_column(plan, *plan.answer, rows);
    if (plan.runner_up) {
        header.emplace_back("runner-up");
        add_column(plan, *plan.runner_up, rows);
    }
    Table table(header);
    for (auto& row : rows) table.add_row(std::move(row));
    return table.to_string();
}

std::string headline(const Plan& plan) {
    std::string objectives;
    for (const Objective& objective : plan.config.objectives)
        objectives += fmt::format(", {} <= {}", name(objective), show_time(objective.limit_ns));
    const std::string question = plan.config.rates
                                     ? fmt::format("the highest rate on {} replica{}", plan.config.max_replicas,
                                                   plan.config.max_replicas == 1 ? "" : "s")
                                     : std::string("the fewest GPUs");
    std::string answer = "none of what was asked";
    if (plan.answer) {
        const Trial& best = *plan.candidates[*plan.answer].best;
        answer = plan.config.rates ? fmt::format("{:.3g} times the trace's, {:.3g} requests per second",
                                                 best.rate_scale, best.requests_per_s())
                                   : fmt::format("{}", best.num_gpus);
    }
    return fmt::format("{}: {}{}\n\n{}: {}\n", plan.trace, plan.model, objectives, question, answer);
}

}  // namespace

Costs costs_of(const Plan& plan, const PlanCandidate& candidate, const Trial& trial) {
    Costs costs;
    const double gpu_seconds = trial.num_gpus * trial.duration_s;
    const auto tokens = static_cast<double>(trial.output_tokens);
    if (tokens == 0) return costs;
    if (plan.config.price_per_hour)
        costs.dollars_per_million_tokens = *plan.config.price_per_hour * gpu_seconds / 3600 / tokens * 1e6;
    const double power_w = plan.devices.at(candidate.device).power_w;
    if (power_w > 0) costs.joules_per_token = power_w * gpu_seconds / tokens;
    return costs;
}

std::string label_of(const Plan& plan, const PlanCandidate& candidate) {
    const std::string kv = candidate.kv_value_bytes == 2 ? "" : fmt::format(" {} KV,", kv_name(candidate));
    const std::string split = split_name(candidate.parallelism);
    return fmt::format("{}, {} weights,{}{} {} tokens a step, {} sequences", candidate.device,
                       weights_name(plan, candidate), kv, split.empty() ? "" : " " + split + ",", candidate.step_tokens,
                       candidate.max_num_sequences);
}

std::string question(const Plan& plan) {
    std::string objectives;
    for (const Objective& objective : plan.config.objectives) {
        objectives += fmt::format("{}{} of at most {}", objectives.empty() ? "" : " and ", name(objective),
                                  show_time(objective.limit_ns));
    }
    if (!plan.config.rates)
        return fmt::format("How many GPUs does {} need with {}, for {}?", plan.trace, plan.model, objectives);
    return fmt::format("At how many times its rate do {} replica{} of {} serve {}, for {}?", plan.config.max_replicas,
                       plan.config.max_replicas == 1 ? "" : "s", plan.model, plan.trace, objectives);
}

std::string explanation(const Plan& plan, const CandidatePlan& candidate) {
    if (!candidate.problem.empty()) return candidate.problem;
    if (!candidate.best) return nothing_does(plan, candidate);
    if (!candidate.worse)
        return plan.config.rates ? "nothing binds up to the highest rate that was asked" : "one replica is enough";
    const auto broken = first_broken(plan, *candidate.worse);
    if (!broken) return fmt::format("{} no request is answered", where(plan, *candidate.worse));
    const Objective& objective = plan.config.objectives[*broken];
    const Measured& alone = candidate.alone->measured[*broken];
    return fmt::format("{} {} is {}: that binds (wanted {}; alone {}, the rest is sharing and waiting)",
                       where(plan, *candidate.worse), name(objective), show_value(candidate.worse->measured[*broken]),
                       show_time(objective.limit_ns), show_value(alone));
}

std::vector<std::string> unmeasured(const Plan& plan) {
    std::vector<std::string> names;
    if (!plan.answer) return names;
    const Trial& best = *plan.candidates[*plan.answer].best;
    for (size_t i = 0; i < best.measured.size(); ++i)
        if (!best.measured[i].has_value) names.push_back(name(plan.config.objectives[i]));
    return names;
}

std::string bounds_sentence(const Plan& plan) {
    if (!plan.bounds) return "";
    const auto [fast, slow] = *plan.bounds;
    std::string text =
        fmt::format("with the fastest kernels {}, with the slowest {}", bound_text(plan, fast), bound_text(plan, slow));
    if (const auto broken = first_broken(plan, slow.answer))
        text += fmt::format("; the answer's {} would be {} with the slowest", name(plan.config.objectives[*broken]),
                            show_value(slow.answer.measured[*broken]));
    return text;
}

std::string plan_table(const Plan& plan) {
    std::string text = headline(plan);
    if (plan.answer) text += "\n" + chosen_table(plan);
    for (const std::string& objective : unmeasured(plan))
        text += fmt::format("\n{}: nothing was compared: no answered request has such a time\n", objective);
    if (plan.bounds) text += fmt::format("\nbounds: {}\n", bounds_sentence(plan));
    text += "\n";
    for (const CandidatePlan& candidate : plan.candidates)
        text += fmt::format("{}: {}\n", label_of(plan, candidate.candidate), explanation(plan, candidate));
    return text;
}

ordered_json plan_json(const Plan& plan) {
    ordered_json json = {
        {"trace", plan.trace}, {"model", plan.model}, {"question", plan.config.rates ? "highest_rate" : "fewest_gpus"}};
    for (const Objective& objective : plan.config.objectives)
        json["slo"].push_back({{"objective", name(objective)}, {"limit_s", seconds(objective.limit_ns)}});
    json["max_replicas"] = plan.config.max_replicas;
    if (plan.config.rates) json["rate_scales"] = {plan.config.rates->low, plan.config.rates->high};
    json["candidates"] = ordered_json::array();
    for (const CandidatePlan& candidate : plan.candidates)
        json["candidates"].push_back(candidate_json(plan, candidate));
    const auto chosen = [&](const std::optional<size_t>& place) {
        return place ? json["candidates"][*place] : ordered_json(nullptr);
    };
    json["answer"] = chosen(plan.answer);
    json["runner_up"] = chosen(plan.runner_up);
    json["bounds"] = plan.bounds ? ordered_json{{"fast", bound_json(plan, plan.bounds->fast)},
                                                {"slow", bound_json(plan, plan.bounds->slow)}}
                                 : ordered_json(nullptr);
    json["not_compared"] = unmeasured(plan);
    return json;
}

}  // namespace verbatim::tools
