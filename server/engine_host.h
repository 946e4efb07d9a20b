// server/engine_host.h: owns the thread that an engine runs on, and the bounded way in and out of it.
//
//   O1  the engine is called on its own thread only, and never waits for a client
//   O2  at most max_requests requests are in at a time; another one is refused at once
//   O3  every request that was taken in gets one last update, whatever becomes of it
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine/engine.h"

namespace verbatim::server {

// A request in token ids, before the engine's thread makes sequences of them.
struct HostRequest {
    std::optional<std::string> conversation_id;  // none: it is forgotten when it ends
    CacheSalt salt;
    std::vector<TokenId> prompt;  // the whole conversation
    int64_t max_tokens = 0;
    SamplingParams sampling;
    std::optional<uint64_t> seed;
    std::vector<TokenId> stop_tokens;
    bool use_cache = true;
};

// What becomes of a request: taken in, a token, the end. A refusal or a failure of the executor is an end too.
struct HostUpdate {
    enum class Kind : uint8_t { kAccepted, kToken, kFinished, kRefused, kFailed };
    Kind kind = Kind::kAccepted;
    TokenId token = 0;               // kToken
    std::optional<EngineEvent> end;  // kFinished
    std::optional<Refusal> refusal;  // kRefused
    std::string failure;             // kFailed
};

enum class Ticket : int64_t {};

class EngineHost {
public:
    // Called on the engine's thread: hands the update on and returns.
    using Sink = std::function<void(HostUpdate)>;

    // Borrows the engine, and calls it until the destructor has returned.
    EngineHost(Engine& engine, size_t max_requests);
    EngineHost(const EngineHost&) = delete;
    EngineHost& operator=(const EngineHost&) = delete;
    ~EngineHost();  // aborts what runs

    // From any thread. Empty when there is no room, or when the executor has failed.
    std::optional<Ticket> submit(HostRequest request, Sink sink);
    // Ends the turn without a commit; its last update comes still. Nothing happens when it is over.
    void abort(Ticket ticket);

    [[nodiscard]] size_t num_requests() const;
    [[nodiscard]] int64_t num_aborts() const;  // calls of abort() so far
    // Empty while the engine works; what the executor said when it failed.
    [[nodiscard]] std::string failure() const;

private:
    struct Command {
        Ticket ticket{};
        std::optional<HostRequest> request;  // none: abort
        Sink sink;
    };
    struct Live {
        Ticket ticket{};
        Sink sink;
        std::optional<ConversationKey> forget;  // a conversation that nobody will ask for
    };

    void run();
    void carry_out(Command command);
    void submit_now(Command command);
    void deliver();
    void finish(const EngineEvent& event);
    void fail(const std::string& why);
    void end_one();

    Engine& engine_;
    const size_t max_requests_;

    mutable std::mutex mutex_;  // of these
    std::condition_variable changed_;
    std::vector<Command> commands_;
    size_t num_requests_ = 0;
    int64_t num_aborts_ = 0;
    int64_t next_ticket_ = 0;
    bool stopping_ = false;
    std::string failure_;

    // Of the engine's thread.
    std::unordered_map<RequestId, Live> live_;
    std::unordered_map<Ticket, RequestId> requests_;

    std::thread thread_;
};

}  // namespace verbatim::server
