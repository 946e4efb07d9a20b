// What a quantization_config may say, and what is an error.
#include "reference/loader/quantisation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "reference/loader/config_json.h"
#include "tests/reference/loader/quantised_checkpoint.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;
using tests::ScratchFolder;

const Json kGptqConfig = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 64}};
const Json kAwqConfig = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}, {"zero_point", true}};

Json group_of(const Json& weights) {
    return {{"quant_method", "compressed-tensors"}, {"config_groups", {{"group_0", {{"weights", weights}}}}}};
}

struct BadConfig {
    const char* name;
    Json config;
    const char* wanted;  // in the error
};
void PrintTo(const BadConfig& config, std::ostream* out) { *out << config.name; }
class QuantisationConfigs : public testing::TestWithParam<BadConfig> {};

TEST_P(QuantisationConfigs, WhatIsNotKnownIsAnError) {
    const auto config = parse_quantisation(GetParam().config, "config.json");
    ASSERT_FALSE(config.has_value());
    EXPECT_THAT(config.error().message, testing::HasSubstr(GetParam().wanted));
}

Json changed(Json config, const char* key, const Json& value) {
    config[key] = value;
    return config;
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantisationConfigs,
    testing::Values(
        BadConfig{"no_method", Json::object(), "quant_method = (missing) is not supported"},
        BadConfig{"bitsandbytes", {{"quant_method", "bitsandbytes"}}, "quant_method = \"bitsandbytes\" is not"},
        BadConfig{"not_an_object", 4, "quantization_config = 4, wanted an object"},
        BadConfig{"unknown_key", changed(kGptqConfig, "rotation", true), "quantization_config.\"rotation\" = true"},
        BadConfig{"bits", changed(kGptqConfig, "bits", 3), "bits = 3, wanted 4 or 8"},
        BadConfig{"no_group", changed(kGptqConfig, "group_size", 0), "group_size = 0"},
        BadConfig{"by_module", changed(kGptqConfig, "dynamic", {{"-:.*", Json::object()}}), "dynamic"},
        BadConfig{"gemv", changed(kAwqConfig, "version", "gemv"), "version"},
        BadConfig{"e5m2", {{"quant_method", "fp8"}, {"fmt", "e5m2"}}, "fmt"},
        BadConfig{"half_a_block", {{"quant_method", "fp8"}, {"weight_block_size", {128, 0.5}}}, "0.5"},
        BadConfig{"kv_cache", changed(group_of(Json::object()), "kv_cache_scheme", {{"num_bits", 8}}),
                  "kv_cache_scheme"},
        BadConfig{"transforms", changed(group_of(Json::object()), "transform_config", {{"R1", 1}}), "transform_config"},
        BadConfig{"fp6", group_of({{"num_bits", 6}, {"type", "float"}}), "weights of type float in 6 bits"},
        BadConfig{"tensor_group", group_of({{"strategy", "tensor_group"}, {"group_size", 16}}), "\"tensor_group\""},
        BadConfig{
            "int8_sq", {{"quant_method", "modelopt"}, {"quant_algo", "INT8_SQ"}}, "quant_algo = \"INT8_SQ\" is not"},
        BadConfig{"groups_of_32",
                  {{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}, {"group_size", 32}},
                  "group_size = 32, wanted 16"},
        BadConfig{"modelopts_unknown_key",
                  {{"quant_method", "modelopt"}, {"quant_algo", "FP8"}, {"rotate", true}},
                  "\"rotate\" = true"},
        BadConfig{"no_groups", {{"quant_method", "compressed-tensors"}}, "config_groups = null, wanted groups"}),
    [](const auto& info) { return info.param.name; });

TEST(QuantisationConfig, ABf16ModelIsWantedWhereWeightsAreNotRead) {
    const ScratchFolder scratch;
    const auto folder = tests::write_quantised_preset(scratch.path(), "tiny-llama", "int8", 1);
    const auto config = parse_config(read_file(folder / "config.json"), "config.json");
    ASSERT_FALSE(config.has_value());
    EXPECT_THAT(config.error().message, testing::HasSubstr("quantization_config = compressed-tensors, wanted none"));
}

TEST(QuantisationConfig, TypesOfWeightsAreKept) {
    const auto integers = parse_quantisation(group_of({{"num_bits", 8}, {"type", "int"}}), "config.json");
    const auto floats = parse_quantisation(
        group_of({{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}}),
        "config.json");
    const auto bytes = parse_quantisation(group_of({{"num_bits", 8}, {"type", "float"}}), "config.json");
    ASSERT_TRUE(integers && floats && bytes);
    EXPECT_TRUE(integers->has_integers && !integers->has_float4);
    EXPECT_TRUE(!floats->has_integers && floats->has_float4);
    EXPECT_TRUE(!bytes->has_integers && !bytes->has_float4);
}

// A scheme of FP8_DYNAMIC in compressed-tensors with changes.
Json fp8_scheme(const Json& activations, const Json& weights = Json::object()) {
    Json config = group_of({{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}});
    config["config_groups"]["group_0"]["weights"].update(weights);
    Json recipe = {{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}, {"symmetric", true}};
    recipe.update(activations);
    config["config_groups"]["group_0"]["input_activations"] = recipe;
    return config;
}

struct ActivationCase {
    Json config;
    Fp8Sharing sharing = Fp8Sharing::kNone;
    const char* problem = "";  // part of it
    bool is_static = false;
};

void expect_activations(const std::vector<ActivationCase>& cases) {
    for (const ActivationCase& one : cases) {
        const auto config = parse_quantisation(one.config, "config.json");
        ASSERT_TRUE(config.has_value()) << one.config << config.error().message;
        EXPECT_EQ(config->activations, one.sharing) << one.config;
        EXPECT_EQ(config->has_static_scales, one.is_static) << one.config;
        EXPECT_THAT(config->activation_problem, testing::HasSubstr(one.problem)) << one.config;
        if (std::string_view(one.problem).empty()) EXPECT_EQ(config->activation_problem, "") << one.config;
    }
}

TEST(QuantisationConfig, Fp8ActivationsAreThoseOfTheRecipe) {
    const Json block = {{"strategy", "block"}, {"block_structure", {128, 128}}};
    const Json groups = {{"strategy", "group"}, {"group_size", 128}};
    const Json fp8 = {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"activation_scheme", "dynamic"}};
    expect_activations({{fp8_scheme(Json::object()), Fp8Sharing::kRow},
                        {fp8_scheme(groups, block), Fp8Sharing::kGroups},
                        {fp8_scheme(groups), Fp8Sharing::kGroups},
                        {group_of({{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}})},
                        {fp8, Fp8Sharing::kRow},
                        {changed(fp8, "weight_block_size", {128, 128}), Fp8Sharing::kGroups},
                        {fp8_scheme({{"dynamic", false}, {"strategy", "tensor"}}), Fp8Sharing::kRow, "", true},
                        {fp8_scheme({{"dynamic", nullptr}, {"strategy", "tensor"}}), Fp8Sharing::kRow, "", true},
                        {changed(fp8, "activation_scheme", "static"), Fp8Sharing::kRow, "", true},
                        {kGptqConfig}});
}

TEST(QuantisationConfig, MatricesHaveTheRecipesActivations) {
    const ScratchFolder scratch;
    const auto folder = tests::write_quantised_preset(scratch.path(), "tiny-llama", "fp8-block", 1);
    const Model model = tests::value_of(load_model(folder));
    EXPECT_EQ(model.weights.layers[0].mlp.up.activations, Fp8Sharing::kGroups);
    EXPECT_EQ(model.weights.embedding.activations, Fp8Sharing::kNone);
    EXPECT_TRUE(model.weights.has_fp8_activations);
    EXPECT_EQ(model.weights.fp8_problem, "");
    Json config = Json::parse(read_file(folder / "config.json"));
    config["quantization_config"]["activation_scheme"] = "static";
    scratch.write("fp8-block/config.json", config.dump());
    EXPECT_THAT(tests::value_of(load_model(folder)).weights.fp8_problem, testing::HasSubstr("static"));
    const auto rows = tests::write_quantised_preset(scratch.path() / "rows", "tiny-llama", "fp8", 1);
    const Model of_rows = tests::value_of(load_model(rows));
    EXPECT_EQ(of_rows.weights.layers[0].mlp.up.activations, Fp8Sharing::kRow);
    EXPECT_EQ(of_rows.weights.fp8_problem, "");
    const auto plain = tests::write_quantised_preset(scratch.path() / "plain", "tiny-llama", "int8", 1);
    EXPECT_FALSE(tests::value_of(load_model(plain)).weights.has_fp8_activations);
}

TEST(QuantisationConfig, ActivationsThatAreNotComputedAreNamed) {
    const Json block = {{"strategy", "block"}, {"block_structure", {128, 128}}};
    const Json fp8 = {{"quant_method", "fp8"}, {"fmt", "e4m3"}};
    const Json integers = {{"num_bits", 4}, {"type", "int"}};
    constexpr Fp8Sharing kNone = Fp8Sharing::kNone;
    expect_activations(
        {{fp8_scheme({{"dynamic", false}}), kNone,
          "input_activations.strategy = \"token\", wanted \"tensor\" where dynamic is false"},
         {fp8_scheme({{"dynamic", "local"}}), kNone, "input_activations.dynamic = \"local\", wanted true or false"},
         {fp8_scheme({{"strategy", "tensor"}}), kNone, "input_activations.strategy = \"tensor\", wanted \"token\""},
         {fp8_scheme({{"strategy", "group"}, {"group_size", 64}}), kNone, "group_size = 64, wanted 128"},
         {fp8_scheme({{"type", "int"}}), kNone, "input_activations.type = \"int\", wanted \"float\""},
         {fp8_scheme({{"num_bits", 4}}), kNone, "input_activations.num_bits = 4, wanted 8"},
         {fp8_scheme({{"symmetric", false}}), kNone, "input_activations.symmetric = false, wanted true"},
         {fp8_scheme(Json::object(), integers), kNone, "input_activations in FP8 of weights in another type"},
         {fp8_scheme(Json::object(), block), Fp8Sharing::kRow,
          "scales of 128 columns of weights, wanted one for a row"},
         {changed(fp8, "weight_block_size", {128, 64}), Fp8Sharing::kGroups, "wanted a multiple of 128"},
         {changed(changed(fp8, "activation_scheme", "static"), "weight_block_size", {128, 128}), Fp8Sharing::kGroups,
          "activation_scheme = \"static\"", true},
         {changed(fp8, "scale_fmt", "ue8m0"), Fp8Sharing::kRow, "scale_fmt = \"ue8m0\""}});
    Json two = fp8_scheme(Json::object());
    two["config_groups"]["group_1"] = {{"weights", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}}};
    expect_activations({{two, kNone, "differ in input_activations"}});
    two = fp8_scheme(Json::object());
    two["config_groups"]["group_1"] = two["config_groups"]["group_0"];
    two["config_groups"]["group_1"]["input_activations"].update({{"dynamic", false}, {"strategy", "tensor"}});
    expect_activations({{two, Fp8Sharing::kRow, "differ in input_activations", true}});
    two = fp8_scheme(Json::object());
    two["config_groups"]["group_0"]["input_activations"] = "fp8";
    expect_activations({{two, kNone, "input_activations.type = null"}});
}

TEST(QuantisationConfig, ModelOptsAlgorithmSaysHowActivationsAreQuantised) {
    const auto read = [](const char* algorithm) {
        return tests::value_of(
            parse_quantisation({{"quant_method", "modelopt"}, {"quant_algo", algorithm}}, "config.json"));
    };
    EXPECT_EQ(read("FP8_PER_CHANNEL_PER_TOKEN").activations, Fp8Sharing::kRow);
    EXPECT_EQ(read("FP8_PER_CHANNEL_PER_TOKEN").activation_problem, "");
    EXPECT_EQ(read("FP8_PB_WO").activations, Fp8Sharing::kNone);
    EXPECT_EQ(read("FP8_PB_WO").activation_problem, "");
    EXPECT_EQ(read("FP8").activations, Fp8Sharing::kRow);
    EXPECT_TRUE(read("FP8").has_static_scales);
    EXPECT_EQ(read("FP8").activation_problem, "");
    for (const char* algorithm : {"NVFP4", "MIXED_PRECISION"})
        EXPECT_THAT(read(algorithm).activation_problem, testing::HasSubstr(algorithm));
}

}  // namespace
}  // namespace verbatim::reference
