// audit/words.h: owns the texts that an audit makes up: words whose number of tokens is known, so that a prompt has
// exactly as many tokens as a block, or one more.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim::audit {

// Words that every tokenizer knows, each with the space before it.
[[nodiscard]] const std::vector<std::string>& common_words();

struct WordCost {
    std::string word;
    int64_t num_tokens = 1;
};

class Words {
public:
    // `base_tokens`: of a prompt with kOpening alone; `is_exact`: the costs were measured.
    Words(std::vector<WordCost> costs, int64_t base_tokens, bool is_exact);
    // All cost one token: not measured.
    Words();

    // kOpening, {{fresh K}}, and words up to `num_tokens`; empty: the length is too short for that, or cannot be made
    // of these words.
    [[nodiscard]] std::optional<std::string> prompt(int64_t num_tokens, int64_t fresh, uint64_t seed) const;
    // About this many tokens of words, without an opening.
    [[nodiscard]] std::string filler(int64_t num_tokens, uint64_t seed) const;
    // What stands for {{fresh K}}: kFreshWords words of equal cost.
    [[nodiscard]] std::string fresh(Prng& chance) const;
    [[nodiscard]] const std::vector<std::string>& fresh_words() const { return fresh_words_; }
    [[nodiscard]] int64_t fresh_cost() const { return fresh_cost_; }  // tokens of each of them
    [[nodiscard]] int64_t base_tokens() const { return base_tokens_; }
    [[nodiscard]] bool is_exact() const { return is_exact_; }
    [[nodiscard]] int64_t least_tokens() const { return base_tokens_ + fresh_tokens(); }

    static constexpr const char* kOpening = "Notes";
    static constexpr int64_t kFreshWords = 8;

private:
    [[nodiscard]] int64_t fresh_tokens() const { return kFreshWords * fresh_cost_; }
    std::vector<WordCost> costs_;
    std::vector<std::string> fresh_words_;  // of one cost
    int64_t fresh_cost_ = 1;
    int64_t base_tokens_ = 1;
    bool is_exact_ = false;
};

}  // namespace verbatim::audit
