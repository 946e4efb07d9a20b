#include "engine/turn_commits.h"

#include <utility>
#include <vector>

#include "engine/base/check.h"

namespace verbatim {

void TurnCommits::finish(Sequence& sequence, FinishReason reason, int64_t step) {
    CHECK_EQ(sequence.num_computed_tokens, sequence.num_tokens() - 1);
    if (!parts_.cache.state().enabled() || sequence.num_state_tokens == sequence.num_computed_tokens) {
        return stage(sequence, reason, step);
    }
    CHECK_LT(sequence.num_state_tokens, sequence.num_computed_tokens);
    sequence.ending = reason;
}

// The turn's resident tokens: all but the last sampled one, which is committed and not computed (the seam).
void TurnCommits::stage(Sequence& sequence, FinishReason reason, int64_t step) {
    sequence.store_output(parts_.store);
    const bool seam = !sequence.output.empty();
    TokenSeq tokens = sequence.known.slice(0, sequence.num_tokens() - (seam ? 1 : 0));
    parts_.recorder.on_event({.kind = EventKind::kStage, .step = step, .request = sequence.id, .value = tokens.size()});
    parts_.publication.stage_turn(sequence, std::move(tokens), reason, step);
    CHECK(!parts_.cache.state().enabled() || sequence.num_state_tokens == sequence.num_computed_tokens,
          "a head of {} tokens, a row of {}", sequence.num_computed_tokens, sequence.num_state_tokens);
    parts_.scheduler.retire(sequence);
}

std::optional<Pending> TurnCommits::publish_snapshots(Executor& executor, int64_t materialised, int64_t step) {
    CHECK_LE(materialised, step);
    while (auto pending = parts_.publication.take_ready(materialised)) {
        CHECK_LE(pending->staged_step, materialised);
        if (pending->is_turn()) return pending;
        publish(*std::move(pending), executor, step);
    }
    return std::nullopt;
}

HeadId TurnCommits::publish(Pending pending, Executor& executor, int64_t step) {
    CHECK_LE(pending.staged_step, step);
    const Digest digest = digest_of(pending, executor);
    const int64_t length = pending.head.memory.tokens.size();
    const HeadId head = parts_.cache.publish(std::move(pending.head), digest);
    parts_.recorder.on_event({.kind = EventKind::kPublish,
                              .step = step,
                              .request = pending.request,
                              .head = head,
                              .value = length,
                              .digest = digest});
    return head;
}

FinishedEvent TurnCommits::commit(Sequence& sequence, Pending pending, Executor& executor, int64_t step) {
    CHECK(pending.is_turn() && sequence.status == SequenceStatus::kCommitting, "request {} commits in status {}",
          index(sequence.id), static_cast<int>(sequence.status));
    const FinishReason reason = *pending.finish;
    if (!parts_.ledger.is_live(sequence.turn.lease)) {
        parts_.publication.discard(std::move(pending));
        return {.reason = FinishReason::kLeaseLost};
    }
    CHECK_EQ(sequence.num_reused + sequence.num_computed_prompt, sequence.num_prompt_tokens());
    const HeadId head = publish(std::move(pending), executor, step);
    const TokenSeq output = sequence.known.slice(sequence.num_prompt_tokens(), sequence.num_tokens());
    Turn turn;
    turn.finish = reason;
    turn.num_text_tokens = static_cast<int64_t>(sequence.num_emitted);
    const auto version = parts_.ledger.commit(sequence.turn, sequence.request, output, std::move(turn));
    CHECK(version.has_value());
    parts_.recorder.on_event({.kind = EventKind::kCommit,
                              .step = step,
                              .request = sequence.id,
                              .head = head,
                              .value = sequence.num_tokens()});
    ++parts_.stats.commits;
    return {.reason = reason, .committed = true, .head = head, .version = *version};
}

Digest TurnCommits::digest_of(const Pending& pending, Executor& executor) const {
    if (!digest_heads_) return {};
    const PendingMemory& memory = pending.head.memory;
    CHECK_EQ(memory.state != kNoState, parts_.cache.state().enabled());
    const std::vector<BlockRun> blocks = parts_.cache.kv().runs(memory.blocks);
    return executor
        .head_digest({pending.writer, memory.tokens.size(), blocks, memory.state,
                      parts_.scheduler.is_deterministic(pending.head.numerics_id)})
        .value_or(Digest{});
}

void TurnCommits::verify(Executor& executor) const {
    if (!digest_heads_) return;
    for (const Head* head : parts_.cache.heads()) {
        const std::vector<BlockRun> blocks = parts_.cache.kv().runs(head->blocks);
        const auto digest = executor.head_digest(
            {kNoSlot, head->length(), blocks, head->state, parts_.scheduler.is_deterministic(*head->numerics_id)});
        if (!digest) continue;
        CHECK(*digest == head->digest, "head {} of {} tokens: digest {} at publication, {} now", index(head->id),
              head->length(), head->digest.hex(), digest->hex());
    }
}

}  // namespace verbatim
