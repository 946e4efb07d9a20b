#include "reference/loader/quantisation_config.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <utility>

#include "files/strict_json.h"
#include "reference/loader/config_fields.h"

namespace verbatim::reference {
namespace {

using Json = nlohmann::json;

// What one group of compressed-tensors says of activations that FP8 weights are multiplied with.
struct ActivationScheme {
    Fp8Sharing sharing = Fp8Sharing::kNone;
    bool is_static = false;
    std::string problem;
};

// What one group of compressed-tensors says of its weights.
struct WeightScheme {
    int32_t block_rows = 1;
    int32_t block_columns = 0;
    bool has_groups = false;  // the two above
    bool is_integer = false;
    bool is_float4 = false;
    ActivationScheme activations;
};

// `recipe` is input_activations, of any JSON type. A scale is dynamic, and of a token or a group of it alone, or
// static, and of a matrix.
ActivationScheme read_activations(const Json& recipe, bool of_fp8_weights) {
    if (recipe.is_null()) return {};
    const auto said = [&](const char* key) {
        return recipe.is_object() && recipe.contains(key) ? recipe[key] : Json();
    };
    const auto problem = [&](const char* key, std::string_view wanted) {
        return ActivationScheme{
            {}, false, fmt::format("input_activations.{} = {}, wanted {}", key, quote_json(said(key)), wanted)};
    };
    if (said("type") != "float") return problem("type", "\"float\"");
    if (said("num_bits") != 8) return problem("num_bits", "8");
    if (!of_fp8_weights) return {{}, false, "input_activations in FP8 of weights in another type"};
    if (said("symmetric") == false) return problem("symmetric", "true");
    const bool is_static = said("dynamic").is_null() || said("dynamic") == false;  // false if absent
    if (!is_static && said("dynamic") != true) return problem("dynamic", "true or false");
    if (is_static && said("strategy") == "tensor") return {Fp8Sharing::kRow, true, {}};
    if (is_static) return problem("strategy", "\"tensor\" where dynamic is false");
    if (said("strategy") == "token") return {Fp8Sharing::kRow, false, {}};
    if (said("strategy") != "group") return problem("strategy", "\"token\" or \"group\"");
    if (said("group_size") != kFp8Group) return problem("group_size", "128");
    return {Fp8Sharing::kGroups, false, {}};
}

// Why weights under scales of so many columns (0: of a row or more) do not fit; empty: they do.
std::string unlike_weights(Fp8Sharing sharing, int32_t block_columns) {
    const bool fit = sharing == Fp8Sharing::kRow ? block_columns == 0 : block_columns % kFp8Group == 0;
    if (sharing == Fp8Sharing::kNone || fit) return {};
    return fmt::format(
        "scales of {} columns of weights, wanted {}", block_columns,
        sharing == Fp8Sharing::kRow ? "one for a row, as activations have" : "a multiple of 128, as activations have");
}

// Two extents, [rows, columns].
std::optional<std::pair<int32_t, int32_t>> read_block(ConfigFields& fields, std::string_view key) {
    const auto numbers = fields.optional_numbers(key, 2);
    if (!numbers) return std::nullopt;
    for (const double extent : *numbers) {
        if (extent >= 1 && extent <= ConfigFields::kMaxSize && extent == static_cast<int32_t>(extent)) continue;
        fields.problem("{} has the extent {}, wanted a positive integer", key, extent);
        return std::nullopt;
    }
    return std::pair(static_cast<int32_t>((*numbers)[0]), static_cast<int32_t>((*numbers)[1]));
}

// -1: all columns.
int32_t read_group_size(ConfigFields& fields) {
    const auto size = fields.optional_size({"group_size"}, /*least=*/-1);
    if (size && *size == 0) fields.problem("group_size = 0, wanted -1 or a positive integer");
    return size ? std::max(*size, 0) : 0;
}

WeightScheme read_weights(ConfigFields& fields) {
    WeightScheme scheme;
    const std::string type = fields.optional_text({"type"}).value_or("int");
    const int32_t bits = fields.optional_size({"num_bits"}).value_or(8);
    const bool is_known = (type == "int" || type == "float") && (bits == 4 || bits == 8);
    if (!is_known) fields.problem("weights of type {} in {} bits, wanted int or float in 4 or 8", type, bits);
    const std::string strategy = fields.optional_text({"strategy"}).value_or("tensor");
    const int32_t group = read_group_size(fields);
    const auto block = read_block(fields, "block_structure");
    scheme.is_integer = type == "int";
    scheme.is_float4 = type == "float" && bits == 4;
    const auto share_scales = [&scheme](int32_t rows, int32_t columns) {
        scheme.block_rows = rows;
        scheme.block_columns = columns;
        scheme.has_groups = true;
    };
    if (group > 0 && (strategy == "group" || (scheme.is_float4 && strategy == "tensor_group"))) {
        share_scales(1, group);
    } else if (strategy == "block" && block) {
        share_scales(block->first, block->second);
    } else if (strategy != "tensor" && strategy != "channel") {
        fields.problem("strategy = {} is not supported with group_size {}, wanted tensor, channel, group or block",
                       quote_text(strategy), group);
    }
    fields.only_flag("dynamic", false);
    // Zero points are tensors; an order of columns that is not that of their groups is one, too.
    fields.harmless({"symmetric", "actorder", "observer", "observer_kwargs", "scale_dtype", "zp_dtype"});
    return scheme;
}

std::optional<WeightScheme> read_group(ConfigFields& config, const std::string& name, const Json& group) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
        config.problem("config_groups.{} has no weights", name);
        return std::nullopt;
    }
    ConfigFields fields(group, fmt::format("config_groups.{}.", name));
    fields.only_null("output_activations");
    fields.only_text("format", {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized"});
    fields.harmless({"targets", "weights"});
    ConfigFields weights(group["weights"], fmt::format("config_groups.{}.weights.", name));
    WeightScheme scheme = read_weights(weights);
    scheme.activations = read_activations(fields.value("input_activations"), !scheme.is_integer && !scheme.is_float4);
    fields.absorb(weights);
    config.absorb(fields);
    return scheme;
}

void read_compressed_tensors(ConfigFields& fields, QuantisationConfig& config) {
    fields.only_text("format", {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision"});
    fields.only_text("quantization_status", {"compressed", "frozen"});
    for (const std::string_view key : {"kv_cache_scheme", "transform_config"}) fields.only_empty(key);
    if (const Json& sparsity = fields.value("sparsity_config"); sparsity.is_object() && !sparsity.empty()) {
        ConfigFields inner(sparsity, "sparsity_config.");
        inner.only_text("format", {"dense"});
        inner.harmless({"ignore", "targets", "registry_requires_subclass", "global_sparsity", "sparsity_structure"});
        fields.absorb(inner);
    }
    fields.harmless({"ignore", "global_compression_ratio", "version"});
    const Json& groups = fields.value("config_groups");
    if (!groups.is_object() || groups.empty()) {
        fields.problem("config_groups = {}, wanted groups", quote_json(groups));
        return;
    }
    bool has_groups = false;
    std::optional<std::pair<Fp8Sharing, bool>> of_fp8;  // of the groups before
    for (const auto& [name, group] : groups.items()) {
        const auto scheme = read_group(fields, name, group);
        if (!scheme) continue;
        if (!scheme->activations.problem.empty()) config.activation_problem = scheme->activations.problem;
        if (!scheme->is_integer && !scheme->is_float4) {
            config.activations = scheme->activations.sharing;
            config.has_static_scales = scheme->activations.is_static;
            const std::pair one(config.activations, config.has_static_scales);
            if (of_fp8.value_or(one) != one)
                config.activation_problem = "config_groups of FP8 weights differ in input_activations";
            of_fp8 = one;
        }
        config.has_integers |= scheme->is_integer;
        config.has_float4 |= scheme->is_float4;
        if (!scheme->has_groups) continue;
        if (has_groups && (config.block_rows != scheme->block_rows || config.block_columns != scheme->block_columns))
            fields.problem("config_groups have blocks of several sizes: not supported");
        has_groups = true;
        config.block_rows = scheme->block_rows;
        config.block_columns = scheme->block_columns;
    }
    if (config.activation_problem.empty())
        config.activation_problem = unlike_weights(config.activations, config.block_columns);
}

// With blocks of weights a scale is of 128 activations of a token, otherwise of a token.
void read_fp8(ConfigFields& fields, QuantisationConfig& config) {
    fields.only_text("fmt", {"e4m3", "float8_e4m3fn"});
    fields.only_text("activation_scheme", {"dynamic", "static"});
    if (const auto block = read_block(fields, "weight_block_size")) {
        config.block_rows = block->first;
        config.block_columns = block->second;
    }
    fields.harmless({"modules_to_not_convert", "ignored_layers", "dequantize"});
    config.activations = config.block_columns > 0 ? Fp8Sharing::kGroups : Fp8Sharing::kRow;
    config.activation_problem = unlike_weights(config.activations, config.block_columns);
    config.has_static_scales = fields.value("activation_scheme") == "static";
    if (config.has_static_scales && config.block_columns > 0)
        config.activation_problem = "activation_scheme = \"static\", wanted \"dynamic\" where weights are in blocks";
    if (const Json& scales = fields.value("scale_fmt"); !scales.is_null() && scales != "float")
        config.activation_problem =
            fmt::format("scale_fmt = {}, wanted scales that are any number", quote_json(scales));
}

void read_gptq(ConfigFields& fields, QuantisationConfig& config) {
    config.bits = fields.size({"bits"});
    if (config.bits != 4 && config.bits != 8) fields.problem("bits = {}, wanted 4 or 8", config.bits);
    config.block_columns = read_group_size(fields);
    fields.only_text("checkpoint_format", {"gptq", "gptq_v2"});
    // gptq stores a zero point less one.
    config.zero_offset = fields.value("checkpoint_format") == "gptq_v2" ? 0 : 1;
    for (const std::string_view key : {"lm_head", "is_marlin_format"}) fields.only_flag(key, false);
    fields.only_text("pack_dtype", {"int32"});
    fields.only_empty("dynamic");  // other bits or groups for some matrices
    // An order of columns (desc_act) is in the tensors g_idx; sym in the zero points.
    fields.harmless({"desc_act",
                     "sym",
                     "damp_percent",
                     "damp_auto_increment",
                     "true_sequential",
                     "static_groups",
                     "model_name_or_path",
                     "model_file_base_name",
                     "meta",
                     "tokenizer",
                     "dataset",
                     "backend",
                     "use_exllama",
                     "disable_exllama",
                     "exllama_config",
                     "version",
                     "block_name_to_quantize",
                     "cache_block_outputs",
                     "batch_size",
                     "pad_token_id",
                     "max_input_length",
                     "module_name_preceding_first_block",
                     "modules_in_block_to_quantize",
                     "use_cuda_fp16",
                     "model_seqlen",
                     "quantizer",
                     "mse"});
}

void read_awq(ConfigFields& fields, QuantisationConfig& config) {
    config.bits = fields.size({"bits", "w_bit"});
    if (config.bits != 4) fields.problem("bits = {}, wanted 4", config.bits);
    config.block_columns = read_group_size(fields);
    fields.only_text("version", {"gemm", "GEMM"});
    fields.harmless({"zero_point", "modules_to_not_convert", "backend", "do_fuse", "exllama_config", "fuse_max_seq_len",
                     "modules_to_fuse"});
}

// Each quant_algo of NVIDIA's Model Optimizer that is read. Some files have it in small letters.
struct ModelOptAlgorithm {
    std::string_view name;
    bool has_float4 = false;
    int32_t group = 0;        // columns under one scale of weights; 0: all, or blocks
    bool has_blocks = false;  // of 128 x 128
    Fp8Sharing activations = Fp8Sharing::kNone;
    bool has_static_scales = false;
    std::string_view problem = {};  // of activations in exact.fp8
};
constexpr int32_t kModelOptBlock = 128;
constexpr int32_t kNvfp4Group = 16;
constexpr int32_t kMxfp8Group = 32;
constexpr std::array<ModelOptAlgorithm, 8> kModelOptAlgorithms = {{
    {.name = "FP8", .activations = Fp8Sharing::kRow, .has_static_scales = true},
    {.name = "FP8_PER_CHANNEL_PER_TOKEN", .activations = Fp8Sharing::kRow},
    {.name = "FP8_PB_WO", .has_blocks = true},
    {.name = "MXFP8", .group = kMxfp8Group, .problem = "activations in groups of 32"},
    {.name = "NVFP4", .has_float4 = true, .group = kNvfp4Group, .problem = "activations in 4 bits"},
    {.name = "NVFP4_AWQ", .has_float4 = true, .group = kNvfp4Group, .problem = "activations in 4 bits"},
    {.name = "W4A16_NVFP4", .has_float4 = true, .group = kNvfp4Group},
    {.name = "MIXED_PRECISION", .has_float4 = true, .group = kNvfp4Group, .problem = "activations of several kinds"},
}};

// Its keys are those of config.json's quantization_config and of hf_quant_config.json's quantization. Without an
// algorithm the weights are as in other checkpoints.
void read_modelopt(ConfigFields& fields, QuantisationConfig& config) {
    // Which matrix has which format, the tensors say; so they do of groups, whose sizes are given.
    fields.harmless({"producer", "ignore", "exclude_modules", "quantized_layers", "config_groups", "weights",
                     "input_activations", "quant_library", "has_zero_point", "pre_quant_scale"});
    // The KV cache is computed in the engine's own precision, as activations are.
    fields.harmless({"kv_cache_scheme", "kv_cache_quant_algo"});
    const auto group = fields.optional_size({"group_size"});
    std::optional<std::string> algorithm = fields.optional_text({"quant_algo"});
    if (!algorithm) return;
    std::ranges::transform(*algorithm, algorithm->begin(), [](unsigned char letter) { return std::toupper(letter); });
    const auto* const known = std::ranges::find(kModelOptAlgorithms, *algorithm, &ModelOptAlgorithm::name);
    if (known == kModelOptAlgorithms.end()) {
        fields.problem(
            "quant_algo = {} is not supported, wanted FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, "
            "NVFP4_AWQ, W4A16_NVFP4 or MIXED_PRECISION",
            quote_text(*algorithm));
        return;
    }
    config.has_float4 = known->has_float4;
    config.activations = known->activations;
    config.has_static_scales = known->has_static_scales;
    if (!known->problem.empty())
        config.activation_problem = fmt::format("quant_algo = {}: {}", quote_text(*algorithm), known->problem);
    if (known->has_blocks) config.block_rows = config.block_columns = kModelOptBlock;
    if (known->group > 0) config.block_columns = known->group;
    if (group && config.block_columns != 0 && *group != config.block_columns)
        fields.problem("group_size = {}, wanted {}", *group, config.block_columns);
}

struct Method {
    QuantMethod method;
    std::string_view name;
    void (*read)(ConfigFields& fields, QuantisationConfig& config);
};
constexpr std::array<Method, 5> kMethods = {{
    {QuantMethod::kCompressedTensors, "compressed-tensors", read_compressed_tensors},
    {QuantMethod::kFp8, "fp8", read_fp8},
    {QuantMethod::kGptq, "gptq", read_gptq},
    {QuantMethod::kAwq, "awq", read_awq},
    {QuantMethod::kModelOpt, "modelopt", read_modelopt},
}};

}  // namespace

std::string_view name(QuantMethod method) { return kMethods[static_cast<size_t>(method)].name; }

Result<QuantisationConfig> parse_quantisation(const Json& object, std::string_view source) {
    if (!object.is_object()) return error("{}: quantization_config = {}, wanted an object", source, quote_json(object));
    const auto stated = object.find("quant_method");
    for (const Method& method : kMethods) {
        if (stated == object.end() || *stated != method.name) continue;
        ConfigFields fields(object, "quantization_config.");
        fields.harmless({"quant_method"});
        QuantisationConfig config;
        config.method = method.method;
        method.read(fields, config);
        RETURN_IF_ERROR(fields.finish(source));
        return config;
    }
    if (stated != object.end() && *stated == "mxfp4") {
        return error(
            "{}: quantization_config.quant_method = \"mxfp4\" is not supported: it is gpt-oss's format, of experts "
            "with "
            "biases (*_blocks, *_scales), which no family here has; MXFP4 is read of compressed-tensors and GGUF",
            source);
    }
    return error(
        "{}: quantization_config.quant_method = {} is not supported, wanted compressed-tensors, fp8, gptq, "
        "awq or modelopt",
        source, stated == object.end() ? "(missing)" : quote_json(*stated));
}

}  // namespace verbatim::reference
