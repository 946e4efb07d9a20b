// traces/prefix_tree.h: block sequences seen so far, to find the longest common run from the start with a new one.
//
// A compressed trie: an edge is one run of consecutive ids, so a sequence costs as many nodes as it has runs of its own.
//   P1  the children of a node begin with different ids
//   P2  latest(node) is the last sequence that went through the node's edge
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "traces/recording.h"

namespace verbatim::traces {

class PrefixTree {
public:
    PrefixTree() : nodes_(1) {}

    struct Match {
        int64_t num_blocks = 0;              // common with at least one earlier sequence
        int64_t latest = -1;                 // of those with this many blocks in common, the last one
        std::span<const int64_t> complete;   // sequences of exactly these num_blocks blocks, in order of insertion
    };
    // Valid until the next insert. The ids of a run and of runs that follow each other may be anything.
    [[nodiscard]] Match longest(std::span<const IdRun> runs) const;
    // `number` is larger than those of all insertions before.
    void insert(std::span<const IdRun> runs, int64_t number);

private:
    struct Node {
        IdRun edge;                      // into this node
        int64_t latest = -1;             // P2
        std::vector<int64_t> complete;   // sequences that end here
    };
    struct Place {
        size_t node = 0;
        int64_t in_edge = 0;       // blocks of the edge that are common; the whole edge for the root
        size_t run = 0;            // of the sequence: the first run that is not wholly common
        int64_t in_run = 0;        // common blocks of it
        int64_t num_blocks = 0;
    };
    static uint64_t key(size_t node, int64_t first_id) { return uint64_t{node} << 31 | static_cast<uint64_t>(first_id); }
    [[nodiscard]] Place descend(std::span<const IdRun> runs) const;
    void split(size_t node, int64_t in_edge);

    std::vector<Node> nodes_;                          // [0] is the root
    std::unordered_map<uint64_t, size_t> children_;    // by (parent, first id of the edge)
    std::vector<size_t> parents_{0};
};

}  // namespace verbatim::traces
