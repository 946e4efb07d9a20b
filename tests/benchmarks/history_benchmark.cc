// The cost of a long history for a turn that adds a line to it: through the server, whose template and tokenizer
// process all of it, and in an engine without a server, which gets the new tokens alone.
//   history_benchmark [TOKENS [THREADS [prefix|conversation]]]   THREADS 0: nothing is computed, which leaves the
//                                                                server's part
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/loader/load_model.h"
#include "server/checkpoints.h"
#include "server/engine_host.h"
#include "server/http/http_server.h"
#include "server/text/chat.h"
#include "server/text/tokenizer_json.h"
#include "tests/benchmarks/loopback.h"
#include "tests/support/null_executor.h"

namespace verbatim {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 25;

double ms_since(Clock::time_point began) {
    return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

// Of wall clocks, in milliseconds. On a machine with other work the least one says most.
struct Times {
    double least = 0;
    double median = 0;
};
Times times_of(std::vector<double> values) {
    std::ranges::sort(values);
    return {values.front(), values[values.size() / 2]};
}

Json message(const char* role, std::string text) { return {{"role", role}, {"content", std::move(text)}}; }

// The repository's documents as a chat of about so many tokens, each message a few hundred.
Json long_history(const text::Tokenizer& tokenizer, int64_t num_tokens) {
    constexpr size_t kMessageBytes = 1200;
    std::string text;
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(VERBATIM_SOURCE_DIR "/docs")) {
        if (entry.path().extension() == ".md") paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    for (const auto& path : paths) {
        std::ifstream file(path, std::ios::binary);
        text.append(std::istreambuf_iterator<char>(file), {});
    }
    std::erase_if(text, [](char c) { return c < 0; });  // ASCII is cut anywhere
    text::WordCache words;
    Json history = Json::array();
    size_t at = 0;
    for (int64_t count = 0; count < num_tokens || history.size() % 2 == 0; at += kMessageBytes) {
        const std::string part = text.substr(at % (text.size() - kMessageBytes), kMessageBytes);
        count += static_cast<int64_t>(tokenizer.encode(part, {}, words)->size()) + 5;
        history.push_back(message(history.size() % 2 == 0 ? "user" : "assistant", part));
    }
    return history;
}

struct Scene {
    Scene(const reference::Model& model, int32_t num_threads, int64_t num_tokens, LookupMode lookup)
        : store(model.config.vocab_size) {
        config.cache.lookup = lookup;
        const auto num_blocks = static_cast<int32_t>(num_tokens / 16 + 4096);
        config.cache.pools = {.block_size = 16, .num_blocks = num_blocks, .num_state_rows = 64};
        config.scheduler.step_tokens = 512;
        config.max_model_len = num_tokens * 2 + 8192;
        server::keep_checkpoints(config);
        executor = std::make_unique<NullExecutor>();
        if (num_threads > 0)
            executor = std::make_unique<cpu::CpuExecutor>(
                model.config, model.weights,
                cpu::CpuExecutorConfig{.pools = config.cache.pools, .num_threads = num_threads});
        engine = std::make_unique<Engine>(config, *executor, policy, store, nobody);
    }
    EngineConfig config;
    std::unique_ptr<Executor> executor;
    TokenStore store;
    LruEviction policy;
    NullRecorder nobody;
    std::unique_ptr<Engine> engine;
};

// One token, without a server.
double engine_turn(Engine& engine, const std::vector<TokenId>& prompt, size_t num_new) {
    ChatRequest request;
    request.conversation.conversation_id = "c";
    const std::span<const TokenId> ids(prompt);
    request.messages = {{engine.token_store().store(ids.first(ids.size() - num_new))},
                        {engine.token_store().store(ids.last(num_new))}};
    request.max_tokens = 1;
    request.seed = 1;
    const auto began = Clock::now();
    CHECK(engine.submit(std::move(request)).has_value());
    while (!engine.idle()) CHECK(engine.step().has_value());
    return ms_since(began);
}

// One request on a new connection, to the end of its answer.
struct Answered {
    double ms = 0;
    Json body;
};
Answered ask(uint16_t port, const Json& body) {
    const std::string text = body.dump();
    const int made = connect_to(port);
    const std::string bytes = fmt::format(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
        text.size(), text);
    const auto began = Clock::now();
    for (size_t sent = 0; sent < bytes.size();) {
        const ssize_t size = send(made, bytes.data() + sent, bytes.size() - sent, 0);
        CHECK(size > 0);
        sent += static_cast<size_t>(size);
    }
    std::string answer;
    std::array<char, 65536> buffer{};
    for (ssize_t size = 1; size > 0;) {
        size = recv(made, buffer.data(), buffer.size(), 0);
        if (size > 0) answer.append(buffer.data(), static_cast<size_t>(size));
    }
    const double ms = ms_since(began);
    close(made);
    CHECK(answer.starts_with("HTTP/1.1 200"), "{}", answer.substr(0, 600));
    return {ms, Json::parse(answer.substr(answer.find("\r\n\r\n") + 4))};
}

struct Measured {
    double first = 0;   // the whole history is new
    Times next;         // a line is
    double forget = 0;  // without a conversation id: all of it is encoded and computed again
    int64_t num_new = 0;
    int64_t num_computed = 0;
};

Measured measure_server(Scene& scene, const text::Tokenizer& tokenizer, text::Chat& chat, int64_t vocab_size,
                        Json history, const std::function<void(int64_t)>& between) {
    server::EngineHost host(*scene.engine, {scene.executor.get(), nullptr},
                            {.max_queue_tokens = scene.config.max_model_len, .tokenizer = &tokenizer});
    server::HttpServer server({.port = 0});
    const auto port = server.listen();
    CHECK(port.has_value());
    std::thread sockets([&] { server.run(/*signals=*/false); });
    server.serve({.tokenizer = &tokenizer,
                  .chat = &chat,
                  .host = &host,
                  .model = {{"tiny-python"}},
                  .fingerprint = "exact",
                  .max_model_len = scene.config.max_model_len,
                  .vocab_size = static_cast<int32_t>(vocab_size),
                  .now = [] { return int64_t{0}; }});
    Measured measured;
    std::vector<double> times;
    for (int turn = 0; turn < kTurns; ++turn) {
        const Json body = {{"messages", history}, {"max_tokens", 1}, {"seed", 1}, {"conversation_id", "c"}};
        const Answered answered = ask(*port, body);
        const Json& usage = answered.body["usage"];
        measured.num_computed =
            usage["prompt_tokens"].get<int64_t>() - usage["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
        if (turn == 0) measured.first = answered.ms;
        if (turn > 0) times.push_back(answered.ms);
        if (between) between(measured.num_computed);
        history.push_back(message("assistant", answered.body["choices"][0]["message"]["content"]));
        history.push_back(message("user", "And what does that mean for a line like this one?"));
    }
    measured.next = times_of(times);
    if (!between) measured.forget = ask(*port, {{"messages", history}, {"max_tokens", 1}, {"seed", 1}}).ms;
    server.stop();
    sockets.join();
    return measured;
}

// The same turns, as near as the number of their tokens goes, without a server.
class Alone {
public:
    Alone(Scene& scene, int64_t num_history) : engine_(*scene.engine) {
        add(num_history);
        (void)engine_turn(engine_, prompt_, 1);
    }
    void take_turn(int64_t num_new) {
        add(num_new);
        times_.push_back(engine_turn(engine_, prompt_, static_cast<size_t>(num_new)));
    }
    [[nodiscard]] Times times() const { return times_of(times_); }

private:
    void add(int64_t count) {
        for (int64_t i = 0; i < count; ++i)
            prompt_.push_back(static_cast<TokenId>(100 + (prompt_.size() * 104729) % 1500));
    }
    Engine& engine_;
    std::vector<TokenId> prompt_;
    std::vector<double> times_;
};

// The template and the tokenizer alone, on the text's thread.
void report_text(text::Chat& chat, const Json& history) {
    text::WordCache words;
    const auto once = [&](std::span<const TokenId> known) {
        const auto began = Clock::now();
        const auto rendered = chat.render({.messages = history, .add_generation_prompt = true}, words, known);
        CHECK(rendered.has_value());
        return std::pair(ms_since(began), rendered->ids);
    };
    const auto [first, ids] = once({});
    std::vector<double> again;
    std::vector<double> known;
    for (int i = 0; i < kTurns; ++i) again.push_back(once({}).first);
    for (int i = 0; i < kTurns; ++i) known.push_back(once(ids).first);
    fmt::print("template and tokenizer: {:.1f} ms with words never seen, {:.1f} ms, {:.1f} ms of known tokens\n", first,
               times_of(again).least, times_of(known).least);
}

int run(int argc, char** argv) {
    const int64_t num_tokens = argc > 1 ? std::stoll(argv[1]) : 100'000;
    const int32_t num_threads = argc > 2 ? std::stoi(argv[2]) : 0;
    const bool by_name = argc > 3 && std::string(argv[3]) == "conversation";
    const LookupMode lookup = by_name ? LookupMode::kConversation : LookupMode::kPrefix;
    const std::string folder = VERBATIM_SOURCE_DIR "/server/models/tiny-python";
    auto model = reference::load_model(folder);
    auto tokenizer = text::load_tokenizer(folder);
    CHECK(model.has_value() && tokenizer.has_value());
    auto chat = text::Chat::load(folder, *tokenizer, {VERBATIM_SOURCE_DIR "/server/text/render_chat.py"});
    CHECK(chat.has_value());
    model->config.max_position_embeddings = static_cast<int32_t>(num_tokens * 2 + 8192);  // it has no positions
    const Json history = long_history(*tokenizer, num_tokens);
    fmt::print("{} messages, {} bytes of JSON\n", history.size(), history.dump().size());
    report_text(*chat, history);
    Scene served(*model, num_threads, num_tokens, lookup);
    std::unique_ptr<Scene> alone_scene;
    std::optional<Alone> alone;
    std::function<void(int64_t)> between;  // a turn of one, a turn of the other: both on the same machine
    if (num_threads > 0) {
        alone_scene = std::make_unique<Scene>(*model, num_threads, num_tokens, lookup);
        alone.emplace(*alone_scene, num_tokens);
        between = [&, is_first = true](int64_t num_new) mutable {
            if (!std::exchange(is_first, false)) alone->take_turn(num_new);
        };
    }
    const Measured server = measure_server(served, *tokenizer, *chat, model->config.vocab_size, history, between);
    fmt::print("first turn {:.1f} ms; next ones, {} tokens to compute: {:.1f} ms at least, {:.1f} in the median\n",
               server.first, server.num_computed, server.next.least, server.next.median);
    if (!alone) {
        fmt::print("without a conversation's name {:.1f} ms\n", server.forget);
        return 0;
    }
    const Times engine = alone->times();
    fmt::print("the engine alone, next turns: {:.1f} ms at least, {:.1f} in the median; the server's: {:.2f}, {:.2f}\n",
               engine.least, engine.median, server.next.least / engine.least, server.next.median / engine.median);
    return 0;
}

}  // namespace
}  // namespace verbatim

int main(int argc, char** argv) { return verbatim::run(argc, argv); }
