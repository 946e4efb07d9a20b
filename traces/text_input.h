// traces/text_input.h: owns the text of a trace file, plain, gzip or zstd (detected from the first bytes), decompressed
// while it is read.
//
// It owns the file and the decompressor. Limits on a line and on all decompressed text bound hostile files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"

namespace verbatim::traces {

struct TextLimits {
    size_t line_bytes = size_t{64} << 20;  // 64 MiB
    size_t text_bytes = size_t{16} << 30;  // 16 GiB, decompressed
};

// A stream of bytes, decompressed or not. read() fills `out` unless the end is near; 0 is the end.
class ByteSource {
public:
    virtual ~ByteSource() = default;
    virtual Result<size_t> read(std::span<char> out) = 0;
};

class TextInput {
public:
    static Result<TextInput> open(const std::string& path, TextLimits limits = {});
    // Borrows `text`, which may be compressed; `path` is used in messages only.
    static Result<TextInput> from_memory(const std::string& path, std::string_view text, TextLimits limits = {});

    [[nodiscard]] const std::string& path() const { return path_; }
    // The first bytes of the text (at most 64 KiB) after a byte order mark, without consuming them. REQUIRES: no read
    // so far.
    [[nodiscard]] std::string_view peek() const { return std::string_view(buffer_.data() + begin_, end_ - begin_); }
    // Without '\n' or "\r\n"; valid until the next call; none at the end. A NUL byte is an error.
    Result<std::optional<std::string_view>> next_line();
    // The same; blank lines after the last row are the end. Errors: a blank line before a row.
    Result<std::optional<std::string_view>> next_row_line();
    // Number of the last line, from 1.
    [[nodiscard]] int64_t line_number() const { return line_number_; }

private:
    TextInput(std::string path, std::unique_ptr<ByteSource> source, TextLimits limits);
    static Result<TextInput> start(std::string path, std::unique_ptr<ByteSource> raw, TextLimits limits);
    Result<bool> fill();  // false at the end

    std::string path_;
    std::unique_ptr<ByteSource> source_;
    TextLimits limits_;
    std::vector<char> buffer_;
    size_t begin_ = 0;  // buffer_[begin_ .. end_) is not consumed yet
    size_t end_ = 0;
    size_t text_bytes_ = 0;
    int64_t line_number_ = 0;
    bool at_end_ = false;
};

}  // namespace verbatim::traces
