#include "audit/engagement.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace verbatim::audit {
namespace {

constexpr int64_t kLeastTimedTokens = 512;  // a shorter prefill is lost in the noise of timing
constexpr size_t kLeastTimed = 5;
constexpr double kMostOfFresh = 0.6;

// Reused tokens of the request's prompt; none: the server does not tell.
std::optional<int64_t> reused_tokens(const Trial& trial, const Need& need, const ServerInfo& info) {
    const Answer& answer = trial.answer(need.wave, need.ask);
    if (answer.cached_tokens) return answer.cached_tokens;
    if (info.reports_cached) return 0;  // some servers leave the field out where nothing was reused
    return trial.answers[need.wave].size() == 1 ? trial.metric_hits[need.wave] : std::nullopt;
}

// Of the other requests of the wave: how many had text arrive while this one's did.
size_t num_interleaved(const std::vector<Answer>& wave, size_t ask) {
    const std::vector<double>& own = wave[ask].events_s;
    if (own.size() < 2) return 0;
    size_t count = 0;
    for (size_t i = 0; i < wave.size(); ++i) {
        const auto between = [&](double at) { return at > own.front() && at < own.back(); };
        if (i != ask && std::ranges::any_of(wave[i].events_s, between)) ++count;
    }
    return count;
}

// Accepted drafts of one side, by usage, timings or metrics; none: nothing tells.
std::optional<int64_t> accepted_drafts(const Trial& trial, size_t side) {
    std::optional<int64_t> accepted;
    for (size_t wave = 0; wave < trial.answers.size(); ++wave) {
        if (side_of(trial.script, wave) != side) continue;
        for (const Answer& one : trial.answers[wave]) {
            if (one.accepted_drafts) accepted = accepted.value_or(0) + *one.accepted_drafts;
        }
    }
    if (accepted || !trial.drafts[side].is_counted) return accepted;
    return trial.drafts[side].num_accepted;
}

// Of two sides one speculated.
Engagement drafted(const Trial& trial) {
    const std::optional<int64_t> left = accepted_drafts(trial, 0);
    const std::optional<int64_t> right = accepted_drafts(trial, 1);
    if (!left && !right)
        return {false, "neither server tells how many drafted tokens it accepts (usage, timings, /metrics)"};
    if (left.value_or(0) <= 0 && right.value_or(0) <= 0) return {false, "no drafted token was accepted"};
    if (left.value_or(0) > 0 && right.value_or(0) > 0)
        return {false, "both sides accept drafted tokens: one has to run without speculation"};
    const size_t side = left.value_or(0) > 0 ? 0 : 1;
    const std::string& proof = trial.drafts[side].proof;
    return {true, proof.empty() ? fmt::format("{} drafted tokens were accepted", side == 0 ? *left : *right) : proof};
}

Engagement engagement_of(const Trial& trial, const Need& need, const ServerInfo& info) {
    const Answer& answer = trial.answer(need.wave, need.ask);
    switch (need.kind) {
        case NeedKind::kReused:
        case NeedKind::kFresh: {
            const bool wants_reuse = need.kind == NeedKind::kReused;
            const std::optional<int64_t> reused = reused_tokens(trial, need, info);
            if (!reused) return {false, "the server does not tell what it reuses (usage, /metrics)"};
            if (wants_reuse) return {*reused > 0, fmt::format("cached_tokens is {}", *reused)};
            // What stands before the fresh words, and a few of these by chance, may come from the cache.
            return {*reused <= info.words.least_tokens(),
                    fmt::format("cached_tokens is {} of a prompt that should be computed", *reused)};
        }
        case NeedKind::kTogether: {
            const size_t count = num_interleaved(trial.answers[need.wave], need.ask);
            if (count == 0) return {false, "the streams did not run at one time"};
            return {true,
                    fmt::format("{} of {} other streams ran at one time", count, trial.answers[need.wave].size() - 1)};
        }
        case NeedKind::kStreamed:
            return {answer.events_s.size() > 1, fmt::format("the text came in {} pieces", answer.events_s.size())};
        case NeedKind::kDrafted: return drafted(trial);
        case NeedKind::kRestarted: {
            const std::optional<int64_t> reused = reused_tokens(trial, need, info);
            if (reused == std::optional<int64_t>(0)) return {true, "cached_tokens is 0 after the restart"};
            if (!trial.restart_proof.empty()) return {true, trial.restart_proof};
            return {false, fmt::format("nothing shows that the server was restarted: {}",
                                       reused ? fmt::format("cached_tokens is still {}", *reused)
                                              : "it does not tell what it "
                                                "reuses, and its /metrics "
                                                "go on")};
        }
        case NeedKind::kAborted:
            if (!answer.aborted) return {false, "the answer ended before the connection was cut"};
            return {true, fmt::format("cut after {} pieces of text", answer.events_s.size())};
    }
    return {};
}

double seconds_of(const Trial& trial, const Need& need) {
    const Answer& answer = trial.answer(need.wave, need.ask);
    return answer.done_s - answer.sent_s;
}

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<long>(values.size() / 2));
    return values[values.size() / 2];
}

}  // namespace

Engagement engagement(const Trial& trial, const ServerInfo& info) {
    std::string proof;
    std::optional<int64_t> least_reused;
    int64_t most_fresh = 0;
    for (const Need& need : trial.script.needs) {
        const Engagement one = engagement_of(trial, need, info);
        if (!one.happened) return one;
        const std::optional<int64_t> reused = reused_tokens(trial, need, info);
        if (need.kind == NeedKind::kReused) least_reused = std::min(least_reused.value_or(*reused), *reused);
        if (need.kind == NeedKind::kFresh) most_fresh = std::max(most_fresh, *reused);
        if (need.kind == NeedKind::kFresh) continue;
        proof += (proof.empty() ? "" : "; ") + one.proof;
    }
    if (least_reused && *least_reused <= most_fresh)
        return {false, fmt::format("cached_tokens is {} of the fresh prompt, too", most_fresh)};
    return {true, proof};
}

Engagement engagement_by_time(std::span<const Trial> trials) {
    std::vector<double> fresh;
    std::vector<double> reused;
    for (const Trial& trial : trials) {
        if (!trial.problem.empty()) continue;
        for (const Need& need : trial.script.needs) {
            if (trial.answer(need.wave, need.ask).prompt_tokens.value_or(0) < kLeastTimedTokens) continue;
            if (need.kind == NeedKind::kFresh) fresh.push_back(seconds_of(trial, need));
            if (need.kind == NeedKind::kReused) reused.push_back(seconds_of(trial, need));
        }
    }
    if (fresh.size() < kLeastTimed || reused.size() < kLeastTimed)
        return {false,
                "the server does not tell what it reuses (usage, /metrics), and too few long prompts were timed"};
    const double ratio = median(reused) / median(fresh);
    return {ratio < kMostOfFresh, fmt::format("by timing: repeated prompts of {} tokens and more take {:.2f} of the "
                                              "first time",
                                              kLeastTimedTokens, ratio)};
}

}  // namespace verbatim::audit
