// reference/model/head_file.h: a head in a file, for another process or machine. It is a safetensors file: any reader
// of that format can open it (docs/heads.md).
//
// Tensors, in this order: "tokens" I32 [length]; then those of reference/model/state_tensors.h as "layers.LAYER.KIND",
// [shape] or, where each token has one, [length, shape]. Metadata, all strings:
//   format       "verbatim-head/1"
//   model        the digest of configuration and weights
//   numerics     what made the head: "exact/1"
//   digest       of the state (reference/head_digest.h)
//   salt         of the cache that it is from; absent where that has none
//   xxh3         of each tensor's bytes: {"tokens": "...", "layers.0.conv": "...", ...}, 128 bits
//   header_xxh3  of the header's text, with zeros for this value's digits
//   F1  the bytes behind "tokens" are Executor::head_bytes()
//   F2  every byte of the file enters a checksum: a changed bit, a missing end and an added one are errors
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "reference/model/mapped_file.h"
#include "reference/model/state_tensors.h"

namespace verbatim::reference {

struct HeadInfo {
    std::string model;     // digest of configuration and weights, in hex
    std::string numerics;  // id
    Digest digest;         // of the state
    std::optional<std::string> salt;
    std::vector<TokenId> tokens;

    [[nodiscard]] int64_t length() const { return static_cast<int64_t>(tokens.size()); }
};

// Writes a file that appears complete or not at all. REQUIRES: `bytes` are those of a head of info.length() tokens.
// Errors: the file's.
Status write_head_file(const std::filesystem::path& path, const HeadInfo& info, const StateTensors& tensors,
                       std::span<const std::byte> bytes);

// The same file in memory.
[[nodiscard]] std::string head_file_text(const HeadInfo& info, const StateTensors& tensors,
                                         std::span<const std::byte> bytes);

class HeadFile {
public:
    // Maps the file and checks the header and the tokens. Errors: the system's; it is no head's file, or is damaged.
    static Result<HeadFile> open_unchecked(const std::filesystem::path& path);
    // The same, and checks the bytes of the state.
    static Result<HeadFile> open(const std::filesystem::path& path);
    // Of a file's content. `source` names it in errors.
    static Result<HeadFile> parse(std::string content, const std::string& source);

    [[nodiscard]] const HeadInfo& info() const { return info_; }
    [[nodiscard]] const StateTensors& tensors() const { return tensors_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }  // Executor::head_bytes()
    [[nodiscard]] int64_t file_bytes() const { return static_cast<int64_t>(all_.size()); }
    // Whether a model with this digest and these tensors can go on from it. Errors: what differs.
    [[nodiscard]] Status check_model(std::string_view model, const StateTensors& tensors) const;
    // The digest of the state, computed from the bytes.
    [[nodiscard]] Digest state_digest() const;

private:
    HeadFile() = default;
    Status read(const std::string& source);
    Status check_state(const std::string& source) const;

    std::optional<MappedFile> mapped_;      // none: content_
    std::unique_ptr<std::string> content_;  // where it lies does not change
    std::span<const std::byte> all_;
    std::vector<std::string> sums_;  // of tensors_
    HeadInfo info_;
    StateTensors tensors_;
    std::span<const std::byte> bytes_;
};

}  // namespace verbatim::reference
