// GGUF files of a second writer (make_gguf.py does what llama.cpp's converter does) are the checkpoints that they were
// made from: the same configuration, the same bits of every weight and logit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "reference/loader/gguf.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/gguf_tensors.h"
#include "reference/loader/load_model.h"
#include "reference/loader/model_choice.h"
#include "reference/loader/stored_weights_of.h"
#include "reference/model/mtp_layer.h"
#include "reference/model/random_model.h"
#include "tests/reference/loader/golden_checkpoint.h"
#include "tests/reference/loader/same_model.h"

namespace verbatim::reference {
namespace {

using ::testing::HasSubstr;

// The bytes of the folder's file.
std::string convert(const std::filesystem::path& folder, const std::string& flags = "") {
    const tests::ScratchFolder scratch;
    const std::string out = scratch.path() / "model.gguf";
    const std::string command = "python3 " VERBATIM_SOURCE_DIR "/tests/reference/loader/make_gguf.py " +
                                folder.string() + " " + out + " " + flags;
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return read_file(out);
}

// Of a golden checkpoint, made once.
const std::string& converted(const std::string& golden) {
    static std::map<std::string, std::string> files;
    const auto [entry, is_new] = files.try_emplace(golden);
    if (is_new) entry->second = convert(golden_folder(golden));
    return entry->second;
}

class ConvertedGguf : public testing::TestWithParam<const char*> {
protected:
    tests::ScratchFolder scratch_;
};

TEST_P(ConvertedGguf, IsTheCheckpointBitForBit) {
    Model checkpoint = *load_model(golden_folder(GetParam()));
    auto file = load_model(scratch_.write("model.gguf", converted(GetParam())));
    ASSERT_TRUE(file) << file.error().message;
    expect_same_weights(*file, checkpoint);
    EXPECT_TRUE(same_bits(last_logits(*file), last_logits(checkpoint)));
    EXPECT_EQ(*model_digest(*file), *model_digest(checkpoint));
    EXPECT_EQ(file->report.num_parameters, checkpoint.report.num_parameters);
}

TEST_P(ConvertedGguf, MutatedIsLoadedOrRefused) {
    const std::string sound = converted(GetParam());
    const auto contents = *parse_gguf(std::as_bytes(std::span(sound)), "sound");
    const auto header =
        static_cast<size_t>(reinterpret_cast<const char*>(contents.tensors.front().bytes.data()) - sound.data());
    std::mt19937_64 random(44);
    int num_loaded = 0;
    for (int i = 0; i < 100; ++i) {
        std::string file = sound;
        for (int change = 0; change < 1 + i % 3; ++change) file[random() % header] = static_cast<char>(random());
        const auto path = scratch_.write("mutated.gguf", file);
        num_loaded += load_model(path) ? 1 : 0;
        (void)load_model(path, {.mtp = true});
        (void)find_quantised_checkpoint(path);
    }
    EXPECT_LT(num_loaded, 75);
}

INSTANTIATE_TEST_SUITE_P(Families, ConvertedGguf,
                         testing::Values("bamba", "nemotron-moe", "nemotron-moe-latent", "qwen35", "qwen35-moe",
                                         "qwen3-next"),
                         [](const auto& info) {
                             std::string name = info.param;
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

TEST(ConvertedGguf, GateAndUpOfExpertsMayBeOneMatrix) {
    const tests::ScratchFolder scratch;
    Model checkpoint = *load_model(golden_folder("qwen35-moe"));
    auto file = load_model(scratch.write("model.gguf", convert(golden_folder("qwen35-moe"), "--fuse-experts")));
    ASSERT_TRUE(file) << file.error().message;
    expect_same_weights(*file, checkpoint);
}

// --- changed files

// A file with metadata and names of tensors changed.
class ChangedFile {
public:
    explicit ChangedFile(const std::string& bytes)
        : bytes_(bytes), contents_(*parse_gguf(std::as_bytes(std::span(bytes_)), "sound")) {}
    GgufMetadata& metadata() { return contents_.metadata; }
    void rename(const std::string& name, const std::string& to) {
        std::ranges::find(contents_.tensors, name, &GgufTensor::name)->name = names_.emplace_back(to);
    }
    // Puts the tensor in blocks of a format.
    void quantise(std::string_view name, const BlockFormat& format) {
        GgufTensor& tensor = *std::ranges::find(contents_.tensors, name, &GgufTensor::name);
        std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
        dequantise(*tensor.format, tensor.bytes, values);
        const int64_t num_bytes = format.row_bytes(std::ssize(values));
        std::vector<std::byte>& blocks = blocks_.emplace_back(static_cast<size_t>(num_bytes));
        reference::quantise(format, values, blocks);
        tensor.format = &format;
        tensor.bytes = blocks;
    }
    [[nodiscard]] std::filesystem::path write() const {
        std::vector<GgufLayout> layouts;
        std::string data;
        for (const GgufTensor& tensor : contents_.tensors) {
            layouts.push_back({std::string(tensor.name), tensor.shape, tensor.format});
            data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
            data.resize((data.size() + 31) / 32 * 32);
        }
        return scratch_.write("changed.gguf", gguf_prefix(contents_.metadata, layouts) + data);
    }
    [[nodiscard]] std::string error() const {
        const auto model = load_model(write());
        return model ? "" : model.error().message;
    }

private:
    tests::ScratchFolder scratch_;
    const std::string& bytes_;
    GgufContents contents_;
    std::deque<std::string> names_;
    std::deque<std::vector<std::byte>> blocks_;
};

// --- the layer that predicts more tokens

FileTensor random_tensor(const CheckpointTensor& tensor) {
    std::vector<uint16_t> values(static_cast<size_t>(tensor.num_elements()));
    fill_random_matrix(tensor, 3, 0, values);
    return {{tensor.name, TensorDtype::kBf16, tensor.shape},
            std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(uint16_t))};
}

// Puts a whole layer of random weights in the place of the golden file's single tensor of it.
void put_prediction_layer(const Checkpoint& checkpoint) {
    const Model model = *load_model(checkpoint.path());
    ModelWeights shapes;
    const ModelConfig config = *mtp_config(model.config);
    checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
        std::erase_if(tensors, [](const FileTensor& tensor) { return tensor.layout.name.starts_with("mtp."); });
        for (const CheckpointTensor& tensor : checkpoint_tensors(config, shapes))
            tensors.push_back(random_tensor(tensor));
    });
}

TEST(ConvertedGguf, TheLayerThatPredictsIsTheCheckpoints) {
    for (const char* golden : {"qwen35", "qwen35-moe"}) {
        const tests::ScratchFolder scratch;
        const Checkpoint checkpoint(golden);
        put_prediction_layer(checkpoint);
        auto wanted = load_model(checkpoint.path(), {.mtp = true});
        ASSERT_TRUE(wanted) << wanted.error().message;
        auto file = load_model(scratch.write("model.gguf", convert(checkpoint.path())), {.mtp = true});
        ASSERT_TRUE(file) << file.error().message;
        ASSERT_TRUE(file->mtp);
        expect_same_weights(*file->mtp, *wanted->mtp);
        expect_same_weights(*file, *wanted);
        EXPECT_EQ(file->mtp->weights.lm_head.data, file->weights.lm_head.data);
        EXPECT_EQ(file->report.num_skipped_mtp, 0);
    }
}

// Each half of a row is whole blocks.
TEST(ConvertedGguf, AQuantisedFusionIsSplitByBlocks) {
    const Checkpoint checkpoint("qwen35");
    put_prediction_layer(checkpoint);
    const std::string sound = convert(checkpoint.path());
    ChangedFile file(sound);
    file.quantise("blk.4.nextn.eh_proj.weight", *find_block_format("Q8_0"));
    const auto plain = load_model(checkpoint.path(), {.mtp = true});
    const auto model = load_model(file.write(), {.mtp = true});
    ASSERT_TRUE(model) << model.error().message;
    const InputWeights& got = model->mtp->weights.input;
    const InputWeights& wanted = plain->mtp->weights.input;
    for (const auto view : {&InputWeights::embedding, &InputWeights::hidden}) {
        ASSERT_TRUE((got.*view).is_quantised());
        std::vector<float> row(64);
        std::vector<float> exact(64);
        for (int64_t r = 0; r < 64; ++r) {
            (got.*view).read_row(r, row);
            (wanted.*view).read_row(r, exact);
            for (size_t c = 0; c < row.size(); ++c) ASSERT_NEAR(row[c], exact[c], 0.01) << r << " " << c;
        }
    }
}

TEST(ConvertedGguf, WhereNothingAsksForTheLayerItsTensorsAreCounted) {
    const tests::ScratchFolder scratch;
    const Checkpoint checkpoint("qwen35");
    put_prediction_layer(checkpoint);
    const auto path = scratch.write("model.gguf", convert(checkpoint.path()));
    const auto file = load_model(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_FALSE(file->mtp);
    EXPECT_EQ(file->report.num_skipped_mtp, 15);
    EXPECT_EQ(file->config, load_model(golden_folder("qwen35"))->config);
    const auto stored = find_quantised_checkpoint(path);
    ASSERT_TRUE(stored) << stored.error().message;
    EXPECT_EQ((*stored)->config.layers.size(), 4);
}

TEST(ConvertedGguf, AFileWithoutTheLayerSaysSo) {
    const tests::ScratchFolder scratch;
    const auto file = load_model(scratch.write("model.gguf", converted("qwen35")), {.mtp = true});
    ASSERT_FALSE(file);
    EXPECT_THAT(file.error().message, HasSubstr("has 0 layers that predict more tokens, wanted 1"));
}

// --- what the metadata says

struct Change {
    const char* golden;
    const char* key;
    GgufValue value;
    const char* problem;
};

TEST(ConvertedGguf, MetadataThatIsNotTheFamilysIsRefusedByName) {
    for (const Change& change : std::vector<Change>{
             {"qwen35", "qwen35.nextn_predict_layers", int64_t{4}, "nextn_predict_layers = 4, wanted less than"},
             {"qwen35", "qwen35.full_attention_interval", int64_t{3}, "blk.2.attn_q.weight of shape"},
             {"qwen35", "qwen35.rope.scaling.type", std::string_view("yarn"), "rope.scaling.type = \"yarn\""},
             {"qwen35", "qwen35.ssm.inner_size", int64_t{63}, "ssm.inner_size = 63, wanted a multiple"},
             {"qwen35", "qwen35.attention.key_length", int64_t{15}, "attention.key_length = 15, wanted an even number"},
             {"qwen35", "qwen35.block_count", int64_t{0}, "num_hidden_layers"},
             {"qwen35-moe", "qwen35moe.expert_weights_norm", false, "expert_weights_norm = false"},
             {"qwen35-moe", "qwen35moe.expert_gating_func", int64_t{2}, "expert_gating_func = 2, wanted 1"},
             {"qwen3-next", "qwen3next.expert_weights_scale", 2.5, "expert_weights_scale = 2.5, wanted 1"},
             {"nemotron-moe", "nemotron_h_moe.expert_shared_count", int64_t{2}, "n_shared_experts = 2"},
             {"nemotron-moe", "nemotron_h_moe.attention.layer_norm_epsilon", 0.5,
              "attention.layer_norm_epsilon is not"},
             {"bamba", "granitehybrid.embedding_scale", 12.0, "rope.dimension_count"}}) {
        ChangedFile file(converted(change.golden));
        file.metadata()[change.key] = change.value;
        EXPECT_THAT(file.error(), HasSubstr(change.problem)) << change.key;
    }
}

TEST(ConvertedGguf, TensorsOfOtherFormsAreRefusedByName) {
    ChangedFile older(converted("qwen3-next"));
    older.rename("blk.0.attn_qkv.weight", "blk.0.ssm_in.weight");
    EXPECT_THAT(older.error(), HasSubstr("blk.0.ssm_in.weight: q, k, v and z in one matrix are not read"));
    ChangedFile without(converted("nemotron-moe-latent"));
    for (const char* block : {"blk.0.", "blk.4."})
        without.rename(std::string(block) + "ffn_gate_inp.weight", std::string(block) + "router");
    EXPECT_THAT(without.error(), HasSubstr("no layer has experts (ffn_gate_inp.weight)"));
    ChangedFile extra(converted("qwen35"));
    extra.rename("blk.0.ssm_a", "blk.4.ssm_a");
    EXPECT_THAT(extra.error(), HasSubstr("tensor blk.0.ssm_a of shape [4] is missing"));
}

// --- the document

// The names in backticks of a text.
std::set<std::string> quoted_names(std::string_view text) {
    std::set<std::string> names;
    for (size_t at = text.find('`'); at != std::string_view::npos; at = text.find('`', at)) {
        const size_t end = text.find('`', at + 1);
        if (end == std::string_view::npos) break;
        names.insert(std::string(text.substr(at + 1, end - at - 1)));
        at = end + 1;
    }
    return names;
}

// The first column of the table of docs/models.md, against the architectures that an error message lists.
TEST(GgufDocument, ItsTableHasTheArchitecturesThatAreRead) {
    const std::string page = read_file(VERBATIM_SOURCE_DIR "/docs/models.md");
    const size_t table = page.find("| `general.architecture` |");
    ASSERT_NE(table, std::string::npos);
    std::set<std::string> documented;
    std::istringstream lines(page.substr(table, page.find("\n\n", table) - table));
    for (std::string line; std::getline(lines, line);)
        documented.merge(quoted_names(line.substr(0, line.find('|', 1))));
    documented.erase("general.architecture");
    ChangedFile file(converted("bamba"));
    file.metadata()["general.architecture"] = std::string_view("none");
    const std::string problem = file.error();
    std::string names = problem.substr(problem.rfind("files: ") + 7);
    std::set<std::string> read;
    for (size_t at = 0; at < names.size();) {
        const size_t end = names.find_first_of(", ", at);
        if (end == std::string::npos) break;
        if (end > at) read.insert(names.substr(at, end - at));
        at = end + 1;
    }
    EXPECT_EQ(documented, read) << problem;
}

// --- orders

RC_GTEST_PROP(GgufOrder, IsAPermutationThatTheOtherDirectionUndoes, ()) {
    const auto some = [] { return *rc::gen::inRange<int64_t>(1, 5); };
    const GgufOrder order{some() - 1, some(), some(), some()};
    const int64_t count = order.first + some() * order.n_outer * order.n_inner * order.run;
    std::set<int64_t> places;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t place = order.in_file(i);
        RC_ASSERT(place >= 0 && place < count);
        RC_ASSERT(order.in_checkpoint(place) == i);
        places.insert(place);
    }
    RC_ASSERT(std::ssize(places) == count);
}

}  // namespace
}  // namespace verbatim::reference
