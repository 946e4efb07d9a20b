// kernels/cuda/simt/knowledge.h: owns what a thread of a block knows of the others: how much of what each has done
// comes before what the thread does next.
//
//   K1  everybody counts epochs; who makes something known ends an epoch, so that what comes later is not known yet
//   K2  what `who` did in an epoch before known.at(who) comes before; whatever has joined it knows as much
//   K3  fenced.at(who) <= known.at(who): of what threads wrote, that is what asynchronous copies and tensor cores see,
//       too (fence_async)
//   K4  those who have met at a barrier share one clock; who learns something of its own takes a copy first
//
// Numbers below kFirstAgent are threads. Those from there on do something behind the threads' backs: what a bulk copy
// writes, or what a multiplication on tensor cores reads until it is waited for.
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
        using List = std::vector<uint32_t>;  // behind the end: 0
        List& alone();                       // a copy, if others have it too
        std::shared_ptr<List> shared_;       // null: nothing is known; changed by who has it alone
    };

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
        blocks_meet |= other.blocks_meet;
    }
};

}  // namespace verbatim::simt
