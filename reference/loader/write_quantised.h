// reference/loader/write_quantised.h: writes a checkpoint with quantised matrices, as transformers and vLLM read it.
//
//   int8       compressed-tensors, a BF16 scale for each row: max |w| / 127.5; q from -128 to 127
//   int4-g128  compressed-tensors, a BF16 scale for each 128 columns of a row: max |w| / 7.5; q from -8 to 7
//   fp8        compressed-tensors, a BF16 scale for each row: max |w| / 448; q of e4m3
//   fp8-block  fp8, an F32 scale for each 128 rows and 128 columns: max |w| / 448; q of e4m3
// q is w / scale to the nearest, ties to even, with the scale as it is stored. The recipes of the last two quantise
// activations, too, to e4m3 under dynamic scales, of a token and of 128 columns of one (the profile exact.fp8). The
// embedding, the head, routers, vectors, experts that are one tensor, and matrices that are not whole blocks stay as
// they are; config.json names the latter.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "reference/model/weights.h"

namespace verbatim::reference {

struct QuantisedKind;
// By its name above; null: no kind has that name.
const QuantisedKind* find_quantised_kind(std::string_view name);
std::string quantised_kind_names();  // "int8, int4-g128, fp8, fp8-block"

// Writes config.json, which is `config_text` with a quantization_config, and model.safetensors into the new `folder`.
// Errors: the folder has a checkpoint; the model is quantised already; a matrix has a value that is not finite; no
// matrix would be quantised; the disk. After an error no config.json is left.
Status write_quantised(Model& model, std::string_view config_text, const QuantisedKind& kind,
                       const std::filesystem::path& folder);

}  // namespace verbatim::reference
