// reference/loader/safetensors.h: the safetensors format, read as hostile input.
//
// A file is: header length (8 bytes, little-endian), header (JSON: name -> dtype, shape, data_offsets), data. Refused,
// with the tensor's name: sizes that leave the file, shape × dtype that is not the bytes, holes and overlaps, duplicate
// names, unknown dtypes, negative or overflowing extents, bytes after the last tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::reference {

enum class TensorDtype : uint8_t {
    kBool,
    kU8,
    kI8,
    kF8E4M3,
    kF8E5M2,
    kU16,
    kI16,
    kF16,
    kBf16,
    kU32,
    kI32,
    kF32,
    kU64,
    kI64,
    kF64
};
std::string_view dtype_name(TensorDtype dtype);  // as in the file: "BF16"
int64_t dtype_bytes(TensorDtype dtype);

// One tensor of a file. Its bytes may be unaligned.
struct TensorEntry {
    std::string name;
    TensorDtype dtype = TensorDtype::kF32;
    std::vector<int64_t> shape;
    std::span<const std::byte> bytes;

    [[nodiscard]] int64_t num_elements() const { return static_cast<int64_t>(bytes.size()) / dtype_bytes(dtype); }
};

// In the order of their data. The entries point into `file`. `source` names it in errors.
Result<std::vector<TensorEntry>> parse_safetensors(std::span<const std::byte> file, std::string_view source);

// The header of a file with these tensors, laid out in the given order; entries' bytes are not read.
struct TensorLayout {
    std::string name;
    TensorDtype dtype = TensorDtype::kF32;
    std::vector<int64_t> shape;
};
using SafetensorsMetadata = std::map<std::string, std::string>;
std::string safetensors_prefix(std::span<const TensorLayout> tensors,
                               const SafetensorsMetadata& metadata = {{"format", "pt"}});

// The header as it stands in the file, and what its __metadata__ says. Errors: as parse_safetensors().
struct SafetensorsHeader {
    std::string_view text;  // points into the file
    SafetensorsMetadata metadata;
};
Result<SafetensorsHeader> safetensors_header(std::span<const std::byte> file, std::string_view source);

// Both, of one reading.
struct SafetensorsFile {
    SafetensorsHeader header;
    std::vector<TensorEntry> tensors;
};
Result<SafetensorsFile> read_safetensors(std::span<const std::byte> file, std::string_view source);

std::string shape_text(std::span<const int64_t> shape);  // "[64, 1, 4]"

}  // namespace verbatim::reference
