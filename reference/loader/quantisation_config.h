// reference/loader/quantisation_config.h: config.json's quantization_config: how a checkpoint stores the matrices that
// it quantises. Which of them it quantises, their tensors say.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "reference/numerics/fp8.h"

namespace verbatim::reference {

// quant_method.
enum class QuantMethod : uint8_t { kCompressedTensors, kFp8, kGptq, kAwq, kModelOpt };
std::string_view name(QuantMethod method);  // as in the file: "compressed-tensors"

struct QuantisationConfig {
    QuantMethod method = QuantMethod::kCompressedTensors;
    // How many rows and columns share a scale where a tensor of scales has one for each block or group; 0: all of them.
    int32_t block_rows = 1;
    int32_t block_columns = 0;
    int32_t bits = 0;           // a weight, of kGptq and kAwq
    int32_t zero_offset = 0;    // what is added to a stored zero point
    bool has_integers = false;  // weights of type int, of kCompressedTensors
    bool has_float4 = false;    // weights of type float in 4 bits, of kCompressedTensors and kModelOpt
    // What FP8 weights are multiplied with in the profile exact.fp8; other profiles do not read it.
    Fp8Sharing activations = Fp8Sharing::kNone;
    bool has_static_scales = false;  // of these activations, one for a matrix (kRow)
    std::string activation_problem;  // why exact.fp8 does not compute the recipe's activations; empty: it does

    friend bool operator==(const QuantisationConfig&, const QuantisationConfig&) = default;
};

// `source` names the file in errors, which list every problem: an unknown method, format or key, a switch that changes
// the weights' values, groups or blocks of several sizes, transforms, a KV cache that compressed-tensors quantises.
Result<QuantisationConfig> parse_quantisation(const nlohmann::json& object, std::string_view source);

}  // namespace verbatim::reference
