#include "engine/cache/prefix_index.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

namespace {

// The key of the edge that goes on from the node with this token.
uint64_t edge(uint32_t node, TokenId first) { return (uint64_t{node} << 32) | static_cast<uint32_t>(first); }

}  // namespace

// --- search

// REQUIRES: the tokens of `from` are the first ones of `tokens`.
auto PrefixIndex::search(uint32_t from, const TokenSeq& tokens, int64_t max_length) const -> Place {
    const int64_t end = std::min(max_length, tokens.size());
    Place place{.node = from, .common = nodes_[from].length()};
    if (nodes_[from].heads != nullptr && place.common <= end) place.last_with_heads = from;
    while (place.common < end) {
        const uint32_t child = edges_.find(edge(place.node, tokens.at(place.common)));
        if (child == kNone) break;
        ++num_visits_;
        const Node& node = nodes_[child];
        place.common = std::min(tokens.common_prefix(node.tokens, place.common + 1), end);
        if (place.common < node.length()) {
            place.child = child;
            break;
        }
        place.node = child;
        if (node.heads != nullptr) place.last_with_heads = child;
    }
    return place;
}

// Calls visit(node) with the node at which a search starts, for each arithmetic of the query.
template <typename Visit>
void PrefixIndex::for_each_start(const Query& query, const Visit& visit) const {
    if (query.known != nullptr && query.numerics_id != nullptr && *query.numerics_id == *query.known->numerics_id) {
        visit(query.known->prefix_node);
        return;
    }
    const auto roots = roots_.find(query.salt);
    if (roots == roots_.end()) return;
    for (const Root& root : roots->second) {
        if (query.numerics_id == nullptr || *query.numerics_id == root.numerics_id) visit(root.node);
    }
}

const Head* PrefixIndex::longest_prefix(const Query& query, int64_t max_length) const {
    const Head* longest = nullptr;
    for_each_start(query, [&](uint32_t start) {
        const uint32_t found = search(start, query.tokens, max_length).last_with_heads;
        if (found == kNone) return;
        const Head* head = nodes_[found].heads;
        const bool is_better = longest == nullptr || head->length() > longest->length() ||
                               (head->length() == longest->length() && head->id > longest->id);
        if (is_better) longest = head;
    });
    return longest;
}

const Head* PrefixIndex::longest_prefix_of(const Head& head) const {
    CHECK(head.in_prefix_index, "head {} is not in the index", index(head.id));
    for (uint32_t node = nodes_[head.prefix_node].parent; node != kNone; node = nodes_[node].parent) {
        ++num_visits_;
        if (nodes_[node].heads != nullptr) return nodes_[node].heads;
    }
    return nullptr;
}

auto PrefixIndex::longest_common(const Query& query) const -> Common {
    Common longest;
    for_each_start(query, [&](uint32_t start) {
        const Place place = search(start, query.tokens, query.tokens.size());
        if (place.common <= longest.length) return;
        longest = {nodes_[place.child == kNone ? place.node : place.child].witness, place.common};
    });
    return longest;
}

// --- insert

void PrefixIndex::insert(Head& head, const Head* known) {
    CHECK(head.in_prefix_index && !head.tokens.empty(), "head {} of {} tokens", index(head.id), head.length());
    CHECK(head.prefix_node == kNone, "insert: head {} is in the index already", index(head.id));
    const Place place = search(known == nullptr ? root_for(head) : known->prefix_node, head.tokens, head.length());
    uint32_t at = place.child == kNone ? place.node : split(place);
    if (nodes_[at].length() < head.length()) {
        const uint32_t leaf = nodes_.add({.tokens = head.tokens, .witness = &head});
        add_child(at, leaf);
        at = leaf;
    }
    CHECK_EQ(nodes_[at].length(), head.length());
    Node& node = nodes_[at];
    CHECK(node.heads == nullptr || node.heads->id < head.id, "head {} comes after head {}", index(head.id),
          index(node.heads->id));
    head.prefix_node = at;
    head.older_equal = node.heads;
    if (node.heads != nullptr) node.heads->newer_equal = &head;
    node.heads = &head;
    ++size_;
}

uint32_t PrefixIndex::root_for(const Head& head) {
    std::vector<Root>& roots = roots_[head.salt];
    const auto found = std::ranges::find(roots, *head.numerics_id, &Root::numerics_id);
    if (found != roots.end()) return found->node;
    roots.push_back({head.numerics_id, nodes_.add({})});
    CHECK_EQ(nodes_[roots.back().node].length(), 0);
    return roots.back().node;
}

// A node where the search left the edge to `place.child`.
uint32_t PrefixIndex::split(const Place& place) {
    const Head* witness = nodes_[place.child].witness;
    CHECK(nodes_[place.node].length() < place.common && place.common < nodes_[place.child].length(),
          "an edge from {} to {} tokens is split at {}", nodes_[place.node].length(), nodes_[place.child].length(),
          place.common);
    const uint32_t middle = nodes_.add({.tokens = witness->tokens.slice(0, place.common), .witness = witness});
    replace_child(place.node, place.child, middle);
    nodes_[place.child].previous_sibling = nodes_[place.child].next_sibling = kNone;
    add_child(middle, place.child);
    CHECK(nodes_[middle].parent == place.node && nodes_[place.child].parent == middle,
          "node {} is not between {} and {}", middle, place.node, place.child);
    return middle;
}

void PrefixIndex::add_child(uint32_t parent, uint32_t child) {
    Node& added = nodes_[child];
    const uint32_t first = nodes_[parent].first_child;
    CHECK(added.length() > nodes_[parent].length() && first != child, "node {} of {} tokens below node {} of {}", child,
          added.length(), parent, nodes_[parent].length());
    added.parent = parent;
    added.next_sibling = first;
    if (first != kNone) nodes_[first].previous_sibling = child;
    nodes_[parent].first_child = child;
    const bool is_new = edges_.insert(edge(parent, added.tokens.at(nodes_[parent].length())), child);
    CHECK(is_new, "node {} has a child of this token already", parent);
}

// `by` takes the place of `child` among the children of `parent`: an edge of the same first token leads to it.
void PrefixIndex::replace_child(uint32_t parent, uint32_t child, uint32_t by) {
    const Node& replaced = nodes_[child];
    Node& put = nodes_[by];
    CHECK_EQ(replaced.parent, parent);
    put.parent = parent;
    put.next_sibling = replaced.next_sibling;
    put.previous_sibling = replaced.previous_sibling;
    if (put.next_sibling != kNone) nodes_[put.next_sibling].previous_sibling = by;
    if (put.previous_sibling != kNone) {
        nodes_[put.previous_sibling].next_sibling = by;
    } else {
        nodes_[parent].first_child = by;
    }
    edges_.assign(edge(parent, put.tokens.at(nodes_[parent].length())), by);
}

// --- erase

void PrefixIndex::erase(Head& head) {
    const uint32_t at = std::exchange(head.prefix_node, kNone);
    CHECK(at != kNone, "erase: head {} is not in the index", index(head.id));
    Head* newer = std::exchange(head.newer_equal, nullptr);
    Head* older = std::exchange(head.older_equal, nullptr);
    if (older != nullptr) older->newer_equal = newer;
    if (newer != nullptr) {
        newer->older_equal = older;
    } else {
        CHECK(nodes_[at].heads == &head, "head {} does not lie at node {}", index(head.id), at);
        nodes_[at].heads = older;
    }
    --size_;
    const uint32_t parent = nodes_[at].parent;
    if (nodes_[at].witness == &head) replace_witness(head, at);
    if (nodes_[at].heads != nullptr || nodes_[at].first_child != kNone) {
        drop_node_if_needless(at);
        return;
    }
    edges_.erase(edge(parent, head.tokens.at(nodes_[parent].length())));
    remove_child(parent, at);
    if (nodes_[parent].parent != kNone) {
        drop_node_if_needless(parent);
    } else if (nodes_[parent].first_child == kNone) {
        drop_root(head, parent);
    }
}

// X2: on the way up, each node of which the head was the witness gets one that lies in it, or below it off the way.
void PrefixIndex::replace_witness(const Head& gone, uint32_t node) {
    for (uint32_t from = kNone; nodes_[node].witness == &gone; from = std::exchange(node, nodes_[node].parent)) {
        Node& changed = nodes_[node];
        ++num_visits_;
        const uint32_t first = changed.first_child;
        const uint32_t child = first != kNone && first == from ? nodes_[first].next_sibling : first;
        changed.witness = changed.heads;
        if (changed.heads == nullptr && child != kNone) changed.witness = nodes_[child].witness;
        CHECK(changed.witness != nullptr || from == kNone, "node {} has nothing beside node {}", node, from);
        const int64_t length = changed.length();
        changed.tokens = changed.witness == nullptr ? TokenSeq{} : changed.witness->tokens.slice(0, length);
        CHECK(changed.witness != &gone, "head {} stays the witness of node {}", index(gone.id), node);
    }
}

void PrefixIndex::remove_child(uint32_t parent, uint32_t child) {
    const Node& removed = nodes_[child];
    CHECK(removed.first_child == kNone && removed.heads == nullptr && removed.parent == parent,
          "node {} is no empty child of node {}", child, parent);
    if (removed.next_sibling != kNone) nodes_[removed.next_sibling].previous_sibling = removed.previous_sibling;
    if (removed.previous_sibling != kNone) {
        nodes_[removed.previous_sibling].next_sibling = removed.next_sibling;
    } else {
        nodes_[parent].first_child = removed.next_sibling;
    }
    nodes_.free(child);
}

// X1: a node with neither heads nor two children gives its place to its only child.
void PrefixIndex::drop_node_if_needless(uint32_t node) {
    const Node& dropped = nodes_[node];
    const uint32_t child = dropped.first_child;
    if (dropped.parent == kNone || dropped.heads != nullptr || nodes_[child].next_sibling != kNone) return;
    CHECK(nodes_[child].previous_sibling == kNone, "node {} is not the first child", child);
    edges_.erase(edge(node, nodes_[child].tokens.at(dropped.length())));
    CHECK_LT(dropped.length(), nodes_[child].length());
    replace_child(dropped.parent, node, child);
    nodes_.free(node);
}

void PrefixIndex::drop_root(const Head& head, uint32_t root) {
    const auto roots = roots_.find(head.salt);
    CHECK(roots != roots_.end(), "the salt of head {} has no root", index(head.id));
    CHECK_EQ(std::erase_if(roots->second, [&](const Root& entry) { return entry.node == root; }), 1u);
    if (roots->second.empty()) roots_.erase(roots);
    CHECK(nodes_[root].heads == nullptr && nodes_[root].first_child == kNone, "root {} is in use", root);
    nodes_.free(root);
}

// --- from scratch

void PrefixIndex::verify() const {
    size_t num_heads = 0;
    size_t num_below = 0;
    for (const auto& [salt, roots] : roots_) {
        CHECK(!roots.empty(), "salt '{}' has no root", salt.value.value_or("(none)"));
        for (const Root& root : roots) {
            CHECK(nodes_[root.node].parent == kNone && nodes_[root.node].witness == nullptr &&
                      nodes_[root.node].heads == nullptr && nodes_[root.node].first_child != kNone,
                  "node {} is no root", root.node);
            std::vector<uint32_t> nodes = {root.node};
            while (!nodes.empty()) {
                const uint32_t at = nodes.back();
                nodes.pop_back();
                if (at != root.node) verify_node(at);
                for (const Head* head = nodes_[at].heads; head != nullptr; head = head->older_equal) {
                    ++num_heads;
                    CHECK(*head->salt == salt && *head->numerics_id == root.numerics_id,
                          "head {} lies under another salt or arithmetic", index(head->id));
                }
                for (uint32_t child = nodes_[at].first_child; child != kNone; child = nodes_[child].next_sibling) {
                    ++num_below;
                    CHECK_EQ(nodes_[child].parent, at);
                    nodes.push_back(child);
                }
            }
            ++num_below;
        }
    }
    CHECK_EQ(num_heads, size_);
    CHECK_EQ(num_below, num_nodes());
}

void PrefixIndex::verify_node(uint32_t at) const {
    const Node& node = nodes_[at];
    const Node& parent = nodes_[node.parent];
    CHECK(node.length() > parent.length(), "node {} of {} tokens is below one of {}", at, node.length(),
          parent.length());
    CHECK(node.heads != nullptr || (node.first_child != kNone && nodes_[node.first_child].next_sibling != kNone),
          "node {} is needless", at);
    const TokenSeq& tokens = node.witness->tokens;
    CHECK(tokens.starts_with(node.tokens), "the witness of node {} has other tokens", at);
    CHECK(edges_.find(edge(node.parent, tokens.at(parent.length()))) == at, "no edge leads to node {}", at);
    CHECK(parent.witness == nullptr || tokens.common_prefix(parent.witness->tokens) >= parent.length(),
          "node {} lies below other tokens", at);
    for (const Head* head = node.heads; head != nullptr; head = head->older_equal) {
        CHECK(head->in_prefix_index && head->prefix_node == at, "head {} is in the index and does not know",
              index(head->id));
        CHECK(head->length() == node.length() && tokens.starts_with(head->tokens), "head {} lies at other tokens",
              index(head->id));
        CHECK(head->older_equal == nullptr || head->older_equal->id < head->id, "head {} comes after head {}",
              index(head->id), index(head->older_equal->id));
    }
    const uint32_t lowest = node.witness->prefix_node;
    uint32_t up = lowest;
    while (up != at && up != kNone && nodes_[up].witness == node.witness) up = nodes_[up].parent;
    CHECK(up == at, "the witness of node {}, head {}, is not below it", at, index(node.witness->id));
}

}  // namespace verbatim
