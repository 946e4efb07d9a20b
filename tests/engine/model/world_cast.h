// tests/engine/model/world_cast.h: a random world's configuration, executor and drafter.
//
// The seed determines sizes of the pools, block size, budgets, lag of the executor and its failing steps, one
// arithmetic or two, and the drafter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/prng.h"
#include "engine/drafting/adversary_drafter.h"
#include "engine/drafting/executor_drafter.h"
#include "engine/drafting/ngram_drafter.h"
#include "engine/engine.h"
#include "tests/engine/model/conversation_model.h"
#include "tests/support/hash_executor.h"

namespace verbatim::tests {

enum class WorldDrafter : uint8_t { kNone, kNgram, kAdversary, kExecutor, kDraftPath };

// Samples what another executor samples, and sometimes a different token.
class ErringExecutor final : public WrappingExecutor {
public:
    ErringExecutor(Executor& inner, int32_t vocab_size, uint64_t seed)
        : WrappingExecutor(inner), vocab_size_(vocab_size), prng_(seed) {}
    Status execute(const StepPlan& plan, StepResult& result) override;
    [[nodiscard]] std::string numerics_id() const override { return "erring/1"; }

private:
    int32_t vocab_size_;
    Prng prng_;
};

struct WorldConfig {
    EngineConfig engine;
    HashExecutorConfig executor;
    WorldDrafter drafter = WorldDrafter::kNone;
    static WorldConfig draw(uint64_t seed);
};

// A world's drafters, of which its configuration chooses one.
class WorldDrafters {
public:
    // `executor`, which is borrowed, computes drafts; the adversary knows what comes next.
    WorldDrafters(const WorldConfig& config, const ExecutorDrafterConfig& drafter, Executor& executor,
                  ConversationModel::NextToken next_token, TokenStore& store);
    [[nodiscard]] Drafter* chosen();  // null: none

private:
    [[nodiscard]] TokenId right_token(const DraftJob& job, int64_t ahead) const;

    WorldDrafter choice_;
    ConversationModel::NextToken next_token_;
    NgramDrafter ngram_;
    AdversaryDrafter adversary_;
    ErringExecutor erring_;
    ExecutorDrafter executor_drafter_;
};

// The executors and the drafter: for a world, and again for the rerun of its calls.
class WorldCast {
public:
    WorldCast(const WorldConfig& config, TokenStore& store);
    [[nodiscard]] Drafter* drafter() { return drafters_.chosen(); }  // null: none
    void draft_for(Engine& engine) { engine.draft_with(drafter()); }

    [[nodiscard]] HashExecutor& executor() { return *executors_.back(); }  // the current one
    [[nodiscard]] const HashExecutor& oracle() const { return *executors_.front(); }
    [[nodiscard]] ConversationModel::NextToken next_token() const;
    HashExecutor& fresh_executor();
    [[nodiscard]] int64_t num_computed_tokens() const;  // by all executors so far
    void check() const;                                 // that no executor recorded a violation

private:
    WorldConfig config_;
    std::vector<std::unique_ptr<HashExecutor>> executors_;
    HashExecutor draft_executor_;
    WorldDrafters drafters_;
};

}  // namespace verbatim::tests
