// reference/loader/gguf.h: the GGUF format (versions 2 and 3, little-endian), read as hostile input.
//
// A file is: "GGUF", version, counts, metadata (key, type, value), tensor headers (name, shape, type, offset), padding,
// data. Refused, with the key's or tensor's name: lengths and counts that leave the file, unknown value and tensor
// types, duplicate names, shapes that overflow or split a block, tensors that are not one behind the other.
//
//   G1  what parsing allocates is bounded by a small multiple of the file's header
//   G2  names, strings and tensors point into the file
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/base/result.h"
#include "files/mapped_file.h"
#include "reference/model/quantised_blocks.h"

namespace verbatim::reference {

// Numbers or truth values, all of one type.
struct GgufNumbers {
    uint32_t type = 0;  // of an element, as in the file
    std::span<const std::byte> bytes;

    [[nodiscard]] size_t size() const;
    [[nodiscard]] double at(size_t i) const;
};
using GgufStrings = std::vector<std::string_view>;
// Every integer of the file is an int64_t; one that is greater is refused.
using GgufValue = std::variant<int64_t, double, bool, std::string_view, GgufNumbers, GgufStrings>;
std::string value_text(const GgufValue& value);  // as in an error message, at most about 100 characters

struct GgufTensor {
    std::string_view name;
    std::vector<int64_t> shape;  // outermost first: [rows, columns]
    const BlockFormat* format = nullptr;
    std::span<const std::byte> bytes;

    [[nodiscard]] int64_t num_elements() const;
};

using GgufMetadata = std::map<std::string_view, GgufValue>;
struct GgufContents {
    GgufMetadata metadata;
    std::vector<GgufTensor> tensors;  // in the order of their data
};
// `source` names the file in errors.
Result<GgufContents> parse_gguf(std::span<const std::byte> file, std::string_view source);

// A GGUF file, or all parts of a split one.
struct GgufFile {
    std::vector<MappedFile> files;
    std::vector<std::filesystem::path> paths;  // of the files
    GgufMetadata metadata;                     // of the first part
    std::map<std::string_view, GgufTensor> tensors;
};
// `path`: the file, or the first part, "NAME-00001-of-00003.gguf". Errors: anything parse_gguf refuses; a part that is
// missing, is another file's, or repeats a tensor.
Result<GgufFile> open_gguf(const std::filesystem::path& path);
// Whether the file begins as GGUF does.
bool is_gguf(const std::filesystem::path& path);

// A file to write: tensors are laid out in the given order, their data is the caller's to append, each padded with
// zeros to kGgufAlignment.
inline constexpr int64_t kGgufAlignment = 32;
struct GgufLayout {
    std::string name;
    std::vector<int64_t> shape;  // outermost first
    const BlockFormat* format = nullptr;

    [[nodiscard]] int64_t num_bytes() const;
};
// Everything before the data. Values' int64_t are written as 32 bits, unsigned unless negative; doubles as float32.
std::string gguf_prefix(const GgufMetadata& metadata, std::span<const GgufLayout> tensors);

}  // namespace verbatim::reference
