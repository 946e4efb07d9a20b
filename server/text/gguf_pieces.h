// server/text/gguf_pieces.h: owns SentencePiece tokenizers of GGUF files, tokenizer.ggml.model "llama".
//
//   L1  the vocabulary has scores, a piece for a space, and a token <0x00> to <0xFF> for each byte
//   L2  text is made of normal pieces alone: no text gives the id of a control token unless special tokens are parsed
//   L3  a space is put before a text and behind every added token, unless add_space_prefix is false
#pragma once

#include <string_view>

#include "engine/base/result.h"
#include "reference/loader/gguf.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {

// `source` names the file. Errors: what L1 lacks; normalisation by a table (precompiled_charsmap), removal of spaces.
Result<Tokenizer> gguf_pieces(const reference::GgufMetadata& metadata, std::string_view source);

}  // namespace verbatim::text
