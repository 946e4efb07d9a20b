#include "reference/loader/golden_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "files/mapped_file.h"
#include "files/strict_json.h"
#include "reference/loader/safetensors.h"

namespace verbatim::reference {
namespace {

struct GoldenName {
    std::string_view kind;
    int32_t prompt = 0;
    std::optional<int32_t> layer;
};

// "ssm.3.0" -> ssm, 3, 0.
std::optional<GoldenName> parse_name(std::string_view text) {
    GoldenName name;
    std::vector<int32_t> numbers;
    size_t dot = text.find('.');
    name.kind = text.substr(0, dot);
    while (dot != std::string_view::npos) {
        const size_t next = text.find('.', dot + 1);
        const std::string_view part = text.substr(dot + 1, next == std::string_view::npos ? next : next - dot - 1);
        int32_t value = 0;
        const auto [end, code] = std::from_chars(part.data(), part.data() + part.size(), value);
        if (code != std::errc() || end != part.data() + part.size() || value < 0) return std::nullopt;
        numbers.push_back(value);
        dot = next;
    }
    const bool with_layer = name.kind == "hidden" || name.kind == "ssm" || name.kind == "conv" ||
                            name.kind == "experts" || name.kind == "margin";
    if (!with_layer && name.kind != "tokens" && name.kind != "logits") return std::nullopt;
    if (numbers.size() != (with_layer ? 2U : 1U)) return std::nullopt;
    name.prompt = numbers[0];
    if (with_layer) name.layer = numbers[1];
    return name;
}

template <typename T>
std::vector<T> copy_values(const TensorEntry& tensor) {
    std::vector<T> values(static_cast<size_t>(tensor.num_elements()));
    if (!values.empty()) std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return values;
}

Result<std::vector<int32_t>> read_tokens(const TensorEntry& tensor, const ModelConfig& config) {
    if (tensor.shape.size() != 1 || tensor.bytes.empty() ||
        (tensor.dtype != TensorDtype::kI32 && tensor.dtype != TensorDtype::kI64))
        return error("{} is {} {}, wanted I32 [length]", tensor.name, dtype_name(tensor.dtype),
                     shape_text(tensor.shape));
    if (tensor.shape[0] > config.max_position_embeddings)
        return error("{} has {} tokens, the model {} positions", tensor.name, tensor.shape[0],
                     config.max_position_embeddings);
    std::vector<int64_t> wide;
    if (tensor.dtype == TensorDtype::kI64) {
        wide = copy_values<int64_t>(tensor);
    } else {
        const auto narrow = copy_values<int32_t>(tensor);
        wide.assign(narrow.begin(), narrow.end());
    }
    std::vector<int32_t> tokens;
    for (const int64_t token : wide) {
        if (token < 0 || token >= config.vocab_size)
            return error("{} has token {}, the vocabulary {}", tensor.name, token, config.vocab_size);
        tokens.push_back(static_cast<int32_t>(token));
    }
    return tokens;
}

Result<std::vector<double>> read_values(const TensorEntry& tensor, const std::vector<int64_t>& wanted) {
    if (tensor.dtype != TensorDtype::kF64 || tensor.shape != wanted)
        return error("{} is {} {}, wanted F64 {}: is this the right checkpoint?", tensor.name, dtype_name(tensor.dtype),
                     shape_text(tensor.shape), shape_text(wanted));
    std::vector<double> values = copy_values<double>(tensor);
    if (!std::all_of(values.begin(), values.end(), [](double v) { return std::isfinite(v); }))
        return error("{} has a value that is not finite", tensor.name);
    return values;
}

// REQUIRES, both: Mamba-2 or a delta net.
std::vector<int64_t> recurrent_shape(const LayerConfig& layer) {
    if (layer.delta) return {layer.delta->n_value_heads, layer.delta->key_dim, layer.delta->value_dim};
    return {layer.mamba->n_heads, layer.mamba->head_dim, layer.mamba->d_state};
}
std::vector<int64_t> conv_shape(const LayerConfig& layer) {
    if (layer.delta) return {layer.delta->conv_dim(), layer.delta->d_conv};
    return {layer.mamba->conv_dim(), layer.mamba->d_conv};
}

// [length, n_chosen] ids, ascending in each row.
Result<std::vector<int32_t>> read_choice(const TensorEntry& tensor, int64_t length, const MoeConfig& moe) {
    if (tensor.dtype != TensorDtype::kI32 || tensor.shape != std::vector<int64_t>{length, moe.n_chosen})
        return error("{} is {} {}, wanted I32 {}: is this the right checkpoint?", tensor.name, dtype_name(tensor.dtype),
                     shape_text(tensor.shape), shape_text(std::vector<int64_t>{length, moe.n_chosen}));
    auto ids = copy_values<int32_t>(tensor);
    for (size_t i = 0; i < ids.size(); ++i) {
        const bool first = i % static_cast<size_t>(moe.n_chosen) == 0;
        if (ids[i] <= (first ? -1 : ids[i - 1]) || ids[i] >= moe.n_experts)
            return error("{} has expert {} out of order or beyond the model's {}", tensor.name, ids[i], moe.n_experts);
    }
    return ids;
}

// Adds everything but the tokens, which `prompt` already has.
Status add_values(const TensorEntry& tensor, const GoldenName& name, const ModelConfig& config, GoldenPrompt& prompt) {
    const auto length = static_cast<int64_t>(prompt.tokens.size());
    if (name.kind == "logits") {
        ASSIGN_OR_RETURN(prompt.logits, read_values(tensor, {length, config.vocab_size}));
        return {};
    }
    const auto num_layers = static_cast<int32_t>(config.layers.size());
    const int32_t layer = *name.layer;
    if (name.kind == "hidden") {
        if (layer > num_layers) return error("{} is of a layer that the config lacks", tensor.name);
        ASSIGN_OR_RETURN(prompt.hidden[layer], read_values(tensor, {length, config.hidden_size}));
        return {};
    }
    if (name.kind == "experts" || name.kind == "margin") {
        if (layer >= num_layers || !config.layers[static_cast<size_t>(layer)].moe)
            return error("{} is of a layer that has no experts in the config", tensor.name);
        if (name.kind == "margin") {
            ASSIGN_OR_RETURN(prompt.margin[layer], read_values(tensor, {length}));
            return {};
        }
        ASSIGN_OR_RETURN(prompt.experts[layer],
                         read_choice(tensor, length, *config.layers[static_cast<size_t>(layer)].moe));
        return {};
    }
    const LayerConfig* of = layer < num_layers ? &config.layers[static_cast<size_t>(layer)] : nullptr;
    if (of == nullptr || !(of->mamba || of->delta))
        return error("{} is of a layer that is neither Mamba-2 nor a delta net in the config", tensor.name);
    if (name.kind == "ssm") {
        ASSIGN_OR_RETURN(prompt.ssm[layer], read_values(tensor, recurrent_shape(*of)));
    } else {
        ASSIGN_OR_RETURN(prompt.conv[layer], read_values(tensor, conv_shape(*of)));
    }
    return {};
}

Result<std::vector<GoldenPrompt>> read_prompts(const std::vector<TensorEntry>& tensors, const ModelConfig& config) {
    std::map<int32_t, GoldenPrompt> prompts;
    std::vector<GoldenName> names;
    for (const TensorEntry& tensor : tensors) {
        const auto name = parse_name(tensor.name);
        if (!name) return error("tensor {} is not part of a golden file", quote_text(tensor.name));
        names.push_back(*name);
        if (name->kind == "tokens") {
            ASSIGN_OR_RETURN(prompts[name->prompt].tokens, read_tokens(tensor, config));
        }
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
        if (names[i].kind == "tokens") continue;
        const auto prompt = prompts.find(names[i].prompt);
        if (prompt == prompts.end()) return error("{} has no tokens.{}", tensors[i].name, names[i].prompt);
        RETURN_IF_ERROR(add_values(tensors[i], names[i], config, prompt->second));
    }
    std::vector<GoldenPrompt> list;
    for (auto& [number, prompt] : prompts) {
        if (prompt.logits.empty()) return error("tokens.{} has no logits.{}", number, number);
        for (const auto& [layer, ids] : prompt.experts)
            if (!prompt.margin.contains(layer))
                return error("experts.{}.{} has no margin.{}.{}", number, layer, number, layer);
        list.push_back(std::move(prompt));
    }
    if (list.empty()) return error("has no tokens.0: this is no golden file");
    return list;
}

}  // namespace

Result<std::vector<GoldenPrompt>> load_golden(const std::filesystem::path& file, const ModelConfig& config) {
    ASSIGN_OR_RETURN(const MappedFile mapped, MappedFile::open(file));
    ASSIGN_OR_RETURN(const std::vector<TensorEntry> tensors, parse_safetensors(mapped.bytes(), file.string()));
    auto prompts = read_prompts(tensors, config);
    if (!prompts) return error("{}: {}", file.string(), prompts.error().message);
    return prompts;
}

void ErrorMeter::add(double value, double truth) {
    const double difference = std::abs(value - truth);
    ++count_;
    // A NaN must not hide behind a comparison that is false.
    if (!(difference <= max_difference_)) max_difference_ = difference;
    max_truth_ = std::max(max_truth_, std::abs(truth));
    square_difference_ += difference * difference;
    square_truth_ += truth * truth;
}

void ErrorMeter::merge(const ErrorMeter& other) {
    count_ += other.count_;
    if (!(other.max_difference_ <= max_difference_)) max_difference_ = other.max_difference_;
    max_truth_ = std::max(max_truth_, other.max_truth_);
    square_difference_ += other.square_difference_;
    square_truth_ += other.square_truth_;
}

double ErrorMeter::max_error() const { return max_difference_ == 0 ? 0 : max_difference_ / max_truth_; }
double ErrorMeter::rms_error() const {
    return square_difference_ == 0 ? 0 : std::sqrt(square_difference_ / square_truth_);
}

}  // namespace verbatim::reference
