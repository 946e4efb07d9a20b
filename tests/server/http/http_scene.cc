#include "tests/server/http/http_scene.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "reference/head_digest.h"
#include "server/checkpoints.h"
#include "server/text/tokenizer_json.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

const std::string kSceneModel = std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python";

EngineConfig scene_engine(const HttpSceneConfig& config) {
    EngineConfig engine;
    engine.cache.pools = config.executor.pools;
    engine.cache.lookup = config.lookup;
    engine.max_model_len = config.max_model_len;
    engine.scheduler.max_window = config.max_window;
    server::keep_checkpoints(engine);
    if (!config.has_checkpoints) engine.scheduler.max_checkpoints = 0;
    return engine;
}

HashExecutorConfig second_executor(const HttpSceneConfig& scene) {
    HashExecutorConfig config = scene.executor;
    config.fail_at_step = scene.second_fails_at;
    config.draws = scene.second_draws_other ? 1 : 0;
    return config;
}

std::string without_chunks(const std::string& chunked) {
    std::string body;
    for (size_t at = 0; at < chunked.size();) {
        const size_t line = chunked.find("\r\n", at);
        const size_t size = line == std::string::npos ? 0 : std::stoul(chunked.substr(at, line - at), nullptr, 16);
        if (size == 0) break;
        body += chunked.substr(line + 2, size);
        at = line + 2 + size + 2;
    }
    return body;
}

}  // namespace

Status GatedExecutor::execute(const StepPlan& plan, StepResult& result) {
    {
        std::unique_lock lock(mutex_);
        is_waiting_ = num_left_ == 0;
        changed_.notify_all();
        changed_.wait(lock, [&] { return num_left_ > 0; });
        is_waiting_ = false;
        --num_left_;
    }
    return working_->execute(plan, result);
}

Status SayingExecutor::execute(const StepPlan& plan, StepResult& result) {
    const Status executed = inner().execute(plan, result);
    const std::lock_guard lock(mutex_);
    if (!executed || tokens_.empty()) return executed;
    for (const SampledTokens& drawn : result.drawn) {
        size_t& place = num_said_[drawn.slot];
        for (TokenId& token :
             std::span(result.tokens)
                 .subspan(static_cast<size_t>(drawn.tokens.begin), static_cast<size_t>(drawn.tokens.count)))
            token = tokens_[place++ % tokens_.size()];
    }
    return executed;
}

std::optional<Digest> SayingExecutor::head_digest(const HeadImage& image) {
    const auto digest = inner().head_digest(image);
    if (!digest || tensors_.size() == 0) return digest;
    return reference::digest_of_head(tensors_, image.length, *head_bytes(image));
}

void SayingExecutor::say(std::vector<TokenId> tokens) {
    const std::lock_guard lock(mutex_);
    tokens_ = std::move(tokens);
    num_said_.clear();
}

void GatedExecutor::let_through(int64_t steps) {
    {
        const std::lock_guard lock(mutex_);
        num_left_ = steps;
    }
    changed_.notify_all();
}

void GatedExecutor::wait_until_closed() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_waiting_; });
}

std::vector<std::string> HttpAnswer::events() const {
    std::vector<std::string> found;
    const std::string mark = "data: ";
    for (size_t at = body.find(mark); at != std::string::npos; at = body.find(mark, at)) {
        const size_t end = body.find("\n\n", at);
        found.push_back(body.substr(at + mark.size(), end - at - mark.size()));
        at = end;
    }
    return found;
}

HttpClient::HttpClient(uint16_t port, int receive_bytes, bool may_be_gone)
    : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_bytes > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int connected = connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    EXPECT_TRUE(connected == 0 || may_be_gone);
}

HttpClient::~HttpClient() { hang_up(); }

void HttpClient::hang_up() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
}

void HttpClient::send(const std::string& bytes) const {
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t sent = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
        if (sent <= 0) return;
        done += static_cast<size_t>(sent);
    }
}

std::string HttpClient::read_until(const std::string& mark) const {
    std::string got;
    std::array<char, 4096> buffer{};
    while (got.find(mark) == std::string::npos) {
        const ssize_t size = recv(socket_, buffer.data(), buffer.size(), 0);
        if (size <= 0) break;
        got.append(buffer.data(), static_cast<size_t>(size));
    }
    return got;
}

HttpAnswer HttpClient::read_answer() const {
    const std::string all = read_until("there is no such mark in any answer");  // bodies may have any bytes
    HttpAnswer answer;
    const size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return answer;
    answer.head = all.substr(0, end);
    answer.status = std::stoi(answer.head.substr(9, 3));
    answer.body = all.substr(end + 4);
    if (answer.head.find("chunked") != std::string::npos) answer.body = without_chunks(answer.body);
    return answer;
}

std::string post(const std::string& path, const std::string& body, const std::string& headers) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", path, headers, body.size(),
                       body);
}

std::string get(const std::string& path, const std::string& headers) {
    return fmt::format("GET {} HTTP/1.1\r\nHost: x\r\n{}Connection: close\r\n\r\n", path, headers);
}

nlohmann::json hello(const nlohmann::json& more) {
    nlohmann::json body = {{"messages", nlohmann::json::array({{{"role", "user"}, {"content", "hello"}}})},
                           {"max_tokens", 12},
                           {"seed", 5},
                           {"ignore_eos", true}};
    body.update(more);
    return body;
}

Joined joined(const HttpAnswer& answer, int64_t index) {
    Joined all;
    for (const std::string& data : answer.events()) {
        EXPECT_FALSE(all.done) << data;
        if (data == "[DONE]") {
            all.done = true;
            continue;
        }
        const auto event = nlohmann::json::parse(data);
        if (event.contains("usage")) all.usage = event["usage"];
        if (event.contains("head_id")) all.head_id = event["head_id"];
        if (!event.contains("choices")) continue;
        for (const auto& choice : event["choices"]) {
            if (choice["index"] != index) continue;
            if (choice.contains("text")) all.text += choice["text"].get<std::string>();
            if (choice.contains("delta")) all.text += choice["delta"].value("content", "");
            if (!choice["finish_reason"].is_null()) all.reason = choice["finish_reason"];
            if (choice["logprobs"].is_null()) continue;
            const bool is_chat = choice["logprobs"].contains("content");
            for (const auto& one : choice["logprobs"][is_chat ? "content" : "text_offset"])
                all.log_probs.push_back(one);
        }
    }
    return all;
}

HttpScene::HttpScene(HttpSceneConfig config)
    : tokenizer_(config.tokenizer_json.empty() ? *text::load_tokenizer(kSceneModel)
                                               : *text::parse_tokenizer(config.tokenizer_json, "tokenizer.json")),
      hash_(config.executor),
      second_hash_(second_executor(config)),
      saying_(hash_, config.heads ? config.heads->tensors : reference::StateTensors()),
      gate_(saying_),
      store_(config.executor.vocab_size),
      engine_(std::make_unique<Engine>(scene_engine(config), gate_, policy_, store_, recorder_)),
      ledger_(config.ledger ? config.ledger() : nullptr, {.pause_ms = 1, .max_pause_ms = 1}, config.ledger_memory) {
    if (config.has_template) {
        const ScratchFolder folder;
        if (!config.chat_template.empty()) folder.write("chat_template.jinja", config.chat_template);
        auto chat = text::Chat::load(config.chat_template.empty() ? kSceneModel : folder.path().string(), tokenizer_,
                                     {std::string(VERBATIM_SOURCE_DIR) + "/server/text/render_chat.py"},
                                     config.template_limits);
        CHECK(chat.has_value(), "{}", chat.error().message);
        chat_ = *std::move(chat);
    }
    const Status opened = ledger_.open({.tokenizer = "the tests'", .vocab_size = config.executor.vocab_size});
    EXPECT_TRUE(opened) << opened.error().message;
    config.host.ledger = &ledger_;
    config.host.tokenizer = &tokenizer_;
    for (int32_t id = 0; id < config.executor.vocab_size; ++id) logits_.push_back(static_cast<float>(id % 97) / 8);
    const server::HostExecutor executor{&gate_, shown_logits(config.shows_logits)};
    if (config.replaces_executor) {
        config.host.replacement = [this, executor]() -> Result<server::HostExecutor> {
            gate_.use(second_hash_);
            return executor;
        };
    }
    if (!config.grammar_script.empty()) run_grammars(config.grammar_script, config.executor.vocab_size);
    config.host.grammars = grammars_;
    host_ = std::make_unique<EngineHost>(*engine_, executor, config.host);
    service_.grammars = first_masks_ ? &*first_masks_ : nullptr;
    service_.tokenizer = &tokenizer_;
    service_.chat = chat_ ? &*chat_ : nullptr;
    if (chat_ && config.chat_template.empty())
        config.chat_template = text::find_chat_template(kSceneModel)->value().source;
    service_.tool_format = text::tool_format_in(config.chat_template);
    service_.reasoning_format = text::reasoning_format_in(config.chat_template);
    service_.chat_template = config.chat_template;
    if (!config.says.empty()) say(config.says);
    service_.host = host_.get();
    service_.model = std::move(config.names);
    service_.fingerprint = config.fingerprint;
    service_.heads = config.heads;
    service_.max_model_len = config.max_model_len;
    service_.vocab_size = config.executor.vocab_size;
    service_.stop_tokens = {0};
    service_.now = std::move(config.now);
    server::Tenants tenants;
    if (!config.api_keys.empty()) tenants = *server::Tenants::parse(config.api_keys, "keys");
    server_ = std::make_unique<HttpServer>(config.http, tenants, "<!doctype html>");
    const auto port = server_->listen();
    EXPECT_TRUE(port) << port.error().message;
    port_ = port.value_or(0);
    if (config.is_loaded) serve();
    thread_ = std::thread([this, signals = config.signals] { server_->run(signals); });
}

void HttpScene::run_grammars(const std::string& script, int32_t vocab_size) {
    grammar_vocabulary_ = text::grammar_vocabulary(tokenizer_, vocab_size, {0});
    grammars_ = {
        .program = {.script = folder_.write("grammars.py", script)}, .vocabulary = &grammar_vocabulary_, .limits = {}};
    first_masks_.emplace(grammars_);
}

void HttpScene::say(const std::string& text) {
    text::WordCache words;
    std::vector<TokenId> tokens = *tokenizer_.encode(text, {.add_special = false, .parse_special = true}, words);
    tokens.push_back(0);
    saying_.say(std::move(tokens));
}

void HttpScene::serve() { server_->serve(service_); }

std::function<std::span<const float>(SequenceSlot, int32_t)> HttpScene::shown_logits(bool shown) {
    if (!shown) return nullptr;
    return [this](SequenceSlot, int32_t) { return std::span<const float>(logits_); };
}

HttpScene::~HttpScene() {
    gate_.open();
    server_->stop();
    if (thread_.joinable()) thread_.join();
}

void HttpScene::wait_until_served() { thread_.join(); }

void HttpScene::wait_until_gone() {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    bool is_there = true;
    while (is_there && std::chrono::steady_clock::now() < deadline) {
        const HttpClient client(port_, 0, /*may_be_gone=*/true);
        client.send(get("/health"));
        is_there = client.read_answer().status != 0;
    }
    EXPECT_FALSE(is_there);
}

HttpAnswer HttpScene::ask(const std::string& request) const {
    const HttpClient client(port_);
    client.send(request);
    return client.read_answer();
}

HttpAnswer HttpScene::chat(const nlohmann::json& body) const { return ask(post("/v1/chat/completions", body.dump())); }

HttpAnswer HttpScene::complete(const nlohmann::json& body) const { return ask(post("/v1/completions", body.dump())); }

void HttpScene::wait_until_aborts(int64_t count) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(15);
    while (host_->num_aborts() < count && std::chrono::steady_clock::now() < deadline)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(host_->num_aborts(), count);
}

void HttpScene::wait_until_idle() {
    while (host_->num_requests() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace verbatim::tests
