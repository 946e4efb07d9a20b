#include "engine/head_waits.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

HeadChoice choose_head(const RestoreRule& rule, std::vector<FoundHead> heads, int64_t num_held,
                       const std::function<int64_t(FoundHead&)>& read_ns) {
    CHECK_GE(num_held, 0);
    std::erase_if(heads, [&](const FoundHead& head) { return head.length <= num_held; });
    if (rule.policy() == RestorePolicy::kNever || heads.empty()) return {};
    std::ranges::stable_sort(heads, std::greater{}, &FoundHead::length);
    for (FoundHead& head : heads) {
        head.num_saved = head.length - num_held;
        head.read_ns = read_ns(head);
        if (rule.pays(head.num_saved, head.read_ns)) return {head, 0};
    }
    return {std::nullopt, heads.front().length};
}

HeadWaits::HeadWaits(Engine& engine, HeadSource& tiers, RestorePolicy policy, std::function<int64_t()> now_ns)
    : engine_(engine), tiers_(tiers), rule_(policy), now_ns_(std::move(now_ns)) {
    CHECK(now_ns_ != nullptr, "no clock for policy {}", static_cast<int>(policy));
    engine_.on_attach([this](const Sequence& sequence, int64_t length) { return ask(sequence, length); });
}

int64_t HeadWaits::num_held(const ConversationKey& key, const TokenSeq& prompt) const {
    const std::string& numerics = engine_.scheduler().numerics_ids().front();
    return engine_.cache().lookup({.key = key, .tokens = prompt, .numerics_id = numerics}).length;
}

// Of a head's tokens, in full blocks.
int64_t HeadWaits::num_resident(const CacheSalt& salt, const TokenSeq& head) const {
    return engine_.cache().resident_prefix(salt, head, engine_.scheduler().numerics_ids().front()).length;
}

HeadChoice HeadWaits::longer_head(const CacheSalt& salt, const TokenSeq& tokens, int64_t num_held) {
    CHECK(num_held >= 0 && num_held <= tokens.size(), "{} of {} tokens", num_held, tokens.size());
    if (rule_.policy() == RestorePolicy::kNever || tokens.empty()) return {};
    return choose_head(rule_, tiers_.find(salt, tokens, tokens.size() - 1), num_held, [&](FoundHead& head) {
        CHECK(head.length < tokens.size(), "a head of {} tokens for {}", head.length, tokens.size());
        head.first_token = num_resident(salt, tokens.slice(0, head.length));
        return tiers_.expected_read_ns(head);
    });
}

std::optional<FoundHead> HeadWaits::worth_restoring(ChatRequest& request, const TokenSeq& prompt) {
    if (!request.use_cache || prompt.empty()) return std::nullopt;
    const ConversationKey& key = request.conversation;
    const HeadChoice choice = longer_head(key.salt, prompt, num_held(key, prompt));
    CHECK(!choice.found || choice.num_unrestored == 0, "{} tokens are read and are not", choice.num_unrestored);
    if (choice.num_unrestored > 0) tiers_.note_not_worth();
    request.num_unrestored = choice.num_unrestored;
    return choice.found;
}

bool HeadWaits::has_lost(const FoundHead& found, int64_t waited_ns) const {
    return rule_.has_lost(found.num_saved, found.read_ns, waited_ns);
}

// --- what requests wait for that are about to attach

bool HeadWaits::ask(const Sequence& sequence, int64_t length) {
    CHECK(!awaited_.contains(sequence.id), "request {} waits for a head", index(sequence.id));
    CHECK(length >= 0 && length <= sequence.known.size(), "request {} would attach to {} of {} tokens",
          index(sequence.id), length, sequence.known.size());
    if (!sequence.request.use_cache || sequence.is_scored()) return false;
    Tries& tries = tries_[sequence.id];
    if (tries.num_reads >= kMaxReads || awaited_.size() >= kMaxAwaited) return false;
    const int64_t num_lost = sequence.request.num_unrestored;  // when it came
    const HeadChoice choice = longer_head(sequence.request.conversation.salt, sequence.known, length);
    if (choice.found) {
        const bool has_failed = choice.found->id == tries.failed.id && choice.found->tier == tries.failed.tier;
        if (choice.found->length <= num_lost || has_failed) return false;
        ++tries.num_reads;
        Awaited& awaited = awaited_[sequence.id];
        awaited = {.found = *choice.found, .since_ns = now_ns_()};
        read(sequence.id, awaited);
        return true;
    }
    const bool is_new = choice.num_unrestored != tries.num_unrestored && choice.num_unrestored != num_lost;
    if (is_new && choice.num_unrestored > 0) tiers_.note_not_worth();
    tries.num_unrestored = choice.num_unrestored;
    return false;
}

void HeadWaits::read(RequestId request, Awaited& awaited) {
    CHECK(awaited.found.first_token >= 0 && awaited.found.first_token <= awaited.found.length, "{} of {} tokens",
          awaited.found.first_token, awaited.found.length);
    CHECK_GT(awaited.found.num_saved, 0);
    awaited.is_here = false;
    tiers_.begin_read(request, awaited.found);
}

void HeadWaits::note_read(RequestId request, bool is_whole) {
    const auto awaited = awaited_.find(request);
    if (awaited == awaited_.end()) return tiers_.let_go(request);  // it waits no more
    CHECK(!awaited->second.is_here, "the head of request {} is read twice", index(request));
    awaited->second.is_here = true;
    awaited->second.is_whole = is_whole;
}

void HeadWaits::bring() {
    CHECK_LE(awaited_.size(), kMaxAwaited);
    if (awaited_.empty()) return forget_tries();
    for (auto next = awaited_.begin(); next != awaited_.end();) {
        const auto awaited = next++;
        const RequestId request = awaited->first;
        const bool is_over = engine_.find(request) == nullptr;
        if (!is_over && !settle(request, awaited->second)) continue;
        if (!is_over) engine_.stop_awaiting(request);
        tiers_.let_go(request);
        awaited_.erase(awaited);
    }
}

// Where there is no room while nothing runs, there never is.
bool HeadWaits::settle(RequestId request, Awaited& awaited) {
    const Sequence& sequence = *engine_.find(request);
    const ConversationKey& key = sequence.request.conversation;
    CHECK(sequence.awaits_head, "request {} is not awaiting a head", index(request));
    Tries& tries = tries_[request];
    const int64_t waited_ns = now_ns_() - awaited.since_ns;
    CHECK(waited_ns >= 0 && awaited.found.length <= sequence.known.size(), "request {} of {} tokens waits for {}",
          index(request), sequence.known.size(), awaited.found.length);
    if (!awaited.is_here) {
        if (!has_lost(awaited.found, waited_ns)) return false;
        tries = {.num_reads = kMaxReads, .num_unrestored = awaited.found.length, .failed = {}};
        tiers_.note_not_worth();
        return true;
    }
    if (!awaited.is_whole) {
        tries.failed = awaited.found;
        return true;
    }
    const bool is_alone = engine_.scheduler().running().empty();
    // Room comes for sure: only what computing is quicker than is not waited for.
    const bool may_wait = !is_alone && rule_.pays(awaited.found.num_saved, waited_ns);
    if (!is_alone && !engine_.has_room_for_head(request)) return !may_wait && give_up(tries);
    const int64_t num_here = num_resident(key.salt, sequence.known.slice(0, awaited.found.length));
    if (num_here < awaited.found.first_token) {  // what was resident has gone
        if (tries.num_reads++ >= kMaxReads) return true;
        awaited.found.first_token = num_here;
        read(request, awaited);
        return awaited.is_here && settle(request, awaited);  // it is here at once where it has gone
    }
    if (num_held(key, sequence.known) >= awaited.found.length || tiers_.import(request, awaited.found)) return true;
    return (!may_wait || ++tries.num_reads >= kMaxReads) && give_up(tries);
}

// There is no room for what was read. True.
bool HeadWaits::give_up(Tries& tries) {
    CHECK_GT(tries.num_reads, 0);
    tries.num_reads = kMaxReads;
    tiers_.note_no_room();
    return true;
}

// Of requests that are over.
void HeadWaits::forget_tries() {
    CHECK(awaited_.empty(), "{} requests wait", awaited_.size());
    if (tries_.size() <= kMaxOver) return;
    std::erase_if(tries_, [&](const auto& of) { return engine_.find(of.first) == nullptr; });
}

}  // namespace verbatim
