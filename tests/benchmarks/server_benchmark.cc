// The cost of the HTTP server over its engine: time to the first token and tokens per second of concurrent clients,
// with the trained model of the repository. The same requests go directly to an engine, and through sockets as streams.
//   server_benchmark [THREADS [CLIENTS... [conversation]]]   conversation: states are not found by their tokens
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/budget.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/model/load_model.h"
#include "server/checkpoints.h"
#include "server/engine_host.h"
#include "server/http/http_server.h"
#include "server/text/tokenizer_json.h"
#include "tests/benchmarks/loopback.h"

namespace verbatim {
namespace {

constexpr int64_t kPromptTokens = 64;
constexpr int64_t kOutputTokens = 128;
constexpr int kRepeats = 9;

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

struct Run {
    double first_token = 0;  // seconds, the median client's
    double whole = 0;        // seconds until the last client has its last token
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

// On a machine with other work the least time says most.
Run best(const std::vector<Run>& runs) {
    Run best = runs.front();
    for (const Run& run : runs) {
        best.first_token = std::min(best.first_token, run.first_token);
        best.whole = std::min(best.whole, run.whole);
    }
    return best;
}

// Another prompt for every client and round.
std::vector<TokenId> prompt_of(int64_t number) {
    // Its first tokens are the number, so that nothing of it is found by its tokens.
    std::vector<TokenId> prompt = {static_cast<TokenId>(100 + number % 1500)};
    prompt.push_back(static_cast<TokenId>(100 + number / 1500));
    for (int64_t i = 2; i < kPromptTokens; ++i)
        prompt.push_back(static_cast<TokenId>(100 + (number * 7919 + i * 104729) % 1500));
    return prompt;
}

struct Scene {
    Scene(const reference::Model& loaded, int32_t num_threads, LookupMode lookup)
        : model(loaded), store(loaded.config.vocab_size) {
        config.cache.lookup = lookup;
        const reference::ModelGeometry shape = geometry(model.config);
        const UnitBytes unit{shape.kv_bytes_per_token * 16, shape.state_bytes_per_row, 16};
        const auto pools = split_budget({int64_t{2} << 30, {}, {}}, unit);
        CHECK(pools.has_value());
        config.cache.pools = *pools;
        server::keep_checkpoints(config);
        config.scheduler.step_tokens = 512;
        config.scheduler.max_num_sequences = 256;
        config.max_model_len = model.config.max_position_embeddings;
        executor = std::make_unique<cpu::CpuExecutor>(
            model.config, model.weights, cpu::CpuExecutorConfig{.pools = *pools, .num_threads = num_threads});
        engine = std::make_unique<Engine>(config, *executor, policy, store, nobody);
    }
    const reference::Model& model;
    EngineConfig config;
    std::unique_ptr<cpu::CpuExecutor> executor;
    TokenStore store;
    LruEviction policy;
    RecorderList nobody{{}};
    std::unique_ptr<Engine> engine;
};

Run run_engine(Scene& scene, int64_t num_clients, int64_t round) {
    const auto began = Clock::now();
    for (int64_t i = 0; i < num_clients; ++i) {
        ChatRequest request;
        request.conversation.conversation_id = fmt::format("{} {}", round, i);
        request.messages = {{scene.store.store(prompt_of(round * 1000 + i))}};
        request.max_tokens = kOutputTokens;
        request.seed = 1;
        CHECK(scene.engine->submit(std::move(request)).has_value());
    }
    std::vector<double> first(static_cast<size_t>(num_clients), 0);
    const int64_t base = round * num_clients;
    while (!scene.engine->idle()) {
        CHECK(scene.engine->step().has_value());
        for (const EngineEvent& event : scene.engine->take_events()) {
            double& time = first[static_cast<size_t>(index(request_of(event)) - base)];
            if (time == 0) time = seconds_since(began);
        }
    }
    return {median(first), seconds_since(began)};
}

std::string request_bytes(int64_t number) {
    const std::string body = fmt::format(
        R"({{"prompt": [{}], "max_tokens": {}, "temperature": 0, "seed": 1, "ignore_eos": true, "stream": true}})",
        fmt::join(prompt_of(number), ", "), kOutputTokens);
    return fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

// Reads all streams on one thread.
Run run_clients(const std::vector<int>& sockets, int64_t round) {
    const auto began = Clock::now();
    for (size_t i = 0; i < sockets.size(); ++i) {
        const std::string bytes = request_bytes(round * 1000 + static_cast<int64_t>(i));
        CHECK_EQ(send(sockets[i], bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    }
    std::vector<pollfd> waits;
    for (const int socket : sockets) waits.push_back({socket, POLLIN, 0});
    std::vector<double> first(sockets.size(), 0);
    std::vector<std::string> ends(sockets.size());  // the last bytes that came
    std::array<char, 65536> buffer{};
    size_t num_done = 0;
    while (num_done < sockets.size()) {
        poll(waits.data(), waits.size(), -1);
        for (size_t i = 0; i < waits.size(); ++i) {
            if ((waits[i].revents & POLLIN) == 0) continue;
            const ssize_t size = recv(sockets[i], buffer.data(), buffer.size(), 0);
            CHECK(size > 0);
            ends[i].append(buffer.data(), static_cast<size_t>(size));
            if (first[i] == 0 && ends[i].find("data: ") != std::string::npos) first[i] = seconds_since(began);
            if (ends[i].ends_with("0\r\n\r\n") && ends[i].find("[DONE]") != std::string::npos) {
                waits[i].fd = -1;
                ++num_done;
            }
            if (first[i] != 0 && ends[i].size() > 200) ends[i].erase(0, ends[i].size() - 200);
        }
    }
    return {median(first), seconds_since(began)};
}

struct Both {
    Run engine;
    Run server;
};

// A round of one, a round of the other: what else a machine does hits both.
Both measure(const reference::Model& model, const text::Tokenizer& tokenizer, int32_t num_threads, int64_t num_clients,
             LookupMode lookup) {
    Scene alone(model, num_threads, lookup);
    Scene scene(model, num_threads, lookup);
    server::EngineHost host(*scene.engine, {scene.executor.get(), nullptr}, {.max_requests = 1024});
    server::HttpServer server({.port = 0});
    const auto port = server.listen();
    CHECK(port.has_value());
    std::thread sockets_thread([&] { server.run(/*signals=*/false); });
    server.serve({.tokenizer = &tokenizer,
                  .host = &host,
                  .model = {{"tiny-python"}},
                  .fingerprint = "exact",
                  .max_model_len = scene.config.max_model_len,
                  .vocab_size = model.config.vocab_size,
                  .now = [] { return int64_t{0}; }});
    std::vector<int> sockets;
    for (int64_t i = 0; i < num_clients; ++i) sockets.push_back(connect_to(*port));
    std::vector<Run> engine_runs;
    std::vector<Run> server_runs;
    for (int round = 0; round <= kRepeats; ++round) {
        const Run engine = run_engine(alone, num_clients, round);
        const Run served = run_clients(sockets, round);
        if (round == 0) continue;  // nothing is warm
        engine_runs.push_back(engine);
        server_runs.push_back(served);
    }
    for (const int socket : sockets) close(socket);
    server.stop();
    sockets_thread.join();
    return {best(engine_runs), best(server_runs)};
}

void report(int64_t num_clients, const Both& both) {
    const auto& [engine, server] = both;
    const auto tokens = static_cast<double>(num_clients * kOutputTokens);
    fmt::print("| {} | {:.2f} ms | {:.2f} ms | {:.0f} | {:.0f} | {:+.1f} % | {:+.3f} ms |\n", num_clients,
               engine.first_token * 1e3, server.first_token * 1e3, tokens / engine.whole, tokens / server.whole,
               (server.whole / engine.whole - 1) * 100, (server.whole - engine.whole) * 1e3 / kOutputTokens);
    std::fflush(stdout);
}

int run(int argc, char** argv) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const std::string folder = VERBATIM_SOURCE_DIR "/server/models/tiny-python";
    const auto model = reference::load_model(folder);
    CHECK(model.has_value(), "{}", model.error().message);
    const auto tokenizer = text::load_tokenizer(folder);
    CHECK(tokenizer.has_value());
    const int32_t num_threads = argc > 1 ? std::stoi(argv[1]) : 1;
    const bool by_name = argc > 2 && std::string(argv[argc - 1]) == "conversation";
    const LookupMode lookup = by_name ? LookupMode::kConversation : LookupMode::kPrefix;
    std::vector<int64_t> clients;
    for (int i = 2; i < argc - (by_name ? 1 : 0); ++i) clients.push_back(std::stoll(argv[i]));
    if (clients.empty()) clients = {1, 16, 200};
    fmt::print("| clients | first token: engine | server | tokens/s: engine | server | whole | per step |\n");
    for (const int64_t num : clients) report(num, measure(*model, *tokenizer, num_threads, num, lookup));
    return 0;
}

}  // namespace
}  // namespace verbatim

int main(int argc, char** argv) { return verbatim::run(argc, argv); }
