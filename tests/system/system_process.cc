#include "tests/system/system_process.h"

#include <sqlite3.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/ledger/wrapping_database.h"
#include "tests/support/must.h"
#include "tests/system/pooled_memory.h"

namespace verbatim::tests {
namespace {

using server::HeadFolder;

// SQLite on the machine's disk, with faults.
class FaultyDatabase final : public WrappingDatabase {
public:
    explicit FaultyDatabase(Faults& faults)
        : WrappingDatabase(std::make_unique<server::SqliteDatabase>("ledger")), faults_(faults) {}
    Result<int64_t> run(const std::string& sql, std::span<const server::SqlValue> values) override {
        return with_faults([&] { return inner().run(sql, values); });
    }
    Result<std::vector<server::SqlRow>> rows(const std::string& sql,
                                             std::span<const server::SqlValue> values) override {
        return with_faults([&] { return inner().rows(sql, values); });
    }

private:
    // What was done may be lost with its answer, as a commit's is.
    template <class Call>
    auto with_faults(const Call& call) -> decltype(call()) {
        const Faults::When fault = faults_.next();
        if (fault != Faults::When::kBefore) {
            auto done = call();
            if (fault == Faults::When::kNever) return done;
        }
        return tl::unexpected(Error{"the connection is lost", ErrorKind::kMachine});
    }
    Faults& faults_;
};

class FaultyFolder final : public HeadFolder {
public:
    explicit FaultyFolder(SystemMachine& machine) : machine_(machine) {}
    Result<std::string> write(const std::filesystem::path& path, const reference::HeadInfo& info,
                              const reference::StateTensors& tensors, std::span<const std::byte> bytes) override {
        if (fails()) return problem();
        return HeadFolder::write(path, info, tensors, bytes);
    }
    Result<reference::HeadFile> read(const std::filesystem::path& path, int64_t first_token) override {
        if (fails()) return problem();
        return HeadFolder::read(path, first_token);
    }
    void remove(const std::filesystem::path& path) override {
        if (!fails()) HeadFolder::remove(path);
    }

private:
    [[nodiscard]] bool fails() const {
        return machine_.is_killed || machine_.folder_faults.next() != Faults::When::kNever;
    }
    static tl::unexpected<Error> problem() {
        return tl::unexpected(Error{"the disk does not answer", ErrorKind::kMachine});
    }
    SystemMachine& machine_;
};

// All threads are fibers of one: SQLite locks nothing, and does not count its memory.
const bool kSqliteIsSingleThreaded = sqlite3_config(SQLITE_CONFIG_SINGLETHREAD) == SQLITE_OK &&
                                     sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0) == SQLITE_OK && pool_sqlite_memory();

server::LedgerIdentity ledger_identity(int32_t vocab_size) {
    return {.tokenizer = "a simulation's", .vocab_size = vocab_size};
}

// The files of a ledger without conversations.
const DiskContents& empty_ledger() {
    static const DiskContents kContents = [] {
        PowerCutDisk disk(0);
        const auto opened =
            server::SqlLedgerStore(std::make_unique<server::SqliteDatabase>("ledger")).open(ledger_identity(1));
        MUST(opened.has_value(), "{}", opened.error().message);
        return disk.contents();
    }();
    return kContents;
}

const DiskContents& no_files() {
    static const DiskContents kContents;
    return kContents;
}

}  // namespace

Faults::When Faults::next() {
    if (num_left_ == 0) return When::kNever;
    --num_left_;
    ++num_failed_;
    return prng_.below(2) == 0 ? When::kBefore : When::kAfter;
}

// Most machines have a ledger already: to make its tables takes a tenth of a world's time.
SystemMachine::SystemMachine(uint64_t seed)
    : disk(seed, Prng(seed).below(8) > 0 ? empty_ledger() : no_files()), store_faults(seed), folder_faults(seed + 1) {
    MUST(kSqliteIsSingleThreaded);
}

SystemMachine::~SystemMachine() {
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

const std::filesystem::path& SystemMachine::folder() {
    if (!folder_.empty()) return folder_;
    const std::filesystem::path in_memory = "/dev/shm";
    std::error_code problem;
    const bool has_memory = std::filesystem::is_directory(in_memory, problem);
    std::string pattern =
        ((has_memory ? in_memory : std::filesystem::temp_directory_path()) / "verbatim-swarm-XXXXXX").string();
    MUST(::mkdtemp(pattern.data()) != nullptr, "{}: errno {}", pattern, errno);
    return folder_ = pattern;
}

bool SystemMachine::damage_a_head(Prng& prng) const {
    if (folder_.empty()) return false;
    std::vector<std::filesystem::path> heads;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        if (entry.path().extension() == ".head") heads.push_back(entry.path());
    }
    if (heads.empty()) return false;
    std::ranges::sort(heads);
    const auto& path = heads[prng.below(heads.size())];
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
    const auto place = static_cast<int64_t>(prng.below(static_cast<uint64_t>(size)));
    if (prng.below(2) == 0) {
        std::filesystem::resize_file(path, static_cast<uintmax_t>(place));
        return true;
    }
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekg(place);
    const int byte = file.get() ^ (1 << prng.below(8));
    file.seekp(place);
    file.put(static_cast<char>(byte));
    return true;
}

Status SystemProcess::FailingExecutor::execute(const StepPlan& plan, StepResult& result) {
    if (std::exchange(fails_next, false)) return error("the device is gone");
    return inner().execute(plan, result);
}

SystemProcess::SystemProcess(const SystemConfig& config, SystemMachine& machine, HttpMarks& marks)
    : store_(config.world.executor.vocab_size),
      cast_(make_cast(config, store_)),
      executor_(cast_->executor()),
      engine_(std::make_unique<Engine>(config.world.engine, executor_, policy_, store_, recorder_)),
      ledger_(std::make_unique<server::ConversationLedger>(
          std::make_unique<server::SqlLedgerStore>(std::make_unique<FaultyDatabase>(machine.store_faults)),
          server::LedgerWriterConfig{.tries = 2}, config.ledger_memory)) {
    const Status opened = ledger_->open(ledger_identity(config.world.executor.vocab_size));
    MUST(opened.has_value(), "{}", opened.error().message);
    if (config.has_tier) {
        calls_ = std::make_unique<FaultyFolder>(machine);
        auto tier = server::HeadTier::open({.folder = machine.folder(),
                                            .max_bytes = config.tier_bytes,
                                            .min_tokens = 2,
                                            .model = "model",
                                            .numerics = executor_.numerics_id(),
                                            .tensors = cast_->tensors(),
                                            .vocab_size = config.world.executor.vocab_size,
                                            .calls = calls_.get()});
        MUST(tier.has_value(), "{}", tier.error().message);
        tier_ = *std::move(tier);
    }
    const auto replacement = [this]() -> Result<server::HostExecutor> {
        replacements_.push_back(std::make_unique<FailingExecutor>(cast_->fresh_executor()));
        return server::HostExecutor{replacements_.back().get(), {}};
    };
    host_ = std::make_unique<server::EngineHost>(
        *engine_, server::HostExecutor{&executor_, {}},
        server::EngineHostConfig{.max_requests = static_cast<size_t>(config.world.engine.scheduler.max_num_sequences),
                                 .max_queue_requests = 64,
                                 .replacement = replacement,
                                 .ledger = ledger_.get(),
                                 .tier = tier_.get(),
                                 .restores = config.restores,
                                 .drafter = cast_->drafter()});
    if (!config.http) {
        door_ = std::make_unique<HostDoor>(*host_);
        return;
    }
    server::Service service;
    service.tokenizer = &letter_tokenizer();
    service.host = host_.get();
    service.model = {.all = {"model"}};
    service.max_model_len = config.world.engine.max_model_len;
    service.vocab_size = config.world.executor.vocab_size;
    service.now = [] { return int64_t{0}; };
    auto door = std::make_unique<HttpDoor>(*config.http, std::move(service), config.world.engine.seed, marks);
    http_ = door.get();
    door_ = std::move(door);
}

}  // namespace verbatim::tests
