// simulator/radix_tree.h: owns the token sequences that a simulated cache holds, as a radix tree. Policies of other
// engines (simulator/rival_cache.h) keep KV for every token of the tree, and states at some of its nodes.
//   T1  two children of a node begin with different tokens
//   T2  num_tokens() is the sum of the edges' lengths: tokens that sequences share are counted once
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/slot_map.h"
#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"

namespace verbatim {

class RadixTree {
public:
    static constexpr int32_t kNone = -1;

    struct Node {
        int32_t parent = kNone;  // kNone: a root, or no node
        int64_t begin = 0;       // where its edge begins
        TokenSeq tokens;         // from the root to the node's end
        std::map<TokenId, int32_t> children;
        bool is_live = false;
        bool has_state = false;
        bool is_locked = false;  // the running request needs it
        int64_t last_use = 0;    // by the policy's clock
        [[nodiscard]] int64_t end() const { return tokens.size(); }
        [[nodiscard]] int64_t edge() const { return end() - begin; }
        [[nodiscard]] bool is_leaf() const { return children.empty(); }
    };

    [[nodiscard]] int32_t root(const CacheSalt& salt);
    [[nodiscard]] Node& node(int32_t id) { return nodes_[id]; }
    [[nodiscard]] const Node& node(int32_t id) const { return nodes_[id]; }
    [[nodiscard]] bool is_root(int32_t id) const { return node(id).parent == kNone; }
    [[nodiscard]] int32_t num_ids() const { return static_cast<int32_t>(nodes_.num_numbers()); }  // live ones are below
    [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }

    struct Match {
        int32_t node = kNone;  // the deepest one whose tokens are a prefix of the sequence
        int64_t length = 0;    // tokens in common, also inside the edge of a child of `node`
    };
    [[nodiscard]] Match match(int32_t root, const TokenSeq& tokens) const;
    // The node itself or the lowest one above it that has a state; the root if none has.
    [[nodiscard]] int32_t last_with_state(int32_t id) const;
    // The node that ends where `tokens` end; edges are split and added as needed. The upper part of a split edge is a
    // new node without state, and locked if the lower one is.
    int32_t insert(int32_t root, const TokenSeq& tokens);
    void remove_leaf(int32_t id);       // REQUIRES: no children, no root
    void merge_into_child(int32_t id);  // REQUIRES: one child, no root; the child's edge begins where this one's did

private:
    int32_t add(int32_t parent, int64_t begin, TokenSeq tokens);
    int32_t split(int32_t id, int64_t at);

    SlotMap<Node, int32_t> nodes_;
    std::map<std::optional<std::string>, int32_t> roots_;
    int64_t num_tokens_ = 0;
};

}  // namespace verbatim
