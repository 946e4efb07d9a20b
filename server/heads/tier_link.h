// server/heads/tier_link.h: connects an engine with its tiers: which heads are written, and which are read for a
// request. For the engine's thread.
//
//   L0  with RestorePolicy::kAuto a head is written only if reading it is expected to be quicker than computing it
//   L1  while requests run, copying heads for the tier takes one part in kKeepingShare of the time that steps take; of
//       those that go from host memory to the folder one a step
//   L2  which head is read, and for how long a request waits for it, is decided by HeadWaits
//   L3  with a store in host memory evicted heads go there, and what goes from there for room to the folder; a head
//       that both have is read from host memory. Heads of committed turns go to the folder: they outlive the process
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
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/head_waits.h"
#include "engine/restore_rule.h"
#include "server/heads/head_tier.h"
#include "server/threads.h"

namespace verbatim::server {

using verbatim::RestorePolicy;

// Imports what a file holds into the conversation's heads. Errors: Engine::import_head's. REQUIRES: the file is
// checked.
Result<HeadId> import_file(const reference::HeadFile& file, const ConversationKey& key, Engine& engine);

class TierLink final : private HeadSource {
public:
    static constexpr int64_t kKeepingShare = 33;
    static constexpr int64_t kMaxSpillingBytes = int64_t{256} << 20;  // or one head, from host memory to the folder

    // Where heads are kept: at least one of them.
    struct Stores {
        HeadTier* host = nullptr;
        HeadTier* folder = nullptr;
    };
    // Borrows all; the engine tells it of evicted heads, and asks it for others, until the end. `wake` is called on a
    // tier's thread when a head has come.
    TierLink(Engine& engine, Stores stores, RestorePolicy policy, std::function<void()> wake = {});
    TierLink(Engine& engine, HeadTier& folder, RestorePolicy policy, std::function<void()> wake = {})
        : TierLink(engine, Stores{.folder = &folder}, policy, std::move(wake)) {}
    TierLink(const TierLink&) = delete;
    TierLink& operator=(const TierLink&) = delete;
    ~TierLink() override;

    // A step took so long.
    void note_step(const StepPlan& plan, int64_t took_ns);
    // The head to read for a request before it is submitted; none: it is submitted as it is. Notes in the request what
    // computing is expected to be quicker for.
    [[nodiscard]] std::optional<FoundHead> worth_restoring(ChatRequest& request, const TokenSeq& prompt);
    // HeadTier::load of its tier.
    void load(const FoundHead& found, std::function<void(HeadTier::FilePtr)> loaded,
              const HeadTier::ReadingPtr& reading);
    // Whether waiting for the head has taken longer than computing what it saves, or than any read may.
    [[nodiscard]] bool has_lost(const FoundHead& found, std::chrono::steady_clock::time_point since) const;
    // What was read for the request, unless memory has come to have it meanwhile. If there is no room for it, the
    // request computes.
    void import(const reference::HeadFile& file, const FoundHead& found, const ConversationKey& key,
                const TokenSeq& prompt);
    void note_not_worth() override { stores_.front()->note_not_worth(); }

    // Between steps: imports the heads that have come for requests that are about to attach, and lets those go on that
    // none comes for.
    void bring();
    // Whether bring() has something to do.
    [[nodiscard]] bool has_arrived() const;
    // Until every head that a request waits for is read.
    void wait_for_heads();
    // Until every file is written; what waits to go from host memory to the folder is not yet.
    void wait_until_written();

    // The conversation of these committed tokens was deleted (HeadTier T7).
    void forget(const ConversationKey& key, const TokenSeq& committed);
    // A conversation of these committed tokens was made from another one: heads belong to both.
    void note_forked(const ConversationKey& from, const ConversationKey& to, const TokenSeq& committed);

    // A turn was committed: its heads are to be written.
    void note_committed(const ConversationKey& key);
    [[nodiscard]] bool has_committed() const { return !committed_.empty(); }
    // Writes one of them, if L1 allows it.
    void keep_next();
    // Writes all of them, and what is on its way to the folder. The last call.
    void keep_all();

private:
    // What is read for a request that waits.
    struct Read {
        HeadTier::FilePtr file = nullptr;
        HeadTier::ReadingPtr reading = nullptr;
    };
    // A head on its way from host memory to the folder.
    struct Spill {
        CacheSalt salt;
        TokenSeq tokens;
        std::vector<std::string> owners;
        int64_t bytes = 0;
    };
    // What the tiers' threads have read.
    struct Inbox {
        Mutex mutex;
        Signal changed;
        std::vector<std::pair<RequestId, HeadTier::FilePtr>> files;
        std::deque<std::pair<HeadId, HeadTier::FilePtr>> spilled;
        int32_t num_reads = 0;  // that are not in `files`
    };
    [[nodiscard]] std::vector<FoundHead> find(const CacheSalt& salt, const TokenSeq& tokens,
                                              int64_t max_length) override;
    [[nodiscard]] int64_t expected_read_ns(const FoundHead& found) const override;
    void begin_read(RequestId request, const FoundHead& found) override;
    [[nodiscard]] bool import(RequestId request, const FoundHead& found) override;
    void let_go(RequestId request) override { reads_.erase(request); }
    void note_no_room() override { stores_.front()->note_no_room(); }

    [[nodiscard]] HeadTier& store_of(const FoundHead& found) const { return *stores_.at(found.tier); }
    bool import(const reference::HeadFile& file, const FoundHead& found, const ConversationKey& key);
    void take_in_files();
    void spill_to(HeadTier& folder);
    bool take_in_spill();
    void put_in_folder(const Spill& head, const reference::HeadFile& file);
    [[nodiscard]] bool pays(const Head& head, const HeadTier& store) const;
    void keep(const Head& head, HeadTier& store);
    void keep_first();

    Engine& engine_;
    std::vector<HeadTier*> stores_;  // the first one that has a head gives it
    HeadTier* host_ = nullptr;       // null: none
    HeadTier* folder_ = nullptr;     // the same
    HeadWaits waits_;
    std::function<void()> wake_;
    std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
    std::map<RequestId, Read> reads_;
    std::map<HeadId, Spill> spills_;  // by id of the host memory's head
    int64_t spilling_bytes_ = 0;
    std::deque<HeadId> committed_;  // that may not be in the folder yet, oldest first
    int64_t keeping_ns_ = 0;        // spent on copying heads
    int64_t stepping_ns_ = 0;       // spent on steps
};

}  // namespace verbatim::server
