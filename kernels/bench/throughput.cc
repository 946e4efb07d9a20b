#include "kernels/bench/throughput.h"

#include <algorithm>

#include "engine/base/check.h"
#include "files/progress_bar.h"
#include "kernels/bench/rounds.h"
#include "kernels/bench/watch.h"

namespace verbatim::bench {
namespace {

using reference::WalkSequence;

constexpr int64_t kMaxWatchedTokens = 4096;  // of a prefill; a longer one is not done once more

// One context and batch in one profile.
class ThroughputCase {
public:
    ThroughputCase(const BenchConfig& config, const BenchSubject& subject, int64_t batch, int64_t context)
        : config_(config), subject_(subject), sequences_(subject.sequences), batch_(batch), context_(context) {
        sequences_.divide(throughput_pools(config, batch, context));
    }

    [[nodiscard]] BenchRow new_row(const char* phase, int64_t num_tokens) const {
        return subject_.new_row(phase, batch_, context_, num_tokens);
    }
    void warm_up();
    void start_prompts() {
        for (int32_t slot = 0; slot < batch_; ++slot) {
            sequences_.start(slot, sequences_.fresh_tokens(context_ + decoded_tokens(config_)), context_);
        }
    }
    double prefill(WalkCost* cost = nullptr, OpWatch* watch = nullptr);
    double decode(WalkCost* cost = nullptr, OpWatch* watch = nullptr);
    void watch_prefill(BenchRow& row);
    void watch_decode(BenchRow& row);
    void check(BenchRow& row);

private:
    [[nodiscard]] int32_t checking_slot() const { return static_cast<int32_t>(batch_); }

    const BenchConfig& config_;
    BenchSubject subject_;
    BenchSequences& sequences_;
    int64_t batch_;
    int64_t context_;
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
            CHECK(count > 0, "sequence {} has {} of {} tokens", slot, before, context_);
            const bool last = before + count == context_;
            sequences_.compute(slot, count, last);
            parts.push_back({0, static_cast<int32_t>(count), before});
            num_logit_rows += last ? 1 : 0;
            left -= count;
            done += count;
            if (last) ++slot;
        }
        if (watch != nullptr) watch->restart();
        time += subject_.step(parts, num_logit_rows, cost);
        progress.update(static_cast<uint64_t>(done));
    }
    CHECK_EQ(done, batch_ * context_);
    return time;
}

// One token for each sequence.
double ThroughputCase::decode(WalkCost* cost, OpWatch* watch) {
    std::vector<WalkSequence> parts;
    for (int32_t slot = 0; slot < batch_; ++slot) {
        CHECK_GE(sequences_.length(slot), context_);
        parts.push_back({0, 1, sequences_.length(slot)});
        sequences_.compute(slot, 1, true);
    }
    if (watch != nullptr) watch->restart();
    return subject_.step(parts, batch_, cost);
}

// Compares the last sequence's logits, which its last step sampled from, with those of its tokens computed again in
// chunks of another size.
void ThroughputCase::check(BenchRow& row) {
    const auto slot = static_cast<int32_t>(batch_ - 1);
    const int64_t length = sequences_.length(slot);
    const bool recompute = subject_.profile.is_exact() && length <= kMaxCheckedTokens;
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

void ThroughputCase::watch_prefill(BenchRow& row) {
    if (row.num_tokens > kMaxWatchedTokens) return;
    OpWatch watch(subject_.executor);
    start_prompts();
    row.watched_s = prefill(nullptr, &watch);
    row.op_times_s = watch.times_s();
}

void ThroughputCase::watch_decode(BenchRow& row) {
    OpWatch watch(subject_.executor);
    row.watched_s = decode(nullptr, &watch);
    row.op_times_s = watch.times_s();
}

std::vector<BenchRow> prefill_rows(const BenchConfig& config, MachineProbe& probe, std::span<ThroughputCase> cases,
                                   int64_t num_tokens) {
    std::vector<RowTimer> timers;
    for (ThroughputCase& one : cases) {
        timers.emplace_back(config, probe, one.new_row("prefill", num_tokens));
        one.warm_up();
    }
    take_turns(config, timers, [&](size_t i) {
        cases[i].start_prompts();
        timers[i].time([&](WalkCost* cost) { return cases[i].prefill(cost); });
    });
    return ended_rows(timers, [&](size_t i, BenchRow& row) {
        cases[i].watch_prefill(row);
        cases[i].check(row);
    });
}

// Behind the prompts that are there.
std::vector<BenchRow> decode_rows(const BenchConfig& config, MachineProbe& probe, std::span<ThroughputCase> cases,
                                  int64_t num_tokens) {
    std::vector<RowTimer> timers;
    for (const ThroughputCase& one : cases) timers.emplace_back(config, probe, one.new_row("decode", num_tokens));
    take_turns(config, timers,
               [&](size_t i) { time_decoding(timers[i], [&](WalkCost* cost) { return cases[i].decode(cost); }); });
    return ended_rows(timers, [&](size_t i, BenchRow& row) {
        cases[i].watch_decode(row);
        cases[i].check(row);
    });
}

}  // namespace

int64_t decoded_tokens(const BenchConfig& config) { return config.phases.decode ? decode_tokens(config) : 0; }

SequencePools throughput_pools(const BenchConfig& config, int64_t batch, int64_t context) {
    return {.num_slots = static_cast<int32_t>(batch + 1), .tokens_per_slot = context + decoded_tokens(config)};
}

std::vector<BenchRow> bench_throughput(const BenchConfig& config, std::span<const BenchSubject> subjects,
                                       MachineProbe& probe, int64_t batch, int64_t context) {
    std::vector<ThroughputCase> cases;
    for (const BenchSubject& subject : subjects) cases.emplace_back(config, subject, batch, context);
    std::vector<BenchRow> rows;
    if (config.phases.prefill) rows = prefill_rows(config, probe, cases, batch * context);
    if (!config.phases.decode) return rows;
    for (ThroughputCase& one : cases) {
        if (config.phases.prefill) break;
        one.start_prompts();
        one.prefill();
    }
    for (BenchRow& row : decode_rows(config, probe, cases, batch)) rows.push_back(std::move(row));
    return rows;
}

}  // namespace verbatim::bench
