// tests/reference/records/written_record.h: records that are written entry by entry, without a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/model/random_model.h"
#include "reference/records/format.h"
#include "reference/records/walk_points.h"

namespace verbatim::tests {

// A turn from its submission to its end: the prompt in one step, and a step for each token but the first. The row at
// position p has the sum 100 + p.
struct WrittenTurn {
    enum class End : uint8_t { kByItself, kByClient, kLeft, kNonFinite, kNone };
    int64_t id = 0;
    std::string conversation = "c";
    bool deterministic = true;
    int64_t num_prompt_tokens = 4;  // 0: it is never started
    uint64_t prompt = 1;            // its digest
    std::vector<TokenId> tokens = {11, 12, 13};
    std::map<int64_t, uint64_t> states = {{6, 60}};  // digests, by length
    End end = End::kByItself;
    int more_rows = 0;  // behind the last reported token
};

class WrittenRecord {
public:
    explicit WrittenRecord(records::DigestLevel level = records::DigestLevel::kHeads) {
        record.run.digests = level;
        record.run.engine.digest_heads = level != records::DigestLevel::kNone;
    }

    WrittenRecord& submits(int64_t id, const std::string& conversation, bool deterministic = true) {
        Call call{.kind = CallKind::kSubmit, .step = open.step, .id = RequestId{id}};
        call.request.conversation.conversation_id = conversation;
        call.request.deterministic = deterministic;
        return calls(call);
    }
    WrittenRecord& calls(const Call& call) {
        record.entries.emplace_back(call);
        return *this;
    }
    WrittenRecord& starts(int64_t id, int64_t num_prompt_tokens, uint64_t prompt = 1) {
        open.starts.push_back(
            {.request = RequestId{id}, .num_prompt_tokens = num_prompt_tokens, .prompt = {prompt, prompt}});
        return *this;
    }
    WrittenRecord& computes(records::SequenceRecord sequence) {
        open.sequences.push_back(std::move(sequence));
        return *this;
    }
    // The step is complete.
    WrittenRecord& steps() {
        record.entries.emplace_back(open);
        open = {.step = open.step + 1};
        return *this;
    }
    WrittenRecord& reports(int64_t id, const std::vector<TokenId>& tokens) {
        records::Reported reported;
        for (const TokenId token : tokens) reported.tokens.push_back({RequestId{id}, token});
        record.entries.emplace_back(reported);
        return *this;
    }
    // In the step that is complete.
    WrittenRecord& publishes(int64_t id, int64_t length, uint64_t digest) {
        return event(id, EventKind::kPublish, length, {digest, digest});
    }
    WrittenRecord& commits(int64_t id) { return event(id, EventKind::kCommit, 0, {}); }
    WrittenRecord& discards(int64_t id, FinishReason reason) {
        return event(id, EventKind::kDiscard, static_cast<int64_t>(reason), {});
    }
    WrittenRecord& turn(const WrittenTurn& turn) {
        submits(turn.id, turn.conversation, turn.deterministic);
        if (turn.num_prompt_tokens > 0) starts(turn.id, turn.num_prompt_tokens, turn.prompt);
        const int64_t num_steps = turn.num_prompt_tokens > 0 ? std::ssize(turn.tokens) + turn.more_rows : 0;
        for (int64_t i = 0; i < num_steps; ++i) {
            const int64_t begin = i == 0 ? 0 : turn.num_prompt_tokens + i - 1;
            const int64_t end = turn.num_prompt_tokens + i;
            records::SequenceRecord sequence{.request = RequestId{turn.id}, .begin = begin, .end = end};
            if (record.run.digests != records::DigestLevel::kNone)
                sequence.logits = {100 + static_cast<uint64_t>(end - 1)};
            computes(sequence).steps();
            if (i < std::ssize(turn.tokens)) reports(turn.id, {turn.tokens[static_cast<size_t>(i)]});
        }
        if (num_steps == 0) steps();
        const bool has_states = record.run.engine.digest_heads;
        for (const auto& [length, digest] : turn.states) publishes(turn.id, length, has_states ? digest : 0);
        return ends(turn);
    }
    // The run came to its end.
    WrittenRecord& ends(const std::string& failure = "") {
        record.end = records::RunEnd{.num_steps = open.step, .failure = failure};
        return *this;
    }

    records::Record record;
    records::StepRecord open;  // the step that is being written

private:
    WrittenRecord& ends(const WrittenTurn& turn) {
        switch (turn.end) {
            case WrittenTurn::End::kByItself: return commits(turn.id);
            case WrittenTurn::End::kByClient:
                return calls({.kind = CallKind::kEndTurn, .id = RequestId{turn.id}}).commits(turn.id);
            case WrittenTurn::End::kLeft: return discards(turn.id, FinishReason::kAborted);
            case WrittenTurn::End::kNonFinite: return discards(turn.id, FinishReason::kNonFinite);
            case WrittenTurn::End::kNone: break;
        }
        return *this;
    }
    WrittenRecord& event(int64_t id, EventKind kind, int64_t value, const Digest& digest) {
        record.entries.emplace_back(records::Reported{
            {}, {{.kind = kind, .step = open.step - 1, .request = RequestId{id}, .value = value, .digest = digest}}});
        return *this;
    }
};

inline const records::WalkPoints& written_points() {
    static const records::WalkPoints points(reference::draw_small_config(reference::Architecture::kLlama, 1));
    return points;
}

}  // namespace verbatim::tests
