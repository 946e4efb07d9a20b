// tests/system/system_scene.h: what happens in a simulated world, as text: a failing one becomes a test.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace verbatim::tests {

enum class SystemAct : uint8_t {
    kTurn,       // a client asks for a turn of a conversation
    kRetry,      // sends an earlier request with a turn id again
    kLie,        // asks with a wrong parent head, or another request under a known turn id
    kAnonymous,  // asks outside conversations
    kLeave,      // hangs up during an answer
    kFork,
    kRewind,
    kRemove,
    kLook,        // at a conversation that has nothing under way
    kRun,         // the server's threads go on for some switches
    kSettle,      // they go on until each of them waits
    kFailLedger,  // the store's next calls fail, before or after they have done their work
    kFailStep,    // the executor's next step fails
    kFailFolder,  // the tier's next calls fail
    kStop,        // the server ends as it should, and starts again
    kKill,        // it ends after some more writes, of which the disk may lose what was not synced, and starts again
    // Over HTTP:
    kNonsense,     // a client sends what is no request
    kHalf,         // or a part of one, and hangs up
    kStopReading,  // or reads nothing for some time
    kCount,
};
[[nodiscard]] const char* name(SystemAct act);

struct SystemEvent {
    SystemAct act = SystemAct::kRun;
    uint64_t chance = 0;  // seeds what the act draws
    friend bool operator==(const SystemEvent&, const SystemEvent&) = default;
};

enum class SystemKind : uint8_t {
    kHost,     // clients call the host
    kNumeric,  // and a model computes (system_cast.h)
    kHttp,     // clients call the HTTP server (system_http.h)
};

struct SystemScene {
    uint64_t seed = 0;  // of the configuration, and of the threads' order
    SystemKind kind = SystemKind::kHost;
    std::vector<SystemEvent> events;

    static SystemScene draw(uint64_t seed, int num_events, SystemKind kind = SystemKind::kHost);
    // "17: turn 3fa2 run 1 kill 9"; of other kinds "numeric 17: ...", "http 17: ..."
    [[nodiscard]] std::string text() const;
    static SystemScene parse(const std::string& text);  // throws where it is none
    friend bool operator==(const SystemScene&, const SystemScene&) = default;
};

// A scene that still fails, and does no more when any one event is left out (or after `tries` runs).
[[nodiscard]] SystemScene shrunk(SystemScene scene, const std::function<bool(const SystemScene&)>& fails,
                                 int tries = 2000);

}  // namespace verbatim::tests
