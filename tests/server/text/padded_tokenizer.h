// tests/server/text/padded_tokenizer.h: owns tokenizers without tokens for some ids of their model, like those of
// published models with a padded vocabulary.
#pragma once

#include <functional>
#include <string>

#include "engine/base/ids.h"

namespace verbatim::tests {

inline constexpr TokenId kPaddedRows = 2048;  // of the tokenizer's model

// tokenizer.json of server/models/tiny-python without the tokens whose ids `is_missing` selects, and without their
// merges. Tokens of single bytes stay, since encoding needs them.
std::string padded_tokenizer_json(const std::function<bool(TokenId)>& is_missing);

// The published kinds, and worse ones.
enum class Padding : uint8_t { kTail, kHoles, kFirst, kAllButBytes };
bool is_missing(Padding padding, TokenId id);
inline std::string padded_tokenizer_json(Padding padding) {
    return padded_tokenizer_json([padding](TokenId id) { return is_missing(padding, id); });
}

}  // namespace verbatim::tests
