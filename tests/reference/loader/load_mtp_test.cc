// The multi-token prediction layer of a checkpoint as published: found by the names, a separate model that shares
// embedding and head; left aside, and counted, where nothing asks for it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "reference/loader/load_model.h"
#include "reference/model/mtp_layer.h"
#include "reference/model/random_model.h"
#include "tests/reference/loader/golden_checkpoint.h"

namespace verbatim::reference {
namespace {

using ::testing::HasSubstr;

FileTensor file_tensor(const CheckpointTensor& tensor, uint64_t seed) {
    std::vector<uint16_t> values(static_cast<size_t>(tensor.num_elements()));
    fill_random_matrix(tensor, seed, 0, values);
    std::string bytes(values.size() * 2, '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return {{tensor.name, TensorDtype::kBf16, tensor.shape}, bytes};
}

// Puts the whole layer in the place of the golden file's single tensor of it.
void add_layer(const Checkpoint& checkpoint, ExpertFiling filing = ExpertFiling::kAsPublished) {
    const Model model = *load_model(checkpoint.path());
    ModelWeights shapes;
    const ModelConfig config = *mtp_config(model.config);
    checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
        std::erase_if(tensors, [](const FileTensor& tensor) { return tensor.layout.name.starts_with("mtp."); });
        for (const CheckpointTensor& tensor : checkpoint_tensors(config, shapes, filing))
            tensors.push_back(file_tensor(tensor, 3));
    });
}

TEST(LoadMtp, TheLayerIsAModelThatSharesEmbeddingAndHead) {
    const Checkpoint checkpoint("qwen35");
    add_layer(checkpoint);
    const auto model = load_model(checkpoint.path(), {.mtp = true});
    ASSERT_TRUE(model) << model.error().message;
    ASSERT_TRUE(model->mtp);
    const Model& mtp = *model->mtp;
    EXPECT_TRUE(mtp.config.reads_hidden);
    ASSERT_EQ(mtp.config.layers.size(), 1);
    EXPECT_TRUE(mtp.config.layers[0].attention && mtp.config.layers[0].attention->output_gate);
    EXPECT_EQ(mtp.weights.lm_head.data, model->weights.lm_head.data);
    EXPECT_EQ(mtp.weights.embedding.data, model->weights.embedding.data);
    EXPECT_EQ(model->report.num_skipped, 1);  // of images
    EXPECT_EQ(model->report.num_skipped_mtp, 0);
}

// fc [hidden, 2 * hidden]: its first half of columns is for the embedding, the second for the hidden row.
TEST(LoadMtp, TheFusionIsSplitByColumns) {
    const Checkpoint checkpoint("qwen35");
    add_layer(checkpoint);
    const auto model = load_model(checkpoint.path(), {.mtp = true});
    ASSERT_TRUE(model) << model.error().message;
    FileTensors tensors = read_tensors(checkpoint.read(kFile));
    const std::string bytes = find_tensor(tensors, "mtp.fc.weight").bytes;
    const InputWeights& input = model->mtp->weights.input;
    const auto hidden = static_cast<int64_t>(model->config.hidden_size);
    ASSERT_EQ(input.embedding.cols, hidden);
    for (const int64_t row : {int64_t{0}, int64_t{7}, hidden - 1}) {
        const auto num_bytes = static_cast<size_t>(2 * hidden);
        const char* whole = bytes.data() + static_cast<size_t>(row) * 2 * num_bytes;
        EXPECT_EQ(std::memcmp(input.embedding.row(row).data(), whole, num_bytes), 0) << row;
        EXPECT_EQ(std::memcmp(input.hidden.row(row).data(), whole + num_bytes, num_bytes), 0) << row;
    }
}

TEST(LoadMtp, ExpertsOfTheLayerAreReadInBothFilings) {
    for (const std::string golden : {"qwen35-moe", "qwen3-next"}) {
        for (const ExpertFiling filing : {ExpertFiling::kTogether, ExpertFiling::kOneByOne}) {
            const Checkpoint checkpoint(golden);
            add_layer(checkpoint, filing);
            const auto model = load_model(checkpoint.path(), {.mtp = true});
            ASSERT_TRUE(model) << model.error().message;
            EXPECT_FALSE(model->mtp->weights.layers[0].moe.experts.back().down.empty()) << golden;
        }
    }
}

// Attention, then experts, each a layer with its norm; the first has the fusion, the second the norm behind both.
TEST(LoadMtp, NemotronsIsTwoLayers) {
    const Checkpoint checkpoint("nemotron-moe");
    add_layer(checkpoint);
    const FileTensors tensors = read_tensors(checkpoint.read(kFile));
    std::set<std::string> names;
    for (const FileTensor& tensor : tensors)
        if (tensor.layout.name.starts_with("mtp.") && tensor.layout.name.find(".experts.") == std::string::npos)
            names.insert(tensor.layout.name);
    // As vLLM's nemotron_h_mtp.py reads them.
    const std::set<std::string> published = {"mtp.layers.0.enorm.weight",
                                             "mtp.layers.0.hnorm.weight",
                                             "mtp.layers.0.eh_proj.weight",
                                             "mtp.layers.0.norm.weight",
                                             "mtp.layers.0.mixer.q_proj.weight",
                                             "mtp.layers.0.mixer.k_proj.weight",
                                             "mtp.layers.0.mixer.v_proj.weight",
                                             "mtp.layers.0.mixer.o_proj.weight",
                                             "mtp.layers.1.norm.weight",
                                             "mtp.layers.1.mixer.gate.weight",
                                             "mtp.layers.1.mixer.gate.e_score_correction_bias",
                                             "mtp.layers.1.mixer.shared_experts.up_proj.weight",
                                             "mtp.layers.1.mixer.shared_experts.down_proj.weight",
                                             "mtp.layers.1.final_layernorm.weight"};
    EXPECT_EQ(names, published);
    const auto model = load_model(checkpoint.path(), {.mtp = true});
    ASSERT_TRUE(model) << model.error().message;
    ASSERT_TRUE(model->mtp);
    const Model& mtp = *model->mtp;
    ASSERT_EQ(mtp.config.layers.size(), 2);
    EXPECT_TRUE(mtp.config.layers[0].attention && !mtp.config.layers[0].moe);
    EXPECT_TRUE(mtp.config.layers[1].moe && !mtp.config.layers[1].has_mixer());
    EXPECT_FALSE(mtp.weights.layers[1].moe.experts.back().down.empty());
    EXPECT_EQ(mtp.weights.lm_head.data, model->weights.lm_head.data);
    const auto is_mtp = [](const FileTensor& tensor) { return tensor.layout.name.starts_with("mtp."); };
    EXPECT_EQ(load_model(checkpoint.path())->report.num_skipped_mtp, std::ranges::count_if(tensors, is_mtp));
    // A pattern of other layers has other tensors.
    checkpoint.change_tensors(kFile, [](FileTensors& changed) {
        changed.push_back({{"mtp.layers.2.norm.weight", TensorDtype::kBf16, {1}}, "00"});
    });
    const auto longer = load_model(checkpoint.path(), {.mtp = true});
    ASSERT_FALSE(longer);
    EXPECT_THAT(longer.error().message, HasSubstr("\"mtp.layers.2.norm.weight\" of shape [1] is not part of"));
}

TEST(LoadMtp, WhereNothingAsksForTheLayerItsTensorsAreCounted) {
    const Checkpoint checkpoint("qwen35");
    add_layer(checkpoint);
    const auto model = load_model(checkpoint.path());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_FALSE(model->mtp);
    EXPECT_EQ(model->report.num_skipped, 16);
    EXPECT_EQ(model->report.num_skipped_mtp, 15);
}

TEST(LoadMtp, WhatIsNotTheLayerIsRefusedByName) {
    const auto problem = [](const Checkpoint& checkpoint) {
        const auto model = load_model(checkpoint.path(), {.mtp = true});
        return model ? std::string() : model.error().message;
    };
    const Checkpoint half("qwen35");  // the golden file has mtp.fc alone
    EXPECT_THAT(problem(half), HasSubstr("mtp.pre_fc_norm_embedding.weight of shape [64] is missing"));
    EXPECT_THAT(problem(Checkpoint("llama")), HasSubstr("no tensors mtp.*"));
    const Checkpoint two("qwen35");
    add_layer(two);
    two.change_tensors(kFile, [](FileTensors& tensors) {
        tensors.push_back({{"mtp.layers.1.input_layernorm.weight", TensorDtype::kBf16, {1}}, "00"});
    });
    EXPECT_THAT(problem(two), HasSubstr("\"mtp.layers.1.input_layernorm.weight\" of shape [1] is not part of"));
    const Checkpoint own("qwen35");
    add_layer(own);
    own.change_tensors(kFile, [](FileTensors& tensors) {
        tensors.push_back({{"mtp.embed_tokens.weight", TensorDtype::kBf16, {1}}, "00"});
    });
    EXPECT_THAT(problem(own), HasSubstr("mtp.embed_tokens.weight"));
}

}  // namespace
}  // namespace verbatim::reference
