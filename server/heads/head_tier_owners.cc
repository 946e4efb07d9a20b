// Which files go with a conversation that is deleted, and which stay.
#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/base/check.h"
#include "files/appended_file.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "reference/head_digest.h"
#include "server/heads/head_tier.h"

namespace verbatim::server {
namespace {

constexpr const char* kOwnersFile = "owners";
constexpr size_t kMaxOwnersBytes = size_t{1} << 30;
constexpr size_t kMaxChangeBytes = size_t{1} << 20;

bool is_gone(const std::filesystem::path& path) {
    std::error_code failed;
    return !std::filesystem::exists(path, failed) && !failed;
}

}  // namespace

void HeadFolder::remove(const std::filesystem::path& path) {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
}

Status HeadFolder::append(const std::filesystem::path& path, std::string_view lines) {
    return files::append_to_file(path, lines);
}

// What the folder's files belong to, in as few lines as say it, if there is room for them. Files of other models have
// owners, too, and those that could not be read may be read later.
Status HeadTier::read_owners() {
    const std::filesystem::path path = config_.folder / kOwnersFile;
    if (is_gone(path)) return {};
    ASSIGN_OR_RETURN(const std::string lines, read_text_file(path, kMaxOwnersBytes));
    owners_ = HeadOwners::parse(lines);
    for (const std::string& name : owners_.names())
        if (!by_name_.contains(name) && is_gone(path_of(name))) static_cast<void>(owners_.erase(name));
    const std::string fewest = owners_.lines();
    fewest_bytes_ = fewest.size();
    if (fewest != lines && !files::write_file(path, fewest)) has_torn_line_ = !lines.empty() && lines.back() != '\n';
    return {};
}

// The lines that say so.
std::string HeadTier::add_owners(const std::string& name, std::span<const std::string> owners) {
    CHECK(!config_.read_only, "{} is another process's", config_.folder.string());
    std::string lines;
    for (const std::string& owner : owners) lines += owners_.add(name, owner);
    return lines;
}

// The writer's. What could not be appended before comes first: the same lines twice change nothing.
Status HeadTier::append_owners(const std::string& lines) {
    if (!config_.notes_owners) return {};
    pending_owners_ += lines;
    if (pending_owners_.empty()) return {};
    const Status appended =
        calls_.append(config_.folder / kOwnersFile, has_torn_line_ ? "\n" + pending_owners_ : pending_owners_);
    has_torn_line_ = !appended;
    if (!appended) return appended;
    appended_bytes_ += std::exchange(pending_owners_, {}).size();
    if (appended_bytes_ > 2 * fewest_bytes_ + kMaxChangeBytes) compact_owners();
    return {};
}

// The writer's. Nothing of conversations that are gone stays in the file. If that fails, it is tried again later.
void HeadTier::compact_owners() {
    appended_bytes_ = 0;
    const std::filesystem::path path = config_.folder / kOwnersFile;
    const auto lines = read_text_file(path, kMaxOwnersBytes);
    if (!lines) return;
    const std::string fewest = HeadOwners::parse(*lines).lines();
    if (files::write_file(path, fewest)) fewest_bytes_ = fewest.size();
}

// The writer's.
void HeadTier::note_owners(const std::string& lines) {
    const Status noted = append_owners(lines);
    if (noted) return;
    const std::lock_guard lock(mutex_);
    ++counts_.not_written;
    counts_.problem = noted.error().message;
}

// The writer's. A file that is still there has its owners still: a later process finds it when they are deleted.
void HeadTier::remove(const Job& job) {
    header_xxh3_.erase(job.path.stem().string());
    calls_.remove(job.path);
    note_owners(is_gone(job.path) ? job.owners : "");
}

// The writer appends them, behind what waits.
void HeadTier::enqueue_owners(std::string lines) {
    if (lines.empty()) return;
    Job job;
    job.path = config_.folder / kOwnersFile;
    job.owners = std::move(lines);
    enqueue(std::move(job));
}

void HeadTier::own(const CacheSalt& salt, const TokenSeq& tokens, std::span<const std::string> owners) {
    if (config_.read_only) return;
    const std::string name = name_of(salt, tokens);
    if (by_name_.contains(name)) enqueue_owners(add_owners(name, owners));
}

void HeadTier::share(const ConversationKey& from, const ConversationKey& to, const TokenSeq& committed) {
    if (config_.read_only) return;
    std::string lines;
    const std::string owner = HeadOwners::owner_of(to);
    for (const std::string& name : owners_.names_of(HeadOwners::owner_of(from))) {
        const auto known = by_name_.find(name);
        if (known == by_name_.end()) continue;
        if (committed.starts_with(files_.at(known->second)->head.tokens)) lines += add_owners(name, {&owner, 1});
    }
    enqueue_owners(std::move(lines));
}

// The files that hold beginnings of these tokens and belong to no conversation.
std::vector<HeadId> HeadTier::without_owner(const CacheSalt& salt, const TokenSeq& committed) {
    std::vector<HeadId> ids;
    int64_t longest = committed.size();
    while (const Head* head =
               index_.longest_prefix({.salt = salt, .tokens = committed, .numerics_id = &config_.numerics}, longest)) {
        if (!owners_.has_any(files_.at(head->id)->name)) ids.push_back(head->id);
        CHECK_LE(head->length(), longest);
        longest = head->length() - 1;
    }
    return ids;
}

void HeadTier::forget(const ConversationKey& key, const TokenSeq& committed) {
    drop_failed();
    if (config_.read_only) take_scanned();
    std::string lines;
    std::unordered_set<HeadId> going;
    const std::string owner = HeadOwners::owner_of(key);
    for (const std::string& name : owners_.names_of(owner)) {
        const auto known = by_name_.find(name);
        if (known == by_name_.end()) continue;  // another model's
        if (owners_.owners_of(name).size() == 1)
            going.insert(known->second);  // it has its owner until it is removed
        else
            lines += owners_.remove(name, owner);
    }
    enqueue_owners(std::move(lines));
    for (const HeadId id : without_owner(key.salt, committed)) going.insert(id);
    if (!config_.read_only)
        for (const HeadId id : going) make_parts_whole(id, going);
    for (const HeadId id : going) drop(id);
    if (!config_.read_only) static_cast<void>(make_room(0, kNoHead));
}

// Those that begin in others of them come first: whenever the process ends, every part has its base.
void HeadTier::make_parts_whole(HeadId id, const std::unordered_set<HeadId>& going) {
    for (const HeadId part : std::vector(files_.at(id)->parts)) {
        make_parts_whole(part, going);
        if (going.contains(part)) continue;
        File& file = *files_.at(part);
        const auto goes = [&](HeadId next) { return going.contains(next); };
        CHECK(file.base == id && std::ranges::all_of(file.parts, goes), "parts begin in part {}", file.name);
        const int64_t length = file.head.length();
        const int64_t added = reference::head_num_bytes(config_.tensors, length) -
                              reference::head_num_bytes(config_.tensors, length - file.base_length);
        std::erase(files_.at(id)->parts, part);
        file.base = kNoHead;
        file.base_length = 0;
        file.num_bases = 0;
        CHECK_GE(added, 0);
        file.bytes += added;
        num_bytes_ += added;
        Job job;
        job.path = path_of(file.name);
        job.id = part;
        job.makes_whole = true;
        enqueue(std::move(job));
    }
}

// The writer's.
void HeadTier::make_whole(Job& job) {
    const auto rewrite = [&]() -> Result<std::string> {
        ASSIGN_OR_RETURN(const reference::HeadFile file, calls_.read(job.path, 0));
        reference::HeadInfo info = file.info();
        CHECK_EQ(std::ssize(file.bytes()), reference::head_num_bytes(config_.tensors, info.length()));
        info.base.reset();
        return calls_.write(job.path, info, config_.tensors, file.bytes());
    };
    Result<std::string> written = rewrite();
    const std::lock_guard lock(mutex_);
    if (written) {
        header_xxh3_[job.path.stem().string()] = *std::move(written);
    } else {
        ++counts_.not_written;
        counts_.problem = written.error().message;
        failed_.push_back(job.id);
    }
}

// --- what leaves for want of room

void HeadTier::on_overflow(Overflow overflow) {
    CHECK(!config_.read_only && !overflow.wants == !overflow.take, "{} is another process's", config_.folder.string());
    overflow_ = std::move(overflow);
}

void HeadTier::give_on(const File& file) {
    if (!overflow_.wants || !overflow_.wants(file.head, owners_.owners_of(file.name))) return;
    CHECK(files_.contains(file.head.id), "head {} is gone", file.name);
    Job job;
    job.path = path_of(file.name);
    job.id = file.head.id;
    job.take = overflow_.take;
    enqueue(std::move(job));
}

}  // namespace verbatim::server
