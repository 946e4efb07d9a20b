#include "server/http/http_server.h"

#include <fmt/format.h>
#include <sys/socket.h>

// Asio's awaitable of this version uses std::exchange without including it.
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <string_view>
#include <unordered_set>

#include "server/text/decoder.h"
#include "server/text/stop_texts.h"

namespace verbatim::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::seconds;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

// What the engine tells about one request, for the thread of the sockets alone. The engine may have a last word after
// that thread's loop has gone.
class Updates : public std::enable_shared_from_this<Updates> {
public:
    explicit Updates(const std::shared_ptr<asio::io_context>& loop) : loop_(loop), signal_(*loop) {}

    EngineHost::Sink sink() {
        return [self = shared_from_this()](HostUpdate update) {
            const std::shared_ptr<asio::io_context> loop = self->loop_.lock();
            if (!loop) return;
            asio::post(*loop, [self, update = std::move(update)]() mutable {
                self->waiting_.push_back(std::move(update));
                self->signal_.cancel();
            });
        };
    }
    void leave() {
        gone_ = true;
        signal_.cancel();
    }
    [[nodiscard]] bool gone() const { return gone_; }

    // The next update; empty after `limit`, or when the client has gone.
    asio::awaitable<std::optional<HostUpdate>> next(seconds limit) {
        const auto deadline = std::chrono::steady_clock::now() + limit;
        while (waiting_.empty() && !gone_ && std::chrono::steady_clock::now() < deadline) {
            signal_.expires_at(deadline);
            error_code ignored;
            co_await signal_.async_wait(asio::redirect_error(use_awaitable, ignored));
        }
        if (gone_ || waiting_.empty()) co_return std::nullopt;
        HostUpdate update = std::move(waiting_.front());
        waiting_.pop_front();
        co_return update;
    }

private:
    std::weak_ptr<asio::io_context> loop_;
    asio::steady_timer signal_;
    std::deque<HostUpdate> waiting_;
    bool gone_ = false;
};

struct Connection {
    explicit Connection(tcp::socket socket) : stream(std::move(socket)) {}
    beast::tcp_stream stream;
    bool answering = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

// Bytes can be read that are no end: the client is there.
bool has_left(tcp::socket& socket) {
    char byte = 0;
    const ssize_t got = recv(socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

// An answer under way: its request, its updates, and how far it is.
struct Answer {
    GenerateRequest request;
    AnswerFrame frame;
    Usage usage;
    std::shared_ptr<Updates> updates;
    Ticket ticket{};
    bool ended = false;
};

ApiError failed_error(const HostUpdate& update) {
    if (update.kind == HostUpdate::Kind::kRefused) return api_error(*update.refusal);
    if (update.kind == HostUpdate::Kind::kFailed) return {503, "the executor failed: " + update.failure, "", "failed"};
    return {500, fmt::format("the turn ended: {}", name(update.end->reason)), "", name(update.end->reason)};
}

// Did the turn end as a turn should?
bool is_whole(const HostUpdate& update) {
    using Reason = FinishReason;
    const Reason reason = update.end->reason;
    return reason == Reason::kLength || reason == Reason::kStopToken || reason == Reason::kStopString;
}

std::string event(const Json& json) {
    return "data: " + json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n\n";
}

// The text of an answer as it comes: decoded, and cut before a stop text.
class AnswerText {
public:
    AnswerText(const text::Tokenizer& tokenizer, const std::vector<std::string>& stop)
        : decoder_(tokenizer, /*skip_special=*/true), stops_(stop) {}
    std::string add(TokenId token) {
        num_tokens_ += stopped() ? 0 : 1;
        return stops_.add(decoder_.add(token));
    }
    std::string finish() { return stops_.add(decoder_.finish()) + stops_.finish(); }
    [[nodiscard]] bool stopped() const { return stops_.stopped(); }
    [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }

private:
    text::Decoder decoder_;
    text::StopTexts stops_;
    int64_t num_tokens_ = 0;
};

// How an answer ended.
struct AnswerEnd {
    FinishReason reason = FinishReason::kLength;
    std::optional<ApiError> error;
};

// What `update` adds to the text, and whether it is the end; fills in the usage then. At a stop text the rest of the
// turn is not wanted: it is aborted, and its last update is waited for.
std::optional<AnswerEnd> take_update(const HostUpdate& update, Answer& answer, AnswerText& text, EngineHost& host,
                                     std::string& added) {
    using Kind = HostUpdate::Kind;
    if (update.kind == Kind::kAccepted) return std::nullopt;
    if (update.kind == Kind::kToken) {
        const bool before = text.stopped();
        added = text.add(update.token);
        if (text.stopped() && !before) host.abort(answer.ticket);
        return std::nullopt;
    }
    answer.ended = true;
    const bool whole = update.kind == Kind::kFinished && (text.stopped() || is_whole(update));
    if (!whole) return AnswerEnd{{}, failed_error(update)};
    added = text.finish();
    answer.usage.completion_tokens = text.stopped() ? text.num_tokens() : update.end->num_output_tokens;
    answer.usage.cached_tokens = update.end->num_reused_tokens;
    return AnswerEnd{text.stopped() ? FinishReason::kStopString : update.end->reason, std::nullopt};
}

// What a stream says at its end.
std::string last_events(const Answer& answer, const AnswerEnd& end) {
    if (end.error) return event(end.error->envelope());
    std::string events = event(finish_chunk(answer.frame, end.reason));
    if (answer.request.include_usage) events += event(usage_chunk(answer.frame, answer.usage));
    return events + "data: [DONE]\n\n";
}

}  // namespace

class HttpServer::State {
public:
    State(Service service, HttpConfig config)
        : service_(std::move(service)),
          config_(std::move(config)),
          loop_(std::make_shared<asio::io_context>(1)),
          stopper_(loop_),
          acceptor_(std::in_place, *loop_),
          signals_(std::in_place, *loop_),
          drain_timer_(std::in_place, *loop_) {}

    Result<uint16_t> listen();
    void run(bool signals);
    void stop();

private:
    asio::awaitable<void> accept_connections();
    asio::awaitable<void> serve(ConnectionPtr connection);
    asio::awaitable<bool> read(Connection& connection, beast::flat_buffer& buffer, Request& request);
    asio::awaitable<bool> answer(ConnectionPtr connection, const Request& request);
    asio::awaitable<bool> generate(ConnectionPtr connection, const Request& request, ApiKind kind);
    asio::awaitable<bool> answer_whole(Connection& connection, const Request& request, Answer& answer);
    asio::awaitable<bool> answer_stream(Connection& connection, const Request& request, Answer& answer);
    asio::awaitable<bool> send_events(Connection& connection, const std::string& events);
    asio::awaitable<bool> write(Connection& connection, Response response);
    asio::awaitable<bool> refuse(Connection& connection, const Request& request, const ApiError& error);
    asio::awaitable<ApiResult<std::vector<TokenId>>> prompt_on_text_thread(const GenerateRequest& request);
    [[nodiscard]] std::optional<ApiError> read_refusal(error_code problem) const;
    void watch(const ConnectionPtr& connection, const std::shared_ptr<Updates>& updates);
    Response response(const Request& request, int status, const Json& body) const;
    void wait_for_signal();
    void drain();
    void close_idle();

    Service service_;
    HttpConfig config_;
    // The loop and what stands on it go when run() ends, and the coroutines with them.
    std::shared_ptr<asio::io_context> loop_;
    const std::weak_ptr<asio::io_context> stopper_;  // for other threads
    std::optional<tcp::acceptor> acceptor_;
    std::optional<asio::signal_set> signals_;
    std::optional<asio::steady_timer> drain_timer_;
    asio::thread_pool text_thread_{1};
    text::WordCache words_;  // of the text's thread
    std::unordered_set<ConnectionPtr> connections_;
    int64_t next_request_ = 0;
    bool draining_ = false;
};

Result<uint16_t> HttpServer::State::listen() {
    error_code problem;
    const auto address = asio::ip::make_address(config_.address, problem);
    if (problem) return error("--host {}: it is no address (127.0.0.1, 0.0.0.0, ::1)", config_.address);
    const tcp::endpoint endpoint(address, config_.port);
    acceptor_->open(endpoint.protocol(), problem);
    if (!problem) acceptor_->set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem) acceptor_->bind(endpoint, problem);
    if (!problem) acceptor_->listen(asio::socket_base::max_listen_connections, problem);
    if (problem) {
        return tl::unexpected(Error{fmt::format("{}:{} cannot be listened on: {}: choose another --port",
                                                config_.address, config_.port, problem.message()),
                                    ErrorKind::kMachine});
    }
    return acceptor_->local_endpoint().port();
}

void HttpServer::State::run(bool signals) {
    if (signals) {
        signals_->add(SIGTERM);
        signals_->add(SIGINT);
        wait_for_signal();
    }
    asio::co_spawn(*loop_, accept_connections(), asio::detached);
    loop_->run();
    text_thread_.join();
    connections_.clear();
    acceptor_.reset();
    signals_.reset();
    drain_timer_.reset();
    loop_.reset();
}

void HttpServer::State::stop() {
    if (const std::shared_ptr<asio::io_context> loop = stopper_.lock()) loop->stop();
}

// The first signal drains, the second ends.
void HttpServer::State::wait_for_signal() {
    signals_->async_wait([this](error_code problem, int) {
        if (problem) return;
        if (draining_) return loop_->stop();
        drain();
        wait_for_signal();
    });
}

void HttpServer::State::drain() {
    draining_ = true;
    error_code ignored;
    acceptor_->close(ignored);
    drain_timer_->expires_after(seconds(config_.drain_seconds));
    drain_timer_->async_wait([this](error_code problem) {
        if (!problem) loop_->stop();
    });
    for (const ConnectionPtr& connection : connections_) {
        if (!connection->answering) connection->stream.cancel();
    }
    close_idle();
}

void HttpServer::State::close_idle() {
    if (draining_ && connections_.empty()) loop_->stop();
}

asio::awaitable<void> HttpServer::State::accept_connections() {
    while (acceptor_->is_open()) {
        error_code problem;
        tcp::socket socket = co_await acceptor_->async_accept(asio::redirect_error(use_awaitable, problem));
        if (problem) {
            // Too many files are open, or the like: the next one may do.
            if (!acceptor_->is_open()) co_return;
            asio::steady_timer pause(*loop_, std::chrono::milliseconds(50));
            co_await pause.async_wait(asio::redirect_error(use_awaitable, problem));
            continue;
        }
        if (connections_.size() >= config_.max_connections) continue;  // it is closed
        socket.set_option(tcp::no_delay(true), problem);
        auto connection = std::make_shared<Connection>(std::move(socket));
        connections_.insert(connection);
        asio::co_spawn(*loop_, serve(connection), [this, connection](const std::exception_ptr&) {
            connections_.erase(connection);
            close_idle();
        });
    }
}

asio::awaitable<void> HttpServer::State::serve(ConnectionPtr connection) {
    beast::flat_buffer buffer;
    bool keep = true;
    while (keep && !draining_) {
        Request request;
        const bool is_there = co_await read(*connection, buffer, request);
        if (!is_there) break;
        connection->answering = true;
        const bool answered = co_await answer(connection, request);
        keep = answered && request.keep_alive();
        connection->answering = false;
    }
    error_code ignored;
    connection->stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

// What a client is told that sent no request; empty when it is not there to be told.
std::optional<ApiError> HttpServer::State::read_refusal(error_code problem) const {
    if (problem == http::error::header_limit)
        return ApiError{431, fmt::format("headers of more than {} bytes", config_.max_header_bytes), "", "headers"};
    if (problem == http::error::body_limit)
        return ApiError{413, fmt::format("a body of more than {} bytes", config_.max_body_bytes), "", "body"};
    const bool of_http = problem.category() == http::make_error_code(http::error::bad_method).category();
    if (!of_http || problem == http::error::end_of_stream) return std::nullopt;
    return ApiError{400, "this is no HTTP request: " + problem.message(), "", "http"};
}

// False when there is no request: the connection ended, or what came was refused.
asio::awaitable<bool> HttpServer::State::read(Connection& connection, beast::flat_buffer& buffer, Request& request) {
    error_code problem;
    if (buffer.size() == 0) {  // between requests a connection may rest
        connection.stream.expires_after(seconds(config_.idle_seconds));
        const size_t got = co_await connection.stream.async_read_some(buffer.prepare(4096),
                                                                      asio::redirect_error(use_awaitable, problem));
        if (problem) co_return false;
        buffer.commit(got);
    }
    http::request_parser<http::string_body> parser;
    parser.header_limit(config_.max_header_bytes);
    parser.body_limit(config_.max_body_bytes);
    connection.stream.expires_after(seconds(config_.request_seconds));
    co_await http::async_read(connection.stream, buffer, parser, asio::redirect_error(use_awaitable, problem));
    if (!problem) {
        request = parser.release();
        co_return true;
    }
    if (const std::optional<ApiError> refusal = read_refusal(problem)) {
        Request none;
        none.version(11);
        none.keep_alive(false);
        co_await refuse(connection, none, *refusal);
    }
    co_return false;
}

Response HttpServer::State::response(const Request& request, int status, const Json& body) const {
    Response response(static_cast<http::status>(status), request.version());
    response.set(http::field::content_type, "application/json");
    response.keep_alive(request.keep_alive() && !draining_);
    response.body() = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    response.prepare_payload();
    return response;
}

// False when the client does not read it.
asio::awaitable<bool> HttpServer::State::write(Connection& connection, Response response) {
    connection.stream.expires_after(seconds(config_.write_seconds));
    error_code problem;
    co_await http::async_write(connection.stream, response, asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

asio::awaitable<bool> HttpServer::State::refuse(Connection& connection, const Request& request, const ApiError& error) {
    Response said = response(request, error.status, error.envelope());
    if (error.status == 429 || error.status == 503) said.set(http::field::retry_after, "1");
    co_return co_await write(connection, std::move(said));
}

asio::awaitable<bool> HttpServer::State::answer(ConnectionPtr connection, const Request& request) {
    struct Endpoint {
        std::string_view path;
        http::verb verb;
    };
    static constexpr Endpoint kEndpoints[] = {{"/health", http::verb::get},
                                              {"/v1/models", http::verb::get},
                                              {"/v1/chat/completions", http::verb::post},
                                              {"/v1/completions", http::verb::post}};
    const std::string target(request.target().substr(0, request.target().find('?')));
    const auto found = std::ranges::find(kEndpoints, std::string_view(target), &Endpoint::path);
    if (found == std::end(kEndpoints)) {
        const ApiError unknown{404, target + " is not here", "", "unknown_url"};
        co_return co_await refuse(*connection, request, unknown);
    }
    if (request.method() != found->verb) {
        const std::string allowed(http::to_string(found->verb));
        const ApiError wrong{405, fmt::format("{} takes {}", target, allowed), "", "method_not_allowed"};
        co_return co_await refuse(*connection, request, wrong);
    }
    if (request.method() == http::verb::get) {
        const Json body = target == "/health" ? Json({{"status", "ok"}}) : model_list(service_);
        Response said = response(request, 200, body);
        co_return co_await write(*connection, std::move(said));
    }
    const ApiKind kind = target == "/v1/completions" ? ApiKind::kCompletion : ApiKind::kChat;
    co_return co_await generate(std::move(connection), request, kind);
}

// Rendering and encoding may take long: others are served meanwhile.
asio::awaitable<ApiResult<std::vector<TokenId>>> HttpServer::State::prompt_on_text_thread(
    const GenerateRequest& request) {
    struct Shared {
        explicit Shared(asio::io_context& loop) : done(loop, asio::steady_timer::time_point::max()) {}
        asio::steady_timer done;
        GenerateRequest request;
        std::optional<ApiResult<std::vector<TokenId>>> prompt;
    };
    const auto shared = std::make_shared<Shared>(*loop_);
    shared->request = request;
    asio::post(text_thread_, [this, shared] {
        auto prompt = prompt_of(service_, shared->request, words_);
        asio::post(*loop_, [shared, prompt = std::move(prompt)]() mutable {
            shared->prompt = std::move(prompt);
            shared->done.cancel();
        });
    });
    while (!shared->prompt) {
        error_code ignored;
        co_await shared->done.async_wait(asio::redirect_error(use_awaitable, ignored));
    }
    co_return *std::move(shared->prompt);
}

// Tells `updates` when the client hangs up. Ends with the next cancel of the connection.
void HttpServer::State::watch(const ConnectionPtr& connection, const std::shared_ptr<Updates>& updates) {
    connection->stream.socket().async_wait(tcp::socket::wait_read, [connection, updates](error_code problem) {
        if (!problem && has_left(connection->stream.socket())) updates->leave();
    });
}

asio::awaitable<bool> HttpServer::State::generate(ConnectionPtr connection, const Request& request, ApiKind kind) {
    auto parsed = parse_generate_request(kind, request.body(), service_.model);
    if (!parsed) co_return co_await refuse(*connection, request, parsed.error());
    if (const auto header = request.find("X-Session-Id"); header != request.end() && !parsed->conversation_id)
        parsed->conversation_id = std::string(header->value());
    auto prompt = co_await prompt_on_text_thread(*parsed);
    if (!prompt) co_return co_await refuse(*connection, request, prompt.error());

    Answer answer;
    answer.request = *std::move(parsed);
    answer.usage.prompt_tokens = static_cast<int64_t>(prompt->size());
    auto host_request = server::host_request(service_, answer.request, *std::move(prompt));
    if (!host_request) co_return co_await refuse(*connection, request, host_request.error());
    answer.updates = std::make_shared<Updates>(loop_);
    const auto ticket = service_.host->submit(*std::move(host_request), answer.updates->sink());
    if (!ticket) {
        const std::string failure = service_.host->failure();
        ApiError error{429, "too many requests are waiting: try again", "", "overloaded"};
        if (!failure.empty()) error = ApiError{503, "the executor failed: " + failure, "", "failed"};
        co_return co_await refuse(*connection, request, error);
    }
    answer.ticket = *ticket;
    answer.frame = {kind, fmt::format("{}-{}", kind == ApiKind::kChat ? "chatcmpl" : "cmpl", ++next_request_),
                    service_.model, service_.fingerprint, service_.now()};
    watch(connection, answer.updates);
    bool kept = false;
    if (answer.request.stream)
        kept = co_await answer_stream(*connection, request, answer);
    else
        kept = co_await answer_whole(*connection, request, answer);
    error_code ignored;
    connection->stream.socket().cancel(ignored);
    if (!answer.ended) service_.host->abort(answer.ticket);
    co_return kept&& answer.ended;
}

asio::awaitable<bool> HttpServer::State::answer_whole(Connection& connection, const Request& request, Answer& answer) {
    AnswerText decoded(*service_.tokenizer, answer.request.stop);
    std::string text;
    while (true) {
        const auto update = co_await answer.updates->next(seconds(config_.idle_seconds));
        if (answer.updates->gone()) co_return false;
        if (!update) continue;
        std::string added;
        const std::optional<AnswerEnd> end = take_update(*update, answer, decoded, *service_.host, added);
        text += added;
        if (!end) continue;
        if (end->error) co_return co_await refuse(connection, request, *end->error);
        Response whole = response(request, 200, whole_answer(answer.frame, text, end->reason, answer.usage));
        whole.set("X-Request-Id", answer.frame.id);
        if (answer.request.conversation_id) whole.set("X-Conversation-Id", *answer.request.conversation_id);
        co_return co_await write(connection, std::move(whole));
    }
}

asio::awaitable<bool> HttpServer::State::send_events(Connection& connection, const std::string& events) {
    connection.stream.expires_after(seconds(config_.write_seconds));
    error_code problem;
    const auto chunk = http::make_chunk(asio::buffer(events));
    co_await asio::async_write(connection.stream, chunk, asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

asio::awaitable<bool> HttpServer::State::answer_stream(Connection& connection, const Request& request, Answer& answer) {
    std::optional<HostUpdate> update;
    while (!update && !answer.updates->gone()) update = co_await answer.updates->next(seconds(config_.idle_seconds));
    if (!update) co_return false;
    if (update->kind != HostUpdate::Kind::kAccepted) {
        answer.ended = true;
        const ApiError failed = failed_error(*update);
        co_return co_await refuse(connection, request, failed);
    }
    http::response<http::empty_body> head(http::status::ok, request.version());
    head.set(http::field::content_type, "text/event-stream");
    head.set(http::field::cache_control, "no-cache");
    head.set("X-Request-Id", answer.frame.id);
    if (answer.request.conversation_id) head.set("X-Conversation-Id", *answer.request.conversation_id);
    head.keep_alive(request.keep_alive() && !draining_);
    head.chunked(true);
    http::response_serializer<http::empty_body> serializer(head);
    connection.stream.expires_after(seconds(config_.write_seconds));
    error_code problem;
    co_await http::async_write_header(connection.stream, serializer, asio::redirect_error(use_awaitable, problem));
    if (problem) co_return false;

    AnswerText decoded(*service_.tokenizer, answer.request.stop);
    std::string events = answer.request.kind == ApiKind::kChat ? event(role_chunk(answer.frame)) : "";
    std::optional<AnswerEnd> end;
    while (true) {
        if (!events.empty()) {
            const bool sent = co_await send_events(connection, events);
            if (!sent) co_return false;
        }
        if (end) break;
        update = co_await answer.updates->next(seconds(config_.ping_seconds));
        if (answer.updates->gone()) co_return false;
        std::string added;
        if (update) end = take_update(*update, answer, decoded, *service_.host, added);
        events = update ? "" : ": still here\n\n";
        if (!added.empty()) events += event(text_chunk(answer.frame, added));
        if (end) events += last_events(answer, *end);
    }
    co_await asio::async_write(connection.stream, http::make_chunk_last(),
                               asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

HttpServer::HttpServer(Service service, HttpConfig config)
    : state_(std::make_unique<State>(std::move(service), std::move(config))) {}
HttpServer::~HttpServer() = default;
Result<uint16_t> HttpServer::listen() { return state_->listen(); }
void HttpServer::run(bool signals) { state_->run(signals); }
void HttpServer::stop() { state_->stop(); }

}  // namespace verbatim::server
