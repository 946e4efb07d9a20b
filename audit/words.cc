#include "audit/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::audit {

const std::vector<std::string>& common_words() {
    static const std::vector<std::string> kWords = {" a",  " b",  " c",  " d",  " e",   " f",  " g",  " h",
                                                    " k",  " m",  " n",  " p",  " in",  " to", " is", " on",
                                                    " of", " it", " at", " we", " the", " as", " or", " for"};
    return kWords;
}

Words::Words() : is_exact_(false) {
    for (const std::string& word : common_words()) costs_.push_back({word, 1});
    fresh_words_ = common_words();
}

Words::Words(std::vector<WordCost> costs, int64_t base_tokens, bool is_exact)
    : costs_(std::move(costs)), base_tokens_(base_tokens), is_exact_(is_exact) {
    CHECK(!costs_.empty(), "no words");
    std::map<int64_t, std::vector<std::string>> by_cost;
    for (const WordCost& one : costs_) by_cost[one.num_tokens].push_back(one.word);
    const auto largest = std::ranges::max_element(by_cost, {}, [](const auto& group) { return group.second.size(); });
    fresh_cost_ = largest->first;
    fresh_words_ = largest->second;
}

std::string Words::fresh(Prng& chance) const {
    std::string text;
    for (int64_t i = 0; i < kFreshWords; ++i) text += fresh_words_[chance.below(fresh_words_.size())];
    return text;
}

std::string Words::filler(int64_t num_tokens, uint64_t seed) const {
    Prng chance(seed);
    std::string text;
    for (int64_t left = num_tokens; left > 0;) {
        const WordCost& one = costs_[chance.below(costs_.size())];
        text += one.word;
        left -= one.num_tokens;
    }
    return text;
}

std::optional<std::string> Words::prompt(int64_t num_tokens, int64_t fresh, uint64_t seed) const {
    Prng chance(seed);
    int64_t left = num_tokens - base_tokens_ - fresh_tokens();
    if (left < 0) return std::nullopt;
    std::string text = fmt::format("{}{{{{fresh {}}}}}", kOpening, fresh);
    while (left > 0) {
        std::vector<const WordCost*> fitting;
        for (const WordCost& one : costs_) {
            if (one.num_tokens <= left) fitting.push_back(&one);
        }
        if (fitting.empty()) return std::nullopt;
        const WordCost& one = *fitting[chance.below(fitting.size())];
        text += one.word;
        left -= one.num_tokens;
    }
    return text;
}

}  // namespace verbatim::audit
