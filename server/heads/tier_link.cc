#include "server/heads/tier_link.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

using std::chrono::steady_clock;

int64_t ns_since(steady_clock::time_point begin) {
    return std::chrono::nanoseconds(steady_clock::now() - begin).count();
}

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
                               .bytes = file.bytes()});
}

TierLink::TierLink(Engine& engine, HeadTier& tier, RestorePolicy policy) : engine_(engine), tier_(tier), rule_(policy) {
    engine_.on_evict([this](const Head& head) { keep(head); });
}

void TierLink::note_step(const StepPlan& plan, int64_t took_ns) {
    RestoreRule::StepTokens tokens;
    for (const ScheduledSequence& sequence : plan.sequences) tokens.add(sequence.num_new_tokens);
    stepping_ns_ += took_ns;
    rule_.note_step(tokens, took_ns);
}

int64_t TierLink::num_held(const ChatRequest& request, const TokenSeq& prompt, const std::string& numerics) const {
    return engine_.cache().lookup({.key = request.conversation, .tokens = prompt, .numerics_id = numerics}).length;
}

std::optional<HeadTier::Found> TierLink::worth_restoring(ChatRequest& request, const std::string& numerics) {
    const TokenSeq prompt = prompt_of(request);
    if (rule_.policy() == RestorePolicy::kNever || !request.use_cache || prompt.empty()) return std::nullopt;
    const auto found = tier_.find(request.conversation.salt, prompt, prompt.size() - 1);
    if (!found) return std::nullopt;
    const int64_t saved = found->length - num_held(request, prompt, numerics);
    if (saved <= 0) return std::nullopt;
    if (rule_.pays(saved, tier_.expected_read_ns(found->bytes))) return found;
    tier_.note_not_worth();
    request.num_unrestored = found->length;
    return std::nullopt;
}

void TierLink::import(const reference::HeadFile& file, const HeadTier::Found& found, const ChatRequest& request,
                      const std::string& numerics) {
    CHECK_EQ(file.info().length(), found.length);
    if (num_held(request, prompt_of(request), numerics) >= found.length) return;
    if (import_file(file, request.conversation, engine_)) tier_.note_restored(found);
}

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
    const auto begin = steady_clock::now();
    if (auto copy = engine_.copy_of(head)) tier_.put(head.salt, *std::move(copy));
    keeping_ns_ += ns_since(begin);
}

}  // namespace verbatim::server
