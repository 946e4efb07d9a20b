#include "traces/text_input.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

namespace verbatim::traces {
namespace {

constexpr size_t kChunkBytes = size_t{64} << 10;

class FileSource final : public ByteSource {
public:
    FileSource(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}
    Result<size_t> read(std::span<char> out) override {
        const size_t count = std::fread(out.data(), 1, out.size(), file_.get());
        if (count < out.size() && std::ferror(file_.get()) != 0) {
            return error("{}: cannot be read: {}", path_, std::generic_category().message(errno));
        }
        return count;
    }

private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    std::string path_;
    std::unique_ptr<std::FILE, Close> file_;
};

class MemorySource final : public ByteSource {
public:
    explicit MemorySource(std::string_view text) : text_(text) {}
    Result<size_t> read(std::span<char> out) override {
        const size_t count = std::min(out.size(), text_.size());
        if (count > 0) std::memcpy(out.data(), text_.data(), count);
        text_.remove_prefix(count);
        return count;
    }

private:
    std::string_view text_;
};

// Prepends bytes that were peeked at.
class PrefixedSource final : public ByteSource {
public:
    PrefixedSource(std::string prefix, std::unique_ptr<ByteSource> rest)
        : prefix_(std::move(prefix)), rest_(std::move(rest)) {}
    Result<size_t> read(std::span<char> out) override {
        const size_t count = std::min(out.size(), prefix_.size() - used_);
        if (count > 0) std::memcpy(out.data(), prefix_.data() + used_, count);
        used_ += count;
        if (count == out.size()) return count;
        ASSIGN_OR_RETURN(const size_t more, rest_->read(out.subspan(count)));
        return count + more;
    }

private:
    std::string prefix_;
    size_t used_ = 0;
    std::unique_ptr<ByteSource> rest_;
};

// Common to gzip and zstd: refills a chunk of compressed bytes and fills all of `out`.
class Decompressor : public ByteSource {
public:
    Decompressor(std::string path, const char* format, std::unique_ptr<ByteSource> compressed)
        : path_(std::move(path)), format_(format), compressed_(std::move(compressed)), chunk_(kChunkBytes) {}

    Result<size_t> read(std::span<char> out) override {
        size_t done = 0;
        while (done < out.size()) {
            if (used_ == filled_) {
                ASSIGN_OR_RETURN(filled_, compressed_->read(chunk_));
                used_ = 0;
                if (filled_ == 0 && between_frames()) return done;
            }
            const bool starved = filled_ == 0;  // the decompressor may still hold output
            ASSIGN_OR_RETURN(const size_t count, step(out.subspan(done)));
            done += count;
            if (starved && count == 0 && !between_frames()) {
                return error("{}: the {} data ends early: is the file truncated?", path_, format_);
            }
        }
        return done;
    }

protected:
    // Decompresses from input() into `out`, consumes the used input, and returns the number of output bytes.
    virtual Result<size_t> step(std::span<char> out) = 0;
    [[nodiscard]] virtual bool between_frames() const = 0;
    [[nodiscard]] std::span<char> input() { return std::span(chunk_).subspan(used_, filled_ - used_); }
    void consume(size_t count) { used_ += count; }
    [[nodiscard]] tl::unexpected<Error> damaged(std::string_view what) const {
        return error("{}: not valid {} data: {}", path_, format_, what);
    }

private:
    std::string path_;
    const char* format_;
    std::unique_ptr<ByteSource> compressed_;
    std::vector<char> chunk_;
    size_t used_ = 0;
    size_t filled_ = 0;
};

class GzipSource final : public Decompressor {
public:
    GzipSource(std::string path, std::unique_ptr<ByteSource> compressed)
        : Decompressor(std::move(path), "gzip", std::move(compressed)) {
        ready_ = inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;  // 16: gzip framing
    }
    ~GzipSource() override {
        if (ready_) inflateEnd(&stream_);
    }
    GzipSource(const GzipSource&) = delete;
    GzipSource& operator=(const GzipSource&) = delete;

protected:
    Result<size_t> step(std::span<char> out) override {
        if (!ready_) return damaged("no memory");
        if (between_frames_) inflateReset(&stream_);  // concatenated members are one text
        between_frames_ = false;
        stream_.next_in = reinterpret_cast<Bytef*>(input().data());
        stream_.avail_in = static_cast<uInt>(input().size());
        stream_.next_out = reinterpret_cast<Bytef*>(out.data());
        const auto wanted = static_cast<uInt>(std::min(out.size(), size_t{1} << 30));
        stream_.avail_out = wanted;
        const int code = inflate(&stream_, Z_NO_FLUSH);
        consume(input().size() - stream_.avail_in);
        between_frames_ = code == Z_STREAM_END;
        const bool hungry = code == Z_BUF_ERROR && input().empty();
        if (code != Z_OK && code != Z_STREAM_END && !hungry)
            return damaged(stream_.msg != nullptr ? stream_.msg : "damaged");
        return wanted - stream_.avail_out;
    }
    [[nodiscard]] bool between_frames() const override { return between_frames_; }

private:
    z_stream stream_{};
    bool ready_ = false;
    bool between_frames_ = false;
};

class ZstdSource final : public Decompressor {
public:
    ZstdSource(std::string path, std::unique_ptr<ByteSource> compressed)
        : Decompressor(std::move(path), "zstd", std::move(compressed)), stream_(ZSTD_createDStream()) {
        // Limits the window size that a frame may request to 128 MiB.
        if (stream_) ZSTD_DCtx_setParameter(stream_.get(), ZSTD_d_windowLogMax, 27);
    }

protected:
    Result<size_t> step(std::span<char> out) override {
        if (!stream_) return damaged("no memory");
        ZSTD_inBuffer in{input().data(), input().size(), 0};
        ZSTD_outBuffer sink{out.data(), out.size(), 0};
        const size_t left = ZSTD_decompressStream(stream_.get(), &sink, &in);
        if (ZSTD_isError(left) != 0) return damaged(ZSTD_getErrorName(left));
        consume(in.pos);
        between_frames_ = left == 0;
        return sink.pos;
    }
    [[nodiscard]] bool between_frames() const override { return between_frames_; }

private:
    struct Free {
        void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
    };
    std::unique_ptr<ZSTD_DStream, Free> stream_;
    bool between_frames_ = false;
};

}  // namespace

TextInput::TextInput(std::string path, std::unique_ptr<ByteSource> source, TextLimits limits)
    : path_(std::move(path)), source_(std::move(source)), limits_(limits), buffer_(kChunkBytes) {}

Result<TextInput> TextInput::open(const std::string& path, TextLimits limits) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return error("{}: cannot be opened: {}", path, std::generic_category().message(errno));
    return start(path, std::make_unique<FileSource>(path, file), limits);
}

Result<TextInput> TextInput::from_memory(const std::string& path, std::string_view text, TextLimits limits) {
    return start(path, std::make_unique<MemorySource>(text), limits);
}

Result<TextInput> TextInput::start(std::string path, std::unique_ptr<ByteSource> raw, TextLimits limits) {
    std::string magic(4, '\0');
    ASSIGN_OR_RETURN(const size_t count, raw->read(magic));
    magic.resize(count);
    std::unique_ptr<ByteSource> source = std::make_unique<PrefixedSource>(magic, std::move(raw));
    if (magic.starts_with("\x1f\x8b")) source = std::make_unique<GzipSource>(path, std::move(source));
    if (magic.starts_with("\x28\xb5\x2f\xfd")) source = std::make_unique<ZstdSource>(path, std::move(source));
    TextInput input(std::move(path), std::move(source), limits);
    RETURN_IF_ERROR(input.fill());
    constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // optional at the start of UTF-8
    if (input.peek().starts_with(kByteOrderMark)) input.begin_ = kByteOrderMark.size();
    return input;
}

Result<bool> TextInput::fill() {
    if (begin_ > 0) {
        std::copy(buffer_.begin() + static_cast<ptrdiff_t>(begin_), buffer_.begin() + static_cast<ptrdiff_t>(end_),
                  buffer_.begin());
        end_ -= begin_;
        begin_ = 0;
    }
    if (end_ == buffer_.size()) buffer_.resize(2 * buffer_.size());
    ASSIGN_OR_RETURN(const size_t count, source_->read(std::span(buffer_).subspan(end_)));
    text_bytes_ += count;
    if (text_bytes_ > limits_.text_bytes) {
        return error("{}: more than {} bytes of text: is this a trace?", path_, limits_.text_bytes);
    }
    end_ += count;
    return count > 0;
}

Result<std::optional<std::string_view>> TextInput::next_line() {
    size_t scanned = 0;  // bytes from begin_ without a line end
    const void* found = nullptr;
    while (!at_end_) {
        found = std::memchr(buffer_.data() + begin_ + scanned, '\n', end_ - begin_ - scanned);
        if (found != nullptr) break;
        scanned = end_ - begin_;
        if (scanned > limits_.line_bytes) break;
        ASSIGN_OR_RETURN(const bool more, fill());
        at_end_ = !more;
    }
    if (at_end_ && found == nullptr) found = std::memchr(buffer_.data() + begin_, '\n', end_ - begin_);
    if (found == nullptr && begin_ == end_) return std::optional<std::string_view>{};
    ++line_number_;
    const char* line_begin = buffer_.data() + begin_;
    size_t length =
        found != nullptr ? static_cast<size_t>(static_cast<const char*>(found) - line_begin) : end_ - begin_;
    if (length > limits_.line_bytes) {
        return error("{}:{}: a line of more than {} bytes: is this a trace?", path_, line_number_, limits_.line_bytes);
    }
    begin_ += length + (found != nullptr ? 1 : 0);
    if (const void* nul = std::memchr(line_begin, '\0', length); nul != nullptr) {
        return error("{}:{}:{}: got a NUL byte, wanted text", path_, line_number_,
                     static_cast<const char*>(nul) - line_begin + 1);
    }
    if (length > 0 && line_begin[length - 1] == '\r') --length;
    return std::string_view(line_begin, length);
}

Result<std::optional<std::string_view>> TextInput::next_row_line() {
    int64_t first_blank = 0;
    for (;;) {
        ASSIGN_OR_RETURN(const std::optional<std::string_view> line, next_line());
        const bool is_blank = line && line->find_first_not_of(" \t") == std::string_view::npos;
        if (is_blank && first_blank == 0) first_blank = line_number_;
        if (is_blank) continue;
        if (line && first_blank > 0)
            return error("{}:{}:1: got an empty line before the last row, wanted a row", path_, first_blank);
        return line;
    }
}

}  // namespace verbatim::traces
