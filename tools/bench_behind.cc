#include "tools/bench_behind.h"

#include <algorithm>
#include <chrono>

#include "tools/bench_watch.h"

namespace verbatim::tools {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kContext = 0;  // computes what is repeated, and ends
constexpr int32_t kTimed = 1;
constexpr int32_t kChecking = 2;
constexpr int64_t kDecodeStepsPerRepeat = 4;

class BehindCase {
public:
    BehindCase(const BenchConfig& config, const BenchProfile& profile, PooledExecutor& executor,
               BenchSequences& sequences, MachineProbe& probe, int64_t context)
        : config_(config), profile_(profile), executor_(executor), sequences_(sequences), probe_(probe) {
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
        chunk_ = {0, static_cast<int32_t>(config.step_tokens), head_.length};
    }

    BenchRow prefill_row() {
        BenchRow row = new_row("prefill_behind", config_.step_tokens);
        row.cost.add_step(executor_.config(), {&chunk_, 1}, 1);
        repeat(row, 1, [&] { return prefill(0); });
        watch(row, [&] { return prefill(0); });
        check(row);
        return row;
    }

    BenchRow decode_row() {
        BenchRow row = new_row("decode_behind", 1);
        const int64_t num_steps = (config_.repeats + 1) * kDecodeStepsPerRepeat + 1;  // warm-up and the watched one
        prefill(num_steps);
        const reference::WalkSequence part{0, 1, sequences_.length(kTimed)};
        row.cost.add_step(executor_.config(), {&part, 1}, 1);
        repeat(row, kDecodeStepsPerRepeat, [&] { return decode(); });
        watch(row, [&] { return decode(); });
        check(row);
        return row;
    }

private:
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
    double prefill(int64_t num_decoded) {
        TokenSeq tokens = head_.tokens;
        tokens.append(sequences_.fresh_tokens(config_.step_tokens + num_decoded));
        sequences_.start(kTimed, tokens, head_.length + config_.step_tokens, head_);
        sequences_.compute(kTimed, config_.step_tokens, true);
        return sequences_.step();
    }
    double decode() {
        sequences_.compute(kTimed, 1, true);
        return sequences_.step();
    }
    // After one round to warm up; the machine is measured before each of the others.
    template <typename Once>
    void repeat(BenchRow& row, int64_t per_round, const Once& once) {
        for (int64_t i = 0; i < per_round; ++i) once();
        const Clock::time_point begin = Clock::now();
        double processor_s = 0;
        double clock_s = 0;
        for (int64_t round = 0; round < config_.repeats; ++round) {
            const MachineLimits before = probe_.measure(1);
            row.nearby = best_of(row.nearby, before);
            const double processor_begin = processor_time_s();
            for (int64_t i = 0; i < per_round; ++i) {
                clock_s += row.times_s.emplace_back(once());
                row.streams_before.push_back(before.stream_bytes_per_s);
            }
            processor_s += processor_time_s() - processor_begin;
            const std::chrono::duration<double> passed = Clock::now() - begin;
            if (passed.count() >= static_cast<double>(config_.row_seconds)) break;
        }
        row.processor_share = processor_s / (clock_s * config_.num_threads);
    }
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

    const BenchConfig& config_;
    const BenchProfile& profile_;
    PooledExecutor& executor_;
    BenchSequences& sequences_;
    MachineProbe& probe_;
    BenchHead head_;
    reference::WalkSequence chunk_;
};

}  // namespace

SequencePools behind_pools(const BenchConfig& config, int64_t context) {
    const int64_t decoded = (config.repeats + 1) * kDecodeStepsPerRepeat + 1;
    return {.num_slots = 3,
            .tokens_per_slot = std::max<int64_t>(context, config.block_size) + config.step_tokens + decoded,
            .num_head_rows = 1};
}

std::vector<BenchRow> bench_behind(const BenchConfig& config, const BenchProfile& profile, PooledExecutor& executor,
                                   BenchSequences& sequences, MachineProbe& probe, int64_t context) {
    BehindCase one(config, profile, executor, sequences, probe, context);
    std::vector<BenchRow> rows;
    rows.push_back(one.prefill_row());
    rows.push_back(one.decode_row());
    return rows;
}

}  // namespace verbatim::tools
