// kernels/cpu/packed_file.h: owns the file that keeps a checkpoint's packed weights, so that the next start reads them
// without packing.
//
//   F1  a file holds the weights of one state of one checkpoint or GGUF file (Model::source) in this program's packing
//       of one format; for another state or format the weights are packed again and replace the file
//   F2  no byte is used before the digest of the whole file has been verified
//   F3  a file appears atomically; programs that start concurrently may share it
//
// Layout, little-endian: a header in the first 4096 bytes, then the pairs and the repacked blocks as in PackedWeights.
// They are mapped, and moved to large pages from the end of the first step on (kernels/cpu/moving_file.h): the file
// must not be changed in place meanwhile.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "kernels/cpu/packed_weights.h"
#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::cpu {

// The source that the file at `path` names, for LoadOptions::known_canonical. None: no file (or an empty path), another
// version of the packing, or not all matrices were canonical. Errors: another kind of file, a truncated one.
Result<std::optional<Digest>> known_canonical(const std::filesystem::path& path);

struct KeptWeights {
    PackedWeights weights;
    bool were_kept = false;  // read from the file; otherwise packed and written to it
};

// The model's packed weights. REQUIRES: model.source; not kInt8. Errors: another kind of file, which is not changed; a
// damaged file of this checkpoint; a read or write error.
Result<KeptWeights> keep_packed(const std::filesystem::path& path, const reference::Model& model,
                                reference::WorkerPool& pool, WeightFormat format = WeightFormat::kBf16);

}  // namespace verbatim::cpu
