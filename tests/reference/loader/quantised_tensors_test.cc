// Quantised safetensors checkpoints: each weight has the value that its format defines, and what is not as the format
// says is an error with the tensor's name.
#include "reference/loader/quantised_tensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <ostream>
#include <random>

#include "reference/loader/config_json.h"
#include "reference/loader/tensor_values.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/scaled_blocks.h"
#include "reference/numerics/bf16.h"
#include "reference/numerics/half.h"
#include "tests/reference/loader/packed_integers.h"
#include "tests/reference/loader/quantised_matrix.h"

namespace verbatim::reference {
namespace {

TEST(ScaledBlocks, ValuesOfE4m3AreThoseOfItsDefinition) {
    for (int bits = 0; bits < 256; ++bits) {
        if ((bits & 127) == 127)
            EXPECT_TRUE(std::isnan(e4m3_value(static_cast<uint8_t>(bits))));
        else
            EXPECT_EQ(e4m3_value(static_cast<uint8_t>(bits)), plain_e4m3(static_cast<uint8_t>(bits))) << bits;
    }
    EXPECT_EQ(e4m3_value(0x7E), 448.0F);
    EXPECT_EQ(e4m3_value(0x01), 0x1p-9F);
}

// A checkpoint's tensors, by name.
class Tensors {
public:
    explicit Tensors(const std::filesystem::path& folder) {
        for (FileTensor& tensor : read_tensors(read_file(folder / "model.safetensors")))
            by_name_.emplace(tensor.layout.name, std::move(tensor));
    }
    [[nodiscard]] const FileTensor* find(const std::string& name) const {
        const auto found = by_name_.find(name);
        return found == by_name_.end() ? nullptr : &found->second;
    }
    // Weight k of row r of `base`.weight, by the formula of what the file has.
    [[nodiscard]] float value(const std::string& base, int64_t r, int64_t k, int64_t cols) const {
        const FileTensor* scale = find(base + ".weight_scale");
        const auto bf16_scale = [&](int64_t i) { return bf16_to_float(element<uint16_t>(*scale, i)); };
        if (const FileTensor* packed = find(base + ".weight_packed")) {
            if (packed->layout.shape[1] * 4 == cols)
                return bf16_scale(r) * static_cast<float>(element<uint8_t>(*packed, r * cols + k) - 128);
            const auto word = element<uint32_t>(*packed, r * cols / 8 + k / 8);
            const auto quant = static_cast<int32_t>(word >> (k % 8 * 4) & 15) - 8;
            return bf16_scale(r * (cols / 128) + k / 128) * static_cast<float>(quant);
        }
        const FileTensor& weight = *find(base + ".weight");
        if (weight.layout.dtype != TensorDtype::kF8E4M3) return bf16_to_float(element<uint16_t>(weight, r * cols + k));
        const float quant = plain_e4m3(element<uint8_t>(weight, r * cols + k));
        const FileTensor* blocks = find(base + ".weight_scale_inv");
        return quant * (blocks != nullptr ? element<float>(*blocks, r / 128 * (cols / 128) + k / 128) : bf16_scale(r));
    }

private:
    std::map<std::string, FileTensor> by_name_;
};

// Calls visit(name without ".weight", the matrix, its first row in the file's tensor).
void for_each_matrix(Model& model, const std::function<void(const std::string&, const MatrixView&, int64_t)>& visit) {
    for (const CheckpointTensor& tensor : checkpoint_tensors(model.config, model.weights)) {
        int64_t row = 0;
        for (const MatrixView* view : tensor.matrices) {
            visit(tensor.name.substr(0, tensor.name.rfind(".weight")), *view, row);
            row += view->rows;
        }
    }
}

class QuantisedKinds : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(QuantisedKinds, LoadedWeightsAreTheValuesThatTheFileDefines) {
    const auto& [preset, kind] = GetParam();
    const ScratchFolder scratch;
    const auto folder = tests::write_quantised_preset(scratch.path(), preset, kind, 7);
    Model model = tests::value_of(load_model(folder));
    Model dense = tests::value_of(load_model(scratch.path() / "dense"));
    EXPECT_TRUE(model.weights.quantised);
    EXPECT_GT(model.report.num_quantised, 30'000);
    std::map<std::string, const MatrixView*> sources;
    for_each_matrix(dense, [&](const std::string& name, const MatrixView& view, int64_t first) {
        sources[fmt::format("{}.{}", name, first)] = &view;
    });
    const Tensors file(folder);
    int64_t num_quantised = 0;
    for_each_matrix(model, [&](const std::string& name, const MatrixView& view, int64_t first) {
        num_quantised += view.is_quantised() ? view.rows * view.cols : 0;
        std::vector<float> values(static_cast<size_t>(view.cols));
        std::vector<float> source(values.size());
        for (int64_t r = 0; r < view.rows; ++r) {
            view.read_row(r, values);
            sources[fmt::format("{}.{}", name, first)]->read_row(r, source);
            float greatest = 0;
            for (const float value : source) greatest = std::max(greatest, std::abs(value));
            for (int64_t k = 0; k < view.cols; ++k) {
                const auto i = static_cast<size_t>(k);
                ASSERT_EQ(std::bit_cast<uint32_t>(values[i]),
                          std::bit_cast<uint32_t>(file.value(name, first + r, k, view.cols)))
                    << name << " row " << r << " column " << k;
                // No worse than four bits of a row are, which is 1 / 15 of the greatest weight.
                ASSERT_LE(std::abs(values[i] - source[i]), greatest / 12) << name << " " << r << " " << k;
            }
        }
    });
    EXPECT_EQ(num_quantised, model.report.num_quantised);
}

INSTANTIATE_TEST_SUITE_P(All, QuantisedKinds,
                         testing::Combine(testing::Values("tiny-llama", "tiny-granite"),
                                          testing::Values("int8", "int4-g128", "fp8", "fp8-block")),
                         [](const auto& info) {
                             std::string name = std::get<0>(info.param) + "_" + std::get<1>(info.param);
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

class OneMatrix : public QuantisedMatrix {
protected:
    void expect_plain(const PlainIntegers& plain, const Json& quantisation, const BlockFormat& format) {
        expect_values(quantisation, format, [&](int64_t r, int64_t k) { return plain.value(r, k); });
    }
    [[nodiscard]] PlainIntegers draw(bool symmetric) { return draw_plain({nullptr, rows_, cols_}, random_, symmetric); }
};

const Json kGptq = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}, {"sym", true}, {"desc_act", false}};
const Json kAwq = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"zero_point", true}, {"version", "gemm"}};

TEST_F(OneMatrix, GptqStoresAZeroPointLessOne) {
    const PlainIntegers plain = draw(/*symmetric=*/false);
    replace(pack_gptq(kBase, plain, 1));
    expect_plain(plain, kGptq, kScaledInt4Zero);
}

TEST_F(OneMatrix, GptqOfVersionTwoStoresZeroPointsAsTheyAre) {
    Json quantisation = kGptq;
    quantisation["checkpoint_format"] = "gptq_v2";
    const PlainIntegers plain = draw(/*symmetric=*/false);
    replace(pack_gptq(kBase, plain, 0));
    expect_plain(plain, quantisation, kScaledInt4Zero);
}

TEST_F(OneMatrix, SymmetricGptqNeedsNoZeroPoints) {
    const PlainIntegers plain = draw(/*symmetric=*/true);
    replace(pack_gptq(kBase, plain, 1));
    expect_plain(plain, kGptq, kScaledInt4);
}

// desc_act: any column may be of any group.
TEST_F(OneMatrix, GptqsColumnsMayBeInAnotherOrderThanTheirGroups) {
    for (const bool symmetric : {false, true}) {
        Json quantisation = kGptq;
        quantisation["desc_act"] = true;
        quantisation["group_size"] = 32;
        PlainIntegers plain = draw_plain({nullptr, rows_, cols_}, random_, symmetric, 32);
        for (int64_t k = 0; k < cols_; ++k) plain.order.push_back(static_cast<int32_t>(k * 7 % plain.groups()));
        replace(pack_gptq(kBase, plain, 1));
        expect_plain(plain, quantisation, kOrderedIntegers);
    }
}

TEST_F(OneMatrix, GptOsssFormatIsRefusedByName) {
    EXPECT_THAT(error_of({{"quant_method", "mxfp4"}}),
                testing::HasSubstr("quant_method = \"mxfp4\" is not supported: it is gpt-oss's format, of experts with "
                                   "biases (*_blocks, *_scales)"));
    config_["architectures"] = {"GptOssForCausalLM"};
    EXPECT_THAT(error_of({{"quant_method", "mxfp4"}}),
                testing::HasSubstr("architectures = \"GptOssForCausalLM\" is not supported"));
}

TEST_F(OneMatrix, AwqLiesInItsOwnOrder) {
    const PlainIntegers plain = draw(/*symmetric=*/false);
    replace(pack_awq(kBase, plain));
    expect_plain(plain, kAwq, kScaledInt4Zero);
}

TEST_F(OneMatrix, Fp8HasAScaleForAMatrixARowOrABlock) {
    std::vector<uint8_t> quants(static_cast<size_t>(rows_ * cols_));
    for (uint8_t& quant : quants) quant = static_cast<uint8_t>(random_() % 256);
    for (uint8_t& quant : quants) quant = (quant & 127) == 127 ? 0 : quant;
    const FileTensor weight = tensor_of(std::string(kBase) + ".weight", TensorDtype::kF8E4M3, {rows_, cols_}, quants);
    std::vector<float> by_row(static_cast<size_t>(rows_));
    for (float& scale : by_row) scale = static_cast<float>(1 + random_() % 1000) / 4096;
    const Json plain = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
    const std::string name = std::string(kBase) + ".weight_scale";

    const auto expect = [&](const std::function<float(int64_t r)>& scale, const Json& quantisation) {
        expect_values(quantisation, kScaledFp8, [&](int64_t r, int64_t k) {
            return scale(r) * plain_e4m3(quants[static_cast<size_t>(r * cols_ + k)]);
        });
    };
    replace({weight, tensor_of<float>(name, TensorDtype::kF32, {}, {0.25F})});
    expect([](int64_t) { return 0.25F; }, plain);
    replace({weight, tensor_of(name, TensorDtype::kF32, {rows_, 1}, by_row)});
    expect([&](int64_t r) { return by_row[static_cast<size_t>(r)]; }, plain);
    Json blocks = plain;
    blocks["weight_block_size"] = {64, 128};
    const int64_t num_blocks = (rows_ + 63) / 64;
    by_row.resize(static_cast<size_t>(num_blocks));
    replace({weight, tensor_of(name + "_inv", TensorDtype::kF32, {num_blocks, 1}, by_row)});
    expect([&](int64_t r) { return by_row[static_cast<size_t>(r / 64)]; }, blocks);
}

// Of compressed-tensors, fp8 and modelopt, in each of their names and dtypes.
TEST_F(OneMatrix, StaticScalesOfActivationsAreRead) {
    const std::string base = kBase;
    const std::vector<uint8_t> quants(static_cast<size_t>(rows_ * cols_), 0x38);
    const FileTensor weight = tensor_of(base + ".weight", TensorDtype::kF8E4M3, {rows_, cols_}, quants);
    const FileTensor scale = tensor_of<float>(base + ".weight_scale", TensorDtype::kF32, {}, {0.25F});
    const Json scheme = {{"num_bits", 8}, {"type", "float"}, {"strategy", "tensor"}, {"dynamic", false}};
    const Json group = {{"targets", {"Linear"}}, {"weights", scheme}, {"input_activations", scheme}};
    const std::vector<Json> recipes = {
        {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", group}}}},
        {{"quant_method", "fp8"}, {"activation_scheme", "static"}},
        {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}};
    const auto replace_with = [&](const FileTensor& static_scale) { replace({weight, scale, static_scale}); };
    for (const Json& recipe : recipes) {
        replace_with(tensor_of<float>(base + ".input_scale", TensorDtype::kF32, {}, {0.125F}));
        const Model model = tests::value_of(load(recipe));
        EXPECT_EQ(model.weights.layers[0].attention.k.activations, Fp8Sharing::kRow) << recipe;
        EXPECT_EQ(model.weights.layers[0].attention.k.activation_scale, 0.125F) << recipe;
        EXPECT_EQ(model.report.num_static_scales, 1) << recipe;
        EXPECT_EQ(model.weights.fp8_problem, "") << recipe;
    }
    replace_with(tensor_of<uint16_t>(base + ".activation_scale", TensorDtype::kBf16, {1}, {0x3E00}));
    EXPECT_EQ(tests::value_of(load(recipes[1])).weights.layers[0].attention.k.activation_scale, 0.125F);
}

// A checkpoint whose static scales cannot be used is computed in other profiles as ever.
TEST_F(OneMatrix, StaticScalesThatAreNoneAreProblemsOfExactFp8) {
    const std::string base = kBase;
    const std::string name = base + ".input_scale";
    const std::vector<uint8_t> quants(static_cast<size_t>(rows_ * cols_), 0x38);
    const FileTensor weight = tensor_of(base + ".weight", TensorDtype::kF8E4M3, {rows_, cols_}, quants);
    const FileTensor scale = tensor_of<float>(base + ".weight_scale", TensorDtype::kF32, {}, {0.25F});
    const auto expect_problem = [&](const FileTensors& static_scale, const std::string& said) {
        FileTensors all = {weight, scale};
        all.insert(all.end(), static_scale.begin(), static_scale.end());
        replace(all);
        const Model model = tests::value_of(load({{"quant_method", "fp8"}, {"activation_scheme", "static"}}));
        EXPECT_THAT(model.weights.fp8_problem, testing::HasSubstr(said));
        EXPECT_FALSE(model.weights.has_fp8_activations) << said;
        EXPECT_EQ(model.weights.layers[0].attention.k.format, &kScaledFp8);
    };
    expect_problem({}, base + ".weight: its input_scale is missing");
    for (const float value : {0.0F, -0.5F, INFINITY, NAN})
        expect_problem({tensor_of<float>(name, TensorDtype::kF32, {}, {value})}, name + ": is ");
    expect_problem({tensor_of<float>(name, TensorDtype::kF32, {2}, {1.0F, 1.0F})},
                   name + ": F32 of shape [2], wanted one");
    expect_problem({tensor_of<float>(name, TensorDtype::kF32, {0}, {})}, name + ": F32 of shape [0], wanted one");
    expect_problem({tensor_of<uint8_t>(name, TensorDtype::kU8, {}, {1})}, name + ": U8 of shape [], wanted one");
}

// Scales are powers of two, of 32 columns: all of them but NaN.
TEST_F(OneMatrix, Mxfp8IsReadOfCompressedTensorsAndOfModelOpt) {
    std::vector<uint8_t> quants(static_cast<size_t>(rows_ * cols_));
    for (uint8_t& quant : quants) quant = static_cast<uint8_t>(random_() % 127 + random_() % 2 * 128);
    std::vector<uint8_t> powers(static_cast<size_t>(rows_ * cols_ / 32));
    for (size_t i = 0; i < powers.size(); ++i) powers[i] = static_cast<uint8_t>(i % 255);
    const std::string base = kBase;
    const auto write = [&] {
        replace({tensor_of(base + ".weight", TensorDtype::kF8E4M3, {rows_, cols_}, quants),
                 tensor_of(base + ".weight_scale", TensorDtype::kU8, {rows_, cols_ / 32}, powers)});
    };
    const Json scheme = {{"num_bits", 8},    {"type", "float"},   {"strategy", "group"},
                         {"group_size", 32}, {"symmetric", true}, {"scale_dtype", "torch.uint8"}};
    Json activations = scheme;
    activations["dynamic"] = true;
    const Json group = {{"targets", {"Linear"}}, {"weights", scheme}, {"input_activations", activations}};
    const Json compressed = {
        {"quant_method", "compressed-tensors"}, {"format", "mxfp8-quantized"}, {"config_groups", {{"group_0", group}}}};
    const Json modelopt = {{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}, {"group_size", 32}};
    write();
    for (const Json& quantisation : {compressed, modelopt}) {
        expect_values(quantisation, kScaledFp8, [&](int64_t r, int64_t k) {
            const auto i = static_cast<size_t>(r * cols_ + k);
            return std::ldexp(plain_e4m3(quants[i]), powers[i / 32] - 127);
        });
        EXPECT_THAT(tests::value_of(load(quantisation)).weights.fp8_problem, testing::HasSubstr("32"));
    }
    Json of_64 = compressed;
    of_64["config_groups"]["group_0"]["weights"]["group_size"] = 64;
    EXPECT_THAT(error_of(of_64), testing::HasSubstr("weight_scale: U8, wanted BF16, F16 or F32"));
    powers[3] = 255;
    write();
    EXPECT_THAT(error_of(compressed), testing::HasSubstr("weight_scale: a scale is NaN"));
}

// A form of the golden file that compressed-tensors made, and its quantization_config.
struct GoldenForm {
    const char* name;
    Json quantisation;
};

Json one_group(const Json& weights) {
    return {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", {{"weights", weights}}}}}};
}

TEST_F(OneMatrix, CompressedTensorsSaysTheSameOfEveryForm) {
    const Json int4 = {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 64}};
    const auto whole = [](const char* type, const char* strategy) {
        return one_group({{"num_bits", 8}, {"type", type}, {"strategy", strategy}});
    };
    const std::vector<GoldenForm> forms = {
        {"int8_tensor", whole("int", "tensor")},
        {"int8_channel", whole("int", "channel")},
        {"int8_packed", whole("int", "channel")},
        {"int4_group", one_group(int4)},
        {"int4_group_zero", one_group(int4)},
        {"fp8_tensor", whole("float", "tensor")},
        {"fp8_channel", whole("float", "channel")},
        {"fp8_block", one_group({{"type", "float"}, {"strategy", "block"}, {"block_structure", {16, 64}}})},
        {"awq", kAwq}};
    const FileTensors golden =
        read_tensors(read_file(VERBATIM_SOURCE_DIR "/tests/data/quantised/compressed_tensors.safetensors"));
    for (const GoldenForm& form : forms) {
        const std::string prefix = std::string(form.name) + ".";
        FileTensors tensors;
        FileTensor values;
        for (const FileTensor& tensor : golden) {
            if (!tensor.layout.name.starts_with(prefix)) continue;
            const std::string part = tensor.layout.name.substr(prefix.size());
            if (part == "values")
                values = tensor;
            else
                tensors.push_back(
                    {{std::string(kBase) + "." + part, tensor.layout.dtype, tensor.layout.shape}, tensor.bytes});
        }
        ASSERT_EQ(values.layout.shape, (std::vector{rows_, cols_})) << form.name;
        replace(tensors);
        const Model model = tests::value_of(load(form.quantisation));
        std::vector<float> row(static_cast<size_t>(cols_));
        for (int64_t r = 0; r < rows_; ++r) {
            model.weights.layers[0].attention.k.read_row(r, row);
            for (int64_t k = 0; k < cols_; ++k)
                ASSERT_EQ(row[static_cast<size_t>(k)], element<float>(values, r * cols_ + k))
                    << form.name << " row " << r << " column " << k;
        }
    }
}

// Each is one change of a right checkpoint, and names the tensor.
TEST_F(OneMatrix, WhatIsNotAsTheFormatSaysIsAnError) {
    const FileTensors right = pack_gptq(kBase, draw(/*symmetric=*/false), 1);
    const auto error_with = [&](size_t i, const std::function<void(FileTensor&)>& change) {
        FileTensors changed = right;
        change(changed[i]);
        replace(changed);
        return error_of(kGptq);
    };
    const auto error_without = [&](std::string_view part) {
        FileTensors others = right;
        std::erase_if(others, [&](const FileTensor& tensor) { return tensor.layout.name.ends_with(part); });
        replace(others);
        return error_of(kGptq);
    };
    EXPECT_THAT(error_without(".qweight"), testing::HasSubstr("k_proj.weight of shape"));
    EXPECT_THAT(error_without(".qzeros"), testing::HasSubstr("k_proj.weight: its qzeros are missing"));
    EXPECT_THAT(error_without(".scales"), testing::HasSubstr("k_proj.weight: its scales are missing"));
    EXPECT_THAT(error_with(0, [](FileTensor& t) { t.layout.dtype = TensorDtype::kF32; }),
                testing::HasSubstr("k_proj.qweight: F32 of shape"));
    EXPECT_THAT(error_with(0, [](FileTensor& t) { std::swap(t.layout.shape[0], t.layout.shape[1]); }),
                testing::HasSubstr("k_proj.qweight: I32 of shape"));
    EXPECT_THAT(error_with(1, [](FileTensor& t) { t.layout.shape = {t.layout.shape[0] * t.layout.shape[1]}; }),
                testing::HasSubstr("k_proj.qzeros: I32 of shape"));
    EXPECT_THAT(error_with(2, [](FileTensor& t) { t.layout.dtype = TensorDtype::kI16; }),
                testing::HasSubstr("k_proj.scales: I16, wanted BF16, F16 or F32"));
    EXPECT_THAT(error_with(2, [](FileTensor& t) { std::swap(t.layout.shape[0], t.layout.shape[1]); }),
                testing::HasSubstr("k_proj.scales: shape"));
    EXPECT_THAT(error_with(3, [](FileTensor& t) { t.bytes[4] = 2; }),
                testing::HasSubstr("k_proj.g_idx: column 1 is of group 2, there are 2"));
    EXPECT_THAT(error_with(3, [](FileTensor& t) { t.bytes[7] = '\xFF'; }),
                testing::HasSubstr("k_proj.g_idx: column 1 is of group -"));
    Json other_groups = kGptq;
    other_groups["group_size"] = 32;
    replace(right);
    EXPECT_THAT(error_of(other_groups), testing::HasSubstr("k_proj.scales: shape"));
    EXPECT_THAT(error_of(nullptr), testing::HasSubstr("k_proj.weight of shape"));
    replace(right);
    EXPECT_EQ(error_of(kGptq), "loaded");
}

TEST_F(OneMatrix, EightBitsWithZeroPointsAreRefused) {
    const std::vector<int8_t> quants(static_cast<size_t>(rows_ * cols_), 3);
    const std::string base = kBase;
    const Json weights = {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}};
    const Json config = {{"quant_method", "compressed-tensors"},
                         {"format", "int-quantized"},
                         {"config_groups", {{"group_0", {{"weights", weights}}}}}};
    const FileTensors right = {tensor_of(base + ".weight", TensorDtype::kI8, {rows_, cols_}, quants),
                               tensor_of(base + ".weight_scale", TensorDtype::kF32, {rows_},
                                         std::vector<float>(static_cast<size_t>(rows_), 1)),
                               tensor_of(base + ".weight_zero_point", TensorDtype::kI8, {rows_},
                                         std::vector<int8_t>(static_cast<size_t>(rows_), 0))};
    replace(right);
    EXPECT_EQ(error_of(config), "loaded");
    FileTensors wrong = right;
    wrong[2].bytes[5] = 1;
    replace(wrong);
    EXPECT_THAT(error_of(config), testing::HasSubstr("weight_zero_point: 8 bits with zero points: not supported"));
}

// Random changes of names, dtypes, shapes and bytes: an error or a model, and nothing else.
TEST_F(OneMatrix, ChangedTensorsAreAnErrorOrAModel) {
    const FileTensors right = pack_gptq(kBase, draw(/*symmetric=*/false), 1);
    int num_errors = 0;
    for (int i = 0; i < 300; ++i) {
        FileTensors changed = right;
        FileTensor& tensor = changed[random_() % changed.size()];
        switch (random_() % 4) {
            case 0: tensor.layout.name += random_() % 2 == 0 ? "x" : "\xC3\xA4"; break;
            case 1: tensor.layout.dtype = static_cast<TensorDtype>(random_() % 15); break;
            case 2: tensor.layout.shape[random_() % tensor.layout.shape.size()] = random_() % 300; break;
            case 3: tensor.bytes[random_() % tensor.bytes.size()] ^= static_cast<char>(1 << random_() % 8); break;
        }
        replace(changed);
        const std::string text = error_of(kGptq);
        num_errors += text != "loaded" ? 1 : 0;
        EXPECT_FALSE(text.empty());
    }
    EXPECT_GT(num_errors, 150);
    EXPECT_LT(num_errors, 300);
}

}  // namespace
}  // namespace verbatim::reference
