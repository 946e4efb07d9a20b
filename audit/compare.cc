#include "audit/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace verbatim::audit {
namespace {

constexpr double kGreedySlack = 0.1;  // nats: a server may round what it reports
constexpr size_t kShownText = 40;
constexpr const char* kOtherTokens = "the text is other tokens when it is sent as a prompt";
const std::string kReplacement = "\uFFFD";

struct Side {
    std::string text;
    std::string finish_reason;
    std::vector<ScoredToken> tokens;
    std::optional<int64_t> completion_tokens;
    int64_t max_tokens = 0;
    size_t num_copied = 0;  // tokens at the beginning that are the other answer's own
};

Side side_of(const Answer& answer, size_t choice, const nlohmann::ordered_json& body) {
    Side side;
    side.text = answer.choices[choice].text;
    side.finish_reason = answer.choices[choice].finish_reason;
    side.tokens = answer.choices[choice].tokens;
    // max_tokens may end an answer inside a character: servers show that as U+FFFD, or hold it back.
    while (side.finish_reason == "length" && side.text.ends_with(kReplacement))
        side.text.resize(side.text.size() - kReplacement.size());
    if (answer.choices.size() == 1) side.completion_tokens = answer.completion_tokens;
    side.max_tokens = body.value("max_tokens", int64_t{0});
    return side;
}

// Puts the left answer's beginning before the right one. Returns why that cannot be.
std::string put_before(const Answer& left, const Answer& right, const Side& whole, Side& rest) {
    const std::string half = first_half(left.choices[0]);
    if (half.empty()) return "the answer is too short to be cut, or has parts of characters";
    rest.text = half + rest.text;
    size_t count = 0;
    std::string text;
    while (count < whole.tokens.size() && text.size() < half.size()) text += whole.tokens[count++].text;
    const bool is_aligned = text == half && !rest.tokens.empty();
    if (!is_aligned) {
        rest.tokens.clear();
    } else {
        rest.num_copied = count;
        rest.tokens.insert(rest.tokens.begin(), whole.tokens.begin(), whole.tokens.begin() + static_cast<long>(count));
        if (left.prompt_tokens && right.prompt_tokens &&
            *right.prompt_tokens != *left.prompt_tokens + static_cast<int64_t>(count))
            return fmt::format("{}: {} instead of {}", kOtherTokens, *right.prompt_tokens,
                               *left.prompt_tokens + static_cast<int64_t>(count));
    }
    rest.completion_tokens.reset();
    // The rest may be longer than what was cut off, where max_tokens ended the whole.
    if (whole.finish_reason == "length" && rest.text.size() >= whole.text.size()) {
        rest.text.resize(whole.text.size());
        if (rest.tokens.size() > whole.tokens.size()) rest.tokens.resize(whole.tokens.size());
        rest.finish_reason = whole.finish_reason;
    }
    return {};
}

std::optional<double> log_prob_of(const ScoredToken& in, const std::string& text) {
    for (const auto& [other, log_prob] : in.top) {
        if (other == text) return log_prob;
    }
    return in.text == text ? std::optional(in.log_prob) : std::nullopt;
}

void add_changes(const ScoredToken& left, const ScoredToken& right, Comparison& result) {
    if (left.log_prob != right.log_prob) result.is_equal = false;
    bool any = false;
    for (const auto& [text, log_prob] : left.top) {
        const std::optional<double> other = log_prob_of(right, text);
        if (text == left.text || !other) continue;
        if (*other != log_prob) result.is_equal = false;
        result.changes.push_back(std::abs((left.log_prob - log_prob) - (right.log_prob - *other)));
        any = true;
    }
    if (!any) result.changes.push_back(std::abs(left.log_prob - right.log_prob));
}

// Half the sum of the differences of probabilities, over what both lists have.
double total_variation(const ScoredToken& left, const ScoredToken& right) {
    double sum = 0;
    for (const auto& [text, log_prob] : left.top) {
        const std::optional<double> other = log_prob_of(right, text);
        if (other) sum += std::abs(std::exp(log_prob) - std::exp(*other));
    }
    return sum / 2;
}

double least_of(const ScoredToken& token) {
    double least = token.log_prob;
    for (const auto& [text, log_prob] : token.top) least = std::min(least, log_prob);
    return least;
}

double gap_of_two(const ScoredToken& token) {
    return token.top.size() < 2 ? 0 : token.top[0].second - token.top[1].second;
}

// One answer's preference for the token that it took over the other answer's.
double preference(const ScoredToken& of, const std::string& other, bool& is_least) {
    const std::optional<double> log_prob = log_prob_of(of, other);
    if (!log_prob) is_least = true;
    return of.log_prob - log_prob.value_or(least_of(of));
}

std::string greedy_problem(const ScoredToken& token) {
    if (token.top.empty()) return {};
    const auto listed = [&](const auto& entry) { return entry.first == token.text; };
    if (token.top.size() > 1 && std::ranges::none_of(token.top, listed))
        return fmt::format("the token {:?} is not in the server's own list of the likeliest", token.text);
    if (token.top[0].second - token.log_prob > kGreedySlack)
        return fmt::format(
            "the token {:?} was chosen at temperature 0, and the server's own list has {:?} {:.3f} nats "
            "before it",
            token.text, token.top[0].first, token.top[0].second - token.log_prob);
    return {};
}

bool has_list(const ScoredToken& token) { return !token.top.empty(); }

// Of the first `count` tokens some have no list of the likeliest where the other answer has one, though others of the
// same answer have theirs: llama.cpp's server leaves them out for accepted drafts. Empty: none.
std::string missing_lists(const Side& left, const Side& right, size_t count) {
    for (const auto& [one, other] : {std::pair(&left, &right), std::pair(&right, &left)}) {
        size_t num_missing = 0;
        for (size_t i = one->num_copied; i < count; ++i)
            num_missing += !has_list(one->tokens[i]) && has_list(other->tokens[i]) ? 1 : 0;
        if (num_missing > 0 && std::ranges::any_of(one->tokens, has_list))
            return fmt::format(
                "{} of {} tokens of one answer come without the list of the likeliest, which the other "
                "answer has of them",
                num_missing, one->tokens.size());
    }
    return {};
}

// Where a greedy answer and its lists of the likeliest tokens do not agree; empty: nowhere.
std::string list_problem(const std::vector<ScoredToken>& tokens) {
    for (size_t at = 0; at < tokens.size(); ++at) {
        const ScoredToken& token = tokens[at];
        if (token.top.empty() || token.top[0].second - token.log_prob <= kGreedySlack) continue;
        return fmt::format(
            "token {}: {:?} was chosen at temperature 0, and the server's own list has {:?} {:.3f} nats "
            "before it",
            at, token.text, token.top[0].first, token.top[0].second - token.log_prob);
    }
    return {};
}

// One answer ends where the other one goes on.
void compare_ends(const Side& shorter, const Side& longer, size_t position, bool is_sampled, Comparison& result) {
    const bool is_cut = shorter.finish_reason == "length" &&
                        static_cast<int64_t>(position) < std::min(shorter.max_tokens, longer.max_tokens);
    if (is_cut) {
        result.impossible = fmt::format("an answer ends after {} tokens with finish_reason length, max_tokens is {}",
                                        position, shorter.max_tokens);
    } else if (shorter.completion_tokens && shorter.completion_tokens == longer.completion_tokens) {
        result.impossible = fmt::format("usage counts {} tokens of both answers, and one has {} of them",
                                        *shorter.completion_tokens, position);
    } else if (!is_sampled && position < longer.tokens.size()) {
        result.flip = gap_of_two(longer.tokens[position]);
        result.is_least = true;
    }
}

void compare_tokens(const Side& left, const Side& right, bool is_sampled, Comparison& result) {
    const size_t common = std::min(left.tokens.size(), right.tokens.size());
    size_t at = 0;
    for (; at < common && left.tokens[at].text == right.tokens[at].text; ++at) {
        if (at < right.num_copied) continue;
        add_changes(left.tokens[at], right.tokens[at], result);
        result.distance += total_variation(left.tokens[at], right.tokens[at]);
    }
    result.position = at;
    if (result.impossible.empty()) result.impossible = missing_lists(left, right, at);
    if (at == common && left.tokens.size() == right.tokens.size()) {
        if (!result.same_text) result.impossible = "the tokens are equal and the texts differ";
        return;
    }
    result.same_text = false;
    if (at < left.tokens.size()) result.left_text = left.tokens[at].text;
    if (at < right.tokens.size()) result.right_text = right.tokens[at].text;
    if (at == common) {
        const bool left_ends = left.tokens.size() < right.tokens.size();
        compare_ends(left_ends ? left : right, left_ends ? right : left, at, is_sampled, result);
        return;
    }
    const ScoredToken& a = left.tokens[at];
    const ScoredToken& b = right.tokens[at];
    result.distance += total_variation(a, b);
    result.flip = preference(a, b.text, result.is_least) + preference(b, a.text, result.is_least);
    if (is_sampled) return;
    for (const ScoredToken* token : {&a, &b}) {
        if (result.impossible.empty()) result.impossible = greedy_problem(*token);
    }
}

// The least change that makes `side` go on as `other` does from byte `at`, where the texts part: the gap of the two
// likeliest tokens at the place that covers it, or a smaller gap to a token that was likely at an earlier place and
// reaches beyond `at`, as "sun" does where the answer has "su" and " night". None: no token covers the byte.
std::optional<double> gap_where_texts_part(const Side& side, const std::string& other, size_t at) {
    double least = std::numeric_limits<double>::infinity();
    size_t begin = 0;
    for (const ScoredToken& token : side.tokens) {
        if (begin + token.text.size() > at) return std::min(least, gap_of_two(token));
        for (const auto& [text, log_prob] : token.top) {
            const bool is_other = begin + text.size() > at && other.compare(begin, text.size(), text) == 0;
            if (is_other) least = std::min(least, token.log_prob - log_prob);
        }
        begin += token.text.size();
    }
    return std::nullopt;
}

// At most one has tokens: the gap of the likeliest two where the texts part bounds what noise has to do.
void compare_texts(const Side& left, const Side& right, bool is_sampled, Comparison& result) {
    const auto [a, b] = std::ranges::mismatch(left.text, right.text);
    const auto at = static_cast<size_t>(a - left.text.begin());
    result.position = at;
    if (result.same_text) return;
    result.left_text = left.text.substr(at, kShownText);
    result.right_text = right.text.substr(at, kShownText);
    if (left.text.size() == at || right.text.size() == at) {
        const Side& shorter = left.text.size() == at ? left : right;
        const Side& longer = left.text.size() == at ? right : left;
        if (shorter.completion_tokens && shorter.completion_tokens == longer.completion_tokens)
            result.impossible = fmt::format("usage counts {} tokens of both answers, and one lacks its end",
                                            *shorter.completion_tokens);
    }
    if (is_sampled) return;
    for (const auto& [with, without] : {std::pair(&left, &right), std::pair(&right, &left)}) {
        const std::optional<double> gap = gap_where_texts_part(*with, without->text, at);
        if (!gap) continue;
        result.flip = gap;
        result.is_least = true;
    }
}

void compare_scores(const Answer& left, const Answer& right, Comparison& result) {
    const std::vector<ScoredToken>& drawn = left.choices[0].tokens;
    const std::vector<ScoredToken>& echoed = right.choices[0].tokens;
    const auto first = static_cast<size_t>(left.prompt_tokens.value_or(0));
    if (echoed.size() < first + drawn.size() || first == 0) {
        result.problem = "the echo has fewer tokens than prompt and answer";
        return;
    }
    result.has_scores = result.same_text = true;
    for (size_t i = 0; i < drawn.size(); ++i) {
        // A part of a character has no text that could be sent back.
        const bool is_cut = drawn[i].text.find(kReplacement) != std::string::npos;
        if (is_cut || echoed[first + i].text != drawn[i].text) {
            result.problem = kOtherTokens;
            result.changes.clear();
            return;
        }
        add_changes(drawn[i], echoed[first + i], result);
    }
}

std::string fault_of(const Answer& answer, const ServerInfo& info) {
    if (!answer.faults.empty()) return answer.faults[0];
    if (answer.is_stream && info.has_end_mark && !answer.has_end_mark) return "a stream ends without [DONE]";
    for (const Choice& choice : answer.choices) {
        if (info.has_finish_reason && choice.finish_reason.empty()) return "an answer has no finish_reason";
    }
    return {};
}

}  // namespace

Comparison compare(const Trial& trial, const Pair& pair, const ServerInfo& info) {
    Comparison result;
    const Answer& left = trial.answer(pair.left.wave, pair.left.ask);
    const Answer& right = trial.answer(pair.right.wave, pair.right.ask);
    result.is_equal = true;
    for (const Answer* answer : {&left, &right}) {
        if (result.impossible.empty()) result.impossible = fault_of(*answer, info);
    }
    if (left.choices.size() <= pair.left.choice || right.choices.size() <= pair.right.choice) {
        if (result.impossible.empty()) result.problem = "an answer has fewer choices than were asked for";
        result.is_equal = false;
        return result;
    }
    if (pair.same_prompt && left.prompt_tokens != right.prompt_tokens) {
        const int64_t of_left = left.prompt_tokens.value_or(0);
        const int64_t of_right = right.prompt_tokens.value_or(0);
        const std::string what = fmt::format("the chat's prompt has {} tokens, the rendered one {}", of_left, of_right);
        // A text that is sent as a prompt may get the first token once more; token ids may not.
        const bool is_text = trial.sent[pair.right.wave][pair.right.ask]["prompt"].is_string();
        if (is_text && of_right == of_left + 1)
            result.problem = what + ": the first token is added again";
        else
            result.impossible = what;
        result.is_equal = false;
        return result;
    }
    if (pair.scores_only) {
        compare_scores(left, right, result);
        return result;
    }
    const Side a = side_of(left, pair.left.choice, trial.sent[pair.left.wave][pair.left.ask]);
    Side b = side_of(right, pair.right.choice, trial.sent[pair.right.wave][pair.right.ask]);
    if (pair.chosen_first && result.impossible.empty()) result.impossible = list_problem(a.tokens);
    if (pair.continues) result.problem = put_before(left, right, a, b);
    if (!result.problem.empty()) return result;
    result.same_text = a.text == b.text;
    result.has_scores = !a.tokens.empty() && !b.tokens.empty();
    const bool cut_left = a.text.find(kReplacement) != std::string::npos;
    const bool cut_right = b.text.find(kReplacement) != std::string::npos;
    if (result.has_scores)
        compare_tokens(a, b, trial.script.is_sampled, result);
    else
        compare_texts(a, b, trial.script.is_sampled, result);
    // An answer need not be the tokens that its text is as a prompt, and then its rest is an honest other one.
    if (pair.continues && b.num_copied == 0 && !result.same_text && result.impossible.empty()) {
        result = {};
        result.problem =
            "the texts differ, and whether the first half is the same tokens as a prompt is not known: the "
            "server gives no tokens, or tokens that do not spell the text";
        return result;
    }
    if (!result.same_text && cut_left != cut_right && result.impossible.empty() && !result.flip)
        result.impossible = "one text has U+FFFD where a character was cut";
    if (result.same_text && a.finish_reason != b.finish_reason && result.impossible.empty())
        result.impossible =
            fmt::format("equal texts end with finish_reason {:?} and {:?}", a.finish_reason, b.finish_reason);
    result.is_equal = result.is_equal && result.same_text && result.impossible.empty();
    return result;
}

}  // namespace verbatim::audit
