// What a quantization_config may say, and what is an error.
#include "reference/loader/quantisation_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>

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
        BadConfig{"mxfp8", {{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}}, "quant_algo = \"MXFP8\" is not"},
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

}  // namespace
}  // namespace verbatim::reference
