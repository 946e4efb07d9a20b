#include "audit/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <utility>

#include "audit/restart.h"

namespace verbatim::audit {

using nlohmann::ordered_json;

namespace {

const std::regex& placeholder() {
    static const std::regex kPattern(R"(\{\{(fresh|unique|answer|half|tokens) (\d{1,6})( (\d{1,6}))?\}\})");
    return kPattern;
}

template <typename Value>
std::string filled(const std::string& text, Value value_of) {
    if (text.find("{{") == std::string::npos) return text;
    std::string result;
    size_t done = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), placeholder()), end; at != end; ++at) {
        result += text.substr(done, static_cast<size_t>(at->position()) - done) + value_of(*at);
        done = static_cast<size_t>(at->position() + at->length());
    }
    return result + text.substr(done);
}

template <typename Value>
void fill(ordered_json& json, Value value_of) {
    if (json.is_string()) {
        const bool is_list = json.get<std::string>().starts_with("{{tokens ");
        std::string text = filled(json.get<std::string>(), value_of);
        json = is_list ? ordered_json::parse(text, nullptr, false) : ordered_json(std::move(text));
    } else if (json.is_structured()) {
        for (ordered_json& one : json) fill(one, value_of);
    }
}

int64_t about_tokens(const ordered_json& body) {
    return static_cast<int64_t>(body.dump().size() / 4) + body.value("max_tokens", int64_t{0});
}

}  // namespace

size_t side_of(const Case& script, size_t wave) {
    if (script.waves[wave].asks[0].server == 1) return 1;
    const auto begin = script.waves.begin();
    return std::any_of(begin, begin + static_cast<long>(wave) + 1, [](const Wave& one) { return one.restarts; }) ? 1
                                                                                                                 : 0;
}

std::string first_half(const Choice& choice) {
    std::string half;
    std::string all;
    for (const ScoredToken& token : choice.tokens) all += token.text;
    if (choice.tokens.size() > 1 && all == choice.text) {
        size_t count = choice.tokens.size() / 2;
        for (size_t i = 0; i < count; ++i) half += choice.tokens[i].text;
        // A character may be two tokens.
        while (count < choice.tokens.size() && (!is_utf8(half) || half.find("\uFFFD") != std::string::npos))
            half += choice.tokens[count++].text;
        return half.size() < choice.text.size() ? half : std::string();
    }
    const size_t space = choice.text.rfind(' ', choice.text.size() / 2);
    half = space == std::string::npos ? std::string() : choice.text.substr(0, space);
    // What stands for a part of a character is another text when it is sent.
    return half.find("\uFFFD") == std::string::npos ? half : std::string();
}

Runner::Runner(RunnerConfig config, const ServerInfo& info)
    : config_(std::move(config)), info_(info), chance_(config_.seed) {}

bool Runner::is_out_of_budget() const {
    return num_requests_ >= config_.budget.requests || num_tokens_ >= config_.budget.tokens;
}

void Runner::count(const Answer& answer, const ordered_json& body) {
    num_requests_ += 1;
    if (answer.prompt_tokens && answer.completion_tokens)
        num_tokens_ += *answer.prompt_tokens + *answer.completion_tokens;
    else if (answer.problem.empty())
        num_tokens_ += about_tokens(body);
}

std::optional<double> Runner::read_metric() {
    const std::string& name = info_.hits_metric.empty() ? info_.computed_metric : info_.hits_metric;
    return metric_value(metrics_of(*config_.server), name);
}

Status Runner::restart(Trial& trial) {
    if (!config_.restart) return error("it needs a restart: give --restart CMD");
    const std::string before = metrics_of(*config_.server);
    RETURN_IF_ERROR(config_.restart());
    ASSIGN_OR_RETURN(
        trial.restart_proof,
        wait_for_restart(*config_.server, before, {config_.restart_timeout_s, config_.sleep, config_.is_stopped}));
    return {};
}

std::vector<HttpReply> Runner::send(const Wave& wave, const std::vector<ordered_json>& bodies) {
    std::vector<HttpReply> replies(wave.asks.size());
    for (const int server : {0, 1}) {
        std::vector<HttpRequest> requests;
        std::vector<size_t> places;
        for (size_t i = 0; i < wave.asks.size(); ++i) {
            if (wave.asks[i].server != server) continue;
            const std::string body = bodies[i].dump(-1, ' ', false, ordered_json::error_handler_t::replace);
            requests.push_back({wave.asks[i].path, body, wave.asks[i].abort_after_bytes});
            places.push_back(i);
        }
        if (requests.empty()) continue;
        std::vector<HttpReply> some = (server == 0 ? config_.server : config_.against)->send(requests);
        for (size_t i = 0; i < some.size(); ++i) replies[places[i]] = std::move(some[i]);
    }
    return replies;
}

bool Runner::run_wave(size_t index, Trial& trial) {
    const Wave& wave = trial.script.waves[index];
    const auto value_of = [&](const std::smatch& match) {
        const std::string kind = match[1];
        const size_t first = std::stoul(match[2]);
        if (kind == "answer" || kind == "half" || kind == "tokens") {
            const size_t second = match[4].matched ? std::stoul(match[4]) : 0;
            if (first >= trial.answers.size() || second >= trial.answers[first].size()) return std::string();
            const Answer& answer = trial.answer(first, second);
            if (answer.choices.empty()) return std::string();
            return kind == "half" ? first_half(answer.choices[0]) : answer.choices[0].text;
        }
        const auto [at, is_new] = trial.words.try_emplace(kind + " " + match[2].str());
        if (is_new) at->second = kind == "fresh" ? info_.words.fresh(chance_) : fmt::format("{:016x}", chance_.next());
        return at->second;
    };
    std::vector<ordered_json> bodies;
    for (const Ask& ask : wave.asks) {
        bodies.push_back(ask.body);
        fill(bodies.back(), value_of);
    }
    const auto is_other = [](const Ask& ask) { return ask.server == 1; };
    const bool reads = std::ranges::none_of(wave.asks, is_other) && !info_.reports_cached &&
                       !(info_.hits_metric.empty() && info_.computed_metric.empty());
    const std::optional<double> before = reads ? read_metric() : std::nullopt;
    std::vector<Answer> answers;
    for (const HttpReply& reply : send(wave, bodies)) answers.push_back(parse_answer(reply));
    for (size_t i = 0; i < answers.size(); ++i) count(answers[i], bodies[i]);
    std::optional<int64_t> hits;
    if (const std::optional<double> after = reads ? read_metric() : std::nullopt; before && after) {
        const auto change = static_cast<int64_t>(*after - *before);
        hits = info_.hits_metric.empty() ? answers[0].prompt_tokens.value_or(change) - change : change;
    }
    for (size_t i = 0; i < answers.size(); ++i) {
        if (!answers[i].problem.empty() && trial.problem.empty())
            trial.problem = fmt::format("request {} of wave {}: {}", i, index, answers[i].problem);
    }
    trial.sent.push_back(std::move(bodies));
    trial.answers.push_back(std::move(answers));
    trial.metric_hits.push_back(hits);
    return trial.problem.empty();
}

Trial Runner::run(const Case& script, std::map<std::string, std::string> words) {
    Trial trial;
    trial.script = script;
    trial.words = std::move(words);
    const auto is_drafted = [](const Need& need) { return need.kind == NeedKind::kDrafted; };
    const bool counts_drafts = std::ranges::any_of(script.needs, is_drafted);
    for (size_t wave = 0; wave < script.waves.size(); ++wave) {
        const auto asked = static_cast<int64_t>(script.waves[wave].asks.size());
        if (is_stopped()) {
            trial.problem = "interrupted";
            return trial;
        }
        if (is_out_of_budget() || num_requests_ + asked > config_.budget.requests) {
            trial.problem = fmt::format("the budget is used up ({} requests, {} tokens)", num_requests_, num_tokens_);
            trial.out_of_budget = true;
            return trial;
        }
        const auto is_other = [](const Ask& ask) { return ask.server == 1; };
        if (config_.against == nullptr && std::ranges::any_of(script.waves[wave].asks, is_other)) {
            trial.problem = "it needs a second server: give --against URL";
            return trial;
        }
        if (script.waves[wave].restarts) {
            if (const Status restarted = restart(trial); !restarted) {
                trial.problem = restarted.error().message;
                return trial;
            }
        }
        const size_t side = side_of(script, wave);
        Transport& server = *(script.waves[wave].asks[0].server == 1 ? config_.against : config_.server);
        const std::string before = counts_drafts ? metrics_of(server) : std::string();
        if (!run_wave(wave, trial)) return trial;
        if (counts_drafts) trial.drafts[side].add(drafts_between(before, metrics_of(server)));
    }
    return trial;
}

}  // namespace verbatim::audit
