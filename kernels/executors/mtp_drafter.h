// kernels/executors/mtp_drafter.h: drafts with the checkpoint's own multi-token prediction layer
// (reference/model/mtp_layer.h). Owns the numbers of the layer's slots and blocks; all of it is scratch.
//
// The layer's row for position p takes in the model's hidden row there and the token at p + 1, and predicts the token
// at p + 2. The model's executor shows its hidden rows while it computes; they wait here until their next tokens are
// known. A further guess is made from the layer's own row and the guess before it; such rows leave the KV when the next
// window starts, and the model's take their place.
//
// Only positions that were computed here have hidden rows: after an attach the layer has none of the attached ones. An
// ended request's KV is kept while there is room, and a request of the same salt that continues its tokens goes on with
// it; otherwise the layer begins at the attach point and sees nothing before it. Its rows are numbered without gaps.
// While drafts do not pay, rows are not taken in: the newest kKeptUndrafted wait for the next draft, the others are
// dropped, and the layer does without them as without attached ones.
//   M1  rows of the model's positions ascend; each was made from tokens that the request has
//   M2  a request without memory gets no drafts; memory is taken from the slot that was used longest ago
//   M3  what waits is at most kMostWaiting rows and those of one step, for each slot; so is what it takes
//   M4  a guess depends on the tokens of requests of its salt alone, and on none that does without the cache
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "engine/drafting/drafter.h"
#include "engine/drafting/scratch_executor.h"
#include "engine/engine.h"
#include "engine/pool_sizes.h"
#include "engine/step_plan.h"
#include "kernels/pooled_executor.h"
#include "reference/model/weights.h"

namespace verbatim::executors {

struct MtpDrafterConfig {
    PoolSizes pools;  // of the layer: it has no state rows
    int32_t max_num_slots = 1;
    int32_t step_tokens = 512;  // of one step of the layer's executor
};

class MtpDrafter final : public Drafter {
public:
    // Borrows all. `layer` is fresh, and computes model.mtp. REQUIRES: model.mtp.
    MtpDrafter(const MtpDrafterConfig& config, const reference::Model& model, PooledExecutor& layer,
               const Engine& engine);
    ~MtpDrafter() override { listen_to(nullptr); }

    // The executor of the model, which shows its hidden rows from now on; null: none.
    void listen_to(PooledExecutor* executor);

    void step_begins() override;
    void step_begins_undrafted() override;
    void draft(std::span<DraftJob> jobs) override;
    void ended(RequestId request) override;

    // What drafting has cost so far: the layer's steps, and rows of the model that it has taken in.
    [[nodiscard]] int64_t num_steps() const { return scratch_.num_steps(); }
    [[nodiscard]] int64_t num_taken_in() const { return num_taken_in_; }
    // Requests that went on with an ended request's KV.
    [[nodiscard]] int64_t num_continued() const { return num_continued_; }

private:
    static constexpr int64_t kMostWaiting = 64;    // rows, before they are taken in without a draft
    static constexpr int64_t kKeptUndrafted = 16;  // of them, where drafts do not pay

    struct Slot : ScratchSlot {  // without a request: free, or its request has ended
        CacheSalt salt;
        bool uses_cache = true;
        std::vector<TokenId> known;  // of the request: its prompt and output
        int64_t num_prompt = 0;
        std::vector<float> waiting;      // [num_waiting, hidden], of consecutive positions
        int64_t first_waiting = 0;       // position
        std::vector<int64_t> positions;  // of the model's rows that the layer has taken in; guesses come behind them
        std::span<const float> fed;      // [num_new_tokens, hidden]: hidden rows of its share of a step
        std::vector<float> own;          // [hidden]: the layer's last row
        std::vector<TokenId> guesses;
        int64_t num_known = -1;  // when it guessed last
    };
    // What a slot takes in. With a job it guesses then.
    struct Share {
        int32_t slot = 0;
        int64_t num_rows = 0;
        DraftJob* job = nullptr;
        bool goes_on = true;
    };
    void see(const reference::Observation& observation);
    void keep_own_row(const reference::Observation& observation);
    [[nodiscard]] int32_t slot_for(RequestId request, int64_t first_position);
    [[nodiscard]] int32_t continued_slot(const CacheSalt& salt, std::span<const TokenId> prompt,
                                         int64_t first_position) const;
    void go_on(Slot& slot, std::span<const TokenId> prompt, int64_t first_position);
    [[nodiscard]] int32_t free_slot();
    [[nodiscard]] int32_t oldest_slot(bool with_blocks) const;
    [[nodiscard]] int64_t num_waiting(const Slot& slot) const;
    [[nodiscard]] bool learn_tokens(Slot& slot) const;
    void keep_waiting(Slot& slot, int64_t end) const;
    void give_memory_back(std::vector<float>& rows) const;
    void give_up(int32_t slot);
    void free_all();
    [[nodiscard]] bool make_room(int32_t slot, int64_t num_tokens);
    [[nodiscard]] int64_t rows_to_take(Slot& slot, int64_t end) const;
    [[nodiscard]] bool add_room(const Share& share, int64_t num_guessed);
    void drop_taken(Slot& slot, int64_t count);
    [[nodiscard]] bool fall_back(std::span<const Share> shares);
    [[nodiscard]] bool take_in(std::vector<Share>& shares);
    [[nodiscard]] bool take_chunk(std::span<Share> shares);
    [[nodiscard]] bool guess(std::span<Share> shares);
    void take_guesses(std::span<Share* const> drawing);
    [[nodiscard]] TokenId drawn(const Share& share, TokenId greedy);
    ScheduledSequence& plan(int32_t slot, std::span<const TokenId> tokens, std::span<const float> rows);

    MtpDrafterConfig config_;
    const reference::Model& model_;
    PooledExecutor& layer_;
    const Engine& engine_;
    ScratchExecutor scratch_;              // over the layer
    PooledExecutor* computing_ = nullptr;  // the model
    std::vector<float> final_norm_;        // [hidden], factors
    std::map<RequestId, int32_t> slot_of_;
    std::vector<Slot> slots_;
    int64_t round_ = 0;
    int64_t num_taken_in_ = 0;
    int64_t num_continued_ = 0;
};

}  // namespace verbatim::executors
