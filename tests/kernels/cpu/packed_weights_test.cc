#include "kernels/cpu/packed_weights.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/check.h"
#include "kernels/cpu/block_runs.h"
#include "reference/forward_pass.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/load_model.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/loader/write_gguf.h"
#include "reference/model/random_model.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::cpu {
namespace {

using reference::MatrixView;

// Pages of the view's memory that are resident, without those that it shares with its neighbours.
int64_t resident_pages(MatrixView view) {
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto first = reinterpret_cast<uintptr_t>(view.bytes().data());
    const uintptr_t begin = (first + page - 1) / page * page;
    const uintptr_t end = (first + view.bytes().size()) / page * page;
    if (begin >= end) return 0;
    // mincore() tells of the page cache; what this process has mapped is in its pagemap: bit 63 of each page's word.
    FILE* pagemap = std::fopen("/proc/self/pagemap", "rb");
    CHECK(pagemap != nullptr);
    int64_t count = 0;
    for (uintptr_t at = begin; at < end; at += page) {
        uint64_t word = 0;
        std::fseek(pagemap, static_cast<long>(at / page * sizeof(word)), SEEK_SET);
        if (std::fread(&word, sizeof(word), 1, pagemap) == 1) count += static_cast<int64_t>(word >> 63);
    }
    std::fclose(pagemap);
    return count;
}

void expect_packed(const PackedMatrix& packed, MatrixView weight) {
    for (int64_t n = 0; n < weight.rows; ++n) {
        const Pair* lane = packed.panel(n / kPanelOutputs) + n % kPanelOutputs;
        for (int64_t k = 0; k < weight.cols; ++k) {
            const Pair pair = lane[k / 2 * kPanelOutputs];
            ASSERT_EQ(k % 2 == 0 ? even_bits(pair) : odd_bits(pair), weight.row(n)[k]) << n << " " << k;
        }
    }
}

TEST(PackedWeights, EveryMatrixKeepsItsElements) {
    for (const int32_t num_threads : {1, 3}) {
        const reference::Model model =
            reference::make_random_model(reference::draw_small_config(reference::Architecture::kFalconH1, 3), 3);
        reference::WorkerPool pool(num_threads);
        const PackedWeights packed(model.config, model.weights, pool);
        for (const reference::MatrixId id : reference::matrices_of(model.config)) {
            expect_packed(packed.matrix(id), linear_of(model.weights, id).weight);
        }
    }
}

// A checkpoint is read where it is mapped; once packed, its pages leave memory, and come back the same when read.
TEST(PackedWeights, MatricesOfAMappedFileLeaveMemory) {
    const auto folder = std::filesystem::temp_directory_path() / fmt::format("verbatim-packed-{}", getpid());
    reference::ModelConfig config = reference::draw_small_config(reference::Architecture::kLlama, 4);
    config.vocab_size = 2000;
    config.hidden_size = 64;
    ASSERT_TRUE(reference::write_random_checkpoint(config, 4, folder, [](int64_t) {}));
    {
        const auto model = reference::load_model(folder);
        ASSERT_TRUE(model) << model.error().message;
        const MatrixView head = model->weights.lm_head;
        ASSERT_GT(resident_pages(head), 40);
        reference::WorkerPool pool(2);
        const PackedWeights packed(model->config, model->weights, pool);
        EXPECT_EQ(resident_pages(head), 0);
        for (const reference::MatrixId id : reference::matrices_of(model->config)) {
            expect_packed(packed.matrix(id), linear_of(model->weights, id).weight);
        }
    }
    std::filesystem::remove_all(folder);
}

// So do blocks that became runs.
TEST(PackedWeights, BlocksOfAMappedFileLeaveMemory) {
    reference::ModelConfig config = reference::draw_small_config(reference::Architecture::kLlama, 4);
    config.vocab_size = 4000;
    config.hidden_size = 64;
    for (reference::LayerConfig& layer : config.layers) {
        layer.mlp->d_ff = 96;
        layer.attention->rope = {.kind = reference::RopeKind::kDefault, .n_rotary_dims = 16};
        layer.attention->head_dim = 16;
        layer.attention->n_heads = 4;
        layer.attention->n_kv_heads = 2;
        layer.attention->scale = 0.25;
    }
    reference::Model made = reference::make_random_model(config, 4);
    const auto metadata = reference::gguf_metadata(config);
    ASSERT_TRUE(metadata) << metadata.error().message;
    std::string bytes;
    ASSERT_TRUE(reference::write_gguf(config, made.weights, *reference::find_block_format("Q8_0"), metadata->view(),
                                      [&](std::string_view part) -> Status {
                                          bytes += part;
                                          return {};
                                      }));
    const tests::ScratchFolder scratch;
    const auto model = reference::load_model(scratch.write("model.gguf", bytes));
    ASSERT_TRUE(model) << model.error().message;
    const MatrixView head = model->weights.lm_head;
    ASSERT_TRUE(head.is_quantised());
    std::vector<float> row(static_cast<size_t>(head.cols));
    for (int64_t r = 0; r < head.rows; ++r) head.read_row(r, row);
    ASSERT_GT(resident_pages(head), 40);
    reference::WorkerPool pool(2);
    const PackedWeights packed(model->config, model->weights, pool);
    EXPECT_EQ(resident_pages(head), 0);
    for (const reference::MatrixId id : reference::matrices_of(model->config)) {
        EXPECT_TRUE(packed.matrix(id).is_quantised());
        EXPECT_NE(packed.matrix(id).runs(), nullptr);
    }
}

}  // namespace
}  // namespace verbatim::cpu
