#include "engine/drafting/ngram_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int32_t kNowhere = -1;

uint64_t pair_ending_at(const std::vector<TokenId>& tokens, size_t position) {
    return uint64_t{static_cast<uint32_t>(tokens[position - 1])} << 32 | static_cast<uint32_t>(tokens[position]);
}

// How many tokens before and at the two positions are the same.
int32_t common_context(const std::vector<TokenId>& tokens, size_t a, size_t b) {
    int32_t length = 0;
    while (length < NgramDrafter::kMaxContext && a + 1 > static_cast<size_t>(length) &&
           tokens[a - static_cast<size_t>(length)] == tokens[b - static_cast<size_t>(length)]) {
        ++length;
    }
    return length;
}

}  // namespace

void NgramDrafter::draft(std::span<DraftJob> jobs) {
    for (DraftJob& job : jobs) {
        CHECK_GE(job.max_drafts, 1);
        CHECK(job.drafts.empty(), "request {} has {} drafts already", verbatim::index(job.request), job.drafts.size());
        Index& index = requests_[job.request];
        extend(index, job);
        look_up(index, job);
    }
}

// A position enters the index when the one after it is known: what is looked up is never found in itself.
void NgramDrafter::extend(Index& index, const DraftJob& job) {
    const auto known = static_cast<size_t>(job.prompt->size()) + job.output.size();
    CHECK_LE(index.tokens.size(), known);
    const size_t begin = index.tokens.size();
    if (begin == 0) index.tokens = job.prompt->to_vector();
    const size_t num_outputs = index.tokens.size() - static_cast<size_t>(job.prompt->size());
    index.tokens.insert(index.tokens.end(), job.output.begin() + static_cast<std::ptrdiff_t>(num_outputs),
                        job.output.end());
    CHECK_EQ(index.tokens.size(), known);
    index.before.resize(known, kNowhere);
    for (size_t i = std::max<size_t>(begin, 2); i < known; ++i) {
        auto [entry, is_new] = index.newest.try_emplace(pair_ending_at(index.tokens, i - 1), kNowhere);
        index.before[i - 1] = std::exchange(entry->second, static_cast<int32_t>(i - 1));
    }
}

void NgramDrafter::look_up(const Index& index, DraftJob& job) {
    const std::vector<TokenId>& tokens = index.tokens;
    if (tokens.size() < 3) return;
    const size_t last = tokens.size() - 1;
    const auto found = index.newest.find(pair_ending_at(tokens, last));
    if (found == index.newest.end()) return;
    int32_t best = kNowhere;
    int32_t best_context = 0;
    int32_t candidate = found->second;
    for (int32_t i = 0; i < kMaxCandidates && candidate != kNowhere; ++i) {
        CHECK_LT(static_cast<size_t>(candidate), last);
        const int32_t context = common_context(tokens, static_cast<size_t>(candidate), last);
        if (context > best_context) {
            best = candidate;
            best_context = context;
        }
        candidate = index.before[static_cast<size_t>(candidate)];
    }
    CHECK_NE(best, kNowhere);
    const auto first = static_cast<size_t>(best) + 1;
    // What is copied may run into what it makes: a short cycle is drafted on and on.
    for (size_t i = first; job.drafts.size() < static_cast<size_t>(job.max_drafts); ++i) {
        job.drafts.push_back(i < tokens.size() ? tokens[i] : job.drafts[i - tokens.size()]);
    }
}

}  // namespace verbatim
