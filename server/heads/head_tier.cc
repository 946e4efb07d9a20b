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

constexpr std::string_view kSuffix = ".head";
// Before anything was read: a slow disk's rate.
constexpr int64_t kAssumedNsPerMiB = 5'000'000;
// A head of many turns is read from as many files.
constexpr int kMaxBases = 16;
constexpr int64_t kMiB = int64_t{1} << 20;

Error machine_error(const std::filesystem::path& path, const std::error_code& why) {
    return {fmt::format("{}: {}", path.string(), why.message()), ErrorKind::kMachine};
}

// Whether the file itself is wrong. If not, the machine may read it later.
bool is_damage(const Error& error) { return error.kind != ErrorKind::kMachine; }

// Of a file that was a part: its base may have gone while it was read.
bool is_whole(const std::filesystem::path& path) {
    const auto file = HeadFile::open_unchecked(path);
    return file && !file->info().base;
}

// The head files of a folder and when they were written, oldest first.
using TimedPath = std::pair<std::filesystem::file_time_type, std::filesystem::path>;
Result<std::vector<TimedPath>> head_files(const std::filesystem::path& folder, bool removes_unfinished) {
    std::error_code failed;
    std::vector<TimedPath> paths;
    for (std::filesystem::directory_iterator entry(folder, failed), end; !failed && entry != end;
         entry.increment(failed)) {
        const std::filesystem::path& path = entry->path();
        std::error_code gone;
        // Of a process that is gone.
        if (removes_unfinished && path.extension() == ".partial") std::filesystem::remove(path, gone);
        if (path.extension() == kSuffix) paths.emplace_back(entry->last_write_time(gone), path);
    }
    if (failed) return tl::unexpected(machine_error(folder, failed));
    std::ranges::sort(paths);
    return paths;
}

}  // namespace

Result<std::string> HeadFolder::write(const std::filesystem::path& path, const HeadInfo& info,
                                      const reference::StateTensors& tensors, std::span<const std::byte> bytes) {
    return reference::write_head_file(path, info, tensors, bytes);
}

Result<HeadFile> HeadFolder::read(const std::filesystem::path& path, int64_t first_token) {
    return HeadFile::open(path, first_token);
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
    const HeadTierConfig& wanted = tier->config_;
    std::error_code failed;
    if (!wanted.read_only) {
        std::filesystem::create_directories(wanted.folder, failed);
        if (failed) return tl::unexpected(machine_error(wanted.folder, failed));
        ASSIGN_OR_RETURN(files::FileLock lock, files::FileLock::acquire(wanted.folder / "lock"));
        tier->lock_.emplace(std::move(lock));
    }
    RETURN_IF_ERROR(tier->read_folder());
    tier->reader_ = Thread([raw = tier.get()] { raw->run(raw->reads_); });
    if (wanted.read_only) return tier;
    tier->writer_ = Thread([raw = tier.get()] {
        if (raw->config_.yields) yield_to_other_threads();
        raw->run(raw->writes_);
    });
    return tier;
}

HeadTier::~HeadTier() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    for (Thread* thread : {&reader_, &writer_})
        if (thread->joinable()) thread->join();
}

// --- files that are there

// The header of a file of this model and arithmetic; none: it stays as it is, or was damaged and is gone.
auto HeadTier::read_header(const std::filesystem::path& path) -> std::optional<FileHeader> {
    const auto file = HeadFile::open_unchecked(path);
    if (!file) {
        std::error_code ignored;
        if (!is_damage(file.error())) {
            has_unread_ = true;
            return std::nullopt;
        }
        if (HeadFile::is_of_other_format(path) || !std::filesystem::exists(path, ignored)) return std::nullopt;
        const std::lock_guard lock(mutex_);
        ++counts_.damaged;
        if (config_.read_only) return std::nullopt;
        std::filesystem::remove(path, ignored);
        return std::nullopt;
    }
    const HeadInfo& info = file->info();
    const auto has_id = [&](TokenId token) { return token >= 0 && token < config_.vocab_size; };
    const bool is_ours = info.numerics == config_.numerics && file->check_model(config_.model, config_.tensors) &&
                         std::ranges::all_of(info.tokens, has_id);
    if (!is_ours) return std::nullopt;
    return FileHeader{path, info, file->header_xxh3(), file->file_bytes()};
}

// False: its base is not there yet.
bool HeadTier::add_found(const FileHeader& found) {
    const std::string name = found.path.stem().string();
    if (by_name_.contains(name)) return true;
    HeadId base = kNoHead;
    if (found.info.base) {
        const auto known = by_name_.find(found.info.base->name);
        const auto sum = header_xxh3_.find(found.info.base->name);
        const bool is_there = known != by_name_.end() && sum != header_xxh3_.end();
        if (!is_there || sum->second != found.info.base->header_xxh3) return false;
        base = known->second;
    }
    File& file = add(CacheSalt{found.info.salt}, found.info.tokens, name, found.bytes);
    header_xxh3_[name] = found.header_xxh3;
    if (base != kNoHead) set_base(file, base, found.info.base->length);
    return true;
}

// As many of left_ as have their bases.
void HeadTier::add_left() {
    for (size_t before = left_.size() + 1; left_.size() < before;) {
        before = left_.size();
        std::erase_if(left_, [&](const FileHeader& found) { return add_found(found); });
    }
}

// Oldest first, so that the order of use survives a restart. Parts without their bases are of no use; where a base may
// be in a file that could not be read, they stay for the next process.
Status HeadTier::read_folder() {
    std::error_code ignored;
    seen_at_ = std::filesystem::last_write_time(config_.folder, ignored);
    ASSIGN_OR_RETURN(const auto paths, head_files(config_.folder, !config_.read_only));
    for (const auto& [time, path] : paths) {
        if (config_.read_only) seen_[path.stem().string()] = time;
        if (auto header = read_header(path)) left_.push_back(*std::move(header));
    }
    add_left();
    if (!config_.read_only) {
        for (const FileHeader& orphan : std::exchange(left_, {}))
            if (!has_unread_) std::filesystem::remove(orphan.path, ignored);
        if (config_.notes_owners) RETURN_IF_ERROR(read_owners());
        static_cast<void>(make_room(0, kNoHead));
    }
    counts_.num_files = static_cast<int64_t>(files_.size());
    counts_.num_bytes = num_bytes_;
    return {};
}

// --- a folder that another process writes to

// What came and went since the last look. The reader's.
void HeadTier::scan() {
    std::error_code failed;
    const auto changed_at = std::filesystem::last_write_time(config_.folder, failed);
    if (failed) return;  // what is there is found again when the folder is
    // Within a tick of its last change a folder may change again and keep its time.
    constexpr auto kTick = std::chrono::milliseconds(20);
    const bool is_settled =
        changed_at == seen_at_ && std::filesystem::file_time_type::clock::now() - changed_at > kTick;
    if (is_settled) return;
    const auto paths = head_files(config_.folder, false);
    if (!paths) return;
    seen_at_ = changed_at;
    std::vector<FileHeader> come;
    std::unordered_map<std::string, std::filesystem::file_time_type> there;
    for (const auto& [time, path] : *paths) {
        const std::string name = path.stem().string();
        there[name] = time;
        const auto before = seen_.find(name);
        if (before != seen_.end() && before->second == time) continue;
        if (auto header = read_header(path)) come.push_back(*std::move(header));
    }
    std::vector<std::string> gone;  // or another one now
    for (const auto& [name, time] : seen_) {
        const auto now = there.find(name);
        if (now == there.end() || now->second != time) gone.push_back(name);
    }
    seen_ = std::move(there);
    const std::lock_guard lock(mutex_);
    std::ranges::move(come, std::back_inserter(scanned_));
    std::ranges::move(gone, std::back_inserter(vanished_));
}

void HeadTier::take_scanned() {
    CHECK(config_.read_only, "{} is this process's", config_.folder.string());
    std::vector<std::string> gone;
    std::vector<FileHeader> come;
    {
        const std::lock_guard lock(mutex_);
        come.swap(scanned_);
        gone.swap(vanished_);
        scans_ = true;
    }
    changed_.notify_all();
    for (const std::string& name : gone) {
        std::erase_if(left_, [&](const FileHeader& found) { return found.path.stem().string() == name; });
        if (const auto known = by_name_.find(name); known != by_name_.end()) drop(known->second);
    }
    std::ranges::move(come, std::back_inserter(left_));
    add_left();
    const std::lock_guard lock(mutex_);
    counts_.num_files = static_cast<int64_t>(files_.size());
    counts_.num_bytes = num_bytes_;
}

// --- files

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
    CHECK(by_name_.emplace(file->name, file->head.id).second, "head {} is here", file->name);
    index_.insert(file->head);
    num_bytes_ += bytes;
    File& added = *(files_[file->head.id] = std::move(file));
    CHECK(files_.size() == by_name_.size() && files_.size() == by_use_.size(), "{} heads, {} names, {} in order of use",
          files_.size(), by_name_.size(), by_use_.size());
    return added;
}

std::filesystem::path HeadTier::path_of(const std::string& name) const {
    return config_.folder / (name + std::string(kSuffix));
}

void HeadTier::set_base(File& file, HeadId base, int64_t length) {
    File& beginning = *files_.at(base);
    CHECK(file.base == kNoHead && length > 0 && length <= beginning.head.length(), "{} of {} tokens", length,
          beginning.head.length());
    file.base = base;
    file.base_length = length;
    file.num_bases = beginning.num_bases + 1;
    beginning.parts.push_back(file.head.id);
}

// The file that has the tensors of the most first tokens, if that is worth a part. A long chain of bases ends with a
// whole file.
auto HeadTier::base_for(const CacheSalt& salt, const TokenSeq& tokens) const -> Beginning {
    if (!config_.tensors.has_any(reference::StatePer::kToken)) return {};
    const PrefixIndex::Common common =
        index_.longest_common({.salt = salt, .tokens = tokens, .numerics_id = &config_.numerics});
    if (common.head == nullptr || common.length < config_.min_tokens) return {};
    if (files_.at(common.head->id)->num_bases >= kMaxBases) return {};
    return {common.head->id, common.length};
}

void HeadTier::use(File& file) {
    by_use_.splice(by_use_.end(), by_use_, file.place);
    CHECK(by_use_.back() == file.head.id, "head {} is not used last", index(file.head.id));
    if (file.base != kNoHead) use(*files_.at(file.base));
}

// Forgets the file and the parts that begin in it; their bytes are free once the thread has removed them.
void HeadTier::drop(HeadId id) {
    const auto found = files_.find(id);
    if (found == files_.end()) return;
    File& file = *found->second;
    while (!file.parts.empty()) drop(file.parts.back());
    if (file.base != kNoHead) CHECK_EQ(std::erase(files_.at(file.base)->parts, id), size_t{1});
    index_.erase(file.head);
    CHECK_EQ(by_name_.erase(file.name), size_t{1});
    by_use_.erase(file.place);
    num_bytes_ -= file.bytes;
    CHECK_GE(num_bytes_, 0);
    Job job;
    job.path = path_of(file.name);
    job.removes = true;
    job.owners = owners_.erase(file.name);
    if (config_.read_only) header_xxh3_.erase(file.name);
    files_.erase(found);
    if (!config_.read_only) enqueue(std::move(job));
}

void HeadTier::drop_failed() {
    std::vector<HeadId> failed;
    {
        const std::lock_guard lock(mutex_);
        failed.swap(failed_);
    }
    for (const HeadId id : failed) drop(id);
}

// `except` and what it begins in stay: a file has at least as late a use as what begins in it.
bool HeadTier::make_room(int64_t bytes, HeadId except) {
    auto oldest = by_use_.begin();
    while (num_bytes_ + bytes > config_.max_bytes && oldest != by_use_.end()) {
        const HeadId id = *oldest;
        if (!files_.at(id)->parts.empty() || id == except) {
            ++oldest;
            continue;
        }
        give_on(*files_.at(id));
        drop(id);
        oldest = by_use_.begin();
    }
    CHECK(!by_use_.empty() || num_bytes_ == 0, "{} bytes of no head", num_bytes_);
    return num_bytes_ + bytes <= config_.max_bytes;
}

// --- calls

auto HeadTier::find(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length) -> std::optional<Found> {
    drop_failed();
    if (config_.read_only) take_scanned();
    const Head* head =
        index_.longest_prefix({.salt = salt, .tokens = tokens, .numerics_id = &config_.numerics}, max_length);
    if (head == nullptr) return std::nullopt;
    CHECK(head->length() <= max_length && files_.contains(head->id), "head {} of {} tokens, of {} at most",
          index(head->id), head->length(), max_length);
    return Found{.id = head->id, .length = head->length()};
}

int64_t HeadTier::num_read_bytes(const Found& found) const {
    CHECK(found.first_token >= 0 && found.first_token <= found.length, "{} of {} tokens", found.first_token,
          found.length);
    return reference::head_num_bytes(config_.tensors, found.length - found.first_token);
}

void HeadTier::load(const Found& found, std::function<void(FilePtr)> loaded, const ReadingPtr& reading) {
    const auto known = files_.find(found.id);
    if (known == files_.end()) return loaded(nullptr);
    File& file = *known->second;
    use(file);
    Job job;
    job.path = path_of(file.name);
    job.loaded = std::move(loaded);
    if (reading) job.reading = reading;
    job.id = found.id;
    job.first_token = found.first_token;
    job.tokens = file.head.tokens.to_vector();
    CHECK_EQ(std::ssize(job.tokens), found.length);
    for (HeadId base = file.base; base != kNoHead; base = files_.at(base)->base)
        job.bases.emplace_back(base, path_of(files_.at(base)->name));
    enqueue(std::move(job));
}

bool HeadTier::wants(const CacheSalt& salt, const TokenSeq& tokens, const std::string& numerics) {
    if (config_.read_only || numerics != config_.numerics || tokens.size() < config_.min_tokens) return false;
    drop_failed();
    if (const auto known = by_name_.find(name_of(salt, tokens)); known != by_name_.end()) {
        use(*files_.at(known->second));
        return false;
    }
    const int64_t bytes = reference::head_num_bytes(config_.tensors, tokens.size() - base_for(salt, tokens).length);
    const std::lock_guard lock(mutex_);
    const bool may_wait = waiting_bytes_ == 0 || waiting_bytes_ + bytes <= config_.max_waiting_bytes;
    const bool has_room = may_wait && bytes <= config_.max_bytes;
    counts_.not_written += has_room ? 0 : 1;
    return has_room;
}

void HeadTier::put(const CacheSalt& salt, HeadCopy head, std::span<const std::string> owners) {
    const std::string name = name_of(salt, head.tokens);
    if (config_.read_only || by_name_.contains(name)) return;
    const Beginning beginning = base_for(salt, head.tokens);
    const int64_t length = head.tokens.size();
    if (beginning.length > 0) {
        use(*files_.at(beginning.base));
        head.bytes = reference::without_base(config_.tensors, length, beginning.length, head.bytes);
    }
    CHECK_EQ(std::ssize(head.bytes), reference::head_num_bytes(config_.tensors, length - beginning.length));
    const int64_t bytes = std::ssize(head.bytes) + length * int64_t{sizeof(TokenId)};
    if (!make_room(bytes, beginning.base)) {
        const std::lock_guard lock(mutex_);
        ++counts_.not_written;
        return;
    }
    std::vector<TokenId> tokens = head.tokens.to_vector();
    File& file = add(salt, tokens, name, bytes);
    Job job{.num_bytes = bytes};
    job.path = path_of(file.name);
    job.info = HeadInfo{config_.model, config_.numerics, head.digest, salt.value, std::move(tokens), {}};
    if (beginning.length > 0) {
        set_base(file, beginning.base, beginning.length);
        job.info->base = reference::HeadBase{files_.at(beginning.base)->name, beginning.length, {}};
    }
    job.bytes = std::move(head.bytes);
    job.id = file.head.id;
    job.owners = add_owners(name, owners);
    enqueue(std::move(job));
}

void HeadTier::note_restored(const Found& found, const HeadFile& file) {
    const std::lock_guard lock(mutex_);
    ++counts_.restored;
    counts_.restored_bytes += std::ssize(file.bytes());
    counts_.restored_tokens += found.length;
}

void HeadTier::note_not_kept() {
    const std::lock_guard lock(mutex_);
    ++counts_.not_kept;
}

void HeadTier::note_no_room() {
    const std::lock_guard lock(mutex_);
    ++counts_.no_room;
}

void HeadTier::note_not_worth() {
    const std::lock_guard lock(mutex_);
    ++counts_.not_worth;
}

int64_t HeadTier::expected_read_ns(int64_t num_bytes) const {
    const std::lock_guard lock(mutex_);
    if (counts_.read_bytes < kMiB) return num_bytes / kMiB * kAssumedNsPerMiB;
    return static_cast<int64_t>(static_cast<double>(num_bytes) * static_cast<double>(counts_.read_ns) /
                                static_cast<double>(counts_.read_bytes));
}

HeadTierCounts HeadTier::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

// --- the threads

// A base waits no longer than the parts that begin in it.
bool HeadTier::is_waiting_to_be_written(HeadId id) const {
    return (writes_.is_busy && writes_.at_work == id) ||
           std::ranges::find(writes_.jobs, id, &Job::id) != writes_.jobs.end();
}

void HeadTier::enqueue(Job job) {
    {
        const std::lock_guard lock(mutex_);
        CHECK(!config_.read_only || job.loaded, "{} is another process's", config_.folder.string());
        waiting_bytes_ += static_cast<int64_t>(job.bytes.size());
        counts_.num_files = static_cast<int64_t>(files_.size());
        counts_.num_bytes = num_bytes_;
        const bool reads = job.loaded && !is_waiting_to_be_written(job.id);
        (reads ? reads_ : writes_).jobs.push_back(std::move(job));
    }
    changed_.notify_all();
}

void HeadTier::wait_until_written() {
    std::unique_lock lock(mutex_);
    const auto is_done = [](const Queue& queue) { return queue.jobs.empty() && !queue.is_busy; };
    changed_.wait(lock, [&] { return is_done(reads_) && is_done(writes_) && !scans_; });
}

// False: the tier ends, and nothing is left to do.
bool HeadTier::take_job(Queue& queue, std::unique_lock<Mutex>& lock, Job& job) {
    changed_.wait(lock, [&] { return !queue.jobs.empty() || stopping_ || (scans_ && &queue == &reads_); });
    if (queue.jobs.empty()) return !stopping_;
    job = std::move(queue.jobs.front());
    queue.jobs.pop_front();
    queue.at_work = job.id;
    return true;
}

void HeadTier::run(Queue& queue) {
    std::unique_lock lock(mutex_);
    for (Job job; take_job(queue, lock, job); job = {}) {
        CHECK(!queue.is_busy, "two threads take jobs of one queue");
        queue.is_busy = true;
        const bool scans = &queue == &reads_ && scans_;
        lock.unlock();
        if (!job.path.empty()) carry_out(job);
        if (scans) scan();
        lock.lock();
        queue.is_busy = false;
        if (scans) scans_ = false;
        waiting_bytes_ -= static_cast<int64_t>(job.bytes.size());
        CHECK_GE(waiting_bytes_, 0);
        changed_.notify_all();
    }
}

void HeadTier::carry_out(Job& job) {
    if (job.reading && job.reading->expired()) return job.loaded(nullptr);
    if (job.loaded) return read(job);
    if (job.makes_whole) return make_whole(job);
    if (job.take) {
        auto file = calls_.read(job.path, 0);
        return job.take(job.id, file ? std::make_shared<const HeadFile>(*std::move(file)) : nullptr);
    }
    if (job.info) return write(job);
    if (job.removes) return remove(job);
    note_owners(job.owners);
}

void HeadTier::read(Job& job) {
    CHECK(job.first_token >= 0 && job.first_token <= std::ssize(job.tokens), "from token {} of {}", job.first_token,
          job.tokens.size());
    const auto begin = steady_now();
    auto file = calls_.read(job.path, job.first_token);
    if (!file && is_damage(file.error()) && !job.bases.empty() && is_whole(job.path))
        file = calls_.read(job.path, job.first_token);
    // Another file may have taken its place.
    if (file && (file->info().tokens != job.tokens || file->info().numerics != config_.numerics ||
                 !file->check_model(config_.model, config_.tensors)))
        file = error("{}: is not the head that was here", job.path.string());
    const int64_t took_ns = std::chrono::nanoseconds(steady_now() - begin).count();
    {
        const std::lock_guard lock(mutex_);
        counts_.read_ns += took_ns;
        counts_.read_bytes += file ? file->num_read_bytes() : 0;
    }
    if (!file) return fail(job, is_damage(file.error()));
    job.loaded(std::make_shared<const HeadFile>(*std::move(file)));
}

// A part that is damaged or gone leaves, and so do those of its bases that are. The request does not wait for them.
void HeadTier::fail(const Job& job, bool is_damaged) {
    if (is_damaged) {
        std::error_code ignored;
        const bool is_there = std::filesystem::exists(job.path, ignored);
        const std::lock_guard lock(mutex_);
        counts_.damaged += is_there ? 1 : 0;
        failed_.push_back(job.id);
    }
    job.loaded(nullptr);
    if (!is_damaged) return;
    for (const auto& [base, path] : job.bases) {
        const auto file = calls_.read(path, 0);
        const std::lock_guard lock(mutex_);
        if (!file && is_damage(file.error())) failed_.push_back(base);
    }
}

void HeadTier::write(Job& job) {
    Result<std::string> written = write_file(job);
    const std::lock_guard lock(mutex_);
    counts_.written += written ? 1 : 0;
    counts_.written_bytes += written ? static_cast<int64_t>(job.bytes.size()) : 0;
    counts_.not_written += written ? 0 : 1;
    counts_.problem = written ? "" : written.error().message;
    if (!written) {
        failed_.push_back(job.id);
        --counts_.num_files;  // as drop_failed() leaves them
        counts_.num_bytes -= job.num_bytes;
    } else {
        header_xxh3_[job.path.stem().string()] = *std::move(written);
    }
}

// The written file's header_xxh3. A file whose owners cannot be noted is not written: a delete would leave it.
Result<std::string> HeadTier::write_file(Job& job) {
    CHECK(job.info.has_value(), "{}: nothing to write", job.path.string());
    RETURN_IF_ERROR(append_owners(job.owners));
    if (job.info->base) {
        const auto base = header_xxh3_.find(job.info->base->name);
        if (base == header_xxh3_.end())
            return error("{}: {}, which it begins in, was not written", job.path.string(), job.info->base->name);
        job.info->base->header_xxh3 = base->second;
    }
    return calls_.write(job.path, *job.info, config_.tensors, job.bytes);
}

}  // namespace verbatim::server
