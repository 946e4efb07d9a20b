#include "tests/audit/fake_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace verbatim::tests {

using audit::HttpReply;
using audit::HttpRequest;
using nlohmann::json;

namespace {

constexpr int64_t kBlock = 16;
constexpr size_t kCandidates = 8;
constexpr size_t kFaultyPosition = 3;
const std::string kEnd = "<end>";

const std::vector<std::string>& vocabulary() {
    static const std::vector<std::string> kWords = {
        " river", " café",  " stone", " ☕",     " and",  " the",  " of",   " green", " 春天", " tree", " with",
        " old",   " house", " über",  " night", " day",  " moon", " sun",  " sea",   " sand", " 🚆",    " when",
        " then",  " bird",  " light", " wind",  " snow", " sky",  " road", " hand",  kEnd,    " word",
    };
    return kWords;
}

uint64_t mixed(uint64_t hash, uint64_t value) { return Prng(hash * 31 + value).next(); }

uint64_t mixed(uint64_t hash, const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    return Prng(hash).next();
}

// At every space and line, and before every fifth character.
std::vector<std::string> tokens_of(const std::string& text) {
    std::vector<std::string> tokens;
    size_t length = 0;
    for (const char c : text) {
        const bool begins = (c & 0xC0) != 0x80;
        if (tokens.empty() || c == ' ' || c == '\n' || (begins && length >= 8)) {
            tokens.emplace_back();
            length = 0;
        }
        tokens.back() += c;
        length += begins ? 1 : 0;
    }
    return tokens;
}

double unit(uint64_t bits) { return static_cast<double>(bits >> 11) / 9007199254740992.0; }

double normal(Prng& chance, bool is_laplace) {
    const double u = std::max(unit(chance.next()), 1e-300);
    const double v = unit(chance.next());
    if (is_laplace) return (v < 0.5 ? -1 : 1) * -std::log(u) / std::sqrt(2.0);
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * v);
}

HttpReply reply_of(int status, const std::string& type, const std::string& body) {
    HttpReply reply;
    reply.status = status;
    reply.content_type = type;
    reply.arrivals.push_back({body, 0});
    return reply;
}

HttpReply refusal(int status, const std::string& message) {
    return reply_of(status, "application/json", json{{"error", {{"message", message}}}}.dump());
}

}  // namespace

struct FakeServer::Scores {
    std::vector<std::string> tokens;
    std::vector<double> log_probs;  // likeliest first
};

struct FakeServer::Draft {
    struct OneChoice {
        std::vector<std::string> tokens;
        std::vector<Scores> scores;
        std::vector<size_t> drawn;  // of the scores
        std::string finish_reason;
    };
    std::vector<std::string> prompt;
    uint64_t salt = 0;
    uint64_t context = 0;  // of the prompt, as the model reads it
    int64_t cached = 0;
    size_t wave_size = 1;
    bool is_chat = false, streams = false, uncached = false, continues = false, after_abort = false, echoes = false;
    int64_t log_probs = -1;
    int64_t max_tokens = 16;
    int64_t n = 1;
    double temperature = 1;
    uint64_t seed = 0;
    uint64_t run = 0;
    uint64_t previous = 0;
    std::vector<OneChoice> choices;
    std::vector<Scores> prompt_scores;
};

void FakeServer::restart(int64_t num_down) {
    cached_.clear();
    generated_.clear();
    num_hits_ = num_drafts_ = 0;
    num_down_ = num_down;
}

std::vector<HttpReply> FakeServer::send(std::span<const HttpRequest> requests) {
    std::vector<HttpReply> replies;
    for (size_t i = 0; i < requests.size(); ++i) {
        if (num_down_ > 0) {
            --num_down_;
            replies.emplace_back().problem = "connection refused";
            continue;
        }
        replies.push_back(requests[i].body.empty() ? get(requests[i].path) : answer(requests[i], i, requests.size()));
    }
    now_s_ += 100;
    return replies;
}

HttpReply FakeServer::get(const std::string& path) const {
    if (path == "/v1/models") {
        const json model = {{"id", "fake"}, {"max_model_len", config_.max_model_len}};
        return reply_of(200, "application/json", json{{"data", json::array({model})}}.dump());
    }
    std::string metrics;
    if (config_.has_metrics)
        metrics += fmt::format("vllm:prefix_cache_hits_total{{model_name=\"fake\"}} {}.0\n", num_hits_);
    if (config_.counted_drafts >= 0)
        metrics += fmt::format("vllm:spec_decode_num_accepted_tokens_total {}.0\n", num_drafts_);
    if (path == "/metrics" && !metrics.empty()) return reply_of(200, "text/plain", metrics);
    return refusal(404, "no such path");
}

HttpReply FakeServer::answer(const HttpRequest& request, size_t index, size_t wave_size) {
    ++num_requests_;
    bodies_.push_back(request.body);
    const json body = json::parse(request.body);
    if (request.path == "/apply-template")
        return reply_of(200, "application/json",
                        json{{"prompt", "<user>" + body["messages"][0]["content"].get<std::string>()}}.dump());
    const bool is_chat = request.path == "/v1/chat/completions";
    if (!is_chat && (request.path != "/v1/completions" || !config_.has_completions))
        return refusal(404, "no such path");
    const bool wants_scores = body.contains("logprobs") && body["logprobs"] != false;
    if (wants_scores && !config_.has_log_probs) return refusal(400, "logprobs are not supported");
    Draft draft = make_draft(body, is_chat, wave_size);
    if (static_cast<int64_t>(draft.prompt.size()) + draft.max_tokens > config_.max_model_len)
        return refusal(400, "longer than the context");
    for (int64_t choice = 0; choice < draft.n; ++choice) generate(draft, choice);
    remember(draft);
    return draft.streams ? stream(draft, request, index) : whole(draft);
}

FakeServer::Draft FakeServer::make_draft(const json& body, bool is_chat, size_t wave_size) {
    Draft draft;
    std::string text;
    if (is_chat) {
        for (const json& message : body["messages"])
            text += fmt::format("<{}>{}", message["role"].get<std::string>(), message["content"].get<std::string>());
        if (config_.fault == Fault::kOtherTemplate) text += " \n";
    } else {
        text = body["prompt"].get<std::string>();
    }
    draft.prompt = tokens_of(text);
    draft.is_chat = is_chat;
    draft.wave_size = wave_size;
    draft.streams = body.value("stream", false);
    draft.max_tokens = body.value("max_tokens", 16);
    draft.n = config_.ignores_n ? 1 : body.value("n", 1);
    draft.temperature = body.value("temperature", 1.0);
    draft.seed = body.value("seed", uint64_t{0});
    if (!config_.honours_seed) draft.seed = chance_.next();
    draft.echoes = body.value("echo", false) && config_.has_echo;
    if (body.contains("logprobs")) draft.log_probs = body["logprobs"].is_number() ? body["logprobs"].get<int64_t>() : 5;
    if (config_.has_salts && body.contains("cache_salt")) draft.salt = mixed(7, body["cache_salt"].get<std::string>());
    draft.uncached = config_.has_salts && body.contains("cache_salt");
    draft.run = chance_.next();
    draft.previous = std::exchange(previous_, mixed(11, text));
    draft.after_abort = std::exchange(aborted_, false);
    uint64_t hash = 17;
    for (size_t i = 0; i < draft.prompt.size(); ++i) {
        if (draft.echoes) draft.prompt_scores.push_back(score(hash, draft, i));
        hash = mixed(hash, draft.prompt[i]);
        if (generated_.contains(hash)) draft.continues = true;
        const auto length = static_cast<int64_t>(i + 1);
        if (length % kBlock == 0 && i + 1 < draft.prompt.size() && cached_.contains(mixed(hash, draft.salt)))
            draft.cached = length;
    }
    draft.context = hash;
    if (config_.fault == Fault::kStalePrefix && draft.cached > 0) draft.context = mixed(hash, 99);
    return draft;
}

FakeServer::Scores FakeServer::score(uint64_t prefix, const Draft& draft, size_t position) {
    const std::vector<std::string>& words = vocabulary();
    std::vector<std::pair<double, std::string>> logits;
    const uint64_t path = draft.cached + 1000 * draft.wave_size;
    Prng noise(config_.noise == NoiseKind::kEachRun ? mixed(draft.run, position) : mixed(prefix, path));
    for (size_t i = 0; i < kCandidates; ++i) {
        const uint64_t bits = mixed(prefix, i);
        double logit = 5 * unit(bits);
        if (config_.noise != NoiseKind::kNone) logit += config_.noise_scale * normal(noise, config_.is_laplace);
        logits.emplace_back(logit, words[(mixed(prefix, 0) + 5 * i) % words.size()]);
    }
    std::ranges::stable_sort(logits, std::greater<>(), &std::pair<double, std::string>::first);
    double sum = 0;
    for (const auto& [logit, text] : logits) sum += std::exp(logit);
    Scores scores;
    for (const auto& [logit, text] : logits) {
        scores.tokens.push_back(text);
        scores.log_probs.push_back(logit - std::log(sum));
    }
    return scores;
}

bool FakeServer::is_faulty(const Draft& draft, size_t position, int64_t choice) {
    if (position != kFaultyPosition) return false;
    const auto prompt = static_cast<int64_t>(draft.prompt.size());
    switch (config_.fault) {
        case Fault::kForgetsItself: return draft.run % 3 == 0;
        case Fault::kTokenOnceSeen: return draft.cached > 0;
        case Fault::kNeighboursToken: return draft.wave_size > 1;
        case Fault::kPartialHit: return draft.cached > 0 && draft.cached + 2 * kBlock < prompt;
        case Fault::kContinuedText: return draft.continues;
        case Fault::kAfterAbort: return draft.after_abort;
        case Fault::kThirdChoice: return choice == 2;
        case Fault::kPreviousRequest: return draft.previous % 3 == 0;
        case Fault::kWithoutLogProbs: return draft.log_probs < 0;
        case Fault::kUncached: return !config_.caches;
        default: return false;
    }
}

void FakeServer::generate(Draft& draft, int64_t choice) {
    Draft::OneChoice made;
    uint64_t hash = draft.context;
    Prng chance(mixed(draft.seed + static_cast<uint64_t>(choice), 3));
    made.finish_reason = "length";
    for (size_t i = 0; i < static_cast<size_t>(draft.max_tokens); ++i) {
        Scores scores = score(hash, draft, draft.prompt.size() + i);
        size_t drawn = 0;
        if (draft.temperature > 0) {
            double left = unit(chance.next());
            while (drawn + 1 < scores.tokens.size() && left >= std::exp(scores.log_probs[drawn]))
                left -= std::exp(scores.log_probs[drawn++]);
        }
        if (is_faulty(draft, i, choice)) drawn = 4;
        if (scores.tokens[drawn] == kEnd) {
            made.finish_reason = "stop";
            break;
        }
        made.tokens.push_back(scores.tokens[drawn]);
        hash = mixed(hash, scores.tokens[drawn]);
        made.scores.push_back(std::move(scores));
        made.drawn.push_back(drawn);
    }
    draft.choices.push_back(std::move(made));
}

void FakeServer::remember(const Draft& draft) {
    num_hits_ += draft.cached;
    num_drafts_ += std::max<int64_t>(config_.counted_drafts, 0);
    if (!config_.caches) return;
    uint64_t hash = 17;
    int64_t length = 0;
    std::vector<std::string> all = draft.prompt;
    const size_t prompt = all.size();
    all.insert(all.end(), draft.choices[0].tokens.begin(), draft.choices[0].tokens.end());
    for (size_t i = 0; i < all.size(); ++i) {
        hash = mixed(hash, all[i]);
        if (++length % kBlock == 0) cached_.insert(mixed(hash, draft.salt));
        if (i >= prompt + 2) generated_.insert(hash);
    }
}

namespace {

json top_of(const std::vector<std::string>& tokens, const std::vector<double>& log_probs, size_t drawn) {
    json top = json::object();
    for (size_t k = 0; k < 5; ++k) top[tokens[k]] = log_probs[k];
    top[tokens[drawn]] = log_probs[drawn];
    return top;
}

}  // namespace

// The scores of tokens [first, last) of a choice.
static json scores_json(const std::vector<std::string>& tokens, const std::vector<json>& tops,
                        const std::vector<double>& log_probs, bool is_chat) {
    if (!is_chat) return {{"tokens", tokens}, {"token_logprobs", log_probs}, {"top_logprobs", tops}};
    json content = json::array();
    for (size_t i = 0; i < tokens.size(); ++i) {
        json list = json::array();
        for (const auto& [text, value] : tops[i].items()) list.push_back({{"token", text}, {"logprob", value}});
        content.push_back({{"token", tokens[i]}, {"logprob", log_probs[i]}, {"top_logprobs", list}});
    }
    return {{"content", content}};
}

HttpReply FakeServer::whole(const Draft& draft) const {
    json body = {{"object", "text_completion"}, {"system_fingerprint", config_.fingerprint}};
    body["choices"] = json::array();
    for (size_t c = 0; c < draft.choices.size(); ++c) {
        const Draft::OneChoice& choice = draft.choices[c];
        std::vector<std::string> tokens;
        std::vector<json> tops;
        std::vector<double> log_probs;
        for (size_t i = 0; i < draft.prompt_scores.size(); ++i) {
            const Scores& scores = draft.prompt_scores[config_.fault == Fault::kShiftedEcho && i > 0 ? i - 1 : i];
            const auto at = std::ranges::find(scores.tokens, draft.prompt[i]);
            const auto drawn = static_cast<size_t>(at - scores.tokens.begin()) % scores.tokens.size();
            tokens.push_back(draft.prompt[i]);
            log_probs.push_back(scores.log_probs[drawn]);
            tops.push_back(top_of(scores.tokens, scores.log_probs, drawn));
        }
        std::string text;
        for (size_t i = 0; i < choice.tokens.size(); ++i) {
            text += choice.tokens[i];
            tokens.push_back(choice.tokens[i]);
            log_probs.push_back(choice.scores[i].log_probs[choice.drawn[i]]);
            tops.push_back(top_of(choice.scores[i].tokens, choice.scores[i].log_probs, choice.drawn[i]));
        }
        json one = {{"index", c}, {"finish_reason", choice.finish_reason}};
        if (draft.is_chat)
            one["message"] = {{"role", "assistant"}, {"content", text}};
        else
            one["text"] = text;
        if (draft.log_probs >= 0) one["logprobs"] = scores_json(tokens, tops, log_probs, draft.is_chat);
        body["choices"].push_back(std::move(one));
    }
    int64_t completion = 0;
    for (const Draft::OneChoice& choice : draft.choices) completion += static_cast<int64_t>(choice.tokens.size());
    body["usage"] = {{"prompt_tokens", draft.prompt.size()}, {"completion_tokens", completion}};
    if (config_.accepted_drafts >= 0)
        body["usage"]["completion_tokens_details"] = {{"accepted_prediction_tokens", config_.accepted_drafts}};
    if (config_.reports_cached) body["usage"]["prompt_tokens_details"] = {{"cached_tokens", draft.cached}};
    return reply_of(200, "application/json", body.dump());
}

HttpReply FakeServer::stream(const Draft& draft, const HttpRequest& request, size_t index) {
    HttpReply reply = reply_of(200, "text/event-stream", "");
    reply.arrivals.clear();
    reply.sent_s = now_s_;
    const Draft::OneChoice& choice = draft.choices[0];
    const double first_s =
        now_s_ + 0.001 * static_cast<double>(index) + (config_.runs_together ? 0 : static_cast<double>(index));
    size_t num_bytes = 0;
    const auto add = [&](const std::string& data, size_t step) {
        if (reply.aborted) return;
        reply.arrivals.push_back({"data: " + data + "\n\n", first_s + 0.01 * static_cast<double>(step)});
        num_bytes += data.size() + 8;
        if (request.abort_after_bytes > 0 && num_bytes >= static_cast<size_t>(request.abort_after_bytes)) {
            reply.aborted = true;
            aborted_ = true;
        }
    };
    for (size_t i = 0; i <= choice.tokens.size(); ++i) {
        const bool is_last = i == choice.tokens.size();
        std::string text = is_last ? "" : choice.tokens[i];
        json one = {{"index", 0}, {"finish_reason", is_last ? json(choice.finish_reason) : json()}};
        if (!is_last && draft.log_probs >= 0)
            one["logprobs"] =
                scores_json({text}, {top_of(choice.scores[i].tokens, choice.scores[i].log_probs, choice.drawn[i])},
                            {choice.scores[i].log_probs[choice.drawn[i]]}, draft.is_chat);
        if (config_.fault == Fault::kLostLastChunk && i + 1 == choice.tokens.size()) continue;
        if (config_.fault == Fault::kCutCharacter && !text.empty() && (text.back() & 0x80) != 0) text = " \uFFFD";
        if (draft.is_chat)
            one["delta"] = {{"content", text}};
        else
            one["text"] = text;
        add(json{{"choices", json::array({one})}, {"system_fingerprint", config_.fingerprint}}.dump(), i);
    }
    json usage = {{"prompt_tokens", draft.prompt.size()}, {"completion_tokens", choice.tokens.size()}};
    if (config_.reports_cached) usage["prompt_tokens_details"] = {{"cached_tokens", draft.cached}};
    add(json{{"choices", json::array()}, {"usage", usage}}.dump(), choice.tokens.size());
    add("[DONE]", choice.tokens.size());
    reply.done_s = first_s + 0.01 * static_cast<double>(choice.tokens.size());
    return reply;
}

}  // namespace verbatim::tests
