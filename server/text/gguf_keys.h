// server/text/gguf_keys.h: the tokenizer's part of a GGUF file's metadata.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>

#include "engine/base/result.h"
#include "reference/loader/gguf.h"

namespace verbatim::text {

// Types of tokens: tokenizer.ggml.token_type.
enum : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Null: there is no such key, or it is of another type.
template <typename T>
const T* find_gguf(const reference::GgufMetadata& metadata, std::string_view key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : std::get_if<T>(&found->second);
}

template <typename T>
Result<const T*> need_gguf(const reference::GgufMetadata& metadata, std::string_view key, std::string_view source) {
    if (!metadata.contains(key)) return error("{}: {} is missing: the file has no tokenizer", source, key);
    const T* value = find_gguf<T>(metadata, key);
    if (value == nullptr)
        return error("{}: {} = {} is of another type than llama.cpp's", source, key,
                     reference::value_text(metadata.find(key)->second));
    return value;
}

}  // namespace verbatim::text
