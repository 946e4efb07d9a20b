#include "server/heads/tier_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

using std::chrono::steady_clock;

int64_t ns_since(steady_clock::time_point begin) { return std::chrono::nanoseconds(steady_now() - begin).count(); }

TokenSeq prompt_of(const ChatRequest& request) {
    TokenSeq tokens;
    for (const Message& message : request.messages) tokens.append(message.tokens);
    return tokens;
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

TierLink::TierLink(Engine& engine, HeadTier& tier, RestorePolicy policy, std::function<void()> wake)
    : engine_(engine), tier_(tier), rule_(policy), wake_(std::move(wake)) {
    engine_.on_evict([this](const Head& head) { keep(head); });
    engine_.on_attach([this](const Sequence& sequence, int64_t length) { return ask(sequence, length); });
}

TierLink::~TierLink() {
    engine_.on_evict(nullptr);
    engine_.on_attach(nullptr);
}

void TierLink::note_step(const StepPlan& plan, int64_t took_ns) {
    RestoreRule::StepTokens tokens;
    for (const ScheduledSequence& sequence : plan.sequences) tokens.add(sequence.num_new_tokens);
    stepping_ns_ += took_ns;
    rule_.note_step(tokens, took_ns);
}

// --- what is read

int64_t TierLink::num_held(const ConversationKey& key, const TokenSeq& prompt) const {
    return engine_.cache().lookup({.key = key, .tokens = prompt, .numerics_id = numerics()}).length;
}

// Of a head's tokens, in full blocks.
int64_t TierLink::num_resident(const CacheSalt& salt, const TokenSeq& head) const {
    return engine_.cache().resident_prefix(salt, head, numerics()).length;
}

auto TierLink::longer_head(const CacheSalt& salt, const TokenSeq& tokens, int64_t num_held) -> Worth {
    CHECK_GE(num_held, 0);
    if (rule_.policy() == RestorePolicy::kNever || tokens.empty()) return {};
    auto found = tier_.find(salt, tokens, tokens.size() - 1);
    if (!found || found->length <= num_held) return {};
    found->first_token = num_resident(salt, tokens.slice(0, found->length));
    found->num_saved = found->length - num_held;
    if (rule_.pays(found->num_saved, tier_.expected_read_ns(tier_.num_read_bytes(*found)))) return {found, 0};
    return {std::nullopt, found->length};
}

std::optional<HeadTier::Found> TierLink::worth_restoring(ChatRequest& request) {
    if (!request.use_cache) return std::nullopt;
    const TokenSeq prompt = prompt_of(request);
    const Worth worth = longer_head(request.conversation.salt, prompt, num_held(request.conversation, prompt));
    if (worth.num_unrestored > 0) tier_.note_not_worth();
    request.num_unrestored = worth.num_unrestored;
    return worth.found;
}

bool TierLink::has_lost(const HeadTier::Found& found, steady_clock::time_point since) const {
    return rule_.has_lost(found.num_saved, tier_.expected_read_ns(tier_.num_read_bytes(found)), ns_since(since));
}

void TierLink::import(const reference::HeadFile& file, const HeadTier::Found& found, const ChatRequest& request) {
    import(file, found, request.conversation, prompt_of(request));
}

bool TierLink::import(const reference::HeadFile& file, const HeadTier::Found& found, const ConversationKey& key,
                      const TokenSeq& prompt) {
    CHECK_EQ(file.info().length(), found.length);
    if (num_held(key, prompt) >= found.length) return true;
    if (!import_file(file, key, engine_)) return false;
    tier_.note_restored(found, file);
    return true;
}

// --- what requests wait for that are about to attach

bool TierLink::ask(const Sequence& sequence, int64_t length) {
    CHECK(!awaited_.contains(sequence.id), "request {} waits for a head", index(sequence.id));
    if (!sequence.request.use_cache || sequence.is_scored()) return false;
    Tries& tries = tries_[sequence.id];
    if (tries.num_reads >= kMaxReads || awaited_.size() >= kMaxAwaited) return false;
    const int64_t num_lost = sequence.request.num_unrestored;  // when it came
    const Worth worth = longer_head(sequence.request.conversation.salt, sequence.known, length);
    if (worth.found) {
        if (worth.found->length <= num_lost || worth.found->id == tries.failed) return false;
        ++tries.num_reads;
        Awaited& awaited = awaited_[sequence.id];
        awaited = {.found = *worth.found, .since = steady_now()};
        load(sequence.id, awaited);
        return true;
    }
    const bool is_new = worth.num_unrestored != tries.num_unrestored && worth.num_unrestored != num_lost;
    if (is_new && worth.num_unrestored > 0) tier_.note_not_worth();
    tries.num_unrestored = worth.num_unrestored;
    return false;
}

void TierLink::load(RequestId request, Awaited& awaited) {
    awaited.reading = std::make_shared<HeadTier::Reading>();
    {
        const std::lock_guard lock(inbox_->mutex);
        ++inbox_->num_reads;
    }
    const auto loaded = [request, inbox = inbox_, wake = wake_](HeadTier::FilePtr file) {
        {
            const std::lock_guard lock(inbox->mutex);
            --inbox->num_reads;
            inbox->files.emplace_back(request, std::move(file));
        }
        inbox->changed.notify_all();
        if (wake) wake();
    };
    tier_.load(awaited.found, loaded, awaited.reading);
}

void TierLink::wait_for_heads() {
    std::unique_lock lock(inbox_->mutex);
    inbox_->changed.wait(lock, [&] { return inbox_->num_reads == 0; });
}

bool TierLink::has_arrived() const {
    const std::lock_guard lock(inbox_->mutex);
    return !inbox_->files.empty();
}

void TierLink::take_in_files() {
    std::vector<std::pair<RequestId, HeadTier::FilePtr>> files;
    {
        const std::lock_guard lock(inbox_->mutex);
        files.swap(inbox_->files);
    }
    for (auto& [request, file] : files) {
        const auto awaited = awaited_.find(request);
        if (awaited == awaited_.end()) continue;  // it waits no more
        awaited->second.is_here = true;
        awaited->second.file = std::move(file);
    }
}

void TierLink::bring() {
    take_in_files();  // what comes too late is let go of
    if (awaited_.empty()) return forget_tries();
    for (auto next = awaited_.begin(); next != awaited_.end();) {
        const auto awaited = next++;
        if (engine_.find(awaited->first) == nullptr) {
            awaited_.erase(awaited);
        } else if (settle(awaited->first, awaited->second)) {
            engine_.stop_awaiting(awaited->first);
            awaited_.erase(awaited);
        }
    }
}

// Where there is no room while nothing runs, there never is.
bool TierLink::settle(RequestId request, Awaited& awaited) {
    const Sequence& sequence = *engine_.find(request);
    const ConversationKey& key = sequence.request.conversation;
    CHECK(sequence.awaits_head, "request {} is not awaiting a head", index(request));
    Tries& tries = tries_[request];
    if (!awaited.is_here) {
        if (!has_lost(awaited.found, awaited.since)) return false;
        tries = {.num_reads = kMaxReads, .num_unrestored = awaited.found.length, .failed = kNoHead};
        tier_.note_not_worth();
        return true;
    }
    if (awaited.file == nullptr) {
        tries.failed = awaited.found.id;
        return true;
    }
    const bool is_alone = engine_.scheduler().running().empty();
    // Room comes for sure: only what computing is quicker than is not waited for.
    const bool may_wait = !is_alone && rule_.pays(awaited.found.num_saved, ns_since(awaited.since));
    if (!is_alone && !engine_.has_room_for_head(request)) return !may_wait && give_up(tries);
    const int64_t num_here = num_resident(key.salt, sequence.known.slice(0, awaited.found.length));
    if (num_here < awaited.file->first_token()) {  // what was resident has gone
        if (tries.num_reads++ >= kMaxReads) return true;
        awaited.found.first_token = num_here;
        awaited.is_here = false;
        awaited.file.reset();
        load(request, awaited);
        return false;
    }
    if (import(*awaited.file, awaited.found, key, sequence.known)) return true;
    return (!may_wait || ++tries.num_reads >= kMaxReads) && give_up(tries);
}

// There is no room for what was read. True.
bool TierLink::give_up(Tries& tries) {
    tries.num_reads = kMaxReads;
    tier_.note_no_room();
    return true;
}

// Of requests that are over.
void TierLink::forget_tries() {
    constexpr size_t kMany = 256;
    if (tries_.size() > kMany) std::erase_if(tries_, [&](const auto& of) { return engine_.find(of.first) == nullptr; });
}

void TierLink::forget(const CacheSalt& salt, const TokenSeq& committed) {
    if (committed.empty()) return;
    while (const auto found = tier_.find(salt, committed, committed.size())) tier_.forget(found->id);
}

// --- what is written

// A suffix goes on from the turn's head; a client that sends the text again, from the newest prompt's.
void TierLink::note_committed(const ConversationKey& key) {
    const Name* name = engine_.cache().find(key);
    if (name == nullptr) return;
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
        tier_.wait_until_written();
        keep_first();
    }
}

void TierLink::keep_first() {
    const Head* head = engine_.cache().find(committed_.front());
    committed_.pop_front();
    if (head != nullptr) keep(*head);
}

void TierLink::keep(const Head& head) {
    if (!tier_.wants(head.salt, head.tokens, head.numerics_id)) return;
    const HeadTier::Found kept{.id = head.id, .length = head.length()};
    const bool is_of_use = rule_.policy() != RestorePolicy::kAuto ||
                           rule_.pays(head.length(), tier_.expected_read_ns(tier_.num_read_bytes(kept)));
    if (!is_of_use) return tier_.note_not_kept();
    const auto begin = steady_now();
    if (auto copy = engine_.copy_of(head)) tier_.put(head.salt, *std::move(copy));
    keeping_ns_ += ns_since(begin);
}

}  // namespace verbatim::server
