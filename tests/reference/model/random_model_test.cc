#include "reference/model/random_model.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <set>

#include "engine/base/digest.h"
#include "files/output_file.h"
#include "reference/loader/config_json.h"
#include "reference/loader/load_model.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/model/presets.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

Digest digest_of(Model& model) {
    Digester digester;
    for (const CheckpointTensor& tensor : checkpoint_tensors(model.config, model.weights)) {
        digester.add(tensor.name);
        for (const MatrixView* matrix : tensor.matrices)
            digester.bytes(matrix->data, static_cast<size_t>(matrix->rows * matrix->cols) * 2);
        if (tensor.vector) digester.bytes(tensor.vector->data(), tensor.vector->size_bytes());
    }
    return digester.digest();
}

TEST(RandomModel, IsTheSameForTheSameSeedAndDiffersForAnother) {
    const ModelConfig config = *preset("tiny-granite");
    Model a = make_random_model(config, 7);
    Model b = make_random_model(config, 7);
    Model c = make_random_model(config, 8);
    EXPECT_EQ(digest_of(a), digest_of(b));
    EXPECT_NE(digest_of(a), digest_of(c));
}

// Pins the bits: a change here changes every recorded digest of a preset's replay.
TEST(RandomModel, BitsOfASeedNeverChange) {
    Model model = make_random_model(*preset("tiny-granite"), 1);
    EXPECT_EQ(digest_of(model).hex(), "8765820b0fc76438f5ffad73c4795883");
}

TEST(RandomModel, AnElementDoesNotDependOnTheFillsStart) {
    ModelWeights weights;
    for (const CheckpointTensor& tensor : checkpoint_tensors(*preset("tiny-granite"), weights)) {
        const auto count = static_cast<size_t>(tensor.num_elements());
        if (tensor.vector) {
            std::vector<float> whole(count), tail(count - count / 3);
            fill_random_vector(tensor, 5, 0, whole);
            fill_random_vector(tensor, 5, static_cast<int64_t>(count / 3), tail);
            EXPECT_TRUE(std::equal(tail.begin(), tail.end(), whole.begin() + static_cast<int64_t>(count / 3)));
        } else {
            std::vector<uint16_t> whole(count), tail(count - count / 3);
            fill_random_matrix(tensor, 5, 0, whole);
            fill_random_matrix(tensor, 5, static_cast<int64_t>(count / 3), tail);
            EXPECT_TRUE(std::equal(tail.begin(), tail.end(), whole.begin() + static_cast<int64_t>(count / 3)));
        }
    }
}

TEST(RandomModel, RecurrenceRemembersAndDecays) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
        const Model model = make_random_model(*preset("tiny-granite"), seed);
        for (const LayerWeights& layer : model.weights.layers)
            for (size_t h = 0; h < layer.mamba.a_log.size(); ++h) {
                const double a = -std::exp(static_cast<double>(layer.mamba.a_log[h]));
                const double dt = std::log1p(std::exp(static_cast<double>(layer.mamba.dt_bias[h])));
                EXPECT_GE(a, -16.0);
                EXPECT_LE(a, -1.0);
                EXPECT_GE(dt, 1e-3);
                EXPECT_LE(dt, 1e-1);
            }
    }
}

TEST(RandomModel, MatricesHaveUnitGain) {
    const Model model = make_random_model(*preset("tiny-granite"), 3);
    const MatrixView m = model.weights.embedding;
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < m.rows * m.cols; ++i) {
        const double value = std::bit_cast<float>(uint32_t{m.data[i]} << 16);
        sum += value;
        squares += value * value;
    }
    const auto count = static_cast<double>(m.rows * m.cols);
    EXPECT_NEAR(sum / count * std::sqrt(m.cols), 0.0, 0.03);
    EXPECT_NEAR(squares / count * static_cast<double>(m.cols), 1.0, 0.03);
}

TEST(RandomConfig, OfEveryFamilyIsSmallSoundAndSurvivesItsConfigJson) {
    std::set<Architecture> families;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const ModelConfig config = draw_small_config(seed);
        families.insert(config.architecture);
        ASSERT_TRUE(validate(config).empty()) << validate(config).front();
        EXPECT_LE(geometry(config).num_parameters, 120'000) << "seed " << seed;
        const auto text = write_config(config);
        ASSERT_TRUE(text) << "seed " << seed << ": " << text.error().message;
        EXPECT_EQ(*parse_config(*text, "config.json"), config) << "seed " << seed << *text;
    }
    EXPECT_EQ(families.size(), 7u);
}

TEST(RandomConfig, WithExpertsIsSmallSoundAndSurvivesItsConfigJson) {
    std::set<int32_t> n_groups, n_chosen;
    std::set<bool> latent, normalize, latent_bias, other_mlp, next_normalize, next_dense;
    constexpr Architecture kFamilies[] = {Architecture::kGraniteHybrid, Architecture::kNemotronH,
                                          Architecture::kQwen35Moe, Architecture::kQwen3Next};
    for (uint64_t seed = 0; seed < 200; ++seed) {
        const Architecture family = kFamilies[seed % 4];
        const ModelConfig config = draw_small_moe_config(family, seed);
        ASSERT_TRUE(validate(config).empty()) << validate(config).front();
        EXPECT_GT(geometry(config).num_moe_layers, 0);
        EXPECT_LE(geometry(config).num_parameters, 400'000) << "seed " << seed;
        const auto text = write_config(config);
        ASSERT_TRUE(text) << "seed " << seed << ": " << text.error().message;
        EXPECT_EQ(*parse_config(*text, "config.json"), config) << "seed " << seed << *text;
        for (const LayerConfig& layer : config.layers) {
            if (family == Architecture::kNemotronH && layer.mlp) other_mlp.insert(!layer.moe);
            if (family == Architecture::kQwen3Next) next_dense.insert(!layer.moe);
            if (!layer.moe) continue;
            EXPECT_EQ(layer.moe->shared_gate, seed % 4 >= 2);
            if (family == Architecture::kQwen3Next) next_normalize.insert(layer.moe->normalize);
            n_groups.insert(layer.moe->n_groups);
            n_chosen.insert(layer.moe->n_chosen);
            if (family != Architecture::kNemotronH) continue;
            latent.insert(layer.moe->d_latent > 0);
            latent_bias.insert(layer.moe->latent_bias);
            normalize.insert(layer.moe->normalize);
        }
    }
    EXPECT_EQ(n_groups, (std::set<int32_t>{1, 2, 3}));
    EXPECT_EQ(n_chosen, (std::set<int32_t>{1, 2, 3, 4}));
    for (const auto& both : {latent, normalize, latent_bias, other_mlp, next_normalize, next_dense})
        EXPECT_EQ(both.size(), 2u);
}

// So that properties over random models meet every switch.
TEST(RandomConfig, DrawsBothValuesOfEverySwitch) {
    std::set<int> d_conv, gates, ropes, n_groups;
    std::set<bool> in_bias, conv_bias, qkv_bias, mlp_bias, limited, tied, odd_head;
    for (uint64_t seed = 0; seed < 300; ++seed) {
        const ModelConfig config = draw_small_config(seed);
        tied.insert(config.tie_word_embeddings);
        for (const LayerConfig& layer : config.layers) {
            if (layer.mamba) {
                d_conv.insert(layer.mamba->d_conv);
                gates.insert(static_cast<int>(layer.mamba->gate));
                n_groups.insert(layer.mamba->n_groups);
                in_bias.insert(layer.mamba->in_bias);
                conv_bias.insert(layer.mamba->conv_bias);
                limited.insert(layer.mamba->dt_min > 0);
                odd_head.insert(layer.mamba->head_dim % 2 == 1);
            }
            if (layer.attention) {
                ropes.insert(static_cast<int>(layer.attention->rope.kind));
                qkv_bias.insert(layer.attention->qkv_bias);
            }
            if (layer.mlp) mlp_bias.insert(layer.mlp->up_bias);
        }
    }
    EXPECT_EQ(d_conv, (std::set<int>{2, 3, 4}));
    EXPECT_EQ(gates, (std::set<int>{0, 1, 2}));
    EXPECT_EQ(ropes, (std::set<int>{0, 1, 2, 3}));
    EXPECT_EQ(n_groups, (std::set<int>{1, 2, 3}));
    for (const auto& both : {in_bias, conv_bias, qkv_bias, mlp_bias, limited, tied, odd_head})
        EXPECT_EQ(both.size(), 2u);
}

TEST(WriteCheckpoint, LoadsBackAsTheModelOfTheSeedBitForBit) {
    for (uint64_t seed = 0; seed < 32; ++seed) {
        const tests::ScratchFolder scratch;
        const ModelConfig config = seed < 18   ? draw_small_config(seed)
                                   : seed < 22 ? draw_small_moe_config(Architecture::kNemotronH, seed)
                                   : seed < 26 ? draw_small_moe_config(Architecture::kGraniteHybrid, seed)
                                   : seed < 29 ? draw_small_moe_config(Architecture::kQwen35Moe, seed)
                                               : draw_small_moe_config(Architecture::kQwen3Next, seed);
        const Status written = write_random_checkpoint(config, seed, scratch.path() / "model");
        ASSERT_TRUE(written) << written.error().message;
        auto loaded = load_model(scratch.path() / "model");
        ASSERT_TRUE(loaded) << loaded.error().message;
        Model made = make_random_model(config, seed);
        EXPECT_EQ(loaded->config, config);
        EXPECT_EQ(digest_of(*loaded), digest_of(made));
        EXPECT_EQ(loaded->report.num_parameters, geometry(config).num_parameters);
        EXPECT_EQ(loaded->report.num_rounded + loaded->report.num_flushed, 0);
        EXPECT_EQ(loaded->weights.lm_head.data == loaded->weights.embedding.data, config.tie_word_embeddings);
    }
}

TEST(WriteCheckpoint, RefusesToOverwrite) {
    const tests::ScratchFolder scratch;
    const ModelConfig config = *preset("tiny-llama");
    ASSERT_TRUE(write_random_checkpoint(config, 1, scratch.path()));
    const Status again = write_random_checkpoint(config, 1, scratch.path());
    ASSERT_FALSE(again);
    EXPECT_NE(again.error().message.find("config.json: already exists"), std::string::npos) << again.error().message;
}

TEST(WriteCheckpoint, RefusesAFolderThatIsBeingWritten) {
    const tests::ScratchFolder scratch;
    const auto other = files::OutputFile::create(scratch.path() / "config.json");
    ASSERT_TRUE(other);
    const Status written = write_random_checkpoint(*preset("tiny-llama"), 1, scratch.path());
    ASSERT_FALSE(written);
    EXPECT_NE(written.error().message.find("config.json: is being written"), std::string::npos);
    EXPECT_FALSE(std::filesystem::exists(scratch.path() / "model.safetensors"));
}

TEST(WriteCheckpoint, RefusesAConfigThatItsFamilyCannotExpress) {
    ModelConfig config = *preset("tiny-granite");
    config.layers[0].mamba->d_state = 8;  // the others have 16
    const tests::ScratchFolder scratch;
    const Status written = write_random_checkpoint(config, 1, scratch.path());
    ASSERT_FALSE(written);
    EXPECT_NE(written.error().message.find("cannot express"), std::string::npos) << written.error().message;
    EXPECT_FALSE(std::filesystem::exists(scratch.path() / "model.safetensors"));
}

}  // namespace
}  // namespace verbatim::reference
