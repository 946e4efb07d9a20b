// Which files of a tier go with a conversation, and which stay.
#include "server/heads/head_owners.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <random>

#include "files/mapped_file.h"
#include "server/heads/head_tier.h"
#include "tests/server/heads/failing_folder.h"
#include "tests/support/engine_scene.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using server::HeadOwners;
using server::HeadTier;
using testing::ElementsAre;

const std::string kHead(32, '1');
const std::string kOther(32, '2');

TEST(HeadOwners, AreReadAgainFromTheLinesOfTheirChanges) {
    const std::string a = HeadOwners::owner_of({{}, "a"});
    const std::string b = HeadOwners::owner_of({{}, "b"});
    EXPECT_NE(a, HeadOwners::owner_of({CacheSalt{"x"}, "a"}));
    HeadOwners owners;
    std::string lines = owners.add(kHead, a);
    EXPECT_EQ(owners.add(kHead, a), "");
    lines += owners.add(kHead, b) + owners.add(kOther, b) + owners.remove(kHead, a);
    EXPECT_EQ(owners.remove(kHead, a), "");
    EXPECT_THAT(HeadOwners::parse(lines).names_of(b), ElementsAre(kHead, kOther));
    EXPECT_TRUE(HeadOwners::parse(lines).names_of(a).empty());
    lines += owners.erase(kOther);
    EXPECT_EQ(owners.erase(kOther), "");
    EXPECT_THAT(HeadOwners::parse(lines).names(), ElementsAre(kHead));
    EXPECT_EQ(HeadOwners::parse(lines).lines(), owners.lines());
}

TEST(HeadOwners, AnIncompleteLineChangesNothing) {
    HeadOwners owners;
    const std::string first = owners.add(kHead, HeadOwners::owner_of({{}, "a"}));
    for (const std::string& line : {owners.add(kOther, HeadOwners::owner_of({{}, "b"})),
                                    owners.remove(kHead, HeadOwners::owner_of({{}, "a"})), "x" + kHead + "\n"}) {
        for (size_t length = 0; length + 1 < line.size(); ++length) {
            EXPECT_EQ(HeadOwners::parse(first + line.substr(0, length)).lines(), first) << line;
            EXPECT_EQ(HeadOwners::parse(first + line.substr(0, length) + "\n" + first).lines(), first) << line;
        }
    }
}

// Conversations write heads of texts that have their first tokens in common, edit, fork and go.
class OwnedHeads : public testing::Test {
protected:
    static constexpr int kTexts = 4;
    struct Text {
        int kind = 0;
        int64_t length = 0;
        friend auto operator<=>(const Text&, const Text&) = default;
    };
    [[nodiscard]] server::HeadTierConfig config() {
        return {.folder = folder_.path() / "tier",
                .min_tokens = 2,
                .model = "model",
                .numerics = "hash/1",
                .tensors = kCells,
                .vocab_size = 2048,
                .calls = &calls_};
    }
    void open() { open(config()); }
    void open(const server::HeadTierConfig& config) {
        tier_.reset();
        auto opened = HeadTier::open(config);
        ASSERT_TRUE(opened) << opened.error().message;
        tier_ = *std::move(opened);
    }
    [[nodiscard]] TokenSeq tokens(const Text& text) {
        std::vector<TokenId> ids;
        for (int i = 0; i < text.length; ++i) ids.push_back(i < 8 ? i : 100 * (text.kind + 1) + i);
        return store_.store(ids);
    }
    // Every token has bytes that say which one it is, so that a part whose beginning is another one's is seen.
    [[nodiscard]] HeadCopy head(const Text& text) {
        HeadCopy head{tokens(text), "hash/1", {}, {}};
        head.bytes.assign(24, static_cast<std::byte>(text.length));
        for (const TokenId token : head.tokens.to_vector())
            head.bytes.insert(head.bytes.end(), 24, static_cast<std::byte>(token));
        return head;
    }
    static ConversationKey key(int conversation) { return {{}, "c" + std::to_string(conversation)}; }
    void put(const Text& text, const std::vector<ConversationKey>& keys) {
        std::vector<std::string> owners;
        for (const ConversationKey& key : keys) owners.push_back(HeadOwners::owner_of(key));
        tier_->own({}, tokens(text), owners);
        if (tier_->wants({}, tokens(text), "hash/1")) tier_->put({}, head(text), owners);
    }
    [[nodiscard]] std::string owners_file() const { return read_text_file(owners_path_, 1 << 30).value_or(""); }
    [[nodiscard]] int64_t num_files() {
        tier_->wait_until_written();
        const std::filesystem::directory_iterator files(folder_.path() / "tier");
        return std::ranges::count_if(files, [](const auto& file) { return file.path().extension() == ".head"; });
    }
    // The files are these, and each of them gives its head.
    void expect_heads(const std::set<Text>& texts) {
        EXPECT_EQ(num_files(), std::ssize(texts));
        for (const Text& text : texts) {
            const auto found = tier_->find({}, tokens(text), text.length);
            ASSERT_TRUE(found && found->length == text.length) << text.kind << ' ' << text.length;
            std::promise<HeadTier::FilePtr> loaded;
            tier_->load(*found, [&](HeadTier::FilePtr file) { loaded.set_value(std::move(file)); });
            const auto file = loaded.get_future().get();
            ASSERT_NE(file, nullptr);
            EXPECT_TRUE(std::ranges::equal(file->bytes(), head(text).bytes));
        }
        EXPECT_EQ(tier_->counts().damaged, 0);
    }

    ScratchFolder folder_;
    std::filesystem::path owners_path_ = folder_.path() / "tier" / "owners";
    FailingFolder calls_;
    TokenStore store_{2048};
    std::unique_ptr<HeadTier> tier_;
};

// A chain of parts, of which every second one is of another conversation.
TEST_F(OwnedHeads, PartsOfOthersAreWrittenWholeBeforeTheirBaseGoes) {
    open();
    for (int64_t length = 10; length < 16; ++length) put({0, length}, {key(static_cast<int>(length % 2))});
    expect_heads({{0, 10}, {0, 11}, {0, 12}, {0, 13}, {0, 14}, {0, 15}});
    tier_->forget(key(0), tokens({0, 14}));
    expect_heads({{0, 11}, {0, 13}, {0, 15}});
    open();
    expect_heads({{0, 11}, {0, 13}, {0, 15}});
    tier_->forget(key(1), tokens({0, 15}));
    expect_heads({});
    EXPECT_EQ(tier_->counts().num_bytes, 0);
}

TEST_F(OwnedHeads, WhatCannotBeWrittenWholeGoesWithItsBase) {
    for (const int failing : {0, 1}) {  // the read, the write
        open();
        put({0, 10}, {key(0)});
        put({0, 12}, {key(1)});
        tier_->wait_until_written();
        calls_.failing_call = calls_.num_calls + failing;
        tier_->forget(key(0), tokens({0, 10}));
        tier_->wait_until_written();
        EXPECT_FALSE(tier_->find({}, tokens({0, 20}), 19));
        calls_.failing_call = -1;
        expect_heads({});
    }
}

TEST_F(OwnedHeads, AHeadWhoseOwnerCannotBeNotedIsNotWritten) {
    open();
    calls_.failing_call = calls_.num_calls.load();
    put({0, 10}, {key(0)});
    tier_->wait_until_written();
    EXPECT_EQ(tier_->counts().not_written, 1);
    EXPECT_FALSE(tier_->find({}, tokens({0, 20}), 19));
    expect_heads({});
}

TEST_F(OwnedHeads, OfAnotherModelKeepTheirOwners) {
    open();
    put({0, 10}, {key(0)});
    server::HeadTierConfig other = config();
    other.model = "other";
    open(other);
    put({0, 10}, {key(0)});
    EXPECT_EQ(num_files(), 2);
    tier_->forget(key(0), tokens({0, 10}));
    EXPECT_EQ(num_files(), 1) << "the other model's";
    open();
    expect_heads({{0, 10}});
    tier_->forget(key(0), {});
    EXPECT_EQ(num_files(), 0);
}

TEST_F(OwnedHeads, WhatCannotBeRemovedIsDeletedByALaterProcess) {
    open();
    put({0, 10}, {key(0)});
    put({0, 12}, {key(0), key(1)});
    tier_->wait_until_written();
    calls_.keeps_files = true;  // as if the process was killed before
    tier_->forget(key(0), tokens({0, 10}));
    open();
    calls_.keeps_files = false;
    EXPECT_EQ(num_files(), 2);
    tier_->forget(key(0), {});
    expect_heads({{0, 12}});
}

TEST_F(OwnedHeads, AFullDiskDoesNotKeepTheFolderFromBeingOpened) {
    open();
    put({0, 10}, {key(0)});
    tier_.reset();
    std::ofstream(owners_path_, std::ios::app) << "+torn";
    std::filesystem::create_directories(owners_path_.string() + ".partial/x");  // nothing can be written there
    open();
    EXPECT_THAT(owners_file(), testing::EndsWith("+torn"));
    put({1, 10}, {key(1)});
    open();
    tier_->forget(key(1), {});
    expect_heads({{0, 10}});
    tier_->forget(key(0), {});
    expect_heads({});
}

TEST_F(OwnedHeads, AnOwnerThatCouldNotBeNotedIsNotedLater) {
    open();
    put({0, 10}, {key(0)});
    tier_->wait_until_written();
    calls_.failing_call = calls_.num_calls.load();
    put({0, 10}, {key(1)});
    tier_->wait_until_written();
    EXPECT_EQ(tier_->counts().not_written, 1);
    EXPECT_NE(tier_->counts().problem, "");
    put({1, 10}, {key(2)});
    open();
    tier_->forget(key(0), {});
    expect_heads({{0, 10}, {1, 10}});
}

TEST_F(OwnedHeads, OfConversationsThatAreGoneLeaveTheFile) {
    constexpr int kOwners = 9000;
    server::HeadTierConfig narrow = config();
    narrow.max_bytes = 400;  // one head
    open(narrow);
    for (int kind = 0; kind < 6; ++kind) {
        std::vector<std::string> owners;
        for (int i = 0; i < kOwners; ++i) owners.push_back(fmt::format("{:032x}", kind * kOwners + i));
        HeadCopy alone = head({kind, 10});  // no token of it is another one's
        alone.tokens = store_.store(iota_tokens(100 * (kind + 1), 10));
        tier_->put({}, std::move(alone), owners);
        tier_->wait_until_written();
    }
    EXPECT_EQ(num_files(), 1);
    EXPECT_LT(owners_file().size(), 1'000'000);
    EXPECT_THAT(owners_file(), testing::Not(testing::HasSubstr(fmt::format(" {:032x}", 7))));
    open();
    EXPECT_EQ(num_files(), 1);
    EXPECT_THAT(owners_file(), testing::HasSubstr(fmt::format(" {:032x}", 5 * kOwners)));
}

TEST_F(OwnedHeads, AreNotNotedWhereNothingOutlivesTheProcess) {
    server::HeadTierConfig passing = config();
    passing.notes_owners = false;
    open(passing);
    put({0, 10}, {key(0)});
    put({1, 10}, {key(1)});
    tier_->forget(key(0), {});
    expect_heads({{1, 10}});
    EXPECT_FALSE(std::filesystem::exists(owners_path_));
}

TEST_F(OwnedHeads, WhatBelongsToNoneGoesWithAConversationThatBeginsWithIt) {
    open();
    put({0, 10}, {});
    put({0, 12}, {});
    put({1, 12}, {});
    put({0, 14}, {key(1)});
    tier_->forget(key(0), tokens({0, 11}));
    expect_heads({{0, 12}, {1, 12}, {0, 14}});
}

TEST_F(OwnedHeads, GoWithTheLastOfTheirConversations) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
        std::filesystem::remove_all(folder_.path() / "tier");
        open();
        std::mt19937_64 random(seed);
        std::map<Text, std::set<int>> owners;
        std::map<int, Text> committed;  // by conversation
        int num_conversations = 0;
        for (int i = 0; i < 50; ++i) {
            const int conversation = static_cast<int>(random() % 5);
            const uint64_t deed = random() % 16;
            if (deed < 10) {
                const Text text{static_cast<int>(random() % kTexts), 9 + static_cast<int64_t>(random() % 12)};
                put(text, {key(conversation)});
                owners[text].insert(conversation);
                committed[conversation] = text;
            } else if (deed < 12 && committed.contains(conversation)) {
                const int fork = 100 + num_conversations++;
                const Text& text = committed.at(conversation);
                tier_->share(key(conversation), key(fork), tokens(text));
                committed[fork] = text;
                for (auto& [kept, of] : owners) {
                    const bool is_beginning = tokens(text).slice(0, std::min(kept.length, text.length)) == tokens(kept);
                    if (is_beginning && of.contains(conversation)) of.insert(fork);
                }
            } else if (deed < 15 && !committed.empty()) {
                auto gone = committed.begin();
                std::advance(gone, random() % committed.size());
                tier_->forget(key(gone->first), tokens(gone->second));
                for (auto& [kept, of] : owners) of.erase(gone->first);
                std::erase_if(owners, [](const auto& head) { return head.second.empty(); });
                committed.erase(gone);
            } else {
                open();
            }
        }
        std::set<Text> texts;
        for (const auto& [text, of] : owners) texts.insert(text);
        expect_heads(texts);
        if (HasFailure()) FAIL() << "seed " << seed;
    }
}

}  // namespace
}  // namespace verbatim::tests
