// kernels/simt/knowledge.h: owns the vector clocks of a block: for each thread, which earlier actions of the other
// threads and agents happen before its next action.
//
//   K1  every participant counts epochs; a release ends the participant's epoch, so that later actions are not covered
//   K2  what participant p did in an epoch before known.at(p) happens before the owner's next action; joining is
//       transitive
//   K3  fenced.at(p) <= known.at(p): the part of the threads' writes that asynchronous copies and tensor cores see
//       (fence_async)
//   K4  threads that met at a barrier share one clock by copy-on-write
//
// Numbers below kFirstAgent are threads. Larger numbers are agents, which act asynchronously: the writes of a bulk
// copy, or the reads of a multiplication on tensor cores until it is waited for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace verbatim::simt {

inline constexpr int32_t kFirstAgent = 1024;

class VectorClock {
public:
    [[nodiscard]] uint32_t at(int32_t who) const {
        return who < kFirstAgent ? threads_.at(who) : agents_.at(who - kFirstAgent);
    }
    void raise(int32_t who, uint32_t epoch) {
        if (who < kFirstAgent) {
            threads_.raise(who, epoch);
        } else {
            agents_.raise(who - kFirstAgent, epoch);
        }
    }
    void join(const VectorClock& other) {
        threads_.join(other.threads_);
        agents_.join(other.agents_);
    }

private:
    class Epochs {
    public:
        [[nodiscard]] uint32_t at(int32_t i) const {
            return shared_ != nullptr && static_cast<size_t>(i) < shared_->size() ? shared_->data()[i] : 0;
        }
        void raise(int32_t i, uint32_t epoch);
        void join(const Epochs& other);

    private:
        using List = std::vector<uint32_t>;  // implicit zeros after the end
        List& alone();                       // a copy if it is shared
        std::shared_ptr<List> shared_;       // null: all zeros; changed only by a sole owner
    };

    Epochs threads_;
    Epochs agents_;  // from kFirstAgent on
};

// The clock of another block, as one of its threads released it.
struct BlockKnowledge {
    VectorClock known;
    uint32_t block_epoch = 0;  // its threads' actions before that many of the block's barriers are covered too
    VectorClock fenced;        // K3
    uint32_t fenced_blocks = 0;
    void join(const BlockKnowledge& other) {
        known.join(other.known);
        block_epoch = std::max(block_epoch, other.block_epoch);
        fenced.join(other.fenced);
        fenced_blocks = std::max(fenced_blocks, other.fenced_blocks);
    }
};
using BlocksKnowledge = std::map<int32_t, BlockKnowledge>;  // by block
inline void join(BlocksKnowledge& to, const BlocksKnowledge& from) {
    for (const auto& [block, knowledge] : from) to[block].join(knowledge);
}

struct Knowledge {
    VectorClock known;
    VectorClock fenced;
    uint32_t fenced_blocks = 0;  // writes before that many barriers of the block are fenced too
    uint32_t unsafe_from = 0;    // launches from this one up to the current may still run
    BlocksKnowledge others;
    bool is_cooperative = false;  // the launch's blocks are resident together, and readers of all blocks are listed
    void join(const Knowledge& other) {
        simt::join(others, other.others);
        known.join(other.known);
        fenced.join(other.fenced);
        fenced_blocks = std::max(fenced_blocks, other.fenced_blocks);
        unsafe_from = std::max(unsafe_from, other.unsafe_from);
        is_cooperative |= other.is_cooperative;
    }
};

}  // namespace verbatim::simt
