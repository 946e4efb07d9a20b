#include "kernels/bench/long_context.h"

#include <algorithm>

#include "kernels/bench/watch.h"

namespace verbatim::bench {
namespace {

constexpr int32_t kContext = 0;  // computes what is repeated, and ends
constexpr int32_t kTimed = 1;
constexpr int32_t kChecking = 2;

class BehindCase {
public:
    BehindCase(const BenchConfig& config, const BenchSubject& subject, int64_t context)
        : config_(config), subject_(subject), sequences_(subject.sequences) {
        sequences_.divide(behind_pools(config, context));
        const int64_t block = config.block_size;
        const int64_t short_length = std::max(block, std::min(context, config.step_tokens) / block * block);
        head_ =
            sequences_.lengthen(sequences_.compute_head(kContext, sequences_.fresh_tokens(short_length), short_length),
                                std::max(context, short_length));
    }

    [[nodiscard]] BenchRow new_row(const char* phase, int64_t num_tokens) const {
        return subject_.new_row(phase, 1, head_.length, num_tokens);
    }
    // A chunk of fresh tokens behind the context, and room for more to decode. The time.
    double prefill(WalkCost* cost, int64_t num_decoded = 0) {
        TokenSeq tokens = head_.tokens;
        tokens.append(sequences_.fresh_tokens(config_.step_tokens + num_decoded));
        sequences_.start(kTimed, tokens, head_.length + config_.step_tokens, head_);
        return compute(config_.step_tokens, cost);
    }
    double decode(WalkCost* cost) { return compute(1, cost); }
    template <typename Once>
    void watch(BenchRow& row, const Once& once) {
        OpWatch watch(subject_.executor);
        watch.restart();
        row.watched_s = once();
        row.op_times_s = watch.times_s();
    }
    // What the timed slot drew from last, computed once more in two unequal chunks.
    void check(BenchRow& row) {
        row.check = subject_.profile.is_exact() ? "recomputed" : "finite";
        row.wrong = !sequences_.logits_are_finite(kTimed);
        if (!subject_.profile.is_exact()) return;
        const Digest got = sequences_.logits_digest(kTimed);
        const int64_t count = sequences_.length(kTimed) - head_.length;
        const int64_t first = count * 3 / 8;
        sequences_.start(kChecking, sequences_.tokens(kTimed).slice(0, head_.length + count), head_.length + count,
                         head_);
        if (first > 0) {
            sequences_.compute(kChecking, first, false);
            sequences_.step();
        }
        sequences_.compute(kChecking, count - first, true);
        sequences_.step();
        row.wrong = row.wrong || sequences_.logits_digest(kChecking) != got;
    }

private:
    double compute(int64_t count, WalkCost* cost) {
        const reference::WalkSequence part{0, static_cast<int32_t>(count), sequences_.length(kTimed)};
        sequences_.compute(kTimed, count, true);
        return subject_.step({&part, 1}, 1, cost);
    }

    const BenchConfig& config_;
    BenchSubject subject_;
    BenchSequences& sequences_;
    BenchHead head_;
};

std::vector<BenchRow> prefill_rows(const BenchConfig& config, MachineProbe& probe, std::span<BehindCase> cases) {
    std::vector<RowTimer> timers;
    for (BehindCase& one : cases) {
        timers.emplace_back(config, probe, one.new_row("prefill_behind", config.step_tokens));
        one.prefill(nullptr);
    }
    take_turns(config, timers,
               [&](size_t i) { timers[i].time([&](WalkCost* cost) { return cases[i].prefill(cost); }); });
    return ended_rows(timers, [&](size_t i, BenchRow& row) {
        cases[i].watch(row, [&] { return cases[i].prefill(nullptr); });
        cases[i].check(row);
    });
}

std::vector<BenchRow> decode_rows(const BenchConfig& config, MachineProbe& probe, std::span<BehindCase> cases) {
    std::vector<RowTimer> timers;
    for (BehindCase& one : cases) {
        timers.emplace_back(config, probe, one.new_row("decode_behind", 1));
        one.prefill(nullptr, decode_tokens(config));
    }
    take_turns(config, timers,
               [&](size_t i) { time_decoding(timers[i], [&](WalkCost* cost) { return cases[i].decode(cost); }); });
    return ended_rows(timers, [&](size_t i, BenchRow& row) {
        cases[i].watch(row, [&] { return cases[i].decode(nullptr); });
        cases[i].check(row);
    });
}

}  // namespace

SequencePools behind_pools(const BenchConfig& config, int64_t context) {
    const int64_t length = std::max<int64_t>(context, config.block_size);
    return {.num_slots = 3, .tokens_per_slot = length + config.step_tokens + decode_tokens(config), .num_head_rows = 1};
}

std::vector<BenchRow> bench_long_context(const BenchConfig& config, std::span<const BenchSubject> subjects,
                                         MachineProbe& probe, int64_t context) {
    std::vector<BehindCase> cases;
    for (const BenchSubject& subject : subjects) cases.emplace_back(config, subject, context);
    std::vector<BenchRow> rows = prefill_rows(config, probe, cases);
    for (BenchRow& row : decode_rows(config, probe, cases)) rows.push_back(std::move(row));
    return rows;
}

}  // namespace verbatim::bench
