// A head that one engine computed, in a file, continues in another engine with the bits of the uncached reference:
// over small random models of every family, from the CPU to an emulated device and back, from one instruction set to
// another, with other block sizes.
#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

#include "reference/loader/head_file.h"
#include "tests/properties/numeric_scene.h"
#include "tests/reference/families.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using reference::HeadFile;
using reference::HeadInfo;

SceneOptions options_of(int32_t block_size, bool is_shared) {
    SceneOptions options;
    options.block_size = block_size;
    options.num_blocks = 200 / block_size + 10;
    options.num_state_rows = 12;
    if (is_shared) options.budget_bytes = options.num_blocks * options.block_size + 6 * options.row_bytes;
    return options;
}

SceneOptions draw_options(const char* what) {
    return options_of(*rc::gen::element(1, 3, 16).as(what), *rc::gen::arbitrary<bool>().as("one budget"));
}

Machine draw_machine(const char* what) {
    return *rc::gen::element(Machine::kCpu, Machine::kCpu, Machine::kCpuPortable, Machine::kEmulatedCuda).as(what);
}

// The newest head of the conversation, written to a file.
void write_head_of(NumericScene& scene, const std::string& id, const std::filesystem::path& path) {
    const auto lengths = scene.head_lengths(id, HeadKind::kTurn);
    const Name* name = scene.engine.cache().find(scene.key(id));
    CHECK(name != nullptr && !lengths.empty(), "'{}' has no head", id);
    const auto copy = scene.engine.export_head(name->heads.back().head);
    CHECK(copy.has_value(), "'{}': the executor does not hold its head", id);
    const HeadInfo info{"model", copy->numerics_id, copy->digest, {}, copy->tokens.to_vector()};
    const auto written = reference::write_head_file(path, info, scene.computing->tensors(), copy->bytes);
    CHECK(written.has_value(), "{}", written.error().message);
}

HeadImport import_of(NumericScene& scene, const std::string& id, const HeadFile& file) {
    return {.key = scene.key(id),
            .tokens = scene.store.store(file.info().tokens),
            .numerics_id = file.info().numerics,
            .digest = file.info().digest,
            .bytes = file.bytes()};
}

RC_GTEST_PROP(HeadTransfer, ContinuesInAnotherEngineWithTheSameBits, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    const auto prompt = *rc::gen::inRange<int64_t>(1, 40).as("prompt");
    const auto suffix = *rc::gen::inRange<int64_t>(1, 20).as("suffix");
    const reference::ModelConfig config = kAllFamilies[seed % std::size(kAllFamilies)].draw(seed);
    const ScratchFolder folder;
    const auto path = folder.path() / "a.head";
    std::vector<TokenId> known;
    {
        NumericScene first(config, seed, draw_options("block_size"), 1, draw_machine("from"));
        first.complete(first.history("a", first.text(seed, prompt), 3));
        known = first.committed("a");
        write_head_of(first, "a", path);
    }
    const auto file = HeadFile::open(path);
    RC_ASSERT(file.has_value());
    RC_ASSERT(file->check_digest().has_value());
    RC_ASSERT(file->info().length() == prompt + 2);

    NumericScene second(config, seed, draw_options("block_size there"), 1, draw_machine("to"));
    const auto imported = second.engine.import_head(import_of(second, "b", *file));
    RC_ASSERT(imported.has_value());
    second.engine.verify();  // the head's digest, by the executor that holds it now
    const FinishedEvent event = second.complete(second.history("b", known + second.text(seed + 1, suffix), 3));
    RC_ASSERT(event.num_reused_tokens == prompt + 2);
    RC_ASSERT(second.engine.stats().imported_heads == 1);
    RC_ASSERT(second.first_difference() == "");
    second.expect_home();
}

class HeadImports : public testing::Test {
protected:
    HeadImports() : scene_(7, options_of(3, false)) {
        scene_.complete(scene_.history("a", scene_.text(7, 10), 3));
        write_head_of(scene_, "a", folder_.path() / "a.head");
        auto opened = HeadFile::open(folder_.path() / "a.head");
        CHECK(opened.has_value(), "{}", opened.error().message);
        file_.emplace(*std::move(opened));
    }
    [[nodiscard]] std::string refused(const HeadImport& head) {
        const size_t num_heads = scene_.engine.cache().num_heads();
        const auto imported = scene_.engine.import_head(head);
        EXPECT_EQ(scene_.engine.cache().num_heads(), num_heads);
        scene_.engine.verify();
        return imported ? "" : imported.error().message;
    }

    ScratchFolder folder_;
    NumericScene scene_;
    std::optional<HeadFile> file_;
};

TEST_F(HeadImports, OtherArithmeticIsRefusedByName) {
    HeadImport head = import_of(scene_, "b", *file_);
    head.numerics_id = "fast/1";
    EXPECT_THAT(refused(head), testing::HasSubstr("made by fast/1: this engine computes by exact/1"));
}

TEST_F(HeadImports, BytesOfAnotherLengthAreRefused) {
    HeadImport head = import_of(scene_, "b", *file_);
    head.bytes = head.bytes.first(head.bytes.size() - 4);
    EXPECT_THAT(refused(head), testing::HasSubstr("a head of 12 tokens takes"));
}

TEST_F(HeadImports, BytesWithAnotherDigestAreRefused) {
    std::vector<std::byte> bytes(file_->bytes().begin(), file_->bytes().end());
    bytes[bytes.size() / 2] ^= std::byte{1};
    HeadImport head = import_of(scene_, "b", *file_);
    head.bytes = bytes;
    EXPECT_THAT(refused(head), testing::HasSubstr("the bytes have digest"));
}

TEST_F(HeadImports, AHeadThatDoesNotFitIsRefusedAndTheEngineGoesOn) {
    NumericScene small(7, [] {
        SceneOptions options = options_of(3, false);
        options.num_blocks = 3;
        options.num_state_rows = 2;
        return options;
    }());
    const auto imported = small.engine.import_head(import_of(small, "b", *file_));
    ASSERT_EQ(imported.has_value(), !small.has_kv());
    small.complete(small.history("c", small.text(1, 4), 1));
    EXPECT_EQ(small.first_difference(), "");
}

TEST_F(HeadImports, AHeadComesInWhereOthersHaveEveryRow) {
    for (int i = 0; i < 20; ++i) scene_.complete(scene_.history(std::to_string(i), scene_.text(100 + i, 12), 2));
    ASSERT_GT(scene_.engine.stats().evictions, 0);
    ASSERT_TRUE(scene_.engine.import_head(import_of(scene_, "b", *file_)).has_value());
    std::vector<TokenId> prompt = file_->info().tokens;
    prompt.push_back(1);
    prompt.push_back(2);
    EXPECT_EQ(scene_.complete(scene_.history("b", prompt, 2)).num_reused_tokens, 12);
    EXPECT_EQ(scene_.first_difference(), "");
}

// The head of a conversation's next turn comes in where the first turn's is: blocks of 3, of which 12 tokens fill four.
TEST(HeadImport, SharesTheBlocksThatAreThere) {
    uint64_t seed = 7;
    const auto has = [&](reference::StatePer per) {
        return reference::state_tensors(kAllFamilies[0].draw(seed)).has_any(per);
    };
    while (!has(reference::StatePer::kToken) || !has(reference::StatePer::kSequence)) ++seed;
    const reference::ModelConfig config = kAllFamilies[0].draw(seed);
    SceneOptions options = options_of(3, false);
    options.lookup = LookupMode::kPrefix;
    const ScratchFolder folder;
    const auto path = folder.path() / "longer.head";
    {
        NumericScene first(config, seed, options);
        first.complete(first.history("a", first.text(7, 10), 3));
        first.complete(first.suffix("a", first.text(8, 10), 3));
        write_head_of(first, "a", path);
    }
    const auto longer = HeadFile::open(path);
    ASSERT_TRUE(longer.has_value());
    NumericScene second(config, seed, options);
    ASSERT_TRUE(second.has_kv());
    second.complete(second.history("b", second.text(7, 10), 3));
    const auto& pool = second.engine.cache().kv().pool();
    const int32_t before = pool.num_used();
    ASSERT_TRUE(second.engine.import_head(import_of(second, "c", *longer)).has_value());
    EXPECT_EQ(pool.num_used() - before, (longer->info().length() + 2) / 3 - 4);
    second.engine.verify();
    std::vector<TokenId> prompt = longer->info().tokens;
    prompt.push_back(1);
    EXPECT_EQ(second.complete(second.history("c", prompt, 3)).num_reused_tokens, longer->info().length());
    EXPECT_EQ(second.complete(second.suffix("b", second.text(9, 4), 3)).num_reused_tokens, 12);
    EXPECT_EQ(second.first_difference(), "");
}

TEST_F(HeadImports, AShorterHeadLeavesTheConversationsLongerOne) {
    scene_.complete(scene_.suffix("a", scene_.text(8, 5), 3));
    ASSERT_TRUE(scene_.engine.import_head(import_of(scene_, "a", *file_)).has_value());
    const auto resident = static_cast<int64_t>(scene_.committed("a").size()) - 1;
    EXPECT_EQ(scene_.complete(scene_.suffix("a", scene_.text(9, 2), 2)).num_reused_tokens, resident);
    EXPECT_EQ(scene_.first_difference(), "");
}

}  // namespace
}  // namespace verbatim::tests
