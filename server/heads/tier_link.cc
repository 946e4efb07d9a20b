#include "server/heads/tier_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/check.h"
#include "engine/cache/name.h"
#include "server/host_request.h"

namespace verbatim::server {
namespace {

using std::chrono::steady_clock;

int64_t ns_since(steady_clock::time_point begin) { return std::chrono::nanoseconds(steady_now() - begin).count(); }

int64_t now_ns() { return ns_since(steady_clock::time_point()); }

// The conversations that the head belongs, or belonged, to.
std::vector<std::string> owners_of(const Head& head) {
    std::vector<std::string> owners;
    for (const auto* names : {&head.names, &head.former_names})
        for (const Name* name : *names)
            if (!is_unnamed(name->key)) owners.push_back(HeadOwners::owner_of(name->key));
    return owners;
}

}  // namespace

Result<HeadId> import_file(const reference::HeadFile& file, const ConversationKey& key, Engine& engine) {
    return engine.import_head({.key = key,
                               .tokens = engine.token_store().store(file.info().tokens),
                               .numerics_id = file.info().numerics,
                               .digest = {},
                               .bytes = file.bytes(),
                               .first_token = file.first_token()});
}

TierLink::TierLink(Engine& engine, Stores stores, RestorePolicy policy, std::function<void()> wake)
    : engine_(engine),
      host_(stores.host),
      folder_(stores.folder),
      waits_(engine, *this, policy, now_ns),
      wake_(std::move(wake)) {
    for (HeadTier* store : {host_, folder_})
        if (store != nullptr) stores_.push_back(store);
    CHECK(!stores_.empty(), "no place for heads of {}", engine.scheduler().numerics_ids().front());
    engine_.on_evict([this](const Head& head) { keep(head, *stores_.front()); });
    if (host_ != nullptr && folder_ != nullptr) spill_to(*folder_);
}

TierLink::~TierLink() {
    engine_.on_evict(nullptr);
    if (host_ != nullptr) host_->on_overflow({});
}

void TierLink::note_step(const StepPlan& plan, int64_t took_ns) {
    RestoreRule::StepTokens tokens;
    for (const ScheduledSequence& sequence : plan.sequences) tokens.add(sequence.num_new_tokens);
    CHECK_GE(took_ns, 0);
    stepping_ns_ += took_ns;
    waits_.note_step(tokens, took_ns);
}

// --- what is read

std::vector<FoundHead> TierLink::find(const CacheSalt& salt, const TokenSeq& tokens, int64_t max_length) {
    std::vector<FoundHead> heads;
    for (size_t i = 0; i < stores_.size(); ++i) {
        auto found = stores_[i]->find(salt, tokens, max_length);
        if (!found) continue;
        CHECK_LE(found->length, max_length);
        found->tier = static_cast<int32_t>(i);
        heads.push_back(*found);
    }
    return heads;
}

int64_t TierLink::expected_read_ns(const FoundHead& found) const {
    return store_of(found).expected_read_ns(store_of(found).num_read_bytes(found));
}

std::optional<FoundHead> TierLink::worth_restoring(ChatRequest& request, const TokenSeq& prompt) {
    return waits_.worth_restoring(request, prompt);
}

void TierLink::load(const FoundHead& found, std::function<void(HeadTier::FilePtr)> loaded,
                    const HeadTier::ReadingPtr& reading) {
    store_of(found).load(found, std::move(loaded), reading);
}

bool TierLink::has_lost(const FoundHead& found, steady_clock::time_point since) const {
    return waits_.has_lost(found, ns_since(since));
}

void TierLink::import(const reference::HeadFile& file, const FoundHead& found, const ConversationKey& key,
                      const TokenSeq& prompt) {
    if (waits_.num_held(key, prompt) < found.length) import(file, found, key);
}

bool TierLink::import(const reference::HeadFile& file, const FoundHead& found, const ConversationKey& key) {
    CHECK_EQ(file.info().length(), found.length);
    if (!import_file(file, key, engine_)) return false;
    store_of(found).note_restored(found, file);
    return true;
}

// --- what requests wait for that are about to attach

void TierLink::begin_read(RequestId request, const FoundHead& found) {
    const auto reading = std::make_shared<HeadTier::Reading>();
    reads_[request] = {.file = nullptr, .reading = reading};
    {
        const std::lock_guard lock(inbox_->mutex);
        ++inbox_->num_reads;
    }
    const auto loaded = [request, inbox = inbox_, wake = wake_](HeadTier::FilePtr file) {
        {
            const std::lock_guard lock(inbox->mutex);
            CHECK_GT(inbox->num_reads, 0);
            --inbox->num_reads;
            inbox->files.emplace_back(request, std::move(file));
        }
        inbox->changed.notify_all();
        if (wake) wake();
    };
    load(found, loaded, reading);
}

bool TierLink::import(RequestId request, const FoundHead& found) {
    const HeadTier::FilePtr& file = reads_.at(request).file;
    const Sequence* waiting = engine_.find(request);
    CHECK(file != nullptr && waiting != nullptr, "request {} has no head to go on from", index(request));
    return import(*file, found, waiting->request.conversation);
}

void TierLink::wait_for_heads() {
    std::unique_lock lock(inbox_->mutex);
    inbox_->changed.wait(lock, [&] { return inbox_->num_reads == 0; });
}

void TierLink::wait_until_written() {
    for (HeadTier* store : stores_) store->wait_until_written();
}

bool TierLink::has_arrived() const {
    const std::lock_guard lock(inbox_->mutex);
    return !inbox_->files.empty() || !inbox_->spilled.empty();
}

void TierLink::take_in_files() {
    std::vector<std::pair<RequestId, HeadTier::FilePtr>> files;
    {
        const std::lock_guard lock(inbox_->mutex);
        files.swap(inbox_->files);
    }
    for (auto& [request, file] : files) {
        const auto read = reads_.find(request);
        if (read == reads_.end()) continue;  // it waits no more
        const bool is_whole = file != nullptr;
        CHECK(read->second.file == nullptr, "request {} has its head", index(request));
        read->second.file = std::move(file);
        waits_.note_read(request, is_whole);
    }
}

void TierLink::bring() {
    static_cast<void>(take_in_spill());
    take_in_files();  // what comes too late is let go of
    waits_.bring();
}

void TierLink::forget(const ConversationKey& key, const TokenSeq& committed) {
    const std::string owner = HeadOwners::owner_of(key);
    for (auto next = spills_.begin(); next != spills_.end();) {
        const auto spill = next++;
        Spill& head = spill->second;
        const bool is_beginning = head.salt == key.salt && committed.starts_with(head.tokens);
        const bool was_owned = std::erase(head.owners, owner) > 0;
        if (!head.owners.empty() || !(was_owned || is_beginning)) continue;
        spilling_bytes_ -= head.bytes;
        spills_.erase(spill);
        CHECK(spills_.empty() ? spilling_bytes_ == 0 : spilling_bytes_ > 0, "{} bytes of {} heads", spilling_bytes_,
              spills_.size());
    }
    for (HeadTier* store : stores_) store->forget(key, committed);
}

void TierLink::note_forked(const ConversationKey& from, const ConversationKey& to, const TokenSeq& committed) {
    const std::string owner = HeadOwners::owner_of(from);
    for (auto& [id, head] : spills_)
        if (std::ranges::find(head.owners, owner) != head.owners.end() && committed.starts_with(head.tokens))
            head.owners.push_back(HeadOwners::owner_of(to));
    for (HeadTier* store : stores_) store->share(from, to, committed);
}

// --- what is written

// A suffix goes on from the turn's head; a client that sends the text again, from the newest prompt's.
void TierLink::note_committed(const ConversationKey& key) {
    const Name* name = engine_.cache().find(key);
    if (name == nullptr || folder_ == nullptr) return;
    for (const HeadKind kind : {HeadKind::kPrompt, HeadKind::kTurn}) {
        const auto newest = std::find_if(name->heads.rbegin(), name->heads.rend(),
                                         [&](const NamedHead& listed) { return listed.kind == kind; });
        if (newest != name->heads.rend()) committed_.push_back(newest->head);
    }
}

void TierLink::keep_next() {
    const bool may = engine_.idle() || keeping_ns_ * kKeepingShare <= stepping_ns_;
    if (has_committed() && may) keep_first();
}

void TierLink::keep_all() {
    while (has_committed()) {
        wait_until_written();
        keep_first();
    }
    wait_until_written();
    while (take_in_spill()) {
    }
}

void TierLink::keep_first() {
    CHECK(!committed_.empty() && folder_ != nullptr);
    const Head* head = engine_.cache().find(committed_.front());
    committed_.pop_front();
    if (head != nullptr) keep(*head, *folder_);
}

bool TierLink::pays(const Head& head, const HeadTier& store) const {
    const FoundHead kept{.id = head.id, .length = head.length()};
    return waits_.rule().policy() != RestorePolicy::kAuto ||
           waits_.rule().pays(head.length(), store.expected_read_ns(store.num_read_bytes(kept)));
}

void TierLink::keep(const Head& head, HeadTier& store) {
    const std::vector<std::string> owners = owners_of(head);
    store.own(head.salt, head.tokens, owners);
    if (!store.wants(head.salt, head.tokens, head.numerics_id)) return;
    if (!pays(head, store)) return store.note_not_kept();
    const auto begin = steady_now();
    if (auto copy = engine_.copy_of(head)) store.put(head.salt, *std::move(copy), owners);
    keeping_ns_ += ns_since(begin);
}

// --- from host memory to the folder

void TierLink::spill_to(HeadTier& folder) {
    const auto wants = [this, &folder](const Head& head, const std::vector<std::string>& owners) {
        folder.own(head.salt, head.tokens, owners);
        const int64_t bytes = folder.num_read_bytes({.id = head.id, .length = head.length()});
        const bool has_room = spilling_bytes_ == 0 || spilling_bytes_ + bytes <= kMaxSpillingBytes;
        if (!has_room || !folder.wants(head.salt, head.tokens, head.numerics_id)) return false;
        if (!pays(head, folder)) {
            folder.note_not_kept();
            return false;
        }
        CHECK(!spills_.contains(head.id), "head {} is on its way", index(head.id));
        spilling_bytes_ += bytes;
        spills_[head.id] = {head.salt, head.tokens, owners, bytes};
        return true;
    };
    const auto take = [inbox = inbox_, wake = wake_](HeadId id, HeadTier::FilePtr file) {
        {
            const std::lock_guard lock(inbox->mutex);
            inbox->spilled.emplace_back(id, std::move(file));
        }
        if (wake) wake();
    };
    host_->on_overflow({wants, take});
}

// False: none has come.
bool TierLink::take_in_spill() {
    std::pair<HeadId, HeadTier::FilePtr> spilled;
    {
        const std::lock_guard lock(inbox_->mutex);
        if (inbox_->spilled.empty()) return false;
        spilled = std::move(inbox_->spilled.front());
        inbox_->spilled.pop_front();
    }
    const auto& [id, file] = spilled;
    const auto spill = spills_.extract(id);
    if (spill.empty()) return true;  // it was deleted meanwhile
    spilling_bytes_ -= spill.mapped().bytes;
    CHECK_GE(spilling_bytes_, 0);
    const auto begin = steady_now();
    if (file != nullptr) put_in_folder(spill.mapped(), *file);
    keeping_ns_ += ns_since(begin);
    return true;
}

void TierLink::put_in_folder(const Spill& head, const reference::HeadFile& file) {
    const reference::HeadInfo& info = file.info();
    CHECK(folder_ != nullptr && info.length() == head.tokens.size(), "{} tokens of {}", info.length(),
          head.tokens.size());
    if (!folder_->wants(head.salt, head.tokens, info.numerics)) return;
    const std::vector<std::byte> bytes(file.bytes().begin(), file.bytes().end());
    folder_->put(head.salt, {engine_.token_store().store(info.tokens), info.numerics, info.digest, bytes}, head.owners);
}

}  // namespace verbatim::server
