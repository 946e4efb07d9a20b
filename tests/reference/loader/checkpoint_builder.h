// tests/reference/loader/checkpoint_builder.h: valid and deliberately broken safetensors files and checkpoint folders.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "reference/loader/safetensors.h"

namespace verbatim::reference {

// Length, header, data, without validation.
inline std::string safetensors_file(const std::string& header, const std::string& data) {
    const uint64_t length = header.size();
    std::string file(sizeof length, '\0');
    std::memcpy(file.data(), &length, sizeof length);
    return file + header + data;
}

// The tensors of a file as values that a test may change before they are written again.
struct FileTensor {
    TensorLayout layout;
    std::string bytes;
};
using FileTensors = std::vector<FileTensor>;

inline FileTensors read_tensors(const std::string& file) {
    FileTensors tensors;
    const auto entries = parse_safetensors(std::as_bytes(std::span(file)), "file");
    for (const TensorEntry& entry : entries.value())
        tensors.push_back({{entry.name, entry.dtype, entry.shape},
                           std::string(reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size())});
    return tensors;
}

inline std::string write_tensors(const FileTensors& tensors) {
    std::vector<TensorLayout> layouts;
    std::string data;
    for (const FileTensor& tensor : tensors) {
        layouts.push_back(tensor.layout);
        data += tensor.bytes;
    }
    return safetensors_prefix(layouts) + data;
}

inline FileTensor& find_tensor(FileTensors& tensors, const std::string& name) {
    for (FileTensor& tensor : tensors)
        if (tensor.layout.name == name) return tensor;
    throw std::out_of_range(name);
}

}  // namespace verbatim::reference
