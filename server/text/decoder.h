// server/text/decoder.h: owns the incremental decoding of tokens to text.
//
//   D1  text that was returned never changes, and is valid UTF-8: no character is split
//   D2  joined, it equals decoding all tokens at once, however they were divided
//   D3  bytes that are not UTF-8 give one U+FFFD for each maximal subpart (server/text/utf8.h U2)
//   D4  an id without a token gives no bytes: a model may have more rows than its tokenizer has tokens
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {

class Decoder {
public:
    // With skip_special, special tokens give nothing.
    explicit Decoder(const Tokenizer& tokenizer, bool skip_special = false)
        : tokenizer_(&tokenizer), skip_special_(skip_special) {}

    // The text that is final after this token. Any id is allowed (D4).
    std::string add(TokenId id);
    // The rest, when no token follows; resets the decoder.
    std::string finish();
    [[nodiscard]] bool is_pending() const { return !pending_.empty(); }  // bytes wait for the rest of a character

private:
    const Tokenizer* tokenizer_;
    bool skip_special_;
    std::string pending_;  // the first bytes of a character
};

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special = false);
// Of a whole text: without the spaces that encoding put before it and behind added tokens
// (Tokenizer::adds_space_prefix).
std::string decode_text(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special = false);

}  // namespace verbatim::text
