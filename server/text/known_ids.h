// server/text/known_ids.h: owns matching the known tokens of a conversation with its text: equal text is compared
// instead of encoded.
//
//   Q1  reused ids decode to the text that they replace (D3: invalid bytes as U+FFFD, as the client saw them), and are
//       special where the text is
//   Q2  after a complete match of the committed tokens, the rest is encoded by itself, like a suffix
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim::text {

class Tokenizer;

class KnownIds {
public:
    KnownIds() = default;  // no known tokens
    KnownIds(const Tokenizer& tokenizer, std::span<const TokenId> ids) : tokenizer_(&tokenizer), ids_(ids) {}

    // `text` is the text up to the next special token. Appends the matching ids and returns how many of its bytes they
    // cover: all, none, or those before the end of the known tokens.
    size_t take_text(std::string_view text, std::vector<TokenId>& ids);
    void take_special(TokenId id);
    [[nodiscard]] size_t num_taken() const { return num_taken_; }  // ids

private:
    // Counts of ids and of the text's bytes.
    struct Taken {
        size_t count = 0;
        size_t end = 0;
    };
    [[nodiscard]] std::optional<Taken> take_bytes(std::string_view text) const;
    [[nodiscard]] std::optional<Taken> take_decoded(std::string_view text) const;
    void forget() { ids_ = {}; }
    const Tokenizer* tokenizer_ = nullptr;
    std::span<const TokenId> ids_;  // the rest
    size_t num_taken_ = 0;
};

}  // namespace verbatim::text
