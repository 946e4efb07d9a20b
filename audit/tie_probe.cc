#include "audit/tie_probe.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace verbatim::audit {
namespace {

constexpr int64_t kDraws = 48;
constexpr int64_t kDrawnTokens = 8;
constexpr int64_t kLeastDraws = 20;       // of the two continuations together
constexpr double kNearTieShare = 0.3775;  // of the less likely of two tokens that are 0.5 nats apart
constexpr double kDenied = 1e-4;

// Where the last word before the difference begins: tokens seldom span a space.
size_t word_begin(const std::string& text, size_t position) {
    const size_t space = position == 0 ? std::string::npos : text.rfind(' ', position - 1);
    return space == std::string::npos ? 0 : space;
}

// From the word's begin up to the character that differs, whole.
std::string continuation(const std::string& text, size_t begin, size_t position) {
    size_t end = std::min(position + 1, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) ++end;
    return text.substr(begin, end - begin);
}

}  // namespace

double binomial_at_most(int64_t n, double p, int64_t k) {
    double sum = 0;
    for (int64_t i = 0; i <= k; ++i) {
        const auto x = static_cast<double>(i);
        const auto m = static_cast<double>(n);
        sum += std::exp(std::lgamma(m + 1) - std::lgamma(x + 1) - std::lgamma(m - x + 1) + x * std::log(p) +
                        (m - x) * std::log1p(-p));
    }
    return std::min(1.0, sum);
}

bool TieProbe::denies_tie() const { return problem.empty() && probability < kDenied; }

TieProbe probe_tie(const Trial& trial, const Pair& pair, const Comparison& comparison, const ServerInfo& info,
                   Runner& runner) {
    TieProbe probe;
    const nlohmann::ordered_json& sent = trial.sent[pair.left.wave][pair.left.ask];
    // A continued answer begins with the other one's first half.
    const std::string half =
        pair.continues ? first_half(trial.answer(pair.left.wave, pair.left.ask).choices[0]) : std::string();
    const std::string& left = trial.answer(pair.left.wave, pair.left.ask).choices[pair.left.choice].text;
    const std::string right = half + trial.answer(pair.right.wave, pair.right.ask).choices[pair.right.choice].text;
    if (info.is_chat || !sent.contains("prompt") || !sent["prompt"].is_string()) {
        probe.problem = "a text cannot be continued there";
        return probe;
    }
    const size_t begin = word_begin(left, comparison.position);
    const std::string to_left = continuation(left, begin, comparison.position);
    const std::string to_right = continuation(right, begin, comparison.position);
    Case script;
    script.relation = "draws";
    for (int64_t i = 0; i < kDraws; ++i) {
        AskOptions options;
        options.max_tokens = kDrawnTokens;
        options.log_probs = false;
        options.seed = static_cast<uint64_t>(i);
        script.waves.push_back(
            {{make_ask(info, {sent["prompt"].get<std::string>() + left.substr(0, begin)}, options)}});
    }
    const Trial draws = runner.run(script);
    probe.problem = draws.problem;
    for (const auto& wave : draws.answers) {
        if (wave[0].choices.empty()) continue;
        const std::string& text = wave[0].choices[0].text;
        ++probe.num_draws;
        // An answer may end where the other one goes on: then the longer continuation counts.
        const bool goes_left = text.starts_with(to_left);
        if (text.starts_with(to_right) && (!goes_left || to_right.size() >= to_left.size()))
            ++probe.num_right;
        else if (goes_left)
            ++probe.num_left;
    }
    const int64_t both = probe.num_left + probe.num_right;
    probe.probability = binomial_at_most(both, kNearTieShare, std::min(probe.num_left, probe.num_right));
    if (both < kLeastDraws && probe.problem.empty()) probe.problem = "too few draws go on like either answer";
    return probe;
}

}  // namespace verbatim::audit
