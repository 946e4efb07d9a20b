#include "reference/loader/load_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reference/loader/golden_file.h"
#include "reference/numerics/bf16.h"
#include "tests/reference/loader/golden_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kShard1 = "model-00001-of-00002.safetensors";

struct BadCheckpoint {
    std::string claim;
    std::string golden;
    std::function<void(const Checkpoint&)> breaks;
    std::string wanted_error;
};

void PrintTo(const BadCheckpoint& bad, std::ostream* out) { *out << bad.claim; }

// A weight_map entry that leads elsewhere.
std::function<void(const Checkpoint&)> shard_named(const Json& name) {
    return [name](const Checkpoint& c) {
        c.change_json(kIndex, [&](Json& j) { j["weight_map"]["model.norm.weight"] = name; });
    };
}

const std::vector<BadCheckpoint> kBadCheckpoints = {
    {"NoConfig", "llama", [](const auto& c) { c.remove("config.json"); }, "config.json: cannot be opened"},
    {"EmptyConfig", "llama", [](const auto& c) { c.write("config.json", ""); }, "config.json: parse error at line 1"},
    {"NoWeights", "llama", [](const auto& c) { c.remove(kFile); },
     "has neither model.safetensors nor model.safetensors.index.json"},
    {"EmptyWeights", "llama", [](const auto& c) { c.write(kFile, ""); }, "model.safetensors: has 0 bytes"},
    {"WeightsAreAFolder", "llama",
     [](const auto& c) {
         c.remove(kFile);
         fs::create_directory(c.path() / kFile);
     },
     "model.safetensors: is not a regular file"},
    {"WeightsAreAPipe", "llama",
     [](const auto& c) {
         c.remove(kFile);
         ASSERT_EQ(mkfifo((c.path() / kFile).c_str(), 0600), 0);
     },
     "model.safetensors: is not a regular file"},
    {"TruncatedWeights", "llama", [](const auto& c) { c.write(kFile, c.read(kFile).substr(0, 200'000)); },
     "leave the file, which has"},
    {"MissingTensor", "granite-hybrid",
     [](const auto& c) {
         c.change_tensors(
             kFile, [](auto& t) { std::erase_if(t, [](auto& x) { return x.layout.name == "model.norm.weight"; }); });
     },
     "tensor model.norm.weight of shape [64] is missing: is this the right config?"},
    {"ExtraTensor", "granite-hybrid",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             t.push_back({{"model.layers.0.extra", TensorDtype::kBf16, {1}}, "00"});
         });
     },
     "tensor \"model.layers.0.extra\" of shape [1] is not part of a GraniteMoeHybridForCausalLM"},
    {"BiasThatTheConfigDenies", "llama",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             t.push_back({{"model.layers.0.self_attn.q_proj.bias", TensorDtype::kBf16, {64}}, std::string(128, '\0')});
         });
     },
     "q_proj.bias\" of shape [64] is not part of"},
    {"MisshapedMatrix", "llama",
     [](const auto& c) { c.change_json("config.json", [](Json& j) { j["intermediate_size"] = 175; }); },
     "model.layers.0.mlp.gate_proj.weight has shape [176, 64], config.json wants [175, 64]: is this the right config?"},
    {"MisshapedVector", "mamba2",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) { find_tensor(t, "backbone.layers.0.mixer.D").layout.shape = {8, 1}; });
     },
     "backbone.layers.0.mixer.D has shape [8, 1], config.json wants [8]"},
    {"ShapesOfALargerModel", "llama",
     [](const auto& c) { c.change_json("config.json", [](Json& j) { j["vocab_size"] = 16'000'000; }); },
     "config.json wants [16000000, 64]"},
    {"MissingExpert", "nemotron-moe",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             std::erase_if(t, [](auto& x) { return x.layout.name.ends_with("experts.7.up_proj.weight"); });
         });
     },
     "tensor backbone.layers.1.mixer.experts.7.up_proj.weight of shape [40, 64] is missing"},
    {"ExpertBeyondTheLast", "nemotron-moe",
     [](const auto& c) { c.change_json("config.json", [](Json& j) { j["n_routed_experts"] = 11; }); },
     "backbone.layers.1.mixer.gate.weight has shape [12, 64], config.json wants [11, 64]"},
    {"FusedExpertsOfAnotherNumber", "granite-moe",
     [](const auto& c) { c.change_json("config.json", [](Json& j) { j["num_local_experts"] = 9; }); },
     "block_sparse_moe.router.layer.weight has shape [10, 64], config.json wants [9, 64]"},
    {"FusedExpertsOfAnotherWidth", "qwen35-moe",
     [](const auto& c) {
         c.change_json("config.json", [](Json& j) { j["text_config"]["moe_intermediate_size"] = 20; });
     },
     "layers.0.mlp.experts.gate_up_proj has shape [10, 80, 64], config.json wants [10, 40, 64]"},
    {"ExpertsFiledInBothWays", "qwen35-moe",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             t.push_back(
                 {{"model.language_model.layers.0.mlp.experts.0.gate_proj.weight", TensorDtype::kBf16, {1}}, "00"});
         });
     },
     // Whichever comes first in the file decides; the other is too much or too little.
     "model.language_model.layers.0.mlp.experts."},
    {"NoSharedGate", "qwen35-moe",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             std::erase_if(t, [](auto& x) { return x.layout.name.ends_with("3.mlp.shared_expert_gate.weight"); });
         });
     },
     "layers.3.mlp.shared_expert_gate.weight of shape [1, 64] is missing"},
    {"MissingExpertOfNext", "qwen3-next",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             std::erase_if(t,
                           [](auto& x) { return x.layout.name.ends_with("layers.2.mlp.experts.9.down_proj.weight"); });
         });
     },
     "tensor model.layers.2.mlp.experts.9.down_proj.weight of shape [64, 40] is missing"},
    {"ExpertsOfADenseLayer", "qwen3-next",
     [](const auto& c) { c.change_json("config.json", [](Json& j) {
                             j["mlp_only_layers"] = {0, 1};
                         }); },
     "tensor model.layers.0.mlp.gate_proj.weight of shape [96, 64] is missing"},
    {"GroupedRowsOfOtherHeads", "qwen3-next",
     [](const auto& c) { c.change_json("config.json", [](Json& j) { j["linear_num_value_heads"] = 6; }); },
     "model.layers.0.linear_attn.in_proj_qkvz.weight has shape [192, 64], config.json wants [256, 64]"},
    {"IntegerWeights", "llama",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) { find_tensor(t, "model.norm.weight").layout.dtype = TensorDtype::kI16; });
     },
     "model.norm.weight has dtype I16, wanted BF16, F16 or F32: is the checkpoint quantised?"},
    {"TiedHeadThatDiffers", "llama",
     [](const auto& c) {
         c.change_tensors(kFile, [](auto& t) {
             FileTensor head = find_tensor(t, "model.embed_tokens.weight");
             head.layout.name = "lm_head.weight";
             head.bytes[17] ^= 1;
             t.push_back(head);
         });
     },
     "lm_head.weight is not the embedding, config.json says tie_word_embeddings = true"},
    {"IndexIsNoJson", "granite-rope", [](const auto& c) { c.write(kIndex, "weight_map"); }, "index.json: parse error"},
    {"ConfigEndsInANul", "llama",
     [](const auto& c) { c.write("config.json", c.read("config.json") + std::string("\0}", 2)); },
     "config.json: NUL byte at line "},
    {"IndexEndsInANul", "granite-rope", [](const auto& c) { c.write(kIndex, c.read(kIndex) + std::string("\0}", 2)); },
     "index.json: NUL byte at line "},
    {"IndexIsAList", "granite-rope", [](const auto& c) { c.write(kIndex, "[]"); }, "wanted an object"},
    {"IndexHasNoMap", "granite-rope", [](const auto& c) { c.write(kIndex, "{}"); }, "weight_map is missing"},
    {"IndexMapIsEmpty", "granite-rope", [](const auto& c) { c.write(kIndex, R"({"weight_map":{}})"); },
     "weight_map is {}"},
    {"IndexHasAnUnknownKey", "granite-rope",
     [](const auto& c) { c.change_json(kIndex, [](Json& j) { j["shards"] = 2; }); },
     "key \"shards\" is not part of the format"},
    {"IndexNamesATensorTwice", "granite-rope",
     [](const auto& c) { c.write(kIndex, R"({"weight_map":{"a":"x.safetensors","a":"y.safetensors"}})"); },
     "key \"a\" occurs twice"},
    {"ShardLeavesTheFolder", "granite-rope", shard_named("../model-00002-of-00002.safetensors"),
     "wanted the plain name"},
    {"ShardIsAnAbsolutePath", "granite-rope", shard_named("/etc/passwd.safetensors"), "wanted the plain name"},
    {"ShardHasABackslash", "granite-rope", shard_named("..\\x.safetensors"), "wanted the plain name"},
    {"ShardHasANul", "granite-rope", shard_named(std::string("x\0.safetensors", 14)), "wanted the plain name"},
    {"ShardIsHidden", "granite-rope", shard_named(".safetensors"), "wanted the plain name"},
    {"ShardIsNoSafetensors", "granite-rope", shard_named("pytorch_model.bin"), "wanted the plain name"},
    {"ShardIsNoString", "granite-rope", shard_named(2), "weight_map \"model.norm.weight\" = 2, wanted the plain name"},
    {"ShardIsMissing", "granite-rope", [](const auto& c) { c.remove(kShard1); },
     "00001-of-00002.safetensors: cannot be opened"},
    {"ShardLacksATensor", "granite-rope", shard_named(kShard1),
     "the index places tensor \"model.norm.weight\" here, but it is not in the file"},
    {"ShardHasATensorOfAnother", "granite-rope",
     [](const auto& c) {
         c.change_tensors(kShard1, [](auto& t) {
             t.push_back({{"model.norm.weight", TensorDtype::kBf16, {1}}, "00"});
         });
     },
     "tensor \"model.norm.weight\" is in this shard, the index places it in \"model-00002-of-00002.safetensors\""},
    {"ShardHasATensorOfNone", "granite-rope",
     [](const auto& c) {
         c.change_tensors(kShard1, [](auto& t) { t.push_back({{"x", TensorDtype::kBf16, {1}}, "00"}); });
     },
     "tensor \"x\" is not in the index"},
};

class MalformedCheckpoint : public testing::TestWithParam<BadCheckpoint> {};

TEST_P(MalformedCheckpoint, IsAnErrorThatSaysWhat) {
    const Checkpoint checkpoint(GetParam().golden);
    ASSERT_TRUE(load_model(checkpoint.path()));
    GetParam().breaks(checkpoint);
    const auto model = load_model(checkpoint.path());
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find(GetParam().wanted_error), std::string::npos) << model.error().message;
    EXPECT_TRUE(model.error().message.starts_with(checkpoint.path().string())) << model.error().message;
}

INSTANTIATE_TEST_SUITE_P(Folders, MalformedCheckpoint, testing::ValuesIn(kBadCheckpoints),
                         [](const auto& info) { return info.param.claim; });

TEST(LoadModel, NoFolderIsAnError) {
    const auto model = load_model("/nonexistent/model");
    ASSERT_FALSE(model);
    EXPECT_NE(model.error().message.find("/nonexistent/model: is neither a folder"), std::string::npos);
}

TEST(LoadModel, ADuplicateOfATiedHeadIsTheEmbedding) {
    const Checkpoint checkpoint("llama");
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        FileTensor head = find_tensor(tensors, "model.embed_tokens.weight");
        head.layout.name = "lm_head.weight";
        tensors.push_back(head);
    });
    const auto model = load_model(checkpoint.path());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(model->weights.lm_head.data, model->weights.embedding.data);
}

TEST(LoadModel, ShardsAndOneFileGiveTheSameWeights) {
    const Checkpoint sharded("granite-rope");
    const Checkpoint whole("granite-rope");
    FileTensors tensors = read_tensors(whole.read(kShard1));
    for (FileTensor& tensor : read_tensors(whole.read("model-00002-of-00002.safetensors"))) tensors.push_back(tensor);
    whole.write(kFile, write_tensors(tensors));
    const auto a = load_model(sharded.path());
    const auto b = load_model(whole.path());
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->report.num_files, 2);
    EXPECT_EQ(b->report.num_files, 1);
    const MatrixView x = a->weights.layers[2].mlp.up;
    const MatrixView y = b->weights.layers[2].mlp.up;
    EXPECT_TRUE(std::equal(x.data, x.data + x.rows * x.cols, y.data));
    EXPECT_TRUE(std::ranges::equal(a->weights.final_norm, b->weights.final_norm));
}

TEST(LoadModel, FusedGateAndUpAreTheTwoHalvesOfInputLinear) {
    const auto model = load_model(golden_folder("granite-hybrid"));
    ASSERT_TRUE(model);
    const MlpWeights& mlp = model->weights.layers[0].mlp;
    EXPECT_EQ(mlp.gate.rows, 96);
    EXPECT_EQ(mlp.up.rows, 96);
    EXPECT_EQ(mlp.up.data, mlp.gate.data + 96 * 64);
}

TEST(LoadModel, FusedExpertsAreGateAndUpOfEachInTurn) {
    const auto model = load_model(golden_folder("granite-moe"));
    ASSERT_TRUE(model) << model.error().message;
    const MoeWeights& moe = model->weights.layers[0].moe;
    ASSERT_EQ(moe.experts.size(), 10u);
    for (size_t e = 0; e < moe.experts.size(); ++e) {
        const MlpWeights& expert = moe.experts[e];
        EXPECT_EQ(expert.gate.data, moe.experts[0].gate.data + e * 80 * 64);
        EXPECT_EQ(expert.up.data, expert.gate.data + 40 * 64);
        EXPECT_EQ(expert.down.data, moe.experts[0].down.data + e * 64 * 40);
        EXPECT_TRUE(expert.up.rows == 40 && expert.up.cols == 64 && expert.down.rows == 64 && expert.down.cols == 40);
    }
    EXPECT_EQ(moe.router.size(), 640u);
}

// A router stored in binary32 keeps what bf16 would cut off; one in bf16 has the same bits, widened.
TEST(LoadModel, ARouterIsBinary32AndIsNotRounded) {
    const Checkpoint checkpoint("nemotron-moe");
    const std::string name = "backbone.layers.1.mixer.gate.weight";
    const auto before = load_model(checkpoint.path());
    ASSERT_TRUE(before);
    const VectorView router = before->weights.layers[1].moe.router;
    for (const float weight : router) ASSERT_EQ(weight, bf16_value(weight));
    checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
        FileTensor& tensor = find_tensor(tensors, name);
        std::string wide(router.size() * 4, '\0');
        for (size_t i = 0; i < router.size(); ++i) {
            const uint32_t bits = bits_from_float(router[i]) | 1U;
            std::memcpy(wide.data() + 4 * i, &bits, 4);
        }
        tensor.layout.dtype = TensorDtype::kF32;
        tensor.bytes = wide;
    });
    const auto after = load_model(checkpoint.path());
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ(after->report.num_rounded, 0);
    for (size_t i = 0; i < router.size(); ++i)
        EXPECT_EQ(bits_from_float(after->weights.layers[1].moe.router[i]), bits_from_float(router[i]) | 1U);
}

TEST(LoadModel, MultiTokenPredictionHeadsAreSkippedByName) {
    const auto add = [](const Checkpoint& checkpoint, const std::string& name) {
        checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
            tensors.push_back({{name, TensorDtype::kBf16, {1}}, "00"});
        });
        return load_model(checkpoint.path());
    };
    const auto nemotron = add(Checkpoint("nemotron-moe"), "mtp.layers.0.norm.weight");
    ASSERT_TRUE(nemotron) << nemotron.error().message;
    EXPECT_EQ(nemotron->report.num_skipped, 1);
    EXPECT_FALSE(add(Checkpoint("nemotron-moe"), "backbone.mtp.layers.0.norm.weight"));
    EXPECT_FALSE(add(Checkpoint("granite-moe"), "mtp.layers.0.norm.weight"));
}

// The final norm of the golden files, given another dtype and these values in front.
void set_values(FileTensor& tensor, TensorDtype dtype, const std::vector<uint32_t>& bits) {
    const auto size = static_cast<size_t>(dtype_bytes(dtype));
    const auto count = tensor.bytes.size() / static_cast<size_t>(dtype_bytes(tensor.layout.dtype));
    tensor.layout.dtype = dtype;
    tensor.bytes.assign(count * size, '\0');
    for (size_t i = 0; i < bits.size(); ++i) std::memcpy(tensor.bytes.data() + i * size, &bits[i], size);
}

TEST(LoadModel, ReportsChangesByRoundingFp32) {
    const Checkpoint checkpoint("llama");
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        set_values(find_tensor(tensors, "model.embed_tokens.weight"), TensorDtype::kF32,
                   {0x3F800000,    // 1: exact
                    0x3F808000,    // 1 + 2^-8: halfway, to even, down
                    0x3F818000,    // 1 + 3 * 2^-8: halfway, to even, up
                    0x23800000,    // 2^-56: kept
                    0xA37FFFFF,    // just below 2^-56, negative: +0
                    0x80000000,    // -0: +0, which is no change of value
                    0x7F7FFFFF,    // the largest binary32: infinity
                    0x7F800001});  // NaN
    });
    const auto model = load_model(checkpoint.path());
    ASSERT_TRUE(model) << model.error().message;
    const uint16_t* values = model->weights.embedding.data;
    EXPECT_EQ((std::vector<uint16_t>(values, values + 8)),
              (std::vector<uint16_t>{0x3F80, 0x3F80, 0x3F82, 0x2380, 0, 0, 0x7F80, 0x7FC0}));
    EXPECT_EQ(model->report.num_float32, 160 * 64);
    EXPECT_EQ(model->report.num_rounded, 2);
    EXPECT_EQ(model->report.num_flushed, 1);
    EXPECT_EQ(model->report.num_overflowed, 1);
    EXPECT_EQ(model->report.num_not_finite, 1);
    EXPECT_NEAR(model->report.max_relative_change, 1.0 / 257, 1e-12);
}

// Each alone in a matrix that otherwise could be used where it lies.
TEST(LoadModel, OneNonCanonicalBfloat16ValueIsCorrected) {
    struct Odd {
        uint32_t bits;
        uint16_t wanted;
        int64_t num_flushed;
        int64_t num_not_finite;
    };
    for (const Odd odd : {Odd{0x237F, 0, 1, 0}, Odd{0xA37F, 0, 1, 0}, Odd{0x0001, 0, 1, 0}, Odd{0x8000, 0, 0, 0},
                          Odd{0xFF81, 0x7FC0, 0, 1}, Odd{0x2380, 0x2380, 0, 0}, Odd{0xA380, 0xA380, 0, 0}}) {
        const Checkpoint checkpoint("llama");
        checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
            set_values(find_tensor(tensors, "model.embed_tokens.weight"), TensorDtype::kBf16, {0x3F80, odd.bits});
        });
        const auto model = load_model(checkpoint.path());
        ASSERT_TRUE(model) << model.error().message;
        EXPECT_EQ(model->weights.embedding.data[0], 0x3F80);
        EXPECT_EQ(model->weights.embedding.data[1], odd.wanted) << odd.bits;
        EXPECT_EQ(model->report.num_flushed, odd.num_flushed) << odd.bits;
        EXPECT_EQ(model->report.num_not_finite, odd.num_not_finite) << odd.bits;
        EXPECT_EQ(model->report.num_rounded, 0) << odd.bits;
    }
}

TEST(LoadModel, VectorsKeepTheirBinary32Values) {
    const Checkpoint checkpoint("llama");
    checkpoint.change_tensors(kFile, [](FileTensors& tensors) {
        set_values(find_tensor(tensors, "model.norm.weight"), TensorDtype::kF32, {0x3F800001, 0x00000001});
    });
    const auto model = load_model(checkpoint.path());
    ASSERT_TRUE(model) << model.error().message;
    EXPECT_EQ(std::bit_cast<uint32_t>(model->weights.final_norm[0]), 0x3F800001u);
    EXPECT_EQ(std::bit_cast<uint32_t>(model->weights.final_norm[1]), 1u);
}

// Every one of the 65536 fp16 values, against the definition by sign, exponent and mantissa.
TEST(LoadModel, EveryFp16ValueIsWidenedExactly) {
    const Checkpoint checkpoint("llama");
    constexpr size_t kCount = 160 * 64;
    for (size_t first = 0; first < 65536; first += kCount) {
        checkpoint.change_tensors(kFile, [&](FileTensors& tensors) {
            std::vector<uint32_t> bits;
            for (size_t i = first; i < std::min<size_t>(65536, first + kCount); ++i)
                bits.push_back(static_cast<uint32_t>(i));
            set_values(find_tensor(tensors, "model.embed_tokens.weight"), TensorDtype::kF16, bits);
        });
        const auto model = load_model(checkpoint.path());
        ASSERT_TRUE(model) << model.error().message;
        for (size_t i = first; i < std::min<size_t>(65536, first + kCount); ++i) {
            const int exponent = static_cast<int>(i >> 10 & 31);
            const double mantissa = static_cast<double>(i & 1023) / 1024;
            const double magnitude = exponent == 31  ? (mantissa == 0 ? INFINITY : NAN)
                                     : exponent == 0 ? std::ldexp(mantissa, -14)
                                                     : std::ldexp(1 + mantissa, exponent - 15);
            const auto wanted = round_to_bf16(static_cast<float>(i & 0x8000 ? -magnitude : magnitude));
            ASSERT_EQ(model->weights.embedding.data[i - first], wanted) << i;
        }
    }
}

struct BadGolden {
    std::string claim;
    std::function<void(FileTensors&)> breaks;
    std::string wanted_error;
};

void PrintTo(const BadGolden& bad, std::ostream* out) { *out << bad.claim; }

const std::vector<BadGolden> kBadGoldens = {
    {"NoTensors", [](FileTensors& t) { t.clear(); }, "has no tokens.0"},
    {"UnknownTensor",
     [](FileTensors& t) {
         t.push_back({{"extra", TensorDtype::kU8, {1}}, "0"});
     },
     "\"extra\" is not part of"},
    {"NumberIsNoNumber", [](FileTensors& t) { find_tensor(t, "logits.0").layout.name = "logits.x"; }, "\"logits.x\""},
    {"NoLogits", [](FileTensors& t) { std::erase_if(t, [](auto& x) { return x.layout.name == "logits.2"; }); },
     "tokens.2 has no logits.2"},
    {"NoTokens", [](FileTensors& t) { std::erase_if(t, [](auto& x) { return x.layout.name == "tokens.2"; }); },
     "logits.2 has no tokens.2"},
    {"TokenOutsideTheVocabulary",
     [](FileTensors& t) { set_values(find_tensor(t, "tokens.1"), TensorDtype::kI32, {160}); },
     "tokens.1 has token 160, the vocabulary 160"},
    {"NegativeToken", [](FileTensors& t) { set_values(find_tensor(t, "tokens.1"), TensorDtype::kI32, {0xFFFFFFFF}); },
     "tokens.1 has token -1"},
    {"LogitsOfAnotherDtype",
     [](FileTensors& t) {
         find_tensor(t, "logits.0").layout = {"logits.0", TensorDtype::kF32, {2, 160}};
     },
     "logits.0 is F32 [2, 160], wanted F64 [1, 160]"},
    {"StateOfAnAttentionLayer", [](FileTensors& t) { find_tensor(t, "ssm.3.0").layout.name = "ssm.3.2"; },
     "ssm.3.2 is of a layer that is neither Mamba-2 nor a delta net"},
    {"HiddenOfALayerBeyondTheLast", [](FileTensors& t) { find_tensor(t, "hidden.3.4").layout.name = "hidden.3.5"; },
     "hidden.3.5 is of a layer that the config lacks"},
    {"NaN", [](FileTensors& t) { std::memset(find_tensor(t, "logits.0").bytes.data(), 0xFF, 8); }, "not finite"},
};

class MalformedGolden : public testing::TestWithParam<BadGolden> {};

TEST_P(MalformedGolden, IsAnErrorThatSaysWhat) {
    const auto model = load_model(golden_folder("granite-hybrid"));
    FileTensors tensors = read_tensors(read_file(golden_folder("granite-hybrid") / "golden.safetensors"));
    GetParam().breaks(tensors);
    const tests::ScratchFolder scratch;
    scratch.write("golden.safetensors", write_tensors(tensors));
    const auto golden = load_golden(scratch.path() / "golden.safetensors", model->config);
    ASSERT_FALSE(golden);
    EXPECT_NE(golden.error().message.find(GetParam().wanted_error), std::string::npos) << golden.error().message;
}

INSTANTIATE_TEST_SUITE_P(Files, MalformedGolden, testing::ValuesIn(kBadGoldens),
                         [](const auto& info) { return info.param.claim; });

}  // namespace
}  // namespace verbatim::reference
