#include "audit/audit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "audit/tie_probe.h"

namespace verbatim::audit {
namespace {

bool is_wanted(const AuditConfig& config, const std::string& name) {
    const auto has = [&](const std::vector<std::string>& list) { return std::ranges::find(list, name) != list.end(); };
    return (config.only.empty() || has(config.only)) && !has(config.skip);
}

constexpr int64_t kMaxShrinkRuns = 60;
constexpr int64_t kMaxShrinkRestarts = 6;  // of a server that may load for minutes
constexpr int kMostProbes = 2;             // of a relation: each is some fifty requests

RelationVerdict not_tried(const std::string& relation, std::string why) {
    RelationVerdict verdict;
    verdict.relation = relation;
    verdict.why = std::move(why);
    return verdict;
}

// With what is left of the budget, when everything has been tried.
void shrink_all(const AuditConfig& config, Runner& runner, const JudgeOptions& judging, AuditResult& result) {
    for (const RelationVerdict& one : result.relations) {
        result.shrunk.emplace_back();
        if (one.verdict != Verdict::kCorrupt) continue;
        const size_t worst = one.worst_case();
        config.progress(one.relation + ": shrinking " + one.cases[worst].name, 0, 0);
        const bool restarts = std::ranges::any_of(one.trials[worst].script.waves, &Wave::restarts);
        const int64_t max_runs = !config.shrinks ? 0 : restarts ? kMaxShrinkRestarts : kMaxShrinkRuns;
        result.shrunk.back() =
            shrink(one.trials[worst], one.cases[worst], runner, result.server, one.usual, judging, max_runs);
    }
}

// Differences that nothing but draws can judge: the first of a relation are drawn for. Where these are all near-ties,
// the others count as drift, too.
void probe_ties(Runner& runner, const ServerInfo& info, RelationVerdict& relation) {
    int num_probed = 0;
    int num_near_ties = 0;
    for (size_t i = 0; i < relation.cases.size() && num_probed < kMostProbes; ++i) {
        CaseVerdict& one = relation.cases[i];
        const Trial& trial = relation.trials[i];
        const bool is_open = one.verdict == Verdict::kUndecided || one.verdict == Verdict::kDrift;
        if (!is_open || !one.worst || one.worst->same_text || one.worst->flip || trial.script.is_sampled) continue;
        ++num_probed;
        const TieProbe probe = probe_tie(trial, trial.script.pairs[one.worst_pair], *one.worst, info, runner);
        const std::string draws =
            probe.problem.empty() ? fmt::format("of {} draws {} go on like one answer and {} like the other one",
                                                probe.num_draws, probe.num_left, probe.num_right)
                                  : fmt::format("draws do not tell drift from corruption either: {}", probe.problem);
        one.evidence += "; " + draws;
        if (probe.denies_tie()) {
            one.verdict = Verdict::kCorrupt;
            one.evidence += fmt::format(": no near-tie (probability {:.2g})", probe.probability);
        } else if (probe.problem.empty()) {
            one.verdict = Verdict::kDrift;
            ++num_near_ties;
        }
    }
    if (num_probed == 0) return;
    if (num_near_ties == num_probed)
        for (CaseVerdict& one : relation.cases)
            if (one.verdict == Verdict::kUndecided) one.verdict = Verdict::kDrift;
    conclude(relation);
}

// Whether equal seeds give equal answers from run to run: the sampled cases of `again`.
bool keeps_seeds(const AuditConfig& config, Runner& runner, const ServerInfo& info, const JudgeOptions& judging) {
    config.progress("do equal seeds give equal answers?", 0, 0);
    std::vector<Trial> trials;
    for (const Case& script : find_relation("again")->cases(info, config.relations)) {
        if (script.is_sampled) trials.push_back(runner.run(script));
    }
    return judge("again", std::move(trials), info, {}, judging).keeps_seeds;
}

struct Planned {
    const Relation* relation;
    std::string why_not;
    std::vector<Case> cases;
};

Status check_relations(const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        if (find_relation(name) != nullptr) continue;
        std::vector<std::string> known;
        for (const Relation& one : relations()) known.emplace_back(one.name);
        return error("{:?} is no relation: wanted one of {}", name, fmt::join(known, ", "));
    }
    return {};
}

}  // namespace

Verdict AuditResult::verdict() const {
    Verdict worst = Verdict::kNotTried;
    for (const RelationVerdict& one : relations) worst = std::max(worst, one.verdict);
    return worst;
}

Status check_selection(const std::vector<std::string>& only, const std::vector<std::string>& skip) {
    RETURN_IF_ERROR(check_relations(only));
    RETURN_IF_ERROR(check_relations(skip));
    AuditConfig config;
    config.only = only;
    config.skip = skip;
    for (const Relation& one : relations()) {
        if (is_wanted(config, one.name)) return {};
    }
    return error("--only and --skip leave no relation to try");
}

bool AuditResult::compared_nothing() const { return verdict() == Verdict::kNotTried; }

Result<AuditResult> run_audit(const AuditConfig& config) {
    RETURN_IF_ERROR(check_selection(config.only, config.skip));
    AuditResult result;
    config.progress("looking at the server", 0, 0);
    ASSIGN_OR_RETURN(result.server, discover(*config.runner.server, config.discover));
    if (config.runner.against != nullptr) {
        const HttpReply reply = config.runner.against->send(std::vector<HttpRequest>{{"/v1/models", ""}})[0];
        if (!reply.problem.empty()) return error("the second server (--against): no answer: {}", reply.problem);
    }
    JudgeOptions judging = config.judge;
    judging.is_exact = result.is_exact = judging.is_exact || result.server.is_exact;

    std::vector<Planned> plan;
    size_t total = 0;
    for (const Relation& relation : relations()) {
        if (!is_wanted(config, relation.name)) continue;
        Planned planned{&relation, relation.why_not(result.server, config.relations), {}};
        if (planned.why_not.empty()) planned.cases = relation.cases(result.server, config.relations);
        total += planned.cases.size();
        plan.push_back(std::move(planned));
    }
    Runner runner(config.runner, result.server);
    const auto is_sampled = [](const Planned& planned) {
        return std::ranges::any_of(planned.cases, &Case::is_sampled);
    };
    if (!judging.is_exact && !is_wanted(config, "again") && std::ranges::any_of(plan, is_sampled))
        judging.keeps_seeds = keeps_seeds(config, runner, result.server, judging);
    size_t done = 0;
    // Of the relations before that found no corruption: what the server's arithmetic does.
    Noise known_noise;
    for (Planned& planned : plan) {
        if (!planned.why_not.empty()) {
            result.relations.push_back(not_tried(planned.relation->name, planned.why_not));
            continue;
        }
        std::vector<Trial> trials;
        for (const Case& script : planned.cases) {
            config.progress(script.relation + ": " + script.name, done++, total);
            trials.push_back(runner.run(script));
        }
        result.relations.push_back(
            judge(planned.relation->name, std::move(trials), result.server, known_noise, judging));
        RelationVerdict& judged = result.relations.back();
        if (!judging.is_exact) probe_ties(runner, result.server, judged);
        if (judged.verdict == Verdict::kEqual || judged.verdict == Verdict::kDrift) {
            known_noise.rms = std::max(known_noise.rms, judged.noise.rms);
            known_noise.high = std::max(known_noise.high, judged.noise.high);
            known_noise.num_samples += judged.noise.num_samples;
        }
        if (judged.relation == "again" && judged.verdict != Verdict::kNotTried) {
            judging.keeps_seeds = judged.keeps_seeds;
            result.floor = judged.noise;
            result.has_floor = true;
        }
    }
    shrink_all(config, runner, judging, result);
    result.num_requests = runner.num_requests();
    result.num_tokens = runner.num_tokens();
    return result;
}

}  // namespace verbatim::audit
