#include "server/http/endpoints.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

#include "engine/base/check.h"
#include "reference/head_digest.h"
#include "server/http/conversations.h"
#include "server/http/message_answer.h"
#include "server/http/message_request.h"
#include "server/http/response_chain.h"

namespace verbatim::server {
namespace {

// What a client calls its request, where it can be said again in a header.
std::string request_id(const Request& request, const std::string& ours) {
    const auto header = request.find("X-Request-Id");
    if (header == request.end()) return ours;
    const std::string theirs(header->value());
    return is_identifier(theirs) ? theirs : ours;
}

// `Authorization: Bearer KEY`, or where it is missing `x-api-key: KEY`, as some clients send it.
std::optional<std::string> tenant_of(const Tenants& tenants, const Request& request) {
    const auto authorization = request.find(http::field::authorization);
    if (authorization != request.end()) return tenants.find(std::string(authorization->value()));
    return tenants.find_key(std::string(request["X-Api-Key"]));
}

// GET, HEAD, OPTIONS: HEAD comes with GET, OPTIONS with everything.
std::string with_implied_methods(std::string_view methods) {
    std::string all(methods);
    const size_t get = all.find("GET");
    if (get != std::string::npos) all.insert(get + 3, ", HEAD");
    return all + ", OPTIONS";
}

// What other servers have at well-known paths.
std::string_view why_not_here(std::string_view path) {
    struct Known {
        std::string_view path;
        std::string_view why;
    };
    static constexpr Known kKnown[] = {
        {"/v1/embeddings", ", as this server generates text and has no embeddings"},
        {"/v1/audio", ", as this server generates text and has no audio"},
        {"/v1/images", ", as this server generates text and has no images"},
        {"/v1/videos", ", as this server generates text and has no videos"},
        {"/v1/realtime", ", as this server answers over HTTP and has no sessions of events"},
        {"/v1/moderations", ", as this server classifies nothing"},
        {"/v1/rerank", ", as this server ranks nothing"},
        {"/rerank", ", as this server ranks nothing"},
        {"/v2/rerank", ", as this server ranks nothing"},
        {"/score", ", as this server ranks nothing: log probabilities of prompts are in /v1/completions"},
        {"/v1/score", ", as this server ranks nothing: log probabilities of prompts are in /v1/completions"},
        {"/pooling", ", as this server generates text and has no embeddings"},
        {"/classify", ", as this server classifies nothing"},
        {"/v1/fine_tuning", ", as this server trains nothing"},
        {"/v1/files", ", as this server keeps no files"},
        {"/v1/uploads", ", as this server keeps no files"},
        {"/v1/vector_stores", ", as this server keeps no files"},
        {"/v1/batches", ", as every request is answered when it is asked"},
        {"/v1/messages/batches", ", as every request is answered when it is asked"},
        {"/v1/assistants", ", as there are conversations and /v1/responses in their place"},
        {"/v1/threads", ", as there are conversations and /v1/responses in their place"},
        {"/v1/complete", ", as /v1/messages is the newer one"},
        {"/v1/responses", ", as a response is asked for, shown with what it was asked with, and deleted, and no more"},
    };
    for (const Known& one : kKnown) {
        const bool is_within =
            path.starts_with(one.path) && (path.size() == one.path.size() || path[one.path.size()] == '/');
        if (is_within) return one.why;
    }
    return "";
}

// What a body says where none belongs: an empty object is nothing.
bool says_something(std::string_view body) {
    std::string text(body);
    std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; });
    return !text.empty() && text != "{}";
}

}  // namespace

Endpoints::Endpoints(asio::io_context& loop, std::shared_ptr<LoopHandle> handle, const HttpConfig& config,
                     Tenants tenants, std::string page)
    : loop_(&loop),
      handle_(std::move(handle)),
      config_(config),
      tenants_(std::move(tenants)),
      page_(std::move(page)),
      updates_(std::make_shared<UpdateQueue>(handle_)),
      run_(fmt::format("{:x}", std::chrono::system_clock::now().time_since_epoch().count())) {}

void Endpoints::join_threads() {
    json_thread_.join();
    text_thread_.join();
}

void Endpoints::forget_loop() {
    CHECK(loop_ != nullptr, "the loop has ended");
    updates_->close();
    handle_->close();
    loop_ = nullptr;
}

const std::vector<Route>& Endpoints::routes() {
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
        {.verb = kGet, .path = "/tokenizer_info", .handler = &Endpoints::tokenizer_info},
        {.verb = kPost, .path = "/v1/chat/completions", .handler = &Endpoints::chat},
        {.verb = kPost, .path = "/v1/completions", .handler = &Endpoints::complete},
        {.verb = kPost, .path = "/v1/responses", .handler = &Endpoints::respond},
        {.verb = kGet, .path = kResponsesPath, .handler = &Endpoints::response},
        {.verb = http::verb::delete_, .path = kResponsesPath, .handler = &Endpoints::response},
        {.verb = kPost, .path = kMessagesPath, .handler = &Endpoints::answer_message},
        {.verb = kPost, .path = "/v1/messages/count_tokens", .handler = &Endpoints::count_message},
        {.verb = kGet, .path = kConversationListPath, .handler = &Endpoints::conversations},
        {.verb = kGet, .path = kConversationsPath, .handler = &Endpoints::conversation},
        {.verb = kPost, .path = kConversationsPath, .handler = &Endpoints::conversation},
        {.verb = http::verb::delete_, .path = kConversationsPath, .handler = &Endpoints::conversation},
        {.verb = http::verb::put, .path = kConversationsPath, .handler = &Endpoints::conversation},
    };
    return kRoutes;
}

Call Endpoints::begin_call(ConnectionPtr connection) {
    const Request& request = connection->request();
    const std::string ours = fmt::format("req-{}-{}", run_, ++next_request_);
    CHECK(!connection->has_begun(), "{} before the request is looked at", ours);
    Call call{.connection = std::move(connection),
              .request = request,
              .path = std::string(request.target().substr(0, request.target().find('?'))),
              .id = ours,
              .request_id = request_id(request, ours),
              .tenant = tenant_of(tenants_, request),
              .method = std::string(request.method_string())};
    const bool is_head = request.method() == http::verb::head;
    if (is_head) call.method = "GET";
    for (const Route& known : routes()) {
        const bool is_prefix = known.path.size() > 1 && known.path.ends_with('/');
        if (is_prefix ? !call.path.starts_with(known.path) : call.path != known.path) continue;
        call.of_path = &known;
        call.allowed += (call.allowed.empty() ? "" : ", ") + std::string(http::to_string(known.verb));
        if (http::to_string(known.verb) == call.method) call.route = &known;
    }
    if (call.path.starts_with(kConversationsPath)) {
        call.allowed = conversation_methods(call.path);
        if (call.allowed.find(call.method) == std::string::npos) call.route = nullptr;
    }
    if (call.path.starts_with(kResponsesPath)) {
        call.allowed = response_methods(call.path);
        if (call.allowed.find(call.method) == std::string::npos) call.route = nullptr;
        if (call.allowed.empty()) call.of_path = nullptr;
    }
    if (call.path == "*") call.allowed = "GET, POST, DELETE";
    if (!call.allowed.empty()) call.allowed = with_implied_methods(call.allowed);
    static const Route kOptions = {.verb = http::verb::options,
                                   .path = "*",
                                   .handler = &Endpoints::options,
                                   .needs_key = false,
                                   .needs_model = false};
    const bool is_options = request.method() == http::verb::options && !call.allowed.empty();
    if (is_options) call.of_path = call.route = &kOptions;
    return call;
}

namespace {

ApiError heads_are_off() {
    return {403, "heads are not given out and taken in here: serve --head-transfer", "", "head_transfer"};
}

}  // namespace

std::optional<Response> Endpoints::refusal_without_body(const Call& call) {
    std::optional<ApiError> error = refusal(call);
    const bool is_head = call.request.method() == http::verb::put;  // no other body is put
    CHECK(error || service_ || !is_head, "{} before the model is there", call.path);
    if (!error && is_head && !service_->heads) error = heads_are_off();
    if (!error) return std::nullopt;
    Response response = refused(call, *error);
    sign(call, response);
    return response;
}

asio::awaitable<bool> Endpoints::answer(const Call& call) {
    if (const std::optional<ApiError> error = refusal(call)) co_return co_await refuse(call, *error);
    CHECK(call.route != nullptr && (service_ || !call.route->needs_model), "{} is not refused", call.path);
    const bool has_body = call.route->verb == http::verb::post || call.route->verb == http::verb::put;
    if (!has_body && says_something(call.request.body())) {
        const ApiError unread{400, fmt::format("{} has no body: what is in this one?", call.request.method_string()),
                              "", "unexpected_body"};
        co_return co_await refuse(call, unread);
    }
    std::optional<ApiError> failed;
    try {
        co_return co_await (this->*(call.route->handler))(call);
    } catch (const std::exception& problem) {
        failed = server_failed(problem.what());
    }
    CHECK(failed.has_value(), "{}: no answer and no error", call.path);
    if (call.connection->has_begun()) co_return false;
    co_return co_await refuse(call, *failed);
}

ApiError Endpoints::unknown_url(const std::string& path) {
    std::string known;
    for (const Route& route : routes()) {
        if (route.path == kConversationsPath) continue;
        const bool is_prefix = route.path.size() > 1 && route.path.ends_with('/');
        known +=
            fmt::format("{} {}{}, ", std::string(http::to_string(route.verb)), route.path, is_prefix ? "NAME" : "");
    }
    return {
        404,
        fmt::format("{} is not here{}: there are {}GET {}NAME{}, GET and DELETE {}ID, POST {}ID/fork and ID/rewind, "
                    "GET and PUT ID/head",
                    path, why_not_here(path), known, kResponsesPath, kInputItemsPath, kConversationsPath,
                    kConversationsPath),
        "", "unknown_url"};
}

std::optional<ApiError> Endpoints::refusal(const Call& call) const {
    if (call.of_path == nullptr) return unknown_url(call.path);
    const Route& route = call.route == nullptr ? *call.of_path : *call.route;
    if (route.needs_key && tenants_.ask_for_keys() && !call.tenant)
        return ApiError{401, "an API key is asked for: Authorization: Bearer KEY, or x-api-key: KEY", "",
                        "invalid_api_key"};
    if (route.needs_model && !service_) return ApiError{503, "the model is being loaded", "", "loading"};
    const bool is_new_work = route.verb == http::verb::post || route.verb == http::verb::put;
    if (is_new_work && draining_) return ApiError{503, "the server is about to end", "", "draining"};
    if (call.allowed.empty()) return unknown_url(call.path);
    if (call.route == nullptr)
        return ApiError{405, fmt::format("{} takes {}", call.path, call.allowed), "", "method_not_allowed"};
    return std::nullopt;
}

ApiError Endpoints::overloaded() { return {429, "the queue of requests is full: try again", "", "overloaded"}; }

std::optional<ApiError> Endpoints::capacity_error() const {
    if (service_->host->has_room(num_prepared_)) return std::nullopt;
    return overloaded();
}

// --- answers of one piece

// What every answer has.
void Endpoints::sign(const Call& call, Response& response) {
    CHECK(!call.connection->has_begun(), "a second answer to {}", call.path);
    response.version(call.request.version());
    response.keep_alive(call.request.keep_alive() && !draining_);
    response.set("X-Request-Id", call.request_id);
    if (is_of_messages(call.path)) response.set("Request-Id", call.request_id);
    if (call.request.method() == http::verb::head) response.body().clear();  // the next answer would be taken for it
    ++metrics_.responses[response.result_int()];
}

asio::awaitable<bool> Endpoints::write(const Call& call, Response response) {
    sign(call, response);
    co_return co_await call.connection->write(std::move(response));
}

asio::awaitable<bool> Endpoints::say(const Call& call, const Json& body) {
    co_return co_await write(call, json_response(200, call.request.version(), body));
}

asio::awaitable<bool> Endpoints::say_text(const Call& call, const char* type, std::string body) {
    Response response(http::status::ok, call.request.version());
    response.set(http::field::content_type, type);
    response.body() = std::move(body);
    response.prepare_payload();
    co_return co_await write(call, std::move(response));
}

Response Endpoints::refused(const Call& call, const ApiError& error) const {
    Response response = error_response(error, call.request);
    if (error.status == 405)
        response.set(http::field::allow, beast::string_view(call.allowed.data(), call.allowed.size()));
    return response;
}

asio::awaitable<bool> Endpoints::refuse(const Call& call, const ApiError& error) {
    Response response = refused(call, error);
    co_return co_await write(call, std::move(response));
}

// What the path takes, and what a page of an origin that may ask may send there: whatever headers it names.
asio::awaitable<bool> Endpoints::options(const Call& call) {
    Response response(http::status::no_content, call.request.version());
    response.set(http::field::allow, call.allowed);
    const bool is_preflight = call.request.find(http::field::access_control_request_method) != call.request.end();
    if (is_preflight && !call.connection->admitted_origin().empty()) {
        response.set(http::field::access_control_allow_methods, call.allowed);
        response.set(http::field::access_control_allow_headers,
                     call.request[http::field::access_control_request_headers]);
        response.set(http::field::access_control_max_age, "600");
    }
    co_return co_await write(call, std::move(response));
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
    std::string text =
        metrics_text(metrics_, service_->host->view(),
                     service_->record ? std::optional(service_->record()) : std::nullopt, service_->model.first());
    co_return co_await say_text(call, "text/plain; version=0.0.4; charset=utf-8", std::move(text));
}

asio::awaitable<bool> Endpoints::models(const Call& call) {
    const Json all = model_list(*service_);
    co_return co_await say(call, all);
}

asio::awaitable<bool> Endpoints::model(const Call& call) {
    const std::string name = call.path.substr(std::string_view("/v1/models/").size());
    const std::string asked = percent_decoded(name).value_or(name);
    const Json known = model_json(*service_, asked);
    if (service_->model.contains(asked)) co_return co_await say(call, known);
    const ApiError unknown{
        404, fmt::format("model {} is not here: there is {}", asked, fmt::join(service_->model.all, ", ")), "model",
        "model_not_found"};
    co_return co_await refuse(call, unknown);
}

// --- text

asio::awaitable<bool> Endpoints::tokenize(const Call& call) {
    const std::function<std::string(const Json&)> write = written_answer;
    std::function<ApiResult<TokenizeRequest>()> read = [this, &call] {
        return parse_tokenize_request(call.request.body(), service_->model);
    };
    co_return co_await tokenized(call, std::move(read), write);
}

asio::awaitable<bool> Endpoints::count_message(const Call& call) {
    const std::function<std::string(const Json&)> write = [](const Json& made) {
        return written_answer({{"input_tokens", made["count"]}});
    };
    std::function<ApiResult<TokenizeRequest>()> read = [this, &call]() -> ApiResult<TokenizeRequest> {
        const auto body = parse_body(call.request.body());
        if (!body) return tl::unexpected(body.error());
        return parse_count_request(*body, reasoning_traits(*service_), service_->model);
    };
    co_return co_await tokenized(call, std::move(read), write);
}

asio::awaitable<bool> Endpoints::tokenized(const Call& call, std::function<ApiResult<TokenizeRequest>()> read,
                                           const std::function<std::string(const Json&)>& write) {
    if (const auto full = capacity_error()) co_return co_await refuse(call, *full);
    const Preparing counted(num_prepared_);
    const ApiResult<TokenizeRequest> asked = co_await on_thread(json_thread_, std::move(read));
    if (!asked) co_return co_await refuse(call, asked.error());
    std::function<ApiResult<std::string>()> work = [this, &asked, &write]() -> ApiResult<std::string> {
        return server::tokenize(*service_, *asked, words_).map(write);
    };
    auto made = co_await on_thread(text_thread_, std::move(work));
    if (!made) co_return co_await refuse(call, made.error());
    co_return co_await say_text(call, kJsonType, *std::move(made));
}

asio::awaitable<bool> Endpoints::detokenize(const Call& call) {
    if (const auto full = capacity_error()) co_return co_await refuse(call, *full);
    const Preparing counted(num_prepared_);
    std::function<ApiResult<std::string>()> work = [this, &call]() -> ApiResult<std::string> {
        auto tokens = parse_detokenize_request(call.request.body(), service_->model, service_->vocab_size);
        if (!tokens) return tl::unexpected(tokens.error());
        return written_answer(server::detokenize(*service_, *tokens));
    };
    auto made = co_await on_thread(json_thread_, std::move(work));
    if (!made) co_return co_await refuse(call, made.error());
    co_return co_await say_text(call, kJsonType, *std::move(made));
}

asio::awaitable<bool> Endpoints::tokenizer_info(const Call& call) {
    const Json info = server::tokenizer_info(*service_);
    co_return co_await say(call, info);
}

// --- conversations

asio::awaitable<bool> Endpoints::conversations(const Call& call) {
    const auto page = parse_conversation_page(std::string(call.request.target()), call.tenant);
    if (!page) co_return co_await refuse(call, page.error());
    using Listed = Result<std::vector<ListedConversation>>;
    using Reply = Delivery<Listed>;
    const auto delivery = std::make_shared<Reply>();
    service_->host->ledger().list(
        *page, [handle = handle_, delivery](Listed listed) { Reply::hand_in(*handle, delivery, std::move(listed)); });
    Listed listed = co_await delivery->take();
    if (!listed) {
        const ApiError problem = ledger_problem(listed.error().message);
        co_return co_await refuse(call, problem);
    }
    const Json list = conversation_list(*page, *std::move(listed));
    co_return co_await say(call, list);
}

// Runs on the engine's thread; the answer follows when the ledger has stored it.
asio::awaitable<bool> Endpoints::conversation(const Call& call) {
    const std::string target(call.request.target());
    const bool is_put = call.request.method() == http::verb::put;
    auto parsed = parse_conversation_call(call.method, target, is_put ? "" : call.request.body(), call.tenant);
    if (!parsed) co_return co_await refuse(call, parsed.error());
    using Kind = ConversationCall::Kind;
    const bool is_export = parsed->kind == Kind::kExportHead;
    if ((is_export || parsed->kind == Kind::kImportHead) && !service_->heads) {
        co_return co_await refuse(call, heads_are_off());
    }
    using Written = ApiResult<std::string>;
    if (parsed->kind == Kind::kImportHead) {
        if (!call.file) {
            const ApiError empty{400, "no body: wanted a head's file", "", "invalid_head"};
            co_return co_await refuse(call, empty);
        }
        std::function<ApiResult<HeadPtr>()> reading = [this, &call] { return read_head(call.file->path()); };
        ApiResult<HeadPtr> read = co_await on_thread(json_thread_, std::move(reading));
        if (!read) co_return co_await refuse(call, read.error());
        parsed->head = *std::move(read);
    }
    const ApiResult<ConversationReply> reply = co_await ask_host(*std::move(parsed));
    if (!reply) co_return co_await refuse(call, reply.error());
    if (reply->head) co_return co_await say_head(call, *reply->head);
    // It may have many turns.
    std::function<Written()> writing = [this, &reply]() -> Written {
        if (!reply->view) return written_answer(reply->json);
        Json shown = reply->json;
        add_content(*reply->view, *service_->tokenizer, shown);
        return written_answer(shown);
    };
    Written body = co_await on_thread(json_thread_, std::move(writing));
    if (!body) co_return co_await refuse(call, body.error());
    co_return co_await say_text(call, kJsonType, *std::move(body));
}

asio::awaitable<ApiResult<ConversationReply>> Endpoints::ask_host(ConversationCall asked) {
    CHECK(service_.has_value());
    using Reply = Delivery<ConversationReply>;
    const auto delivery = std::make_shared<Reply>();
    const bool is_asked = service_->host->ask(std::move(asked), [handle = handle_, delivery](auto reply) {
        Reply::hand_in(*handle, delivery, std::move(reply));
    });
    if (!is_asked) co_return tl::unexpected(overloaded());
    ConversationReply reply = co_await delivery->take();
    if (!reply.head_problem.empty()) co_return tl::unexpected(ApiError{409, reply.head_problem, "", "head_refused"});
    if (!reply.problem.empty()) co_return tl::unexpected(ledger_problem(reply.problem));
    if (reply.refusal) co_return tl::unexpected(api_error(*reply.refusal));
    co_return reply;
}

// Shown, with its answer or what it was asked with, or deleted.
asio::awaitable<bool> Endpoints::response(const Call& call) {
    auto named = parse_response_call(std::string(call.request.target()), call.tenant);
    if (!named) co_return co_await refuse(call, named.error());
    const std::string id = named->call.to;
    if (call.method == "DELETE") {
        const ApiResult<ConversationReply> reply = co_await ask_host(std::move(named->call));
        if (reply) co_return co_await say(call, reply->json);
        const ApiError refused = reply.error().status == 404 ? unknown_response(id, "") : reply.error();
        co_return co_await refuse(call, refused);
    }
    const auto delivery = std::make_shared<Delivery<Look>>();
    const LookQuestion question{named->call.key, id, std::nullopt};
    service_->host->ledger().look(question, [handle = handle_, delivery](Look look) {
        Delivery<Look>::hand_in(*handle, delivery, std::move(look));
    });
    const Look look = co_await delivery->take();
    std::function<ApiResult<std::string>()> writing = [this, &id, &look, &named]() -> ApiResult<std::string> {
        if (named->items) return stored_input(*service_, id, look, *named->items).map(written_answer);
        return stored_response(*service_, id, look).map(written_answer);
    };
    auto body = co_await on_thread(json_thread_, std::move(writing));
    if (!body) co_return co_await refuse(call, body.error());
    co_return co_await say_text(call, kJsonType, *std::move(body));
}

// Errors: it is damaged, its state does not have its digest, or it is another model's.
auto Endpoints::read_head(const std::filesystem::path& path) const -> ApiResult<HeadPtr> {
    const auto invalid = [](const std::string& why) { return tl::unexpected(ApiError{400, why, "", "invalid_head"}); };
    auto file = reference::HeadFile::open_whole(path, "the body");
    if (!file) return invalid(file.error().message);
    const Status same = file->check_model(service_->heads->model, service_->heads->tensors);
    if (!same) return tl::unexpected(ApiError{409, same.error().message, "", "head_refused"});
    const auto has_id = [&](TokenId token) { return token >= 0 && token < service_->vocab_size; };
    if (!std::ranges::all_of(file->info().tokens, has_id)) return invalid("the body: a token outside the vocabulary");
    if (const Status right = file->check_digest(); !right) return invalid(right.error().message);
    return std::make_shared<const reference::HeadFile>(*std::move(file));
}

asio::awaitable<bool> Endpoints::read_file(Call& call) {
    CHECK(service_.has_value(), "{} before the model is there", call.path);
    const HeadIdentity limits = service_->heads.value_or(HeadIdentity{});
    auto file = SpooledBody::create(limits.spool.empty() ? std::filesystem::temp_directory_path() : limits.spool);
    if (!file) {
        Response response = refused(call, {507, file.error().message, "", "no_space"});
        sign(call, response);
        co_await call.connection->refuse_unread(std::move(response));
        co_return false;
    }
    call.file.emplace(*std::move(file));
    co_return co_await call.connection->read_body_to(*call.file, limits.max_bytes);
}

// Its bytes are in memory once.
asio::awaitable<bool> Endpoints::say_head(const Call& call, const HeadCopy& head) {
    const reference::HeadInfo info{service_->heads->model, head.numerics_id,        head.digest,
                                   std::nullopt,           head.tokens.to_vector(), {}};
    std::function<ApiResult<std::string>()> writing = [&]() -> ApiResult<std::string> {
        return reference::head_file_prefix(info, service_->heads->tensors, head.bytes);
    };
    const ApiResult<std::string> prefix = co_await on_thread(json_thread_, std::move(writing));
    if (!prefix) co_return co_await refuse(call, prefix.error());
    const std::array<std::span<const std::byte>, 3> parts = {std::as_bytes(std::span(*prefix)),
                                                             std::as_bytes(std::span(info.tokens)), head.bytes};
    http::response<http::empty_body> begin(http::status::ok, call.request.version());
    begin.set(http::field::content_type, kHeadType);
    begin.set("X-Request-Id", call.request_id);
    begin.keep_alive(call.request.keep_alive() && !draining_);
    begin.content_length(prefix->size() + info.tokens.size() * sizeof(TokenId) + head.bytes.size());
    ++metrics_.responses[begin.result_int()];
    CHECK_EQ(std::ssize(head.bytes), reference::head_num_bytes(service_->heads->tensors, info.length()));
    bool goes_on = co_await call.connection->write_head(std::move(begin));
    if (call.request.method() == http::verb::head) co_return goes_on;
    for (const std::span<const std::byte> part : parts)
        goes_on = goes_on && co_await call.connection->write_bytes(part);
    co_return goes_on;
}

}  // namespace verbatim::server
