#include "tools/bench_throughput.h"

#include <algorithm>
#include <chrono>

#include "tools/bench_watch.h"
#include "tools/cli.h"

namespace verbatim::tools {
namespace {

using Clock = std::chrono::steady_clock;
using reference::WalkSequence;

constexpr int64_t kWarmups = 1;  // decoding steps before those that are timed, every time the machine was measured
constexpr int64_t kDecodeStepsPerRepeat = 4;
constexpr int64_t kMaxWatchedTokens = 4096;  // of a prefill; a longer one is not done once more

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

// The rows of one context and batch.
class ThroughputCase {
public:
    ThroughputCase(const BenchConfig& config, const BenchProfile& profile, reference::NumericExecutor& executor,
                   BenchSequences& sequences, MachineProbe& probe, int64_t batch, int64_t context)
        : config_(config),
          profile_(profile),
          executor_(executor),
          sequences_(sequences),
          probe_(probe),
          batch_(batch),
          context_(context) {
        sequences_.divide(throughput_pools(config, batch, context));
    }

    BenchRow prefill_row();
    BenchRow decode_row();
    // Prompts for decode_row where nobody asks how long they take.
    void prefill_only() {
        start_prompts();
        prefill(nullptr, nullptr);
    }

private:
    [[nodiscard]] BenchRow new_row(const char* phase, int64_t num_tokens) const {
        BenchRow row;
        row.phase = phase;
        row.profile = profile_.name;
        row.cost = WalkCost(profile_.bytes_per_weight());
        row.batch = batch_;
        row.context = context_;
        row.num_tokens = num_tokens;
        return row;
    }
    [[nodiscard]] int32_t checking_slot() const { return static_cast<int32_t>(batch_); }
    void start_prompts() {
        for (int32_t slot = 0; slot < batch_; ++slot) {
            sequences_.start(slot, sequences_.fresh_tokens(context_ + decoded_tokens(config_)), context_);
        }
    }
    void warm_up();
    double prefill(WalkCost* cost, OpWatch* watch);
    double decode(WalkCost* cost, OpWatch* watch);
    void check(BenchRow& row);
    // Adds a repetition, which returns its time; the first one also says what it costs.
    template <typename Once>
    void time(BenchRow& row, const Once& once) {
        const double processor_begin = processor_time_s();
        row.times_s.push_back(once(row.times_s.empty() ? &row.cost : nullptr));
        row.streams_before.push_back(before_.stream_bytes_per_s);
        processor_s_ += processor_time_s() - processor_begin;
        clock_s_ += row.times_s.back();
        row.processor_share = processor_s_ / (clock_s_ * config_.num_threads);
    }
    // Repeats `round`, the machine measured before each, and no longer than config_.row_seconds.
    template <typename Round>
    void repeat(BenchRow& row, const Round& round) {
        processor_s_ = clock_s_ = 0;
        const Clock::time_point begin = Clock::now();
        int64_t num_rounds = 0;
        do {
            before_ = probe_.measure(1);
            row.nearby = best_of(row.nearby, before_);
            round();
        } while (++num_rounds < config_.repeats && seconds_since(begin) < static_cast<double>(config_.row_seconds));
        row.nearby = best_of(row.nearby, probe_.measure(1));
    }

    const BenchConfig& config_;
    const BenchProfile& profile_;
    reference::NumericExecutor& executor_;
    BenchSequences& sequences_;
    MachineProbe& probe_;
    int64_t batch_;
    int64_t context_;
    MachineLimits before_;    // the round in progress
    double processor_s_ = 0;  // of the timed repetitions of a row
    double clock_s_ = 0;
};

// One step as large as the largest that follows, in the slot that is not timed.
void ThroughputCase::warm_up() {
    const int64_t count = std::min(context_, config_.step_tokens);
    sequences_.start(checking_slot(), sequences_.fresh_tokens(count), count);
    sequences_.compute(checking_slot(), count, true);
    sequences_.step();
}

// From nothing to the context, in steps of at most step_tokens, first sequences first. The time of the steps.
double ThroughputCase::prefill(WalkCost* cost, OpWatch* watch) {
    ProgressBar progress(fmt::format("prefill {} x {}", batch_, context_), static_cast<uint64_t>(batch_ * context_));
    double time = 0;
    int64_t done = 0;
    for (int32_t slot = 0; slot < batch_;) {
        std::vector<WalkSequence> parts;
        int64_t num_logit_rows = 0;
        for (int64_t left = config_.step_tokens; left > 0 && slot < batch_;) {
            const int64_t before = sequences_.length(slot);
            const int64_t count = std::min(left, context_ - before);
            const bool last = before + count == context_;
            sequences_.compute(slot, count, last);
            parts.push_back({0, static_cast<int32_t>(count), before});
            num_logit_rows += last ? 1 : 0;
            left -= count;
            done += count;
            if (last) ++slot;
        }
        if (cost != nullptr) cost->add_step(executor_.config(), parts, num_logit_rows);
        if (watch != nullptr) watch->restart();
        time += sequences_.step();
        progress.update(static_cast<uint64_t>(done));
    }
    return time;
}

// One token for everybody.
double ThroughputCase::decode(WalkCost* cost, OpWatch* watch) {
    std::vector<WalkSequence> parts;
    for (int32_t slot = 0; slot < batch_; ++slot) {
        parts.push_back({0, 1, sequences_.length(slot)});
        sequences_.compute(slot, 1, true);
    }
    if (cost != nullptr) cost->add_step(executor_.config(), parts, batch_);
    if (watch != nullptr) watch->restart();
    return sequences_.step();
}

// The last sequence's logits, which its last step drew from, beside those of its tokens computed once more in chunks of
// another size.
void ThroughputCase::check(BenchRow& row) {
    const auto slot = static_cast<int32_t>(batch_ - 1);
    const int64_t length = sequences_.length(slot);
    const bool recompute = profile_.is_exact() && length <= kMaxCheckedTokens;
    row.check = recompute ? "recomputed" : "finite";
    row.wrong = !sequences_.logits_are_finite(slot);
    if (!recompute) return;
    const Digest got = sequences_.logits_digest(slot);
    const int64_t chunk = std::min(length * 3 / 8 + 1, config_.step_tokens);
    sequences_.start(checking_slot(), sequences_.tokens(slot).slice(0, length), length);
    for (int64_t done = 0; done < length; done += chunk) {
        sequences_.compute(checking_slot(), std::min(chunk, length - done), done + chunk >= length);
        sequences_.step();
    }
    if (sequences_.logits_digest(checking_slot()) != got) row.wrong = true;
}

BenchRow ThroughputCase::prefill_row() {
    BenchRow row = new_row("prefill", batch_ * context_);
    warm_up();
    repeat(row, [&] {
        start_prompts();
        time(row, [&](WalkCost* cost) { return prefill(cost, nullptr); });
    });
    if (row.num_tokens <= kMaxWatchedTokens) {
        OpWatch watch(executor_);
        start_prompts();
        row.watched_s = prefill(nullptr, &watch);
        row.op_times_s = watch.times_s();
    }
    check(row);
    return row;
}

BenchRow ThroughputCase::decode_row() {
    BenchRow row = new_row("decode", batch_);
    repeat(row, [&] {
        for (int64_t i = 0; i < kWarmups; ++i) decode(nullptr, nullptr);
        for (int64_t i = 0; i < kDecodeStepsPerRepeat; ++i) {
            time(row, [&](WalkCost* cost) { return decode(cost, nullptr); });
        }
    });
    {
        OpWatch watch(executor_);
        row.watched_s = decode(nullptr, &watch);
        row.op_times_s = watch.times_s();
    }
    check(row);
    return row;
}

}  // namespace

int64_t decoded_tokens(const BenchConfig& config) {
    return config.phases.decode ? config.repeats * (kWarmups + kDecodeStepsPerRepeat) + 1 : 0;
}

SequencePools throughput_pools(const BenchConfig& config, int64_t batch, int64_t context) {
    return {.num_slots = static_cast<int32_t>(batch + 1), .tokens_per_slot = context + decoded_tokens(config)};
}

std::vector<BenchRow> bench_throughput(const BenchConfig& config, const BenchProfile& profile,
                                       reference::NumericExecutor& executor, BenchSequences& sequences,
                                       MachineProbe& probe, int64_t batch, int64_t context) {
    ThroughputCase one(config, profile, executor, sequences, probe, batch, context);
    std::vector<BenchRow> rows;
    if (config.phases.prefill) rows.push_back(one.prefill_row());
    if (!config.phases.prefill) one.prefill_only();
    if (config.phases.decode) rows.push_back(one.decode_row());
    return rows;
}

}  // namespace verbatim::tools
