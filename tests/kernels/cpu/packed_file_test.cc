#include "kernels/cpu/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/base/check.h"
#include "files/output_file.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/forward_pass.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/load_model.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/loader/write_gguf.h"
#include "reference/model/random_model.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/quantised_model.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::cpu {
namespace {

namespace fs = std::filesystem;
using reference::Architecture;
using reference::Model;
using testing::HasSubstr;

constexpr int64_t kHeaderBytes = 4096;

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// A small checkpoint and the file of its packed weights, which is not there yet.
struct PackedFileTest : testing::Test {
    PackedFileTest() { write_checkpoint(1); }

    void write_checkpoint(uint64_t seed) const {
        fs::remove_all(checkpoint());
        const reference::ModelConfig config = reference::draw_small_config(Architecture::kFalconH1, 3);
        ASSERT_TRUE(reference::write_random_checkpoint(config, seed, checkpoint()));
    }
    [[nodiscard]] Model load(const reference::LoadOptions& options = {}) const {
        auto model = reference::load_model(checkpoint(), options);
        CHECK(model.has_value(), "{}", model.error().message);
        return std::move(*model);
    }
    [[nodiscard]] Result<KeptWeights> keep(const Model& model) const {
        reference::WorkerPool pool(2);
        return keep_packed(file(), model, pool);
    }
    void write(const std::string& bytes) const { folder.write("packed", bytes); }
    [[nodiscard]] fs::path checkpoint() const { return folder.path() / "model"; }
    [[nodiscard]] fs::path file() const { return folder.path() / "packed"; }

    tests::ScratchFolder folder;
};

bool same_pairs(const PackedWeights& got, const Model& model) {
    reference::WorkerPool pool(1);
    const PackedWeights wanted(model.config, model.weights, pool);
    return std::ranges::equal(got.pairs(), wanted.pairs());
}

TEST_F(PackedFileTest, TheSecondStartReadsTheFirstOnesPackedWeights) {
    const Model model = load();
    EXPECT_EQ(*known_canonical(file()), std::nullopt);
    EXPECT_EQ(*known_canonical({}), std::nullopt);
    const auto first = keep(model);
    ASSERT_TRUE(first) << first.error().message;
    EXPECT_FALSE(first->were_kept);
    ASSERT_EQ(*known_canonical(file()), model.source);
    const auto second = keep(load({.known_canonical = model.source}));
    ASSERT_TRUE(second) << second.error().message;
    EXPECT_TRUE(second->were_kept);
    EXPECT_TRUE(same_pairs(second->weights, model));
    for (const reference::MatrixId id : reference::matrices_of(model.config)) {
        const PackedMatrix& got = second->weights.matrix(id);
        const PackedMatrix& wanted = first->weights.matrix(id);
        EXPECT_EQ(got.num_outputs(), wanted.num_outputs());
        EXPECT_TRUE(std::equal(wanted.panel(0), wanted.panel(wanted.num_panels()), got.panel(0)));
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 2) << "the model, the file and nothing else";
}

// Runs for exact, panels of int8 for exact.int8, pairs of what is in bf16: a file has one of the two.
TEST_F(PackedFileTest, BlocksAreKeptInTheFormatOfTheProfile) {
    Model model =
        reference::make_random_model(tests::in_whole_blocks(reference::draw_small_config(Architecture::kLlama, 4)), 5);
    const tests::QuantisedMatrices blocks(model, {"Q8_0", "Q4_0", "BF16", "Q5_1"}, /*by_matrix=*/true);
    model.weights.quantised = true;
    model.source = Digest{.high = 1, .low = 2};
    reference::WorkerPool pool(2);
    for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kInt8Blocks, WeightFormat::kBf16}) {
        const PackedWeights wanted(model.config, model.weights, pool, format);
        ASSERT_GT(wanted.repacked().size(), 1000);
        ASSERT_GT(wanted.pairs().size(), 1000);
        for (const bool is_second : {false, true}) {
            const auto kept = keep_packed(file(), model, pool, format);
            ASSERT_TRUE(kept) << kept.error().message;
            EXPECT_EQ(kept->were_kept, is_second);
            EXPECT_EQ(kept->weights.format(), format);
            EXPECT_TRUE(std::ranges::equal(kept->weights.pairs(), wanted.pairs()));
            EXPECT_TRUE(std::ranges::equal(kept->weights.repacked(), wanted.repacked()));
            for (const reference::MatrixId id : reference::matrices_of(model.config)) {
                const PackedMatrix& got = kept->weights.matrix(id);
                const PackedMatrix& made = wanted.matrix(id);
                EXPECT_EQ(got.is_quantised(), made.is_quantised());
                EXPECT_EQ(got.runs() == nullptr, made.runs() == nullptr);
                EXPECT_EQ(got.int8_blocks() == nullptr, made.int8_blocks() == nullptr);
            }
        }
    }
    std::string bytes = bytes_of(file());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(bytes);
    const auto damaged = keep_packed(file(), model, pool, WeightFormat::kBf16);
    ASSERT_FALSE(damaged);
    EXPECT_THAT(damaged.error().message, HasSubstr("another digest than when they were written"));
}

TEST_F(PackedFileTest, AGgufFileHasAStateOfItsOwn) {
    Model made =
        reference::make_random_model(tests::in_whole_blocks(reference::draw_small_config(Architecture::kLlama, 4)), 5);
    const auto metadata = reference::gguf_metadata(made.config);
    ASSERT_TRUE(metadata) << metadata.error().message;
    const auto load_written = [&] {
        std::string bytes;
        const Status written = reference::write_gguf(made.config, made.weights, *reference::find_block_format("Q8_0"),
                                                     metadata->view(), [&](std::string_view part) -> Status {
                                                         bytes += part;
                                                         return {};
                                                     });
        CHECK(written.has_value(), "{}", written.error().message);
        auto model = reference::load_model(folder.write("model.gguf", bytes));
        CHECK(model.has_value(), "{}", model.error().message);
        return std::move(*model);
    };
    const Model first = load_written();
    const Model second = load_written();
    ASSERT_TRUE(first.source && second.source);
    EXPECT_NE(*first.source, *second.source) << "it was written again";
    ASSERT_TRUE(keep(first));
    EXPECT_TRUE(keep(first)->were_kept);
    EXPECT_FALSE(keep(second)->were_kept);
}

// The file is what is used: the weights of another model in it would be believed.
TEST_F(PackedFileTest, TheReadWeightsAreThoseOfTheFile) {
    const Model model = load();
    Model other = reference::make_random_model(model.config, 77);
    other.source = model.source;
    ASSERT_TRUE(keep(other));
    const auto kept = keep(model);
    ASSERT_TRUE(kept);
    EXPECT_TRUE(kept->were_kept);
    EXPECT_TRUE(same_pairs(kept->weights, other));
    EXPECT_FALSE(same_pairs(kept->weights, model));
}

TEST_F(PackedFileTest, AChangedCheckpointIsPackedAgain) {
    const Digest before = *load().source;
    ASSERT_TRUE(keep(load()));
    const fs::path weights = checkpoint() / "model.safetensors";
    const auto time = fs::last_write_time(weights);
    write_checkpoint(2);
    fs::last_write_time(weights, time);  // as a copy that keeps times would
    const Model changed = load();
    EXPECT_NE(changed.source, before);
    const auto again = keep(changed);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_FALSE(again->were_kept);
    const auto kept = keep(changed);
    ASSERT_TRUE(kept);
    EXPECT_TRUE(kept->were_kept);
    EXPECT_TRUE(same_pairs(kept->weights, changed));
    std::ofstream(checkpoint() / "config.json", std::ios::app) << "\n";
    EXPECT_NE(load().source, changed.source);
}

RC_GTEST_FIXTURE_PROP(PackedFileTest, DamageIsAnErrorOrPackedAnewAndNeverOtherWeights, ()) {
    const Model model = load();
    fs::remove(file());
    RC_ASSERT(keep(model).has_value());
    std::string bytes = bytes_of(file());
    const auto size = static_cast<int64_t>(bytes.size());
    // Half of the time in the header's fields.
    const int64_t at = *rc::gen::oneOf(rc::gen::inRange<int64_t>(0, 64), rc::gen::inRange<int64_t>(kHeaderBytes, size));
    bytes[static_cast<size_t>(at)] = static_cast<char>(bytes[static_cast<size_t>(at)] ^ *rc::gen::inRange(1, 256));
    write(bytes);
    const auto kept = keep(model);
    RC_CLASSIFY(!kept.has_value(), "an error");
    if (!kept) {
        RC_ASSERT(kept.error().message.starts_with(file().string()));
        RC_ASSERT(bytes_of(file()) == bytes);
    } else {
        RC_ASSERT(!kept->were_kept);
        RC_ASSERT(same_pairs(kept->weights, model));
    }
}

TEST_F(PackedFileTest, AStartDoesNotWaitForAnotherWriter) {
    const Model model = load();
    {
        const auto other = files::OutputFile::create(file());
        ASSERT_TRUE(other);
        const auto kept = keep(model);
        ASSERT_TRUE(kept) << kept.error().message;
        EXPECT_FALSE(kept->were_kept);
        EXPECT_TRUE(same_pairs(kept->weights, model));
        EXPECT_FALSE(fs::exists(file()));
    }
    ASSERT_TRUE(keep(model));
    EXPECT_TRUE(keep(model)->were_kept);
}

TEST_F(PackedFileTest, DamageInThePairsIsFound) {
    const Model model = load();
    ASSERT_TRUE(keep(model));
    std::string bytes = bytes_of(file());
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write(bytes);
    const auto kept = keep(model);
    ASSERT_FALSE(kept);
    EXPECT_THAT(kept.error().message, HasSubstr("another digest than when they were written"));
}

TEST_F(PackedFileTest, ATruncatedOrLengthenedFileIsAnError) {
    const Model model = load();
    ASSERT_TRUE(keep(model));
    const std::string whole = bytes_of(file());
    for (const std::string& bytes :
         {whole.substr(0, whole.size() - 4), whole.substr(0, whole.size() - 1), whole.substr(0, kHeaderBytes),
          whole.substr(0, 100), std::string(), whole + "1234", whole + "1"}) {
        write(bytes);
        EXPECT_FALSE(keep(model)) << bytes.size();
        EXPECT_FALSE(known_canonical(file())) << bytes.size();
        EXPECT_EQ(bytes_of(file()), bytes);
    }
}

TEST_F(PackedFileTest, AnotherKindOfFileIsLeftAsItIs) {
    const Model model = load();
    const std::string bytes(2 * kHeaderBytes, 'x');
    write(bytes);
    const auto kept = keep(model);
    ASSERT_FALSE(kept);
    EXPECT_THAT(kept.error().message, HasSubstr("no file of packed weights"));
    EXPECT_EQ(bytes_of(file()), bytes);
    reference::WorkerPool pool(1);
    for (const fs::path& wrong : {folder.path(), folder.path() / "nowhere" / "packed"}) {
        const auto refused = keep_packed(wrong, model, pool);
        ASSERT_FALSE(refused);
        EXPECT_TRUE(refused.error().message.starts_with(wrong.string())) << refused.error().message;
    }
}

// A limit on the size of files stands for a full disk.
TEST_F(PackedFileTest, AFileThatCannotBeWrittenToItsEndIsNotThere) {
    const Model model = load();
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small = {2 * kHeaderBytes, before.rlim_max};
    const auto former = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);
    const auto kept = keep(model);
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, former);
    ASSERT_FALSE(kept);
    EXPECT_THAT(kept.error().message, HasSubstr("packed: cannot be written: "));
    EXPECT_EQ(kept.error().kind, ErrorKind::kMachine);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1) << "the model alone";
}

// Fresh memory, which the move takes, would delay the first token.
TEST_F(PackedFileTest, KeptWeightsMoveToMemoryAfterTheFirstStep) {
    tests::SceneModel model(reference::draw_small_config(Architecture::kLlama, 4), 5);
    model.model.source = Digest{.high = 1, .low = 2};
    ASSERT_TRUE(keep(model.model));
    auto kept = keep(model.model);
    ASSERT_TRUE(kept && kept->were_kept);
    const auto is_mapped = [&] {
        const std::string maps = bytes_of("/proc/self/maps");
        return maps.find(file().string() + "\n") != std::string::npos;
    };
    constexpr int32_t kBlockSize = 16;
    CpuExecutor executor(model.model.config, model.model.weights,
                         {.pools = {.block_size = kBlockSize, .num_blocks = 8, .num_state_rows = 2}},
                         std::move(kept->weights));
    EXPECT_TRUE(is_mapped());
    tests::Scene scene(model, executor, kBlockSize);
    const auto tokens = model.tokens(20, 3);
    scene.next().start({.slot = 0, .tokens = tokens});
    scene.compute({.slot = 0, .num_new_tokens = 20, .num_sampled_positions = 1, .new_blocks = tests::iota(0, 2)});
    EXPECT_TRUE(is_mapped());
    scene.step();
    scene.expect_uncached(0, tokens, "a step on mapped weights");
    for (int i = 0; i < 10'000 && is_mapped(); ++i)  // a thread of low priority moves them
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_FALSE(is_mapped());
    scene.next().start({.slot = 1, .tokens = tokens});
    scene.compute({.slot = 1, .num_new_tokens = 20, .num_sampled_positions = 1, .new_blocks = tests::iota(2, 2)});
    scene.step();
    scene.expect_uncached(1, tokens, "a step on moved weights");
}

// −0 in a matrix becomes +0 when it is loaded, so the matrix is a copy, and has to be looked at every time.
TEST_F(PackedFileTest, OnlyACanonicalCheckpointSkipsTheCheck) {
    const Model canonical = load();
    ASSERT_TRUE(canonical.canonical);
    const fs::path weights = checkpoint() / "model.safetensors";
    std::string bytes = bytes_of(weights);
    const auto* up = reinterpret_cast<const char*>(canonical.weights.layers[0].mlp.up.data);
    const size_t at = bytes.find(std::string(up, 16));
    ASSERT_NE(at, std::string::npos);
    bytes[at] = '\x00';
    bytes[at + 1] = '\x80';
    fs::remove(weights);  // it is mapped
    std::ofstream(weights, std::ios::binary) << bytes;
    const Model model = load();
    EXPECT_FALSE(model.canonical);
    EXPECT_EQ(model.weights.layers[0].mlp.up.data[0], 0);
    ASSERT_TRUE(keep(model));
    EXPECT_EQ(*known_canonical(file()), std::nullopt);
    const auto kept = keep(load());
    ASSERT_TRUE(kept);
    EXPECT_TRUE(kept->were_kept);
    EXPECT_TRUE(same_pairs(kept->weights, model));
    // With a known canonical digest the loader skips the check, and reads the matrix in place.
    EXPECT_EQ(load({.known_canonical = model.source}).weights.layers[0].mlp.up.data[0], 0x8000);
}

}  // namespace
}  // namespace verbatim::cpu
