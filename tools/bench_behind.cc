#include "tools/bench_behind.h"

#include <algorithm>

#include "tools/bench_watch.h"

namespace verbatim::tools {
namespace {

constexpr int32_t kContext = 0;  // computes what is repeated, and ends
constexpr int32_t kTimed = 1;
constexpr int32_t kChecking = 2;
constexpr int64_t kDecodeStepsPerRepeat = 4;

// And one to warm up each time, and one that is watched.
int64_t decoded_tokens(const BenchConfig& config) { return config.repeats * (1 + kDecodeStepsPerRepeat) + 1; }

class BehindCase {
public:
    BehindCase(const BenchConfig& config, const BenchSubject& subject, int64_t context)
        : config_(config), profile_(subject.profile), executor_(subject.executor), sequences_(subject.sequences) {
        sequences_.divide(behind_pools(config, context));
        const int64_t block = config.block_size;
        const int64_t short_length = std::max(block, std::min(context, config.step_tokens) / block * block);
        const TokenSeq tokens = sequences_.fresh_tokens(short_length);
        const BenchSequences::HeadWrite write{short_length, 0};
        sequences_.start(kContext, tokens, short_length);
        sequences_.compute(kContext, short_length, false, {&write, 1});
        sequences_.step();
        sequences_.end(kContext);
        sequences_.step();
        head_ = sequences_.lengthen({.slot = kContext, .length = short_length, .head_row = 0, .tokens = tokens},
                                    std::max(context, short_length));
    }

    [[nodiscard]] BenchRow new_row(const char* phase, int64_t num_tokens) const {
        BenchRow row;
        row.phase = phase;
        row.profile = profile_.name;
        row.cost = WalkCost(profile_.bytes_per_weight());
        row.context = head_.length;
        row.num_tokens = num_tokens;
        return row;
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
        OpWatch watch(executor_);
        watch.restart();
        row.watched_s = once();
        row.op_times_s = watch.times_s();
    }
    // What the timed slot drew from last, computed once more in two unequal chunks.
    void check(BenchRow& row) {
        row.check = profile_.is_exact() ? "recomputed" : "finite";
        row.wrong = !sequences_.logits_are_finite(kTimed);
        if (!profile_.is_exact()) return;
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
        if (cost != nullptr) cost->add_step(executor_.config(), {&part, 1}, 1);
        sequences_.compute(kTimed, count, true);
        return sequences_.step();
    }

    const BenchConfig& config_;
    const BenchProfile& profile_;
    PooledExecutor& executor_;
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
    std::vector<BenchRow> rows;
    for (size_t i = 0; i < cases.size(); ++i) {
        cases[i].watch(timers[i].row(), [&] { return cases[i].prefill(nullptr); });
        cases[i].check(timers[i].row());
        rows.push_back(std::move(timers[i].row()));
    }
    return rows;
}

std::vector<BenchRow> decode_rows(const BenchConfig& config, MachineProbe& probe, std::span<BehindCase> cases) {
    std::vector<RowTimer> timers;
    for (BehindCase& one : cases) {
        timers.emplace_back(config, probe, one.new_row("decode_behind", 1));
        one.prefill(nullptr, decoded_tokens(config));
    }
    take_turns(config, timers, [&](size_t i) {
        cases[i].decode(nullptr);  // to warm up
        for (int64_t k = 0; k < kDecodeStepsPerRepeat; ++k) {
            timers[i].time([&](WalkCost* cost) { return cases[i].decode(cost); });
        }
    });
    std::vector<BenchRow> rows;
    for (size_t i = 0; i < cases.size(); ++i) {
        cases[i].watch(timers[i].row(), [&] { return cases[i].decode(nullptr); });
        cases[i].check(timers[i].row());
        rows.push_back(std::move(timers[i].row()));
    }
    return rows;
}

}  // namespace

SequencePools behind_pools(const BenchConfig& config, int64_t context) {
    const int64_t length = std::max<int64_t>(context, config.block_size);
    return {
        .num_slots = 3, .tokens_per_slot = length + config.step_tokens + decoded_tokens(config), .num_head_rows = 1};
}

std::vector<BenchRow> bench_behind(const BenchConfig& config, std::span<const BenchSubject> subjects,
                                   MachineProbe& probe, int64_t context) {
    std::vector<BehindCase> cases;
    for (const BenchSubject& subject : subjects) cases.emplace_back(config, subject, context);
    std::vector<BenchRow> rows = prefill_rows(config, probe, cases);
    for (BenchRow& row : decode_rows(config, probe, cases)) rows.push_back(std::move(row));
    return rows;
}

}  // namespace verbatim::tools
