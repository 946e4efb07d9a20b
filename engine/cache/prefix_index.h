// engine/cache/prefix_index.h: finds the longest head that is a prefix of a token sequence, inside one salt.
//
// A radix tree for each salt and arithmetic. A node stands for a prefix that heads have in common. The edge to a child
// is found by a hash of (node, first token of the edge) and proposes a head; the tokens of the edge are compared. So a
// lookup looks at each token of a prompt once at most, and where the prompt and a head share runs, at none. A search
// can start at a head that is known to be a prefix: a turn of an old conversation does not walk all of its turns.
//   X1  a node holds heads, or has two children or more, or is the root of its salt and arithmetic
//   X2  the tokens of a node are the first ones of its witness, a head at or below the node, and share their list of
//       runs; the nodes of one witness are a path up from the node that holds it
//   X3  the heads of a node are equal in salt, arithmetic and tokens; the newest comes first
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/index_table.h"
#include "engine/base/slot_map.h"
#include "engine/cache/head.h"

namespace verbatim {

class PrefixIndex {
public:
    // The head outlives its entry, and stays where it is; its salt, arithmetic, tokens and id do not change. `known`
    // is any inserted head whose tokens are the first ones of this head's, or null.
    void insert(Head& head, const Head* known = nullptr);
    void erase(Head& head);  // REQUIRES: inserted

    struct Query {
        const CacheSalt& salt;
        const TokenSeq& tokens;
        const std::string* numerics_id = nullptr;  // null: any
        const Head* known = nullptr;               // an inserted head whose tokens are the first ones, or null
    };
    // The longest head with at most `max_length` tokens, all of them the first ones of the query; the newest among
    // equals. Null: there is none.
    [[nodiscard]] const Head* longest_prefix(const Query& query, int64_t max_length) const;
    // The longest head of the same salt and arithmetic that is shorter than this one and a prefix of it.
    [[nodiscard]] const Head* longest_prefix_of(const Head& head) const;
    // A head that begins with more of the query than any other, and how much of it. Null: none has the first token.
    struct Common {
        const Head* head = nullptr;
        int64_t length = 0;
    };
    [[nodiscard]] Common longest_common(const Query& query) const;
    [[nodiscard]] size_t size() const { return size_; }
    [[nodiscard]] size_t num_nodes() const { return nodes_.size(); }
    // Nodes looked at so far: what lookups cost, for tests that time would not be steady enough for.
    [[nodiscard]] int64_t num_visits() const { return num_visits_; }
    void verify() const;  // X1 to X3 from scratch

private:
    static constexpr uint32_t kNone = IndexTable::kNone;
    struct Node {
        TokenSeq tokens;
        const Head* witness = nullptr;  // null: a root
        Head* heads = nullptr;          // newest first (Head::older_equal)
        uint32_t parent = kNone;
        uint32_t first_child = kNone;
        uint32_t next_sibling = kNone;
        uint32_t previous_sibling = kNone;
        [[nodiscard]] int64_t length() const { return tokens.size(); }
    };
    struct Root {
        std::string numerics_id;
        uint32_t node = kNone;
    };
    // Where a search ends: the first `common` tokens are those of `node` and what follows of them on the edge to
    // `child` (kNone: nothing).
    struct Place {
        uint32_t node = kNone;
        uint32_t child = kNone;
        int64_t common = 0;
        uint32_t last_with_heads = kNone;  // on the way
    };
    [[nodiscard]] Place search(uint32_t from, const TokenSeq& tokens, int64_t max_length) const;
    template <typename Visit>
    void for_each_start(const Query& query, const Visit& visit) const;
    uint32_t root_for(const Head& head);
    void drop_root(const Head& head, uint32_t root);
    uint32_t split(const Place& place);
    void add_child(uint32_t parent, uint32_t child);
    void replace_child(uint32_t parent, uint32_t child, uint32_t by);
    void remove_child(uint32_t parent, uint32_t child);
    void replace_witness(const Head& gone, uint32_t node);
    void drop_node_if_needless(uint32_t node);
    void verify_node(uint32_t node) const;

    std::map<CacheSalt, std::vector<Root>> roots_;
    SlotMap<Node, uint32_t> nodes_;
    IndexTable edges_;
    size_t size_ = 0;
    mutable int64_t num_visits_ = 0;
};

}  // namespace verbatim
