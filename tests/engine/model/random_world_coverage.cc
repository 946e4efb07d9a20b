// What random worlds have reached, added up.
#include "tests/engine/model/random_world.h"

namespace verbatim::tests {

RandomWorld::Coverage RandomWorld::coverage() const {
    Coverage coverage = coverage_;
    coverage.stats = engine_.stats();
    return coverage;
}

void RandomWorld::Coverage::add(const Coverage& other) {
    awaited_heads += other.awaited_heads;
    stats.repeats += other.stats.repeats;
    stats.steps += other.stats.steps;
    stats.attaches += other.stats.attaches;
    stats.tail_copies += other.stats.tail_copies;
    stats.state_copies += other.stats.state_copies;
    stats.preemptions += other.stats.preemptions;
    stats.evictions += other.stats.evictions;
    stats.imported_heads += other.stats.imported_heads;
    stats.commits += other.stats.commits;
    stats.discards += other.stats.discards;
    stats.forks += other.stats.forks;
    stats.rewinds += other.stats.rewinds;
    stats.recomputed_tokens += other.stats.recomputed_tokens;
    stats.snapshots_without_room += other.stats.snapshots_without_room;
    stats.windows += other.stats.windows;
    stats.draft_path_tokens += other.stats.draft_path_tokens;
    stats.accepted_tokens += other.stats.accepted_tokens;
    stats.rolled_back_tokens += other.stats.rolled_back_tokens;
    row_moves += other.row_moves;
    unwritten_rows += other.unwritten_rows;
    overtakings += other.overtakings;
    due += other.due;
    reruns += other.reruns;
    for (size_t i = 0; i < stats.not_reused.size(); ++i) stats.not_reused[i] += other.stats.not_reused[i];
    for (size_t i = 0; i < stats.refusals.size(); ++i) stats.refusals[i] += other.stats.refusals[i];
    revoked += other.revoked;
    removed += other.removed;
    aborted_in_open_step += other.aborted_in_open_step;
    executor_failures += other.executor_failures;
    failures_of_open_steps += other.failures_of_open_steps;
    replaced_executors += other.replaced_executors;
    unloaded += other.unloaded;
    sent_again += other.sent_again;
    mixed_heads += other.mixed_heads;
    for (const auto& [reason, count] : other.finished) finished[reason] += count;
}

}  // namespace verbatim::tests
