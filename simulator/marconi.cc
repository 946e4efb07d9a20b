#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "simulator/radix_tree.h"
#include "simulator/rival_cache.h"

namespace verbatim {
namespace {

// A radix tree of which every node has a state: at the end of each answer, and where a prompt leaves an edge. The node
// of the lowest utility leaves, of those with one child at most:
//
//     utility = recency + alpha x efficiency, each scaled to [0, 1] over these nodes
//     recency = 1 / time since the last use, efficiency = operations that the node saves over its parent / bytes of its
//     state and of all its KV
//
// alpha is 0 until the cache has seen five times as many requests as fitted before the first eviction. Then it is the
// one of 0, 0.1, ... 2 with which these requests would have saved the most operations.
class Marconi final : public RivalCache {
public:
    explicit Marconi(const RivalConfig& config) : config_(config) {}
    [[nodiscard]] bool fits(int64_t num_resident_tokens) const override {
        return bytes(num_resident_tokens, 2) <= config_.budget_bytes;
    }
    int64_t serve(const RivalRequest& request) override;
    [[nodiscard]] int64_t num_evictions() const override { return num_evictions_; }
    [[nodiscard]] int64_t held_bytes() const override { return bytes(tree_.num_tokens(), num_states_); }

private:
    struct Past {
        CacheSalt salt;
        TokenSeq resident;
        int64_t num_prompt_tokens = 0;
    };
    struct Scores {
        int32_t id = 0;
        double recency = 0;
        double efficiency = 0;
    };
    static constexpr int64_t kWindowFactor = 5;

    [[nodiscard]] int64_t bytes(int64_t num_tokens, int64_t num_states) const {
        return num_tokens * config_.kv_bytes_per_token + num_states * config_.state_bytes;
    }
    [[nodiscard]] double operations(int64_t begin, int64_t end) const {
        const auto b = static_cast<double>(begin);
        const auto e = static_cast<double>(end);
        return (e - b) * config_.operations_per_token + (e * e - b * b) / 2 * config_.operations_per_pair;
    }
    void remember(const RivalRequest& request);
    void tune();
    void keep(int32_t root, const TokenSeq& tokens);
    void make_room(int64_t wanted_bytes);
    bool evict();

    RivalConfig config_;
    RadixTree tree_;
    int64_t num_states_ = 0;
    int64_t now_ = 0;
    int64_t num_requests_ = 0;
    int64_t num_evictions_ = 0;
    int64_t window_ = 0;  // requests after which alpha is chosen; 0: nothing was evicted yet
    bool is_tuned_ = false;
    double alpha_ = 0;
    double saved_operations_ = 0;
    std::vector<Past> past_;
};

void scale_to_one(std::vector<double>& values) {
    const auto [low, high] = std::ranges::minmax(values);
    for (double& value : values) value = high > low ? (value - low) / (high - low) : 1;
}

bool Marconi::evict() {
    std::vector<int32_t> ids;
    std::vector<double> recency;
    std::vector<double> efficiency;
    for (int32_t id = 0; id < tree_.num_ids(); ++id) {
        const RadixTree::Node& node = tree_.node(id);
        if (!node.is_live || node.parent == RadixTree::kNone || node.children.size() > 1 || node.is_locked) continue;
        if (!node.is_leaf() && !node.has_state) continue;
        ids.push_back(id);
        recency.push_back(1.0 / static_cast<double>(now_ + 1 - node.last_use));
        efficiency.push_back(operations(node.begin, node.end()) / static_cast<double>(bytes(node.end(), 1)));
    }
    if (ids.empty()) return false;
    scale_to_one(recency);
    scale_to_one(efficiency);
    size_t lowest = 0;
    for (size_t i = 1; i < ids.size(); ++i) {
        if (recency[i] + alpha_ * efficiency[i] < recency[lowest] + alpha_ * efficiency[lowest]) lowest = i;
    }
    const int32_t id = ids[lowest];
    num_states_ -= tree_.node(id).has_state ? 1 : 0;
    CHECK_GE(num_states_, 0);
    ++num_evictions_;
    if (tree_.node(id).is_leaf()) {
        tree_.remove_leaf(id);
    } else {
        const int32_t child = tree_.node(id).children.begin()->second;
        tree_.node(child).last_use = std::max(tree_.node(child).last_use, tree_.node(id).last_use);
        tree_.merge_into_child(id);
    }
    return true;
}

void Marconi::make_room(int64_t wanted_bytes) {
    while (held_bytes() + wanted_bytes > config_.budget_bytes) {
        if (window_ == 0) window_ = std::max<int64_t>(1, kWindowFactor * num_requests_);
        if (!evict()) return;
    }
}

void Marconi::remember(const RivalRequest& request) {
    if (is_tuned_) return;
    past_.push_back({request.salt, request.resident, request.num_prompt_tokens});
    if (window_ > 0 && num_requests_ >= window_) tune();
}

// The window's requests again, from the empty cache, with each alpha.
void Marconi::tune() {
    CHECK(!is_tuned_ && !past_.empty(), "{} requests to choose alpha by", past_.size());
    is_tuned_ = true;
    double most = -1;
    for (int32_t tenths = 0; tenths <= 20; ++tenths) {
        Marconi trial(config_);
        trial.is_tuned_ = true;
        trial.alpha_ = tenths / 10.0;
        for (const Past& past : past_) trial.serve({past.salt, past.resident, past.num_prompt_tokens});
        if (trial.saved_operations_ > most) {
            most = trial.saved_operations_;
            alpha_ = trial.alpha_;
        }
    }
    past_.clear();
}

void Marconi::keep(int32_t root, const TokenSeq& tokens) {
    RadixTree::Node& node = tree_.node(tree_.insert(root, tokens));
    if (!node.has_state && config_.state_bytes > 0) {
        node.has_state = true;
        ++num_states_;
    }
    node.last_use = now_;
}

int64_t Marconi::serve(const RivalRequest& request) {
    ++now_;
    ++num_requests_;
    remember(request);
    const int32_t root = tree_.root(request.salt);
    const RadixTree::Match match = tree_.match(root, request.resident.slice(0, request.num_prompt_tokens - 1));
    const int32_t best = config_.state_bytes > 0 ? tree_.last_with_state(match.node) : match.node;
    const int64_t reused = config_.state_bytes > 0 ? tree_.node(best).end() : match.length;
    if (!tree_.is_root(best)) tree_.node(best).last_use = now_;
    saved_operations_ += operations(0, reused);
    // A prompt that leaves an edge leaves a state there; the answer's end has one.
    std::optional<TokenSeq> branch;
    if (match.length > tree_.node(best).end()) branch = request.resident.slice(0, match.length);
    const int64_t num_new = request.resident.size() - tree_.match(root, request.resident).length;
    // What is used now stays while room is made.
    std::vector<int32_t> path;
    for (int32_t id = match.node; !tree_.is_root(id); id = tree_.node(id).parent) path.push_back(id);
    if (branch) {
        const RadixTree::Node& at = tree_.node(match.node);
        const auto child = at.children.find(branch->at(std::min(at.end(), branch->size() - 1)));
        if (at.end() < match.length && child != at.children.end()) path.push_back(child->second);
    }
    for (const int32_t id : path) tree_.node(id).is_locked = true;
    make_room(bytes(num_new, branch ? 2 : 1));
    for (const int32_t id : path) tree_.node(id).is_locked = false;
    if (branch) keep(root, *branch);
    keep(root, request.resident);
    make_room(0);
    CHECK_LT(reused, request.num_prompt_tokens);
    return reused;
}

}  // namespace

std::unique_ptr<RivalCache> make_marconi(const RivalConfig& config) { return std::make_unique<Marconi>(config); }

}  // namespace verbatim
