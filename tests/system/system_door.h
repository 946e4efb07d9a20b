// tests/system/system_door.h: how the clients of a simulated world reach its server: calls of its host, or HTTP
// (system_http.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>

#include "engine/base/prng.h"
#include "server/engine_host.h"

namespace verbatim::tests {

// What a client reads as the problem of a request or a call whose connection ended before the answer: what became of it
// is not known.
inline constexpr const char* kConnectionLost = "the client has lost its connection";

// Of one process.
class SystemDoor {
public:
    using Sink = server::EngineHost::Sink;
    using Done = std::function<void(server::ConversationReply)>;

    virtual ~SystemDoor() = default;
    // `num_known`: of the prompt's first tokens, which are the conversation, if the client says so; else 0.
    virtual void submit(int64_t number, const server::HostRequest& request, int64_t num_known, Sink sink) = 0;
    // The client hangs up. Some ends of its request still come.
    virtual void leave(int64_t number) = 0;
    virtual void ask(const server::ConversationCall& call, Done done) = 0;

    // Sockets, where there are some: a few move on; all move on, until none can without the server's threads (false:
    // none could); the server's end, after which every client has its end.
    virtual void go_on(Prng&) {}
    virtual bool go_on_as_far_as_possible() { return false; }
    virtual void settled() {}  // nothing of the server runs any more
    virtual void close() {}
};

class HostDoor final : public SystemDoor {
public:
    explicit HostDoor(server::EngineHost& host) : host_(host) {}
    void submit(int64_t number, const server::HostRequest& request, int64_t num_known, Sink sink) override;
    void leave(int64_t number) override;
    void ask(const server::ConversationCall& call, Done done) override;

private:
    server::EngineHost& host_;
    std::map<int64_t, server::Ticket> tickets_;
};

}  // namespace verbatim::tests
