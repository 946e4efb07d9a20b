#include "server/ledger/ledger_writer.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

constexpr const char* kEnding = "the server is about to end";
constexpr int kReadTries = 2;  // the connection may have ended while it was not used

}  // namespace

LedgerWriter::LedgerWriter(LedgerStore& store, LedgerWriterConfig config)
    : store_(store), config_(config), thread_([this] { run(); }) {}

LedgerWriter::~LedgerWriter() { close(); }

int64_t LedgerWriter::write(Change change, Done done) {
    CHECK(done, "a change that nothing hears of");
    std::unique_lock lock(mutex_);
    if (closing_ && change.kind == Change::Kind::kNothing) {
        lock.unlock();
        done(kEnding);
        return 0;
    }
    CHECK(!closing_, "a change comes after the last one");
    waiting_.push_back({std::move(change), std::move(done)});
    changed_.notify_all();
    return ++num_given_;
}

void LedgerWriter::load(const ConversationKey& key, Loaded loaded) {
    if (!take_reading([this, key, loaded] { loaded(read(key)); })) loaded(error("{}", kEnding));
}

void LedgerWriter::list(const ConversationPage& page, Listed listed) {
    const auto read_list = [this, page, listed] {
        auto list = store_.list(page);
        listed(list || list.error().kind != ErrorKind::kMachine ? std::move(list) : store_.list(page));
    };
    if (!take_reading(read_list)) listed(error("{}", kEnding));
}

// False: the thread is about to end.
bool LedgerWriter::take_reading(Reading reading) {
    CHECK(reading, "nothing to read");
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    readings_.push_back(std::move(reading));
    changed_.notify_all();
    return true;
}

KeptCounts LedgerWriter::kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
}

std::string LedgerWriter::problem() const {
    const std::lock_guard lock(mutex_);
    return problem_;
}

size_t LedgerWriter::close() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    const auto is_change = [](const Entry& entry) { return entry.change.kind != Change::Kind::kNothing; };
    return static_cast<size_t>(std::ranges::count_if(batch_, is_change) + std::ranges::count_if(waiting_, is_change));
}

void LedgerWriter::run() {
    while (true) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return !waiting_.empty() || !readings_.empty() || closing_; });
            if (waiting_.empty() && readings_.empty()) return;
            CHECK(batch_.empty(), "{} changes of the batch before", batch_.size());
            const auto count = static_cast<std::ptrdiff_t>(std::min(waiting_.size(), config_.max_batch));
            std::move(waiting_.begin(), waiting_.begin() + count, std::back_inserter(batch_));
            waiting_.erase(waiting_.begin(), waiting_.begin() + count);
        }
        if (!write_batch()) return;
        count_batch();
        for (const Entry& entry : batch_) {
            if (entry.done) entry.done("");
        }
        batch_.clear();
        read_one();
    }
}

void LedgerWriter::read_one() {
    Reading reading;
    {
        const std::lock_guard lock(mutex_);
        if (readings_.empty()) return;
        reading = std::move(readings_.front());
        readings_.pop_front();
    }
    reading();
}

// While changes cannot be written.
void LedgerWriter::read_all() {
    std::deque<Reading> readings;
    {
        const std::lock_guard lock(mutex_);
        readings.swap(readings_);
    }
    for (const Reading& reading : readings) reading();
}

Result<ConversationRows> LedgerWriter::read(const ConversationKey& key) {
    auto loaded = store_.load(key);
    for (int tries = 1; tries < kReadTries && !loaded && loaded.error().kind == ErrorKind::kMachine; ++tries)
        loaded = store_.load(key);
    if (loaded) return loaded;
    return error("conversation '{}' cannot be read: {}", key.conversation_id, loaded.error().message);
}

void LedgerWriter::count_batch() {
    const std::lock_guard lock(mutex_);
    for (const Entry& entry : batch_) {
        ++kept_.num_changes;
        kept_.num_commits += entry.change.kind == Change::Kind::kCommit ? 1 : 0;
        kept_.num_new_conversations += entry.change.num_new_conversations;
    }
    CHECK_LE(kept_.num_changes, num_given_);
}

// The same changes until they are kept. False: there is no time left.
bool LedgerWriter::write_batch() {
    std::vector<Change> changes;
    for (const Entry& entry : batch_) {
        if (entry.change.kind != Change::Kind::kNothing) changes.push_back(entry.change);
    }
    if (changes.empty()) return true;  // all that came before is kept
    for (int64_t failures = 1;; ++failures) {
        const Status applied = store_.apply(changes);
        if (applied) {
            const std::lock_guard lock(mutex_);
            problem_.clear();
            return true;
        }
        if (failures >= config_.tries) report(applied.error().message);
        read_all();
        if (!pause(failures)) {
            report(applied.error().message);
            read_all();
            return false;
        }
    }
}

// False when the program is about to end, and there is nothing more to wait for.
bool LedgerWriter::pause(int64_t failures) {
    CHECK_GT(failures, 0);
    std::unique_lock lock(mutex_);
    if (closing_) return failures < config_.tries;
    if (failures == 1) return true;
    const int64_t doublings = std::min<int64_t>(failures - 2, 20);
    const int64_t pause = std::min(config_.pause_ms << doublings, config_.max_pause_ms);
    changed_.wait_for(lock, std::chrono::milliseconds(pause), [&] { return closing_ || !readings_.empty(); });
    return true;
}

// Every caller that waits hears of it, once.
void LedgerWriter::report(const std::string& problem) {
    std::vector<Done> listeners;
    {
        const std::lock_guard lock(mutex_);
        problem_ = problem;
        for (std::vector<Entry>* entries : {&batch_, &waiting_}) {
            for (Entry& entry : *entries) {
                if (entry.done) listeners.push_back(std::exchange(entry.done, nullptr));
            }
        }
    }
    for (const Done& done : listeners) done(problem);
}

}  // namespace verbatim::server
