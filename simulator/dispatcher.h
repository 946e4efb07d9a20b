// simulator/dispatcher.h: the interface by which a driver of several engines learns where requests go, and by which
// engines come and go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "engine/tokens/token_seq.h"
#include "traces/trace.h"

namespace verbatim {

// An engine's number in its driver, in the order in which engines were added.
using EngineNumber = size_t;

// Calls come in the order of virtual time. Engines apply a step when it begins, and the driver delivers its results
// when it ends: what a dispatcher reads of an engine during a step is the engine's state at that step's end.
class Dispatcher {
public:
    virtual ~Dispatcher() = default;

    // The engine that gets the row, which is due now. `prompt`: null where reads_prompts() is false, and for rows that
    // take from a row that was not sent yet. Called once per row.
    [[nodiscard]] virtual EngineNumber choose(traces::RowIndex row, const TokenSeq* prompt, int64_t now_ns) = 0;
    [[nodiscard]] virtual bool reads_prompts() const { return false; }
    // The row's first token has been delivered.
    virtual void first_token(traces::RowIndex /*row*/) {}
    // The row is over.
    virtual void over(traces::RowIndex /*row*/, int64_t /*now_ns*/) {}

    // Engines that compute prompts, whose answers another engine generates.
    [[nodiscard]] virtual bool computes_prompts(EngineNumber /*engine*/) const { return false; }
    struct Move {
        EngineNumber to = 0;
        int64_t ready_ns = 0;  // when the prompt's head is there; at least now
    };
    // `from` has computed the row's prompt. REQUIRES: computes_prompts(from).
    [[nodiscard]] virtual Move move(traces::RowIndex /*row*/, EngineNumber /*from*/, int64_t now_ns) {
        return {0, now_ns};
    }

    // When at_event() is to be called next; the largest value: never.
    [[nodiscard]] virtual int64_t next_event_ns() const { return std::numeric_limits<int64_t>::max(); }
    // May add engines to the driver and take idle ones from it.
    virtual void at_event(int64_t /*now_ns*/) {}
};

}  // namespace verbatim
