// The endpoints that use the engine: from a request to its turns, and from their updates to an answer.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

#include "engine/base/check.h"
#include "server/http/endpoints.h"
#include "server/http/message_request.h"
#include "server/http/response_chain.h"
#include "server/http/response_request.h"
#include "server/http/translated_chat.h"

namespace verbatim::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

ApiKind kind_of(AnswerShape shape) { return shape == AnswerShape::kCompletion ? ApiKind::kCompletion : ApiKind::kChat; }

// Unique among all requests, of other runs of the server, too.
std::string number_of(const Call& call) { return call.id.substr(call.id.find('-') + 1); }

std::string answer_id(const Call& call, AnswerShape shape, const GenerateRequest& request) {
    switch (shape) {
        case AnswerShape::kCompletion: return "cmpl-" + call.id;
        case AnswerShape::kChat: return "chatcmpl-" + call.id;
        case AnswerShape::kResponse: return request.response->id;
        case AnswerShape::kMessage: break;
    }
    return "msg_" + number_of(call);
}

double seconds_now() { return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count(); }

}  // namespace

// What a request asks; all that can be wrong without looking at its conversation or its text.
ApiResult<GenerateRequest> Endpoints::parse(const Call& call, AnswerShape shape) const {
    const auto body = parse_body(call.request.body());
    if (!body) return tl::unexpected(body.error());
    if (shape == AnswerShape::kMessage)
        return parse_message_request(*body, reasoning_traits(*service_), service_->model, service_->vocab_size);
    if (shape != AnswerShape::kResponse)
        return read_generate_request(kind_of(shape), *body, service_->model, service_->vocab_size);
    auto request = parse_response_request(*body, service_->model, service_->vocab_size);
    if (request) request->response->number = number_of(call);
    return request;
}

ApiResult<Endpoints::Asked> Endpoints::read(const Call& call, AnswerShape shape) const {
    auto parsed = parse(call, shape);
    if (!parsed) return tl::unexpected(parsed.error());
    Asked asked{.request = *std::move(parsed)};
    asked.conversation = conversation_of(asked.request, [&](std::string_view name) {
        return std::string(call.request[beast::string_view(name.data(), name.size())]);
    });
    asked.salt = salt_of(call.tenant, asked.request.cache_salt);
    if (auto wrong = conversation_problem(asked.request, asked.conversation)) return tl::unexpected(*std::move(wrong));
    return asked;
}

// Compared with the conversation and put into tokens, on the text's thread where there is text.
std::optional<ApiError> Endpoints::make_jobs(Asked& asked) {
    auto wrong = make_prompts(asked);
    if (wrong) return with_origins(*std::move(wrong), asked.request.origins);
    return wrong;
}

std::optional<ApiError> Endpoints::make_prompts(Asked& asked) {
    if (asked.request.response) {
        Look* const previous = asked.previous ? &*asked.previous : nullptr;
        if (auto wrong = place_response(*service_, asked.request, asked.conversation, asked.history, previous))
            return wrong;
        asked.previous.reset();
    }
    const auto first_mask = first_mask_of(*service_, asked.request);
    if (!first_mask) return first_mask.error();
    for (size_t i = 0; i < asked.request.num_prompts(); ++i) {
        auto prompt = prompt_of(*service_, asked.request, i, asked.history, words_);
        if (!prompt) return prompt.error();
        CHECK_EQ(asked.prompts.size(), i);
        asked.prompts.push_back(
            {static_cast<int64_t>(prompt->ids.size()), echoed_text(*service_, asked.request, i, prompt->ids)});
        auto jobs =
            host_requests(*service_, asked.request, asked.conversation, asked.salt, *std::move(prompt), *first_mask);
        if (!jobs) return jobs.error();
        std::ranges::move(*jobs, std::back_inserter(asked.jobs));
    }
    asked.request.conversation_id = asked.conversation.id;
    asked.request.chat = {};
    asked.request.prompts = {};
    asked.history = {};
    return std::nullopt;
}

// What the ledger has kept of the conversation; `done` is called here or on the ledger's thread.
void Endpoints::look(const std::shared_ptr<Asked>& asked, const std::function<void(ApiResult<Asked>)>& done) {
    if (asked->request.response && asked->request.response->previous_id) {
        const std::string& id = *asked->request.response->previous_id;
        const LookQuestion question{{asked->salt, conversation_of_response(id)}, id, std::nullopt};
        return service_->host->ledger().look(question, [asked, done](Look look) {
            asked->previous = std::move(look);
            done(std::move(*asked));
        });
    }
    CHECK(asked->conversation.id.has_value(), "a look at no conversation");
    const LookQuestion question{{asked->salt, *asked->conversation.id}, asked->request.turn_id, asked->request.content};
    service_->host->ledger().look(question, [asked, done](Look look) {
        auto history = history_of(asked->request, *asked->conversation.id, std::move(look));
        if (!history) return done(tl::unexpected(history.error()));
        asked->history = *std::move(history);
        done(std::move(*asked));
    });
}

// Read on its thread, with what the ledger has kept of the conversation.
asio::awaitable<ApiResult<Endpoints::Asked>> Endpoints::read_with_history(const Call& call, AnswerShape shape) {
    using Read = ApiResult<Asked>;
    const auto delivery = std::make_shared<Delivery<Read>>();
    const auto done = [handle = handle_, delivery](Read made) {
        Delivery<Read>::hand_in(*handle, delivery, std::move(made));
    };
    json_thread_.post([this, &call, shape, done] {
        const std::function<std::optional<ApiError>()> reading = [this, &call, shape,
                                                                  &done]() -> std::optional<ApiError> {
            Read read = this->read(call, shape);
            if (!read) return read.error();
            const auto asked = std::make_shared<Asked>(*std::move(read));
            const bool goes_on = asked->request.response && asked->request.response->previous_id;
            if (asked->conversation.id || goes_on)
                look(asked, done);
            else
                done(std::move(*asked));
            return std::nullopt;
        };
        if (auto wrong = outcome_of(reading)) done(tl::unexpected(*std::move(wrong)));
    });
    co_return co_await delivery->take();
}

// Read on one thread and put into tokens on another one.
asio::awaitable<ApiResult<Endpoints::Asked>> Endpoints::prepare(const Call& call, AnswerShape shape) {
    auto read = co_await read_with_history(call, shape);
    if (!read) co_return read;
    const auto asked = std::make_shared<Asked>(*std::move(read));
    const auto is_text = [](const AskedPrompt& prompt) { return !prompt.is_ids; };
    const std::vector<AskedPrompt>& prompts = asked->request.prompts;
    const bool has_text = prompts.empty() || asked->conversation.id || !asked->request.grammar.empty() ||
                          std::ranges::any_of(prompts, is_text);
    std::function<std::optional<ApiError>()> encode = [this, asked] { return make_jobs(*asked); };
    const std::optional<ApiError> wrong = co_await on_thread(has_text ? text_thread_ : json_thread_, std::move(encode));
    if (wrong) co_return tl::unexpected(*wrong);
    co_return std::move(*asked);
}

// Everything up to the engine: an error, or a turn.
asio::awaitable<std::optional<ApiError>> Endpoints::begin(const Call& call, AnswerShape shape,
                                                          std::optional<Turn>& turn) {
    const double began = seconds_now();
    if (auto full = capacity_error()) co_return full;
    const Preparing counted(num_prepared_);
    std::optional<Preparing> waiting(std::in_place, metrics_.num_prepared);
    auto asked = co_await prepare(call, shape);
    waiting.reset();
    if (!asked) co_return asked.error();
    call.connection->release_body();
    if (const size_t most = service_->host->capacity(); asked->jobs.size() > most) {
        co_return ApiError{
            400, fmt::format("{} choices are wanted: this server takes {} requests", asked->jobs.size(), most),
            asked->prompts.size() > 1 ? "prompt" : "n", "invalid_value"};
    }
    std::vector<HostRequest>* const requests = &asked->jobs;
    CHECK_EQ(requests->size(), asked->prompts.size() * asked->request.num_sampled_choices());

    const AnswerFrame frame{kind_of(shape), answer_id(call, shape, asked->request), service_->model.first(),
                            service_->fingerprint, service_->now()};
    if (auto& claim = requests->front().claim) {
        claim->answer_id = frame.id;
        claim->created = frame.created;
    }
    for (HostRequest& request : *requests) request.answer_id = frame.id;
    const text::AnswerForm form = requests->front().form;
    const size_t num_choices = requests->size();
    const size_t max_waiting = config_.max_unread_tokens * num_choices;
    auto updates = std::make_shared<Updates>(updates_, max_waiting, [connection = std::weak_ptr(call.connection)] {
        if (const ConnectionPtr alive = connection.lock()) alive->cancel();
    });
    std::vector<EngineHost::Job> jobs;
    for (size_t i = 0; i < num_choices; ++i) jobs.push_back({std::move((*requests)[i]), updates->sink(i)});
    turn.emplace(Turn{.generation = Generation(*service_->tokenizer, std::move(asked->request), frame,
                                               std::move(asked->prompts), form),
                      .updates = std::move(updates),
                      .timer = Bell::Timer(*loop_, Bell::Timer::time_point::max()),
                      .tickets = {},
                      .began = began,
                      .first_tokens = std::vector<double>(num_choices)});
    auto tickets = service_->host->submit(std::move(jobs));  // nothing fails after this: running turns can be aborted
    if (!tickets) {
        const std::string failure = service_->host->failure();
        if (!failure.empty()) co_return ApiError{503, "the executor failed: " + failure, "", "failed"};
        co_return overloaded();
    }
    turn->tickets = *std::move(tickets);
    CHECK_EQ(turn->tickets.size(), num_choices);
    co_return std::nullopt;
}

asio::awaitable<bool> Endpoints::generate(const Call& call, AnswerShape shape) {
    std::optional<Turn> begun;
    const std::optional<ApiError> refused = co_await begin(call, shape, begun);
    if (refused) co_return co_await refuse(call, *refused);
    Turn& turn = *begun;
    bool kept = false;
    std::optional<ApiError> failed;
    try {
        call.connection->watch(call.connection, [updates = turn.updates] { updates->leave(); });
        kept = co_await answer_turn(call, turn);
    } catch (const std::exception& problem) {
        failed = server_failed(problem.what());
    }
    call.connection->forget();
    for (size_t i = 0; i < turn.tickets.size(); ++i) {
        if (!turn.generation.has_ended(i)) service_->host->abort(turn.tickets[i]);
    }
    if (failed) co_return co_await answer_failed(call, turn, *failed);
    if (!kept) ++metrics_.num_clients_gone;
    co_return kept;
}

asio::awaitable<bool> Endpoints::answer_turn(const Call& call, Turn& turn) {
    const bool here = co_await take_until(turn, &Generation::is_decided);
    if (!here) co_return false;
    CHECK(turn.generation.is_decided());
    const bool is_stream = turn.generation.request().stream && !turn.generation.error();
    if (is_stream) co_return co_await answer_stream(call, turn);
    co_return co_await answer_whole(call, turn);
}

// What is half sent cannot be gone on with: the connection ends.
asio::awaitable<bool> Endpoints::answer_failed(const Call& call, Turn& turn, const ApiError& error) {
    turn.updates->leave();
    if (!call.connection->has_begun()) co_return co_await refuse(call, error);
    if (!turn.generation.request().stream || turn.updates->is_writing()) co_return false;
    const std::string rest = call.connection->send_chunk(turn.generation.failed_event(error));
    if (!rest.empty() || call.connection->is_lost()) co_return false;
    (void)co_await call.connection->write_last_chunk();
    co_return false;
}

// Hands what has come to the generation.
void Endpoints::take(Turn& turn, std::vector<ChoiceUpdate>& some) {
    for (ChoiceUpdate& update : some) {
        const size_t choice = update.choice;
        CHECK_LT(choice, turn.first_tokens.size());
        if (std::holds_alternative<TokenUpdate>(update.update) && turn.first_tokens[choice] == 0)
            turn.first_tokens[choice] = seconds_now();
        turn.generation.take(choice, std::move(update.update));
        if (turn.generation.has_ended(choice) && !turn.generation.error()) count_end(turn, choice);
    }
}

asio::awaitable<bool> Endpoints::take_until(Turn& turn, bool (Generation::*is_there)() const) {
    const Updates::Taker taker = [&](std::vector<ChoiceUpdate>& some) {
        take(turn, some);
        return !(turn.generation.*is_there)();
    };
    while (!(turn.generation.*is_there)()) {
        const Updates::Waited waited = co_await turn.updates->hand_on(turn.timer, taker);
        if (waited == Updates::Waited::kGone) co_return false;
    }
    co_return true;
}

void Endpoints::count_end(const Turn& turn, size_t choice) {
    observe(metrics_, {.first_token = turn.first_tokens[choice] - turn.began,
                       .whole = seconds_now() - turn.began,
                       .num_tokens = turn.generation.num_tokens(choice)});
    ++metrics_.finished[finish_name(turn.generation.finish(choice))];
}

void Endpoints::name_answer(const Call& call, const Turn& turn, http::fields& fields) const {
    fields.set("X-Request-Id", call.request_id);
    if (!turn.generation.is_in_conversation()) return;
    fields.set("X-Conversation-Id", *turn.generation.request().conversation_id);
    if (!turn.generation.head().empty()) fields.set("X-Head-Id", turn.generation.head());
}

asio::awaitable<bool> Endpoints::answer_whole(const Call& call, Turn& turn) {
    const bool here = co_await take_until(turn, &Generation::is_over);
    if (!here) co_return false;
    CHECK(turn.generation.is_over());
    if (const auto& error = turn.generation.error()) co_return co_await refuse(call, *error);
    std::function<ApiResult<std::string>()> writing = [&turn] { return written_answer(turn.generation.whole()); };
    ApiResult<std::string> body;
    if (turn.generation.is_long())
        body = co_await on_thread(json_thread_, std::move(writing));
    else
        body = writing();
    if (!body) co_return co_await refuse(call, body.error());
    Response whole(http::status::ok, call.request.version());
    whole.set(http::field::content_type, kJsonType);
    whole.body() = *std::move(body);
    whole.prepare_payload();
    name_answer(call, turn, whole);
    co_return co_await write(call, std::move(whole));
}

asio::awaitable<bool> Endpoints::answer_stream(const Call& call, Turn& turn) {
    http::response<http::empty_body> head(http::status::ok, call.request.version());
    head.set(http::field::content_type, "text/event-stream");
    head.set(http::field::cache_control, "no-cache");
    name_answer(call, turn, head);
    const bool knows_chunks = call.request.version() >= 11;
    head.keep_alive(call.request.keep_alive() && !draining_ && knows_chunks);
    head.chunked(knows_chunks);
    ++metrics_.responses[200];
    const bool here = co_await call.connection->write_head(std::move(head));
    if (!here) co_return false;
    CHECK(loop_ != nullptr);
    Bell::Timer silence(*loop_);
    turn.updates->remind(silence, seconds(config_.ping_seconds));
    const bool written = co_await write_stream(call, turn);
    turn.updates->stop_reminding();
    if (!written) co_return false;
    co_return co_await call.connection->write_last_chunk();
}

// There is a wake-up for every token: what the socket takes at once is sent by it, without this coroutine.
asio::awaitable<bool> Endpoints::write_stream(const Call& call, Turn& turn) {
    Connection& connection = *call.connection;
    std::string rest;
    const auto send_events = [&] {
        const std::string events = turn.generation.take_events();
        if (!events.empty()) rest = connection.send_chunk(events);
        return rest.empty() && !connection.is_lost() && !turn.generation.is_delivered();
    };
    const Updates::Taker taker = [&](std::vector<ChoiceUpdate>& some) {
        take(turn, some);
        return send_events();
    };
    (void)send_events();
    while (true) {
        bool here = !connection.is_lost();
        if (!rest.empty()) {
            turn.updates->set_writing(true);
            here = co_await connection.write_rest(rest);
            turn.updates->set_writing(false);
            rest.clear();
        }
        if (turn.generation.is_delivered() || !here) co_return here;
        const Updates::Waited waited = co_await turn.updates->hand_on(turn.timer, taker);
        if (waited == Updates::Waited::kGone) co_return false;
        if (waited == Updates::Waited::kSilent) rest = connection.send_chunk(turn.generation.waiting_event());
    }
}

}  // namespace verbatim::server
