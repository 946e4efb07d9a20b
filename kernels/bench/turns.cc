#include "kernels/bench/turns.h"

#include <algorithm>
#include <array>

#include "files/progress_bar.h"

namespace verbatim::bench {
namespace {

constexpr int32_t kWriter = 0;  // computes the head and ends
constexpr int32_t kCached = 1;
constexpr int32_t kSuffixOnly = 2;
constexpr int32_t kHeadRow = 0;
constexpr int32_t kBeforeRow = 1;  // of the same tokens without the last: the start of the other slot
constexpr int64_t kRounds = 4;     // of both, for each repeat

// Computes the head's tokens; its states go to both head rows.
BenchHead make_head(const BenchConfig& config, BenchSequences& sequences, int64_t length) {
    ProgressBar progress(fmt::format("head of {}", length), static_cast<uint64_t>(length));
    const TokenSeq tokens = sequences.fresh_tokens(length);
    sequences.start(kWriter, tokens, length);
    for (int64_t done = 0; done < length;) {
        const int64_t count = std::min(config.step_tokens, length - done);
        std::vector<BenchSequences::HeadWrite> writes;
        if (done < length - 1 && done + count >= length - 1) writes.push_back({length - 1, kBeforeRow});
        if (done + count == length) writes.push_back({length, kHeadRow});
        sequences.compute(kWriter, count, false, writes);
        sequences.step();
        done += count;
        progress.update(static_cast<uint64_t>(done));
    }
    sequences.end(kWriter);
    sequences.step();
    return {.slot = kWriter, .length = length, .head_row = kHeadRow, .tokens = tokens};
}

}  // namespace

SequencePools turn_pools(const BenchConfig& config, int64_t head_length) {
    return {.num_slots = 3, .tokens_per_slot = head_length + config.suffix_tokens, .num_head_rows = 2};
}

BenchRow bench_turn(const BenchConfig& config, const BenchSubject& subject, int64_t head_length) {
    BenchSequences& sequences = subject.sequences;
    sequences.divide(turn_pools(config, head_length));
    const BenchHead head = make_head(config, sequences, head_length);
    const BenchHead before{kWriter, head_length - 1, kBeforeRow, head.tokens};
    BenchRow row = subject.new_row("ttft_cached", 1, head_length, config.suffix_tokens);
    row.check = subject.profile.is_exact() ? "without attach" : "finite";
    const reference::WalkSequence part{0, static_cast<int32_t>(config.suffix_tokens), head_length};
    row.cost.add_step(subject.executor.config(), {&part, 1}, 1);
    for (int64_t round = -1; round < kRounds * config.repeats; ++round) {
        TokenSeq tokens = head.tokens;
        tokens.append(sequences.fresh_tokens(config.suffix_tokens));
        sequences.end(kSuffixOnly);
        sequences.start(kCached, tokens, tokens.size(), head);
        sequences.compute(kCached, config.suffix_tokens, true);
        const double cached_s = sequences.step();
        const Digest cached = sequences.logits_digest(kCached);
        row.wrong = row.wrong || !sequences.logits_are_finite(kCached);

        sequences.end(kCached);
        sequences.start(kSuffixOnly, tokens, tokens.size(), before);
        sequences.compute(kSuffixOnly, 1, false);
        sequences.step();
        sequences.compute(kSuffixOnly, config.suffix_tokens, true);
        const double suffix_s = sequences.step();
        row.wrong = row.wrong || (subject.profile.is_exact() && sequences.logits_digest(kSuffixOnly) != cached);
        if (round < 0) continue;  // to warm up
        row.times_s.push_back(cached_s);
        row.suffix_times_s.push_back(suffix_s);
    }
    return row;
}

}  // namespace verbatim::bench
