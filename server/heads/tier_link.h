// server/heads/tier_link.h: connects an engine with its tier: which heads are written, and which are read for a
// request. For the engine's thread.
//
//   L1  while requests run, copying heads for the tier takes one part in kKeepingShare of the time that steps take
//   L2  a head is read only if memory has less of the prompt, and, with RestorePolicy::kAuto, if reading it is expected
//       to be quicker than computing what it saves
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "engine/engine.h"
#include "engine/restore_rule.h"
#include "server/heads/head_tier.h"

namespace verbatim::server {

using verbatim::RestorePolicy;

// Imports what a file holds into the conversation's heads. Errors: Engine::import_head's. REQUIRES: the file is
// checked.
Result<HeadId> import_file(const reference::HeadFile& file, const ConversationKey& key, Engine& engine);

class TierLink {
public:
    static constexpr int64_t kKeepingShare = 33;

    // Borrows both; the engine tells it of evicted heads until the end.
    TierLink(Engine& engine, HeadTier& tier, RestorePolicy policy);
    TierLink(const TierLink&) = delete;
    TierLink& operator=(const TierLink&) = delete;
    ~TierLink() { engine_.on_evict(nullptr); }

    [[nodiscard]] HeadTier& tier() { return tier_; }
    // A step took so long.
    void note_step(const StepPlan& plan, int64_t took_ns);
    // The head to read for a request; none: it is submitted as it is. `numerics`: of deterministic requests. Notes in
    // the request what computing is expected to be quicker for.
    [[nodiscard]] std::optional<HeadTier::Found> worth_restoring(ChatRequest& request, const std::string& numerics);
    // What was read for the request, unless memory has come to have it meanwhile. If there is no room for it, the
    // request computes.
    void import(const reference::HeadFile& file, const HeadTier::Found& found, const ChatRequest& request,
                const std::string& numerics);
    // A turn was committed: its heads are to be written.
    void note_committed(const ConversationKey& key);
    [[nodiscard]] bool has_committed() const { return !committed_.empty(); }
    // Writes one of them, if L1 allows it.
    void keep_next();
    // Writes all of them. The last call.
    void keep_all();

private:
    // Tokens of the prompt that memory has.
    [[nodiscard]] int64_t num_held(const ChatRequest& request, const TokenSeq& prompt,
                                   const std::string& numerics) const;
    void keep(const Head& head);
    void keep_first();

    Engine& engine_;
    HeadTier& tier_;
    RestoreRule rule_;
    std::deque<HeadId> committed_;  // that may not be in the tier yet, oldest first
    int64_t keeping_ns_ = 0;        // spent on copying heads
    int64_t stepping_ns_ = 0;       // spent on steps
};

}  // namespace verbatim::server
