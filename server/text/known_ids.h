// server/text/known_ids.h: owns finding the tokens of a conversation again in its text: where the text is equal it is
// compared and not encoded.
//
//   Q1  ids that are taken decode to the text that they are taken for (D3: bytes that are no text to U+FFFD, as the
//       client has seen them), and are special where the text is
//   Q2  what was committed and is found whole is followed by the encoding of what comes after it, as a suffix is
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
    KnownIds() = default;  // nothing is known
    KnownIds(const Tokenizer& tokenizer, std::span<const TokenId> ids) : tokenizer_(&tokenizer), ids_(ids) {}

    // The text up to the next special token: how many of its bytes the ids stand for that were appended; all, none, or
    // those before the end of what is known.
    size_t take_text(std::string_view text, std::vector<TokenId>& ids);
    void take_special(TokenId id);
    [[nodiscard]] size_t num_taken() const { return num_taken_; }  // ids

private:
    // So many ids, so many bytes of the text.
    struct Taken {
        size_t count = 0;
        size_t end = 0;
    };
    [[nodiscard]] std::optional<Taken> take_bytes(std::string_view text) const;
    [[nodiscard]] std::optional<Taken> take_decoded(std::string_view text) const;
    void forget() { ids_ = {}; }
    const Tokenizer* tokenizer_ = nullptr;
    std::span<const TokenId> ids_;  // what is left
    size_t num_taken_ = 0;
};

}  // namespace verbatim::text
