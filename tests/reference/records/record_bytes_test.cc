// Files of hand-made frames, and what is in a file while it is written.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>
#include <zstd.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/prng.h"
#include "reference/records/codec.h"
#include "reference/records/description_json.h"
#include "reference/records/record_file.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::HasSubstr;

constexpr uint32_t kHead = 1;
constexpr uint32_t kEntries = 2;
constexpr uint8_t kCall = 1;
constexpr uint8_t kEnd = 4;

RunDescription description() {
    RunDescription run;
    run.vocab_size = 1000;
    run.engine.cache.pools.num_blocks = 4;
    run.engine.cache.pools.num_state_rows = 4;
    return run;
}

// A file, frame by frame; its entries are one zstd stream.
class HandmadeFile {
public:
    explicit HandmadeFile(int window_log = 21) : context_(ZSTD_createCCtx(), ZSTD_freeCCtx) {
        ZSTD_CCtx_setParameter(context_.get(), ZSTD_c_windowLog, window_log);
        const std::string_view magic = "VERBATIM RECORD\n";
        append(magic.data(), magic.size());
    }
    HandmadeFile& frame(uint32_t type, const std::vector<std::byte>& payload) {
        return frame(type, payload, static_cast<uint32_t>(payload.size()));
    }
    HandmadeFile& frame(uint32_t type, const std::vector<std::byte>& payload, uint32_t num_bytes) {
        append(&num_bytes, sizeof num_bytes);
        append(&type, sizeof type);
        const uint64_t checksum = XXH3_64bits_withSeed(payload.data(), payload.size(), type);
        append(&checksum, sizeof checksum);
        append(payload.data(), payload.size());
        return *this;
    }
    HandmadeFile& head() {
        const std::string text = write_head(description());
        const auto* begin = reinterpret_cast<const std::byte*>(text.data());
        return frame(kHead, {begin, begin + text.size()});
    }
    // A piece of the stream, of which `claimed` bytes are said to come out.
    HandmadeFile& entries(const std::vector<std::byte>& bytes, size_t claimed) {
        std::vector<std::byte> payload(sizeof(uint32_t) + ZSTD_compressBound(bytes.size()) + 100);
        const auto size = static_cast<uint32_t>(claimed);
        std::memcpy(payload.data(), &size, sizeof size);
        ZSTD_inBuffer in{bytes.data(), bytes.size(), 0};
        ZSTD_outBuffer out{payload.data(), payload.size(), sizeof size};
        CHECK_EQ(ZSTD_compressStream2(context_.get(), &out, &in, ZSTD_e_flush), size_t{0});
        payload.resize(out.pos);
        return frame(kEntries, payload);
    }
    HandmadeFile& entries(const std::vector<std::byte>& bytes) { return entries(bytes, bytes.size()); }
    [[nodiscard]] Result<Record> read() const { return read_record_bytes("x.rec", bytes_); }
    [[nodiscard]] std::string error() const {
        const auto read = this->read();
        return read ? "none" : read.error().message;
    }

private:
    void append(const void* data, size_t count) {
        const auto* begin = static_cast<const std::byte*>(data);
        bytes_.insert(bytes_.end(), begin, begin + count);
    }
    std::vector<std::byte> bytes_;
    std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> context_;
};

template <typename T>
std::vector<std::byte> entry(uint8_t kind, const T& value) {
    const std::vector<std::byte> encoded = encode(value);
    std::vector<std::byte> bytes = {static_cast<std::byte>(kind)};
    Encoder(bytes).write_count(encoded.size());
    bytes.insert(bytes.end(), encoded.begin(), encoded.end());
    return bytes;
}

std::vector<std::byte> operator+(std::vector<std::byte> a, const std::vector<std::byte>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

// A name of that length.
Call call_of(size_t length) {
    Call call{.kind = CallKind::kFork};
    call.to = std::string(length, 'x');
    return call;
}

TEST(RecordBytes, AnEntryMayLieInSeveralFrames) {
    const RunEnd end{.num_steps = 3};
    const std::vector<std::byte> bytes =
        entry(kCall, call_of(1)) + entry(kCall, call_of(200)) + entry(kCall, call_of(2)) + entry(kEnd, end);
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
        const auto read = HandmadeFile()
                              .head()
                              .entries({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(cut)})
                              .entries({})
                              .entries({bytes.begin() + static_cast<std::ptrdiff_t>(cut), bytes.end()})
                              .read();
        if (cut == bytes.size()) {
            EXPECT_FALSE(read) << "frames behind the end";
            continue;
        }
        ASSERT_TRUE(read) << cut << ": " << read.error().message;
        EXPECT_EQ(read->entries, (std::vector<Entry>{call_of(1), call_of(200), call_of(2)})) << cut;
        EXPECT_EQ(read->end, end);
    }
}

TEST(RecordBytes, AFrameHasTheBytesThatItNames) {
    const std::vector<std::byte> bytes = entry(kCall, call_of(20));
    const auto claiming = [&](size_t claimed) { return HandmadeFile().head().entries(bytes, claimed).error(); };
    EXPECT_EQ(claiming(bytes.size()), "none");
    EXPECT_THAT(claiming(bytes.size() + 1),
                HasSubstr(fmt::format(": 1 bytes of {} do not come out", bytes.size() + 1)));
    EXPECT_THAT(claiming(bytes.size() - 1), HasSubstr(fmt::format("more than {} bytes come out", bytes.size() - 1)));
    EXPECT_THAT(claiming(size_t{1} << 28), HasSubstr(" bytes of 268435456 do not come out"));
    EXPECT_THAT(claiming((size_t{1} << 28) + 1), HasSubstr("268435457 bytes are too many"));
    EXPECT_THAT(HandmadeFile().head().frame(kEntries, std::vector<std::byte>(3)).error(), HasSubstr("too short"));
    EXPECT_EQ(HandmadeFile().head().frame(kEntries, std::vector<std::byte>(4)).error(), "none");
    EXPECT_THAT(HandmadeFile().head().frame(kEntries, {}).error(), HasSubstr("too short"));
}

TEST(RecordBytes, FramesAreBoundedAndOfKnownTypes) {
    EXPECT_THAT(HandmadeFile().entries({}).error(), HasSubstr("byte 16: a frame of type 2"));
    EXPECT_THAT(HandmadeFile().head().frame(7, {}).error(), HasSubstr("a frame of type 7"));
    EXPECT_THAT(HandmadeFile().head().head().error(), HasSubstr("a second head"));
    const auto longest = HandmadeFile().head().frame(kEntries, {}, uint32_t{1} << 28).read();
    ASSERT_TRUE(longest) << longest.error().message;
    EXPECT_THAT(longest->cut_off, HasSubstr("is cut off at byte "));
    EXPECT_THAT(HandmadeFile().head().frame(kEntries, {}, (uint32_t{1} << 28) + 1).error(),
                HasSubstr("a frame of 268435457 bytes"));
}

// A small file must not ask for much memory.
TEST(RecordBytes, AStreamWithALargerWindowIsRefused) {
    const std::vector<std::byte> bytes = entry(kCall, call_of(20));
    EXPECT_EQ(HandmadeFile(21).head().entries(bytes).error(), "none");
    EXPECT_THAT(HandmadeFile(22).head().entries(bytes).error(), HasSubstr("zstd: Frame requires too much memory"));
}

TEST(RecordBytes, AnEntryOfALaterKindIsSkipped) {
    const auto read = HandmadeFile().head().entries(entry(99, std::string("later")) + entry(kCall, call_of(4))).read();
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->entries, std::vector<Entry>{call_of(4)});
    EXPECT_EQ(read->store, read->own_store.get());
    EXPECT_EQ(read->store->vocab_size(), 1000);
}

// More than a megabyte, in which nothing repeats.
TEST(RecordBytes, ALargeFileIsReadInPieces) {
    const ScratchFolder folder;
    const std::string path = folder.path("run.rec");
    const auto writer = RecordWriter::create(path, description());
    ASSERT_TRUE(writer) << writer.error().message;
    StepRecord step;
    step.sequences.emplace_back();
    Prng prng(1);
    for (int i = 0; i < 150'000; ++i) step.sequences[0].logits.push_back(prng.next());
    (*writer)->add(step);
    (*writer)->add(call_of(400'000));  // a few bytes, from which more come out than a buffer holds
    (*writer)->finish({.num_steps = 1});
    ASSERT_TRUE((*writer)->close());
    const auto read = read_record(path);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->entries, (std::vector<Entry>{step, call_of(400'000)}));
    EXPECT_EQ(read->cut_off, "");
    EXPECT_EQ(read->file_bytes, (*writer)->file_bytes());
    EXPECT_GT(read->file_bytes, 1 << 20);
}

TEST(RecordBytes, EverySixteenthStepIsWrittenOut) {
    const ScratchFolder folder;
    const std::string path = folder.path("run.rec");
    const auto writer = RecordWriter::create(path, description());
    ASSERT_TRUE(writer) << writer.error().message;
    const auto on_disk = [&] { return read_record(path + ".partial"); };
    ASSERT_TRUE(on_disk()) << "the head";
    int64_t before = (*writer)->file_bytes();
    EXPECT_EQ(on_disk()->file_bytes, before);
    for (int step = 1; step <= 40; ++step) {
        (*writer)->add(Call{});
        (*writer)->add(StepRecord{.step = step});
        EXPECT_EQ((*writer)->file_bytes() > before, step % 16 == 0) << step;
        before = (*writer)->file_bytes();
        EXPECT_EQ(std::ssize(on_disk()->entries), 2 * (step - step % 16));
    }
    (*writer)->finish({.num_steps = 40});
    EXPECT_EQ(on_disk()->entries.size(), 80U);
    EXPECT_TRUE(on_disk()->end.has_value()) << "before it is closed";
}

TEST(RecordBytes, ThirtyTwoKilobytesAreWrittenOut) {
    const ScratchFolder folder;
    const auto writer = RecordWriter::create(folder.path("run.rec"), description());
    ASSERT_TRUE(writer) << writer.error().message;
    const int64_t before = (*writer)->file_bytes();
    const size_t part = entry(kCall, call_of(10'000)).size();
    const size_t rest = (32 << 10) - 2 * part;
    const size_t length = rest - (part - 10'000);
    ASSERT_EQ(entry(kCall, call_of(length)).size(), rest);
    for (int i = 0; i < 2; ++i) (*writer)->add(call_of(10'000));
    EXPECT_EQ((*writer)->file_bytes(), before);
    (*writer)->add(call_of(length));
    EXPECT_GT((*writer)->file_bytes(), before);
}

TEST(RecordBytes, AFileThatWasReadIsClosed) {
    const auto num_open = [] {
        return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                             std::filesystem::directory_iterator());
    };
    const ScratchFolder folder;
    const std::string path = folder.write("run.rec", "none");
    const auto before = num_open();
    EXPECT_FALSE(read_record(path));
    EXPECT_EQ(num_open(), before);
}

TEST(RecordBytesDeathTest, NothingFollowsTheEnd) {
    const ScratchFolder folder;
    const auto writer = RecordWriter::create(folder.path("run.rec"), description());
    ASSERT_TRUE(writer) << writer.error().message;
    (*writer)->finish({});
    EXPECT_DEATH((*writer)->add(Call{}), "an entry behind the record's end");
    EXPECT_DEATH((*writer)->finish({}), "a second end");
    ASSERT_TRUE((*writer)->close());
    EXPECT_DEATH(static_cast<void>((*writer)->close()), "is closed");
}

}  // namespace
}  // namespace verbatim::tests
