// reference/model/weight_storage.h: owns the bytes that the views of a ModelWeights point into.
//
//   S1  nothing is freed or moved while the storage lives: views stay valid
//   S2  a view of a mapped file may leave memory and comes back, the same, when it is read
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reference/model/mapped_file.h"

namespace verbatim::reference {

class WeightStorage {
public:
    // Uninitialised; the caller fills them before anyone reads.
    std::span<uint16_t> allocate_bf16(int64_t count);
    std::span<float> allocate_float(int64_t count);
    void keep(MappedFile file);
    // For whoever has made a copy of `bytes` and will hardly read them again: where they lie in a mapped file, their
    // pages leave memory. Bytes of the storage's own stay.
    void release(std::span<const std::byte> bytes) const;
    [[nodiscard]] int64_t owned_bytes() const { return owned_bytes_; }

private:
    std::vector<std::unique_ptr<uint16_t[]>> bf16_;
    std::vector<std::unique_ptr<float[]>> floats_;
    std::vector<MappedFile> files_;
    int64_t owned_bytes_ = 0;
};

}  // namespace verbatim::reference
