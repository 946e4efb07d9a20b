// tests/server/http/http_scene.h: a server on a free port whose engine computes nothing, and clients with plain
// sockets.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/executor.h"
#include "reference/model/state_tensors.h"
#include "server/engine_host.h"
#include "server/http/http_server.h"
#include "server/http/service.h"
#include "server/ledger/conversation_ledger.h"
#include "server/ledger/ledger_store.h"
#include "server/text/chat.h"
#include "server/text/tokenizer.h"
#include "tests/support/hash_executor.h"
#include "tests/support/null_executor.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {

using server::EngineHost;
using server::EngineHostConfig;
using server::HttpConfig;
using server::HttpServer;

// Another executor's steps, each gated by the test.
class GatedExecutor final : public WrappingExecutor {
public:
    explicit GatedExecutor(Executor& inner) : WrappingExecutor(inner), working_(&inner) {}
    Status execute(const StepPlan& plan, StepResult& result) override;
    [[nodiscard]] bool complete_masks_with(std::function<void()> complete) override {
        complete_masks_ = std::move(complete);
        return working_->complete_masks_with(complete_masks_);
    }
    void close() { let_through(0); }
    void open() { let_through(kAll); }
    void let_through(int64_t steps);  // and no more
    void wait_until_closed();         // a step is blocked at the gate
    void use(Executor& executor) {    // of the same arithmetic
        working_ = &executor;
        (void)working_->complete_masks_with(complete_masks_);
    }

private:
    Executor* working_;
    std::function<void()> complete_masks_;
    std::mutex mutex_;
    std::condition_variable changed_;
    static constexpr int64_t kAll = int64_t{1} << 60;
    int64_t num_left_ = kAll;
    bool is_waiting_ = false;
};

struct HttpAnswer {
    int status = 0;
    std::string head;
    std::string body;  // chunks joined
    [[nodiscard]] nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
    // The data of every event, in order.
    [[nodiscard]] std::vector<std::string> events() const;
};

// A connection to the server's port.
class HttpClient {
public:
    // `receive_bytes`: of the socket's buffer; 0: the system's. From a server that may be gone reads return nothing.
    explicit HttpClient(uint16_t port, int receive_bytes = 0, bool may_be_gone = false);
    HttpClient(const HttpClient&) = delete;
    HttpClient& operator=(const HttpClient&) = delete;
    ~HttpClient();
    void send(const std::string& bytes) const;
    [[nodiscard]] std::string read_until(const std::string& mark) const;  // or the end
    [[nodiscard]] HttpAnswer read_answer() const;                         // up to the connection's end
    void hang_up();
    [[nodiscard]] int socket() const { return socket_; }

private:
    int socket_;
};

std::string post(const std::string& path, const std::string& body,
                 const std::string& headers = "Connection: close\r\n");

std::string get(const std::string& path, const std::string& headers = "");  // and the connection ends

// A chat of 12 tokens, sampled with one seed.
nlohmann::json hello(const nlohmann::json& more = nlohmann::json::object());

// The text of a stream, its last finish_reason and usage, and all log probabilities; of one choice.
struct Joined {
    std::string text;
    nlohmann::json reason;
    nlohmann::json usage;
    nlohmann::json head_id;
    nlohmann::json log_probs = nlohmann::json::array();
    bool done = false;
};
Joined joined(const HttpAnswer& answer, int64_t choice = 0);

struct HttpSceneConfig {
    HashExecutorConfig executor = {
        .vocab_size = 2048, .pools = {.num_blocks = 4096, .num_state_rows = 256}, .takes_late_masks = true};
    EngineHostConfig host = {.max_requests = 64};
    int32_t max_window = 1;           // of the host's drafter
    bool replaces_executor = false;   // after a failure, by a second one
    int64_t second_fails_at = -1;     // step of the second one
    bool second_draws_other = false;  // other tokens than the first one
    bool shows_logits = false;        // artificial: the same row for every slot
    bool is_loaded = true;            // serve() is called
    std::string api_keys;             // of the file; empty: none
    std::string tokenizer_json;       // empty: the model's
    int64_t max_model_len = 4096;
    bool has_template = true;   // needs a process at start
    std::string chat_template;  // empty: the model's
    std::string says;           // not empty: every answer is this text, and the end token behind it
    text::TemplateLimits template_limits;
    std::string grammar_script;  // in the place of run_grammars.py; empty: no grammar can be run
    bool has_checkpoints = true;
    LookupMode lookup = LookupMode::kPrefix;                       // the default of `serve`
    std::function<std::unique_ptr<server::LedgerStore>()> ledger;  // null: in memory
    server::LedgerMemory ledger_memory;
    std::function<int64_t()> now = [] { return int64_t{1'000'000'000}; };
    std::string fingerprint = "hash/1";
    std::optional<server::HeadIdentity> heads;  // given out and taken in
    server::ModelNames names = {{"tiny-python"}};
    HttpConfig http = {.port = 0};
    bool signals = false;
};

// Another executor's steps, where every answer is the same text (or up to it, where the request is shorter).
class SayingExecutor final : public WrappingExecutor {
public:
    // `tensors`: of the inner executor's heads, which get digests as in files; empty: they keep the inner one's.
    SayingExecutor(Executor& inner, reference::StateTensors tensors)
        : WrappingExecutor(inner), tensors_(std::move(tensors)) {}
    Status execute(const StepPlan& plan, StepResult& result) override;
    std::optional<Digest> head_digest(const HeadImage& image) override;
    [[nodiscard]] bool complete_masks_with(std::function<void()> complete) override {
        return inner().complete_masks_with(std::move(complete));
    }
    void say(std::vector<TokenId> tokens);  // from the next answer on; empty: the inner executor's tokens

private:
    const reference::StateTensors tensors_;
    std::mutex mutex_;
    std::vector<TokenId> tokens_;
    std::map<SequenceSlot, size_t> num_said_;
};

class HttpScene {
public:
    explicit HttpScene(HttpSceneConfig config = {});
    HttpScene(const HttpScene&) = delete;
    HttpScene& operator=(const HttpScene&) = delete;
    ~HttpScene();

    [[nodiscard]] uint16_t port() const { return port_; }
    [[nodiscard]] GatedExecutor& gate() { return gate_; }
    [[nodiscard]] EngineHost& host() { return *host_; }
    // The service of the endpoints, for calls without sockets: on one thread, while no request is on a socket.
    [[nodiscard]] const server::Service& service() const { return service_; }
    [[nodiscard]] HttpAnswer complete(const nlohmann::json& body) const;
    // REQUIRES: nothing is running.
    [[nodiscard]] const Engine& engine() const { return *engine_; }
    [[nodiscard]] HttpAnswer ask(const std::string& request) const;
    [[nodiscard]] HttpAnswer chat(const nlohmann::json& body) const;
    void wait_until_idle();  // every request has got its last update
    // Fails the test on a timeout that no slow machine reaches.
    void wait_until_aborts(int64_t count);
    [[nodiscard]] int64_t num_computed_tokens() const { return hash_.num_computed_tokens(); }
    void wait_until_served();  // run() has ended
    void wait_until_gone();    // the same; fails the test on a timeout that no slow machine reaches
    void serve();              // as if the model were loaded now
    // From now on every answer is this text, and the end token behind it. Spelled special tokens are special.
    // REQUIRES: nothing is running.
    void say(const std::string& text);
    // The logits of every slot.
    [[nodiscard]] const std::vector<float>& logits() const { return logits_; }

private:
    void run_grammars(const std::string& script, int32_t vocab_size);
    std::function<std::span<const float>(SequenceSlot, int32_t)> shown_logits(bool shown);

    text::Tokenizer tokenizer_;
    std::optional<text::Chat> chat_;
    HashExecutor hash_;
    HashExecutor second_hash_;  // replaces the first one
    std::vector<float> logits_;
    SayingExecutor saying_;
    GatedExecutor gate_;
    TokenStore store_;
    LruEviction policy_;
    NullRecorder recorder_;
    std::unique_ptr<Engine> engine_;
    server::ConversationLedger ledger_;
    ScratchFolder folder_;
    text::GrammarVocabulary grammar_vocabulary_;
    text::GrammarRunner grammars_;
    std::optional<text::GrammarProcess> first_masks_;
    std::unique_ptr<EngineHost> host_;
    server::Service service_;
    std::unique_ptr<HttpServer> server_;
    uint16_t port_ = 0;
    std::thread thread_;
};

}  // namespace verbatim::tests
