#include "server/heads/head_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "engine/base/check.h"
#include "reference/head_digest.h"

namespace verbatim::server {
namespace {

using reference::HeadFile;
using reference::HeadInfo;
using std::chrono::steady_clock;

constexpr std::string_view kSuffix = ".head";
// Before anything was read: a slow disk's rate.
constexpr int64_t kAssumedNsPerMiB = 5'000'000;
constexpr int64_t kMiB = int64_t{1} << 20;

Error machine_error(const std::filesystem::path& path, const std::error_code& why) {
    return {fmt::format("{}: {}", path.string(), why.message()), ErrorKind::kMachine};
}

}  // namespace

Status HeadFolder::write(const std::filesystem::path& path, const HeadInfo& info,
                         const reference::StateTensors& tensors, std::span<const std::byte> bytes) {
    return reference::write_head_file(path, info, tensors, bytes);
}

Result<HeadFile> HeadFolder::read(const std::filesystem::path& path) { return HeadFile::open(path); }

void HeadFolder::remove(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
}

HeadTier::HeadTier(HeadTierConfig config)
    : config_(std::move(config)),
      calls_(config_.calls != nullptr ? *config_.calls : system_),
      store_(config_.vocab_size) {
    CHECK(config_.max_bytes >= 0 && config_.max_waiting_bytes >= 0, "{} bytes, {} waiting", config_.max_bytes,
          config_.max_waiting_bytes);
}

Result<std::unique_ptr<HeadTier>> HeadTier::open(HeadTierConfig config) {
    std::unique_ptr<HeadTier> tier(new HeadTier(std::move(config)));
    std::error_code failed;
    std::filesystem::create_directories(tier->config_.folder, failed);
    if (failed) return tl::unexpected(machine_error(tier->config_.folder, failed));
    ASSIGN_OR_RETURN(files::FileLock lock, files::FileLock::acquire(tier->config_.folder / "lock"));
    tier->lock_.emplace(std::move(lock));
    RETURN_IF_ERROR(tier->read_folder());
    tier->thread_ = std::thread([raw = tier.get()] { raw->run(); });
    return tier;
}

HeadTier::~HeadTier() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

// --- files that are there

// Oldest first, so that the order of use survives a restart.
Status HeadTier::read_folder() {
    std::error_code failed;
    std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> found;
    for (std::filesystem::directory_iterator entry(config_.folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        const std::filesystem::path& path = entry->path();
        if (path.extension() == ".partial") std::filesystem::remove(path, failed);  // of a process that is gone
        if (path.extension() == kSuffix) found.emplace_back(entry->last_write_time(failed), path);
    }
    if (failed) return tl::unexpected(machine_error(config_.folder, failed));
    std::ranges::sort(found);
    for (const auto& [time, path] : found) {
        const auto file = HeadFile::open_unchecked(path);
        if (!file) {
            std::filesystem::remove(path, failed);
            ++counts_.damaged;
            continue;
        }
        const HeadInfo& info = file->info();
        const auto has_id = [&](TokenId token) { return token >= 0 && token < config_.vocab_size; };
        const bool is_ours = info.numerics == config_.numerics && file->check_model(config_.model, config_.tensors) &&
                             std::ranges::all_of(info.tokens, has_id);
        if (is_ours && !by_name_.contains(path.stem().string()))
            add(CacheSalt{info.salt}, info.tokens, path.stem().string(), file->file_bytes());
        else
            num_bytes_ += file->file_bytes();
    }
    make_room(0);
    counts_.num_files = static_cast<int64_t>(files_.size());
    counts_.num_bytes = num_bytes_;
    return {};
}

std::string HeadTier::name_of(const CacheSalt& salt, const TokenSeq& tokens) const {
    Digester digester;
    digester.add(static_cast<uint8_t>(salt.value.has_value()));
    digester.add(std::string_view(salt.value.value_or("")));
    digester.add(std::string_view(config_.numerics));
    digester.add(std::string_view(config_.model));
    tokens.add_to(digester);
    return digester.digest().hex();
}

auto HeadTier::add(const CacheSalt& salt, std::span<const TokenId> tokens, std::string name, int64_t bytes) -> File& {
    auto file = std::make_unique<File>();
    file->head.id = HeadId{next_id_++};
    file->head.salt = salt;
    file->head.tokens = store_.store(tokens);
    file->head.numerics_id = config_.numerics;
    file->head.in_prefix_index = true;
    file->name = std::move(name);
    file->bytes = bytes;
    file->place = by_use_.insert(by_use_.end(), file->head.id);
    by_name_.emplace(file->name, file->head.id);
    index_.insert(file->head);
    num_bytes_ += bytes;
    return *(files_[file->head.id] = std::move(file));
}

// Forgets the file; its bytes are free once the thread has removed it.
void HeadTier::drop(HeadId id) {
    const auto found = files_.find(id);
    if (found == files_.end()) return;
    File& file = *found->second;
    index_.erase(file.head);
    by_name_.erase(file.name);
    by_use_.erase(file.place);
    num_bytes_ -= file.bytes;
    Job job;
    job.path = config_.folder / (file.name + std::string(kSuffix));
    job.removes = true;
    files_.erase(found);
    enqueue(std::move(job));
}

void HeadTier::drop_failed() {
    std::vector<HeadId> failed;
    {
        const std::lock_guard lock(mutex_);
        failed.swap(failed_);
    }
    for (const HeadId id : failed) drop(id);
}

void HeadTier::make_room(int64_t bytes) {
    while (num_bytes_ + bytes > config_.max_bytes && !by_use_.empty()) drop(by_use_.front());
}

// --- calls

auto HeadTier::find(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length) -> std::optional<Found> {
    drop_failed();
    const Head* head =
        index_.longest_prefix({.salt = salt, .tokens = tokens, .numerics_id = &config_.numerics}, max_length);
    if (head == nullptr) return std::nullopt;
    File& file = *files_.at(head->id);
    return Found{head->id, head->length(), file.bytes};
}

void HeadTier::load(HeadId id, std::function<void(FilePtr)> loaded) {
    const auto found = files_.find(id);
    if (found == files_.end()) return loaded(nullptr);
    File& file = *found->second;
    by_use_.splice(by_use_.end(), by_use_, file.place);
    Job job;
    job.path = config_.folder / (file.name + std::string(kSuffix));
    job.loaded = std::move(loaded);
    job.id = id;
    enqueue(std::move(job));
}

bool HeadTier::wants(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics) {
    if (numerics != config_.numerics || tokens.size() < config_.min_tokens) return false;
    drop_failed();
    if (const auto known = by_name_.find(name_of(salt, tokens)); known != by_name_.end()) {
        by_use_.splice(by_use_.end(), by_use_, files_.at(known->second)->place);
        return false;
    }
    const int64_t bytes = reference::head_num_bytes(config_.tensors, tokens.size());
    const std::lock_guard lock(mutex_);
    const bool has_room = waiting_bytes_ + bytes <= config_.max_waiting_bytes && bytes <= config_.max_bytes;
    counts_.not_written += has_room ? 0 : 1;
    return has_room;
}

void HeadTier::put(const CacheSalt& salt, HeadCopy head) {
    const std::string name = name_of(salt, head.tokens);
    if (by_name_.contains(name)) return;
    const auto bytes = static_cast<int64_t>(head.bytes.size()) + head.tokens.size() * int64_t{sizeof(TokenId)};
    make_room(bytes);
    std::vector<TokenId> tokens = head.tokens.to_vector();
    const File& file = add(salt, tokens, name, bytes);
    Job job;
    job.path = config_.folder / (name + std::string(kSuffix));
    job.info = HeadInfo{config_.model, config_.numerics, head.digest, salt.value, std::move(tokens)};
    job.bytes = std::move(head.bytes);
    job.id = file.head.id;
    enqueue(std::move(job));
}

void HeadTier::note_restored(const Found& found) {
    const std::lock_guard lock(mutex_);
    ++counts_.restored;
    counts_.restored_bytes += found.bytes;
    counts_.restored_tokens += found.length;
}

void HeadTier::note_not_worth() {
    const std::lock_guard lock(mutex_);
    ++counts_.not_worth;
}

int64_t HeadTier::expected_read_ns(int64_t num_bytes) const {
    const std::lock_guard lock(mutex_);
    if (counts_.restored_bytes < kMiB) return num_bytes / kMiB * kAssumedNsPerMiB;
    return static_cast<int64_t>(static_cast<double>(num_bytes) * static_cast<double>(counts_.read_ns) /
                                static_cast<double>(counts_.restored_bytes));
}

HeadTierCounts HeadTier::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

// --- the thread

void HeadTier::enqueue(Job job) {
    {
        const std::lock_guard lock(mutex_);
        waiting_bytes_ += static_cast<int64_t>(job.bytes.size());
        counts_.num_files = static_cast<int64_t>(files_.size());
        counts_.num_bytes = num_bytes_;
        // A request waits for what is read, which may not be written yet.
        const bool is_written = std::ranges::find(jobs_, job.id, &Job::id) == jobs_.end();
        if (job.loaded && is_written)
            jobs_.push_front(std::move(job));
        else
            jobs_.push_back(std::move(job));
    }
    changed_.notify_all();
}

void HeadTier::wait_until_written() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return jobs_.empty() && !is_busy_; });
}

void HeadTier::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [&] { return !jobs_.empty() || stopping_; });
        if (jobs_.empty()) return;
        Job job = std::move(jobs_.front());
        jobs_.pop_front();
        is_busy_ = true;
        lock.unlock();
        carry_out(job);
        lock.lock();
        is_busy_ = false;
        waiting_bytes_ -= static_cast<int64_t>(job.bytes.size());
        changed_.notify_all();
    }
}

void HeadTier::carry_out(Job& job) {
    if (job.removes) return calls_.remove(job.path);
    if (job.loaded) {
        const auto begin = steady_clock::now();
        auto file = calls_.read(job.path);
        const int64_t took_ns = std::chrono::nanoseconds(steady_clock::now() - begin).count();
        {
            const std::lock_guard lock(mutex_);
            counts_.read_ns += took_ns;
            counts_.damaged += file ? 0 : 1;
            if (!file) failed_.push_back(job.id);
        }
        return job.loaded(file ? std::make_shared<const HeadFile>(*std::move(file)) : nullptr);
    }
    const Status written = calls_.write(job.path, *job.info, config_.tensors, job.bytes);
    const std::lock_guard lock(mutex_);
    counts_.written += written ? 1 : 0;
    counts_.written_bytes += written ? static_cast<int64_t>(job.bytes.size()) : 0;
    counts_.not_written += written ? 0 : 1;
    counts_.problem = written ? "" : written.error().message;
    if (!written) failed_.push_back(job.id);
}

}  // namespace verbatim::server
