// kernels/cpu/packed_file.h: a checkpoint's packed weights kept in a file, from which the next start reads them as they
// are.
//
//   F1  a file holds the weights of one state of one checkpoint (Model::source) in this program's packing: others' are
//       packed anew, and replace them
//   F2  nothing is used before all of it has been found to be what was written
//   F3  a file appears whole or not at all; programs that start at once may share one
//
// Layout, little-endian: a header in the first 4096 bytes, then the pairs as PackedWeights has them. They are read, not
// mapped: a mapped file lies in small pages on most systems, from which decoding reads a third slower.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/base/digest.h"
#include "engine/base/result.h"
#include "kernels/cpu/packed_weights.h"
#include "reference/model/weights.h"
#include "reference/worker_pool.h"

namespace verbatim::cpu {

// What the file at `path` says of the checkpoint that it was made from, for LoadOptions::known_canonical. None: there
// is no file yet (nor for an empty path), it is of another version of the packing, or not all matrices were canonical.
// Errors: another kind of file, a truncated one.
Result<std::optional<Digest>> known_canonical(const std::filesystem::path& path);

struct KeptWeights {
    PackedWeights weights;
    bool were_kept = false;  // read from the file; else packed, and written there
};

// The model's packed weights. REQUIRES: model.source. Errors: another kind of file, which is left as it is; a file of
// this checkpoint that was damaged; it cannot be read or written.
Result<KeptWeights> keep_packed(const std::filesystem::path& path, const reference::Model& model,
                                reference::WorkerPool& pool);

}  // namespace verbatim::cpu
