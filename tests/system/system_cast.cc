#include "tests/system/system_cast.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_executor.h"
#include "reference/model/random_model.h"
#include "reference/ops/sampling.h"
#include "reference/reference_model.h"
#include "tests/reference/families.h"
#include "tests/server/heads/failing_folder.h"
#include "tests/support/delayed_executor.h"
#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

constexpr uint64_t kNumModels = 40;  // all are kept: drawing one takes longer than a turn

// A family's model with KV, states or both, as the world has them.
const reference::Model& model_for(const CacheConfig& cache, uint64_t seed) {
    static std::map<std::pair<std::string, uint64_t>, reference::Model> models;
    Family family{cache.has_kv ? reference::Architecture::kLlama : reference::Architecture::kMamba2};
    if (cache.has_kv && cache.has_state) {
        std::vector<Family> hybrids;
        std::ranges::copy_if(kAllFamilies, std::back_inserter(hybrids), [](const Family& one) {
            return one.architecture != reference::Architecture::kLlama &&
                   one.architecture != reference::Architecture::kMamba2;
        });
        family = hybrids[seed % hybrids.size()];
    }
    // A small hybrid may have layers of one kind only: then the next one is taken.
    for (uint64_t number = seed % kNumModels;; ++number) {
        const std::pair name{family.name(), number};
        auto model = models.find(name);
        if (model == models.end())
            model = models.emplace(name, reference::make_random_model(family.draw(number), number)).first;
        const auto geometry = reference::geometry(model->second.config);
        const bool fits =
            (geometry.kv_bytes_per_token > 0) == cache.has_kv && (geometry.state_bytes_per_row > 0) == cache.has_state;
        if (fits) return model->second;
    }
}

class HashCast final : public SystemCast {
public:
    HashCast(const SystemConfig& config, TokenStore& store) : cast_(config.world, store) {}
    Executor& executor() override { return cast_.executor(); }
    Executor& fresh_executor() override { return cast_.fresh_executor(); }
    Drafter* drafter() override { return cast_.drafter(); }
    [[nodiscard]] const reference::StateTensors& tensors() const override { return kCells; }
    void check() const override { cast_.check(); }

private:
    WorldCast cast_;
};

// The uncached reference. A sequence that goes on from the last one is not computed again.
class ReferenceNext {
public:
    explicit ReferenceNext(const SystemModel& numeric)
        : model_(numeric.model->config, numeric.model->weights, numeric.profile) {}
    [[nodiscard]] TokenId next(std::span<const TokenId> tokens, const SamplingParams& sampling) {
        if (!sequence_ || known_.size() > tokens.size() || !std::ranges::equal(known_, tokens.first(known_.size()))) {
            sequence_.emplace(model_);
            known_.clear();
        }
        sequence_->append(tokens.subspan(known_.size()), reference::LogitRows::kLast);
        known_.assign(tokens.begin(), tokens.end());
        MUST(!reference::has_penalties(sampling), "penalties want the prompt's end");
        const reference::ConstFloatRows logits = sequence_->logits();
        return reference::sample(
            {{logits.row(0), static_cast<size_t>(logits.width)}, sampling, {tokens, {}}, tokens.size()});
    }

private:
    reference::ReferenceModel model_;
    std::optional<reference::ReferenceSequence> sequence_;
    std::vector<TokenId> known_;
};

// The CPU executor, materialised late.
class NumericCast final : public SystemCast {
public:
    NumericCast(const SystemConfig& config, TokenStore& store)
        : config_(config),
          draft_executor_(make_executor(config, draft_pools(config))),
          drafters_(config.world,
                    {.pools = draft_pools(config),
                     .max_num_slots = kDraftSlots,
                     .step_tokens = static_cast<int32_t>(1 + config.world.engine.seed % 40),
                     .max_log_tokens = config.world.executor.max_log_tokens},
                    draft_executor_, make_next_token(config), store) {
        NumericCast::fresh_executor();
    }
    Executor& executor() override { return executors_.back()->late; }
    Executor& fresh_executor() override {
        executors_.push_back(std::make_unique<Late>(config_));
        return executor();
    }
    Drafter* drafter() override { return drafters_.chosen(); }
    [[nodiscard]] const reference::StateTensors& tensors() const override { return executors_.front()->cpu.tensors(); }
    void check() const override {}

private:
    struct Late {
        explicit Late(const SystemConfig& config)
            : cpu(make_executor(config, config.world.executor.pools)), late(cpu, config.world.executor.lag_steps) {}
        cpu::CpuExecutor cpu;
        DelayedExecutor late;
    };
    [[nodiscard]] static cpu::CpuExecutor make_executor(const SystemConfig& config, const PoolSizes& pools) {
        const reference::Model& model = *config.numeric->model;
        return {model.config,
                model.weights,
                {.pools = pools,
                 .max_log_tokens = config.world.executor.max_log_tokens,
                 .profile = config.numeric->profile}};
    }
    static constexpr int32_t kDraftSlots = 3;
    [[nodiscard]] static PoolSizes draft_pools(const SystemConfig& config) {
        PoolSizes pools = config.world.executor.pools;
        if (pools.num_state_rows > 0) pools.num_state_rows = kDraftSlots;
        return pools;
    }

    SystemConfig config_;
    std::vector<std::unique_ptr<Late>> executors_;
    cpu::CpuExecutor draft_executor_;
    WorldDrafters drafters_;
};

// The world's executor becomes one over a model that has what the world has.
void make_numeric(SystemConfig& config, uint64_t seed) {
    Prng prng(seed ^ 0x6e756d62657273u);
    const reference::Model& model = model_for(config.world.engine.cache, seed);
    config.numeric = {.model = &model,
                      .profile = prng.below(3) == 0 ? reference::Profile::kTensorSm90 : reference::Profile::kExact};
    HashExecutorConfig& executor = config.world.executor;
    executor.vocab_size = model.config.vocab_size;
    executor.fault_token = -1;
    executor.fail_one_in = 0;
    config.tier_bytes *= 20;  // its heads are as much larger, or more
}

}  // namespace

SystemConfig SystemConfig::draw(uint64_t seed, SystemKind kind) {
    SystemConfig config{.world = WorldConfig::draw(seed), .numeric = {}, .http = {}, .ledger_memory = {}};
    Prng prng(seed ^ 0x73797374656du);
    // A host's requests are deterministic: a path that drafts by another arithmetic has none of them.
    if (config.world.drafter == WorldDrafter::kDraftPath) config.world.drafter = WorldDrafter::kNgram;
    config.world.engine.scheduler.verify_tokens = 0;
    config.world.executor.wrong_draft_one_in = 0;
    config.world.executor.ordinary_numerics_id.clear();
    const CacheConfig& cache = config.world.engine.cache;
    config.has_tier = cache.has_kv && cache.has_state && prng.below(2) == 0;
    config.restores = prng.below(3) == 0 ? server::RestorePolicy::kAuto : server::RestorePolicy::kAlways;
    config.tier_bytes = prng.below(2) == 0 ? int64_t{20'000} : int64_t{10'000'000};
    if (prng.below(2) == 0) config.ledger_memory.max_bytes = static_cast<int64_t>(prng.below(6000));
    if (kind == SystemKind::kNumeric) make_numeric(config, seed);
    if (kind == SystemKind::kHttp) {
        server::HttpConfig& http = config.http.emplace();
        if (prng.below(4) != 0) http.send_buffer_bytes = 1;  // the system's least
        if (prng.below(2) == 0) http.max_unread_tokens = 1 + prng.below(3);
    }
    return config;
}

std::unique_ptr<SystemCast> make_cast(const SystemConfig& config, TokenStore& store) {
    if (config.numeric) return std::make_unique<NumericCast>(config, store);
    return std::make_unique<HashCast>(config, store);
}

ConversationModel::NextToken make_next_token(const SystemConfig& config) {
    if (!config.numeric) {
        const auto oracle = std::make_shared<HashExecutor>(config.world.executor);
        return [oracle](std::span<const TokenId> tokens, const SamplingParams& sampling, Arithmetic arithmetic) {
            return oracle->expected_token(tokens, sampling, arithmetic);
        };
    }
    const auto oracle = std::make_shared<ReferenceNext>(*config.numeric);
    return [oracle](std::span<const TokenId> tokens, const SamplingParams& sampling, Arithmetic) {
        return oracle->next(tokens, sampling);
    };
}

}  // namespace verbatim::tests
