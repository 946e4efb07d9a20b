#include "audit/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace verbatim::audit {
namespace {

constexpr double kNearTie = 0.1;    // nats: closer than this is a near-tie, whatever noise was seen
constexpr double kMostFlip = 2.5;   // nats: no noise explains a flip that takes more
constexpr double kSigmas = 8;       // of the noise's rms
constexpr double kTails = 3;        // of what 999 of 1000 samples keep to
constexpr double kCaseSigmas = 12;  // of a case's rms, in units of the median case's
constexpr double kLeastOutlier = 0.05;
constexpr double kFewSamples = 3;  // how far the rms of few samples may be above the noise's, by 1 / sqrt(their number)
constexpr size_t kLeastSamples = 30;  // of the relation's own noise, before it says what a flip may take
constexpr size_t kLeastCases = 3;     // with noise, before one of them can be an outlier
constexpr double kSampledFlips = 4;   // at most so many a unit of total variation distance
constexpr double kSampledError = 1e-6;

struct Judged {
    std::vector<Comparison> comparisons;  // one per pair
    double rms = 0;                       // of the noise of all pairs
};

double rms_of(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return values.empty() ? 0 : std::sqrt(sum / static_cast<double>(values.size()));
}

// P(Poisson(mean) >= count).
double poisson_tail(double mean, size_t count) {
    double term = std::exp(-mean);
    double below = 0;
    for (size_t i = 0; i < count; ++i) {
        below += term;
        term *= mean / static_cast<double>(i + 1);
    }
    return std::max(0.0, 1 - below);
}

std::string shown_flip(const Comparison& comparison) {
    return fmt::format("{}{:.3f} nats", comparison.is_least ? "at least " : "", *comparison.flip);
}

std::string place_text(const Comparison& c) {
    return fmt::format("{} {}: {:?} against {:?}", c.has_scores ? "token" : "byte", c.position, c.left_text,
                       c.right_text);
}

class Judge {
public:
    Judge(const ServerInfo& info, const Noise& floor, const JudgeOptions& options)
        : info_(info), floor_(floor), options_(options) {}

    RelationVerdict run(const std::string& relation, std::vector<Trial> trials) {
        RelationVerdict result;
        result.relation = relation;
        std::vector<Judged> judged;
        for (const Trial& trial : trials) judged.push_back(compared(trial));
        measure(judged, trials, result);
        const Engagement by_time = engagement_by_time(trials);
        for (size_t i = 0; i < trials.size(); ++i)
            result.cases.push_back(case_verdict(trials[i], judged[i], by_time, result));
        conclude(result);
        result.trials = std::move(trials);
        return result;
    }

private:
    Judged compared(const Trial& trial) const {
        Judged judged;
        std::vector<double> changes;
        if (trial.problem.empty()) {
            for (const Pair& pair : trial.script.pairs) {
                judged.comparisons.push_back(compare(trial, pair, info_));
                const auto& some = judged.comparisons.back().changes;
                changes.insert(changes.end(), some.begin(), some.end());
            }
        }
        judged.rms = rms_of(changes);
        return judged;
    }

    // The noise: of the median case, so that half of them may be wrong, and of the floor.
    void measure(const std::vector<Judged>& judged, const std::vector<Trial>& trials, RelationVerdict& result) {
        std::vector<double> rms;
        for (const Judged& one : judged) {
            if (one.rms > 0) rms.push_back(one.rms);
        }
        std::ranges::sort(rms);
        usual_rms_ = std::max(floor_.rms, rms.empty() ? 0 : rms[(rms.size() - 1) / 2]);
        num_noisy_ = rms.size();
        std::vector<double> changes;
        double distance = 0;
        size_t flips = 0;
        for (size_t i = 0; i < judged.size(); ++i) {
            const bool is_outlier = judged[i].rms > kCaseSigmas * usual_rms_;
            for (const Comparison& c : judged[i].comparisons) {
                if (!is_outlier) changes.insert(changes.end(), c.changes.begin(), c.changes.end());
                if (!trials[i].script.is_sampled || !c.has_scores) continue;
                distance += c.distance;
                flips += c.same_text ? 0 : 1;
            }
        }
        measures_nothing_ = changes.empty() && floor_.num_samples == 0;
        result.noise = noise_of(std::move(changes));
        Noise usual = result.noise;
        usual.rms = usual_rms_;
        usual.high = std::max(usual.high, floor_.high);
        result.usual = usual;
        flip_limit_ =
            result.noise.num_samples < kLeastSamples ? kMostFlip : verbatim::audit::flip_limit(usual, options_);
        result.flip_limit = flip_limit_;
        sampled_error_ = flips == 0 ? 1 : poisson_tail(kSampledFlips * distance, flips);
        sampled_flips_ = flips;
        result.keeps_seeds = sampled_error_ >= kSampledError;
        // Seeds are a promise that servers need not make: from run to run it is measured, not judged.
        is_seedless_ =
            !options_.is_exact && !result.keeps_seeds && (result.relation == "again" || !options_.keeps_seeds);
    }

    CaseVerdict case_verdict(const Trial& trial, const Judged& judged, const Engagement& by_time,
                             RelationVerdict& result) const {
        CaseVerdict verdict;
        verdict.name = trial.script.name;
        verdict.evidence = trial.problem;
        if (!trial.problem.empty()) return verdict;
        verdict.engaged = engagement(trial, info_);
        if (!verdict.engaged.happened && by_time.happened &&
            verdict.engaged.proof.find("does not tell") != std::string::npos)
            verdict.engaged = by_time;
        size_t num_compared = 0;
        for (size_t i = 0; i < judged.comparisons.size(); ++i) {
            const Comparison& c = judged.comparisons[i];
            const std::string problem = problem_of(c, trial.script.is_sampled);
            if (!problem.empty()) {
                if (verdict.evidence.empty()) verdict.evidence = problem;
                continue;
            }
            ++num_compared;
            const auto [of_pair, evidence] = pair_verdict(c, judged, trial.script.is_sampled);
            if (of_pair > verdict.verdict) {
                verdict.verdict = of_pair;
                verdict.evidence = evidence;
                verdict.worst_pair = i;
                verdict.worst = c;
            }
        }
        if (verdict.engaged.happened) result.num_pairs += num_compared;
        if (verdict.verdict == Verdict::kEqual && num_compared < judged.comparisons.size()) {
            verdict.verdict = Verdict::kNotTried;
            for (const Comparison& c : judged.comparisons) {
                const std::string problem = problem_of(c, trial.script.is_sampled);
                if (!problem.empty()) verdict.evidence = problem;
            }
        }
        // Where the path was not taken, equal answers say nothing; different ones do.
        if (verdict.verdict == Verdict::kEqual && !verdict.engaged.happened) {
            verdict.verdict = Verdict::kNotTried;
            verdict.evidence = verdict.engaged.proof;
        }
        return verdict;
    }

    // Why the pair is not judged; empty: it is.
    std::string problem_of(const Comparison& c, bool is_sampled) const {
        if (!c.problem.empty() || !is_seedless_ || !is_sampled || c.same_text || !c.impossible.empty())
            return c.problem;
        return "the server does not keep to seeds: equal ones gave other answers from run to run";
    }

    std::pair<Verdict, std::string> pair_verdict(const Comparison& c, const Judged& judged, bool is_sampled) const {
        if (!c.impossible.empty()) return {Verdict::kCorrupt, c.impossible};
        if (c.is_equal) return {Verdict::kEqual, ""};
        const double rms = rms_of(c.changes);
        if (options_.is_exact) {
            if (c.same_text)
                return {Verdict::kCorrupt,
                        fmt::format("the server promises equal bits, and log-probabilities differ by "
                                    "{:.3g} nats (rms)",
                                    rms)};
            return {Verdict::kCorrupt, "the server promises equal bits; " + place_text(c)};
        }
        if (rms > options_.noise_limit * (1 + kFewSamples / std::sqrt(static_cast<double>(c.changes.size()))))
            return {Verdict::kCorrupt, fmt::format("log-probabilities on equal tokens differ by {:.3f} nats (rms): no "
                                                   "arithmetic's noise is above {}",
                                                   rms, options_.noise_limit)};
        if (num_noisy_ >= kLeastCases && judged.rms > kCaseSigmas * usual_rms_ && judged.rms > kLeastOutlier)
            return {Verdict::kCorrupt, fmt::format("log-probabilities on equal tokens differ by {:.3f} nats (rms), in "
                                                   "the other cases by {:.4f}",
                                                   judged.rms, usual_rms_)};
        if (c.same_text)
            return {Verdict::kDrift, fmt::format("equal texts, log-probabilities differ by {:.3g} nats (rms)", rms)};
        if (is_sampled && c.has_scores) return sampled_verdict(c);
        if (!c.flip)
            return {measures_nothing_ ? Verdict::kUndecided : Verdict::kDrift,
                    place_text(c) +
                        "; the server gives no log-probabilities to tell drift from "
                        "corruption"};
        const std::string what =
            fmt::format("{}: it takes a change of {}; the noise is {:.4f} nats (rms), its limit {:.3f}", place_text(c),
                        shown_flip(c), usual_rms_, flip_limit_);
        return {*c.flip > flip_limit_ ? Verdict::kCorrupt : Verdict::kDrift, what};
    }

    // Seeds are the same and the distributions nearly so: draws part as often as the distributions differ.
    std::pair<Verdict, std::string> sampled_verdict(const Comparison& c) const {
        const bool is_corrupt = sampled_error_ < kSampledError;
        return {is_corrupt ? Verdict::kCorrupt : Verdict::kDrift,
                fmt::format("{}; {} sampled answers part where the distributions are the same up to noise (probability "
                            "{:.2g})",
                            place_text(c), sampled_flips_, sampled_error_)};
    }

    const ServerInfo& info_;
    const Noise& floor_;
    const JudgeOptions& options_;
    double usual_rms_ = 0;
    size_t num_noisy_ = 0;
    bool measures_nothing_ = false;  // no two log-probabilities of equal tokens, here or in the relations before
    double flip_limit_ = 0;
    double sampled_error_ = 1;
    size_t sampled_flips_ = 0;
    bool is_seedless_ = false;
};

// "7 of 8 cases were compared; not tried: prompt 3, prompt 5: the answer came in one piece".
std::string left_out_of(const RelationVerdict& relation) {
    constexpr size_t kShownNames = 3;
    const size_t num_left_out = relation.count(Verdict::kNotTried);
    if (num_left_out == 0 || num_left_out == relation.cases.size()) return "";
    std::vector<std::pair<std::string, std::vector<std::string>>> reasons;
    for (const CaseVerdict& one : relation.cases) {
        if (one.verdict != Verdict::kNotTried) continue;
        auto found = std::ranges::find(reasons, one.evidence, [](const auto& reason) { return reason.first; });
        if (found == reasons.end()) found = reasons.insert(found, {one.evidence, {}});
        found->second.push_back(one.name);
    }
    std::string text = fmt::format("{} of {} cases were compared; not tried: ", relation.cases.size() - num_left_out,
                                   relation.cases.size());
    for (const auto& [reason, names] : reasons) {
        const size_t num_shown = std::min(names.size(), kShownNames);
        const bool is_last = reason == reasons.back().first;
        text += fmt::format("{}{}: {}{}",
                            fmt::join(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(num_shown), ", "),
                            names.size() > num_shown ? fmt::format(" and {} more", names.size() - num_shown) : "",
                            reason, is_last ? "" : "; ");
    }
    return text;
}

}  // namespace

const char* name(Verdict verdict) {
    constexpr std::array kNames = {"not tried", "equal", "drift", "undecided", "corrupt"};
    return kNames[static_cast<size_t>(verdict)];
}

size_t RelationVerdict::count(Verdict of) const {
    return static_cast<size_t>(std::ranges::count(cases, of, &CaseVerdict::verdict));
}

void conclude(RelationVerdict& relation) {
    relation.verdict = Verdict::kNotTried;
    relation.why.clear();
    for (const CaseVerdict& one : relation.cases) {
        if (one.verdict > relation.verdict || (relation.why.empty() && one.verdict == relation.verdict)) {
            relation.verdict = one.verdict;
            relation.why = one.evidence.empty() ? "" : one.name + ": " + one.evidence;
        }
    }
    for (const CaseVerdict& one : relation.cases) {
        if (relation.verdict == Verdict::kEqual && one.verdict == Verdict::kEqual) relation.why = one.engaged.proof;
    }
    if (relation.cases.empty()) relation.why = "no case fits this server";
    relation.left_out = left_out_of(relation);
    relation.error_rate = relation.verdict == Verdict::kCorrupt ? kMeasuredErrorRate : 0;
}

size_t RelationVerdict::worst_case() const {
    return static_cast<size_t>(std::ranges::find(cases, verdict, &CaseVerdict::verdict) - cases.begin());
}

Noise noise_of(std::vector<double> changes) {
    Noise noise;
    noise.num_samples = changes.size();
    if (changes.empty()) return noise;
    noise.rms = rms_of(changes);
    std::ranges::sort(changes);
    noise.most = changes.back();
    noise.high = changes[(changes.size() - 1) * 999 / 1000];
    return noise;
}

double flip_limit(const Noise& noise, const JudgeOptions& options) {
    // Noise beyond the limit is corruption by itself, and explains nothing.
    const double rms = std::min(noise.rms, options.noise_limit);
    return std::clamp(std::max(kSigmas * rms, kTails * noise.high), kNearTie, kMostFlip);
}

RelationVerdict judge(const std::string& relation, std::vector<Trial> trials, const ServerInfo& info,
                      const Noise& floor, const JudgeOptions& options) {
    return Judge(info, floor, options).run(relation, std::move(trials));
}

}  // namespace verbatim::audit
