// Loading checkpoints of Qwen's families: names of parts and prefixes, experts filed in two ways, rows in groups.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "reference/loader/load_model.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/scaled_blocks.h"
#include "reference/model/weight_storage.h"
#include "tests/reference/loader/golden_checkpoint.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

// Parts that are not the language model are left out by name, and counted.
TEST(LoadQwen, PartsOfOtherModalitiesAreLeftOutByName) {
    const Checkpoint checkpoint("qwen35");
    const Model whole = *load_model(checkpoint.path());
    EXPECT_EQ(whole.report.num_skipped, 2);
    checkpoint.change_tensors(kFile, [](auto& t) {
        std::erase_if(t, [](auto& x) { return !x.layout.name.starts_with("model.language_model."); });
    });
    const auto without = load_model(checkpoint.path());
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_EQ(without->report.num_skipped, 0);
    EXPECT_EQ(without->report.num_parameters, whole.report.num_parameters);
    checkpoint.change_tensors(kFile, [](auto& t) {
        t.push_back({{"model.language_model.visual.norm.weight", TensorDtype::kBf16, {1}}, "00"});
    });
    const auto extra = load_model(checkpoint.path());
    ASSERT_FALSE(extra);
    EXPECT_NE(extra.error().message.find("visual.norm.weight\" of shape [1] is not part of"), std::string::npos);
}

// As transformers saves the language model alone.
TEST(LoadQwen, ATextOnlyCheckpointIsTheSameModel) {
    const Checkpoint checkpoint("qwen35");
    const Model published = *load_model(golden_folder("qwen35"));
    checkpoint.change_json("config.json", [](Json& json) {
        json = Json(json["text_config"]);
        json["architectures"] = {"Qwen3_5ForCausalLM"};
    });
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        std::erase_if(tensors, [](auto& t) { return t.layout.name.find("visual") != std::string::npos; });
        for (FileTensor& tensor : tensors) {
            const size_t at = tensor.layout.name.find("language_model.");
            if (at != std::string::npos) tensor.layout.name.erase(at, std::string("language_model.").size());
        }
    });
    const auto text = load_model(checkpoint.path());
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->config, published.config);
    EXPECT_EQ(text->report.num_skipped, 1);
    const auto& [got, wanted] = std::pair(text->weights.layers[1].delta.z, published.weights.layers[1].delta.z);
    EXPECT_TRUE(std::equal(got.data, got.data + got.rows * got.cols, wanted.data));
}

// Vectors that are binary32 in the file are not rounded, matrices that are become bf16, and that is said.
TEST(LoadQwen, VectorsKeepTheirBinary32) {
    const Checkpoint checkpoint("qwen35");
    const float a_log[] = {0.1F, 0.2F, 0.3F, 0.4F};  // none of them a bf16
    checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
        FileTensor& tensor = find_tensor(tensors, "model.language_model.layers.0.linear_attn.A_log");
        ASSERT_EQ(tensor.layout.dtype, TensorDtype::kF32);
        tensor.bytes.assign(reinterpret_cast<const char*>(a_log), sizeof(a_log));
    });
    const Model model = *load_model(checkpoint.path());
    EXPECT_TRUE(std::ranges::equal(model.weights.layers[0].delta.a_log, a_log));
    EXPECT_EQ(model.report.num_rounded, 0);
}

bool same_rows(const MatrixView& a, const MatrixView& b) {
    return a.rows == b.rows && a.cols == b.cols && std::equal(a.data, a.data + a.rows * a.cols, b.data);
}

void expect_same_experts(const MoeWeights& got, const MoeWeights& wanted) {
    ASSERT_EQ(got.experts.size(), wanted.experts.size());
    for (size_t e = 0; e < got.experts.size(); ++e) {
        EXPECT_TRUE(same_rows(got.experts[e].gate, wanted.experts[e].gate)) << e;
        EXPECT_TRUE(same_rows(got.experts[e].up, wanted.experts[e].up)) << e;
        EXPECT_TRUE(same_rows(got.experts[e].down, wanted.experts[e].down)) << e;
    }
}

// The two tensors of all experts of a layer as three of each, as transformers saves them again.
FileTensors one_by_one(const FileTensors& tensors) {
    FileTensors split;
    for (const FileTensor& tensor : tensors) {
        const std::string& name = tensor.layout.name;
        const bool is_in = name.ends_with(".experts.gate_up_proj");
        if (!is_in && !name.ends_with(".experts.down_proj")) {
            split.push_back(tensor);
            continue;
        }
        const std::string root = name.substr(0, name.rfind('.') + 1);
        const int64_t n_experts = tensor.layout.shape[0];
        const size_t bytes = tensor.bytes.size() / static_cast<size_t>(n_experts);
        for (int64_t e = 0; e < n_experts; ++e) {
            const std::string own = tensor.bytes.substr(static_cast<size_t>(e) * bytes, bytes);
            const auto add = [&](const char* which, const std::string& part, int64_t rows) {
                split.push_back({{fmt::format("{}{}.{}.weight", root, e, which),
                                  tensor.layout.dtype,
                                  {rows, tensor.layout.shape[2]}},
                                 part});
            };
            if (!is_in) add("down_proj", own, tensor.layout.shape[1]);
            if (is_in) add("gate_proj", own.substr(0, bytes / 2), tensor.layout.shape[1] / 2);
            if (is_in) add("up_proj", own.substr(bytes / 2), tensor.layout.shape[1] / 2);
        }
    }
    return split;
}

// Published Qwen3.5 has the experts of a layer in two tensors, what is saved again has them one by one; and the heads
// that are skipped may have them in the other way.
TEST(LoadQwenMoe, ExpertsInSeparateTensorsAreTheSameModel) {
    const Model together = *load_model(golden_folder("qwen35-moe"));
    const Checkpoint checkpoint("qwen35-moe");
    const std::string foreign = "mtp.layers.0.mlp.experts.gate_up_proj";
    checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
        tensors = one_by_one(tensors);
        tensors.push_back({{foreign, TensorDtype::kBf16, {1}}, "00"});
    });
    const auto apart = load_model(checkpoint.path());
    ASSERT_TRUE(apart) << apart.error().message;
    EXPECT_EQ(apart->report.num_parameters, together.report.num_parameters);
    EXPECT_EQ(apart->report.num_skipped, together.report.num_skipped + 1);
    for (size_t i = 0; i < 4; ++i) expect_same_experts(apart->weights.layers[i].moe, together.weights.layers[i].moe);
    const MoeWeights& moe = together.weights.layers[0].moe;
    EXPECT_EQ(moe.experts[1].gate.data, moe.experts[0].gate.data + 80 * 64);
    EXPECT_EQ(moe.experts[0].up.data, moe.experts[0].gate.data + 40 * 64);
    EXPECT_EQ(moe.shared_gate.rows, 1);
    EXPECT_EQ(moe.router.size(), 640u);
}

// As transformers saves the language model alone.
TEST(LoadQwenMoe, ATextOnlyCheckpointIsTheSameModel) {
    const Model published = *load_model(golden_folder("qwen35-moe"));
    const Checkpoint checkpoint("qwen35-moe");
    checkpoint.change_json("config.json", [](Json& json) {
        json = Json(json["text_config"]);
        json["architectures"] = {"Qwen3_5MoeForCausalLM"};
    });
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        std::erase_if(tensors, [](auto& t) { return t.layout.name.find("visual") != std::string::npos; });
        for (FileTensor& tensor : tensors) {
            const size_t at = tensor.layout.name.find("language_model.");
            if (at != std::string::npos) tensor.layout.name.erase(at, std::string("language_model.").size());
        }
    });
    const auto text = load_model(checkpoint.path());
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->config, published.config);
    for (size_t i = 0; i < 4; ++i) expect_same_experts(text->weights.layers[i].moe, published.weights.layers[i].moe);
}

// A key head's rows of q and k, then v and z of the value heads that read it; in the other tensor b and a.
TEST(LoadQwenNext, GroupedRowsAreGatheredHeadByHead) {
    const Model model = *load_model(golden_folder("qwen3-next"));
    EXPECT_TRUE(model.canonical);
    FileTensors tensors = read_tensors(read_file(golden_folder("qwen3-next") / kFile));
    const std::string root = "model.layers.2.linear_attn.";
    const FileTensor& qkvz = find_tensor(tensors, root + "in_proj_qkvz.weight");
    const FileTensor& ba = find_tensor(tensors, root + "in_proj_ba.weight");
    constexpr int64_t kBytes = 64 * 2;  // of a row
    const auto expect_row = [&](const MatrixView& view, int64_t row, const FileTensor& file, int64_t file_row) {
        EXPECT_EQ(0, std::memcmp(view.row(row).data(), file.bytes.data() + file_row * kBytes, kBytes))
            << row << " is not row " << file_row << " of " << file.layout.name;
    };
    const DeltaWeights& weights = model.weights.layers[2].delta;
    ASSERT_EQ(weights.in_proj.rows, 2 * 2 * 16 + 4 * 16);
    ASSERT_TRUE(weights.z.rows == 4 * 16 && weights.b.rows == 4 && weights.a.rows == 4);
    for (int64_t head = 0; head < 2; ++head) {  // 96 rows of the file: q 16, k 16, v 2 x 16, z 2 x 16
        for (int64_t i = 0; i < 16; ++i) {
            expect_row(weights.in_proj, head * 16 + i, qkvz, head * 96 + i);
            expect_row(weights.in_proj, 32 + head * 16 + i, qkvz, head * 96 + 16 + i);
        }
    }
    for (int64_t value = 0; value < 4; ++value) {
        const int64_t head = value / 2;
        for (int64_t i = 0; i < 16; ++i) {
            expect_row(weights.in_proj, 64 + value * 16 + i, qkvz, head * 96 + 32 + value % 2 * 16 + i);
            expect_row(weights.z, value * 16 + i, qkvz, head * 96 + 64 + value % 2 * 16 + i);
        }
        expect_row(weights.b, value, ba, head * 4 + value % 2);
        expect_row(weights.a, value, ba, head * 4 + 2 + value % 2);
    }
}

// In binary32 they are rounded first.
TEST(LoadQwenNext, GroupedRowsInBinary32AreTheSame) {
    const Model published = *load_model(golden_folder("qwen3-next"));
    const Checkpoint checkpoint("qwen3-next");
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        FileTensor& tensor = find_tensor(tensors, "model.layers.0.linear_attn.in_proj_qkvz.weight");
        std::string wide;
        for (size_t i = 0; i < tensor.bytes.size(); i += 2) wide += std::string(2, '\0') + tensor.bytes.substr(i, 2);
        tensor.layout.dtype = TensorDtype::kF32;
        tensor.bytes = wide;
    });
    const auto model = load_model(checkpoint.path());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_FALSE(model->canonical);
    EXPECT_EQ(model->report.num_rounded, 0);
    EXPECT_TRUE(same_rows(model->weights.layers[0].delta.in_proj, published.weights.layers[0].delta.in_proj));
    EXPECT_TRUE(same_rows(model->weights.layers[0].delta.z, published.weights.layers[0].delta.z));
}

TEST(LoadQwenNext, MultiTokenPredictionHeadsAreSkippedByName) {
    const Checkpoint checkpoint("qwen3-next");
    const auto before = load_model(checkpoint.path());
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        tensors.push_back({{"mtp.layers.0.input_layernorm.weight", TensorDtype::kBf16, {1}}, "00"});
    });
    const auto after = load_model(checkpoint.path());
    ASSERT_TRUE(before && after);
    EXPECT_EQ(after->report.num_skipped, before->report.num_skipped + 1);
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {  // it has no other modality
        tensors.push_back({{"model.visual.norm.weight", TensorDtype::kBf16, {1}}, "00"});
    });
    EXPECT_FALSE(load_model(checkpoint.path()));
}

// Rows that lie key head by key head are gathered into several matrices.
TEST(LoadQwen, GatheredRowsKeepTheRecipesActivations) {
    Model model = *load_model(golden_folder("qwen3-next"));
    int num_gathered = 0;
    for (const CheckpointTensor& tensor : checkpoint_tensors(model.config, model.weights)) {
        if (tensor.parts.empty()) continue;
        constexpr int64_t kColumns = 128;
        const int64_t rows = tensor.num_elements() / tensor.shape.back();
        const std::vector<std::byte> blocks(static_cast<size_t>(rows * kScaledFp8.row_bytes(kColumns)));
        split_rows(tensor, {nullptr, rows, kColumns, &kScaledFp8, blocks.data(), Fp8Sharing::kGroups},
                   *model.weights.storage);
        for (const CheckpointTensor::Part& part : tensor.parts) {
            EXPECT_EQ(part.view->activations, Fp8Sharing::kGroups) << tensor.name;
            ++num_gathered;
        }
    }
    EXPECT_GT(num_gathered, 0);
}

}  // namespace
}  // namespace verbatim::reference
