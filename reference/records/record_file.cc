#include "reference/records/record_file.h"

#include <xxhash.h>
#include <zstd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "engine/base/check.h"
#include "reference/records/codec.h"
#include "reference/records/description_json.h"

namespace verbatim::records {
namespace {

constexpr std::string_view kMagic = "VERBATIM RECORD\n";
constexpr uint32_t kHeadFrame = 1;     // JSON
constexpr uint32_t kEntriesFrame = 2;  // how many bytes, and they, a piece of one zstd stream
constexpr size_t kFlushBytes = size_t{32} << 10;
constexpr int kFlushSteps = 16;  // as many are lost at most when the program dies
constexpr int kCompressionLevel = 3;
constexpr int kWindowLog = 21;                          // what the level uses; more is not read
constexpr uint32_t kMaxFrameBytes = uint32_t{1} << 28;  // as it lies in the file, and decompressed
constexpr uint8_t kCallEntry = 1;
constexpr uint8_t kStepEntry = 2;
constexpr uint8_t kToldEntry = 3;
constexpr uint8_t kEndEntry = 4;

struct FrameHead {
    uint32_t num_bytes = 0;
    uint32_t type = 0;
    uint64_t checksum = 0;  // XXH3 of the payload, seeded with the type
};

uint64_t checksum_of(uint32_t type, std::span<const std::byte> payload) {
    return XXH3_64bits_withSeed(payload.data(), payload.size(), type);
}

}  // namespace

// --- writing

class RecordWriter::Compressor {
public:
    Compressor() : context_(ZSTD_createCCtx()) {
        CHECK(context_ != nullptr);
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_compressionLevel, kCompressionLevel);
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_windowLog, kWindowLog);
    }
    // Appends a part of the stream from which a reader of the earlier parts gets all of `bytes`.
    void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        size_t left = 1;
        while (left > 0) {
            const size_t at = out.size();
            out.resize(at + ZSTD_CStreamOutSize());
            ZSTD_outBuffer piece{out.data() + at, out.size() - at, 0};
            left = ZSTD_compressStream2(context_.get(), &piece, &in, ZSTD_e_flush);
            CHECK(ZSTD_isError(left) == 0, "{}", ZSTD_getErrorName(left));
            out.resize(at + piece.pos);
        }
    }

private:
    struct Free {
        void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
    };
    std::unique_ptr<ZSTD_CCtx, Free> context_;
};

RecordWriter::RecordWriter(std::string path, files::OutputFile file)
    : path_(std::move(path)), file_(std::move(file)), compressor_(std::make_unique<Compressor>()) {}

RecordWriter::~RecordWriter() {
    if (!is_closed_) flush();
}

Result<files::OutputFile> RecordWriter::create_file(const std::string& path) {
    return files::OutputFile::create(path, {.keeps_unfinished = true});
}

Result<std::unique_ptr<RecordWriter>> RecordWriter::create(const std::string& path, const RunDescription& run) {
    ASSIGN_OR_RETURN(files::OutputFile file, create_file(path));
    return create(path, std::move(file), run);
}

Result<std::unique_ptr<RecordWriter>> RecordWriter::create(const std::string& path, files::OutputFile file,
                                                           const RunDescription& run) {
    CHECK(file.is_wanted());
    std::unique_ptr<RecordWriter> writer(new RecordWriter(path, std::move(file)));
    const std::string head = write_head(run);
    writer->note(writer->file_.write(kMagic));
    writer->unflushed_bytes_ = static_cast<int64_t>(kMagic.size());
    writer->write_frame(kHeadFrame, std::as_bytes(std::span(head)));
    writer->hand_over();
    RETURN_IF_ERROR(writer->status_);
    return writer;
}

void RecordWriter::add(Entry entry) {
    CHECK(!is_ended_ && !is_closed_, "{}: an entry behind the record's end", path_);
    encoded_.clear();
    Encoder encoder(encoded_);
    if (const auto* call = std::get_if<Call>(&entry)) {
        encoder.write(*call);
        add(kCallEntry, encoded_);
    } else if (const auto* step = std::get_if<StepRecord>(&entry)) {
        encoder.write(*step);
        ++num_waiting_steps_;
        add(kStepEntry, encoded_);
    } else {
        encoder.write(std::get<Reported>(entry));
        add(kToldEntry, encoded_);
    }
    if (waiting_.size() >= kFlushBytes || num_waiting_steps_ >= kFlushSteps) flush();
}

void RecordWriter::finish(RunEnd end) {
    CHECK(!is_ended_ && !is_closed_, "{}: a second end", path_);
    is_ended_ = true;
    encoded_.clear();
    Encoder(encoded_).write(end);
    add(kEndEntry, encoded_);
    flush();
}

void RecordWriter::add(uint8_t kind, std::span<const std::byte> bytes) {
    Encoder encoder(waiting_);
    waiting_.push_back(static_cast<std::byte>(kind));
    encoder.write_count(bytes.size());
    encoder.append(bytes.data(), bytes.size());
}

void RecordWriter::flush() {
    num_waiting_steps_ = 0;
    std::span<const std::byte> left(waiting_);
    while (!left.empty()) {
        const auto piece = left.first(std::min<size_t>(left.size(), kMaxFrameBytes / 2));
        const auto num_bytes = static_cast<uint32_t>(piece.size());
        std::vector<std::byte> payload(sizeof num_bytes);
        std::memcpy(payload.data(), &num_bytes, sizeof num_bytes);
        compressor_->append(payload, piece);
        write_frame(kEntriesFrame, payload);
        left = left.subspan(piece.size());
    }
    waiting_.clear();
    hand_over();
    CHECK(!status_ || unflushed_bytes_ == 0, "{}: {} bytes are not counted", path_, unflushed_bytes_);
}

void RecordWriter::hand_over() {
    if (status_) note(file_.flush());
    if (status_) file_bytes_ += std::exchange(unflushed_bytes_, 0);
}

void RecordWriter::write_frame(uint32_t type, std::span<const std::byte> payload) {
    if (!status_) return;
    CHECK_LE(payload.size(), size_t{kMaxFrameBytes});  // a reader refuses a longer one
    const FrameHead head{static_cast<uint32_t>(payload.size()), type, checksum_of(type, payload)};
    note(file_.write(std::as_bytes(std::span(&head, 1))));
    if (status_) note(file_.write(payload));
    unflushed_bytes_ += static_cast<int64_t>(sizeof head + payload.size());
}

void RecordWriter::note(Status written) {
    CHECK_EQ(failed_.load(), !status_.has_value());
    if (written || !status_) return;
    status_ = std::move(written);
    if (!file_.partial().empty())
        status_.error().message += fmt::format("; what was recorded before is {}", file_.partial().string());
    failed_ = true;
    if (on_failure_) on_failure_(status_.error());
}

Status RecordWriter::close() {
    CHECK(!is_closed_, "{} is closed", path_);
    flush();
    is_closed_ = true;
    if (status_) note(file_.finish());
    return status_;
}

// --- reading

namespace {

class Decompressor {
public:
    Decompressor() : context_(ZSTD_createDCtx()) {
        CHECK(context_ != nullptr);
        ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kWindowLog);
    }
    // Appends what a piece holds. Errors: it is no piece of the stream, or does not hold so many bytes.
    Status append(std::vector<std::byte>& out, std::span<const std::byte> piece) {
        uint32_t num_bytes = 0;
        if (piece.size() < sizeof num_bytes) return error("too short");
        std::memcpy(&num_bytes, piece.data(), sizeof num_bytes);
        if (num_bytes > kMaxFrameBytes) return error("{} bytes are too many", num_bytes);
        ZSTD_inBuffer in{piece.data(), piece.size(), sizeof num_bytes};
        std::vector<std::byte> chunk(std::min<size_t>(num_bytes, ZSTD_DStreamOutSize()) + 1);
        size_t left = num_bytes;
        for (;;) {
            ZSTD_outBuffer to{chunk.data(), std::min(chunk.size(), left + 1), 0};
            const size_t before = in.pos;
            const size_t state = ZSTD_decompressStream(context_.get(), &to, &in);
            if (ZSTD_isError(state) != 0) return error("zstd: {}", ZSTD_getErrorName(state));
            if (to.pos > left) return error("more than {} bytes come out", num_bytes);
            out.insert(out.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(to.pos));
            left -= to.pos;
            if (to.pos == 0 && in.pos == before) break;
        }
        if (left > 0 || in.pos != in.size) return error("{} bytes of {} do not come out", left, num_bytes);
        return {};
    }

private:
    struct Free {
        void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
    };
    std::unique_ptr<ZSTD_DCtx, Free> context_;
};

bool begins_a_record(std::span<const std::byte> bytes) {
    return bytes.size() >= kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

class FileParser {
public:
    FileParser(const std::string& path, std::span<const std::byte> bytes) : path_(path), bytes_(bytes) {}

    Result<Record> parse() {
        record_.file_bytes = static_cast<int64_t>(bytes_.size());
        if (!begins_a_record(bytes_))
            return error("{}: is no record of a run (verbatim replay --record FILE writes one)", path_);
        at_ = kMagic.size();
        while (at_ < bytes_.size() && !record_.end) {
            const size_t begin = at_;
            ASSIGN_OR_RETURN(const bool whole, read_frame());
            if (!whole) {
                if (!head_) return error("{}: is cut off in its head", path_);
                record_.cut_off = fmt::format("{} is cut off at byte {}", path_, begin);
                return std::move(record_);
            }
        }
        if (!head_) return error("{}: has no head", path_);
        if (!record_.end) record_.cut_off = fmt::format("{} has no end: the run was not over", path_);
        if (at_ < bytes_.size()) return error("{}: byte {}: something follows the end", path_, at_);
        return std::move(record_);
    }

private:
    // False: the file ends inside the frame.
    Result<bool> read_frame() {
        FrameHead frame;
        if (bytes_.size() - at_ < sizeof frame) return false;
        std::memcpy(&frame, bytes_.data() + at_, sizeof frame);
        if (frame.num_bytes > kMaxFrameBytes) return wrong(error("a frame of {} bytes", frame.num_bytes));
        if (frame.num_bytes > bytes_.size() - at_ - sizeof frame) return false;
        const auto payload = bytes_.subspan(at_ + sizeof frame, frame.num_bytes);
        if (checksum_of(frame.type, payload) != frame.checksum)
            return wrong(error("the frame's checksum is not that of its bytes: the file is damaged"));
        if (frame.type == kHeadFrame) {
            if (const Status read = read_head_frame(payload); !read) return wrong(tl::unexpected(read.error()));
        } else if (frame.type == kEntriesFrame && head_) {
            if (const Status read = read_entries(payload); !read) return wrong(tl::unexpected(read.error()));
        } else {
            return wrong(error("a frame of type {}", frame.type));
        }
        at_ += sizeof frame + frame.num_bytes;
        return true;
    }
    [[nodiscard]] tl::unexpected<Error> wrong(const tl::unexpected<Error>& what) const {
        return error("{}: byte {}: {}", path_, at_, what.value().message);
    }

    Status read_head_frame(std::span<const std::byte> payload) {
        if (head_) return error("a second head");
        ASSIGN_OR_RETURN(head_.emplace(), read_head({reinterpret_cast<const char*>(payload.data()), payload.size()}));
        record_.run = head_->run;
        record_.own_store = std::make_unique<TokenStore>(head_->run.vocab_size);
        record_.store = record_.own_store.get();
        return {};
    }

    // A large entry may lie in several frames.
    Status read_entries(std::span<const std::byte> payload) {
        RETURN_IF_ERROR(decompressor_.append(waiting_, payload));
        Decoder decoder(waiting_, *record_.own_store);
        size_t num_read = 0;
        while (!decoder.rest().empty()) {
            ASSIGN_OR_RETURN(const auto kind, decoder.take(1));
            const auto count = decoder.read_count();
            if (!count) break;  // the rest is in the next frame
            ASSIGN_OR_RETURN(const auto bytes, decoder.take(*count));
            RETURN_IF_ERROR(read_entry(static_cast<uint8_t>(kind[0]), bytes));
            num_read = waiting_.size() - decoder.rest().size();
        }
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(num_read));
        if (waiting_.size() > 2 * size_t{kMaxFrameBytes}) return error("an entry of {} bytes", waiting_.size());
        return {};
    }

    template <typename T>
    Result<T> value(const Shape& shape, std::span<const std::byte> bytes) {
        return decode<T>(shape, bytes, *record_.own_store);
    }

    Status read_entry(uint8_t kind, std::span<const std::byte> bytes) {
        if (record_.end) return error("an entry after the end");
        if (kind == kCallEntry) {
            ASSIGN_OR_RETURN(auto call, value<Call>(head_->shapes.call, bytes));
            record_.entries.emplace_back(std::move(call));
        } else if (kind == kStepEntry) {
            ASSIGN_OR_RETURN(auto step, value<StepRecord>(head_->shapes.step, bytes));
            if (step.plan) RETURN_IF_ERROR(step.plan->check_slices());
            record_.entries.emplace_back(std::move(step));
        } else if (kind == kToldEntry) {
            ASSIGN_OR_RETURN(auto reported, value<Reported>(head_->shapes.told, bytes));
            record_.entries.emplace_back(std::move(reported));
        } else if (kind == kEndEntry) {
            ASSIGN_OR_RETURN(record_.end.emplace(), value<RunEnd>(head_->shapes.end, bytes));
        }
        return {};  // entries of a kind that came later are passed over
    }

    const std::string& path_;
    std::span<const std::byte> bytes_;
    size_t at_ = 0;
    std::optional<RecordHead> head_;
    Decompressor decompressor_;
    std::vector<std::byte> waiting_;  // decompressed and not yet read
    Record record_;
};

Result<std::vector<std::byte>> bytes_of_file(const std::string& path) {
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) return error("{}: cannot be read: {}", path, std::strerror(errno));
    std::vector<std::byte> bytes;
    constexpr size_t kPiece = size_t{1} << 20;
    for (size_t count = kPiece; count == kPiece;) {
        const size_t at = bytes.size();
        bytes.resize(at + kPiece);
        count = std::fread(bytes.data() + at, 1, kPiece, file);
        bytes.resize(at + count);
        if (!begins_a_record(bytes)) break;  // as long as it may be
    }
    const bool failed = std::ferror(file) != 0;
    std::fclose(file);
    if (failed) return error("{}: cannot be read: is it a file?", path);
    return bytes;
}

}  // namespace

Result<Record> read_record_bytes(const std::string& path, std::span<const std::byte> bytes) {
    return FileParser(path, bytes).parse();
}

Result<Record> read_record(const std::string& path) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, bytes_of_file(path));
    return read_record_bytes(path, bytes);
}

}  // namespace verbatim::records
