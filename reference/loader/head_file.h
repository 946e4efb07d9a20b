// reference/loader/head_file.h: a head in a file, for another process or machine. It is a safetensors file: any reader
// of that format can open it (docs/heads.md).
//
// Tensors, in this order: "tokens" I32 [length]; then those of reference/model/state_tensors.h as "layers.LAYER.KIND",
// [shape] or, where each token has one, [length, shape]. Metadata, all strings:
//   format       "verbatim-head/1"; of a part of a head "verbatim-head-part/1"
//   model        the digest of configuration and weights
//   numerics     what made the head: "exact/1"
//   digest       of the state (reference/head_digest.h)
//   salt         of the cache that it is from; absent where that has none
//   xxh3         of each tensor's bytes: {"tokens": "...", "layers.0.conv": "...", ...}, 128 bits
//   header_xxh3  of the header's text, with zeros for this value's digits
//   chunk_tokens, chunk_xxh3   of each tensor per token the checksums of so many tokens each, so that a part of the
//                head can be read and checked; absent in files that are read whole
// A *part* has the tensors per token only from base_length on; those before are in another file of its folder, its
// base, which may be a part, too. Its tokens, states and digest are those of the whole head. More metadata of a part:
//   base         the base's name without ".head"
//   base_length  tokens whose tensors are in the base
//   base_xxh3    the base's header_xxh3: no other file takes its place
//   F1  the bytes behind "tokens" are Executor::head_bytes(), of a part without what is in the base
//   F2  every byte of the file enters a checksum: a changed bit, a missing end and an added one are errors; of a part
//       also in what it takes from its bases
//   F3  only bytes that were read and checked are given out; of a head whose first tokens' KV the reader has, their KV
//       is not read, as far as whole chunks are not
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
#include "files/regular_file.h"
#include "files/reserved_bytes.h"
#include "reference/loader/safetensors.h"
#include "reference/model/state_tensors.h"

namespace verbatim::files {
class OutputFile;
}

namespace verbatim::reference {

// Where the beginning of a part's head is.
struct HeadBase {
    std::string name;         // without ".head"
    int64_t length = 0;       // tokens
    std::string header_xxh3;  // HeadFile::header_xxh3()
};

struct HeadInfo {
    std::string model;     // digest of configuration and weights, in hex
    std::string numerics;  // id
    Digest digest;         // of the state
    std::optional<std::string> salt;
    std::vector<TokenId> tokens;
    std::optional<HeadBase> base;  // of a part

    [[nodiscard]] int64_t length() const { return static_cast<int64_t>(tokens.size()); }
    // Tokens whose tensors are in the file.
    [[nodiscard]] int64_t own_length() const { return length() - (base ? base->length : 0); }
};

// A head's bytes without the tensors of its first `base_length` tokens. REQUIRES: 0 <= base_length <= length.
[[nodiscard]] std::vector<std::byte> without_base(const StateTensors& tensors, int64_t length, int64_t base_length,
                                                  std::span<const std::byte> bytes);

// Writes a file that appears complete or not at all; its header_xxh3. REQUIRES: `bytes` are those of a head of
// info.length() tokens; of a part without_base(). Errors: the file's.
Result<std::string> write_head_file(const std::filesystem::path& path, const HeadInfo& info,
                                    const StateTensors& tensors, std::span<const std::byte> bytes);

// Writes the same into `file` and finishes it.
Result<std::string> write_head_file(files::OutputFile& file, const HeadInfo& info, const StateTensors& tensors,
                                    std::span<const std::byte> bytes);

// What stands in that file before the tokens (info.tokens) and the bytes.
[[nodiscard]] std::string head_file_prefix(const HeadInfo& info, const StateTensors& tensors,
                                           std::span<const std::byte> bytes);

inline constexpr int64_t kHeadChunkTokens = 256;  // whose KV has one checksum

class HeadFile {
public:
    static constexpr int kMaxBases = 64;  // of one head, one behind the other

    // Reads and checks the header and the tokens. Errors: the system's; it is no head's file, or is damaged.
    static Result<HeadFile> open_unchecked(const std::filesystem::path& path) {
        return open_unchecked(path, path.string());
    }
    // The whole head, with the bytes of the state read and checked, but for KV of tokens before `first_token`: bytes()
    // does not have that. Errors also of its bases, which are in the same folder.
    static Result<HeadFile> open(const std::filesystem::path& path, int64_t first_token = 0);
    // A whole head. `source` names it in errors. Error: a part.
    static Result<HeadFile> open_whole(const std::filesystem::path& path, const std::string& source);
    // The same of a file's content.
    static Result<HeadFile> parse(std::string content, const std::string& source);
    // Whether a file that cannot be opened is a safetensors file of a format that is none of this program's.
    [[nodiscard]] static bool is_of_other_format(const std::filesystem::path& path);

    [[nodiscard]] const HeadInfo& info() const { return info_; }
    [[nodiscard]] const StateTensors& tensors() const { return tensors_; }
    [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }  // Executor::head_bytes()
    // Tokens before it have no KV in bytes().
    [[nodiscard]] int64_t first_token() const { return first_token_; }
    [[nodiscard]] int64_t file_bytes() const { return static_cast<int64_t>(all_.size()); }
    // Of this file and its bases.
    [[nodiscard]] int64_t num_read_bytes() const { return num_read_bytes_; }
    // Whether a model with this digest and these tensors can go on from it. Errors: what differs.
    [[nodiscard]] Status check_model(std::string_view model, const StateTensors& tensors) const;
    [[nodiscard]] const std::string& header_xxh3() const { return header_xxh3_; }
    // Whether the state has the digest that the file names; checksums show only that the file is as it was written.
    // REQUIRES: all of the head was read. Error: both digests.
    [[nodiscard]] Status check_digest() const;

private:
    // Of a tensor in the file.
    struct Place {
        int64_t offset = 0;  // bytes, in the file
        std::string xxh3;
        int64_t chunk_tokens = 0;         // of a tensor per token
        std::vector<std::string> chunks;  // of these the checksums
    };
    HeadFile() = default;
    static Result<HeadFile> open_unchecked(const std::filesystem::path& path, const std::string& source);
    Status take_whole();
    Status read_header();
    Status parse(const std::string& source);
    Status read_tokens(const TensorEntry& entry, const std::string& wanted, const std::string& source);
    Status read_chunk_sums(const SafetensorsMetadata& metadata, const std::string& source);
    Status read_base(const SafetensorsMetadata& metadata, const std::string& source);
    Status check_base(const HeadFile& base, const std::filesystem::path& path) const;
    Status add_bases(const std::filesystem::path& folder, std::span<std::byte> whole);
    Status fill(int64_t offset, std::span<std::byte> to);
    Status fill_checked(size_t tensor, int64_t begin, std::span<std::byte> to, const std::string& wanted);
    Status take_states(std::span<std::byte> whole);
    Status take_tokens(int64_t begin, int64_t end, int64_t length, std::span<std::byte> whole);
    Status take_chunks(size_t tensor, int64_t begin, int64_t end, std::span<std::byte> to);

    std::string source_;
    std::optional<RegularFile> file_;       // none: content_, or all is read
    std::unique_ptr<std::string> content_;  // where it lies does not change
    ReservedBytes own_;                     // as in the file: what has been read of it
    std::span<std::byte> all_;              // of own_ or content_
    ReservedBytes whole_;                   // of a part with its bases
    std::vector<Place> places_;             // of tensors_
    std::vector<std::byte> chunk_;          // of which a part is taken
    int64_t first_token_ = 0;
    int64_t num_read_bytes_ = 0;
    std::string header_xxh3_;
    HeadInfo info_;
    StateTensors tensors_;
    std::span<std::byte> bytes_;
};

}  // namespace verbatim::reference
