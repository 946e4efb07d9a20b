#include "server/heads/head_tier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>
#include <future>
#include <map>

#include "tests/server/heads/failing_folder.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::server {
namespace {

using reference::StateDtype;
using reference::StateKind;
using reference::StatePer;
using reference::StateTensors;

const StateTensors kTensors({{0, StateKind::kSsm, StatePer::kSequence, StateDtype::kFloat32, {25}},
                             {1, StateKind::kK, StatePer::kToken, StateDtype::kBf16, {1, 10}}});
constexpr int64_t kStateBytes = 100;
constexpr int64_t kTokenBytes = 20;

class HeadTiers : public testing::Test {
protected:
    [[nodiscard]] HeadTierConfig config() const {
        return {.folder = folder_.path() / "tier",
                .min_tokens = 2,
                .model = "model",
                .numerics = "exact/1",
                .tensors = kTensors,
                .vocab_size = 1000};
    }
    std::unique_ptr<HeadTier> open(const HeadTierConfig& config) {
        auto opened = HeadTier::open(config);
        EXPECT_TRUE(opened) << opened.error().message;
        return opened ? *std::move(opened) : nullptr;
    }
    [[nodiscard]] TokenSeq tokens(TokenId first, int64_t count) {
        std::vector<TokenId> ids;
        for (int64_t i = 0; i < count; ++i) ids.push_back(first + static_cast<TokenId>(i));
        return store_.store(ids);
    }
    // A head whose bytes are all `fill`.
    static HeadCopy head(TokenSeq tokens, uint8_t fill) {
        const auto size = static_cast<size_t>(kStateBytes + tokens.size() * kTokenBytes);
        return {std::move(tokens), "exact/1", Digest{1, fill}, std::vector(size, std::byte{fill})};
    }
    static HeadTier::FilePtr load(HeadTier& tier, const HeadTier::Found& found) {
        std::promise<HeadTier::FilePtr> loaded;
        tier.load(found, [&](HeadTier::FilePtr file) { loaded.set_value(std::move(file)); });
        return loaded.get_future().get();
    }
    // The only head's file.
    [[nodiscard]] std::filesystem::path file() const {
        for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier"))
            if (entry.path().extension() == ".head") return entry.path();
        return {};
    }
    // A head of 5 tokens, two longer ones that begin in its file, and one of other tokens. Returns the first file.
    std::filesystem::path put_base_and_parts(HeadTier& tier) {
        tier.put(kNone, head(tokens(0, 5), 1));
        tier.wait_until_written();
        auto base = file();
        for (const int64_t length : {9, 12}) tier.put(kNone, head(tokens(0, length), 1));
        tier.put(kNone, head(tokens(500, 5), 1));
        tier.wait_until_written();
        return base;
    }
    void change(const std::filesystem::path& path, int64_t at) {
        std::fstream bytes(path, std::ios::binary | std::ios::in | std::ios::out);
        bytes.seekg(at);
        const char was = static_cast<char>(bytes.get());
        bytes.seekp(at);
        bytes.put(static_cast<char>(was ^ 1));
    }

    tests::ScratchFolder folder_;
    TokenStore store_{1000};
    const CacheSalt kNone;
};

TEST_F(HeadTiers, GiveBackTheLongestHeadThatAPromptBeginsWith) {
    const auto tier = open(config());
    ASSERT_TRUE(tier->wants(kNone, tokens(0, 5), "exact/1"));
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->put(kNone, head(tokens(0, 9), 2));
    tier->put(kNone, head(tokens(500, 9), 3));
    EXPECT_FALSE(tier->wants(kNone, tokens(0, 5), "exact/1"));
    const auto found = tier->find(kNone, tokens(0, 20), 19);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->length, 9);
    const auto file = load(*tier, *found);
    ASSERT_TRUE(file);
    EXPECT_EQ(file->info().tokens, tokens(0, 9).to_vector());
    EXPECT_EQ(file->bytes()[0], std::byte{2});
    EXPECT_EQ(tier->find(kNone, tokens(0, 9), 8)->length, 5);
    EXPECT_FALSE(tier->find(kNone, tokens(1, 20), 19));
}

TEST_F(HeadTiers, OutliveTheProcess) {
    {
        const auto tier = open(config());
        tier->put(kNone, head(tokens(0, 5), 1));
        tier->put(CacheSalt{"salt"}, head(tokens(0, 7), 2));
    }
    const auto tier = open(config());
    EXPECT_EQ(tier->counts().num_files, 2);
    ASSERT_EQ(tier->find(kNone, tokens(0, 20), 19)->length, 5);
    ASSERT_EQ(tier->find(CacheSalt{"salt"}, tokens(0, 20), 19)->length, 7);
    EXPECT_FALSE(tier->find(CacheSalt{"other"}, tokens(0, 20), 19));
    EXPECT_EQ(load(*tier, *tier->find(kNone, tokens(0, 20), 19))->bytes()[0], std::byte{1});
}

TEST_F(HeadTiers, HaveOneProcessAtATimeThatIsNamed) {
    const auto tier = open(config());
    const auto second = HeadTier::open(config());
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message, testing::HasSubstr(std::to_string(getpid()) + " has this folder"));
}

TEST_F(HeadTiers, KeepTheMostRecentlyUsedWithinTheirBytes) {
    HeadTierConfig small = config();
    small.max_bytes = 700;  // three heads of 5 tokens and 220 bytes each
    const auto tier = open(small);
    for (TokenId first : {0, 100, 200}) tier->put(kNone, head(tokens(first, 5), 1));
    tier->wait_until_written();
    ASSERT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 6), 5)));  // used
    tier->put(kNone, head(tokens(300, 5), 1));
    tier->wait_until_written();
    EXPECT_TRUE(tier->find(kNone, tokens(0, 6), 5));
    EXPECT_FALSE(tier->find(kNone, tokens(100, 6), 5));
    EXPECT_TRUE(tier->find(kNone, tokens(300, 6), 5));
    EXPECT_EQ(tier->counts().num_files, 3);
    EXPECT_LE(tier->counts().num_bytes, 700);
}

TEST_F(HeadTiers, ADamagedFileIsNeverUsedAndLeaves) {
    const auto tier = open(config());
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    change(file(), static_cast<int64_t>(std::filesystem::file_size(file())) - 3);
    EXPECT_FALSE(load(*tier, *tier->find(kNone, tokens(0, 6), 5)));
    EXPECT_EQ(tier->counts().damaged, 1);
    EXPECT_FALSE(tier->find(kNone, tokens(0, 6), 5));
    tier->wait_until_written();
    EXPECT_TRUE(file().empty());
}

// No file can be opened: the process has as many open as it may.
TEST_F(HeadTiers, WhatTheMachineCannotReadStaysAndIsReadLater) {
    const auto tier = open(config());
    put_base_and_parts(*tier);
    const auto found = tier->find(kNone, tokens(0, 20), 19);
    ASSERT_TRUE(found);
    rlimit usual = {};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
    const rlimit none{.rlim_cur = 0, .rlim_max = usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const HeadTier::FilePtr unread = load(*tier, *found);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
    EXPECT_FALSE(unread);
    EXPECT_EQ(tier->counts().damaged, 0);
    const auto again = tier->find(kNone, tokens(0, 20), 19);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->length, 12);
    EXPECT_TRUE(load(*tier, *again));
    tier->wait_until_written();
    EXPECT_EQ(tier->counts().num_files, 4);
}

// A socket takes the place of the base: the system opens none.
TEST_F(HeadTiers, AtOpenWhatTheMachineCannotReadStaysWithItsParts) {
    std::filesystem::path base;
    {
        const auto tier = open(config());
        base = put_base_and_parts(*tier);
    }
    const auto aside = folder_.path() / "aside";
    std::filesystem::rename(base, aside);
    ASSERT_EQ(::mknod(base.c_str(), S_IFSOCK | 0600, 0), 0);
    {
        const auto tier = open(config());
        EXPECT_EQ(tier->counts().damaged, 0);
        EXPECT_EQ(tier->counts().num_files, 1) << "the parts' beginning is not known";
    }
    ASSERT_TRUE(std::filesystem::exists(base));
    std::filesystem::rename(aside, base);
    const auto tier = open(config());
    EXPECT_EQ(tier->counts().num_files, 4);
    EXPECT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
}

// The request does not wait until the bases of a damaged part are read.
TEST_F(HeadTiers, AFailedReadAnswersBeforeItsBasesAreChecked) {
    class Bases final : public HeadFolder {
    public:
        Result<reference::HeadFile> read(const std::filesystem::path& path, int64_t first_token) override {
            if (num_reads++ > 0) answered.get_future().wait();
            return HeadFolder::read(path, first_token);
        }
        std::promise<void> answered;
        int num_reads = 0;
    } folder;
    HeadTierConfig watched = config();
    watched.calls = &folder;
    const auto tier = open(watched);
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    const auto base = file();
    tier->put(kNone, head(tokens(0, 9), 1));
    tier->wait_until_written();
    change(base, static_cast<int64_t>(std::filesystem::file_size(base)) - 3);
    EXPECT_FALSE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
    folder.answered.set_value();
    tier->wait_until_written();
    EXPECT_EQ(folder.num_reads, 2);
    EXPECT_FALSE(tier->find(kNone, tokens(0, 20), 19)) << "the base is damaged, too";
}

TEST_F(HeadTiers, WhatIsWantedNoMoreIsNotRead) {
    const auto tier = open(config());
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    std::promise<HeadTier::FilePtr> loaded;
    auto reading = std::make_shared<const HeadTier::Reading>();
    std::promise<void> may_go_on;
    const auto found = *tier->find(kNone, tokens(0, 6), 5);
    tier->load(found, [&](const HeadTier::FilePtr&) { may_go_on.get_future().wait(); });  // the thread is busy
    tier->load(
        found, [&](HeadTier::FilePtr file) { loaded.set_value(std::move(file)); }, reading);
    reading.reset();
    may_go_on.set_value();
    EXPECT_FALSE(loaded.get_future().get());
    EXPECT_EQ(tier->counts().damaged, 0);
    EXPECT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 6), 5)));
}

TEST_F(HeadTiers, AtOpenDamagedHeadersLeaveAndOtherModelsStay) {
    open(config())->put(kNone, head(tokens(0, 5), 1));
    HeadTierConfig other = config();
    other.model = "another";
    {
        const auto tier = open(other);
        EXPECT_FALSE(tier->find(kNone, tokens(0, 6), 5));
        EXPECT_EQ(tier->counts().damaged, 0);
    }
    ASSERT_FALSE(file().empty());
    change(file(), 40);
    const auto tier = open(config());
    EXPECT_EQ(tier->counts().damaged, 1);
    EXPECT_TRUE(file().empty());
}

// --- parts

// The KV of each head is filled with the number of the head, which shows what a part has taken from its base.
TEST_F(HeadTiers, StoreWhatHeadsHaveInCommonOnce) {
    const auto tier = open(config());
    const auto kv_of = [](const HeadTier::FilePtr& file, int64_t token) {
        return file->bytes()[static_cast<size_t>(kStateBytes + token * kTokenBytes)];
    };
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->put(kNone, head(tokens(0, 9), 2));
    tier->put(kNone, head(tokens(0, 7), 3));
    tier->put(CacheSalt{"salt"}, head(tokens(0, 9), 4));
    tier->wait_until_written();
    const auto file = load(*tier, *tier->find(kNone, tokens(0, 20), 19));
    ASSERT_TRUE(file);
    EXPECT_EQ(file->info().length(), 9);
    EXPECT_EQ(file->bytes()[0], std::byte{2});
    EXPECT_EQ(kv_of(file, 4), std::byte{1});
    EXPECT_EQ(kv_of(file, 5), std::byte{2});
    const auto shorter = load(*tier, *tier->find(kNone, tokens(0, 8), 7));
    ASSERT_TRUE(shorter);
    EXPECT_EQ(shorter->bytes()[0], std::byte{3});
    EXPECT_EQ(kv_of(shorter, 4), std::byte{1});
    EXPECT_EQ(kv_of(shorter, 6), std::byte{2});
    const auto salted = load(*tier, *tier->find(CacheSalt{"salt"}, tokens(0, 20), 19));
    EXPECT_EQ(kv_of(salted, 0), std::byte{4});
    // States of four heads; of the first three the KV of nine tokens.
    const int64_t state_and_kv = 4 * kStateBytes + (9 + 9) * kTokenBytes;
    EXPECT_EQ(tier->counts().written_bytes, state_and_kv);
}

TEST_F(HeadTiers, PartsOutliveTheProcess) {
    {
        const auto tier = open(config());
        for (const int64_t length : {5, 9, 12}) tier->put(kNone, head(tokens(0, length), 1));
    }
    const auto tier = open(config());
    EXPECT_EQ(tier->counts().num_files, 3);
    for (const int64_t length : {5, 9, 12}) {
        const auto file = load(*tier, *tier->find(kNone, tokens(0, 20), length));
        ASSERT_TRUE(file) << length;
        EXPECT_EQ(file->info().length(), length);
    }
    tier->put(kNone, head(tokens(0, 15), 2));
    tier->wait_until_written();
    ASSERT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
    EXPECT_EQ(tier->counts().damaged, 0);
}

TEST_F(HeadTiers, WithoutItsBaseAPartIsCollected) {
    {
        const auto tier = open(config());
        const auto base = put_base_and_parts(*tier);
        std::filesystem::remove(base);
    }
    const auto tier = open(config());
    EXPECT_EQ(tier->counts().num_files, 1);
    EXPECT_FALSE(tier->find(kNone, tokens(0, 20), 19));
    int num_files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier"))
        num_files += entry.path().extension() == ".head" ? 1 : 0;
    EXPECT_EQ(num_files, 1);
}

TEST_F(HeadTiers, ADamagedBaseTakesItsPartsAlong) {
    const auto tier = open(config());
    const auto base = put_base_and_parts(*tier);
    change(base, static_cast<int64_t>(std::filesystem::file_size(base)) - 3);
    EXPECT_FALSE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
    EXPECT_EQ(tier->counts().damaged, 1);
    tier->wait_until_written();  // the base is looked at behind the answer
    EXPECT_FALSE(tier->find(kNone, tokens(0, 20), 19));
    EXPECT_TRUE(tier->find(kNone, tokens(500, 9), 8));
    tier->wait_until_written();
    EXPECT_EQ(tier->counts().num_files, 1);
    tier->put(kNone, head(tokens(0, 12), 2));
    tier->wait_until_written();
    EXPECT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
}

TEST_F(HeadTiers, ADamagedPartLeavesItsBase) {
    const auto tier = open(config());
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    const auto base = file();
    tier->put(kNone, head(tokens(0, 9), 2));
    tier->wait_until_written();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier")) {
        if (entry.path().extension() == ".head" && entry.path() != base)
            change(entry.path(), static_cast<int64_t>(std::filesystem::file_size(entry.path())) - 3);
    }
    EXPECT_FALSE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
    EXPECT_EQ(tier->find(kNone, tokens(0, 20), 19)->length, 5);
    EXPECT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 20), 19)));
}

// A base is used with its parts, and goes after them.
TEST_F(HeadTiers, WhatOthersBeginInGoesLast) {
    HeadTierConfig small = config();
    small.max_bytes = 700;
    const auto tier = open(small);
    tier->put(kNone, head(tokens(0, 5), 1));    // 220 bytes
    tier->put(kNone, head(tokens(100, 5), 1));  // 220
    tier->put(kNone, head(tokens(0, 8), 2));    // 100 + 60 + 32
    tier->wait_until_written();
    tier->put(kNone, head(tokens(200, 5), 1));
    EXPECT_FALSE(tier->find(kNone, tokens(100, 6), 5));
    ASSERT_EQ(tier->find(kNone, tokens(0, 9), 8)->length, 8);
    EXPECT_TRUE(load(*tier, *tier->find(kNone, tokens(0, 9), 8)));
    tier->put(kNone, head(tokens(300, 5), 1));
    EXPECT_FALSE(tier->find(kNone, tokens(200, 6), 5));
    tier->put(kNone, head(tokens(400, 5), 1));
    EXPECT_TRUE(tier->find(kNone, tokens(300, 6), 5));
    EXPECT_EQ(tier->find(kNone, tokens(0, 9), 8)->length, 5) << "the part goes before its base";
}

// However long a conversation is, reading its head opens few files.
TEST_F(HeadTiers, AfterManyPartsAHeadIsWrittenWhole) {
    const auto tier = open(config());
    for (int64_t length = 2; length < 42; ++length) tier->put(kNone, head(tokens(0, length), 1));
    tier->wait_until_written();
    int num_whole = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier")) {
        if (entry.path().extension() != ".head") continue;
        num_whole += reference::HeadFile::open_unchecked(entry.path())->info().base ? 0 : 1;
    }
    EXPECT_EQ(num_whole, 3);
    const auto file = load(*tier, *tier->find(kNone, tokens(0, 50), 49));
    ASSERT_TRUE(file);
    EXPECT_EQ(file->info().length(), 41);
}

TEST_F(HeadTiers, FilesOfOthersStayAndDoNotCount) {
    open(config())->put(kNone, head(tokens(0, 5), 1));
    const auto theirs = file();
    std::string content;
    {
        std::ifstream in(theirs, std::ios::binary);
        content.assign(std::istreambuf_iterator<char>(in), {});
    }
    content.replace(content.find("verbatim-head/1"), 15, "verbatim-head/9");
    std::ofstream(folder_.path() / "tier" / "later.head", std::ios::binary) << content;
    HeadTierConfig other = config();
    other.model = "another";
    other.max_bytes = 250;
    const auto tier = open(other);
    EXPECT_EQ(tier->counts().num_files, 0);
    EXPECT_EQ(tier->counts().num_bytes, 0);
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    EXPECT_EQ(tier->counts().num_files, 1);
    EXPECT_TRUE(std::filesystem::exists(theirs));
    EXPECT_TRUE(std::filesystem::exists(folder_.path() / "tier" / "later.head"));
}

TEST_F(HeadTiers, WhatCannotBeWrittenIsCountedAndNotFound) {
    const auto tier = open(config());
    std::filesystem::remove_all(folder_.path() / "tier");  // the folder vanishes
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    EXPECT_EQ(tier->counts().not_written, 1);
    EXPECT_EQ(tier->counts().num_files + tier->counts().num_bytes, 0) << "before anything else is asked of it";
    EXPECT_NE(tier->counts().problem, "");
    EXPECT_FALSE(tier->find(kNone, tokens(0, 6), 5));
    std::filesystem::create_directories(folder_.path() / "tier");  // and comes back
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    EXPECT_EQ(tier->counts().problem, "");
    EXPECT_TRUE(tier->find(kNone, tokens(0, 6), 5));
}

// But a large head alone.
TEST_F(HeadTiers, WantNoMoreThanMayWait) {
    tests::HeldWrites held;
    HeadTierConfig narrow = config();
    narrow.max_waiting_bytes = 150;
    narrow.calls = &held;
    const auto tier = open(narrow);
    EXPECT_TRUE(tier->wants(kNone, tokens(0, 5), "exact/1"));
    tier->put(kNone, head(tokens(500, 2), 1));
    EXPECT_FALSE(tier->wants(kNone, tokens(0, 5), "exact/1"));
    EXPECT_EQ(tier->counts().not_written, 1);
    held.go.set_value();
    tier->wait_until_written();
    EXPECT_TRUE(tier->wants(kNone, tokens(0, 5), "exact/1"));
    EXPECT_FALSE(tier->wants(kNone, tokens(0, 1), "exact/1"));  // too short
    EXPECT_FALSE(tier->wants(kNone, tokens(0, 2), "fast/1"));
}

TEST_F(HeadTiers, AFileUnderAnotherNameIsNotUsed) {
    const auto tier = open(config());
    tier->put(kNone, head(tokens(0, 5), 1));
    tier->wait_until_written();
    const auto first = file();
    tier->put(kNone, head(tokens(500, 9), 1));
    tier->wait_until_written();
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier")) {
        if (entry.path().extension() == ".head" && entry.path() != first)
            std::filesystem::copy_file(entry.path(), first, std::filesystem::copy_options::overwrite_existing);
    }
    EXPECT_FALSE(load(*tier, *tier->find(kNone, tokens(0, 6), 5)));
    EXPECT_EQ(tier->counts().damaged, 1);
    EXPECT_TRUE(load(*tier, *tier->find(kNone, tokens(500, 10), 9)));
}

// --- what memory has is not read

TEST_F(HeadTiers, ReadOnlyTheTokensThatAreNotResident) {
    const auto tier = open(config());
    tier->put(kNone, head(tokens(0, 700), 1));
    tier->wait_until_written();
    auto found = tier->find(kNone, tokens(0, 701), 700);
    ASSERT_TRUE(found);
    EXPECT_EQ(tier->num_read_bytes(*found), kStateBytes + 700 * kTokenBytes);
    ASSERT_TRUE(load(*tier, *found));
    const int64_t whole = tier->counts().read_bytes;
    EXPECT_EQ(whole, static_cast<int64_t>(std::filesystem::file_size(file())));
    found->first_token = 600;
    EXPECT_EQ(tier->num_read_bytes(*found), kStateBytes + 100 * kTokenBytes);
    const auto part = load(*tier, *found);
    ASSERT_TRUE(part);
    EXPECT_EQ(part->first_token(), 600);
    EXPECT_EQ(tier->counts().read_bytes - whole, whole - 512 * kTokenBytes);  // whole chunks of 256
}

// --- a folder of another process

class ReadOnlyTiers : public HeadTiers {
protected:
    [[nodiscard]] HeadTierConfig reader() const {
        HeadTierConfig reader = config();
        reader.read_only = true;
        reader.max_bytes = 0;
        return reader;
    }
    [[nodiscard]] std::map<std::string, std::string> contents() const {
        std::map<std::string, std::string> contents;
        for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier")) {
            std::ifstream in(entry.path(), std::ios::binary);
            contents[entry.path().filename()] = {std::istreambuf_iterator<char>(in), {}};
        }
        return contents;
    }
    // What it looks for is looked at, and found the next time.
    static std::optional<HeadTier::Found> find_now(HeadTier& tier, const TokenSeq& tokens) {
        static_cast<void>(tier.find({}, tokens, tokens.size()));
        tier.wait_until_written();
        return tier.find({}, tokens, tokens.size());
    }
};

TEST_F(ReadOnlyTiers, FindWhatTheWriterHasAndLeaveTheFolderAlone) {
    const auto writer = open(config());
    put_base_and_parts(*writer);
    std::ofstream(folder_.path() / "tier" / "x.head.partial") << "half";
    std::ofstream(folder_.path() / "tier" / "y.head") << "damaged";
    const auto before = contents();
    {
        const auto tier = open(reader());
        ASSERT_TRUE(tier);
        EXPECT_EQ(tier->counts().num_files, 4);
        EXPECT_EQ(tier->counts().damaged, 1);
        const auto found = tier->find(kNone, tokens(0, 20), 19);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->length, 12);
        ASSERT_TRUE(load(*tier, *found));
        EXPECT_FALSE(tier->wants(kNone, tokens(700, 20), "exact/1"));
        tier->put(kNone, head(tokens(700, 20), 1));
        tier->wait_until_written();
    }
    EXPECT_EQ(contents(), before);
    const auto second = HeadTier::open(config());
    ASSERT_FALSE(second) << "the writer has its lock";
    writer->put(kNone, head(tokens(700, 20), 1));
    writer->wait_until_written();
    EXPECT_EQ(writer->counts().written, 5);
}

TEST_F(ReadOnlyTiers, SeeFilesThatComeAndGo) {
    HeadTierConfig small = config();
    small.max_bytes = 500;
    const auto writer = open(small);
    const auto tier = open(reader());
    EXPECT_FALSE(find_now(*tier, tokens(0, 6)));
    writer->put(kNone, head(tokens(0, 5), 1));
    writer->wait_until_written();
    const auto found = find_now(*tier, tokens(0, 6));
    ASSERT_TRUE(found);
    ASSERT_TRUE(load(*tier, *found));
    for (const TokenId first : {100, 200}) writer->put(kNone, head(tokens(first, 5), 1));  // two have room
    writer->wait_until_written();
    EXPECT_FALSE(find_now(*tier, tokens(0, 6)));
    EXPECT_TRUE(find_now(*tier, tokens(200, 6)));
    EXPECT_EQ(tier->counts().num_files, 2);
    EXPECT_EQ(tier->counts().damaged, 0);
}

TEST_F(ReadOnlyTiers, AFileThatVanishesIsComputedAgain) {
    const auto writer = open(config());
    const auto base = put_base_and_parts(*writer);
    const auto tier = open(reader());
    const auto found = tier->find(kNone, tokens(0, 20), 19);
    ASSERT_TRUE(found);
    std::filesystem::remove(base);
    EXPECT_FALSE(load(*tier, *found));
    tier->wait_until_written();
    EXPECT_FALSE(tier->find(kNone, tokens(0, 20), 19)) << "neither the base nor what begins in it";
    EXPECT_TRUE(tier->find(kNone, tokens(500, 9), 8));
}

TEST_F(ReadOnlyTiers, ADamagedFileStaysAndIsReadOnce) {
    {
        const auto writer = open(config());
        writer->put(kNone, head(tokens(0, 5), 1));
    }
    change(file(), static_cast<int64_t>(std::filesystem::file_size(file())) - 3);
    const auto tier = open(reader());
    const auto found = tier->find(kNone, tokens(0, 6), 5);
    ASSERT_TRUE(found);
    EXPECT_FALSE(load(*tier, *found));
    EXPECT_EQ(tier->counts().damaged, 1);
    EXPECT_FALSE(find_now(*tier, tokens(0, 6)));
    EXPECT_FALSE(file().empty());
}

TEST_F(ReadOnlyTiers, AFolderThatIsNotThereIsAnError) {
    const auto tier = HeadTier::open(reader());
    ASSERT_FALSE(tier);
    EXPECT_THAT(tier.error().message, testing::HasSubstr("tier"));
}

TEST_F(HeadTiers, AnUnfinishedFileOfADeadProcessLeaves) {
    std::filesystem::create_directories(folder_.path() / "tier");
    std::ofstream(folder_.path() / "tier" / "x.head.partial") << "half";
    const auto tier = open(config());
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "tier" / "x.head.partial"));
    EXPECT_EQ(tier->counts().num_files, 0);
}

}  // namespace
}  // namespace verbatim::server
