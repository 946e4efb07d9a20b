#include "server/http/http_server.h"

#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
#include <unordered_set>

#include "engine/base/check.h"
#include "server/http/connection.h"
#include "server/http/endpoints.h"
#include "server/http/loop_handle.h"
#include "server/http/starts.h"

namespace verbatim::server {
namespace {

using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::seconds;

constexpr int kMaxAccepted = 64;          // between two looks at the sockets
constexpr uint64_t kMaxIdleBody = 16384;  // where a body says nothing

}  // namespace

class HttpServer::State {
public:
    State(HttpConfig config, Tenants tenants, std::string page)
        : config_(std::move(config)),
          loop_(std::make_unique<asio::io_context>(1)),
          handle_(std::make_shared<LoopHandle>(*loop_)),
          endpoints_(*loop_, handle_, config_, std::move(tenants), std::move(page)),
          acceptor_(std::in_place, *loop_),
          starts_(std::in_place, *loop_),
          signals_(std::in_place, *loop_),
          drain_timer_(std::in_place, *loop_) {}

    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { end(); }

    Result<uint16_t> listen();
    void run(bool signals);
    void serve(Service service);
    void stop();
    void take_in(int socket);
    size_t poll(size_t most);

private:
    asio::awaitable<void> accept_connections();
    void take_in(tcp::socket socket);
    void end();
    asio::awaitable<void> serve(ConnectionPtr connection);
    asio::awaitable<bool> serve_one(const ConnectionPtr& connection);
    asio::awaitable<bool> answer(const ConnectionPtr& connection, Call call);
    void wait_for_signal();
    void drain();
    void stop_when_drained();

    HttpConfig config_;
    // The loop and what stands on it go when run() ends, and the coroutines with them.
    std::unique_ptr<asio::io_context> loop_;
    const std::shared_ptr<LoopHandle> handle_;  // for other threads
    Endpoints endpoints_;
    std::optional<tcp::acceptor> acceptor_;
    std::optional<Starts> starts_;
    std::optional<asio::signal_set> signals_;
    std::optional<asio::steady_timer> drain_timer_;
    std::unordered_set<ConnectionPtr> connections_;
    int64_t num_answering_ = 0;
};

Result<uint16_t> HttpServer::State::listen() {
    error_code problem;
    const auto address = asio::ip::make_address(config_.address, problem);
    if (problem) return error("--host {}: it is no address (127.0.0.1, 0.0.0.0, ::1)", config_.address);
    const tcp::endpoint endpoint(address, config_.port);
    acceptor_->open(endpoint.protocol(), problem);
    if (!problem) acceptor_->set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem) acceptor_->bind(endpoint, problem);
    if (!problem) acceptor_->non_blocking(true, problem);
    if (!problem) acceptor_->listen(asio::socket_base::max_listen_connections, problem);
    if (problem) {
        return tl::unexpected(Error{fmt::format("{}:{} cannot be listened on: {}: choose another --port",
                                                config_.address, config_.port, problem.message()),
                                    ErrorKind::kMachine});
    }
    return acceptor_->local_endpoint().port();
}

void HttpServer::State::run(bool signals) {
    CHECK(loop_ != nullptr && acceptor_->is_open(), "port {} is not listened on", config_.port);
    if (signals) {
        signals_->add(SIGTERM);
        signals_->add(SIGINT);
        wait_for_signal();
    }
    asio::co_spawn(*loop_, accept_connections(), asio::detached);
    loop_->run();
    end();
}

size_t HttpServer::State::poll(size_t most) {
    CHECK(loop_ != nullptr, "the loop has ended");
    if (loop_->stopped()) loop_->restart();  // it had nothing to do
    size_t done = 0;
    while (done < most && loop_->poll_one() > 0) ++done;
    return done;
}

void HttpServer::State::end() {
    if (loop_ == nullptr) return;
    endpoints_.join_threads();
    connections_.clear();
    acceptor_.reset();
    signals_.reset();
    drain_timer_.reset();
    endpoints_.forget_loop();
    loop_.reset();
    starts_.reset();
}

void HttpServer::State::serve(Service service) {
    handle_->post([this, service = std::move(service)]() mutable { endpoints_.serve(std::move(service)); });
}

void HttpServer::State::stop() { handle_->stop(); }

// The first signal drains, the second ends.
void HttpServer::State::wait_for_signal() {
    signals_->async_wait([this](error_code problem, int) {
        if (problem) return;
        if (endpoints_.draining()) return loop_->stop();
        drain();
        wait_for_signal();
    });
}

// Running requests are answered; new ones get the error that the server is shutting down.
void HttpServer::State::drain() {
    CHECK(!endpoints_.draining(), "the server ends already");
    endpoints_.drain();
    drain_timer_->expires_after(seconds(config_.drain_seconds));
    drain_timer_->async_wait([this](error_code problem) {
        if (!problem) loop_->stop();
    });
    for (const ConnectionPtr& connection : connections_) {
        if (!connection->answering) connection->cancel();
    }
    stop_when_drained();
}

void HttpServer::State::stop_when_drained() {
    if (endpoints_.draining() && num_answering_ == 0) loop_->stop();
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
        take_in(std::move(socket));
        // Those that came with it: between two looks at the sockets one alone would let the others wait.
        for (int more = 1; more < kMaxAccepted && !problem; ++more) {
            tcp::socket next = acceptor_->accept(problem);
            if (!problem) take_in(std::move(next));
        }
    }
}

void HttpServer::State::take_in(int socket) {
    CHECK(loop_ != nullptr && socket >= 0, "socket {} for a loop that has ended", socket);
    tcp::socket taken(*loop_);
    taken.assign(tcp::v4(), socket);
    take_in(std::move(taken));
}

void HttpServer::State::take_in(tcp::socket socket) {
    if (connections_.size() >= config_.max_connections) return;  // it is closed
    HttpMetrics& metrics = endpoints_.metrics();
    auto connection = std::make_shared<Connection>(std::move(socket), config_,
                                                   BodyBytes{metrics.num_body_bytes, metrics.num_file_bytes});
    CHECK(connections_.insert(connection).second);
    endpoints_.metrics().num_connections = static_cast<int64_t>(connections_.size());
    asio::co_spawn(*loop_, serve(connection), [this, connection](const std::exception_ptr&) {
        CHECK_EQ(connections_.erase(connection), size_t{1});
        endpoints_.metrics().num_connections = static_cast<int64_t>(connections_.size());
    });
}

asio::awaitable<void> HttpServer::State::serve(ConnectionPtr connection) {
    bool keep = true;
    while (keep) {
        keep = co_await serve_one(connection);
        connection->release_body();
    }
    connection->shut_down();
}

// One request of a connection. False: it was the last one.
asio::awaitable<bool> HttpServer::State::serve_one(const ConnectionPtr& connection) {
    const bool is_there = co_await connection->read_head();
    if (!is_there) co_return false;
    const bool is_put = connection->request().method() == http::verb::put;  // of a head
    const bool is_post = connection->request().method() == http::verb::post;
    if (is_post || is_put) co_await starts_->wait_for_turn();
    Call call = endpoints_.begin_call(connection);
    if (connection->awaits_body()) {  // what is wrong already is said before it
        if (std::optional<Response> refused = endpoints_.refusal_without_body(call)) {
            co_await connection->refuse_unread(*std::move(refused));
            co_return false;
        }
        bool is_whole = false;
        if (is_put)
            is_whole = co_await endpoints_.read_file(call);
        else
            is_whole = co_await connection->read_body(is_post ? config_.max_body_bytes : kMaxIdleBody);
        if (!is_whole) co_return false;
    }
    co_return co_await answer(connection, std::move(call));
}

asio::awaitable<bool> HttpServer::State::answer(const ConnectionPtr& connection, Call call) {
    CHECK(!connection->answering, "two requests of a connection are answered at once");
    connection->answering = true;
    ++num_answering_;
    bool answered = false;
    try {
        answered = co_await endpoints_.answer(call);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): nothing is left to say so with, it ends
    }
    const bool may_keep = answered && connection->request().keep_alive() && !connection->ends_with_answer();
    const bool keep = may_keep && !endpoints_.draining();
    connection->answering = false;
    CHECK_GT(num_answering_, 0);
    --num_answering_;
    stop_when_drained();
    co_return keep;
}

HttpServer::HttpServer(HttpConfig config, Tenants tenants, std::string page)
    : state_(std::make_unique<State>(std::move(config), std::move(tenants), std::move(page))) {}
HttpServer::~HttpServer() = default;
Result<uint16_t> HttpServer::listen() { return state_->listen(); }
void HttpServer::run(bool signals) { state_->run(signals); }
void HttpServer::serve(Service service) { state_->serve(std::move(service)); }
void HttpServer::stop() { state_->stop(); }
void HttpServer::take_in(int socket) { state_->take_in(socket); }
size_t HttpServer::poll(size_t most) { return state_->poll(most); }

}  // namespace verbatim::server
