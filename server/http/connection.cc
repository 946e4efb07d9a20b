#include "server/http/connection.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "server/http/answers.h"
#include "server/http/message_answer.h"

namespace verbatim::server {
namespace {

using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::seconds;

// A target may be a whole address, of which the path and the query count.
std::string origin_form(beast::string_view target) {
    for (const beast::string_view scheme : {"http://", "https://"}) {
        if (!beast::iequals(target.substr(0, scheme.size()), scheme)) continue;
        const beast::string_view rest = target.substr(scheme.size());
        const size_t path = std::min(rest.find_first_of("/?"), rest.size());
        const beast::string_view behind = rest.substr(path);
        return (behind.empty() || behind.front() == '?' ? "/" : "") + std::string(behind);
    }
    return std::string(target);
}

void set_option(tcp::socket& socket, int level, int name, int value) {
    (void)setsockopt(socket.native_handle(), level, name, &value, sizeof value);
}

// No Nagle; and a client whose machine went without a word is missed after a minute or two.
void set_options(tcp::socket& socket, const HttpConfig& config) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 60);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 6);
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(config.write_seconds * 1000));
    if (config.send_buffer_bytes > 0) set_option(socket, SOL_SOCKET, SO_SNDBUF, config.send_buffer_bytes);
}

}  // namespace

Connection::Connection(tcp::socket socket, const HttpConfig& config, BodyBytes bytes)
    : config_(config),
      num_body_bytes_(bytes.in_memory),
      num_file_bytes_(bytes.in_files),
      stream_(std::move(socket)),
      watch_timer_(stream_.get_executor()) {
    set_options(stream_.socket(), config_);
}

// The error for a failed read of a request; empty when the client is gone.
std::optional<ApiError> Connection::read_refusal(error_code problem, uint64_t max_bytes) const {
    if (problem == http::error::header_limit)
        return ApiError{431, fmt::format("headers of more than {} bytes", config_.max_header_bytes), "", "headers"};
    if (problem == http::error::body_limit)
        return ApiError{413, fmt::format("a body of more than {} bytes", max_bytes), "", "body"};
    const bool of_http = problem.category() == http::make_error_code(http::error::bad_method).category();
    if (!of_http || problem == http::error::end_of_stream) return std::nullopt;
    return ApiError{400, "this is no HTTP request: " + problem.message(), "", "http"};
}

asio::awaitable<bool> Connection::read_head() {
    CHECK(num_held_ == 0 && num_in_file_ == 0, "{} and {} bytes of the request before", num_held_, num_in_file_);
    error_code problem;
    has_begun_ = false;
    if (buffer_.size() == 0) {  // between requests a connection may rest
        stream_.expires_after(seconds(config_.idle_seconds));
        const size_t got =
            co_await stream_.async_read_some(buffer_.prepare(4096), asio::redirect_error(use_awaitable, problem));
        if (problem) co_return false;
        buffer_.commit(got);
    }
    parser_.emplace();
    parser_->header_limit(config_.max_header_bytes);
    parser_->body_limit(std::numeric_limits<uint64_t>::max());  // read_body() has it
    stream_.expires_after(seconds(config_.request_seconds));
    co_await http::async_read_header(stream_, buffer_, *parser_, asio::redirect_error(use_awaitable, problem));
    if (problem) {
        const std::optional<ApiError> wrong = read_refusal(problem, 0);
        co_return co_await refuse(wrong);
    }
    parser_->get().target(origin_form(parser_->get().target()));
    co_return true;
}

// False, for read_head() and read_body().
asio::awaitable<bool> Connection::refuse(const std::optional<ApiError>& error) {
    if (!error) co_return false;
    Response response = error_response(*error, request());
    co_await refuse_unread(std::move(response));
    co_return false;
}

asio::awaitable<void> Connection::refuse_unread(Response response) {
    response.keep_alive(false);
    const bool is_sent = co_await write(std::move(response));
    if (is_sent) co_await read_on();
}

asio::awaitable<error_code> Connection::tell_to_go_on() {
    error_code problem;
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue")) {
        const std::string go_on = "HTTP/1.1 100 Continue\r\n\r\n";
        co_await asio::async_write(stream_, asio::buffer(go_on), asio::redirect_error(use_awaitable, problem));
    }
    co_return problem;
}

// None: the body is read next, as it comes.
std::optional<ApiError> Connection::limit_body(uint64_t max_bytes) {
    CHECK(parser_.has_value() && parser_->is_header_done(), "a body before its head");
    if (parser_->content_length().value_or(0) > max_bytes) return read_refusal(http::error::body_limit, max_bytes);
    parser_->body_limit(max_bytes);
    parser_->eager(true);
    return std::nullopt;
}

asio::awaitable<bool> Connection::read_body(uint64_t max_bytes) {
    const std::optional<ApiError> too_long = limit_body(max_bytes);
    if (too_long) co_return co_await refuse(too_long);
    error_code problem = co_await tell_to_go_on();
    // A long body is read in pieces of the buffer's size, which is small between requests.
    constexpr size_t kLongBody = size_t{64} << 10;
    const bool is_long = !problem && parser_->content_length().value_or(0) > kLongBody;
    if (is_long) buffer_.reserve(kLongBody);
    bool has_room = true;
    while (!problem && has_room && !parser_->is_done()) {
        co_await http::async_read_some(stream_, buffer_, *parser_, asio::redirect_error(use_awaitable, problem));
        has_room = hold_body();
    }
    if (is_long) buffer_.shrink_to_fit();
    if (!problem && has_room) co_return true;
    release_body();
    std::optional<ApiError> wrong = read_refusal(problem, max_bytes);
    if (!problem) wrong = ApiError{503, "too many bytes of requests are under way: try again", "", "overloaded"};
    co_return co_await refuse(wrong);
}

asio::awaitable<bool> Connection::read_body_to(SpooledBody& file, uint64_t max_bytes) {
    const std::optional<ApiError> too_long = limit_body(max_bytes);
    if (too_long) co_return co_await refuse(too_long);
    error_code problem = co_await tell_to_go_on();
    constexpr size_t kPiece = size_t{64} << 10;
    buffer_.reserve(kPiece);
    Status kept;
    bool has_room = true;
    while (!problem && kept && has_room && !parser_->is_done()) {
        co_await http::async_read_some(stream_, buffer_, *parser_, asio::redirect_error(use_awaitable, problem));
        std::string& piece = parser_->get().body();
        has_room = hold_in_file(piece.size());
        if (has_room) kept = file.add(piece);
        piece.clear();
    }
    buffer_.shrink_to_fit();
    if (!problem && kept && has_room) co_return true;
    release_body();
    std::optional<ApiError> wrong = read_refusal(problem, max_bytes);
    if (!has_room) wrong = ApiError{503, "too many bytes of heads are under way: try again", "", "overloaded"};
    if (!kept) wrong = ApiError{507, kept.error().message, "", "no_space"};
    co_return co_await refuse(wrong);
}

// What has come of the body is counted. False: it is too much.
bool Connection::hold_body() {
    const uint64_t size = parser_->get().body().size();
    if (size <= config_.free_body_bytes) return true;
    CHECK(size >= num_held_ && num_body_bytes_ >= num_held_, "{} bytes, {} held", size, num_held_);
    num_body_bytes_ += size - std::exchange(num_held_, size);
    return num_body_bytes_ <= config_.max_bytes_under_way;
}

// The next piece is counted. False: it is too much.
bool Connection::hold_in_file(uint64_t size) {
    num_in_file_ += size;
    num_file_bytes_ += size;
    CHECK_GE(num_file_bytes_, num_in_file_);
    return num_file_bytes_ <= config_.max_file_bytes_under_way;
}

void Connection::release_body() {
    if (parser_) std::string().swap(parser_->get().body());
    CHECK(num_body_bytes_ >= num_held_, "{} of {} bytes", num_held_, num_body_bytes_);
    num_body_bytes_ -= std::exchange(num_held_, 0);
    CHECK(num_file_bytes_ >= num_in_file_, "{} of {} bytes", num_in_file_, num_file_bytes_);
    num_file_bytes_ -= std::exchange(num_in_file_, 0);
}

// A connection that is closed with bytes unread takes back what was written last. So a client that is being refused
// may go on sending for a while.
asio::awaitable<void> Connection::read_on() {
    constexpr size_t kMaxBytes = size_t{64} << 20;
    error_code problem;
    stream_.socket().shutdown(tcp::socket::shutdown_send, problem);
    stream_.expires_after(seconds(5));
    std::vector<char> ignored(size_t{64} << 10);
    for (size_t size = 0; !problem && size < kMaxBytes;)
        size += co_await stream_.async_read_some(asio::buffer(ignored), asio::redirect_error(use_awaitable, problem));
}

std::string Connection::admitted_origin() const {
    const std::vector<std::string>& origins = config_.cors_origins;
    const std::string origin(parser_ ? parser_->get()[http::field::origin] : "");
    if (origin.empty()) return "";
    if (std::ranges::find(origins, "*") != origins.end()) return "*";
    return std::ranges::find(origins, origin) != origins.end() ? origin : "";
}

// Answers differ by origin, whatever this one is.
void Connection::say_origin(http::fields& answer) const {
    if (config_.cors_origins.empty()) return;
    const std::string origin = admitted_origin();
    if (origin != "*") answer.set(http::field::vary, "Origin");
    if (origin.empty()) return;
    answer.set(http::field::access_control_allow_origin, origin);
    answer.set(http::field::access_control_expose_headers, "X-Request-Id, X-Conversation-Id, X-Head-Id, Retry-After");
}

asio::awaitable<bool> Connection::write(Response response) {
    CHECK(!has_begun_, "a second answer to {}", std::string(request().target()));
    say_origin(response);
    stream_.expires_after(seconds(config_.write_seconds));
    error_code problem;
    has_begun_ = true;
    co_await http::async_write(stream_, response, asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

asio::awaitable<bool> Connection::write_head(http::response<http::empty_body> head) {
    CHECK(!has_begun_, "a second answer to {}", std::string(request().target()));
    say_origin(head);
    http::response_serializer<http::empty_body> serializer(head);
    stream_.expires_after(seconds(config_.write_seconds));
    error_code problem;
    has_begun_ = true;
    is_chunked_ = head.chunked();
    co_await http::async_write_header(stream_, serializer, asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

// A client that takes nothing for a while is gone.
asio::awaitable<bool> Connection::write_bytes(std::span<const std::byte> bytes) {
    CHECK(has_begun_, "a body before its head");
    constexpr size_t kPiece = size_t{256} << 10;
    error_code problem;
    while (!problem && !bytes.empty()) {
        const auto piece = bytes.first(std::min(kPiece, bytes.size()));
        stream_.expires_after(seconds(config_.write_seconds));
        co_await asio::async_write(stream_, asio::buffer(piece.data(), piece.size()),
                                   asio::redirect_error(use_awaitable, problem));
        bytes = bytes.subspan(piece.size());
    }
    co_return !problem;
}

// There is one for every token, and the client has room for it: it is sent without a coroutine, a timer and another
// turn of the loop.
std::string Connection::send_chunk(std::string_view bytes) {
    CHECK(has_begun_ && !bytes.empty(), "a chunk of {} bytes", bytes.size());  // an empty one is the last
    chunk_.clear();
    if (is_chunked_) fmt::format_to(std::back_inserter(chunk_), "{:x}\r\n", bytes.size());
    chunk_.append(bytes);
    if (is_chunked_) chunk_ += "\r\n";
    const ssize_t sent =
        send(stream_.socket().native_handle(), chunk_.data(), chunk_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    is_lost_ = sent < 0 && errno != EAGAIN && errno != EINTR;
    return is_lost_ ? std::string() : chunk_.substr(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
}

asio::awaitable<bool> Connection::write_rest(const std::string& bytes) {
    CHECK(has_begun_ && !bytes.empty(), "a rest of {} bytes", bytes.size());
    stream_.expires_after(seconds(config_.write_seconds));
    error_code problem;
    co_await asio::async_write(stream_, asio::buffer(bytes), asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

asio::awaitable<bool> Connection::write_last_chunk() {
    CHECK(has_begun_, "the end of an answer that has no beginning");
    if (ends_with_answer()) co_return true;
    stream_.expires_after(seconds(config_.write_seconds));
    error_code problem;
    co_await asio::async_write(stream_, http::make_chunk_last(), asio::redirect_error(use_awaitable, problem));
    co_return !problem;
}

// Whether the client will send nothing more, whatever of it is unread.
bool Connection::has_left() {
    pollfd asked{stream_.socket().native_handle(), POLLRDHUP, 0};
    return poll(&asked, 1, 0) > 0 && (asked.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

void Connection::forget() {
    error_code ignored;
    stream_.socket().cancel(ignored);
    watch_timer_.cancel();
}

void Connection::shut_down() {
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

Response json_response(int status, unsigned version, const Json& body) {
    Response response(static_cast<http::status>(status), version);
    response.set(http::field::content_type, "application/json");
    response.body() = written_answer(body);
    response.prepare_payload();
    return response;
}

Response error_response(const ApiError& error, const Request& request) {
    const beast::string_view target = request.target();
    const bool is_message = is_of_messages({target.data(), target.size()});
    const unsigned version = request.version() == 10 ? 10 : 11;
    Response response = json_response(error.status, version, is_message ? message_error(error) : error.envelope());
    if (error.status == 409 || error.status == 429 || error.status == 503) response.set(http::field::retry_after, "1");
    if (error.status == 401) response.set(http::field::www_authenticate, "Bearer");
    return response;
}

}  // namespace verbatim::server
