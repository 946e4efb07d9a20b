// server/http/connection.h: owns one client's socket: requests read from it and answers written to it, each within its
// time and size. Used where Asio's and Beast's names are at home.
#pragma once

// Asio's awaitable of this version uses std::exchange without including it.
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/api.h"
#include "server/http/http_config.h"

namespace verbatim::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

class Connection {
public:
    // The config is borrowed, and so is the count of the bytes that the bodies of all connections hold.
    Connection(asio::ip::tcp::socket socket, const HttpConfig& config, uint64_t& num_body_bytes);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { let_go_of_body(); }

    // A request up to its body. False when there is none: the connection ended, or what came was refused. REQUIRES:
    // nothing else runs.
    asio::awaitable<bool> read_head();
    // The last one. Its body is empty until read_body(), and behind let_go_of_body().
    [[nodiscard]] const Request& request() const { return parser_->get(); }
    // What the page that asks may read answers as, in Access-Control-Allow-Origin; empty: it may not.
    [[nodiscard]] std::string admitted_origin() const;
    // A client may send a body, or is sending it.
    [[nodiscard]] bool awaits_body() const { return !parser_->is_done(); }
    // False when it did not come whole, or was refused: more than max_bytes, or more than all of them may hold.
    asio::awaitable<bool> read_body(uint64_t max_bytes);
    // The request needs its text no more.
    void let_go_of_body();
    // A request is refused without its body: what is said, then the end.
    asio::awaitable<void> refuse_unread(Response said);
    // False when the client does not take it.
    asio::awaitable<bool> write(Response response);
    asio::awaitable<bool> write_head(http::response<http::empty_body> head);
    // What of the bytes could not be sent at once; empty: all of them were, or the client is gone (is_lost()).
    [[nodiscard]] std::string send_chunk(std::string_view bytes);
    asio::awaitable<bool> write_rest(const std::string& bytes);
    [[nodiscard]] bool is_lost() const { return is_lost_; }
    // Something of the answer to the last request may have been sent.
    [[nodiscard]] bool has_begun() const { return has_begun_; }
    // False behind an answer without chunks: the connection's end is its end.
    asio::awaitable<bool> write_last_chunk();

    // Calls `left` once when the client hangs up, until forget() or the end. Bytes that it sends ahead are not read.
    template <typename Left>
    void watch(const std::shared_ptr<Connection>& self, Left left) {
        stream_.socket().async_wait(asio::ip::tcp::socket::wait_read, [self, left](boost::system::error_code problem) {
            if (problem) return;
            if (self->has_left()) return left();
            self->watch_on(self, left);
        });
    }
    void forget();

    void cancel() { stream_.cancel(); }
    void shut_down();
    bool answering = false;

private:
    // The client has sent the next request already: whether it is there is looked at now and then.
    template <typename Left>
    void watch_on(const std::shared_ptr<Connection>& self, Left left) {
        watch_timer_.expires_after(std::chrono::milliseconds(250));
        watch_timer_.async_wait([self, left](boost::system::error_code problem) {
            if (problem) return;
            if (self->has_left()) return left();
            self->watch_on(self, left);
        });
    }
    asio::awaitable<void> read_on();
    [[nodiscard]] bool has_left();
    void say_origin(http::fields& answer) const;
    [[nodiscard]] std::optional<ApiError> read_refusal(boost::system::error_code problem, uint64_t max_bytes) const;
    asio::awaitable<bool> refuse(const std::optional<ApiError>& error);
    asio::awaitable<boost::system::error_code> tell_to_go_on();
    [[nodiscard]] bool hold_body();

    const HttpConfig& config_;
    uint64_t& num_body_bytes_;
    uint64_t num_held_ = 0;  // of them
    std::optional<http::request_parser<http::string_body>> parser_;
    beast::tcp_stream stream_;
    beast::flat_buffer buffer_;
    asio::steady_timer watch_timer_;
    std::string chunk_;       // the last one that was sent
    bool is_chunked_ = true;  // the answer
    bool is_lost_ = false;
    bool has_begun_ = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

[[nodiscard]] Response json_response(int status, unsigned version, const Json& body);
[[nodiscard]] Response error_response(const ApiError& error, unsigned version);

}  // namespace verbatim::server
