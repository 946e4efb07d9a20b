#include "audit/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace verbatim::audit {
namespace {

using nlohmann::json;

constexpr size_t kShownBytes = 200;

const json& member(const json& object, const char* name) {
    static const json kNull;
    if (!object.is_object()) return kNull;
    const auto found = object.find(name);
    return found == object.end() ? kNull : *found;
}

std::optional<int64_t> count_of(const json& value) {
    if (!value.is_number()) return std::nullopt;
    return value.get<int64_t>();
}

std::string text_of(const json& value) { return value.is_string() ? value.get<std::string>() : std::string(); }

// Likeliest first. Several ids may have one text (special tokens have none): the likeliest stands for it.
void sort_top(ScoredToken& token) {
    std::ranges::stable_sort(token.top, std::greater<>(), &std::pair<std::string, double>::second);
    std::set<std::string> seen;
    std::erase_if(token.top, [&](const auto& entry) { return !seen.insert(entry.first).second; });
}

// {"tokens": [...], "token_logprobs": [...], "top_logprobs": [{...}]} of completions.
void add_completion_scores(const json& scores, Choice& choice) {
    const json& tokens = member(scores, "tokens");
    const json& log_probs = member(scores, "token_logprobs");
    const json& tops = member(scores, "top_logprobs");
    for (size_t i = 0; i < tokens.size() && i < log_probs.size(); ++i) {
        ScoredToken token;
        token.text = text_of(tokens[i]);
        token.log_prob = log_probs[i].is_number() ? log_probs[i].get<double>() : 0;
        if (tops.is_array() && i < tops.size() && tops[i].is_object()) {
            for (const auto& [text, value] : tops[i].items()) {
                if (value.is_number()) token.top.emplace_back(text, value.get<double>());
            }
        }
        sort_top(token);
        choice.tokens.push_back(std::move(token));
    }
}

// {"content": [{"token", "logprob", "top_logprobs": [{"token", "logprob"}]}]} of chats.
void add_chat_scores(const json& content, Choice& choice) {
    for (const json& one : content) {
        ScoredToken token;
        token.text = text_of(member(one, "token"));
        const json& log_prob = member(one, "logprob");
        token.log_prob = log_prob.is_number() ? log_prob.get<double>() : 0;
        for (const json& other : member(one, "top_logprobs")) {
            const json& value = member(other, "logprob");
            if (value.is_number()) token.top.emplace_back(text_of(member(other, "token")), value.get<double>());
        }
        sort_top(token);
        choice.tokens.push_back(std::move(token));
    }
}

void add_choice(const json& from, Answer& answer) {
    const auto index = static_cast<size_t>(std::clamp<int64_t>(count_of(member(from, "index")).value_or(0), 0, 127));
    if (answer.choices.size() <= index) answer.choices.resize(index + 1);
    Choice& choice = answer.choices[index];
    for (const char* name : {"message", "delta"}) {
        choice.text += text_of(member(member(from, name), "reasoning_content"));
        choice.text += text_of(member(member(from, name), "content"));
    }
    choice.text += text_of(member(from, "text"));
    const std::string reason = text_of(member(from, "finish_reason"));
    if (!reason.empty()) choice.finish_reason = reason;
    const json& scores = member(from, "logprobs");
    if (member(scores, "content").is_array())
        add_chat_scores(member(scores, "content"), choice);
    else
        add_completion_scores(scores, choice);
}

bool has_text(const json& body) {
    for (const json& choice : member(body, "choices")) {
        if (!text_of(member(choice, "text")).empty()) return true;
        if (!text_of(member(member(choice, "delta"), "content")).empty()) return true;
    }
    return false;
}

// What /apply-template and /tokenize answer stands for a text.
void add_rendering(const json& body, Answer& answer) {
    if (member(body, "tokens").is_array())
        answer.choices.push_back({member(body, "tokens").dump(), "stop", {}});
    else if (member(body, "prompt").is_string())
        answer.choices.push_back({text_of(member(body, "prompt")), "stop", {}});
}

void add_body(const json& body, Answer& answer) {
    const json& error = member(body, "error");
    if (!error.is_null() && !error.empty()) {
        const std::string said = text_of(member(error, "message"));
        answer.problem = "the server says: " + (said.empty() ? error.dump().substr(0, kShownBytes) : said);
        return;
    }
    for (const json& choice : member(body, "choices")) add_choice(choice, answer);
    add_rendering(body, answer);
    const json& usage = member(body, "usage");
    if (const auto count = count_of(member(usage, "prompt_tokens"))) answer.prompt_tokens = count;
    if (const auto count = count_of(member(usage, "completion_tokens"))) answer.completion_tokens = count;
    if (const auto count = count_of(member(member(usage, "prompt_tokens_details"), "cached_tokens")))
        answer.cached_tokens = count;
    const json& details = member(usage, "completion_tokens_details");
    if (const auto count = count_of(member(details, "accepted_prediction_tokens"))) answer.accepted_drafts = count;
    if (const auto count = count_of(member(member(body, "timings"), "draft_n_accepted")))
        answer.accepted_drafts = count;
    // llama.cpp's server.
    if (const auto count = count_of(member(member(body, "timings"), "cache_n")); count && !answer.cached_tokens)
        answer.cached_tokens = count;
    const std::string fingerprint = text_of(member(body, "system_fingerprint"));
    if (!fingerprint.empty()) answer.fingerprint = fingerprint;
}

std::string shown(std::string text) {
    if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
    return text;
}

// One line "data: ..." of a stream.
void add_event(const std::string& data, double at_s, Answer& answer) {
    if (data == "[DONE]") {
        answer.has_end_mark = true;
        return;
    }
    if (!is_utf8(data)) answer.faults.push_back("an event is no UTF-8: a character is cut");
    const json body = json::parse(data, nullptr, false);
    if (body.is_discarded()) {
        if (is_utf8(data)) answer.faults.push_back("an event is no JSON: " + shown(data));
        return;
    }
    add_body(body, answer);
    if (has_text(body)) answer.events_s.push_back(at_s);
}

void add_stream(const HttpReply& reply, Answer& answer) {
    answer.is_stream = true;
    std::string line;
    for (const Arrival& arrival : reply.arrivals) {
        for (const char c : arrival.bytes) {
            if (c != '\n') {
                line += c;
                continue;
            }
            if (line.ends_with('\r')) line.pop_back();
            if (line.starts_with("data:"))
                add_event(line.substr(line.starts_with("data: ") ? 6 : 5), arrival.at_s, answer);
            line.clear();
        }
    }
    if (!reply.aborted && line.starts_with("data:")) answer.faults.push_back("the stream ends inside an event");
}

}  // namespace

std::string error_text(const HttpReply& reply) {
    if (!reply.problem.empty()) return reply.problem;
    const std::string body = reply.body();
    const json parsed = json::parse(body, nullptr, false);
    std::string said;
    for (const json* at : {&member(parsed, "error"), &parsed}) {
        if (said.empty()) said = text_of(member(*at, "message"));
        if (said.empty()) said = text_of(*at);
        if (said.empty()) said = text_of(member(*at, "detail"));
    }
    return fmt::format("HTTP {}: {}", reply.status, shown(said.empty() ? body : said));
}

Answer parse_answer(const HttpReply& reply) {
    Answer answer;
    answer.status = reply.status;
    answer.sent_s = reply.sent_s;
    answer.done_s = reply.done_s;
    answer.aborted = reply.aborted;
    if (!reply.problem.empty() || reply.status != 200) {
        answer.problem = error_text(reply);
        return answer;
    }
    if (reply.content_type.starts_with("text/event-stream")) {
        add_stream(reply, answer);
    } else {
        const std::string body = reply.body();
        const json parsed = json::parse(body, nullptr, false);
        if (!is_utf8(body))
            answer.faults.push_back("the body is no UTF-8: a character is cut");
        else if (parsed.is_discarded())
            answer.problem = fmt::format("the answer is no JSON ({}): {}", reply.content_type, shown(body));
        else
            add_body(parsed, answer);
    }
    if (answer.problem.empty() && answer.faults.empty() && !answer.aborted && answer.choices.empty())
        answer.problem = "the answer has no choices: is this an OpenAI-compatible server?";
    return answer;
}

nlohmann::ordered_json answer_json(const Answer& answer) {
    nlohmann::ordered_json result;
    if (!answer.problem.empty()) result["problem"] = answer.problem;
    if (!answer.faults.empty()) result["faults"] = answer.faults;
    if (answer.aborted) result["aborted"] = true;
    result["choices"] = nlohmann::ordered_json::array();
    for (const Choice& choice : answer.choices) {
        nlohmann::ordered_json one = {{"text", choice.text}, {"finish_reason", choice.finish_reason}};
        for (const ScoredToken& token : choice.tokens) {
            nlohmann::ordered_json top = nlohmann::ordered_json::array();
            for (const auto& [text, log_prob] : token.top) top.push_back({text, log_prob});
            one["tokens"].push_back({{"text", token.text}, {"logprob", token.log_prob}, {"top", std::move(top)}});
        }
        result["choices"].push_back(std::move(one));
    }
    const auto add_count = [&](const char* name, const std::optional<int64_t>& count) {
        if (count) result[name] = *count;
    };
    add_count("prompt_tokens", answer.prompt_tokens);
    add_count("completion_tokens", answer.completion_tokens);
    add_count("cached_tokens", answer.cached_tokens);
    return result;
}

}  // namespace verbatim::audit
