// Records as files: read back as they were written, however they were cut off, and refused where they are damaged.
#include "reference/records/record_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "reference/records/comparison.h"
#include "reference/records/description_json.h"
#include "tests/reference/records/record_scene.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::HasSubstr;

std::vector<std::byte> bytes_at(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    const auto* begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
}

// What a writer makes of a record's entries.
std::vector<std::byte> written(const Record& record, bool with_end = true) {
    const ScratchFolder folder;
    const std::string path = folder.path("run.rec");
    auto writer = RecordWriter::create(path, record.run);
    CHECK(writer.has_value());
    for (const Entry& entry : record.entries) (*writer)->add(entry);
    if (with_end) (*writer)->finish(*record.end);
    CHECK((*writer)->close().has_value());
    const auto bytes = bytes_at(path);
    CHECK_EQ(static_cast<int64_t>(bytes.size()), (*writer)->file_bytes());
    return bytes;
}

TEST(RecordFile, IsReadBackAsItWasWritten) {
    const RecordScene scene;
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kHeads, DigestLevel::kLayers, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        const auto read = read_record_bytes("x.rec", written(record));
        ASSERT_TRUE(read) << read.error().message;
        EXPECT_EQ(read->entries, record.entries) << name(level);
        EXPECT_EQ(read->end, record.end);
        EXPECT_EQ(read->cut_off, "");
        EXPECT_EQ(read->run.engine.cache.pools.num_state_rows, record.run.engine.cache.pools.num_state_rows);
        EXPECT_EQ(read->run.model, "small");
    }
}

TEST(RecordFile, ATruncatedFileIsReadToItsLastFrame) {
    RecordScene scene;
    scene.more_tokens = 60;
    const Record record = scene.record(DigestLevel::kHeads);
    const std::vector<std::byte> bytes = written(record);
    size_t most = 0;
    int num_read = 0;
    for (size_t count = 0; count < bytes.size(); count += 7) {
        const auto read = read_record_bytes("x.rec", std::span(bytes).first(count));
        if (!read) continue;  // not even a head
        ++num_read;
        EXPECT_NE(read->cut_off, "") << count;
        ASSERT_LE(read->entries.size(), record.entries.size());
        EXPECT_GE(read->entries.size(), most);
        most = read->entries.size();
        for (size_t i = 0; i < most; ++i) EXPECT_EQ(read->entries[i], record.entries[i]);
    }
    EXPECT_GT(num_read, 10);
    EXPECT_GT(most, 10u);
    const auto endless = read_record_bytes("x.rec", written(record, false));
    ASSERT_TRUE(endless);
    EXPECT_EQ(endless->entries, record.entries);
    EXPECT_EQ(endless->cut_off, "x.rec has no end: the run was not over");
}

TEST(RecordFile, EveryFlippedBitIsDetected) {
    const RecordScene scene;
    const std::vector<std::byte> bytes = written(scene.record(DigestLevel::kHeads));
    for (size_t i = 0; i < bytes.size(); i += 13) {
        std::vector<std::byte> damaged = bytes;
        damaged[i] ^= static_cast<std::byte>(1 << i % 8);
        const auto read = read_record_bytes("x.rec", damaged);
        EXPECT_TRUE(!read || !read->cut_off.empty()) << i;  // a length that grew looks like an end
    }
}

TEST(RecordFile, AnotherFormatIsRefused) {
    const auto error_of = [](std::string_view text) {
        return read_record_bytes("x.rec", std::as_bytes(std::span(text))).error().message;
    };
    EXPECT_THAT(error_of(""), HasSubstr("is no record of a run"));
    EXPECT_THAT(error_of("VERBATIM TRACE.."), HasSubstr("is no record of a run"));
    EXPECT_THAT(error_of("VERBATIM RECORD\n"), HasSubstr("has no head"));
    EXPECT_THAT(error_of("VERBATIM RECORD\nxxx"), HasSubstr("cut off in its head"));
    EXPECT_THAT(read_record("/nowhere/x.rec").error().message, HasSubstr("/nowhere/x.rec: cannot be read"));
    EXPECT_FALSE(RecordWriter::create("/nowhere/x.rec", {}));
}

// A run that fails or is killed leaves the good record before it, and what it recorded itself.
TEST(RecordFile, WhileItIsWrittenItIsThePartialFile) {
    RecordScene scene;
    scene.more_tokens = 60;
    const Record record = scene.record(DigestLevel::kHeads);
    const ScratchFolder folder;
    const std::string path = folder.write("run.rec", "former");
    {
        const auto writer = RecordWriter::create(path, record.run);
        ASSERT_TRUE(writer) << writer.error().message;
        for (const Entry& entry : record.entries) (*writer)->add(entry);
        const auto seen = read_record(path + ".partial");
        ASSERT_TRUE(seen) << seen.error().message;
        EXPECT_GT(seen->entries.size(), record.entries.size() / 2) << "all but the last 16 steps";
        EXPECT_NE(seen->cut_off, "");
        const auto second = RecordWriter::create(path, record.run);
        ASSERT_FALSE(second);
        EXPECT_THAT(second.error().message, HasSubstr("run.rec: is being written"));
    }
    EXPECT_EQ(bytes_at(path).size(), 6U) << "the run was not over";
    const auto left = read_record(path + ".partial");
    ASSERT_TRUE(left) << left.error().message;
    EXPECT_EQ(left->entries, record.entries);

    const auto next = RecordWriter::create_file(path);
    ASSERT_TRUE(next);
    EXPECT_EQ(next->moved(), path + ".partial.1");
    EXPECT_TRUE(read_record(path + ".partial.1"));
}

TEST(RecordFile, TheFirstFailedWriteIsReportedAndEndsTheRecord) {
    RecordScene scene;
    scene.more_tokens = 200;
    const Record record = scene.record(DigestLevel::kOps);
    const ScratchFolder folder;
    const std::string path = folder.write("run.rec", "former");
    const auto writer = RecordWriter::create(path, record.run);
    ASSERT_TRUE(writer) << writer.error().message;
    int num_said = 0;
    (*writer)->on_failure([&](const Error& failure) {
        ++num_said;
        EXPECT_THAT(failure.message, HasSubstr("run.rec: cannot be written: File too large"));
        EXPECT_THAT(failure.message, HasSubstr("run.rec.partial"));
    });
    // A limit on the size of files stands for a full disk.
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const auto limit = static_cast<rlim_t>(written(record).size() / 2);
    const rlimit small = {limit, before.rlim_max};
    const auto former = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    for (const Entry& entry : record.entries) (*writer)->add(entry);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, former);
    EXPECT_EQ(num_said, 1);
    EXPECT_TRUE((*writer)->failed());
    EXPECT_LE((*writer)->file_bytes(), static_cast<int64_t>(limit));
    (*writer)->finish(*record.end);
    const Status closed = (*writer)->close();
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error().kind, ErrorKind::kMachine);
    EXPECT_EQ(num_said, 1);
    EXPECT_EQ(bytes_at(path).size(), 6U);
    const auto left = read_record(path + ".partial");
    ASSERT_TRUE(left) << left.error().message;
    EXPECT_GT(left->entries.size(), 0U);
    EXPECT_LT(left->entries.size(), record.entries.size());
}

TEST(RecordFile, ErrorsOfOtherVersionsNameTheProblem) {
    RunDescription run;
    run.vocab_size = 9;
    run.engine.cache.pools.num_blocks = 4;
    run.engine.cache.pools.num_state_rows = 4;
    const std::string head = write_head(run);
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = head;
        changed.replace(changed.find(from), from.size(), to);
        const auto read = read_head(changed);
        return read ? std::string("fine") : read.error().message;
    };
    ASSERT_TRUE(read_head(head)) << read_head(head).error().message;
    EXPECT_EQ(with("\"format\": 1", "\"format\": 2"), "format version 2, this program reads 1");
    EXPECT_THAT(with("\"keep_turn_heads\"", "\"keep_nothing\""), HasSubstr("run.engine.cache.\"keep_nothing\""));
    EXPECT_THAT(with("\"vocab_size\": 9", "\"vocab_size\": 0"), HasSubstr("vocab_size is 0"));
    EXPECT_THAT(with("\"max_num_sequences\": 256", "\"max_num_sequences\": 2147483647"),
                HasSubstr("max_num_sequences: 2147483647 is not <= 524288"));
    EXPECT_THAT(with("\"num_threads\": 1", "\"num_threads\": \"x\""), HasSubstr("run.num_threads is"));
    EXPECT_EQ(with("  \"num_threads\": 1,\n", ""), "fine");  // it has its default
    EXPECT_THAT(with("\"admission\": 0", "\"admission\": 2"), HasSubstr("admission is 2, wanted one of its values"));
}

TEST(RecordFile, AHeadLacksNothing) {
    RunDescription run;
    run.vocab_size = 1;
    run.engine.cache.pools.num_blocks = 4;
    run.engine.cache.pools.num_state_rows = 4;
    nlohmann::json head = nlohmann::json::parse(write_head(run));
    ASSERT_TRUE(read_head(head.dump()));
    for (const char* const key : {"format", "run", "shapes"}) {
        nlohmann::json without = head;
        without.erase(key);
        const auto read = read_head(without.dump());
        ASSERT_FALSE(read);
        EXPECT_EQ(read.error().message, "the head lacks format, run or shapes") << key;
    }
    for (const char* const text : {"[]", "7", R"({"format": 1, "run": {}, "shapes": []})"}) {
        const auto read = read_head(text);
        ASSERT_FALSE(read);
        EXPECT_EQ(read.error().message, "the head lacks format, run or shapes") << text;
    }
    for (const char* const key : {"call", "step", "told", "end"}) {
        nlohmann::json changed = head;
        changed["shapes"][key] = 5;
        EXPECT_EQ(read_head(changed.dump()).error().message, fmt::format("shapes.{} is not there", key));
        changed["shapes"].erase(key);
        EXPECT_EQ(read_head(changed.dump()).error().message, fmt::format("shapes.{} is not there", key));
    }
}

TEST(RecordFile, ADescriptionIsReadBackAsItWasWritten) {
    RunDescription run;
    run.vocab_size = 9;
    run.model_seed = ~uint64_t{0};
    run.machine = "Zürich \"1\"";
    run.model_digest = {5, ~uint64_t{0} - 1};
    run.digests = DigestLevel::kOps;
    run.engine.cache.pools.num_blocks = 4;
    run.engine.cache.pools.num_state_rows = 4;
    run.engine.cache.lookup = LookupMode::kPrefix;
    run.engine.cache.has_state = !run.engine.cache.has_state;
    run.engine.digest_heads = !run.engine.digest_heads;
    run.engine.token_template.end_of_turn = 3;
    const std::string head = write_head(run);
    EXPECT_THAT(head, HasSubstr("Zürich"));
    const auto read = read_head(head);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(write_head(read->run), head);
    EXPECT_EQ(read->run.model_seed, ~uint64_t{0});
    EXPECT_EQ(read->run.engine.token_template.end_of_turn, 3);
    EXPECT_EQ(read->run.engine.cache.lookup, LookupMode::kPrefix);
}

// Runs that were recorded before there was another order than that of arrival.
TEST(RecordFile, TheDefaultAdmissionOrderIsArrival) {
    RunDescription run;
    run.vocab_size = 9;
    run.engine.cache.pools.num_blocks = 4;
    run.engine.cache.pools.num_state_rows = 4;
    run.engine.scheduler.admission = AdmissionOrder::kFewestTokens;
    run.engine.scheduler.max_wait_steps = 7;
    std::string head = write_head(run);
    const auto told = read_head(head);
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_EQ(told->run.engine.scheduler.admission, AdmissionOrder::kFewestTokens);
    EXPECT_EQ(told->run.engine.scheduler.max_wait_steps, 7);
    const size_t begin = head.find(",\n    \"admission\"");
    ASSERT_NE(begin, std::string::npos) << head;
    head.erase(begin, head.find('}', begin) - begin);
    const auto older = read_head(head);
    ASSERT_TRUE(older) << older.error().message;
    EXPECT_EQ(older->run.engine.scheduler.admission, AdmissionOrder::kArrival);
}

}  // namespace
}  // namespace verbatim::tests
