#include "audit/server_info.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

namespace verbatim::audit {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int64_t kTopTokens = 5;
constexpr int64_t kProbeTokens = 1100;  // longer than two blocks of 528
constexpr int64_t kRepeats = 8;         // of a word whose cost is measured

struct KnownMetrics {
    const char* engine;
    const char* prefix;
    const char* hits;
    const char* computed;
};
// In this order: Verbatim has vLLM's names, too.
constexpr std::array kKnownMetrics = {
    KnownMetrics{"Verbatim", "verbatim:", "vllm:prefix_cache_hits_total", ""},
    KnownMetrics{"vLLM", "vllm:", "vllm:prefix_cache_hits_total", ""},
    KnownMetrics{"vLLM", "vllm:", "vllm:gpu_prefix_cache_hits_total", ""},
    KnownMetrics{"SGLang", "sglang:", "sglang:cached_tokens_total", ""},
    KnownMetrics{"llama.cpp", "llamacpp:", "", "llamacpp:prompt_tokens_total"},
};

bool is_html(const HttpReply& reply) {
    return reply.content_type.starts_with("text/html") || reply.body().starts_with("<");
}

class Discovery {
public:
    Discovery(Transport& transport, const DiscoverOptions& options)
        : transport_(transport), options_(options), chance_(options.seed) {}

    Result<ServerInfo> run() {
        RETURN_IF_ERROR(find_model());
        RETURN_IF_ERROR(find_endpoint());
        find_penalties();
        find_stream();
        find_extras();
        find_metrics();
        measure_words();
        find_cache();
        return std::move(info_);
    }

private:
    HttpReply get(const std::string& path) { return transport_.send(std::vector<HttpRequest>{{path, ""}})[0]; }
    HttpReply post(const std::string& path, const ordered_json& body) {
        return transport_.send(std::vector<HttpRequest>{{path, body.dump()}})[0];
    }
    Answer ask(const Ask& ask) { return parse_answer(post(ask.path, ask.body)); }

    Status find_model() {
        const HttpReply reply = get("/v1/models");
        if (!reply.problem.empty()) return error("no answer: {}", reply.problem);
        if (reply.status == 401 || reply.status == 403)
            return error("/v1/models: {}: put the key into the environment (--key-env NAME)", error_text(reply));
        if (is_html(reply) && options_.model.empty())
            return error("/v1/models answers a web page: the address is not that of an OpenAI-compatible server");
        info_.model = options_.model;
        const json body = json::parse(reply.body(), nullptr, false);
        if (reply.status != 200 || !body.is_object() || !body.contains("data") || !body["data"].is_array()) {
            if (!options_.model.empty()) return {};
            const char* hint = reply.status == 404 ? "wanted the server's address without a path, or up to /v1; " : "";
            return error("/v1/models: {}: {}a server that lists no models needs --model NAME", error_text(reply), hint);
        }
        for (const json& one : body["data"]) {
            const std::string id = one.value("id", "");
            if (info_.model.empty()) info_.model = id;
            if (id != info_.model) continue;
            for (const char* name : {"max_model_len", "context_length", "context_window"}) {
                if (one.contains(name) && one[name].is_number()) info_.max_tokens = one[name].get<int64_t>();
            }
            if (one.contains("meta") && one["meta"].is_object() && one["meta"].contains("n_ctx"))
                info_.max_tokens = one["meta"]["n_ctx"].get<int64_t>();
        }
        if (info_.model.empty()) return error("/v1/models lists no model");
        return {};
    }

    // With log-probabilities, and without where they are refused.
    Answer try_endpoint(bool is_chat) {
        info_.is_chat = is_chat;
        info_.has_log_probs = true;
        const std::vector<std::string> turns = {"Name three colours."};
        Answer answer = ask(make_ask(info_, turns, {.max_tokens = 4}));
        if (!answer.problem.empty() && answer.status >= 400 && answer.status < 600 && answer.status != 404) {
            info_.has_log_probs = false;
            Answer plain = ask(make_ask(info_, turns, {.max_tokens = 4, .log_probs = false}));
            return plain;
        }
        return answer;
    }

    Status find_endpoint() {
        std::vector<bool> kinds = {false, true};
        if (!options_.endpoint.empty()) kinds = {options_.endpoint == "chat"};
        std::string said;
        for (const bool is_chat : kinds) {
            const Answer answer = try_endpoint(is_chat);
            if (answer.is_answer() && answer.faults.empty()) {
                info_.has_log_probs = !answer.choices[0].tokens.empty();
                info_.fingerprint = answer.fingerprint;
                info_.is_exact = answer.fingerprint.starts_with("exact/") || answer.fingerprint.starts_with("tensor.");
                info_.has_chat = is_chat;
                has_finish_reason_ = !answer.choices[0].finish_reason.empty();
                return {};
            }
            said +=
                fmt::format("{}{}: {}", said.empty() ? "" : "; ", is_chat ? "/v1/chat/completions" : "/v1/completions",
                            answer.faults.empty() ? answer.problem : answer.faults[0]);
            if (answer.status == 401 || answer.status == 403)
                return error("{}: put the key into the environment (--key-env NAME)", said);
        }
        return error("no endpoint answers: {}", said);
    }

    // Penalties that a model's generation_config.json brings change what is chosen, not the log-probabilities.
    void find_penalties() {
        const ordered_json fields = {{"repetition_penalty", 1.0}, {"presence_penalty", 0}, {"frequency_penalty", 0}};
        Ask one = make_ask(info_, {"Name three colours."}, {.max_tokens = 4});
        one.body.update(fields);
        if (ask(one).is_answer()) info_.neutral = fields;
    }

    void find_stream() {
        const std::vector<std::string> turns = {"Name three colours."};
        info_.has_stream_usage = true;
        Answer answer = ask(make_ask(info_, turns, {.max_tokens = 4, .streams = true}));
        if (!answer.problem.empty()) {
            info_.has_stream_usage = false;
            answer = ask(make_ask(info_, turns, {.max_tokens = 4, .streams = true}));
        }
        info_.has_stream_usage = info_.has_stream_usage && answer.completion_tokens.has_value();
        info_.has_end_mark = answer.has_end_mark;
        if (answer.is_answer() && !answer.choices.empty())
            info_.has_finish_reason = has_finish_reason_ && !answer.choices[0].finish_reason.empty();
    }

    void find_extras() {
        if (!info_.is_chat) {
            ServerInfo chat = info_;
            chat.is_chat = true;
            info_.has_chat = ask(make_ask(chat, {"Name three colours."}, {.max_tokens = 1})).is_answer();
            Ask echo = make_ask(info_, {"Name three colours."}, {.max_tokens = 1});
            echo.body["echo"] = true;
            const Answer echoed = ask(echo);
            info_.has_echo = echoed.is_answer() && !echoed.choices.empty() && echoed.choices[0].tokens.size() > 2;
        }
        const auto answers = [&](const std::string& path, const ordered_json& body) {
            return parse_answer(post(path, body)).is_answer();
        };
        const ordered_json messages = {{{"role", "user"}, {"content", "a"}}};
        info_.has_tokenize = answers("/tokenize", {{"model", info_.model}, {"messages", messages}}) ||
                             answers("/tokenize", {{"messages", messages}});
        info_.has_apply_template = answers("/apply-template", {{"messages", messages}});
    }

    void find_metrics() {
        const HttpReply reply = get("/metrics");
        if (reply.status != 200) return;
        const std::string text = reply.body();
        for (const KnownMetrics& known : kKnownMetrics) {
            if (text.find(known.prefix) == std::string::npos) continue;
            if (info_.engine.empty()) info_.engine = known.engine;
            if (info_.hits_metric.empty() && known.hits[0] != '\0' && metric_value(text, known.hits))
                info_.hits_metric = known.hits;
            if (info_.computed_metric.empty() && known.computed[0] != '\0' && metric_value(text, known.computed))
                info_.computed_metric = known.computed;
        }
    }

    std::optional<int64_t> prompt_tokens(const std::string& prompt) {
        return ask(make_ask(info_, {prompt}, {.max_tokens = 1, .log_probs = false})).prompt_tokens;
    }

    void measure_words() {
        const std::optional<int64_t> base = prompt_tokens(Words::kOpening);
        if (!base) return;
        std::vector<WordCost> costs;
        for (const std::string& word : common_words()) {
            std::string prompt = Words::kOpening;
            for (int64_t i = 0; i < kRepeats; ++i) prompt += word;
            const std::optional<int64_t> count = prompt_tokens(prompt);
            if (count && *count > *base && (*count - *base) % kRepeats == 0)
                costs.push_back({word, (*count - *base) / kRepeats});
        }
        if (!costs.empty()) info_.words = Words(std::move(costs), *base, true);
    }

    // The prompt once, again, and again with each way to keep it apart.
    void find_cache() {
        const int64_t room = info_.max_tokens ? *info_.max_tokens / 2 : kProbeTokens;
        const std::string fresh = info_.words.fresh(chance_);
        const std::string prompt = Words::kOpening + fresh + info_.words.filler(std::min(room, kProbeTokens), 1);
        const auto cached = [&](const ordered_json& more) {
            Ask one = make_ask(info_, {prompt}, {.max_tokens = 1, .log_probs = false});
            one.body.update(more);
            const Answer answer = ask(one);
            return answer.is_answer() ? answer.cached_tokens : std::nullopt;
        };
        const auto first = cached(ordered_json::object());
        const auto second = cached(ordered_json::object());
        info_.reports_cached = first.has_value() || second.has_value();
        if (second.value_or(0) == 0) return;
        for (const ordered_json& fields : {ordered_json{{"cache_salt", "{{unique 0}}"}},
                                           ordered_json{{"use_cache", false}}, ordered_json{{"cache_prompt", false}}}) {
            ordered_json sent = fields;
            if (sent.contains("cache_salt")) sent["cache_salt"] = fmt::format("{:016x}", chance_.next());
            if (cached(sent) != std::optional<int64_t>(0)) continue;
            info_.isolation = fields;
            return;
        }
    }

    Transport& transport_;
    const DiscoverOptions& options_;
    Prng chance_;
    ServerInfo info_;
    bool has_finish_reason_ = false;  // of whole answers
};

}  // namespace

Result<ServerInfo> discover(Transport& transport, const DiscoverOptions& options) {
    return Discovery(transport, options).run();
}

std::optional<double> metric_value(const std::string& metrics, const std::string& name) {
    std::optional<double> sum;
    for (size_t at = 0; at < metrics.size();) {
        const size_t end = std::min(metrics.find('\n', at), metrics.size());
        const std::string line = metrics.substr(at, end - at);
        at = end + 1;
        if (!line.starts_with(name)) continue;
        const char behind = line.size() > name.size() ? line[name.size()] : '\0';
        if (behind != '{' && behind != ' ') continue;
        const size_t space = behind == '{' ? line.find("} ") + 1 : name.size();
        double value = 0;
        const auto [stop, code] = std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
        if (code == std::errc{}) sum = sum.value_or(0) + value;
    }
    return sum;
}

Ask make_ask(const ServerInfo& info, const std::vector<std::string>& turns, const AskOptions& options) {
    Ask ask;
    ask.body["model"] = info.model;
    if (info.is_chat) {
        ask.path = "/v1/chat/completions";
        ask.body["messages"] = ordered_json::array();
        for (size_t i = 0; i < turns.size(); ++i)
            ask.body["messages"].push_back({{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", turns[i]}});
    } else {
        std::string prompt;
        for (const std::string& turn : turns) prompt += turn;
        ask.body["prompt"] = prompt;
    }
    ask.body["max_tokens"] = options.max_tokens;
    ask.body["temperature"] = options.seed ? 1 : 0;
    if (info.neutral.is_object()) ask.body.update(info.neutral);
    if (options.seed) ask.body["seed"] = *options.seed;
    if (options.n > 1) ask.body["n"] = options.n;
    if (options.log_probs && info.has_log_probs) {
        if (info.is_chat) {
            ask.body["logprobs"] = true;
            ask.body["top_logprobs"] = kTopTokens;
        } else {
            ask.body["logprobs"] = kTopTokens;
        }
    }
    if (options.streams) {
        ask.body["stream"] = true;
        if (info.has_stream_usage) ask.body["stream_options"] = {{"include_usage", true}};
    }
    if (options.isolated) {
        ordered_json fields = info.isolation;
        if (fields.contains("cache_salt")) fields["cache_salt"] = fmt::format("{{{{unique {}}}}}", options.unique);
        ask.body.update(fields);
    }
    return ask;
}

}  // namespace verbatim::audit
