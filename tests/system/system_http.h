// tests/system/system_http.h: the clients of a simulated world as clients of its HTTP server, over connected sockets.
//
// The world's thread is the sockets' thread, too: it runs the server's loop a piece at a time, and moves what clients
// send and read. Requests come whole or in parts, answers are streams or not, connections are used again, readers stop
// reading, and some clients send what is no request, or half of one and hang up. Of an answer they read what the world
// checks: tokens, ends, refusals, heads, contents of conversations.
#pragma once

// This version of Asio's awaitable uses std::exchange without including it.
#include <utility>

#include <boost/beast/http.hpp>

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/prng.h"
#include "server/http/http_server.h"
#include "server/text/tokenizer.h"
#include "tests/system/system_door.h"

namespace verbatim::tests {

// Token i is the byte 'A' + i, so that texts of answers are their tokens. Lives as long as the program.
[[nodiscard]] const text::Tokenizer& letter_tokenizer();

// Whether the server soon gives up an answer that is not read.
[[nodiscard]] inline bool has_few_unread(const server::HttpConfig& config) { return config.max_unread_tokens < 100; }

// What must happen somewhere in many worlds.
enum class HttpMark : uint8_t {
    kStreams,         // answers that came as streams
    kWhole,           // and at once
    kInParts,         // requests whose bytes came in several parts
    kUsedAgain,       // connections that took another request
    kLeftBefore,      // clients that left before their answer began
    kLeftInStream,    // and in the middle of it
    kHalf,            // half requests
    kNonsense,        // what is no request was refused
    kManyAtOnce,      // many connections had requests
    kSlowReaders,     // answers that were not read for some time
    kSlowToTheEnd,    // those that came whole
    kGivenUp,         // and those that the server has given up
    kBrokenStreams,   // ended by an error behind tokens
    kCutOff,          // by the server's end
    kCutOffInStream,  // behind tokens
    kSuffixes,        // requests that named their conversation in place of repeating it
    kCount,
};
[[nodiscard]] const char* name(HttpMark mark);
using HttpMarks = std::array<int64_t, static_cast<size_t>(HttpMark::kCount)>;

class HttpDoor final : public SystemDoor {
public:
    // Borrows the marks. `seed`: of the clients' habits.
    HttpDoor(server::HttpConfig config, server::Service service, uint64_t seed, HttpMarks& marks);
    HttpDoor(const HttpDoor&) = delete;
    HttpDoor& operator=(const HttpDoor&) = delete;
    ~HttpDoor() override;  // the clients hear nothing any more

    void submit(int64_t number, const server::HostRequest& request, int64_t num_known, Sink sink) override;
    void leave(int64_t number) override;
    void ask(const server::ConversationCall& call, Done done) override;
    void go_on(Prng& prng) override;
    bool go_on_as_far_as_possible() override;
    void settled() override;
    void close() override;

    // Some client reads nothing more until all else has gone on as far as possible.
    void stop_reading(Prng& prng);
    void send_nonsense(Prng& prng);
    // The first part of a request; the client hangs up.
    void send_half(const server::HostRequest& request, Prng& prng);
    // That the client of this request has read, of an earlier one if it was sent again.
    [[nodiscard]] const std::string& answer_id(int64_t number) const { return answers_.at(number); }

private:
    using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;
    struct Client {
        int socket = -1;
        std::string unsent;
        std::unique_ptr<Parser> parser;  // of the answer to the last request; null: the connection rests
        std::string unread;              // behind what was parsed
        // What was asked for: a turn, a call, or what gets a certain status. None behind the end of its answer.
        std::optional<int64_t> turn;
        Sink sink;
        std::optional<server::ConversationCall> call;
        Done done;
        int wanted_status = 0;
        // Of a turn.
        size_t num_read = 0;  // bytes of the stream's events
        int64_t num_tokens = 0;
        std::optional<server::FinishedUpdate> end;  // of a stream before its [DONE]
        bool is_accepted = false;
        bool is_slow = false;  // reads nothing
        bool was_slow = false;
        [[nodiscard]] bool is_resting() const { return parser == nullptr; }
    };

    Client& connect();
    Client& ready_client();
    void start(Client& client, std::string request);
    [[nodiscard]] static std::string turn_text(const server::HostRequest& request, int64_t num_known, bool is_stream);
    static bool send_some(Client& client, size_t most);
    bool read_some(Client& client, size_t most);
    void take(Client& client);
    void take_events(Client& client);
    void take_event(Client& client, const std::string& data);
    void take_part(Client& client, const nlohmann::json& part);
    void take_error(Client& client, const nlohmann::json& body);
    static void take_reply(Client& client, int status, const std::string& body);
    void end_turn(Client& client, server::HostUpdate end);
    static void rest(Client& client);
    void lose(Client& client);
    static void close_socket(Client& client);
    void forget_closed();
    void mark(HttpMark what) { ++marks_[static_cast<size_t>(what)]; }

    server::HttpConfig config_;
    HttpMarks& marks_;
    Prng prng_;
    std::unique_ptr<server::HttpServer> server_;
    std::list<Client> clients_;
    std::vector<Sink> left_;                  // of clients that have left, whose requests may still run
    std::map<int64_t, std::string> answers_;  // ids
};

}  // namespace verbatim::tests
