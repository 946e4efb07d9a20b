#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "simulator/radix_tree.h"
#include "simulator/rival_cache.h"

namespace verbatim {
namespace {

// A radix tree of KV with states at some nodes. A leaf has a state always. Two orders of last use: of leaves, which
// leave with KV and state when KV is short, and of all states, of which the oldest leaves when a state is short.
class SglangRadix final : public RivalCache {
public:
    explicit SglangRadix(const RivalConfig& config);
    [[nodiscard]] bool fits(int64_t num_resident_tokens) const override {
        return num_resident_tokens * config_.kv_bytes_per_token <= kv_room_ &&
               num_running_states_ * config_.state_bytes <= state_room_ &&
               num_resident_tokens * config_.kv_bytes_per_token + num_running_states_ * config_.state_bytes <=
                   config_.budget_bytes;
    }
    int64_t serve(const RivalRequest& request) override;
    [[nodiscard]] int64_t num_evictions() const override { return num_evictions_; }
    [[nodiscard]] int64_t held_bytes() const override { return kv_bytes() + state_bytes(); }

private:
    using Order = std::set<std::pair<int64_t, int32_t>>;  // (last use, node)

    [[nodiscard]] int64_t kv_bytes() const { return tree_.num_tokens() * config_.kv_bytes_per_token; }
    [[nodiscard]] int64_t state_bytes() const { return static_cast<int64_t>(states_.size()) * config_.state_bytes; }
    [[nodiscard]] bool lacks(int64_t more_kv_bytes, int64_t more_states) const;
    [[nodiscard]] std::vector<int64_t> state_positions(const RivalRequest& request, int64_t reused,
                                                       int64_t in_common) const;
    void list(int32_t id);  // in the orders, by its last use
    void unlist(int32_t id);
    void touch_path(int32_t id);
    void lock_path(int32_t id, bool locked);
    void insert(int32_t root, const TokenSeq& tokens);
    void make_room(int64_t more_kv_bytes, int64_t more_states);
    bool evict_leaf();
    bool evict_state();
    void remove_leaf(int32_t id);
    [[nodiscard]] int32_t oldest(const Order& order) const;

    RivalConfig config_;
    bool extra_buffer_;
    int64_t kv_room_;
    int64_t state_room_;
    int64_t num_running_states_;
    RadixTree tree_;
    Order leaves_;
    Order states_;
    int64_t now_ = 0;
    int64_t num_evictions_ = 0;
};

constexpr int64_t kStateGrid = 64;  // tokens of a chunk of the state's kernel: where a prompt's state can be kept
constexpr int64_t kAnswerStateGrid = 256;      // mamba_track_interval
constexpr int64_t kStatesPerFullPercent = 90;  // mamba_full_memory_ratio

SglangRadix::SglangRadix(const RivalConfig& config)
    : config_(config),
      extra_buffer_(config.rival != Rival::kSglangRadixNoBuffer),
      kv_room_(config.budget_bytes),
      state_room_(config.budget_bytes),
      num_running_states_(config.state_bytes == 0 ? 0
                          : extra_buffer_         ? 3
                                                  : 1) {
    if (config.rival != Rival::kSglangRadixPools || config.state_bytes == 0) return;
    state_room_ = config.budget_bytes / (100 + kStatesPerFullPercent) * kStatesPerFullPercent;
    kv_room_ = config.budget_bytes - state_room_;
}

// With an extra buffer one state of each chunk of the prompt is kept: where the KV in common with earlier prompts ends,
// if that lies in the chunk, else at the chunk's last multiple of the grid; and the last one on the answer's grid.
// Without, at each chunk's end and at the answer's end.
std::vector<int64_t> SglangRadix::state_positions(const RivalRequest& request, int64_t reused,
                                                  int64_t in_common) const {
    std::vector<int64_t> positions;
    const int64_t branch = in_common > reused ? in_common / kStateGrid * kStateGrid : 0;
    for (int64_t begin = reused; begin < request.num_prompt_tokens;) {
        const int64_t end = std::min(begin + config_.step_tokens, request.num_prompt_tokens);
        int64_t at = extra_buffer_ ? begin + (end - begin) / kStateGrid * kStateGrid : end;
        if (extra_buffer_ && begin < branch && branch < at) at = branch;
        if (at > begin) positions.push_back(at);
        begin = end;
    }
    const int64_t end = request.resident.size();
    const int64_t last = extra_buffer_ ? end / kAnswerStateGrid * kAnswerStateGrid : end;
    if (last > request.num_prompt_tokens) positions.push_back(last);
    return positions;
}

void SglangRadix::list(int32_t id) {
    const RadixTree::Node& node = tree_.node(id);
    if (tree_.is_root(id)) return;
    if (node.is_leaf()) leaves_.insert({node.last_use, id});
    if (node.has_state) states_.insert({node.last_use, id});
}

void SglangRadix::unlist(int32_t id) {
    const RadixTree::Node& node = tree_.node(id);
    leaves_.erase({node.last_use, id});
    states_.erase({node.last_use, id});
}

// A node is younger than its parent.
void SglangRadix::touch_path(int32_t id) {
    std::vector<int32_t> path;
    for (; !tree_.is_root(id); id = tree_.node(id).parent) path.push_back(id);
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
        unlist(*at);
        tree_.node(*at).last_use = ++now_;
        const int32_t parent = tree_.node(*at).parent;
        CHECK(tree_.is_root(parent) || tree_.node(parent).last_use < now_, "node {} is older than its child", parent);
        list(*at);
    }
}

void SglangRadix::lock_path(int32_t id, bool locked) {
    for (; !tree_.is_root(id); id = tree_.node(id).parent) tree_.node(id).is_locked = locked;
}

bool SglangRadix::lacks(int64_t more_kv_bytes, int64_t more_states) const {
    const int64_t kv = kv_bytes() + more_kv_bytes;
    const int64_t states = state_bytes() + more_states * config_.state_bytes;
    return kv > kv_room_ || states > state_room_ || kv + states > config_.budget_bytes;
}

int32_t SglangRadix::oldest(const Order& order) const {
    for (const auto& [last_use, id] : order) {
        if (!tree_.node(id).is_locked) return id;
    }
    return RadixTree::kNone;
}

void SglangRadix::remove_leaf(int32_t id) {
    const int32_t parent = tree_.node(id).parent;
    CHECK(!tree_.node(id).is_locked, "a request uses node {}", id);
    unlist(id);
    tree_.remove_leaf(id);
    ++num_evictions_;
    if (tree_.is_root(parent) || !tree_.node(parent).is_leaf()) return;
    if (tree_.node(parent).has_state || tree_.node(parent).is_locked || config_.state_bytes == 0) {
        list(parent);
    } else {
        remove_leaf(parent);
    }
}

bool SglangRadix::evict_leaf() {
    const int32_t id = oldest(leaves_);
    if (id != RadixTree::kNone) remove_leaf(id);
    return id != RadixTree::kNone;
}

bool SglangRadix::evict_state() {
    const int32_t id = oldest(states_);
    if (id == RadixTree::kNone) return false;
    CHECK(tree_.node(id).has_state, "node {} has no state", id);
    if (tree_.node(id).is_leaf()) {
        remove_leaf(id);
    } else {
        states_.erase({tree_.node(id).last_use, id});
        tree_.node(id).has_state = false;
        ++num_evictions_;
    }
    return true;
}

// Leaves leave until the KV fits, then states until the states fit.
void SglangRadix::make_room(int64_t more_kv_bytes, int64_t more_states) {
    while (lacks(more_kv_bytes, 0) && evict_leaf()) {
    }
    while (more_states > 0 && lacks(more_kv_bytes, more_states) && (evict_state() || evict_leaf())) {
    }
}

void SglangRadix::insert(int32_t root, const TokenSeq& tokens) {
    const int32_t above = tree_.match(root, tokens).node;
    unlist(above);
    const int32_t id = tree_.insert(root, tokens);
    unlist(id);
    if (!tree_.is_root(above)) list(above);
    tree_.node(id).has_state = config_.state_bytes > 0;
    touch_path(id);
    lock_path(id, true);
}

int64_t SglangRadix::serve(const RivalRequest& request) {
    const int32_t root = tree_.root(request.salt);
    const RadixTree::Match match = tree_.match(root, request.resident.slice(0, request.num_prompt_tokens - 1));
    int32_t best = config_.state_bytes > 0 ? tree_.last_with_state(match.node) : match.node;
    // A model without states reuses a part of an edge too.
    const int64_t reused = config_.state_bytes > 0 ? tree_.node(best).end() : match.length;
    if (config_.state_bytes == 0 && match.length > tree_.node(match.node).end()) {
        best = tree_.insert(root, request.resident.slice(0, match.length));
    }
    touch_path(best);
    lock_path(best, true);
    make_room((request.resident.size() - reused) * config_.kv_bytes_per_token, num_running_states_);
    for (const int64_t at : state_positions(request, reused, match.length)) {
        // What was in the tree already is not held twice.
        const TokenSeq tokens = request.resident.slice(0, at);
        const int64_t new_tokens = at - tree_.match(root, tokens).length;
        make_room(new_tokens * config_.kv_bytes_per_token, 1);
        if (!lacks(new_tokens * config_.kv_bytes_per_token, config_.state_bytes > 0 ? 1 : 0)) insert(root, tokens);
    }
    if (config_.state_bytes == 0) insert(root, request.resident);
    CHECK_LT(reused, request.num_prompt_tokens);
    // The last node of the request's path is the deepest locked one.
    const int32_t last = tree_.match(root, request.resident).node;
    lock_path(last, false);
    return reused;
}

}  // namespace

std::unique_ptr<RivalCache> make_sglang_radix(const RivalConfig& config) {
    return std::make_unique<SglangRadix>(config);
}

}  // namespace verbatim
