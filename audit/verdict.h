// audit/verdict.h: owns the judgement: equal, drift, undecided, corrupt or not tried, with the evidence and an error
// rate.
//
// An exact server promises equal bits: any difference is corruption. Any other server drifts: its arithmetic has noise,
// and near a tie of two tokens the noise decides. So the noise of the server is measured (audit/compare.h) in `again`
// and in the relation itself, and a difference is
//   drift      when the change that it takes is one that the measured noise may have
//   undecided  when nothing measures it: no log-probabilities, and no draws
//   corrupt    when it is not, when the log-probabilities before it differ by more than noise does, or when no noise
//              explains it (a text that is cut, a token that the list of the likeliest tokens denies)
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "audit/compare.h"
#include "audit/engagement.h"
#include "audit/runner.h"

namespace verbatim::audit {

enum class Verdict : uint8_t { kNotTried, kEqual, kDrift, kUndecided, kCorrupt };
[[nodiscard]] const char* name(Verdict verdict);

struct Noise {
    size_t num_samples = 0;
    double rms = 0;   // nats
    double high = 0;  // 999 of 1000 are not above it
    double most = 0;
};
[[nodiscard]] Noise noise_of(std::vector<double> changes);

struct JudgeOptions {
    bool is_exact = false;     // any difference is corruption
    double noise_limit = 0.3;  // nats, rms: more is no arithmetic's noise
    bool keeps_seeds = true;   // equal seeds gave equal answers in `again`
};

// What a flip may take at most, given the noise.
[[nodiscard]] double flip_limit(const Noise& noise, const JudgeOptions& options);

struct CaseVerdict {
    std::string name;
    Verdict verdict = Verdict::kNotTried;
    Engagement engaged;
    std::string evidence;  // or why it was not tried
    size_t worst_pair = 0;
    std::optional<Comparison> worst;  // of the pairs
};

struct RelationVerdict {
    std::string relation;
    Verdict verdict = Verdict::kNotTried;
    std::string why;       // the evidence of the worst case, or why nothing was compared
    std::string left_out;  // where some of the cases were not tried: how many were, and the others with the reasons
    std::vector<CaseVerdict> cases;
    std::vector<Trial> trials;  // of the cases, in their order
    size_t num_pairs = 0;       // compared where the path was taken
    Noise noise;
    Noise usual;  // of the median case and the floor: what a flip is held against
    double flip_limit = 0;
    double error_rate = 0;    // of `corrupt`: how often an honest server is called so
    bool keeps_seeds = true;  // no more sampled answers with equal seeds part than the noise explains
    [[nodiscard]] size_t count(Verdict of) const;
    // The first case with the relation's verdict. REQUIRES: there are cases.
    [[nodiscard]] size_t worst_case() const;
};

// `floor`: the noise of the relations before that found no corruption; of the first one, none.
[[nodiscard]] RelationVerdict judge(const std::string& relation, std::vector<Trial> trials, const ServerInfo& info,
                                    const Noise& floor, const JudgeOptions& options);

// The relation's verdict and reason, and what it leaves out, of its cases.
void conclude(RelationVerdict& relation);

// How many audits of honest noisy servers found `corrupt`, as an upper bound (docs/audit.md): none of 1000.
constexpr double kMeasuredErrorRate = 0.003;

}  // namespace verbatim::audit
