// tests/system/system_process.h: the server's process in a simulated world, and what outlives it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/prng.h"
#include "server/engine_host.h"
#include "server/ledger/ledger_store.h"
#include "tests/server/ledger/power_cut_disk.h"
#include "tests/support/null_executor.h"
#include "tests/system/system_cast.h"
#include "tests/system/system_http.h"

namespace verbatim::tests {

// Fails calls on purpose, before or after they have done their work.
class Faults {
public:
    explicit Faults(uint64_t seed) : prng_(seed) {}
    enum class When : uint8_t { kNever, kBefore, kAfter };
    void fail_next(int64_t count) { num_left_ = count; }
    void end() { num_left_ = 0; }
    [[nodiscard]] When next();
    [[nodiscard]] int64_t num_failed() const { return num_failed_; }

private:
    Prng prng_;
    int64_t num_left_ = 0;
    int64_t num_failed_ = 0;
};

// What a process leaves behind.
struct SystemMachine {
    explicit SystemMachine(uint64_t seed);
    SystemMachine(const SystemMachine&) = delete;
    SystemMachine& operator=(const SystemMachine&) = delete;
    ~SystemMachine();
    PowerCutDisk disk;  // the ledger's
    // The tier's, in memory where the system has files there: it is made when it is first used.
    const std::filesystem::path& folder();
    Faults store_faults;
    Faults folder_faults;
    bool is_killed = false;  // nothing is written to the tier's folder any more
    // As a machine without power may: one of the tier's files loses its end or has a wrong byte. False: there is none.
    bool damage_a_head(Prng& prng) const;

private:
    std::filesystem::path folder_;  // empty: not made
};

// From its start to its end.
class SystemProcess {
public:
    // Borrows the marks.
    SystemProcess(const SystemConfig& config, SystemMachine& machine, HttpMarks& marks);
    SystemProcess(const SystemProcess&) = delete;
    SystemProcess& operator=(const SystemProcess&) = delete;

    [[nodiscard]] server::EngineHost& host() { return *host_; }
    [[nodiscard]] SystemDoor& door() { return *door_; }
    [[nodiscard]] HttpDoor* http() { return http_; }  // the same; null: clients call the host
    [[nodiscard]] Engine& engine() { return *engine_; }
    [[nodiscard]] const SystemCast& cast() const { return *cast_; }
    void fail_next_step() { (replacements_.empty() ? executor_ : *replacements_.back()).fails_next = true; }

private:
    // Another executor's steps; one may fail.
    class FailingExecutor final : public WrappingExecutor {
    public:
        explicit FailingExecutor(Executor& inner) : WrappingExecutor(inner) {}
        Status execute(const StepPlan& plan, StepResult& result) override;
        bool fails_next = false;
    };
    TokenStore store_;
    std::unique_ptr<SystemCast> cast_;
    FailingExecutor executor_;
    std::vector<std::unique_ptr<FailingExecutor>> replacements_;
    LruEviction policy_;
    NullRecorder recorder_;
    std::unique_ptr<Engine> engine_;
    std::unique_ptr<server::ConversationLedger> ledger_;
    std::unique_ptr<server::HeadFolder> calls_;
    std::unique_ptr<server::HeadTier> tier_;
    std::unique_ptr<server::EngineHost> host_;
    std::unique_ptr<SystemDoor> door_;
    HttpDoor* http_ = nullptr;
};

}  // namespace verbatim::tests
