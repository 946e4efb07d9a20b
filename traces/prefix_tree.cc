#include "traces/prefix_tree.h"

#include <algorithm>

namespace verbatim::traces {

PrefixTree::Place PrefixTree::descend(std::span<const IdRun> runs) const {
    Place place;
    while (place.run < runs.size()) {
        const IdRun& run = runs[place.run];
        const int64_t next_id = run.first + place.in_run;
        const IdRun& edge = nodes_[place.node].edge;
        if (place.in_edge == edge.count) {
            const auto child = children_.find({place.node, next_id});
            if (child == children_.end()) break;
            place.node = child->second;
            place.in_edge = 0;
            continue;
        }
        if (edge.first + place.in_edge != next_id) break;
        const int64_t common = std::min(edge.count - place.in_edge, run.count - place.in_run);
        place.in_edge += common;
        place.in_run += common;
        place.num_blocks += common;
        if (place.in_run == run.count) {
            ++place.run;
            place.in_run = 0;
        }
    }
    return place;
}

PrefixTree::Match PrefixTree::longest(std::span<const IdRun> runs) const {
    const Place place = descend(runs);
    const Node& node = nodes_[place.node];
    Match match{place.num_blocks, node.latest, {}};
    if (place.in_edge == node.edge.count) match.complete = node.complete;
    return match;
}

// Splits the node's edge after `in_edge` blocks; a new parent node takes the first part.
void PrefixTree::split(size_t node, int64_t in_edge) {
    const size_t upper = nodes_.size();
    const IdRun edge = nodes_[node].edge;
    nodes_.push_back({{edge.first, in_edge}, nodes_[node].latest, {}});
    parents_.push_back(parents_[node]);
    children_[{parents_[node], edge.first}] = upper;
    nodes_[node].edge = {edge.first + in_edge, edge.count - in_edge};
    parents_[node] = upper;
    children_[{upper, nodes_[node].edge.first}] = node;
}

void PrefixTree::insert(std::span<const IdRun> runs, int64_t number) {
    Place place = descend(runs);
    if (place.in_edge < nodes_[place.node].edge.count) {
        split(place.node, place.in_edge);
        place.node = nodes_.size() - 1;
    }
    for (; place.run < runs.size(); ++place.run, place.in_run = 0) {
        const IdRun& run = runs[place.run];
        const IdRun rest{run.first + place.in_run, run.count - place.in_run};
        const size_t child = nodes_.size();
        nodes_.push_back({rest, number, {}});
        parents_.push_back(place.node);
        children_[{place.node, rest.first}] = child;
        place.node = child;
    }
    nodes_[place.node].complete.push_back(number);
    for (size_t node = place.node; node != 0; node = parents_[node]) nodes_[node].latest = number;
    nodes_[0].latest = number;
}

}  // namespace verbatim::traces
