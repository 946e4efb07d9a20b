// kernels/cuda/simt/knowledge.h: owns what a thread of a block knows of the others: how much of what each has done
// comes before what the thread does next.
//
//   K1  everybody counts epochs; who makes something known ends an epoch, so that what comes later is not known yet
//   K2  what `who` did in an epoch before known.at(who) comes before; whatever has joined it knows as much
//   K3  fenced.at(who) <= known.at(who) in effect: of what threads wrote, that is what asynchronous copies and tensor
//       cores see, too (fence_async)
//
// Numbers below kFirstAgent are threads. Those from there on do something behind the threads' backs: what a bulk copy
// writes, or what a multiplication on tensor cores reads until it is waited for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

namespace verbatim::simt {

inline constexpr int32_t kFirstAgent = 1024;

class VectorClock {
public:
    [[nodiscard]] uint32_t at(int32_t who) const {
        return who < kFirstAgent ? at(threads_, who) : at(agents_, who - kFirstAgent);
    }
    void raise(int32_t who, uint32_t epoch) {
        if (who < kFirstAgent) {
            raise(threads_, who, epoch);
        } else {
            raise(agents_, who - kFirstAgent, epoch);
        }
    }
    void join(const VectorClock& other) {
        join(threads_, other.threads_);
        join(agents_, other.agents_);
    }

private:
    using Epochs = std::vector<uint32_t>;  // behind the end: 0
    static uint32_t at(const Epochs& epochs, int32_t i) {
        return static_cast<size_t>(i) < epochs.size() ? epochs[static_cast<size_t>(i)] : 0;
    }
    static void raise(Epochs& epochs, int32_t i, uint32_t epoch) {
        if (static_cast<size_t>(i) >= epochs.size()) epochs.resize(static_cast<size_t>(i) + 1);
        uint32_t& own = epochs[static_cast<size_t>(i)];
        own = std::max(own, epoch);
    }
    static void join(Epochs& epochs, const Epochs& other) {
        if (epochs.size() < other.size()) epochs.resize(other.size());
        for (size_t i = 0; i < other.size(); ++i) epochs[i] = std::max(epochs[i], other[i]);
    }

    Epochs threads_;
    Epochs agents_;  // from kFirstAgent on
};

// Of another block, as one of its threads has let it go.
struct BlockKnowledge {
    VectorClock known;
    uint32_t block_epoch = 0;  // what its threads did before that many barriers of it is known, too
    void join(const BlockKnowledge& other) {
        known.join(other.known);
        block_epoch = std::max(block_epoch, other.block_epoch);
    }
};

struct Knowledge {
    VectorClock known;
    VectorClock fenced;
    uint32_t fenced_blocks = 0;                // what was written before that many barriers of the block is fenced, too
    uint32_t unsafe_from = 0;                  // launches from here on, up to the one that runs, may not have ended
    std::map<int32_t, BlockKnowledge> others;  // by block
    bool blocks_meet = false;                  // the launch's blocks live together, and readers of all are listed
    void join(const Knowledge& other) {
        for (const auto& [block, knowledge] : other.others) others[block].join(knowledge);
        known.join(other.known);
        fenced.join(other.fenced);
        fenced_blocks = std::max(fenced_blocks, other.fenced_blocks);
        unsafe_from = std::max(unsafe_from, other.unsafe_from);
    }
};

}  // namespace verbatim::simt
