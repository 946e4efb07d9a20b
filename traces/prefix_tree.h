// traces/prefix_tree.h: block sequences seen so far, to find the longest common run from the start with a new one.
//
// A compressed trie: an edge is one run of consecutive ids, so a sequence costs as many nodes as it has runs of its
// own.
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
        int64_t num_blocks = 0;             // common with at least one earlier sequence
        int64_t latest = -1;                // of those with this many blocks in common, the last one
        std::span<const int64_t> complete;  // sequences of exactly these num_blocks blocks, in order of insertion
    };
    // Valid until the next insert. The ids of a run and of runs that follow each other may be anything.
    [[nodiscard]] Match longest(std::span<const IdRun> runs) const;
    // Calls visit(num_blocks, complete) for every earlier sequence length that is a prefix of this one, the longest
    // last.
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
    // `number` is larger than those of all insertions before.
    void insert(std::span<const IdRun> runs, int64_t number);

private:
    struct Node {
        IdRun edge;                     // into this node
        int64_t latest = -1;            // P2
        std::vector<int64_t> complete;  // sequences that end here
    };
    struct Place {
        size_t node = 0;
        int64_t in_edge = 0;  // blocks of the edge that are common; the whole edge for the root
        size_t run = 0;       // of the sequence: the first run that is not wholly common
        int64_t in_run = 0;   // common blocks of it
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
