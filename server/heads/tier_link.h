// server/heads/tier_link.h: connects an engine with its tier: which heads are written, and which are read for a
// request. For the engine's thread.
//
//   L0  with RestorePolicy::kAuto a head is written only if reading it is expected to be quicker than computing it
//   L1  while requests run, copying heads for the tier takes one part in kKeepingShare of the time that steps take
//   L2  a head is read only if memory has less of the prompt, and, with RestorePolicy::kAuto, if reading it is expected
//       to be quicker than computing what it saves
//   L3  the tier is asked when a request comes, and again when it is about to attach (Engine::on_attach): what memory
//       had may have been evicted meanwhile. A head comes in when there is room for it with what runs
//   L4  a request waits for at most kMaxReads heads, and with kAuto no longer than computing would take; for reading,
//       no longer than RestoreRule::kLateTimes says: none waits for ever, nor a second time for a head that has lost
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/restore_rule.h"
#include "server/heads/head_tier.h"
#include "server/threads.h"

namespace verbatim::server {

using verbatim::RestorePolicy;

// Imports what a file holds into the conversation's heads. Errors: Engine::import_head's. REQUIRES: the file is
// checked.
Result<HeadId> import_file(const reference::HeadFile& file, const ConversationKey& key, Engine& engine);

class TierLink {
public:
    static constexpr int64_t kKeepingShare = 33;
    static constexpr int32_t kMaxReads = 16;  // for one request
    static constexpr size_t kMaxAwaited = 4;  // heads that are read or wait for room at the same time

    // Borrows both; the engine tells it of evicted heads, and asks it for others, until the end. `wake` is called on
    // the tier's thread when a head has come.
    TierLink(Engine& engine, HeadTier& tier, RestorePolicy policy, std::function<void()> wake = {});
    TierLink(const TierLink&) = delete;
    TierLink& operator=(const TierLink&) = delete;
    ~TierLink();

    [[nodiscard]] HeadTier& tier() { return tier_; }
    // A step took so long.
    void note_step(const StepPlan& plan, int64_t took_ns);
    // The head to read for a request before it is submitted; none: it is submitted as it is. Notes in the request what
    // computing is expected to be quicker for.
    [[nodiscard]] std::optional<HeadTier::Found> worth_restoring(ChatRequest& request);
    // Whether waiting for the head has taken longer than computing what it saves, or than any read may.
    [[nodiscard]] bool has_lost(const HeadTier::Found& found, std::chrono::steady_clock::time_point since) const;
    // What was read for the request, unless memory has come to have it meanwhile. If there is no room for it, the
    // request computes.
    void import(const reference::HeadFile& file, const HeadTier::Found& found, const ChatRequest& request);

    // Between steps: imports the heads that have come for requests that are about to attach, and lets those go on that
    // none comes for.
    void bring();
    // Whether bring() has something to do.
    [[nodiscard]] bool has_arrived() const;
    // Until every head that a request waits for is read.
    void wait_for_heads();

    // A conversation of these committed tokens was deleted: no head of its beginnings is found; the files go. Those
    // of other conversations that begin in them go, too.
    void forget(const CacheSalt& salt, const TokenSeq& committed);

    // A turn was committed: its heads are to be written.
    void note_committed(const ConversationKey& key);
    [[nodiscard]] bool has_committed() const { return !committed_.empty(); }
    // Writes one of them, if L1 allows it.
    void keep_next();
    // Writes all of them. The last call.
    void keep_all();

private:
    // A head that a request waits for.
    struct Awaited {
        HeadTier::Found found;
        std::chrono::steady_clock::time_point since;
        bool is_here = false;
        HeadTier::FilePtr file = nullptr;  // null: it was gone, damaged, or could not be read
        HeadTier::ReadingPtr reading = nullptr;
    };
    // What the tier's thread has read.
    struct Inbox {
        Mutex mutex;
        Signal changed;
        std::vector<std::pair<RequestId, HeadTier::FilePtr>> files;
        int32_t num_reads = 0;  // that are not in `files`
    };
    // Of a request that is not over.
    struct Tries {
        int32_t num_reads = 0;
        int64_t num_unrestored = 0;  // was counted as not worth it
        HeadId failed = kNoHead;     // of the tier: did not come
    };
    [[nodiscard]] const std::string& numerics() const { return engine_.scheduler().numerics_ids().front(); }
    // Tokens of the prompt that memory has.
    [[nodiscard]] int64_t num_held(const ConversationKey& key, const TokenSeq& prompt) const;
    [[nodiscard]] int64_t num_resident(const CacheSalt& salt, const TokenSeq& head) const;
    struct Worth {
        std::optional<HeadTier::Found> found;
        int64_t num_unrestored = 0;
    };
    [[nodiscard]] Worth longer_head(const CacheSalt& salt, const TokenSeq& tokens, int64_t num_held);
    bool ask(const Sequence& sequence, int64_t length);
    void load(RequestId request, Awaited& awaited);
    void take_in_files();
    // False: it waits on.
    bool settle(RequestId request, Awaited& awaited);
    bool give_up(Tries& tries);
    bool import(const reference::HeadFile& file, const HeadTier::Found& found, const ConversationKey& key,
                const TokenSeq& prompt);
    void forget_tries();
    void keep(const Head& head);
    void keep_first();

    Engine& engine_;
    HeadTier& tier_;
    RestoreRule rule_;
    std::function<void()> wake_;
    std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
    std::map<RequestId, Awaited> awaited_;
    std::unordered_map<RequestId, Tries> tries_;
    std::deque<HeadId> committed_;  // that may not be in the tier yet, oldest first
    int64_t keeping_ns_ = 0;        // spent on copying heads
    int64_t stepping_ns_ = 0;       // spent on steps
};

}  // namespace verbatim::server
