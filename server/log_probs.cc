#include "server/log_probs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/base/check.h"

namespace verbatim::server {

LogProbs log_probs(std::span<const float> logits, TokenId drawn, int32_t num_top) {
    CHECK(drawn >= 0 && static_cast<size_t>(drawn) < logits.size(), "token {} of {}", drawn, logits.size());
    const double largest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - largest);
    const double log_sum = largest + std::log(sum);
    const auto of = [&](TokenId id) { return TokenLogProb{id, logits[static_cast<size_t>(id)] - log_sum}; };

    LogProbs all{of(drawn), {}, 1};
    std::vector<TokenId> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto num = static_cast<ptrdiff_t>(std::min<size_t>(static_cast<size_t>(num_top), ids.size()));
    const auto first = [&](TokenId a, TokenId b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)] ||
               (logits[static_cast<size_t>(a)] == logits[static_cast<size_t>(b)] && a < b);
    };
    for (const TokenId id : ids) all.rank += first(id, drawn) ? 1 : 0;
    std::partial_sort(ids.begin(), ids.begin() + num, ids.end(), first);
    for (ptrdiff_t i = 0; i < num; ++i) all.top.push_back(of(ids[static_cast<size_t>(i)]));
    return all;
}

}  // namespace verbatim::server
