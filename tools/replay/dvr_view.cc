#include "tools/replay/dvr_view.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbatim::tools {

using namespace executors;
namespace {

constexpr int64_t kShownBlocks = 4;  // the last ones
constexpr size_t kShownSteps = 200;

}  // namespace

void DvrView::on_plan(const StepPlan& plan) {
    plan_ = plan;
    slots_.follow(plan);
}

void DvrView::on_result(const StepResult& result) {
    auto drawn = result.drawn.begin();
    for (const ScheduledSequence& sequence : plan_.sequences) {
        const SampledTokens* told = sequence.num_sampled_positions > 0 ? &*drawn++ : nullptr;
        tell(sequence, told, result);
    }
}

// `resident` positions as they were, then `fresh` ones of this step, then `other` ones that are marked.
std::string DvrView::bar(int64_t resident, int64_t fresh, int64_t other, char mark) const {
    const int64_t end = resident + fresh + other;
    const int64_t num_blocks = (end + block_size_ - 1) / block_size_;
    const int64_t first = std::max<int64_t>(0, num_blocks - kShownBlocks) * block_size_;
    std::string bar = first > 0 ? "..|" : "|";
    for (int64_t p = first; p < num_blocks * block_size_; ++p) {
        bar += p < resident ? '#' : p < resident + fresh ? '+' : p < end ? mark : ' ';
        if ((p + 1) % block_size_ == 0) bar += '|';
    }
    return bar;
}

void DvrView::tell(const ScheduledSequence& sequence, const SampledTokens* drawn, const StepResult& result) {
    const SlotRequests::Slot& slot = slots_.at(sequence.slot);
    Story& story = stories_[slot.request];
    int64_t& resident = resident_[slot.request];
    if (story.lines.size() == kShownSteps) return;
    const std::span<const TokenId> tokens = drawn != nullptr ? result.tokens_of(*drawn) : std::span<const TokenId>();
    std::string what;
    std::string text;
    std::string kv;
    if (slot.is_draft_path) {
        what = "draft";
        if (!tokens.empty()) text = fmt::format("~{}", tokens.front());
        kv = bar(resident, 0, std::max<int64_t>(0, sequence.end() - resident), '~');
    } else if (sequence.num_sampled_positions > 1) {
        const std::span<const TokenId> drafts = plan_.drafts(sequence);
        const size_t num_accepted = tokens.empty() ? 0 : tokens.size() - (drawn->fault_layer < 0 ? 1 : 0);
        what = "verify";
        for (size_t i = 0; i < drafts.size(); ++i) {
            if (i == num_accepted && !tokens.empty()) text += fmt::format("[{}] ", tokens.back());
            text += i < num_accepted ? fmt::format("={} ", drafts[i]) : fmt::format("x{} ", drafts[i]);
        }
        if (num_accepted == drafts.size() && !tokens.empty()) text += fmt::format("[{}]", tokens.back());
        const int64_t length = sequence.known_end() + static_cast<int64_t>(num_accepted);
        kv = bar(sequence.num_computed_tokens, length - sequence.num_computed_tokens, sequence.end() - length, 'x');
        resident = length;
        story.has_verified = true;
        story.has_rolled_back |= num_accepted < drafts.size();
    } else {
        what = sequence.num_new_tokens == 0 ? "move" : sequence.num_new_tokens > 1 ? "prefill" : "decode";
        if (!tokens.empty()) text = fmt::format("[{}]", tokens.front());
        kv = bar(sequence.num_computed_tokens, sequence.num_new_tokens, 0, ' ');
        resident = sequence.end();
    }
    story.lines.push_back(fmt::format("step {:>5}  {:<7}  {}  {}", plan_.step, what, kv, text));
}

std::string DvrView::picture() const {
    const auto first = [&](auto wanted) {
        return std::ranges::find_if(stories_, [&](const auto& entry) { return wanted(entry.second); });
    };
    auto chosen = first([](const Story& story) { return story.has_rolled_back; });
    if (chosen == stories_.end()) chosen = first([](const Story& story) { return story.has_verified; });
    if (chosen == stories_.end()) chosen = stories_.begin();
    if (chosen == stories_.end()) return "no request had a share in any step\n";
    std::string picture = fmt::format(
        "request {}: KV in blocks of {}: # resident, + computed in this step, ~ scratch of its draft path, x rolled "
        "back\n"
        "tokens: ~ drafted, = accepted, [] drawn by its own arithmetic, x withdrawn\n",
        index(chosen->first), block_size_);
    for (const std::string& line : chosen->second.lines) picture += line + "\n";
    return picture;
}

}  // namespace verbatim::tools
