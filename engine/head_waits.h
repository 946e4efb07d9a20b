// engine/head_waits.h: owns the requests that wait for heads from outside of memory (D7): which head each of them waits
// for, and for how long. A server and its simulation decide by it.
//
//   R1  a head is read only if memory has less of the prompt, and RestoreRule expects that to be quicker than computing
//       what it saves
//   R2  the tiers are asked when a request comes, and again when it is about to attach (Engine::on_attach): what memory
//       had may have been evicted meanwhile. A head comes in when there is room for it with what runs
//   R3  a request waits for at most kMaxReads heads, and with kAuto no longer than computing would take; for reading,
//       no longer than RestoreRule::kLateTimes says: none waits for ever, nor a second time for a head that has lost
//   R4  what was tried is remembered of requests that are not over, and of at most kMaxOver others
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/restore_rule.h"

namespace verbatim {

// A head of a tier.
struct FoundHead {
    HeadId id = kNoHead;      // of the tier
    int64_t length = 0;       // tokens
    int64_t first_token = 0;  // memory has the KV of those before
    int64_t num_saved = 0;    // tokens that are not computed then
    int64_t read_ns = 0;      // that reading it was expected to take when it was chosen
    int32_t tier = 0;         // 0: the first one
};

// The tiers behind an engine's memory.
class HeadSource {
public:
    virtual ~HeadSource() = default;
    // Of each tier the longest head with at most `max_length` tokens, all of them the first ones of `tokens`.
    [[nodiscard]] virtual std::vector<FoundHead> find(const CacheSalt& salt, const TokenSeq& tokens,
                                                      int64_t max_length) = 0;
    // From now on, if it is read from first_token on.
    [[nodiscard]] virtual int64_t expected_read_ns(const FoundHead& found) const = 0;
    // Begins to read the head for the request; HeadWaits::note_read() follows.
    virtual void begin_read(RequestId request, const FoundHead& found) = 0;
    // The engine is to import what was read. False: there is no room.
    [[nodiscard]] virtual bool import(RequestId request, const FoundHead& found) = 0;
    // What is read, or was read, for the request is not wanted any more.
    virtual void let_go(RequestId request) = 0;
    // A head was there, and computing was expected to be quicker; was read, and what ran left no room.
    virtual void note_not_worth() = 0;
    virtual void note_no_room() = 0;
};

// Which of the heads that tiers have is read for a prompt of which memory has `num_held` tokens.
struct HeadChoice {
    std::optional<FoundHead> found;
    int64_t num_unrestored = 0;  // tokens of the longest one, if none is worth it (ChatRequest::num_unrestored)
};
// The longest one that is worth it; of equal ones that of the first tier. Its num_saved and read_ns are set. `read_ns`
// may complete a head whose price it tells.
[[nodiscard]] HeadChoice choose_head(const RestoreRule& rule, std::vector<FoundHead> heads, int64_t num_held,
                                     const std::function<int64_t(FoundHead&)>& read_ns);

class HeadWaits {
public:
    static constexpr int32_t kMaxReads = 16;  // for one request
    static constexpr size_t kMaxAwaited = 4;  // heads that are read or wait for room at the same time
    static constexpr size_t kMaxOver = 256;

    // Borrows both; the engine asks it until the end. `now_ns` is a clock that never goes back.
    HeadWaits(Engine& engine, HeadSource& tiers, RestorePolicy policy, std::function<int64_t()> now_ns);
    HeadWaits(const HeadWaits&) = delete;
    HeadWaits& operator=(const HeadWaits&) = delete;
    ~HeadWaits() { engine_.on_attach(nullptr); }

    void note_step(const RestoreRule::StepTokens& tokens, int64_t took_ns) { rule_.note_step(tokens, took_ns); }
    [[nodiscard]] const RestoreRule& rule() const { return rule_; }
    // Tokens of the prompt that memory has.
    [[nodiscard]] int64_t num_held(const ConversationKey& key, const TokenSeq& prompt) const;
    // The head to read for a request before it is submitted; none: it is submitted as it is. Notes in the request what
    // computing is expected to be quicker for.
    [[nodiscard]] std::optional<FoundHead> worth_restoring(ChatRequest& request, const TokenSeq& prompt);
    // Whether waiting so long for the head is longer than computing what it saves takes, or than any read may take.
    [[nodiscard]] bool has_lost(const FoundHead& found, int64_t waited_ns) const;

    // The head that the request waits for is read. `is_whole` false: it was gone, damaged, or could not be read.
    void note_read(RequestId request, bool is_whole);
    // Requests whose tries are remembered (R4).
    [[nodiscard]] size_t num_remembered() const { return tries_.size(); }
    // Between steps: imports the heads that have come for requests that are about to attach, and lets those go on that
    // none comes for.
    void bring();

private:
    // A head that a request waits for.
    struct Awaited {
        FoundHead found;
        int64_t since_ns = 0;
        bool is_here = false;
        bool is_whole = false;
    };
    // Of a request that is not over.
    struct Tries {
        int32_t num_reads = 0;
        int64_t num_unrestored = 0;  // was counted as not worth it
        FoundHead failed;            // did not come; kNoHead: none
    };
    [[nodiscard]] int64_t num_resident(const CacheSalt& salt, const TokenSeq& head) const;
    [[nodiscard]] HeadChoice longer_head(const CacheSalt& salt, const TokenSeq& tokens, int64_t num_held);
    bool ask(const Sequence& sequence, int64_t length);
    void read(RequestId request, Awaited& awaited);
    // False: it waits on.
    bool settle(RequestId request, Awaited& awaited);
    bool give_up(Tries& tries);
    void forget_tries();

    Engine& engine_;
    HeadSource& tiers_;
    RestoreRule rule_;
    std::function<int64_t()> now_ns_;
    std::map<RequestId, Awaited> awaited_;
    std::unordered_map<RequestId, Tries> tries_;
};

}  // namespace verbatim
