#include "tests/system/system_http.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "server/text/byte_alphabet.h"
#include "server/text/tokenizer_json.h"
#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::ConversationCall;
using server::FailedUpdate;
using server::FinishedUpdate;

constexpr TokenId kFirstLetter = 'A';
constexpr size_t kAll = std::numeric_limits<size_t>::max();
constexpr size_t kMany = 8;

std::string letters(std::span<const TokenId> tokens) {
    std::string text;
    for (const TokenId token : tokens) text += static_cast<char>(kFirstLetter + token);
    return text;
}

std::vector<TokenId> tokens_of(std::string_view letters) {
    std::vector<TokenId> tokens;
    for (const char letter : letters) tokens.push_back(letter - kFirstLetter);
    return tokens;
}

std::string request_text(std::string_view method, std::string_view target, const std::string& body) {
    return fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", method, target, body.size(), body);
}

std::string query_of(const CacheSalt& salt) { return salt.value ? "?cache_salt=" + *salt.value : ""; }

std::string call_text(const ConversationCall& call) {
    using Kind = ConversationCall::Kind;
    const std::string path = "/v1/conversations/" + call.key.conversation_id;
    json body = json::object();
    if (call.num_turns) body["num_turns"] = *call.num_turns;
    switch (call.kind) {
        case Kind::kShow: {
            const std::string query = query_of(call.key.salt);
            return request_text("GET", path + query + (query.empty() ? "?" : "&") + "content=true", "");
        }
        case Kind::kFork:
            body["to"] = call.to;
            return request_text("POST", path + "/fork" + query_of(call.key.salt), body.dump());
        case Kind::kRewind: return request_text("POST", path + "/rewind" + query_of(call.key.salt), body.dump());
        case Kind::kRemove: return request_text("DELETE", path + query_of(call.key.salt), "");
        default: break;
    }
    MUST(false, "no such call");
}

// As the server's ledger keeps it, as far as it is shown.
server::ConversationView view_of(const json& shown) {
    server::ConversationView view{.head = shown.at("head_id"), .turns = {}};
    for (const json& turn : shown.at("turns")) {
        server::TurnRow row;
        const auto prompt = turn.at("prompt").get<std::string>();
        const auto text = turn.at("text").get<std::string>();
        row.prompt_end = turn.at("prompt_tokens").get<int64_t>();
        row.end = row.prompt_end + std::ssize(text);
        MUST(turn.at("new_prompt_tokens") == prompt.size() && turn.at("completion_tokens") == text.size(), "{}",
             turn.dump());
        row.tokens = tokens_of(prompt + text);
        view.turns.push_back(std::make_shared<server::TurnRow>(std::move(row)));
    }
    return view;
}

std::optional<RefusalReason> refusal_named(std::string_view code) {
    if (code == "context_length_exceeded") return RefusalReason::kTooLong;
    for (int i = 0; i < static_cast<int>(RefusalReason::kCount); ++i) {
        if (code == verbatim::name(static_cast<RefusalReason>(i))) return static_cast<RefusalReason>(i);
    }
    return std::nullopt;
}

// What is no request, and the status that it gets.
struct Nonsense {
    std::string text;
    int status;
};

const std::vector<Nonsense>& all_nonsense() {
    const auto complete = [](const std::string& body) { return request_text("POST", "/v1/completions", body); };
    static const std::vector<Nonsense> kAll = {
        {"hello\r\n\r\n", 400},
        {"GET / HTTP/9.9\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: some\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
        {fmt::format("GET / HTTP/1.1\r\nX: {}\r\n\r\n", std::string(70'000, 'x')), 431},
        {request_text("GET", "/nowhere", ""), 404},
        {request_text("PUT", "/v1/completions", ""), 405},
        {request_text("DELETE", "/v1/conversations/%zz", ""), 400},
        {request_text("POST", "/v1/conversations/a/fork", "{}"), 400},
        {complete("{"), 400},
        {complete("[1]"), 400},
        {complete(R"({"prompt": []})"), 400},
        {complete(R"({"prompt": [-1]})"), 400},
        {complete(R"({"prompt": [100000]})"), 400},
        {complete(R"({"prompt": [0], "max_tokens": 2, "suffix_only": true})"), 400},
        {complete(R"({"prompt": [0], "max_tokens": 2, "turn_id": "t"})"), 400},
        {complete(R"({"prompt": [0], "prompt": [1]})"), 400},
        {complete(R"({"prompt": [0], "temperature": -1})"), 400},
        {complete(R"({"prompt": [0], "model": "another"})"), 404},
        {request_text("POST", "/v1/chat/completions", R"({"messages": [{"role": "user", "content": "A"}]})"), 400},
    };
    return kAll;
}

constexpr std::array<const char*, static_cast<size_t>(HttpMark::kCount)> kHttpMarks = {
    "streams",        "whole",    "in_parts",          "used_again",   "left_before",     "left_in_stream",
    "half",           "nonsense", "many_at_once",      "slow_readers", "slow_to_the_end", "slow_given_up",
    "broken_streams", "cut_off",  "cut_off_in_stream", "suffixes"};

}  // namespace

const char* name(HttpMark mark) { return kHttpMarks.at(static_cast<size_t>(mark)); }

namespace {

text::Tokenizer make_letter_tokenizer() {
    json vocabulary = json::object();
    for (TokenId token = 0; token < 256; ++token) vocabulary[text::to_byte_alphabet(letters({&token, 1}))] = token;
    const json byte_level = {
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
    const json file = {{"version", "1.0"},
                       {"added_tokens", json::array()},
                       {"normalizer", nullptr},
                       {"pre_tokenizer", byte_level},
                       {"post_processor", nullptr},
                       {"decoder", byte_level},
                       {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array()}}}};
    auto made = text::parse_tokenizer(file.dump(), "tokenizer.json");
    MUST(made.has_value(), "{}", made.error().message);
    return *std::move(made);
}

}  // namespace

const text::Tokenizer& letter_tokenizer() {
    static const text::Tokenizer kTokenizer = make_letter_tokenizer();
    return kTokenizer;
}

HttpDoor::HttpDoor(server::HttpConfig config, server::Service service, uint64_t seed, HttpMarks& marks)
    : config_(std::move(config)),
      marks_(marks),
      prng_(seed ^ 0x68747470u),
      server_(std::make_unique<server::HttpServer>(config_)) {
    server_->serve(std::move(service));
}

HttpDoor::~HttpDoor() {
    for (const Client& client : clients_) ::close(client.socket);
}

// --- connections

HttpDoor::Client& HttpDoor::connect() {
    std::array<int, 2> ends{};
    MUST(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) == 0, "errno {}", errno);
    server_->take_in(ends[1]);
    clients_.emplace_back().socket = ends[0];
    return clients_.back();
}

HttpDoor::Client& HttpDoor::ready_client() {
    const auto resting = std::ranges::find_if(clients_, [](const Client& client) { return client.is_resting(); });
    if (resting == clients_.end() || prng_.below(3) == 0) return connect();
    mark(HttpMark::kUsedAgain);
    return *resting;
}

void HttpDoor::start(Client& client, std::string request) {
    client.unsent = std::move(request);
    client.parser = std::make_unique<Parser>();
    client.parser->eager(true);
    client.num_read = 0;
    client.num_tokens = 0;
    client.end.reset();
    client.is_accepted = client.is_slow = client.was_slow = false;
    const auto num_busy = std::ranges::count_if(clients_, [](const Client& one) { return !one.is_resting(); });
    if (std::cmp_greater_equal(num_busy, kMany)) mark(HttpMark::kManyAtOnce);
    if (prng_.below(2) == 0) return;
    if (prng_.below(2) == 0) mark(HttpMark::kInParts);
    send_some(client, 1 + prng_.below(client.unsent.size()));
}

bool HttpDoor::send_some(Client& client, size_t most) {
    if (client.socket < 0 || client.unsent.empty()) return false;
    const size_t size = std::min(most, client.unsent.size());
    const ssize_t sent = ::send(client.socket, client.unsent.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) client.unsent.clear();  // the server has closed it: what it wrote is read
    if (sent > 0) client.unsent.erase(0, static_cast<size_t>(sent));
    return sent > 0;
}

// Whether there was something, an end included.
bool HttpDoor::read_some(Client& client, size_t most) {
    if (client.socket < 0) return false;
    std::array<char, 4096> buffer;
    const ssize_t got = ::recv(client.socket, buffer.data(), std::min(most, buffer.size()), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
        lose(client);
        return true;
    }
    client.unread.append(buffer.data(), static_cast<size_t>(got));
    while (!client.unread.empty()) {
        MUST(!client.is_resting(), "the server sends what nothing has asked for: {}", client.unread);
        boost::system::error_code problem;
        const size_t used = client.parser->put(boost::asio::buffer(client.unread), problem);
        MUST(!problem || problem == boost::beast::http::error::need_more, "{}: {}", problem.message(), client.unread);
        client.unread.erase(0, used);
        take(client);
        if (used == 0) break;
    }
    return true;
}

void HttpDoor::close_socket(Client& client) { ::close(std::exchange(client.socket, -1)); }

// The answer is whole: the connection may take another request.
void HttpDoor::rest(Client& client) {
    MUST(!client.turn && !client.call && client.wanted_status == 0, "an answer without an end");
    const bool is_kept = client.parser->get().keep_alive();
    client.parser.reset();
    if (!is_kept) close_socket(client);
}

// The connection has ended.
void HttpDoor::lose(Client& client) {
    close_socket(client);
    MUST(client.wanted_status == 0 || server_ == nullptr, "no answer, wanted status {}", client.wanted_status);
    if (client.turn) {
        if (server_ != nullptr)
            mark(HttpMark::kGivenUp);
        else
            mark(client.num_tokens > 0 ? HttpMark::kCutOffInStream : HttpMark::kCutOff);
        end_turn(client, FailedUpdate{FailedUpdate::Part::kLedger, kConnectionLost});
    }
    if (client.call) std::exchange(client.done, nullptr)({.problem = kConnectionLost});
    client.call.reset();
}

// --- what clients send

std::string HttpDoor::turn_text(const server::HostRequest& request, int64_t num_known, bool is_stream) {
    json body = {
        {"max_tokens", request.max_tokens}, {"temperature", request.sampling.temperature}, {"seed", *request.seed},
        {"use_cache", request.use_cache},   {"stop_token_ids", request.stop_tokens},       {"stream", is_stream}};
    const auto prompt = std::span(request.prompt).subspan(static_cast<size_t>(num_known));
    // A request that is sent again has the same form.
    if (*request.seed % 2 == 0)
        body["prompt"] = letters(prompt);
    else
        body["prompt"] = std::vector(prompt.begin(), prompt.end());
    if (num_known > 0) body["suffix_only"] = true;
    if (request.conversation_id)
        body[request.id_is_hint ? "prompt_cache_key" : "conversation_id"] = *request.conversation_id;
    if (request.salt.value) body["cache_salt"] = *request.salt.value;
    if (request.claim) body["turn_id"] = request.claim->turn_id;
    if (request.parent_head) body["parent_head"] = *request.parent_head;
    return request_text("POST", "/v1/completions", body.dump());
}

void HttpDoor::submit(int64_t number, const server::HostRequest& request, int64_t num_known, Sink sink) {
    if (num_known > 0) mark(HttpMark::kSuffixes);
    Client& client = ready_client();
    client.turn = number;
    client.sink = std::move(sink);
    start(client, turn_text(request, num_known, prng_.below(3) > 0));
}

void HttpDoor::ask(const ConversationCall& call, Done done) {
    Client& client = ready_client();
    client.call = call;
    client.done = std::move(done);
    start(client, call_text(call));
}

void HttpDoor::leave(int64_t number) {
    const auto client = std::ranges::find_if(clients_, [&](const Client& one) { return one.turn == number; });
    if (client == clients_.end()) return;
    mark(client->num_tokens > 0 ? HttpMark::kLeftInStream : HttpMark::kLeftBefore);
    close_socket(*client);
    left_.push_back(std::move(client->sink));
    clients_.erase(client);
}

void HttpDoor::stop_reading(Prng& prng) {
    std::vector<Client*> readers;
    for (Client& client : clients_) {
        if (client.turn && !client.is_slow) readers.push_back(&client);
    }
    if (readers.empty()) return;
    Client& client = *readers[prng.below(readers.size())];
    client.is_slow = client.was_slow = true;
    mark(HttpMark::kSlowReaders);
}

void HttpDoor::send_nonsense(Prng& prng) {
    const Nonsense& nonsense = all_nonsense()[prng.below(all_nonsense().size())];
    Client& client = ready_client();
    client.wanted_status = nonsense.status;
    start(client, nonsense.text);
}

void HttpDoor::send_half(const server::HostRequest& request, Prng& prng) {
    const std::string whole = turn_text(request, 0, prng.below(2) == 0);
    Client& client = connect();
    client.unsent = whole.substr(0, 1 + prng.below(whole.size() - 1));
    send_some(client, kAll);
    server_->poll(prng.below(8));
    close_socket(client);
    clients_.pop_back();
    mark(HttpMark::kHalf);
}

// --- what they read

void HttpDoor::take(Client& client) {
    const Parser& parser = *client.parser;
    if (!parser.is_header_done()) return;
    const bool is_stream = parser.get()[boost::beast::http::field::content_type] == "text/event-stream";
    if (is_stream) take_events(client);
    if (!parser.is_done()) return;
    const std::string& body = parser.get().body();
    const int status = parser.get().result_int();
    if (client.wanted_status != 0) {
        MUST(std::exchange(client.wanted_status, 0) == status, "status {}: {}", status, body);
        mark(HttpMark::kNonsense);
    } else if (client.call) {
        take_reply(client, status, body);
    } else if (client.turn && status == 200) {
        mark(HttpMark::kWhole);
        take_part(client, json::parse(body));
        MUST(client.end.has_value(), "an answer without an end: {}", body);
        end_turn(client, *client.end);
    } else if (client.turn) {
        take_error(client, json::parse(body));
    }
    rest(client);
}

void HttpDoor::take_events(Client& client) {
    const std::string& events = client.parser->get().body();
    for (size_t end = events.find("\n\n", client.num_read); end != std::string::npos;
         end = events.find("\n\n", client.num_read)) {
        const std::string event = events.substr(client.num_read, end - client.num_read);
        client.num_read = end + 2;
        if (event.starts_with(':')) continue;
        MUST(event.starts_with("data: ") && client.turn, "{}", event);
        take_event(client, event.substr(6));
    }
}

void HttpDoor::take_event(Client& client, const std::string& data) {
    if (data == "[DONE]") {
        MUST(client.end.has_value(), "a stream without a finish_reason");
        mark(HttpMark::kStreams);
        return end_turn(client, *client.end);
    }
    const json event = json::parse(data);
    if (!event.contains("error")) return take_part(client, event);
    if (client.num_tokens > 0) mark(HttpMark::kBrokenStreams);
    take_error(client, event);
}

// A chunk, or a whole answer.
void HttpDoor::take_part(Client& client, const json& part) {
    MUST(!client.end, "there is more behind the end: {}", part.dump());
    const auto& header = client.parser->get();
    const bool in_conversation = header.find("X-Conversation-Id") != header.end();
    const int64_t number = *client.turn;
    if (!std::exchange(client.is_accepted, true)) {
        const auto id = part.at("id").get<std::string>();
        answers_[number] = id;
        server::AcceptedUpdate accepted{.in_conversation = in_conversation, .recorded = nullptr};
        // An answer of before has the id of before.
        if (id != fmt::format("cmpl-{}", std::string(header["X-Request-Id"]))) {
            server::AnswerRow row;
            row.answer_id = id;
            accepted.recorded = std::make_shared<server::AnswerRow>(std::move(row));
        }
        client.sink(accepted);
    }
    const json& choice = part.at("choices").at(0);
    for (const TokenId token : tokens_of(choice.at("text").get<std::string>())) {
        ++client.num_tokens;
        client.sink(server::TokenUpdate{.token = token});
    }
    if (choice.at("finish_reason").is_null()) return;
    FinishedUpdate& end = client.end.emplace();
    end.end.reason = choice.at("finish_reason") == "length" ? FinishReason::kLength : FinishReason::kStopToken;
    end.end.committed = in_conversation;
    end.head = part.value("head_id", "");
}

void HttpDoor::take_error(Client& client, const json& body) {
    const auto code = body.at("error").at("code").get<std::string>();
    const auto message = body.at("error").at("message").get<std::string>();
    if (const auto reason = refusal_named(code))
        return end_turn(client, Refusal{.reason = *reason, .problem = message});
    if (code == "ledger_unavailable") return end_turn(client, FailedUpdate{FailedUpdate::Part::kLedger, message});
    FinishedUpdate broken;
    broken.end.reason =
        code == verbatim::name(FinishReason::kNonFinite) ? FinishReason::kNonFinite : FinishReason::kExecutorFailed;
    MUST(code == verbatim::name(broken.end.reason), "{}", body.dump());
    end_turn(client, broken);
}

void HttpDoor::end_turn(Client& client, server::HostUpdate end) {
    if (client.was_slow && !std::holds_alternative<FailedUpdate>(end)) mark(HttpMark::kSlowToTheEnd);
    client.turn.reset();
    std::exchange(client.sink, nullptr)(std::move(end));
}

void HttpDoor::take_reply(Client& client, int status, const std::string& body) {
    const json read = json::parse(body);
    server::ConversationReply reply;
    if (status == 200) {
        reply.json = server::Json::parse(body);
        if (client.call->kind == ConversationCall::Kind::kShow) reply.view = view_of(read);
    } else {
        const auto code = read.at("error").at("code").get<std::string>();
        const auto reason = refusal_named(code);
        MUST(reason || code == "ledger_unavailable", "{}", body);
        if (reason)
            reply.refusal = Refusal{.reason = *reason};
        else
            reply.problem = read.at("error").at("message").get<std::string>();
    }
    client.call.reset();
    std::exchange(client.done, nullptr)(std::move(reply));
}

// --- time

void HttpDoor::go_on(Prng& prng) {
    for (uint64_t left = 1 + prng.below(3); left > 0; --left) {
        server_->poll(1 + prng.below(16));
        for (Client& client : clients_) {
            if (prng.below(4) != 0) send_some(client, prng.below(2) == 0 ? kAll : 1 + prng.below(200));
            if (!client.is_slow && prng.below(4) != 0)
                read_some(client, prng.below(2) == 0 ? kAll : 1 + prng.below(400));
        }
    }
    forget_closed();
}

bool HttpDoor::go_on_as_far_as_possible() {
    bool moved_once = false;
    for (bool moved = true; moved; moved_once |= moved) {
        moved = server_->poll(kAll) > 0;
        for (Client& client : clients_) {
            moved |= send_some(client, kAll);
            if (!client.is_slow) moved |= read_some(client, kAll);
        }
    }
    forget_closed();
    if (moved_once) return true;
    // All else is done: slow readers read.
    bool was_slow = false;
    for (Client& client : clients_) was_slow |= std::exchange(client.is_slow, false);
    return was_slow;
}

void HttpDoor::settled() {
    for (const Sink& sink : std::exchange(left_, {})) sink(FailedUpdate{FailedUpdate::Part::kLedger, kConnectionLost});
}

// What the server has written is read, up to the connections' ends.
void HttpDoor::close() {
    server_.reset();
    for (Client& client : clients_) {
        while (read_some(client, kAll)) {
        }
    }
    forget_closed();
    MUST(clients_.empty(), "{} connections outlive the server", clients_.size());
    settled();
}

void HttpDoor::forget_closed() {
    std::erase_if(clients_, [](const Client& client) { return client.socket < 0; });
}

}  // namespace verbatim::tests
