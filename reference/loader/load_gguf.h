// reference/loader/load_gguf.h: loads a GGUF file as a Model.
//
// The file, or the first part of a split one, is hostile input (reference/loader/gguf.h). Matrices in blocks are used
// where they lie in the mapped file; those whose rows llama.cpp's converter reordered are copied. F32, F16 and BF16
// matrices become bf16, as from safetensors.
#pragma once

#include <filesystem>

#include "engine/base/result.h"
#include "reference/loader/load_model.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

Result<Model> load_gguf(const std::filesystem::path& path, const LoadOptions& options = {});

}  // namespace verbatim::reference
