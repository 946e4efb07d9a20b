// tests/server/text/padded_tokenizer.h: owns tokenizers that have no token for some ids of their model, as those of
// published models whose vocabulary is padded.
#pragma once

#include <functional>
#include <string>

#include "engine/base/ids.h"

namespace verbatim::tests {

inline constexpr TokenId kPaddedRows = 2048;  // of the model that the tokenizer was made for

// tokenizer.json of server/models/tiny-python without the tokens whose ids `is_missing` names, and without merges that
// have to do with them. Tokens of single bytes stay, for without them nothing can be encoded.
std::string padded_tokenizer_json(const std::function<bool(TokenId)>& is_missing);

// The kinds that are published, and worse ones.
enum class Padding : uint8_t { kTail, kHoles, kFirst, kAllButBytes };
bool is_missing(Padding padding, TokenId id);
inline std::string padded_tokenizer_json(Padding padding) {
    return padded_tokenizer_json([padding](TokenId id) { return is_missing(padding, id); });
}

}  // namespace verbatim::tests
