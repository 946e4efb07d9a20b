// Heads that come from other engines, and go to them.
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/engine.h"

namespace verbatim {

Status Engine::check(const HeadImport& head) const {
    if (config_.cache.lookup == LookupMode::kBlocks)
        return error("a head of '{}': a cache of blocks takes no heads", head.key.conversation_id);
    const NumericsIds& ids = scheduler_.numerics_ids();
    if (std::ranges::find(ids, head.numerics_id) == ids.end()) {
        return error("a head of '{}' made by {}: this engine computes by {}", head.key.conversation_id,
                     head.numerics_id, ids.front());
    }
    if (head.tokens.empty() || head.tokens.size() > config_.max_model_len) {
        return error("a head of '{}' has {} tokens, wanted 1 to {} (max_model_len)", head.key.conversation_id,
                     head.tokens.size(), config_.max_model_len);
    }
    CHECK(head.first_token == 0 || head.digest == Digest{}, "the digest of bytes from token {} on", head.first_token);
    const int64_t num_resident = cache_.resident_prefix(head.key.salt, head.tokens, head.numerics_id).length;
    if (head.first_token > num_resident) {
        return error("a head of '{}' without the KV of its first {} tokens: memory has {} of them",
                     head.key.conversation_id, head.first_token, num_resident);
    }
    return executor_->check_head(head.tokens.size(), head.bytes, head.digest);
}

Result<HeadId> Engine::import_head(const HeadImport& head) {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    RETURN_IF_ERROR(check(head));
    Call told = call(CallKind::kImportHead);
    told.key = head.key;
    told.request.messages.push_back({.tokens = head.tokens});
    told.to = head.numerics_id;
    recorder_.on_call(told);

    auto memory = cache_.make_pending(head.key.salt, head.tokens, head.numerics_id);
    if (!memory) {
        return error("a head of '{}' of {} tokens needs {} blocks and a state row: there is no room beside what runs",
                     head.key.conversation_id, head.tokens.size(), cache_.kv().blocks_for(head.tokens.size()));
    }
    freed_.clear();
    cache_.take_freed(freed_);
    executor_->take_freed(freed_);
    CHECK(head.first_token <= int64_t{memory->num_resident_blocks} * config_.cache.pools.block_size,
          "{} blocks are resident, tokens from {} on have come", memory->num_resident_blocks, head.first_token);
    const std::vector<BlockRun> runs = cache_.kv().runs(memory->blocks);
    const HeadImage image{.length = head.tokens.size(),
                          .blocks = runs,
                          .state = memory->state,
                          .deterministic = scheduler_.is_deterministic(head.numerics_id),
                          .num_resident_blocks = memory->num_resident_blocks};
    if (const Status written = executor_->write_head(image, head.bytes); !written) {
        cache_.discard(*memory, kNoStep);
        return tl::unexpected(written.error());
    }
    Digest digest = head.digest;
    if (!config_.digest_heads) digest = {};
    if (config_.digest_heads && digest == Digest{}) digest = executor_->head_digest(image).value_or(Digest{});
    const HeadId id = cache_.publish({.key = head.key,
                                      .kind = cache_.kind_of_import(head.key, head.tokens.size()),
                                      .numerics_id = head.numerics_id,
                                      .memory = *std::move(memory)},
                                     digest);
    // It is let go at once where its name lists an equal one that counts more.
    const Head* published = cache_.find(id);
    CHECK(published == nullptr || (published->length() == head.tokens.size() && published->digest == digest),
          "head {} of {} tokens, digest {}", index(id), head.tokens.size(), digest.hex());
    ++stats_.imported_heads;
    event(EventKind::kPublish, RequestId{-1}, head.tokens.size(), id, digest);
    return id;
}

// --- heads that requests wait for

void Engine::set_awaiting(RequestId request, bool awaits) {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    Call told = call(awaits ? CallKind::kAwaitHead : CallKind::kStopAwaiting);
    told.id = request;
    recorder_.on_call(told);
    const auto found = sequences_.find(request);
    if (found == sequences_.end() || found->second->status != SequenceStatus::kWaiting) return;
    scheduler_.set_awaiting(*found->second, awaits);
}

bool Engine::has_room_for_head(RequestId request) const {
    const Sequence* sequence = find(request);
    return sequence != nullptr && sequence->status == SequenceStatus::kWaiting &&
           scheduler_.has_room_for_head(*sequence);
}

std::optional<HeadCopy> Engine::export_head(HeadId id) {
    CHECK(!step_open_, "step {} is open", next_step_ - 1);
    const Head* head = cache_.find(id);
    return head == nullptr ? std::nullopt : copy_of(*head);
}

std::optional<HeadCopy> Engine::copy_of(const Head& head) {
    CHECK(cache_.find(head.id) == &head && (head.state != kNoState) == cache_.state().enabled(), "head {} of row {}",
          index(head.id), index(head.state));
    const std::vector<BlockRun> runs = cache_.kv().runs(head.blocks);
    const HeadImage image{kNoSlot, head.length(), runs, head.state, scheduler_.is_deterministic(*head.numerics_id)};
    auto bytes = executor_->head_bytes(image);
    if (!bytes) return std::nullopt;
    const Digest digest = head.digest != Digest{} ? head.digest : executor_->head_digest(image).value_or(Digest{});
    return HeadCopy{head.tokens, head.numerics_id, digest, *std::move(bytes)};
}

Result<HeadCopy> compute_head(EngineConfig config, Executor& executor, TokenStore& store, const TokenSeq& tokens) {
    config.digest_heads = true;
    LruEviction policy;
    RecorderList recorder({});
    Engine engine(config, executor, policy, store, recorder);
    ChatRequest request;
    request.messages = {{.tokens = tokens}};
    request.max_tokens = 0;
    const auto accepted = engine.submit(std::move(request));
    if (!accepted) return error("a head of {} tokens: {}", tokens.size(), accepted.error().message());
    HeadId id = kNoHead;
    while (!engine.idle()) {
        RETURN_IF_ERROR(engine.step());
        for (const EngineEvent& event : engine.take_events())
            if (const auto* finished = std::get_if<FinishedEvent>(&event)) id = finished->head;
    }
    const Head* head = engine.cache().find(id);
    if (head == nullptr) return error("a head of {} tokens: the turn was not committed", tokens.size());
    if (auto copy = engine.copy_of(*head)) return *std::move(copy);
    return HeadCopy{head->tokens, head->numerics_id, head->digest, {}};
}

}  // namespace verbatim
