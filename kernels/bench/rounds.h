// kernels/bench/rounds.h: the repetitions of compared rows take turns, and the machine is measured before each turn, so
// that another program's load affects all of them.
#pragma once

#include <chrono>
#include <span>
#include <utility>
#include <vector>

#include "kernels/bench/expert_watch.h"
#include "kernels/bench/run.h"
#include "kernels/bench/sequences.h"
#include "kernels/pooled_executor.h"

namespace verbatim::bench {

// The executor that computes a profile's rows.
struct BenchSubject {
    const BenchProfile& profile;
    double bytes_per_weight;
    PooledExecutor& executor;
    BenchSequences& sequences;

    [[nodiscard]] BenchRow new_row(const char* phase, int64_t batch, int64_t context, int64_t num_tokens) const {
        BenchRow row;
        row.phase = phase;
        row.profile = profile.name;
        row.batch = batch;
        row.context = context;
        row.num_tokens = num_tokens;
        row.cost = WalkCost(bytes_per_weight);
        return row;
    }
    // Runs the step that `sequences` have prepared; returns its time in seconds. Its cost is added to `cost` unless
    // that is null; without it the step is not observed.
    double step(std::span<const reference::WalkSequence> parts, int64_t num_logit_rows, WalkCost* cost) const {
        if (cost == nullptr) return sequences.step();
        ExpertWatch experts(executor);
        const double time_s = sequences.step();
        cost->add_step(executor.config(), parts, num_logit_rows, experts.take_step());
        return time_s;
    }
};

// Fills in a row's times and related figures.
class RowTimer {
public:
    RowTimer(const BenchConfig& config, MachineProbe& probe, BenchRow row)
        : config_(config), probe_(probe), row_(std::move(row)) {}

    // Measures the machine, before a turn.
    void measure() {
        before_ = probe_.measure(1);
        row_.nearby = best_of(row_.nearby, before_);
    }
    // One repetition. once(cost) returns its time in seconds; `cost` is non-null for the first one, which records the
    // cost.
    template <typename Once>
    void time(const Once& once) {
        const double processor_begin = processor_time_s();
        row_.times_s.push_back(once(row_.times_s.empty() ? &row_.cost : nullptr));
        const double processor_s = processor_time_s() - processor_begin;
        row_.processor_times_s.push_back(processor_s / config_.num_threads);
        processor_s_ += processor_s;
        clock_s_ += row_.times_s.back();
        row_.streams_before.push_back(before_.stream_bytes_per_s);
        row_.processor_share = processor_s_ / (clock_s_ * config_.num_threads);
    }
    [[nodiscard]] BenchRow& row() { return row_; }

private:
    const BenchConfig& config_;
    MachineProbe& probe_;
    BenchRow row_;
    MachineLimits before_;
    double processor_s_ = 0;
    double clock_s_ = 0;
};

// Calls turn(i) of every timer, config.repeats times; starts no new round after config.row_seconds for each row.
template <typename Turn>
void take_turns(const BenchConfig& config, std::span<RowTimer> timers, const Turn& turn) {
    using Clock = std::chrono::steady_clock;
    const std::chrono::duration<double> all(static_cast<double>(config.row_seconds * std::ssize(timers)));
    const Clock::time_point begin = Clock::now();
    int64_t num_rounds = 0;
    do {
        for (size_t i = 0; i < timers.size(); ++i) {
            timers[i].measure();
            turn(i);
        }
    } while (++num_rounds < config.repeats && Clock::now() - begin < all);
}

inline constexpr int64_t kDecodeWarmups = 1;  // untimed, before the timed steps of a turn
inline constexpr int64_t kDecodeSteps = 4;    // timed steps in a turn

// Maximum tokens that a sequence decodes: all turns, and an observed one.
inline int64_t decode_tokens(const BenchConfig& config) { return config.repeats * (kDecodeWarmups + kDecodeSteps) + 1; }
// A turn of decoding; decode(cost) as in RowTimer::time.
template <typename Decode>
void time_decoding(RowTimer& timer, const Decode& decode) {
    for (int64_t i = 0; i < kDecodeWarmups; ++i) decode(nullptr);
    for (int64_t i = 0; i < kDecodeSteps; ++i) timer.time(decode);
}

// The rows, after end(i, row) of each.
template <typename End>
std::vector<BenchRow> ended_rows(std::span<RowTimer> timers, const End& end) {
    std::vector<BenchRow> rows;
    for (size_t i = 0; i < timers.size(); ++i) {
        end(i, timers[i].row());
        rows.push_back(std::move(timers[i].row()));
    }
    return rows;
}

}  // namespace verbatim::bench
