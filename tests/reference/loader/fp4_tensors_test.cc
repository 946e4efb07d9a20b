// Matrices in float4: each weight has the value that its format defines, and what is not as it says is an error.
#include "reference/loader/fp4_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "reference/loader/stored_weights_of.h"
#include "reference/model/scaled_blocks.h"
#include "tests/reference/loader/quantised_matrix.h"

namespace verbatim::reference {
namespace {

// Nibbles of e2m1 in pairs, and the values that they stand for under each group's scale.
class Fp4Matrix : public QuantisedMatrix {
protected:
    static Json quantisation(int64_t group) {
        const Json weights = {{"num_bits", 4},
                              {"type", "float"},
                              {"strategy", group == 16 ? "tensor_group" : "group"},
                              {"group_size", group},
                              {"symmetric", true}};
        return {{"quant_method", "compressed-tensors"},
                {"format", group == 16 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized"},
                {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
    }
    void draw_tensors(int64_t group) {
        for (uint8_t& pair : pairs_) pair = static_cast<uint8_t>(random_());
        scales_.resize(static_cast<size_t>(rows_ * cols_ / group));
        for (uint8_t& scale : scales_)
            scale = static_cast<uint8_t>(group == 16 ? random_() % 0x7F : 100 + random_() % 40);
        const std::string base = kBase;
        FileTensors made = {tensor_of(base + ".weight_packed", TensorDtype::kU8, {rows_, cols_ / 2}, pairs_),
                            tensor_of(base + ".weight_scale", group == 16 ? TensorDtype::kF8E4M3 : TensorDtype::kU8,
                                      {rows_, cols_ / group}, scales_)};
        if (group == 16) {
            made.push_back(tensor_of(base + ".weight_global_scale", TensorDtype::kF32, {1}, std::vector{kGlobal}));
        }
        replace(made);
    }
    [[nodiscard]] float quant(int64_t r, int64_t k) const {
        constexpr std::array<float, 8> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
        const int nibble = pairs_[static_cast<size_t>((r * cols_ + k) / 2)] >> (k % 2 * 4) & 15;
        return nibble < 8 ? kE2m1[static_cast<size_t>(nibble)] : -kE2m1[static_cast<size_t>(nibble - 8)];
    }
    [[nodiscard]] float value(int64_t r, int64_t k, int64_t group) const {
        const uint8_t stored = scales_[static_cast<size_t>((r * cols_ + k) / group)];
        const float scale = group == 16 ? plain_e4m3(stored) / kGlobal : std::ldexp(1.0F, stored - 127);
        return scale * quant(r, k);
    }
    static constexpr float kGlobal = 3001.5F;
    std::vector<uint8_t> pairs_ = std::vector<uint8_t>(static_cast<size_t>(rows_ * cols_ / 2));
    std::vector<uint8_t> scales_;
};

TEST_F(Fp4Matrix, ValuesAreThoseOfNvfp4AndMxfp4) {
    for (const int64_t group : {16, 32}) {
        draw_tensors(group);
        expect_values(quantisation(group), group == 16 ? kScaledFp4 : *find_block_format("MXFP4"),
                      [&](int64_t r, int64_t k) { return value(r, k, group); });
    }
}

TEST_F(Fp4Matrix, WhatIsMissingOrWrongIsSaid) {
    draw_tensors(16);
    const std::string base = kBase;
    find_tensor(tensors_, base + ".weight_global_scale").bytes = std::string(4, '\0');
    EXPECT_THAT(error_of(quantisation(16)), testing::HasSubstr("wanted a positive number"));
    EXPECT_THAT(error_of(quantisation(32)), testing::HasSubstr(".weight_scale: F8_E4M3"));
    EXPECT_THAT(error_of(quantisation(64)), testing::HasSubstr("float4 in groups of 64"));
    std::erase_if(tensors_, [](const FileTensor& tensor) { return tensor.layout.name.ends_with("global_scale"); });
    EXPECT_THAT(error_of(quantisation(16)), testing::HasSubstr("weight_global_scale is missing"));
    draw_tensors(32);
    find_tensor(tensors_, base + ".weight_scale").bytes[3] = '\xff';
    EXPECT_THAT(error_of(quantisation(32)), testing::HasSubstr("a scale is NaN"));
    draw_tensors(32);
    tensors_.push_back(tensor_of(base + ".weight_g_idx", TensorDtype::kI32, {cols_},
                                 std::vector<int32_t>(static_cast<size_t>(cols_))));
    EXPECT_THAT(error_of(quantisation(32)), testing::HasSubstr("weight_g_idx: float4 in an order of columns"));
    draw_tensors(32);
    tensors_.push_back(tensor_of(base + ".weight_shape", TensorDtype::kI64, {2}, std::vector<int64_t>{7, 9}));
    EXPECT_THAT(error_of(quantisation(32)), testing::HasSubstr("weight_shape: says [7, 9]"));
}

// The tensors are not what the recipe names.
TEST_F(Fp4Matrix, ARecipeOfIntegersHasNoFloat4AndTheOtherWayRound) {
    draw_tensors(32);
    Json integers = quantisation(32);
    integers["format"] = "pack-quantized";
    integers["config_groups"]["group_0"]["weights"]["type"] = "int";
    EXPECT_THAT(error_of(integers), testing::HasSubstr("names no weights of type float in 4 bits"));
    const Json fp8 = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
    find_tensor(tensors_, std::string(kBase) + ".weight_packed").layout.name = std::string(kBase) + ".weight";
    EXPECT_THAT(error_of(fp8), testing::HasSubstr("names no weights of type float in 4 bits"));
    draw_tensors(32);
    FileTensor& packed = find_tensor(tensors_, std::string(kBase) + ".weight_packed");
    packed.layout.dtype = TensorDtype::kI32;
    packed.layout.shape = {rows_, cols_ / 8};
    EXPECT_THAT(error_of(quantisation(32)), testing::HasSubstr("names no weights of type int"));
}

// A matrix as NVIDIA's Model Optimizer writes it, with scales of activations and of the KV cache, which are not used.
class ModelOptMatrix : public Fp4Matrix {
protected:
    static Json modelopt(const char* algorithm) { return {{"quant_method", "modelopt"}, {"quant_algo", algorithm}}; }
    void add_unused_scales() {
        const std::string layer = "model.layers.0.self_attn.";
        std::erase_if(tensors_, [](const FileTensor& tensor) { return tensor.layout.name.ends_with(".v_scale"); });
        for (const char* name : {"k_proj.input_scale", "k_proj.k_scale", "v_proj.v_scale"})
            tensors_.push_back(tensor_of<float>(layer + name, TensorDtype::kF32, {}, {0.5F}));
    }
    void write_nvfp4() {
        draw_tensors(16);
        find_tensor(tensors_, std::string(kBase) + ".weight_packed").layout.name = std::string(kBase) + ".weight";
        FileTensor& global = find_tensor(tensors_, std::string(kBase) + ".weight_global_scale");
        global = tensor_of<float>(std::string(kBase) + ".weight_scale_2", TensorDtype::kF32, {}, {kScale});
        add_unused_scales();
    }
    [[nodiscard]] float nvfp4_value(int64_t r, int64_t k) const {
        return plain_e4m3(scales_[static_cast<size_t>((r * cols_ + k) / 16)]) * kScale * quant(r, k);
    }
    void write_fp8(const std::vector<int64_t>& shape, const std::vector<float>& scales) {
        quants_.resize(static_cast<size_t>(rows_ * cols_));
        for (uint8_t& quant : quants_) quant = static_cast<uint8_t>(random_() % 127);
        replace({tensor_of(std::string(kBase) + ".weight", TensorDtype::kF8E4M3, {rows_, cols_}, quants_),
                 tensor_of(std::string(kBase) + ".weight_scale", TensorDtype::kF32, shape, scales)});
        add_unused_scales();
    }
    static constexpr float kScale = 0.00031F;
    std::vector<uint8_t> quants_;
};

TEST_F(ModelOptMatrix, ScalesOfNvfp4AreMultiplied) {
    for (const char* algorithm : {"NVFP4", "NVFP4_AWQ", "W4A16_NVFP4", "MIXED_PRECISION"}) {
        write_nvfp4();
        expect_values(modelopt(algorithm), kScaledFp4, [&](int64_t r, int64_t k) { return nvfp4_value(r, k); });
    }
    EXPECT_THAT(error_of(modelopt("FP8")), testing::HasSubstr("names no weights of type float in 4 bits"));
    std::erase_if(tensors_, [](const FileTensor& tensor) { return tensor.layout.name.ends_with(".weight_scale_2"); });
    EXPECT_THAT(error_of(modelopt("NVFP4")), testing::HasSubstr("its weight_scale_2 is missing"));
}

TEST_F(ModelOptMatrix, Fp8HasAScaleForAMatrixARowOrABlock) {
    std::vector<float> scales(static_cast<size_t>(rows_));
    for (float& scale : scales) scale = static_cast<float>(1 + random_() % 1000) / 4096;
    const auto expect = [&](const char* algorithm, const std::function<float(int64_t r)>& scale) {
        expect_values(modelopt(algorithm), kScaledFp8, [&](int64_t r, int64_t k) {
            return scale(r) * plain_e4m3(quants_[static_cast<size_t>(r * cols_ + k)]);
        });
    };
    for (const char* algorithm : {"FP8", "MIXED_PRECISION"}) {
        write_fp8({}, {0.25F});
        expect(algorithm, [](int64_t) { return 0.25F; });
    }
    write_fp8({rows_}, scales);
    expect("FP8_PER_CHANNEL_PER_TOKEN", [&](int64_t r) { return scales[static_cast<size_t>(r)]; });
    const int64_t num_blocks = (rows_ + 127) / 128;
    ASSERT_EQ(cols_, 128);
    scales.resize(static_cast<size_t>(num_blocks));
    for (const std::vector<int64_t>& shape :
         {std::vector{num_blocks, int64_t{1}, int64_t{1}, int64_t{1}}, std::vector{num_blocks, int64_t{1}}}) {
        write_fp8(shape, scales);
        expect("fp8_pb_wo", [&](int64_t r) { return scales[static_cast<size_t>(r / 128)]; });
    }
    write_fp8({2, 1, 3, 1}, std::vector<float>(6, 1.0F));
    EXPECT_THAT(error_of(modelopt("FP8_PB_WO")), testing::HasSubstr("shape [2, 1, 3, 1] is not that of the scales"));
}

// Folders without quantization_config in config.json.
TEST_F(ModelOptMatrix, TheQuantisationMayBeInAFileOfItsOwn) {
    write_nvfp4();
    const std::string plain = config_.dump();
    const Json described = {{"producer", {{"name", "modelopt"}, {"version", "0.33.0"}}},
                            {"quantization",
                             {{"quant_algo", "NVFP4"},
                              {"kv_cache_quant_algo", "FP8"},
                              {"group_size", 16},
                              {"exclude_modules", {"lm_head"}}}}};
    scratch_.write("hf_quant_config.json", described.dump());
    const Model model = tests::value_of(load_as_written());
    EXPECT_EQ(model.weights.layers[0].attention.k.format, &kScaledFp4);
    EXPECT_EQ(config_.dump(), plain);
    const auto stored = find_quantised_checkpoint(scratch_.path());
    ASSERT_TRUE(stored && *stored);
    const auto is_fp4 = [](const StoredType& type) { return type.name == "fp4"; };
    const auto fp4 = std::ranges::find_if((*stored)->stored.types, is_fp4);
    ASSERT_NE(fp4, (*stored)->stored.types.end());
    EXPECT_EQ(fp4->num_weights, rows_ * cols_);

    scratch_.write("hf_quant_config.json", "[]");
    const auto refused = load_as_written();
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, testing::HasSubstr("hf_quant_config.json: has no object named quantization"));
    config_["quantization_config"] = modelopt("NVFP4");
    EXPECT_TRUE(load_as_written()) << "config.json says it all";
}

TEST_F(ModelOptMatrix, ScalesOfTheKvCacheAreLeftAsideInItsCheckpointsAlone) {
    write_nvfp4();
    replace({});
    const FileTensor weight = tensor_of(std::string(kBase) + ".weight", TensorDtype::kBf16, {rows_, cols_},
                                        std::vector<uint16_t>(static_cast<size_t>(rows_ * cols_)));
    replace({weight, tensor_of<float>(std::string(kBase) + ".k_scale", TensorDtype::kF32, {}, {1.0F})});
    EXPECT_EQ(error_of(modelopt("FP8")), "loaded");
    EXPECT_THAT(error_of({{"quant_method", "fp8"}}), testing::HasSubstr("k_scale"));
}

}  // namespace
}  // namespace verbatim::reference
