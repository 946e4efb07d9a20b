// server/text/tokenizer_json.h: owns reading tokenizer.json (the `tokenizers` library's format, version 1.0).
//
//   J1  a closed list of components: normalizer NFC; pre-tokenizers Split (Isolated or Removed) and, last, ByteLevel;
//       model BPE; post-processors TemplateProcessing and ByteLevel; decoder ByteLevel; a Sequence of each
//   J2  any other component that would change an id is refused by name; none is silently ignored
#pragma once

#include <filesystem>
#include <string_view>

#include "engine/base/result.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {

// Loads the tokenizer of a checkpoint's folder, or of a GGUF file (server/text/gguf_text.h).
Result<Tokenizer> load_tokenizer(const std::filesystem::path& folder);

// `source` names the file in errors.
Result<Tokenizer> parse_tokenizer(std::string_view json, std::string_view source);

}  // namespace verbatim::text
