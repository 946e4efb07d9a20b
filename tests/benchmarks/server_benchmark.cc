// The cost of the HTTP server over its engine, and of answers of a form over free text, for concurrent clients: the
// same requests go directly to an engine, and through sockets as streams; round by round, in turn, so that what else a
// machine does hits all of them. By the clock, and by processor time: of the engine's run, and of the server's threads.
//   server_benchmark --help
#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/budget.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/loader/load_model.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "server/checkpoints.h"
#include "server/engine_host.h"
#include "server/http/http_server.h"
#include "server/text/grammar_process.h"
#include "server/text/tokenizer_json.h"
#include "tests/benchmarks/loopback.h"

namespace verbatim {
namespace {

constexpr int64_t kPromptTokens = 64;
const char* const kTinyPython = VERBATIM_SOURCE_DIR "/server/models/tiny-python";

struct Options {
    std::string model = "tiny-python";
    int32_t num_threads = 1;
    std::vector<int64_t> num_clients = {1, 16, 200};
    int64_t num_tokens = 128;
    int num_rounds = 9;
    std::string lookup = "prefix";
    std::string form;
    std::vector<int> cores;
};

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point began) { return std::chrono::duration<double>(Clock::now() - began).count(); }

double processor_seconds(clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// What the calling thread and those that it starts run on. No cores: wherever the system likes.
void stay_on(const std::vector<int>& cores) {
    if (cores.empty()) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int core : cores) CPU_SET(static_cast<size_t>(core), &set);
    CHECK_EQ(pthread_setaffinity_np(pthread_self(), sizeof set, &set), 0);
}

struct Run {
    double first_token = 0;  // seconds, the median client's
    double whole = 0;        // seconds until the last client has its last token
    double processor = 0;    // seconds of processors
    int64_t num_tokens = 0;  // of all answers
    [[nodiscard]] double rate() const { return static_cast<double>(num_tokens) / whole; }
    [[nodiscard]] double processor_us() const { return processor * 1e6 / static_cast<double>(num_tokens); }
};

double median(std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
}

double median(const std::vector<Run>& runs, double (*of)(const Run&)) {
    std::vector<double> values;
    for (const Run& run : runs) values.push_back(of(run));
    return median(values);
}

// Of each round the rate of one over the rate of the other: the quarters.
std::array<double, 3> ratios(const std::vector<Run>& of, const std::vector<Run>& over) {
    std::vector<double> values;
    for (size_t i = 0; i < of.size(); ++i) values.push_back(of[i].rate() / over[i].rate());
    std::ranges::sort(values);
    return {values[values.size() / 4], values[values.size() / 2], values[values.size() * 3 / 4]};
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
    Scene(const reference::Model& loaded, const Options& options) : model(loaded), store(loaded.config.vocab_size) {
        config.cache.lookup = options.lookup == "prefix" ? LookupMode::kPrefix : LookupMode::kConversation;
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
            model.config, model.weights, cpu::CpuExecutorConfig{.pools = *pools, .num_threads = options.num_threads});
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

Run run_engine(Scene& scene, int64_t num_clients, int64_t num_tokens, int64_t round) {
    const auto began = Clock::now();
    const double processor = processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    for (int64_t i = 0; i < num_clients; ++i) {
        ChatRequest request;
        request.conversation.conversation_id = fmt::format("{} {}", round, i);
        request.messages = {{scene.store.store(prompt_of(round * 1000 + i))}};
        request.max_tokens = num_tokens;
        request.seed = 1;
        CHECK(scene.engine->submit(std::move(request)).has_value());
    }
    std::map<RequestId, double> first;
    while (!scene.engine->idle()) {
        CHECK(scene.engine->step().has_value());
        for (const EngineEvent& event : scene.engine->take_events())
            first.try_emplace(request_of(event), seconds_since(began));
    }
    std::vector<double> times;
    for (const auto& [request, time] : first) times.push_back(time);
    return {median(times), seconds_since(began), processor_seconds(CLOCK_THREAD_CPUTIME_ID) - processor,
            num_clients * num_tokens};
}

// What its answers are: free text, or of a form that never has to end.
enum class Ask : uint8_t { kFree, kAny, kList };

std::string form_of(Ask ask) {
    if (ask == Ask::kAny) return R"=(, "guided_regex": "(?s:.*)")=";
    if (ask == Ask::kList) {
        return R"(, "guided_json": {"type": "array", "minItems": 1000, "items": {"type": "object", "properties": )"
               R"({"name": {"type": "string"}, "number": {"type": "integer"}}, "required": ["name", "number"], )"
               R"("additionalProperties": false}})";
    }
    return "";
}

std::string request_bytes(int64_t number, const Options& options, Ask ask) {
    const std::string body = fmt::format(
        R"({{"prompt": [{}], "max_tokens": {}, "temperature": 0, "seed": 1, "stream": true, {}{}}})",
        fmt::join(prompt_of(number), ", "), options.num_tokens,
        options.form.empty() ? R"("ignore_eos": true)" : fmt::format(R"("min_tokens": {})", options.num_tokens),
        form_of(ask));
    return fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

// Reads all streams on one thread.
Run run_clients(const std::vector<int>& sockets, const Options& options, Ask ask, int64_t round) {
    const auto began = Clock::now();
    const auto processor_now = [] {
        return processor_seconds(CLOCK_PROCESS_CPUTIME_ID) - processor_seconds(CLOCK_THREAD_CPUTIME_ID);
    };
    const double processor = processor_now();
    for (size_t i = 0; i < sockets.size(); ++i) {
        const std::string bytes = request_bytes(round * 1000 + static_cast<int64_t>(i), options, ask);
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
            CHECK(first[i] != 0 || ends[i].starts_with("HTTP/1.1 200"), "{}", ends[i]);
            if (first[i] == 0 && ends[i].find("data: ") != std::string::npos) first[i] = seconds_since(began);
            if (ends[i].ends_with("0\r\n\r\n") && ends[i].find("[DONE]") != std::string::npos) {
                CHECK(ends[i].find(R"("length")") != std::string::npos, "an answer ended early: {}", ends[i]);
                waits[i].fd = -1;
                ++num_done;
            }
            if (first[i] != 0 && ends[i].size() > 600) ends[i].erase(0, ends[i].size() - 600);
        }
    }
    return {median(first), seconds_since(began), processor_now() - processor,
            static_cast<int64_t>(sockets.size()) * options.num_tokens};
}

// The server on its cores, in a process with its clients.
class Served {
public:
    Served(const reference::Model& model, const text::Tokenizer& tokenizer, const Options& options)
        : scene_(model, options), vocabulary_(text::grammar_vocabulary(tokenizer, model.config.vocab_size, {0})) {
        const text::GrammarRunner runner{.program = {VERBATIM_SOURCE_DIR "/server/text/run_grammars.py",
                                                     VERBATIM_SOURCE_DIR "/build/python/bin/python3"},
                                         .vocabulary = &vocabulary_,
                                         .limits = {}};
        if (!options.form.empty()) first_masks_.emplace(runner);
        server::EngineHostConfig config{.max_requests = 1024};
        if (!options.form.empty()) config.grammars = runner;
        host_.emplace(*scene_.engine, server::HostExecutor{scene_.executor.get(), nullptr}, config);
        const auto port = server_.listen();
        CHECK(port.has_value());
        port_ = *port;
        thread_ = std::thread([this] { server_.run(/*signals=*/false); });
        server_.serve({.tokenizer = &tokenizer,
                       .host = &*host_,
                       .model = {{"tiny-python"}},
                       .fingerprint = "exact",
                       .max_model_len = scene_.config.max_model_len,
                       .vocab_size = model.config.vocab_size,
                       .stop_tokens = {0},
                       .grammars = first_masks_ ? &*first_masks_ : nullptr,
                       .now = [] { return int64_t{0}; }});
    }
    ~Served() {
        server_.stop();
        thread_.join();
    }
    [[nodiscard]] uint16_t port() const { return port_; }

private:
    Scene scene_;
    text::GrammarVocabulary vocabulary_;
    std::optional<text::GrammarProcess> first_masks_;
    std::optional<server::EngineHost> host_;
    server::HttpServer server_{{.port = 0}};
    uint16_t port_ = 0;
    std::thread thread_;
};

void report(const char* what, const std::vector<Run>& runs, const std::vector<Run>& over) {
    const auto [low, middle, high] = ratios(runs, over);
    fmt::print("| {} | {:.2f} ms | {:.0f} | {:.3f} ({:.3f} to {:.3f}) | {:.1f} us |\n", what,
               median(runs, [](const Run& run) { return run.first_token * 1e3; }),
               median(runs, [](const Run& run) { return run.rate(); }), middle, low, high,
               median(runs, [](const Run& run) { return run.processor_us(); }));
    std::fflush(stdout);
}

void measure(const reference::Model& model, const text::Tokenizer& tokenizer, const Options& options,
             int64_t num_clients) {
    Scene alone(model, options);
    if (!options.cores.empty()) stay_on({options.cores.begin(), options.cores.end() - 1});
    const Served served(model, tokenizer, options);
    std::vector<int> sockets;
    for (int64_t i = 0; i < num_clients; ++i) sockets.push_back(connect_to(served.port()));
    const std::vector<Ask> asks = options.form.empty()    ? std::vector{Ask::kFree}
                                  : options.form == "any" ? std::vector{Ask::kFree, Ask::kAny}
                                                          : std::vector{Ask::kFree, Ask::kList};
    std::vector<Run> engine_runs;
    std::array<std::vector<Run>, 2> runs;
    for (int round = 0; round <= options.num_rounds; ++round) {
        if (!options.cores.empty()) stay_on({options.cores.front()});
        const Run engine = run_engine(alone, num_clients, options.num_tokens, round);
        if (round > 0) engine_runs.push_back(engine);
        if (!options.cores.empty()) stay_on({options.cores.back()});
        for (size_t i = 0; i < asks.size(); ++i) {
            const Run run = run_clients(sockets, options, asks[i], round * 2 + static_cast<int64_t>(i));
            if (round > 0) runs[i].push_back(run);  // before, nothing is warm
        }
    }
    for (const int socket : sockets) close(socket);
    report(fmt::format("{} clients, engine", num_clients).c_str(), engine_runs, engine_runs);
    report(fmt::format("{} clients, server", num_clients).c_str(), runs[0], engine_runs);
    if (asks.size() > 1) report(fmt::format("{} clients, form, over free", num_clients).c_str(), runs[1], runs[0]);
}

Result<reference::Model> model_of(const std::string& name) {
    if (name == "tiny-python") return reference::load_model(kTinyPython);
    const auto config = reference::preset(name);
    if (!config) return tl::unexpected(config.error());
    return reference::make_random_model(*config, 1);
}

int run(int argc, char** argv) {
    Options options;
    CLI::App app("the cost of the server over its engine");
    app.add_option("--model", options.model, "tiny-python, or a preset with random weights");
    app.add_option("--threads", options.num_threads, "of the executor");
    app.add_option("--clients", options.num_clients, "at a time; several: one after another");
    app.add_option("--tokens", options.num_tokens, "of each answer");
    app.add_option("--rounds", options.num_rounds);
    app.add_option("--lookup", options.lookup)->check(CLI::IsMember({"prefix", "conversation"}));
    app.add_option("--form", options.form, "also answers of a form")->check(CLI::IsMember({"any", "list"}));
    app.add_option("--cores", options.cores,
                   "two or more: the last one is the clients', the first one the engine's alone");
    CLI11_PARSE(app, argc, argv);
    CHECK(options.cores.size() != 1, "the clients need a core of their own");
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const auto model = model_of(options.model);
    CHECK(model.has_value(), "{}", model.error().message);
    const auto tokenizer = text::load_tokenizer(kTinyPython);
    CHECK(tokenizer.has_value());
    fmt::print(
        "| who | first token | tokens/s | rate over the engine's (half of the rounds) | processor time a token |\n");
    for (const int64_t num : options.num_clients) measure(*model, *tokenizer, options, num);
    return 0;
}

}  // namespace
}  // namespace verbatim

int main(int argc, char** argv) { return verbatim::run(argc, argv); }
