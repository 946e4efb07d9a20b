// server/text/gguf_text.h: owns the text side of a GGUF file: its tokenizer, chat template and stop tokens, as the
// files of a checkpoint's folder would say them.
//
//   G1  tokenizer.ggml.model is gpt2 (byte-level BPE), and tokenizer.ggml.pre is a name of a closed list, each of which
//       stands for one pre-tokenizer; or it is llama (server/text/gguf_pieces.h); anything else is refused by name
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "reference/loader/gguf.h"
#include "reference/loader/gguf_config.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {

// `source` names the file.
Result<Tokenizer> gguf_tokenizer(const reference::GgufMetadata& metadata, std::string_view source);

// Of gpt2: a tokenizer.json with the file's vocabulary, merges, special tokens and pre-tokenizer.
Result<std::string> gguf_tokenizer_json(const reference::GgufMetadata& metadata, std::string_view source);

struct GgufTexts {
    std::optional<std::string> chat_template;
    std::vector<std::pair<std::string, std::string>> token_texts;  // "bos_token" and its text, as templates use them
    std::vector<TokenId> stop_tokens;                              // ascending
};
Result<GgufTexts> gguf_texts(const reference::GgufMetadata& metadata, std::string_view source);
// The same of a file.
Result<GgufTexts> load_gguf_texts(const std::filesystem::path& path);

// The other way: what a folder's tokenizer.json, chat template and stop tokens are in a GGUF file's metadata. Errors: a
// pre-tokenizer without a name. Nothing is set when the folder has no tokenizer.json.
Status put_gguf_texts(const std::filesystem::path& folder, int32_t vocab_size, reference::OwnedMetadata& metadata);

}  // namespace verbatim::text
