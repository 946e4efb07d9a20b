#include "reference/loader/head_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/check.h"
#include "reference/head_digest.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

using testing::HasSubstr;

// A Mamba layer and an attention layer, five tokens.
const StateTensors kTensors({{0, StateKind::kSsm, StatePer::kSequence, StateDtype::kFloat32, {2, 3}},
                             {0, StateKind::kConv, StatePer::kSequence, StateDtype::kFloat32, {3, 4}},
                             {1, StateKind::kK, StatePer::kToken, StateDtype::kBf16, {1, 3}},
                             {1, StateKind::kV, StatePer::kToken, StateDtype::kBf16, {1, 3}}});
const std::vector<TokenId> kTokens = {5, 1, 4, 1, 3};

class HeadFiles : public testing::Test {
protected:
    HeadFiles() {
        std::mt19937 random(1);
        for (std::byte& byte : bytes_) byte = std::byte{static_cast<uint8_t>(random())};
        info_ = {"0123456789abcdef0123456789abcdef", "exact/1", digest_of_head(kTensors, 5, bytes_), "salt", kTokens};
        const auto written = write_head_file(path_, info_, kTensors, bytes_);
        CHECK(written.has_value(), "{}", written.error().message);
        std::ifstream in(path_, std::ios::binary);
        content_.assign(std::istreambuf_iterator<char>(in), {});
    }
    [[nodiscard]] Result<HeadFile> open_with(const std::string& content) const {
        const auto changed = folder_.path() / "changed.head";
        std::ofstream(changed, std::ios::binary) << content;
        return HeadFile::open(changed);
    }

    tests::ScratchFolder folder_;
    std::filesystem::path path_ = folder_.path() / "a.head";
    std::vector<std::byte> bytes_ = std::vector<std::byte>(static_cast<size_t>(head_num_bytes(kTensors, 5)));
    HeadInfo info_;
    std::string content_;
};

TEST_F(HeadFiles, GiveBackWhatWasWritten) {
    const auto file = HeadFile::open(path_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->info().tokens, kTokens);
    EXPECT_EQ(file->info().model, info_.model);
    EXPECT_EQ(file->info().numerics, "exact/1");
    EXPECT_EQ(file->info().digest, info_.digest);
    EXPECT_EQ(file->info().salt, "salt");
    EXPECT_TRUE(std::ranges::equal(file->tensors(), kTensors));
    EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes_));
    EXPECT_TRUE(file->check_digest());
    EXPECT_TRUE(file->check_model(info_.model, kTensors));
}

TEST_F(HeadFiles, AChangedBitAnywhereIsAnError) {
    for (size_t at = 0; at < content_.size(); ++at) {
        std::string changed = content_;
        changed[at] = static_cast<char>(changed[at] ^ (1 << at % 8));
        ASSERT_FALSE(open_with(changed)) << "byte " << at << " of " << content_.size();
    }
}

TEST_F(HeadFiles, AFileThatEndsAnywhereElseIsAnError) {
    for (size_t size = 0; size < content_.size(); ++size)
        ASSERT_FALSE(open_with(content_.substr(0, size))) << size << " of " << content_.size();
    ASSERT_FALSE(open_with(content_ + '\0'));
    ASSERT_TRUE(open_with(content_));
}

TEST_F(HeadFiles, AnotherFormatIsNamed) {
    std::string other = content_;
    other.replace(other.find("verbatim-head/1"), 15, "verbatim-head/2");
    const auto file = open_with(other);
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("format \"verbatim-head/2\" is not verbatim-head/1"));
}

TEST_F(HeadFiles, AnotherModelIsRefusedWithBothDigests) {
    const auto file = HeadFile::open(path_);
    const Status other = file->check_model("ffff", kTensors);
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message, HasSubstr(info_.model));
    EXPECT_THAT(other.error().message, HasSubstr("ffff"));
    EXPECT_FALSE(file->check_model(info_.model, StateTensors({kTensors[0]})));
}

// --- parts

// Heads of 5, 8, 6 and 3 tokens of one text, each but the first one a part: of 5 tokens' file the second one, the
// third one begins with 2 tokens of that, and the fourth one adds no token.
class HeadParts : public HeadFiles {
protected:
    HeadParts() {
        std::mt19937 random(2);
        for (std::byte& byte : longest_) byte = std::byte{static_cast<uint8_t>(random())};
        sums_["b"] = write("b", 5, {});
        sums_["c"] = write("c", 8, HeadBase{"b", 5, sums_["b"]});
        sums_["d"] = write("d", 6, HeadBase{"c", 2, sums_["c"]});
        sums_["e"] = write("e", 3, HeadBase{"d", 3, sums_["d"]});
    }
    // The first tokens' KV of one head, and states that are another one's for each length.
    [[nodiscard]] std::vector<std::byte> bytes_of(int64_t length) const {
        std::vector<std::byte> bytes;
        std::span<const std::byte> left = longest_;
        for (const StateTensor& tensor : kTensors) {
            const auto whole = left.first(static_cast<size_t>(part_num_bytes(tensor, 8)));
            const auto part = whole.first(static_cast<size_t>(part_num_bytes(tensor, length)));
            bytes.insert(bytes.end(), part.begin(), part.end());
            if (tensor.per == StatePer::kSequence) bytes.back() ^= std::byte{static_cast<uint8_t>(length)};
            left = left.subspan(whole.size());
        }
        return bytes;
    }
    [[nodiscard]] std::filesystem::path path(const std::string& name) const {
        return folder_.path() / (name + ".head");
    }
    std::string write(const std::string& name, int64_t length, std::optional<HeadBase> base) {
        const std::vector<std::byte> bytes = bytes_of(length);
        const HeadInfo info{.model = info_.model,
                            .numerics = "exact/1",
                            .digest = digest_of_head(kTensors, length, bytes),
                            .salt = {},
                            .tokens = {kText.begin(), kText.begin() + length},
                            .base = base};
        const auto own = without_base(kTensors, length, base ? base->length : 0, bytes);
        const auto written = write_head_file(path(name), info, kTensors, own);
        CHECK(written.has_value(), "{}", written.error().message);
        return *written;
    }
    static std::string content_of(const std::filesystem::path& path) {
        std::ifstream in(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    static void put(const std::filesystem::path& path, const std::string& content) {
        std::ofstream(path, std::ios::binary) << content;
    }

    const std::vector<TokenId> kText = {5, 1, 4, 1, 3, 2, 2, 9};
    std::vector<std::byte> longest_ = std::vector<std::byte>(static_cast<size_t>(head_num_bytes(kTensors, 8)));
    std::map<std::string, std::string> sums_;
};

TEST_F(HeadParts, AreReadAsTheWholeHead) {
    for (const auto& [name, length] : {std::pair{"b", 5}, {"c", 8}, {"d", 6}, {"e", 3}}) {
        const auto file = HeadFile::open(path(name));
        ASSERT_TRUE(file) << file.error().message;
        EXPECT_EQ(file->info().length(), length) << name;
        EXPECT_TRUE(std::ranges::equal(file->bytes(), bytes_of(length))) << name;
        EXPECT_TRUE(file->check_digest()) << name;
    }
    EXPECT_EQ(HeadFile::open(path("c"))->info().own_length(), 3);
    EXPECT_EQ(HeadFile::open_unchecked(path("c"))->bytes().size(), static_cast<size_t>(head_num_bytes(kTensors, 3)));
}

// What is not taken of a base, its states among them, may be anything.
TEST_F(HeadParts, AChangedBitInAnyFileOfTheChainIsNeverUsed) {
    const std::vector<std::byte> wanted = bytes_of(6);
    for (const std::string changed : {"b", "c", "d"}) {
        const std::string content = content_of(path(changed));
        size_t num_refused = 0;
        for (size_t at = 0; at < content.size(); ++at) {
            std::string other = content;
            other[at] = static_cast<char>(other[at] ^ (1 << at % 8));
            put(path(changed), other);
            const auto file = HeadFile::open(path("d"));
            num_refused += file ? 0 : 1;
            ASSERT_TRUE(!file || std::ranges::equal(file->bytes(), wanted)) << changed << ", byte " << at;
        }
        // Unread are states, and KV of the second file's three tokens, which the third one has not begun with.
        const auto num_unread =
            static_cast<size_t>(kTensors.num_bytes(StatePer::kSequence) + 3 * kTensors.num_bytes(StatePer::kToken));
        EXPECT_GE(num_refused, content.size() - num_unread);
        for (size_t size = 0; size < content.size(); size += 7) {
            put(path(changed), content.substr(0, size));
            ASSERT_FALSE(HeadFile::open(path("d"))) << changed << ", " << size << " of " << content.size();
        }
        put(path(changed), content);
        ASSERT_TRUE(HeadFile::open(path("d")));
    }
}

TEST_F(HeadParts, ABaseThatIsGoneOrAnotherFileIsAnError) {
    const std::string base = content_of(path("b"));
    std::filesystem::remove(path("b"));
    EXPECT_FALSE(HeadFile::open(path("c")));
    longest_[longest_.size() - 1] ^= std::byte{1};  // behind the five tokens
    EXPECT_EQ(write("b", 5, {}), sums_["b"]);
    EXPECT_TRUE(HeadFile::open(path("c")));
    longest_[0] ^= std::byte{1};
    EXPECT_NE(write("b", 5, {}), sums_["b"]);
    const auto file = HeadFile::open(path("c"));
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("b.head: is not the file that a part of a head begins in"));
    put(path("b"), base);
    EXPECT_TRUE(HeadFile::open(path("c")));
}

TEST_F(HeadParts, APartAloneIsNoHead) {
    const auto file = HeadFile::parse(content_of(path("c")), "the body");
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("the body: a part of a head, whose beginning is in b.head"));
}

TEST_F(HeadParts, ABaseIsAFileOfTheSameFolder) {
    for (const char* name : {"", "../b", "/etc/passwd", "b.head", "."}) {
        write("x", 8, HeadBase{name, 5, sums_["b"]});
        const auto file = HeadFile::open(path("x"));
        ASSERT_FALSE(file) << name;
        EXPECT_THAT(file.error().message, HasSubstr("x.head: base "));
    }
}

TEST_F(HeadParts, AChainThatIsTooLongIsAnError) {
    std::string sum = sums_["b"];
    std::string last = "b";
    for (int i = 0; i < HeadFile::kMaxBases + 1; ++i) {
        ASSERT_TRUE(HeadFile::open(path(last))) << i;
        const std::string name = "n" + std::to_string(i);
        sum = write(name, 5, HeadBase{last, 5, sum});
        last = name;
    }
    const auto file = HeadFile::open(path(last));
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("more than 64 bases"));
}

// --- a head of which a part is read

// 600 tokens in a file, and 900 in one that begins in it with 500: three chunks, and two.
class HeadChunks : public HeadParts {
protected:
    HeadChunks() {
        for (int i = 0; i < 900; ++i) text_.push_back(i % 50);
        std::mt19937 random(3);
        for (std::byte& byte : all_) byte = std::byte{static_cast<uint8_t>(random())};
        sum_ = write_long("long", 600, {});
        write_long("longer", 900, HeadBase{"long", 500, sum_});
    }
    [[nodiscard]] std::vector<std::byte> long_bytes(int64_t length) const {
        std::vector<std::byte> bytes;
        std::span<const std::byte> left = all_;
        for (const StateTensor& tensor : kTensors) {
            const auto whole = left.first(static_cast<size_t>(part_num_bytes(tensor, 900)));
            const auto part = whole.first(static_cast<size_t>(part_num_bytes(tensor, length)));
            bytes.insert(bytes.end(), part.begin(), part.end());
            left = left.subspan(whole.size());
        }
        return bytes;
    }
    std::string write_long(const std::string& name, int64_t length, std::optional<HeadBase> base) {
        const std::vector<std::byte> bytes = long_bytes(length);
        const HeadInfo info{.model = info_.model,
                            .numerics = "exact/1",
                            .digest = digest_of_head(kTensors, length, bytes),
                            .salt = {},
                            .tokens = {text_.begin(), text_.begin() + length},
                            .base = base};
        const auto own = without_base(kTensors, length, base ? base->length : 0, bytes);
        const auto written = write_head_file(path(name), info, kTensors, own);
        CHECK(written.has_value(), "{}", written.error().message);
        return *written;
    }
    // All but KV of the tokens before `first`.
    void expect_from(const HeadFile& file, int64_t length, int64_t first) const {
        const std::vector<std::byte> wanted = long_bytes(length);
        size_t at = 0;
        ASSERT_EQ(file.bytes().size(), wanted.size());
        for (const StateTensor& tensor : kTensors) {
            const auto size = static_cast<size_t>(part_num_bytes(tensor, length));
            const size_t holes = tensor.per == StatePer::kToken ? static_cast<size_t>(first * tensor.num_bytes()) : 0;
            EXPECT_TRUE(std::ranges::equal(file.bytes().subspan(at + holes, size - holes),
                                           std::span(wanted).subspan(at + holes, size - holes)))
                << tensor.layer << " from " << first;
            at += size;
        }
    }

    std::vector<TokenId> text_;
    std::vector<std::byte> all_ = std::vector<std::byte>(static_cast<size_t>(head_num_bytes(kTensors, 900)));
    std::string sum_;
};

TEST_F(HeadChunks, AreReadFromATokenOn) {
    const auto read_bytes = [&](const std::string& name, int64_t length, int64_t first) {
        const auto file = HeadFile::open(path(name), first);
        EXPECT_TRUE(file) << file.error().message;
        EXPECT_EQ(file->first_token(), std::min(first, length));
        expect_from(*file, length, std::min(first, length));
        return file->num_read_bytes();
    };
    const int64_t token = kTensors.num_bytes(StatePer::kToken);
    const int64_t whole = read_bytes("long", 600, 0);
    EXPECT_EQ(whole, static_cast<int64_t>(std::filesystem::file_size(path("long"))));
    EXPECT_EQ(read_bytes("long", 600, 255), whole);
    EXPECT_EQ(read_bytes("long", 600, 256), whole - 256 * token);
    EXPECT_EQ(read_bytes("long", 600, 599), whole - 512 * token);
    EXPECT_EQ(read_bytes("long", 600, 1000), whole - 600 * token);
    const int64_t part = static_cast<int64_t>(std::filesystem::file_size(path("longer")));
    const int64_t states = kTensors.num_bytes(StatePer::kSequence);
    // 500 tokens of the base, in two chunks, without its states.
    EXPECT_EQ(read_bytes("longer", 900, 0), part + whole - states - 88 * token);
    EXPECT_EQ(read_bytes("longer", 900, 256), part + whole - states - (256 + 88) * token);
    EXPECT_EQ(read_bytes("longer", 900, 500), part);
    EXPECT_EQ(read_bytes("longer", 900, 756), part - 256 * token);
}

TEST_F(HeadChunks, ABaseThatIsNotNeededIsNotOpened) {
    std::filesystem::remove(path("long"));
    EXPECT_FALSE(HeadFile::open(path("longer"), 499));
    const auto file = HeadFile::open(path("longer"), 500);
    ASSERT_TRUE(file) << file.error().message;
    expect_from(*file, 900, 500);
}

TEST_F(HeadChunks, AChangedBitIsAnErrorWhereItIsRead) {
    std::string content = content_of(path("long"));
    const size_t last = content.size() - 1;  // of the last token's value
    content[last] ^= 1;
    put(path("long"), content);
    EXPECT_FALSE(HeadFile::open(path("long"), 0));
    EXPECT_FALSE(HeadFile::open(path("long"), 599));
    EXPECT_TRUE(HeadFile::open(path("long"), 600));
    EXPECT_TRUE(HeadFile::open(path("longer"), 0)) << "of the base 500 tokens are taken";
}

// Files of earlier versions have a checksum for each tensor.
TEST_F(HeadChunks, AFileWithoutThemIsReadWhole) {
    const std::string content = content_of(path("long"));
    uint64_t size = 0;
    std::memcpy(&size, content.data(), sizeof size);
    nlohmann::json header = nlohmann::json::parse(content.substr(8, size));
    auto& metadata = header["__metadata__"];
    metadata.erase("chunk_tokens");
    metadata.erase("chunk_xxh3");
    metadata["header_xxh3"] = std::string(32, '0');
    std::string text = header.dump();
    text.append((8 - text.size() % 8) % 8, ' ');
    Digester digester;
    digester.bytes(text.data(), text.size());
    const size_t digits = text.find(R"("header_xxh3":")") + 15;
    text.replace(digits, 32, digester.digest().hex());
    size = text.size();
    std::string old = std::string(reinterpret_cast<const char*>(&size), sizeof size) + text;
    uint64_t before = 0;
    std::memcpy(&before, content.data(), sizeof before);
    old += content.substr(8 + before);
    put(path("old"), old);
    for (const int64_t first : {0, 300, 600}) {
        const auto file = HeadFile::open(path("old"), first);
        ASSERT_TRUE(file) << file.error().message;
        expect_from(*file, 600, first);
    }
    old.back() ^= 1;
    put(path("old"), old);
    EXPECT_FALSE(HeadFile::open(path("old"), 0));
}

TEST_F(HeadFiles, AMissingFileIsAnError) { EXPECT_FALSE(HeadFile::open(folder_.path() / "none.head")); }

}  // namespace
}  // namespace verbatim::reference
