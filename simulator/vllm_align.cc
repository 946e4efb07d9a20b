#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/cache/prefix_history.h"
#include "simulator/rival_cache.h"

namespace verbatim {
namespace {

// One pool of pages for blocks and states. A block of `unit` tokens, or the state at its end, is known by the digest of
// all tokens up to there. What no request uses stands in one queue, oldest first, and leaves from its front.
class VllmAlign final : public RivalCache {
public:
    explicit VllmAlign(const RivalConfig& config) : config_(config), unit_(config.pages.block_tokens) {
        CHECK_GT(unit_, 0);
    }
    [[nodiscard]] bool fits(int64_t num_resident_tokens) const override {
        return running_bytes(num_resident_tokens, 0) <= config_.budget_bytes;
    }
    int64_t serve(const RivalRequest& request) override;
    [[nodiscard]] int64_t num_evictions() const override { return num_evictions_; }
    [[nodiscard]] int64_t held_bytes() const override { return held_bytes_; }

private:
    enum class Kind : uint8_t { kBlock, kState };
    struct Page {
        uint64_t digest = 0;
        Kind kind = Kind::kBlock;
    };
    using Queue = std::list<Page>;
    using Pages = std::unordered_map<uint64_t, Queue::iterator>;

    [[nodiscard]] bool has_state() const { return config_.state_bytes > 0; }
    [[nodiscard]] int64_t bytes(Kind kind) const {
        return kind == Kind::kBlock ? config_.pages.kv_page_bytes : config_.pages.state_page_bytes;
    }
    [[nodiscard]] Pages& pages(Kind kind) { return kind == Kind::kBlock ? blocks_ : states_; }
    // Blocks beyond the reused ones, and the states that a request reads and writes.
    [[nodiscard]] int64_t running_bytes(int64_t num_tokens, int64_t num_reused) const {
        const int64_t num_blocks = (num_tokens + unit_ - 1) / unit_ - num_reused / unit_;
        return num_blocks * bytes(Kind::kBlock) + (has_state() ? 2 : 0) * bytes(Kind::kState);
    }
    [[nodiscard]] std::vector<uint64_t> digests_of(const RivalRequest& request) const;
    [[nodiscard]] std::vector<int64_t> state_positions(const RivalRequest& request, int64_t reused,
                                                       int64_t junction) const;
    void take(Kind kind, uint64_t digest);
    void put(Kind kind, uint64_t digest);
    void make_room(int64_t wanted_bytes);

    RivalConfig config_;
    int64_t unit_;
    Queue queue_;
    Pages blocks_;
    Pages states_;
    int64_t held_bytes_ = 0;  // of the queue
    int64_t num_evictions_ = 0;
};

// Of the first 1, 2, ... blocks.
std::vector<uint64_t> VllmAlign::digests_of(const RivalRequest& request) const {
    std::vector<uint64_t> digests;
    uint64_t digest = PrefixHistory::begin(request.salt).digest;
    for (int64_t end = unit_; end <= request.resident.size(); end += unit_) {
        digest = request.resident.prefix_digest(end - unit_, end, digest);
        digests.push_back(digest);
    }
    return digests;
}

// A state is kept where a chunk of the prompt ends at a block's end: after a whole step of tokens, at the last block
// that the prompt fills, and where the blocks in common with an earlier prompt end (vllm#37898). While the answer is
// drawn, it is kept at every block's end.
std::vector<int64_t> VllmAlign::state_positions(const RivalRequest& request, int64_t reused, int64_t junction) const {
    std::vector<int64_t> positions;
    const int64_t last = request.num_prompt_tokens / unit_ * unit_;
    const int64_t whole_step = std::max(config_.step_tokens / unit_ * unit_, unit_);
    int64_t at = reused;
    while (at < last) {
        int64_t end = std::min(at + whole_step, last);
        if (at < junction && junction < end) end = junction;
        positions.push_back(at = end);
    }
    for (int64_t end = last + unit_; end <= request.resident.size(); end += unit_) positions.push_back(end);
    return positions;
}

// Out of the queue, so that it does not leave while the request runs.
void VllmAlign::take(Kind kind, uint64_t digest) {
    const auto found = pages(kind).find(digest);
    if (found == pages(kind).end()) return;
    queue_.erase(found->second);
    pages(kind).erase(found);
    held_bytes_ -= bytes(kind);
    CHECK_GE(held_bytes_, 0);
}

void VllmAlign::put(Kind kind, uint64_t digest) {
    take(kind, digest);
    queue_.push_back({digest, kind});
    pages(kind)[digest] = std::prev(queue_.end());
    held_bytes_ += bytes(kind);
    CHECK_EQ(queue_.size(), blocks_.size() + states_.size());
}

void VllmAlign::make_room(int64_t wanted_bytes) {
    while (!queue_.empty() && held_bytes_ + wanted_bytes > config_.budget_bytes) {
        const Page oldest = queue_.front();
        take(oldest.kind, oldest.digest);
        ++num_evictions_;
    }
    CHECK(!queue_.empty() || held_bytes_ == 0, "an empty queue holds {} bytes", held_bytes_);
}

int64_t VllmAlign::serve(const RivalRequest& request) {
    const std::vector<uint64_t> digests = digests_of(request);
    const auto most = static_cast<size_t>((request.num_prompt_tokens - 1) / unit_);
    size_t num_blocks = 0;
    while (num_blocks < most && blocks_.contains(digests[num_blocks])) ++num_blocks;
    size_t num_reused = num_blocks;
    while (has_state() && num_reused > 0 && !states_.contains(digests[num_reused - 1])) --num_reused;
    const int64_t reused = static_cast<int64_t>(num_reused) * unit_;
    for (size_t i = 0; i < num_reused; ++i) take(Kind::kBlock, digests[i]);
    if (has_state() && num_reused > 0) take(Kind::kState, digests[num_reused - 1]);
    const int64_t reused_bytes =
        static_cast<int64_t>(num_reused) * bytes(Kind::kBlock) + (num_reused > 0 ? bytes(Kind::kState) : 0);
    make_room(running_bytes(request.resident.size(), reused) + reused_bytes);
    // States that the request has passed are free before the request ends, in order; then its blocks, last one first.
    std::vector<int64_t> positions;
    if (has_state()) positions = state_positions(request, reused, static_cast<int64_t>(num_blocks) * unit_);
    if (has_state() && num_reused > 0) put(Kind::kState, digests[num_reused - 1]);
    for (const int64_t at : positions) put(Kind::kState, digests[static_cast<size_t>(at / unit_) - 1]);
    for (size_t i = digests.size(); i-- > 0;) put(Kind::kBlock, digests[i]);
    make_room(0);
    CHECK_LT(reused, request.num_prompt_tokens);
    return reused;
}

}  // namespace

std::unique_ptr<RivalCache> make_vllm_align(const RivalConfig& config) { return std::make_unique<VllmAlign>(config); }

}  // namespace verbatim
