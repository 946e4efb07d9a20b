// tests/system/system_cast.h: a simulated server's configuration, and what computes in it: executors, a drafter, and
// the tokens that they must sample.
//
// In most worlds that is the cast of the engine's random worlds, over the hash executor. In numeric worlds it is the
// CPU executor over a small random model of any family, and the uncached reference says what it must sample.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "reference/model/state_tensors.h"
#include "reference/model/weights.h"
#include "reference/numerics/profile.h"
#include "server/engine_host.h"
#include "server/http/http_config.h"
#include "tests/engine/model/world_cast.h"
#include "tests/system/system_scene.h"

namespace verbatim::tests {

// What a numeric world computes.
struct SystemModel {
    const reference::Model* model = nullptr;  // lives as long as the program
    reference::Profile profile = reference::Profile::kExact;
};

struct SystemConfig {
    WorldConfig world;
    std::optional<SystemModel> numeric;
    std::optional<server::HttpConfig> http;
    bool has_tier = false;
    server::RestorePolicy restores = server::RestorePolicy::kAlways;
    int64_t tier_bytes = 0;
    server::LedgerMemory ledger_memory;
    static SystemConfig draw(uint64_t seed, SystemKind kind);
};

// Of one process.
class SystemCast {
public:
    virtual ~SystemCast() = default;
    [[nodiscard]] virtual Executor& executor() = 0;  // the current one
    virtual Executor& fresh_executor() = 0;
    [[nodiscard]] virtual Drafter* drafter() = 0;  // null: none
    // Of a head in a file.
    [[nodiscard]] virtual const reference::StateTensors& tensors() const = 0;
    virtual void check() const = 0;  // throws where an executor has seen a violation
};

[[nodiscard]] std::unique_ptr<SystemCast> make_cast(const SystemConfig& config, TokenStore& store);
[[nodiscard]] ConversationModel::NextToken make_next_token(const SystemConfig& config);

}  // namespace verbatim::tests
