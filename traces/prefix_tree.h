// traces/prefix_tree.h: owns a compressed trie (radix tree) of the block sequences so far, and finds the longest common
// prefix with a new one.
//
// An edge is one run of consecutive ids, so a sequence adds as many nodes as it has new runs.
//   P1  the children of a node begin with different ids
//   P2  latest(node) is the last sequence that passed the node's edge
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
        int64_t num_blocks = 0;             // common with at least one earlier sequence
        int64_t latest = -1;                // the last sequence with this many blocks in common
        std::span<const int64_t> complete;  // sequences of exactly num_blocks blocks, in order of insertion
    };
    // Valid until the next insert. Ids within and between runs are arbitrary.
    [[nodiscard]] Match longest(std::span<const IdRun> runs) const;
    // Calls visit(num_blocks, complete) for every length of an earlier sequence that is a prefix of this one, the
    // longest last.
    template <typename F>
    void prefixes(std::span<const IdRun> runs, F&& visit) const {
        const Place place = descend(runs);
        std::vector<size_t> path;
        for (size_t node = place.node; node != 0; node = parents_[node]) path.push_back(node);
        int64_t num_blocks = 0;
        for (auto node = path.rbegin(); node != path.rend(); ++node) {
            num_blocks += nodes_[*node].edge.count;
            if (num_blocks <= place.num_blocks) visit(num_blocks, std::span<const int64_t>(nodes_[*node].complete));
        }
    }
    // REQUIRES: `number` is greater than those of all earlier insertions.
    void insert(std::span<const IdRun> runs, int64_t number);

private:
    struct Node {
        IdRun edge;                     // into this node
        int64_t latest = -1;            // P2
        std::vector<int64_t> complete;  // sequences that end here
    };
    struct Place {
        size_t node = 0;
        int64_t in_edge = 0;  // common blocks of the edge; the whole edge for the root
        size_t run = 0;       // in the sequence: the first run that is not completely common
        int64_t in_run = 0;   // common blocks in that run
        int64_t num_blocks = 0;
    };
    struct Key {
        size_t parent = 0;
        int64_t first_id = 0;
        friend bool operator==(const Key&, const Key&) = default;
    };
    struct KeyHash {
        size_t operator()(const Key& key) const {
            return (static_cast<uint64_t>(key.first_id) * 0x9e3779b97f4a7c15u ^ key.parent) * 0xbf58476d1ce4e5b9u >> 7;
        }
    };
    [[nodiscard]] Place descend(std::span<const IdRun> runs) const;
    void split(size_t node, int64_t in_edge);

    std::vector<Node> nodes_;  // [0] is the root
    std::unordered_map<Key, size_t, KeyHash> children_;
    std::vector<size_t> parents_{0};
};

}  // namespace verbatim::traces
