#include "reference/loader/load_gguf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <random>

#include "reference/loader/gguf.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/gguf_tensors.h"
#include "reference/loader/load_model.h"
#include "reference/loader/write_gguf.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "reference/numerics/bf16.h"
#include "reference/reference_model.h"
#include "reference/walk.h"
#include "tests/reference/loader/golden_checkpoint.h"
#include "tests/reference/loader/same_model.h"
#include "tests/reference/quantised_model.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

using tests::ScratchFolder;

const std::filesystem::path kGgufFolder = VERBATIM_SOURCE_DIR "/tests/data/gguf";

// F16 has fewer exponents than bf16.
void expect_near(const MatrixView& got, const MatrixView& wanted, const std::string& name) {
    for (int64_t i = 0; i < wanted.rows * wanted.cols; ++i)
        ASSERT_NEAR(bf16_to_float(got.data[i]), bf16_to_float(wanted.data[i]), 1e-6F) << name << " " << i;
}

TEST(LoadGguf, AFileOfGgufPyInBf16IsTheCheckpointItWasMadeFrom) {
    Model checkpoint = *load_model(golden_folder("granite-hybrid"));
    auto file = load_model(kGgufFolder / "granite-hybrid-bf16.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_FALSE(file->weights.quantised);
    expect_same_weights(*file, checkpoint);
    EXPECT_TRUE(same_bits(last_logits(*file), last_logits(checkpoint)));
}

TEST(LoadGguf, BlocksOfGgufPyAreThoseOfTheCheckpointsRowsInItsOrder) {
    Model checkpoint = *load_model(golden_folder("granite-hybrid"));
    auto file = load_model(kGgufFolder / "granite-hybrid-mixed.gguf");
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(file->weights.quantised);
    EXPECT_GT(file->report.num_quantised, 0);
    EXPECT_GT(file->report.num_float16, 0);
    EXPECT_GT(file->report.num_float32, 0);
    const auto places = gguf_places(file->config, file->weights);
    const auto wanted_places = gguf_places(checkpoint.config, checkpoint.weights);
    int num_rotary = 0;
    for (size_t i = 0; i < places.size(); ++i) {
        if (places[i].vector) continue;
        const MatrixView& got = *places[i].matrices.front();
        const MatrixView& wanted = *wanted_places[i].matrices.front();
        if (!got.is_quantised()) {
            expect_near(got, wanted, places[i].name);
            continue;
        }
        num_rotary += places[i].rows.changes() ? 1 : 0;
        std::vector<float> row(static_cast<size_t>(wanted.cols));
        std::vector<std::byte> blocks(static_cast<size_t>(got.format->row_bytes(wanted.cols)));
        for (int64_t r = 0; r < wanted.rows; ++r) {
            wanted.read_row(r, row);
            quantise(*got.format, row, blocks);
            ASSERT_TRUE(std::ranges::equal(got.slice_rows(r, 1).bytes(), blocks)) << places[i].name << " row " << r;
        }
    }
    EXPECT_GT(num_rotary, 0);
}

// Of the root mean square.
double relative_error(const std::vector<float>& got, const std::vector<float>& exact) {
    double error = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < exact.size(); ++i) {
        error += std::pow(got[i] - exact[i], 2);
        norm += std::pow(exact[i], 2);
    }
    return std::sqrt(error / norm);
}

// --- files of this program

class WrittenGguf : public testing::TestWithParam<std::string> {
protected:
    static ModelConfig config() {
        const bool is_next = GetParam() == "qwen3-next";
        ModelConfig config = tests::in_whole_blocks(*preset(is_next ? "tiny-qwen3.5-moe" : GetParam()));
        if (is_next) config.architecture = Architecture::kQwen3Next;
        for (LayerConfig& layer : config.layers)
            if (layer.delta) layer.delta->value_dim = 16;
        for (LayerConfig& layer : config.layers)
            if (is_next) layer.moe->n_chosen = layer.moe->n_experts;  // rounding changes no choice
        return config;
    }
    // A model whose A_log are bf16, as in published checkpoints, and whose norms are w where 1 + w is.
    Model random_model() {
        Model model = make_random_model(config(), 43);
        for (const GgufPlace& place : gguf_places(model.config, model.weights)) {
            if (place.change == GgufChange::kNone) continue;
            std::vector<float>& rounded = rounded_.emplace_back();
            for (const float value : *place.vector)
                rounded.push_back(place.change == GgufChange::kNegativeExp ? bf16_value(value) : (1 + value) - 1);
            *place.vector = rounded;
        }
        return model;
    }
    std::string written(Model& model, std::string_view format) {
        const auto metadata = gguf_metadata(model.config);
        EXPECT_TRUE(metadata.has_value());
        if (!metadata) return metadata.error().message;
        std::string file;
        const Status status = write_gguf(model.config, model.weights, *find_block_format(format), metadata->view(),
                                         [&](std::string_view bytes) -> Status {
                                             file += bytes;
                                             return {};
                                         });
        EXPECT_TRUE(status) << status.error().message;
        return file;
    }
    ScratchFolder scratch_;
    std::deque<std::vector<float>> rounded_;
};

TEST_P(WrittenGguf, InBf16IsReadBackBitForBit) {
    Model model = random_model();
    auto again = load_model(scratch_.write("model.gguf", written(model, "BF16")));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_FALSE(again->weights.quantised);
    expect_same_weights(*again, model);
    EXPECT_TRUE(same_bits(last_logits(*again), last_logits(model)));
}

TEST_P(WrittenGguf, InQ8AndQ4IsCloseToTheModel) {
    Model model = random_model();
    const std::vector<float> exact = last_logits(model);
    double before = 0.0;
    for (const std::string_view format : {"Q8_0", "Q4_0"}) {
        auto again = load_model(scratch_.write("model.gguf", written(model, format)));
        ASSERT_TRUE(again) << again.error().message;
        EXPECT_TRUE(again->weights.quantised);
        const auto& delta = again->config.layers[0].delta;
        if (delta) EXPECT_EQ(delta->tiled_values, again->config.architecture != Architecture::kQwen3Next);
        const double relative = relative_error(last_logits(*again), exact);
        EXPECT_GT(relative, before) << format;  // Q4_0 is farther than Q8_0
        EXPECT_LT(relative, format == "Q8_0" ? 0.1 : 1.1) << format;
        before = relative;
    }
}

// The head in Q6_K, and rows that are not whole blocks of 256 in Q5_0.
TEST(LoadGguf, Q4KIsWrittenInTheTypesThatLlamaCppChooses) {
    for (const bool tied : {true, false}) {
        ModelConfig config = tests::in_whole_blocks(*preset("tiny-llama"), 256);
        config.tie_word_embeddings = tied;
        Model model = make_random_model(config, 43);
        const auto metadata = *gguf_metadata(config);
        std::string file;
        ASSERT_TRUE(write_gguf(config, model.weights, *find_block_format("Q4_K"), metadata.view(),
                               [&](std::string_view bytes) -> Status {
                                   file += bytes;
                                   return {};
                               }));
        const auto contents = *parse_gguf(std::as_bytes(std::span(file)), "llama");
        std::map<std::string, std::string_view> types;
        for (const GgufTensor& tensor : contents.tensors) types[std::string(tensor.name)] = tensor.format->name;
        EXPECT_EQ(types["token_embd.weight"], tied ? "Q6_K" : "Q4_K");
        if (!tied) EXPECT_EQ(types["output.weight"], "Q6_K");
        EXPECT_EQ(types["blk.0.attn_q.weight"], "Q4_K");
        EXPECT_EQ(types["blk.0.ffn_down.weight"], "Q5_0") << "rows of 96";
        EXPECT_EQ(types["blk.0.attn_norm.weight"], "F32");
        const ScratchFolder scratch;
        auto again = load_model(scratch.write("model.gguf", file));
        ASSERT_TRUE(again) << again.error().message;
        const std::vector<float> exact = last_logits(model);
        EXPECT_LT(relative_error(last_logits(*again), exact), 0.4);
    }
}

INSTANTIATE_TEST_SUITE_P(Families, WrittenGguf,
                         testing::Values("tiny-granite", "tiny-granite-moe", "tiny-llama", "tiny-mamba2",
                                         "tiny-nemotron-h", "tiny-bamba", "tiny-nemotron-moe", "tiny-qwen3.5",
                                         "tiny-qwen3.5-moe", "qwen3-next"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::ranges::replace_if(
                                 name, [](char c) { return c == '-' || c == '.'; }, '_');
                             return name;
                         });

// Of Llama 3.1 and 3.2.
TEST(LoadGguf, DivisorsOfNoKnownScalingAreAnError) {
    Model model = make_random_model(tests::in_whole_blocks(*preset("tiny-llama")), 5);
    const RopeConfig rope = model.config.layers[0].attention->rope;
    ASSERT_EQ(rope.kind, RopeKind::kLlama3);
    const auto metadata = *gguf_metadata(model.config);
    std::string file;
    ASSERT_TRUE(write_gguf(model.config, model.weights, *find_block_format("Q8_0"), metadata.view(),
                           [&](std::string_view bytes) -> Status {
                               file += bytes;
                               return {};
                           }));
    const auto contents = *parse_gguf(std::as_bytes(std::span(file)), "llama");
    const GgufTensor& divisors = contents.tensors.back();
    ASSERT_EQ(divisors.name, "rope_freqs.weight");
    const ScratchFolder scratch;
    const auto loaded = load_model(scratch.write("sound.gguf", file));
    ASSERT_TRUE(loaded) << loaded.error().message;
    EXPECT_EQ(loaded->config.layers[0].attention->rope, rope);
    const float wrong = 3.0F;
    std::memcpy(file.data() + (divisors.bytes.data() - reinterpret_cast<const std::byte*>(file.data())), &wrong,
                sizeof(wrong));
    const auto refused = load_model(scratch.write("changed.gguf", file));
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("rope_freqs.weight: its 8 divisors are not those of a scaling"),
              std::string::npos)
        << refused.error().message;
}

// --- wrong files

// A file with some metadata changed and some tensors renamed.
class ChangedGguf : public testing::Test {
protected:
    ChangedGguf() : file_(*MappedFile::open(kGgufFolder / "granite-hybrid-bf16.gguf")) {
        contents_ = *parse_gguf(file_.bytes(), "granite");
    }
    std::string error_of() {
        std::vector<GgufLayout> layouts;
        std::string data;
        for (const GgufTensor& tensor : contents_.tensors) {
            layouts.push_back({std::string(tensor.name), tensor.shape, tensor.format});
            data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
            data.resize((data.size() + 31) / 32 * 32);
        }
        const auto path = scratch_.write("changed.gguf", gguf_prefix(contents_.metadata, layouts) + data);
        const auto model = load_model(path);
        return model ? "" : model.error().message;
    }
    GgufTensor& tensor(std::string_view name) { return *std::ranges::find(contents_.tensors, name, &GgufTensor::name); }
    MappedFile file_;
    GgufContents contents_;
    ScratchFolder scratch_;
};

TEST_F(ChangedGguf, IsAnErrorThatSaysWhat) {
    EXPECT_EQ(error_of(), "");
    const auto expect = [&](std::string_view wanted) {
        const std::string got = error_of();
        EXPECT_NE(got.find(wanted), std::string::npos) << got;
    };
    const GgufContents sound = contents_;
    contents_.metadata["general.architecture"] = std::string_view("gemma3");
    expect("general.architecture = \"gemma3\" is not supported in GGUF files: granitehybrid, llama,");
    contents_ = sound;
    contents_.metadata.erase("general.architecture");
    expect("general.architecture is missing");
    contents_ = sound;
    contents_.metadata["granitehybrid.attention.sliding_window"] = int64_t{512};
    expect("\"granitehybrid.attention.sliding_window\" = 512: the key is not known for this architecture");
    contents_ = sound;
    contents_.metadata["granitehybrid.ssm.state_size"] = std::string_view("big");
    expect("granitehybrid.ssm.state_size = \"big\", wanted a natural number");
    contents_ = sound;
    contents_.metadata["granitehybrid.ssm.time_step_rank"] = int64_t{0};
    expect("changed.gguf: ");
    contents_ = sound;
    contents_.metadata["granitehybrid.block_count"] = int64_t{2'000'000'000};
    expect("block_count");
    contents_ = sound;
    tensor("blk.0.ssm_a").name = "blk.0.ssm_b";
    expect("tensor blk.0.ssm_a of shape");
    contents_ = sound;
    std::swap(tensor("blk.0.ssm_in.weight").shape[0], tensor("blk.0.ssm_in.weight").shape[1]);
    expect("blk.0.ssm_in.weight has shape");
    contents_ = sound;
    tensor("blk.0.ssm_a").name = "blk.0.swap";
    tensor("blk.0.ssm_d").name = "blk.0.ssm_a";
    tensor("blk.0.swap").name = "blk.0.ssm_d";
    expect("blk.0.ssm_a has the value");  // D is positive
}

TEST(LoadGguf, MutatedFilesAreLoadedOrRefused) {
    const MappedFile sound = *MappedFile::open(kGgufFolder / "granite-hybrid-mixed.gguf");
    const auto contents = *parse_gguf(sound.bytes(), "granite");
    const auto header = static_cast<size_t>(contents.tensors.front().bytes.data() - sound.bytes().data());
    const ScratchFolder scratch;
    std::mt19937_64 random(44);
    int num_loaded = 0;
    for (int i = 0; i < 200; ++i) {
        std::string file(reinterpret_cast<const char*>(sound.bytes().data()), sound.bytes().size());
        for (int change = 0; change < 1 + i % 3; ++change) file[random() % header] = static_cast<char>(random());
        num_loaded += load_model(scratch.write("mutated.gguf", file)) ? 1 : 0;
    }
    EXPECT_LT(num_loaded, 150);
    EXPECT_GT(num_loaded, 0);
}

TEST(LogOfDecay, FindsTheBf16NumberThatTheConverterStartedFrom) {
    for (int32_t i = 1; i < 1000; ++i) {
        const float a_log = bf16_value(std::log(static_cast<float>(i) / 50.0F));
        EXPECT_EQ(log_of_decay(-std::exp(a_log)), a_log) << i;
    }
}

TEST(LogOfDecay, IsTheLogarithmOtherwise) {
    const float a = -std::exp(1.2345678F);
    EXPECT_NEAR(log_of_decay(a), 1.2345678F, 1e-6F);
}

}  // namespace
}  // namespace verbatim::reference
