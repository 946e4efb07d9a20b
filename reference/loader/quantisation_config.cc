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

// What one group of compressed-tensors says of its weights.
struct WeightScheme {
    int32_t block_rows = 1;
    int32_t block_columns = 0;
    bool has_groups = false;  // the two above
    bool is_integer = false;
    bool is_float4 = false;
};

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

std::optional<WeightScheme> read_group(ConfigFields& config, const std::string& name, const Json& group,
                                       bool& of_activations) {
    if (!group.is_object() || !group.contains("weights") || !group["weights"].is_object()) {
        config.problem("config_groups.{} has no weights", name);
        return std::nullopt;
    }
    ConfigFields fields(group, fmt::format("config_groups.{}.", name));
    of_activations = of_activations || !fields.value("input_activations").is_null();
    fields.only_null("output_activations");
    fields.only_text("format", {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                "nvfp4-pack-quantized", "mxfp4-pack-quantized"});
    fields.harmless({"targets", "weights"});
    ConfigFields weights(group["weights"], fmt::format("config_groups.{}.weights.", name));
    const WeightScheme scheme = read_weights(weights);
    fields.absorb(weights);
    config.absorb(fields);
    return scheme;
}

void read_compressed_tensors(ConfigFields& fields, QuantisationConfig& config) {
    fields.only_text("format", {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
                                "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision"});
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
    for (const auto& [name, group] : groups.items()) {
        const auto scheme = read_group(fields, name, group, config.of_activations);
        if (!scheme) continue;
        config.has_integers |= scheme->is_integer;
        config.has_float4 |= scheme->is_float4;
        if (!scheme->has_groups) continue;
        if (has_groups && (config.block_rows != scheme->block_rows || config.block_columns != scheme->block_columns))
            fields.problem("config_groups have blocks of several sizes: not supported");
        has_groups = true;
        config.block_rows = scheme->block_rows;
        config.block_columns = scheme->block_columns;
    }
}

void read_fp8(ConfigFields& fields, QuantisationConfig& config) {
    fields.only_text("fmt", {"e4m3", "float8_e4m3fn"});
    fields.only_text("activation_scheme", {"dynamic", "static"});
    config.of_activations = true;
    if (const auto block = read_block(fields, "weight_block_size")) {
        config.block_rows = block->first;
        config.block_columns = block->second;
    }
    fields.harmless({"modules_to_not_convert", "ignored_layers", "dequantize", "scale_fmt"});
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
    bool has_blocks = false;  // of 128 x 128
    bool of_activations = true;
};
constexpr int32_t kModelOptBlock = 128;
constexpr int32_t kNvfp4Group = 16;
constexpr std::array<ModelOptAlgorithm, 7> kModelOptAlgorithms = {{
    {.name = "FP8"},
    {.name = "FP8_PER_CHANNEL_PER_TOKEN"},
    {.name = "FP8_PB_WO", .has_blocks = true, .of_activations = false},
    {.name = "NVFP4", .has_float4 = true},
    {.name = "NVFP4_AWQ", .has_float4 = true},
    {.name = "W4A16_NVFP4", .has_float4 = true, .of_activations = false},
    {.name = "MIXED_PRECISION", .has_float4 = true},
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
            "quant_algo = {} is not supported, wanted FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, NVFP4, "
            "NVFP4_AWQ, W4A16_NVFP4 or MIXED_PRECISION",
            quote_text(*algorithm));
        return;
    }
    config.has_float4 = known->has_float4;
    config.of_activations = known->of_activations;
    if (known->has_blocks) config.block_rows = config.block_columns = kModelOptBlock;
    if (known->has_float4) config.block_columns = kNvfp4Group;
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
    return error(
        "{}: quantization_config.quant_method = {} is not supported, wanted compressed-tensors, fp8, gptq, "
        "awq or modelopt",
        source, stated == object.end() ? "(missing)" : quote_json(*stated));
}

}  // namespace verbatim::reference
