#include "server/http/endpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <type_traits>
#include <utility>

#include "server/http/conversations.h"

namespace verbatim::server {
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr const char* kJsonType = "application/json";

double seconds_now() { return std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count(); }

// What a client calls its request, where it can be said again in a header.
std::string request_id(const Request& request, const std::string& ours) {
    const auto header = request.find("X-Request-Id");
    if (header == request.end()) return ours;
    const std::string theirs(header->value());
    return is_identifier(theirs) ? theirs : ours;
}

ApiError server_failed(std::string_view why) {
    return {500, fmt::format("the server failed: {}", why), "", "internal_error"};
}

// What `work` says, or that it threw. T is an ApiResult, or an error that may be none.
template <typename T>
T outcome_of(const std::function<T()>& work) {
    std::string why;
    try {
        return work();
    } catch (const std::exception& problem) {
        why = problem.what();
    }
    if constexpr (std::is_same_v<T, std::optional<ApiError>>)
        return server_failed(why);
    else
        return tl::unexpected(server_failed(why));
}

}  // namespace

Endpoints::Endpoints(std::shared_ptr<asio::io_context> loop, const HttpConfig& config, Tenants tenants,
                     std::string page)
    : loop_(std::move(loop)),
      config_(config),
      tenants_(std::move(tenants)),
      page_(std::move(page)),
      updates_(std::make_shared<UpdateQueue>(*loop_)),
      run_(fmt::format("{:x}", std::chrono::system_clock::now().time_since_epoch().count())) {}

void Endpoints::join_threads() {
    json_thread_.join();
    text_thread_.join();
}

void Endpoints::forget_loop() {
    updates_->close();
    loop_.reset();
}

const std::vector<Endpoints::Route>& Endpoints::routes() {
    constexpr auto kGet = http::verb::get;
    constexpr auto kPost = http::verb::post;
    static const std::vector<Route> kRoutes = {
        {.verb = kGet, .path = "/", .handler = &Endpoints::page, .needs_key = false, .needs_model = false},
        {.verb = kGet, .path = "/health", .handler = &Endpoints::health, .needs_key = false, .needs_model = false},
        {.verb = kGet, .path = "/ready", .handler = &Endpoints::ready, .needs_key = false, .needs_model = false},
        {.verb = kGet, .path = "/metrics", .handler = &Endpoints::show_metrics, .needs_key = false},
        {.verb = kGet, .path = "/v1/models", .handler = &Endpoints::models},
        {.verb = kGet, .path = "/v1/models/", .handler = &Endpoints::model},
        {.verb = kPost, .path = "/tokenize", .handler = &Endpoints::tokenize},
        {.verb = kPost, .path = "/detokenize", .handler = &Endpoints::detokenize},
        {.verb = kPost, .path = "/v1/chat/completions", .handler = &Endpoints::chat},
        {.verb = kPost, .path = "/v1/completions", .handler = &Endpoints::complete},
        {.verb = kGet, .path = kConversationsPath, .handler = &Endpoints::conversation},
        {.verb = kPost, .path = kConversationsPath, .handler = &Endpoints::conversation},
        {.verb = http::verb::delete_, .path = kConversationsPath, .handler = &Endpoints::conversation},
    };
    return kRoutes;
}

asio::awaitable<bool> Endpoints::answer(ConnectionPtr connection, const Request& request) {
    const std::string ours = fmt::format("req-{}-{}", run_, ++next_request_);
    const Call heard{.connection = std::move(connection),
                     .request = request,
                     .path = std::string(request.target().substr(0, request.target().find('?'))),
                     .id = request_id(request, ours),
                     .tenant = tenants_.find(std::string(request[http::field::authorization]))};
    const Route* of_path = nullptr;
    std::string allowed;
    const Route* route = nullptr;
    for (const Route& known : routes()) {
        const bool is_prefix = known.path.size() > 1 && known.path.ends_with('/');
        if (is_prefix ? !heard.path.starts_with(known.path) : heard.path != known.path) continue;
        of_path = &known;
        allowed += (allowed.empty() ? "" : ", ") + std::string(http::to_string(known.verb));
        if (known.verb == request.method()) route = &known;
    }
    if (const std::optional<ApiError> refused = refusal(heard, route == nullptr ? of_path : route))
        co_return co_await refuse(heard, *refused);
    if (route == nullptr) {
        const ApiError wrong{405, fmt::format("{} takes {}", heard.path, allowed), "", "method_not_allowed"};
        co_return co_await refuse(heard, wrong, allowed);
    }
    std::optional<ApiError> failed;
    try {
        co_return co_await (this->*(route->handler))(heard);
    } catch (const std::exception& problem) {
        failed = server_failed(problem.what());
    }
    if (heard.connection->has_begun()) co_return false;
    co_return co_await refuse(heard, *failed);
}

std::optional<ApiError> Endpoints::refusal(const Call& call, const Route* route) const {
    if (route == nullptr) return ApiError{404, call.path + " is not here", "", "unknown_url"};
    if (route->needs_key && tenants_.ask_for_keys() && !call.tenant)
        return ApiError{401, "an API key is asked for: Authorization: Bearer KEY", "", "invalid_api_key"};
    if (route->needs_model && !service_) return ApiError{503, "the model is being loaded", "", "loading"};
    const bool is_new_work = route->verb == http::verb::post;
    if (is_new_work && draining_) return ApiError{503, "the server is about to end", "", "draining"};
    return std::nullopt;
}

// --- answers of one piece

asio::awaitable<bool> Endpoints::write(const Call& call, Response response) {
    response.version(call.request.version());
    response.keep_alive(call.request.keep_alive() && !draining_);
    response.set("X-Request-Id", call.id);
    if (call.request.method() == http::verb::head) response.body().clear();  // the next answer would be taken for it
    ++metrics_.responses[response.result_int()];
    co_return co_await call.connection->write(std::move(response));
}

asio::awaitable<bool> Endpoints::say(const Call& call, const Json& body) {
    co_return co_await write(call, json_response(200, call.request.version(), body));
}

asio::awaitable<bool> Endpoints::say_text(const Call& call, const char* type, std::string body) {
    Response said(http::status::ok, call.request.version());
    said.set(http::field::content_type, type);
    said.body() = std::move(body);
    said.prepare_payload();
    co_return co_await write(call, std::move(said));
}

asio::awaitable<bool> Endpoints::refuse(const Call& call, const ApiError& error, std::string_view allowed) {
    Response said = json_response(error.status, call.request.version(), error.envelope());
    if (error.status == 429 || error.status == 503) said.set(http::field::retry_after, "1");
    if (error.status == 401) said.set(http::field::www_authenticate, "Bearer");
    if (!allowed.empty()) said.set(http::field::allow, beast::string_view(allowed.data(), allowed.size()));
    co_return co_await write(call, std::move(said));
}

asio::awaitable<bool> Endpoints::page(const Call& call) {
    co_return co_await say_text(call, "text/html; charset=utf-8", page_);
}

asio::awaitable<bool> Endpoints::health(const Call& call) {
    const Json alive = {{"status", "ok"}};
    co_return co_await say(call, alive);
}

asio::awaitable<bool> Endpoints::ready(const Call& call) {
    ApiError error{503, "", "", ""};
    if (!service_) {
        error.message = "the model is being loaded";
        error.code = "loading";
    } else if (draining_) {
        error.message = "the server is about to end";
        error.code = "draining";
    } else if (const std::string failure = service_->host->failure(); !failure.empty()) {
        error.message = "the executor failed: " + failure;
        error.code = "failed";
    } else {
        const Json is_ready = {{"status", "ready"}};
        co_return co_await say(call, is_ready);
    }
    co_return co_await refuse(call, error);
}

asio::awaitable<bool> Endpoints::show_metrics(const Call& call) {
    std::string text = metrics_text(metrics_, service_->host->view(), service_->model);
    co_return co_await say_text(call, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

asio::awaitable<bool> Endpoints::models(const Call& call) {
    const Json all = model_list(*service_);
    co_return co_await say(call, all);
}

asio::awaitable<bool> Endpoints::model(const Call& call) {
    const std::string asked = call.path.substr(std::string_view("/v1/models/").size());
    const Json known = model_json(*service_);
    if (asked == service_->model) co_return co_await say(call, known);
    const ApiError unknown{404, fmt::format("model {} is not here: {} is", asked, service_->model), "model",
                           "model_not_found"};
    co_return co_await refuse(call, unknown);
}

// --- text

template <typename T>
asio::awaitable<T> Endpoints::on_thread(asio::thread_pool& thread, std::function<T()> work) {
    struct Shared {
        Bell done;
        std::optional<T> made;
    };
    const auto shared = std::make_shared<Shared>();
    asio::post(thread, [this, shared, work = std::move(work)] {
        T made = outcome_of(work);
        asio::post(*loop_, [shared, made = std::move(made)]() mutable {
            shared->made = std::move(made);
            shared->done.ring();
        });
    });
    while (!shared->made) co_await shared->done.wait();
    co_return *std::move(shared->made);
}

asio::awaitable<bool> Endpoints::tokenize(const Call& call) {
    using Read = ApiResult<TokenizeRequest>;
    std::function<Read()> read = [this, &call] { return parse_tokenize_request(call.request.body(), service_->model); };
    const Read asked = co_await on_thread(json_thread_, std::move(read));
    if (!asked) co_return co_await refuse(call, asked.error());
    std::function<ApiResult<std::string>()> work = [this, &asked]() -> ApiResult<std::string> {
        return server::tokenize(*service_, *asked, words_).map(written_answer);
    };
    auto made = co_await on_thread(text_thread_, std::move(work));
    if (!made) co_return co_await refuse(call, made.error());
    co_return co_await say_text(call, kJsonType, *std::move(made));
}

asio::awaitable<bool> Endpoints::detokenize(const Call& call) {
    std::function<ApiResult<std::string>()> work = [this, &call]() -> ApiResult<std::string> {
        auto tokens = parse_detokenize_request(call.request.body(), service_->model);
        if (!tokens) return tl::unexpected(tokens.error());
        return server::detokenize(*service_, *tokens).map(written_answer);
    };
    auto made = co_await on_thread(json_thread_, std::move(work));
    if (!made) co_return co_await refuse(call, made.error());
    co_return co_await say_text(call, kJsonType, *std::move(made));
}

// --- conversations

// Done on the engine's thread, and told when it is kept.
asio::awaitable<bool> Endpoints::conversation(const Call& call) {
    const std::string method(call.request.method_string());
    const std::string target(call.request.target());
    auto parsed = parse_conversation_call(method, target, call.request.body(), call.tenant);
    if (!parsed) co_return co_await refuse(call, parsed.error());
    struct Shared {
        Bell done;
        std::optional<ConversationReply> reply;
    };
    const auto shared = std::make_shared<Shared>();
    const bool asked = service_->host->ask(*std::move(parsed), [weak = std::weak_ptr(loop_), shared](auto reply) {
        const std::shared_ptr<asio::io_context> loop = weak.lock();
        if (!loop) return;
        asio::post(*loop, [shared, reply = std::move(reply)]() mutable {
            shared->reply = std::move(reply);
            shared->done.ring();
        });
    });
    if (!asked) {
        const ApiError full{429, "too many requests are waiting: try again", "", "overloaded"};
        co_return co_await refuse(call, full);
    }
    while (!shared->reply) co_await shared->done.wait();
    const ConversationReply& reply = *shared->reply;
    std::optional<ApiError> refused;
    if (reply.refusal) refused = api_error(*reply.refusal);
    if (!reply.problem.empty())
        refused = ApiError{503, "the ledger cannot be written: " + reply.problem, "", "ledger_unavailable"};
    if (refused) co_return co_await refuse(call, *refused);
    using Written = ApiResult<std::string>;
    std::function<Written()> writing = [&reply] { return written_answer(reply.json); };  // it may have many turns
    Written body = co_await on_thread(json_thread_, std::move(writing));
    if (!body) co_return co_await refuse(call, body.error());
    co_return co_await say_text(call, kJsonType, *std::move(body));
}

// --- generation

// What a request asks, and what is known of its conversation; all that can be wrong without looking at the text.
ApiResult<Endpoints::Asked> Endpoints::read(const Call& call, ApiKind kind) const {
    auto parsed = parse_generate_request(kind, call.request.body(), service_->model);
    if (!parsed) return tl::unexpected(parsed.error());
    Asked asked{.request = *std::move(parsed)};
    asked.conversation = conversation_of(asked.request, [&](std::string_view name) {
        return std::string(call.request[beast::string_view(name.data(), name.size())]);
    });
    asked.salt = salt_of(call.tenant, asked.request.cache_salt);
    if (auto wrong = conversation_problem(asked.request, asked.conversation)) return tl::unexpected(*std::move(wrong));
    auto history = history_of(*service_, asked.request, asked.conversation, asked.salt);
    if (!history) return tl::unexpected(history.error());
    asked.history = *std::move(history);
    return asked;
}

// Compared with the conversation and put into tokens, on the text's thread where there is text.
std::optional<ApiError> Endpoints::make_jobs(Asked& asked) {
    auto prompt = prompt_of(*service_, asked.request, asked.history, words_);
    if (!prompt) return prompt.error();
    asked.num_prompt_tokens = static_cast<int64_t>(prompt->ids.size());
    auto jobs = host_requests(*service_, asked.request, asked.conversation, asked.salt, *std::move(prompt));
    if (!jobs) return jobs.error();
    asked.jobs = *std::move(jobs);
    asked.request.conversation_id = asked.conversation.id;
    asked.request.messages.clear();
    asked.history = {};
    return std::nullopt;
}

// Read on one thread and put into tokens on the other one; the sockets' hears of it once, at the end.
asio::awaitable<ApiResult<Endpoints::Asked>> Endpoints::prepare(const Call& call, ApiKind kind) {
    struct Shared {
        Bell done;
        ApiResult<Asked> asked;
        bool is_done = false;
    };
    const auto shared = std::make_shared<Shared>();
    const auto tell = [this, shared] {
        asio::post(*loop_, [shared] {
            shared->is_done = true;
            shared->done.ring();
        });
    };
    const auto encode = [this, shared, tell] {
        const std::function<std::optional<ApiError>()> work = [this, &shared] { return make_jobs(*shared->asked); };
        if (auto wrong = outcome_of(work)) shared->asked = tl::unexpected(*std::move(wrong));
        tell();
    };
    asio::post(json_thread_, [this, shared, &call, kind, encode, tell] {
        const std::function<ApiResult<Asked>()> reading = [this, &call, kind] { return read(call, kind); };
        shared->asked = outcome_of(reading);
        if (!shared->asked) return tell();
        const bool has_text = !shared->asked->request.prompt_is_ids || shared->asked->conversation.id;
        if (!has_text) return encode();
        asio::post(text_thread_, encode);
    });
    while (!shared->is_done) co_await shared->done.wait();
    co_return std::move(shared->asked);
}

// Everything up to the engine: an error, or a turn.
asio::awaitable<std::optional<ApiError>> Endpoints::begin(const Call& call, ApiKind kind, std::optional<Turn>& turn) {
    const double began = seconds_now();
    auto asked = co_await prepare(call, kind);
    if (!asked) co_return asked.error();
    std::vector<HostRequest>* const requests = &asked->jobs;

    const AnswerFrame frame{kind, fmt::format("{}-{}", kind == ApiKind::kChat ? "chatcmpl" : "cmpl", call.id),
                            service_->model, service_->fingerprint, service_->now()};
    if (auto& claim = requests->front().claim) {
        claim->answer_id = frame.id;
        claim->created = frame.created;
    }
    const size_t num_choices = requests->size();
    const size_t max_waiting = config_.max_unread_tokens * num_choices;
    auto updates = std::make_shared<Updates>(updates_, max_waiting, [connection = std::weak_ptr(call.connection)] {
        if (const ConnectionPtr alive = connection.lock()) alive->cancel();
    });
    std::vector<EngineHost::Job> jobs;
    for (size_t i = 0; i < num_choices; ++i) jobs.push_back({std::move((*requests)[i]), updates->sink(i)});
    turn.emplace(
        Turn{.generation = Generation(*service_->tokenizer, std::move(asked->request), frame, asked->num_prompt_tokens),
             .updates = std::move(updates),
             .timer = Bell::Timer(*loop_, Bell::Timer::time_point::max()),
             .tickets = {},
             .began = began,
             .first_tokens = std::vector<double>(num_choices)});
    auto tickets = service_->host->submit(std::move(jobs));  // behind it nothing fails: who runs can be aborted
    if (!tickets) {
        const std::string failure = service_->host->failure();
        if (!failure.empty()) co_return ApiError{503, "the executor failed: " + failure, "", "failed"};
        co_return ApiError{429, "too many requests are waiting: try again", "", "overloaded"};
    }
    turn->tickets = *std::move(tickets);
    co_return std::nullopt;
}

asio::awaitable<bool> Endpoints::generate(const Call& call, ApiKind kind) {
    std::optional<Turn> begun;
    const std::optional<ApiError> refused = co_await begin(call, kind, begun);
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
    const bool is_stream = turn.generation.request().stream && !turn.generation.error();
    if (is_stream) co_return co_await answer_stream(call, turn);
    co_return co_await answer_whole(call, turn);
}

// What is half sent cannot be gone on with: the connection ends.
asio::awaitable<bool> Endpoints::answer_failed(const Call& call, const Turn& turn, const ApiError& error) {
    turn.updates->leave();
    if (!call.connection->has_begun()) co_return co_await refuse(call, error);
    if (!turn.generation.request().stream || turn.updates->is_writing()) co_return false;
    const std::string rest = call.connection->send_chunk(event_of(error.envelope()));
    if (!rest.empty() || call.connection->is_lost()) co_return false;
    (void)co_await call.connection->write_last_chunk();
    co_return false;
}

// Hands what has come to the generation.
void Endpoints::take(Turn& turn, std::vector<ChoiceUpdate>& some) {
    for (ChoiceUpdate& update : some) {
        const size_t choice = update.choice;
        if (update.update.kind == HostUpdate::Kind::kToken && turn.first_tokens[choice] == 0)
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
    fields.set("X-Request-Id", call.id);
    if (!turn.generation.is_in_conversation()) return;
    fields.set("X-Conversation-Id", *turn.generation.request().conversation_id);
    if (!turn.generation.head().empty()) fields.set("X-Head-Id", turn.generation.head());
}

asio::awaitable<bool> Endpoints::answer_whole(const Call& call, Turn& turn) {
    const bool here = co_await take_until(turn, &Generation::is_over);
    if (!here) co_return false;
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
    head.keep_alive(call.request.keep_alive() && !draining_);
    head.chunked(true);
    ++metrics_.responses[200];
    const bool here = co_await call.connection->write_head(std::move(head));
    if (!here) co_return false;
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
        return rest.empty() && !connection.is_lost() && !turn.generation.is_told();
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
        if (turn.generation.is_told() || !here) co_return here;
        const Updates::Waited waited = co_await turn.updates->hand_on(turn.timer, taker);
        if (waited == Updates::Waited::kGone) co_return false;
        if (waited == Updates::Waited::kSilent) rest = connection.send_chunk(": still here\n\n");
    }
}

}  // namespace verbatim::server
