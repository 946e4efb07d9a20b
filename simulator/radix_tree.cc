#include "simulator/radix_tree.h"

#include <utility>

#include "engine/base/check.h"

namespace verbatim {

int32_t RadixTree::root(const CacheSalt& salt) {
    const auto found = roots_.find(salt.value);
    if (found != roots_.end()) return found->second;
    const int32_t id = add(kNone, 0, {});
    roots_.emplace(salt.value, id);
    return id;
}

int32_t RadixTree::add(int32_t parent, int64_t begin, TokenSeq tokens) {
    CHECK(parent == kNone || begin < tokens.size(), "an edge from {} to {}", begin, tokens.size());
    num_tokens_ += tokens.size() - begin;
    const int32_t id = nodes_.add({.parent = parent, .begin = begin, .tokens = std::move(tokens), .is_live = true});
    if (parent != kNone) node(parent).children[node(id).tokens.at(begin)] = id;
    return id;
}

auto RadixTree::match(int32_t root, const TokenSeq& tokens) const -> Match {
    Match match{root, 0};
    while (match.length < tokens.size()) {
        const Node& at = node(match.node);
        const auto child = at.children.find(tokens.at(match.length));
        if (child == at.children.end()) break;
        const Node& next = node(child->second);
        match.length = next.tokens.common_prefix(tokens);
        if (match.length < next.end()) break;
        match.node = child->second;
    }
    return match;
}

int32_t RadixTree::last_with_state(int32_t id) const {
    while (!is_root(id) && !node(id).has_state) id = node(id).parent;
    return id;
}

int32_t RadixTree::insert(int32_t root, const TokenSeq& tokens) {
    Match found = match(root, tokens);
    if (found.length > node(found.node).end()) {
        const int32_t child = node(found.node).children.at(tokens.at(node(found.node).end()));
        found.node = split(child, found.length);
    }
    if (found.length == tokens.size()) return found.node;
    return add(found.node, found.length, tokens);
}

int32_t RadixTree::split(int32_t id, int64_t at) {
    const int32_t parent = node(id).parent;
    const int64_t begin = node(id).begin;
    CHECK(begin < at && at < node(id).end(), "an edge from {} to {} is split at {}", begin, node(id).end(), at);
    const int32_t upper = add(parent, begin, node(id).tokens.slice(0, at));
    Node& lower = node(id);
    node(upper).last_use = lower.last_use;
    node(upper).is_locked = lower.is_locked;
    node(upper).children[lower.tokens.at(at)] = id;
    lower.parent = upper;
    lower.begin = at;
    num_tokens_ -= at - begin;
    return upper;
}

void RadixTree::remove_leaf(int32_t id) {
    const Node& leaf = node(id);
    CHECK(leaf.is_live && leaf.is_leaf() && leaf.parent != kNone, "node {} is no leaf", id);
    node(leaf.parent).children.erase(leaf.tokens.at(leaf.begin));
    num_tokens_ -= leaf.edge();
    CHECK_GE(num_tokens_, 0);
    nodes_.free(id);
}

void RadixTree::merge_into_child(int32_t id) {
    const Node& gone = node(id);
    CHECK(gone.is_live && gone.children.size() == 1 && gone.parent != kNone, "node {} has {} children", id,
          gone.children.size());
    const int32_t child = gone.children.begin()->second;
    node(child).parent = gone.parent;
    node(child).begin = gone.begin;
    node(gone.parent).children[gone.tokens.at(gone.begin)] = child;
    nodes_.free(id);
}

}  // namespace verbatim
