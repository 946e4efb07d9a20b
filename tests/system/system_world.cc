#include "tests/system/system_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tests/support/must.h"

namespace verbatim::tests {
namespace {

constexpr int64_t kMicrosecond = 1000;
constexpr int64_t kSecond = 1'000'000'000;

constexpr std::array<const char*, static_cast<size_t>(SystemMark::kCount)> kMarks = {
    "answered",       "anonymous",       "aborted",         "recorded",      "recorded_later", "computed_again",
    "busy",           "other_request",   "deleted_turn",    "wrong_parent",  "forked",         "rewound",
    "removed",        "name_taken",      "ledger_failed",   "store_faults",  "stopped",        "killed",
    "killed_in_turn", "kept_unanswered", "lost_unanswered", "rewritten",     "lost_writes",    "damaged_files",
    "found_damage",   "restored_heads",  "folder_faults",   "retried_turns", "replaced",       "evictions",
    "preemptions",    "reused",          "accepted_drafts", "rolled_back",   "unloaded"};

}  // namespace

const char* name(SystemMark mark) { return kMarks.at(static_cast<size_t>(mark)); }

SystemWorld::SystemWorld(const SystemScene& scene)
    : scene_(scene),
      config_(SystemConfig::draw(scene.seed, scene.kind)),
      prng_(scene.seed ^ 0x636c69656e7473u),
      threads_(std::make_unique<FiberThreads>(scene.seed)),
      machine_(std::make_unique<SystemMachine>(scene.seed)),
      next_token_(make_next_token(config_)) {
    start();
}

SystemWorld::~SystemWorld() {
    if (process_ == nullptr) return;
    try {
        end_process();
    } catch (const std::exception&) {
        abandon();
    }
}

// After a violation the server's threads may wait for ever: they stay where they are.
void SystemWorld::abandon() {
    is_dead_ = true;
    (void)process_.release();
    (void)machine_.release();
    (void)threads_.release();
    server::ThreadScheduler::install(nullptr);
}

void SystemWorld::run() {
    try {
        for (const SystemEvent& event : scene_.events) {
            act(event);
            check();
        }
        come_home();
    } catch (const std::exception&) {
        abandon();
        throw;
    }
}

void SystemWorld::act(const SystemEvent& event) {
    prng_ = Prng(scene_.seed * 0x9e3779b97f4a7c15u + event.chance);
    switch (event.act) {
        case SystemAct::kTurn: return turn();
        case SystemAct::kRetry: return retry();
        case SystemAct::kLie: return lie();
        case SystemAct::kAnonymous: return anonymous();
        case SystemAct::kLeave: return leave();
        case SystemAct::kFork: return fork();
        case SystemAct::kRewind: return rewind();
        case SystemAct::kRemove: return remove();
        case SystemAct::kLook: return look();
        case SystemAct::kRun: return run_for(static_cast<int64_t>(prng_.below(40)) * kMicrosecond);
        case SystemAct::kSettle: return settle();
        case SystemAct::kFailLedger: return machine_->store_faults.fail_next(1 + static_cast<int64_t>(prng_.below(12)));
        case SystemAct::kFailStep: return process_->fail_next_step();
        case SystemAct::kFailFolder: return machine_->folder_faults.fail_next(1 + static_cast<int64_t>(prng_.below(4)));
        case SystemAct::kStop: return stop();
        case SystemAct::kKill: return kill();
        case SystemAct::kNonsense: return process_->http()->send_nonsense(prng_);
        case SystemAct::kHalf: return send_half();
        case SystemAct::kStopReading: return process_->http()->stop_reading(prng_);
        case SystemAct::kCount: break;
    }
    MUST(false, "no event");
}

void SystemWorld::check() {
    if (!violation_.empty()) throw std::runtime_error(violation_);
    if (process_ == nullptr) return;
    process_->engine().verify();
    process_->cast().check();
}

// --- processes

void SystemWorld::start() {
    is_ending_ = is_dead_ = machine_->is_killed = false;
    ++process_number_;
    process_ = std::make_unique<SystemProcess>(config_, *machine_, http_marks_);
}

void SystemWorld::end_process() {
    const EngineStats& stats = process_->engine().stats();
    const server::HostView view = process_->host().view();
    mark(SystemMark::kRetriedTurns, view.num_retried_turns);
    mark(SystemMark::kReplacedExecutors, view.num_replaced_executors);
    if (config_.http) mark(SystemMark::kAborted, process_->host().num_aborts());  // which their clients do not hear
    mark(SystemMark::kEvictions, stats.evictions);
    mark(SystemMark::kPreemptions, stats.preemptions);
    mark(SystemMark::kReused, stats.attaches);
    mark(SystemMark::kAcceptedDrafts, stats.accepted_tokens);
    mark(SystemMark::kRolledBack, stats.rolled_back_tokens);
    mark(SystemMark::kUnloaded, view.num_conversations > view.num_loaded_conversations ? 1 : 0);
    if (view.tier) {
        mark(SystemMark::kRestoredHeads, view.tier->restored);
        mark(SystemMark::kFoundDamage, view.tier->damaged);
    }
    if (!is_dead_) process_->door().close();
    process_.reset();
    check();
}

// Everything under way ends, and everything answered is kept.
void SystemWorld::stop() {
    mark(SystemMark::kStopped);
    machine_->store_faults.end();
    is_ending_ = true;
    end_process();
    MUST(live_.empty() && calls_.empty(), "{} requests and {} calls outlive their server", live_.size(), calls_.size());
    start();
}

// The disk takes some more writes, during which answers may still come. Then nothing is heard of the process.
void SystemWorld::kill() {
    mark(SystemMark::kKilled);
    if (chance(2)) {
        machine_->disk.cut_after(static_cast<int64_t>(prng_.below(30)));
        run_for(static_cast<int64_t>(prng_.below(200)) * kMicrosecond);
    }
    machine_->disk.cut_after(0);
    machine_->is_killed = is_dead_ = true;
    for (const auto& [number, live] : live_) {
        if (!live.sent.key || live.sent.lie) continue;
        mark(SystemMark::kKilledInTurn);
        unsure_heads_.insert(*live.sent.key);
        const PossibleContents possible = known_.possible(*live.sent.key);
        const auto result = std::ranges::find_if(possible, [&](const KnownContents& contents) {
            return contents.exists() && contents.turns.back().prompt_end == std::ssize(live.sent.request.prompt) &&
                   contents.tokens.size() == live.sent.request.prompt.size() + live.sent.output.size();
        });
        if (result != possible.end()) cut_off_[*live.sent.key] = *result;
    }
    for (const auto& [number, key] : calls_) unsure_heads_.insert(key);
    end_process();
    live_.clear();
    calls_.clear();
    known_.lose_all();
    const int64_t lost = machine_->disk.num_lost_writes();
    machine_->disk.restart();
    mark(SystemMark::kLostWrites, machine_->disk.num_lost_writes() - lost);
    machine_->store_faults.end();
    while (chance(3) && machine_->damage_a_head(prng_)) mark(SystemMark::kDamagedFiles);
    start();
}

// Over HTTP a request takes longer, and sockets move between the threads' turns.
void SystemWorld::run_for(int64_t duration_ns) {
    if (!config_.http) return threads_->run_for(duration_ns);
    for (int64_t left_ns = 4 * duration_ns; left_ns > 0;) {
        process_->door().go_on(prng_);
        const auto slice_ns = static_cast<int64_t>(1 + prng_.below(4)) * kMicrosecond;
        threads_->run_for(slice_ns);
        left_ns -= slice_ns;
    }
}

// The store's pauses after failures are among what is waited for.
void SystemWorld::settle() {
    if (config_.http) run_for(static_cast<int64_t>(prng_.below(200)) * kMicrosecond);
    do {
        threads_->run_until_all_wait(10 * kSecond);
    } while (process_->door().go_on_as_far_as_possible());
    process_->door().settled();
}

// Without faults everything ends, and every conversation is what it may be, in this process and in the next one.
void SystemWorld::come_home() {
    mark(SystemMark::kStoreFaults, machine_->store_faults.num_failed());
    mark(SystemMark::kFolderFaults, machine_->folder_faults.num_failed());
    machine_->store_faults.end();
    machine_->folder_faults.end();
    int tries = 0;
    do {
        MUST(tries++ < 50, "{} requests and {} calls do not end", live_.size(), calls_.size());
        settle();
        check();
    } while (!live_.empty() || !calls_.empty());
    const size_t num_left = process_->host().num_requests();
    MUST(num_left == 0, "{} requests outlive their clients", num_left);
    is_home_ = true;
    for (int i = 0; i < 2; ++i) {
        for (const ConversationKey& key : known_.keys()) {
            const server::ConversationCall call{.key = key, .with_content = true};
            ask(call, key, known_.possible(key));
        }
        settle();
        MUST(calls_.empty(), "{} conversations are not shown", calls_.size());
        const auto exists = [&](const ConversationKey& key) { return known_.possible(key).begin()->exists(); };
        const int64_t num_counted = process_->host().view().num_conversations;
        MUST(num_counted == std::ranges::count_if(known_.keys(), exists), "{} conversations are counted", num_counted);
        check();
        if (i == 0) stop();
    }
    is_ending_ = true;
    end_process();
    leave_trail(static_cast<uint64_t>(threads_->num_switches()));
}

void SystemWorld::leave_trail(uint64_t value) { trail_ = Prng(trail_ ^ value).next(); }

}  // namespace verbatim::tests
