// server/http/connection.h: owns one client's socket: reads requests and writes answers, within limits of time and
// size. Only for sources that use Asio and Beast.
#pragma once

// This version of Asio's awaitable uses std::exchange without including it.
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/http/api.h"
#include "server/http/http_config.h"
#include "server/http/spooled_body.h"

namespace verbatim::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Request = http::request<http::string_body>;
using Response = http::response<http::string_body>;

// What all connections hold of bodies, in memory and in files.
struct BodyBytes {
    uint64_t& in_memory;
    uint64_t& in_files;
};

class Connection {
public:
    // Borrows the config, and the counts of what all connections hold of bodies.
    Connection(asio::ip::tcp::socket socket, const HttpConfig& config, BodyBytes bytes);
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;
    ~Connection() { release_body(); }

    // Reads a request up to its body. False: the connection ended, or the request was refused. REQUIRES: no other
    // operation is running.
    asio::awaitable<bool> read_head();
    // The last request. Its body is empty until read_body(), and after release_body().
    [[nodiscard]] const Request& request() const { return parser_->get(); }
    // The value of Access-Control-Allow-Origin for the requesting page; empty: the origin is not allowed.
    [[nodiscard]] std::string admitted_origin() const;
    // A client may still send a body, or is sending it.
    [[nodiscard]] bool awaits_body() const { return !parser_->is_done(); }
    // False when the body was incomplete, or was refused: longer than max_bytes, or beyond the limit of all bodies.
    asio::awaitable<bool> read_body(uint64_t max_bytes);
    // The same into a file, as it comes: HttpConfig::max_file_bytes_under_way limits bodies in files, and a file that
    // cannot be written refuses it, too.
    asio::awaitable<bool> read_body_to(SpooledBody& file, uint64_t max_bytes);
    // Frees the body's text.
    void release_body();
    // Refuses a request without reading its body: sends the response, then closes.
    asio::awaitable<void> refuse_unread(Response response);
    // False when the client does not accept the response.
    asio::awaitable<bool> write(Response response);
    asio::awaitable<bool> write_head(http::response<http::empty_body> head);
    // More of a body whose head has its length. False: the client is gone.
    asio::awaitable<bool> write_bytes(std::span<const std::byte> bytes);
    // Sends as much as possible at once and returns the rest; empty: all was sent, or the client is gone (is_lost()).
    [[nodiscard]] std::string send_chunk(std::string_view bytes);
    asio::awaitable<bool> write_rest(const std::string& bytes);
    [[nodiscard]] bool is_lost() const { return is_lost_; }
    // A part of the answer to the last request may have been sent.
    [[nodiscard]] bool has_begun() const { return has_begun_; }
    // Nothing behind an answer without chunks, which the connection's end delimits.
    asio::awaitable<bool> write_last_chunk();
    [[nodiscard]] bool ends_with_answer() const { return !is_chunked_; }

    // Calls `left` once when the client disconnects, until forget() or the end. Pipelined bytes are not read.
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
    // For a client that has pipelined its next request: polls whether it is still connected.
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
    [[nodiscard]] std::optional<ApiError> limit_body(uint64_t max_bytes);
    [[nodiscard]] bool hold_body();
    [[nodiscard]] bool hold_in_file(uint64_t size);

    const HttpConfig& config_;
    uint64_t& num_body_bytes_;
    uint64_t& num_file_bytes_;
    uint64_t num_held_ = 0;     // of num_body_bytes, held by this connection
    uint64_t num_in_file_ = 0;  // of num_file_bytes
    std::optional<http::request_parser<http::string_body>> parser_;
    beast::tcp_stream stream_;
    beast::flat_buffer buffer_;
    asio::steady_timer watch_timer_;
    std::string chunk_;       // the last one sent
    bool is_chunked_ = true;  // the answer is sent in chunks
    bool is_lost_ = false;
    bool has_begun_ = false;
};
using ConnectionPtr = std::shared_ptr<Connection>;

[[nodiscard]] Response json_response(int status, unsigned version, const Json& body);
// In the form that clients of the request's path expect.
[[nodiscard]] Response error_response(const ApiError& error, const Request& request);

}  // namespace verbatim::server
