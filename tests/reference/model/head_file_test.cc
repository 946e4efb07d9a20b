#include "reference/model/head_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
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
        const Status written = write_head_file(path_, info_, kTensors, bytes_);
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
    EXPECT_EQ(file->state_digest(), info_.digest);
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

TEST_F(HeadFiles, AMissingFileIsAnError) { EXPECT_FALSE(HeadFile::open(folder_.path() / "none.head")); }

}  // namespace
}  // namespace verbatim::reference
