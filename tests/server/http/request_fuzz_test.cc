// What clients may send, in thousands of requests through the service, as the endpoints use it but without sockets: no
// request ends the process or is answered by a failure of the server, and nothing is left running or leased.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/http/conversations.h"
#include "server/http/generation.h"
#include "server/http/message_answer.h"
#include "server/http/message_request.h"
#include "server/http/response_chain.h"
#include "server/http/response_request.h"
#include "server/http/tenants.h"
#include "server/http/translated_chat.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/http/request_bodies.h"
#include "tests/server/text/padded_tokenizer.h"
#include "tests/support/random_cases.h"
#include "tests/support/sanitized.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::server;
using nlohmann::json;

constexpr int kLeft = 499;  // the client has disconnected: no update is sent

struct Done {
    int status = 200;
    std::string body;
};

Done told(const ApiError& error) { return {error.status, written_answer(error.envelope())}; }

// Updates of the engine's thread, for the test's.
class Inbox {
public:
    EngineHost::Sink sink(size_t choice) {
        return [this, choice](HostUpdate update) {
            {
                const std::lock_guard lock(mutex_);
                updates_.emplace_back(choice, std::move(update));
            }
            come_.notify_one();
        };
    }
    std::pair<size_t, HostUpdate> take() {
        std::unique_lock lock(mutex_);
        come_.wait(lock, [&] { return !updates_.empty(); });
        auto first = std::move(updates_.front());
        updates_.pop_front();
        return first;
    }

private:
    std::mutex mutex_;
    std::condition_variable come_;
    std::deque<std::pair<size_t, HostUpdate>> updates_;
};

// What another thread tells, once; empty where `ask` says that it will not.
template <typename T, typename Ask>
std::optional<T> told_by(const Ask& ask) {
    std::promise<T> promise;
    if (!ask([&promise](T made) { promise.set_value(std::move(made)); })) return std::nullopt;
    return promise.get_future().get();
}

// The responses so far, of which a request may go on from one.
struct Responses {
    uint64_t num = 0;
    std::vector<std::string> stored;
};

class ServiceCalls {
public:
    ServiceCalls(HttpScene& scene, RequestBodies& random, Responses& responses)
        : service_(scene.service()), random_(random), responses_(responses) {}

    Done call(const RandomRequest& request) {
        switch (request.kind) {
            case RequestKind::kChat: return generate(ApiKind::kChat, request.body);
            case RequestKind::kCompletion: return generate(ApiKind::kCompletion, request.body);
            case RequestKind::kTokenize: return tokenize(request.body);
            case RequestKind::kDetokenize: return detokenize(request.body);
            case RequestKind::kResponse: return respond(request.body);
            case RequestKind::kMessage: return answer_message(request.body);
            case RequestKind::kCountTokens: return count_tokens(request.body);
            default: return converse(request);
        }
    }

private:
    Done tokenize(const std::string& body) {
        const auto request = parse_tokenize_request(body, service_.model);
        if (!request) return told(request.error());
        const auto answer = server::tokenize(service_, *request, words_);
        return answer ? Done{200, written_answer(*answer)} : told(answer.error());
    }
    Done detokenize(const std::string& body) const {
        const auto tokens = parse_detokenize_request(body, service_.model, service_.vocab_size);
        if (!tokens) return told(tokens.error());
        return {200, written_answer(server::detokenize(service_, *tokens))};
    }
    Done converse(const RandomRequest& request) {
        const std::string path = request.target.substr(0, request.target.find('?'));
        if (conversation_methods(path).find(request.method) == std::string_view::npos) return {405, "{}"};
        auto parsed = parse_conversation_call(request.method, request.target, request.body, std::nullopt);
        if (!parsed) return told(parsed.error());
        const auto reply =
            told_by<ConversationReply>([&](const auto& tell) { return service_.host->ask(*std::move(parsed), tell); });
        if (!reply) return {429, "{}"};
        if (reply->refusal) return told(api_error(*reply->refusal));
        return reply->problem.empty() ? Done{200, written_answer(reply->json)} : Done{503, reply->problem};
    }

    ApiResult<History> history_of(const GenerateRequest& request, const ConversationHint& hint, const CacheSalt& salt) {
        if (!hint.id) return History();
        const LookQuestion question{{salt, *hint.id}, request.turn_id, request.content};
        auto look = told_by<Look>([&](const auto& tell) { return service_.host->ledger().look(question, tell), true; });
        return server::history_of(request, *hint.id, *std::move(look));
    }

    Done count_tokens(const std::string& body) {
        const auto json = parse_body(body);
        if (!json) return told(json.error());
        const auto request = parse_count_request(*json, reasoning_traits(service_), service_.model);
        if (!request) return {request.error().status, written_answer(message_error(request.error()))};
        const auto answer = server::tokenize(service_, *request, words_);
        return answer ? Done{200, written_answer(*answer)} : told(answer.error());
    }
    Done answer_message(const std::string& body) {
        const auto json = parse_body(body);
        if (!json) return told(json.error());
        return generate(parse_message_request(*json, reasoning_traits(service_), service_.model, service_.vocab_size));
    }
    Done respond(const std::string& body) {
        const auto json = parse_body(body);
        if (!json) return told(json.error());
        auto request = parse_response_request(*json, service_.model, service_.vocab_size);
        if (!request) return told(request.error());
        ResponseRequest& response = *request->response;
        response.number = std::to_string(++responses_.num);
        if (response.previous_id && !responses_.stored.empty() && random_.below(8) != 0)
            response.previous_id = responses_.stored[random_.below(responses_.stored.size())];
        return generate(std::move(request));
    }
    // Its place in a conversation, as make_prompts() finds it.
    std::optional<ApiError> place(GenerateRequest& request, ConversationHint& hint, const CacheSalt& salt,
                                  History& history) {
        std::optional<Look> previous;
        if (request.response->previous_id) {
            const std::string& id = *request.response->previous_id;
            const LookQuestion question{{salt, conversation_of_response(id)}, id, std::nullopt};
            previous =
                told_by<Look>([&](const auto& tell) { return service_.host->ledger().look(question, tell), true; });
        }
        return place_response(service_, request, hint, history, previous ? &*previous : nullptr);
    }

    Done generate(ApiKind kind, const std::string& body) {
        return generate(parse_generate_request(kind, body, service_.model, service_.vocab_size));
    }
    // As Endpoints::read() and make_jobs() do it.
    Done generate(ApiResult<GenerateRequest> request) {
        if (!request) return told(request.error());
        const ApiKind kind = request->kind;
        const std::string header = random_.below(8) == 0 ? "c" : "";
        ConversationHint hint = conversation_of(*request, [&](std::string_view) { return header; });
        const CacheSalt salt = salt_of(std::nullopt, request->cache_salt);
        if (const auto problem = conversation_problem(*request, hint)) return told(*problem);
        auto history = history_of(*request, hint, salt);
        if (!history) return told(history.error());
        if (request->response) {
            if (const auto problem = place(*request, hint, salt, *history)) return told(*problem);
        }
        std::vector<AnsweredPrompt> prompts;
        std::vector<HostRequest> jobs;
        for (size_t i = 0; i < request->num_prompts(); ++i) {
            auto prompt = prompt_of(service_, *request, i, *history, words_);
            if (!prompt) return told(prompt.error());
            prompts.push_back(
                {static_cast<int64_t>(prompt->ids.size()), echoed_text(service_, *request, i, prompt->ids)});
            auto some = host_requests(service_, *request, hint, salt, *std::move(prompt), TokenMask());
            if (!some) return told(some.error());
            std::ranges::move(*some, std::back_inserter(jobs));
        }
        request->conversation_id = hint.id;
        const std::string id = request->response ? request->response->id : "id";
        const bool is_stored = request->response && request->response->is_stored;
        const text::AnswerForm form = jobs.front().form;
        Done done =
            answer({*service_.tokenizer, *std::move(request),
                    AnswerFrame{kind, id, service_.model.first(), service_.fingerprint, 0}, std::move(prompts), form},
                   std::move(jobs));
        if (is_stored && done.status == 200) responses_.stored.push_back(id);
        return done;
    }

    Done answer(Generation generation, std::vector<HostRequest> requests) {
        Inbox inbox;
        std::vector<EngineHost::Job> jobs;
        for (size_t i = 0; i < requests.size(); ++i) jobs.push_back({std::move(requests[i]), inbox.sink(i)});
        const size_t num_choices = jobs.size();
        const auto tickets = service_.host->submit(std::move(jobs));
        if (!tickets) return {429, "{}"};
        const bool is_stream = generation.request().stream;
        uint64_t until_gone = random_.below(8) == 0 ? random_.below(30) : UINT64_MAX;
        bool has_gone = false;
        std::string events;
        for (size_t num_ended = 0; num_ended < num_choices;) {  // a refusal of one leaves the others
            auto [choice, update] = inbox.take();
            num_ended += is_end(update) ? 1 : 0;
            generation.take(choice, std::move(update));
            if (is_stream && generation.is_decided() && !generation.error()) events += generation.take_events();
            if (until_gone-- != 0 || has_gone) continue;
            has_gone = true;
            for (const Ticket ticket : *tickets) service_.host->abort(ticket);
        }
        if (has_gone) return {kLeft, "{}"};
        if (generation.error()) return told(*generation.error());
        if (!is_stream) return {200, written_answer(generation.whole())};
        EXPECT_TRUE(generation.is_delivered());
        const bool has_items = generation.request().response || generation.request().is_message;
        EXPECT_TRUE(events.ends_with(has_items ? "}\n\n" : "data: [DONE]\n\n")) << events;
        return {200, first_event(events)};
    }

    static std::string first_event(const std::string& events) {
        const size_t begin = events.find("data: ") + 6;
        return events.substr(begin, events.find("\n\n") - begin);
    }

    const Service& service_;
    RequestBodies& random_;
    Responses& responses_;
    text::WordCache words_;
};

class RequestFuzz : public testing::TestWithParam<Padding> {};

INSTANTIATE_TEST_SUITE_P(Http, RequestFuzz,
                         testing::Values(Padding::kTail, Padding::kHoles, Padding::kFirst, Padding::kAllButBytes),
                         [](const auto& info) { return fmt::format("Padding{}", static_cast<int>(info.param)); });

TEST_P(RequestFuzz, NoRequestEndsTheServerOrIsItsFailure) {
    HttpSceneConfig config;
    config.shows_logits = true;
    config.max_model_len = 512;
    config.tokenizer_json = padded_tokenizer_json(GetParam());
    HttpScene scene(config);
    RandomCases cases = RandomCases::from_environment(kSanitized ? 1000 : 10'000);
    // So many reach every status that is asked for below, whatever the environment wants.
    if (cases.count > 1) cases.count = std::max<uint64_t>(cases.count, 1500);
    const std::set<int> may_be = {200, 400, 404, 405, 409, 422, kLeft};
    std::map<int, int> statuses;
    int num_empty_tokens = 0;
    Responses responses;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        RequestBodies random(seed);
        ServiceCalls calls(scene, random, responses);
        const RandomRequest request = random.next();
        const Done said = calls.call(request);
        ++statuses[said.status];
        EXPECT_TRUE(may_be.contains(said.status)) << "VERBATIM_SEED=" << seed << "\n"
                                                  << request.target << request.body << "\n"
                                                  << said.body;
        EXPECT_FALSE(json::parse(said.body, nullptr, false).is_discarded()) << said.body;
        num_empty_tokens += said.body.find(R"("token":"","logprob")") != std::string::npos ? 1 : 0;
    }
    scene.wait_until_idle();
    EXPECT_TRUE(scene.engine().idle());
    EXPECT_EQ(scene.engine().ledger().num_leases(), 0);
    EXPECT_EQ(scene.host().view().num_running, 0);
    if (cases.count < 100) return;
    for (const auto& [status, count] : statuses) fmt::print("{}: {}\n", status, count);
    for (const auto& [status, least] :
         std::map<int, uint64_t>{{200, 5}, {400, 5}, {404, 200}, {409, 200}, {kLeft, 200}})
        EXPECT_GE(static_cast<uint64_t>(statuses[status]), cases.count / least) << status;
    EXPECT_GT(responses.stored.size(), cases.count / 100);
    if (GetParam() != Padding::kFirst) EXPECT_GT(num_empty_tokens, 0);
}

}  // namespace
}  // namespace verbatim::tests
