// Which files go with a conversation that is deleted, and which stay.
#include <algorithm>
#include <system_error>
#include <utility>

#include "engine/base/check.h"
#include "files/appended_file.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "server/heads/head_tier.h"

namespace verbatim::server {
namespace {

constexpr const char* kOwnersFile = "owners";

}  // namespace

Status HeadFolder::append(const std::filesystem::path& path, std::string_view lines) {
    return files::append_to_file(path, lines);
}

// What the folder's files belong to, in as few lines as say it. A file that could not be read may be read later.
Status HeadTier::read_owners() {
    const std::filesystem::path path = config_.folder / kOwnersFile;
    std::error_code failed;
    if (!std::filesystem::exists(path, failed) && !failed) return {};
    constexpr size_t kMaxBytes = size_t{1} << 30;
    ASSIGN_OR_RETURN(const std::string lines, read_text_file(path, kMaxBytes));
    owners_ = HeadOwners::parse(lines);
    if (!has_unread_) {
        for (const std::string& name : owners_.names())
            if (!by_name_.contains(name)) static_cast<void>(owners_.erase(name));
    }
    const std::string fewest = owners_.lines();
    return fewest == lines ? Status() : files::write_file(path, fewest);
}

// The lines that say so.
std::string HeadTier::add_owners(const std::string& name, std::span<const std::string> owners) {
    std::string lines;
    for (const std::string& owner : owners) lines += owners_.add(name, owner);
    return lines;
}

// The writer's.
Status HeadTier::append_owners(const std::string& lines) {
    if (lines.empty()) return {};
    const Status appended = calls_.append(config_.folder / kOwnersFile, has_torn_line_ ? "\n" + lines : lines);
    has_torn_line_ = !appended;
    return appended;
}

void HeadTier::own(const CacheSalt& salt, const TokenSeq& tokens, std::span<const std::string> owners) {
    if (config_.read_only) return;
    const std::string name = name_of(salt, tokens);
    if (!by_name_.contains(name)) return;
    Job job;
    job.path = config_.folder / kOwnersFile;
    job.owners = add_owners(name, owners);
    if (!job.owners.empty()) enqueue(std::move(job));
}

void HeadTier::share(const ConversationKey& from, const ConversationKey& to, const TokenSeq& committed) {
    if (config_.read_only) return;
    Job job;
    job.path = config_.folder / kOwnersFile;
    const std::string owner = HeadOwners::owner_of(to);
    for (const std::string& name : owners_.names_of(HeadOwners::owner_of(from))) {
        const auto known = by_name_.find(name);
        if (known == by_name_.end()) continue;
        const TokenSeq& tokens = files_.at(known->second)->head.tokens;
        const bool is_beginning = tokens.size() <= committed.size() && committed.slice(0, tokens.size()) == tokens;
        if (is_beginning) job.owners += add_owners(name, {&owner, 1});
    }
    if (!job.owners.empty()) enqueue(std::move(job));
}

// The files that hold beginnings of these tokens and belong to no conversation.
std::vector<HeadId> HeadTier::without_owner(const CacheSalt& salt, const TokenSeq& committed) {
    std::vector<HeadId> ids;
    int64_t longest = committed.size();
    while (const Head* head =
               index_.longest_prefix({.salt = salt, .tokens = committed, .numerics_id = &config_.numerics}, longest)) {
        if (!owners_.has_any(files_.at(head->id)->name)) ids.push_back(head->id);
        longest = head->length() - 1;
    }
    return ids;
}

void HeadTier::forget(const ConversationKey& key, const TokenSeq& committed) {
    drop_failed();
    if (config_.read_only) take_scanned();
    Job job;
    job.path = config_.folder / kOwnersFile;
    std::unordered_set<HeadId> going;
    const std::string owner = HeadOwners::owner_of(key);
    for (const std::string& name : owners_.names_of(owner)) {
        job.owners += owners_.remove(name, owner);
        const auto known = by_name_.find(name);
        if (known != by_name_.end() && !owners_.has_any(name)) going.insert(known->second);
    }
    if (!job.owners.empty()) enqueue(std::move(job));
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
        file.bytes += added;
        num_bytes_ += added;
        Job job;
        job.path = path_of(file);
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
    Job job;
    job.path = path_of(file);
    job.id = file.head.id;
    job.take = overflow_.take;
    enqueue(std::move(job));
}

}  // namespace verbatim::server
