// server/text/sentence_pieces.h: owns SentencePiece's byte-pair encoding: pieces with scores, applied to a text.
//
// A text is its characters; a space is U+2581. Of all neighbours whose concatenation is a piece, those of the highest
// score are merged first, of equal ones the leftmost, until there are none. A character that is no piece becomes the
// tokens of its bytes.
//
//   S1  a text of n bytes costs O(n log n)
//   S2  the bytes of the tokens are those of the text, with the leading space that add_space_prefix asks for
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/ids.h"

namespace verbatim::text {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

struct SentencePiece {
    std::string text;  // as in the vocabulary: a space is kSpaceMark
    TokenId id = 0;
    float score = 0;  // finite
};

class SentencePieces {
public:
    struct Tables {
        std::vector<SentencePiece> pieces;  // each text once
        std::array<TokenId, 256> bytes{};
        bool add_space_prefix = true;  // a text begins with a space that decoding drops
    };
    explicit SentencePieces(Tables tables);
    // Appends the tokens of `text`, which is UTF-8. `at_start`: it follows no other text, so that it gets the prefix.
    void encode(std::string_view text, bool at_start, std::vector<TokenId>& ids) const;
    [[nodiscard]] bool adds_space_prefix() const { return add_space_prefix_; }

private:
    struct Piece {
        TokenId id = 0;
        float score = 0;
    };
    struct Merging;
    std::unordered_map<std::string, Piece> pieces_;
    std::array<TokenId, 256> bytes_;
    bool add_space_prefix_;
    size_t max_bytes_ = 0;  // of a piece
};

}  // namespace verbatim::text
