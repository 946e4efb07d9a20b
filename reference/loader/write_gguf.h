// reference/loader/write_gguf.h: writes a model as a GGUF file that llama.cpp's tools read.
#pragma once

#include <filesystem>
#include <functional>

#include "engine/base/result.h"
#include "reference/loader/gguf_config.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

// Matrices become `format`, vectors F32, as llama.cpp's converter lays them out; `metadata` is gguf_metadata()'s, with
// whatever else the file is to say. With Q4_K the head, or the embedding that is the head, becomes Q6_K, and a matrix
// whose rows are not whole blocks of 256 becomes Q5_0 (the head Q8_0), as llama.cpp chooses. A matrix whose rows are
// not whole blocks of its format, and what BF16 matrices are quantised to by a format without a quantiser, is an error
// that names it. `write` takes the file piece by piece.
using WriteBytes = std::function<Status(std::string_view bytes)>;
Status write_gguf(const ModelConfig& config, ModelWeights& weights, const BlockFormat& format,
                  const GgufMetadata& metadata, const WriteBytes& write);

}  // namespace verbatim::reference
