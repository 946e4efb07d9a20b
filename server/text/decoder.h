// server/text/decoder.h: owns the way from tokens to text, as they come.
//
//   D1  what came out so far never changes, and is valid UTF-8: no character is split
//   D2  joined, it is what decoding all tokens at once gives, however the tokens came
//   D3  bytes that are no UTF-8 give one U+FFFD for each maximal subpart (server/text/utf8.h U2)
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

    // The text that is certain with this token. Any id is allowed (D4).
    std::string add(TokenId id);
    // What is left when no token follows; the decoder is as new then.
    std::string finish();
    [[nodiscard]] bool is_pending() const { return !pending_.empty(); }  // bytes wait for the rest of a character

private:
    const Tokenizer* tokenizer_;
    bool skip_special_;
    std::string pending_;  // the beginning of a character
};

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special = false);

}  // namespace verbatim::text
