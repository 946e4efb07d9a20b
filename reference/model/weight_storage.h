// reference/model/weight_storage.h: owns the bytes that the views of a ModelWeights point into.
//
//   S1  nothing is freed or moved while the storage lives: views stay valid
//   S2  a view of a mapped file may leave memory; the next access reads the same bytes again
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "files/mapped_file.h"

namespace verbatim::reference {

class WeightStorage {
public:
    // Uninitialised; the caller fills them before the first read.
    std::span<uint16_t> allocate_bf16(int64_t count);
    std::span<float> allocate_float(int64_t count);
    std::span<std::byte> allocate_bytes(int64_t count);
    void keep(MappedFile file);
    // Drops the pages of `bytes` where they lie in a mapped file, after a copy was made and few reads are left. Bytes
    // that the storage allocated stay.
    void release(std::span<const std::byte> bytes) const;
    [[nodiscard]] int64_t owned_bytes() const { return owned_bytes_; }

private:
    std::vector<std::unique_ptr<uint16_t[]>> bf16_;
    std::vector<std::unique_ptr<float[]>> floats_;
    std::vector<std::unique_ptr<std::byte[]>> bytes_;
    std::vector<MappedFile> files_;
    int64_t owned_bytes_ = 0;
};

}  // namespace verbatim::reference
