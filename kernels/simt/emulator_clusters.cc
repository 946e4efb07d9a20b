// Emulator: thread block clusters, whose blocks are resident together, meet at a barrier and touch each other's shared
// memory.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/simt/emulator.h"

#include "engine/base/check.h"

namespace verbatim::simt {
namespace {

int32_t index_of(Dim3 position, Dim3 size) { return (position.z * size.y + position.y) * size.x + position.x; }

}  // namespace

int32_t Emulator::cluster_of(int32_t block) const {
    const Dim3 size = limits_.cluster, at = position_of(block, grid_size_);
    return index_of({at.x / size.x, at.y / size.y, at.z / size.z},
                    {grid_size_.x / size.x, grid_size_.y / size.y, grid_size_.z / size.z});
}

int32_t Emulator::rank_in_cluster(int32_t block) const {
    const Dim3 size = limits_.cluster, at = position_of(block, grid_size_);
    return index_of({at.x % size.x, at.y % size.y, at.z % size.z}, size);
}

int32_t Emulator::block_of_cluster(int32_t rank) const {
    const Dim3 size = limits_.cluster, at = block_position_, in_cluster = position_of(rank, size);
    return index_of({at.x / size.x * size.x + in_cluster.x, at.y / size.y * size.y + in_cluster.y,
                     at.z / size.z * size.z + in_cluster.z},
                    grid_size_);
}

void Emulator::begin_clusters() {
    clusters_.clear();
    cluster_shared_.clear();
    block_states_.assign(has_clusters() ? static_cast<size_t>(count_of(grid_size_)) : 0, BlockState::kToCome);
}

void Emulator::end_block_of_cluster() {
    block_states_[static_cast<size_t>(block_index_)] = BlockState::kOver;
    std::vector<int32_t> blocks;
    for (int32_t rank = 0; rank < count_of(limits_.cluster); ++rank) blocks.push_back(block_of_cluster(rank));
    if (std::ranges::any_of(blocks, [&](int32_t block) { return state_of_block(block) != BlockState::kOver; }))
        blocks.clear();
    if (watch_cluster_) watch_cluster_(blocks);
    if (blocks.empty()) return;
    for (const int32_t block : blocks) {
        const auto first = cluster_shared_.lower_bound({block, nullptr});
        cluster_shared_.erase(first, cluster_shared_.lower_bound({block + 1, nullptr}));
    }
    clusters_.erase(cluster_of(block_index_));
}

// The blocks of a cluster follow each other; both orders are as they were.
void Emulator::sort_by_cluster(std::span<int32_t> order) const {
    std::map<int32_t, int32_t> place;  // of a cluster
    for (const int32_t block : order) place.emplace(cluster_of(block), static_cast<int32_t>(place.size()));
    std::ranges::stable_sort(order, {}, [&](int32_t block) { return place.at(cluster_of(block)); });
}

Memory& Emulator::shared_of(int32_t block, const void* key, size_t bytes, size_t cell_bytes) {
    CHECK(has_clusters(), "{}: shared memory of another block", kernel_name_);
    auto& memory = cluster_shared_[{block, key}];
    if (!memory) memory = std::make_unique<Memory>(bytes, cell_bytes, Memory::Life::kCluster);
    CHECK_EQ(memory->size(), bytes);
    return *memory;
}

Emulator::BlockState Emulator::state_of_block(int32_t block) const {
    return block_states_.at(static_cast<size_t>(block));
}

void Emulator::arrive_at_cluster(Place where, Arrival arrival) {
    if (running_->is_at_cluster) {
        found(FindingKind::kBarrierUse,
              fmt::format("it arrives at the cluster's barrier again, and has not waited there ({})", text_of(where)));
    }
    EmulatedCluster& cluster = clusters_[cluster_of(block_index_)];
    publish_barriers(cluster.phase + 1);
    if (arrival == Arrival::kReleases) {
        release_to(cluster.arriving);
    } else {
        join(cluster.arriving, running_->async.at_fence);
    }
    running_->is_at_cluster = true;
    running_->cluster_phase = cluster.phase + 1;
    ++cluster.num_arrived;
    complete_cluster(cluster);
}

// Threads that have returned are not waited for.
void Emulator::complete_cluster(EmulatedCluster& cluster) {
    if (cluster.num_arrived == 0 || cluster.num_arrived + cluster.num_gone < count_of(limits_.cluster) * num_threads_)
        return;
    ++cluster.phase;
    cluster.num_arrived = 0;
    cluster.passed = std::exchange(cluster.arriving, {});
}

void Emulator::wait_for_cluster(Place where) {
    if (!running_->is_at_cluster) {
        return found(FindingKind::kBarrierUse,
                     fmt::format("it waits at the cluster's barrier, and has not arrived there ({})", text_of(where)));
    }
    const EmulatedCluster& cluster = clusters_[cluster_of(block_index_)];
    const auto is_over = [&cluster, phase = running_->cluster_phase] { return cluster.phase >= phase; };
    running_->where = where;
    running_->is_at_cluster = false;
    if (!is_over() && !spin_until(is_over)) {
        return found(FindingKind::kBarrierNotReached,
                     fmt::format("a cluster's barrier is reached by {} of {} threads ({})", cluster.num_arrived,
                                 count_of(limits_.cluster) * num_threads_, text_of(where)));
    }
    acquire_from(cluster.passed);
}

void Emulator::fence_device() {
    ThreadAsync& async = running_->async;
    async.has_fenced = true;
    if (!has_clusters()) return;
    async.at_fence.clear();
    release_to(async.at_fence);
}

// The running thread arrives at the cluster's barrier: the barriers that it has initialised and published.
void Emulator::publish_barriers(uint32_t seen_from) {
    CHECK_GT(seen_from, 0U);
    for (auto& [key, barrier] : barriers_) {
        if (barrier.is_published && barrier.seen_from == 0 && barrier.initialised.thread == running_->index)
            barrier.seen_from = seen_from;
    }
}

// Whether the running thread has waited at the cluster's barrier since the barrier was published.
bool Emulator::is_seen_by_cluster(const EmulatedBarrier& barrier) const {
    const uint32_t waited = running_->cluster_phase - (running_->is_at_cluster ? 1 : 0);
    return barrier.seen_from != 0 && waited >= barrier.seen_from;
}

// What the running thread knows, as a thread of that block would have it; until the next call.
const Knowledge& Emulator::knowledge_in(int32_t block) {
    const Knowledge& mine = running_->async.knowledge;
    if (block == block_index_) return mine;
    Knowledge& theirs = in_other_block_ = {};
    theirs.is_cooperative = mine.is_cooperative;
    theirs.unsafe_from = mine.unsafe_from;
    theirs.others = mine.others;
    theirs.others[block_index_] = knowledge_of_block();
    if (const auto of_block = theirs.others.extract(block)) {
        theirs.known = of_block.mapped().known;
        theirs.fenced = of_block.mapped().fenced;
        theirs.fenced_blocks = of_block.mapped().fenced_blocks;
    }
    return theirs;
}

// The agent that copies for the barrier's phase: one of the barrier's block, with what the running thread knows.
Now Emulator::agent_of(const EmulatedBarrier& barrier) {
    if (barrier.block == block_index_) return agent(barrier.agent, barrier.phase);
    publish_clock(*running_);
    const auto& others = running_->async.knowledge.others;
    const auto known = others.find(barrier.block);
    const uint32_t epoch = known == others.end() ? 0 : known->second.block_epoch;
    const Moment moment{launch_, barrier.block, barrier.agent, epoch, barrier.phase, 0};
    const Knowledge& theirs = knowledge_in(barrier.block);
    return {moment, {}, barrier.agent, running_->moment.unsafe_from, &theirs, running_->moment.unordered};
}

// With that block's shared memory, barriers and threads in the place of the running one's.
void Emulator::in_block(int32_t block, const std::function<void()>& act) {
    CHECK(block != block_index_ && has_clusters(), "{}: block {} is the running one", kernel_name_, block);
    ParkedBlock& there = parked_block(block);
    const bool in_thread = std::exchange(in_thread_, false);
    change_block(there);
    act();
    change_block(there);
    in_thread_ = in_thread;
}

// A thread returns.
void Emulator::leave_cluster() {
    if (!has_clusters()) return;
    EmulatedCluster& cluster = clusters_[cluster_of(block_index_)];
    ++cluster.num_gone;
    complete_cluster(cluster);
}

}  // namespace verbatim::simt
