#include "reference/loader/stored_weights_of.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/strict_json.h"
#include "reference/loader/config_json.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/load_model.h"
#include "reference/loader/model_choice.h"
#include "reference/loader/quantised_tensors.h"
#include "reference/model/block_bytes.h"

namespace verbatim::reference {
namespace {

enum class Role : uint8_t { kLinear, kHead, kEmbedding, kOther };

// What one tensor adds.
struct Share {
    std::string type;
    Role role = Role::kOther;
    int64_t num_weights = 0;
    int64_t num_bytes = 0;
};

StoredWeights sum_of(const std::vector<Share>& shares) {
    StoredWeights sum;
    std::map<std::string, StoredType> types;
    for (const Share& share : shares) {
        StoredType& type = types[share.type];
        type.name = share.type;
        type.num_weights += share.num_weights;
        type.num_bytes += share.num_bytes;
        switch (share.role) {
            case Role::kLinear:
                type.linear_bytes += share.num_bytes;
                sum.linear_bytes += share.num_bytes;
                break;
            case Role::kHead: sum.head_bytes += share.num_bytes; break;
            case Role::kEmbedding: sum.embedding_bytes += share.num_bytes; break;
            case Role::kOther: sum.other_bytes += share.num_bytes; break;
        }
    }
    for (auto& [name, type] : types) sum.types.push_back(std::move(type));
    std::ranges::stable_sort(sum.types, std::greater{}, &StoredType::num_bytes);
    return sum;
}

bool is_matrix(std::span<const int64_t> shape) {
    return std::ranges::count_if(shape, [](int64_t extent) { return extent != 1; }) >= 2;
}

bool contains(std::string_view name, std::string_view part) { return name.find(part) != std::string_view::npos; }

Role role_in_gguf(const GgufTensor& tensor) {
    if (tensor.name == "token_embd.weight") return Role::kEmbedding;
    if (tensor.name == "output.weight") return Role::kHead;
    const bool is_linear = is_matrix(tensor.shape) && !contains(tensor.name, "conv1d");
    return is_linear ? Role::kLinear : Role::kOther;
}

// --- safetensors

bool is_left_aside(std::string_view name) {
    return name.starts_with("mtp.") || contains(name, ".mtp.") || name.starts_with("model.visual.");
}

// "a.b.q_proj.weight_packed" has the quants of the matrix "a.b.q_proj.weight".
std::string weight_of(std::string_view name) { return std::string(name.substr(0, name.rfind('.'))) + ".weight"; }

// Of quants: as the config says, else by the columns before packing, which are in weight_shape.
int32_t bits_of(const QuantisationConfig& quantisation, const QuantisedTensors& tensors) {
    constexpr int32_t kUsual = 4;
    if (quantisation.bits > 0) return quantisation.bits;
    const TensorEntry* shape = tensors.shape;
    if (shape == nullptr || tensors.quants->shape.size() != 2 || shape->dtype != TensorDtype::kI64 ||
        shape->num_elements() != 2)
        return kUsual;
    const auto columns = value_at<int64_t>(shape->bytes.data(), sizeof(int64_t));
    return columns == 4 * tensors.quants->shape[1] ? 8 : kUsual;
}

// Of a quantised matrix: its type's name, and how many weights an element of its quants has.
struct QuantType {
    std::string name;
    int64_t per_element = 1;
};
QuantType type_of(const QuantisationConfig& quantisation, const QuantisedTensors& tensors) {
    constexpr int32_t kWordBits = 32;
    const int32_t bits = bits_of(quantisation, tensors);
    switch (tensors.quants->dtype) {
        case TensorDtype::kU8: return {"fp4", 2};
        case TensorDtype::kI32: return {bits == 8 ? "int8" : "int4", kWordBits / bits};
        case TensorDtype::kF8E4M3: return {"fp8"};
        case TensorDtype::kI8: return {"int8"};
        default: return {std::string(dtype_name(tensors.quants->dtype))};
    }
}

Role role_in_folder(const TensorEntry& tensor, bool is_quantised) {
    if (contains(tensor.name, "embed_tokens.") || contains(tensor.name, "embeddings.")) return Role::kEmbedding;
    if (tensor.name.starts_with("lm_head.")) return Role::kHead;
    const bool is_linear = is_quantised || (is_matrix(tensor.shape) && !contains(tensor.name, "conv1d"));
    return is_linear ? Role::kLinear : Role::kOther;
}

// Tensors that are missing, or not of this configuration, would make every price wrong without a word. A matrix that a
// file repeats, as a head that is tied to the embedding, may count twice.
Status expect_parameters(const StoredWeights& stored, const ModelConfig& config, const std::string& source) {
    int64_t found = 0;
    for (const StoredType& type : stored.types) found += type.num_weights;
    const int64_t wanted = geometry(config).num_parameters;
    const int64_t repeated = int64_t{config.vocab_size} * config.hidden_size;
    if (found >= wanted - wanted / 50 && found <= wanted + wanted / 50 + repeated) return {};
    return error("{}: its tensors have {} weights, its configuration wants {}", source, found, wanted);
}

}  // namespace

StoredWeights stored_weights_of(const GgufFile& file, const ModelConfig& config) {
    std::vector<Share> shares;
    for (const auto& [name, tensor] : file.tensors) {
        if (is_prediction_tensor(file, config, name)) continue;
        shares.push_back({std::string(tensor.format->name), role_in_gguf(tensor), tensor.num_elements(),
                          static_cast<int64_t>(tensor.bytes.size())});
    }
    return sum_of(shares);
}

StoredWeights stored_weights_of(const CheckpointFiles& files, const QuantisationConfig& quantisation) {
    // Tensors of quantised matrices, which count as bytes of their type; the quants have the weights.
    std::map<std::string, Share, std::less<>> quantised;
    for (const auto& [name, tensor] : files.tensors) {
        if (quantised.contains(name)) continue;
        const auto tensors = find_quantised(quantisation, files.tensors, weight_of(name));
        if (!tensors) continue;
        const QuantType type = type_of(quantisation, *tensors);
        for (const std::string& part : tensors->names) quantised[part] = {type.name, Role::kLinear, 0, 0};
        quantised[tensors->quants->name].num_weights = tensors->quants->num_elements() * type.per_element;
    }
    std::vector<Share> shares;
    for (const auto& [name, tensor] : files.tensors) {
        if (is_left_aside(name) || is_of_kv_cache(quantisation, name)) continue;
        const auto found = quantised.find(name);
        const bool is_quantised = found != quantised.end();
        Share& share = shares.emplace_back(
            is_quantised ? found->second
                         : Share{std::string(dtype_name(tensor.dtype)), Role::kOther, tensor.num_elements(), 0});
        share.role = role_in_folder(tensor, is_quantised);
        share.num_bytes = static_cast<int64_t>(tensor.bytes.size());
    }
    return sum_of(shares);
}

Result<std::optional<QuantisedCheckpoint>> find_quantised_checkpoint(const std::filesystem::path& path) {
    if (std::error_code ignored; !std::filesystem::is_directory(path, ignored)) {
        if (!is_gguf(path)) return std::nullopt;
        ASSIGN_OR_RETURN(const GgufFile file, open_gguf(path));
        ASSIGN_OR_RETURN(ModelConfig config, gguf_config(file, path.string()));
        StoredWeights stored = stored_weights_of(file, config);
        RETURN_IF_ERROR(expect_parameters(stored, config, path.string()));
        return QuantisedCheckpoint{std::move(config), std::move(stored)};
    }
    ASSIGN_OR_RETURN(const ConfigText text, read_config_text(path.string()));
    auto object = parse_strict_json(text.text, text.path);
    if (!object || !object->is_object()) return std::nullopt;  // reading it as a config reports the fault
    const auto stated = object->find("quantization_config");
    if (stated == object->end() || stated->is_null()) return std::nullopt;
    ASSIGN_OR_RETURN(CheckpointConfig config, parse_checkpoint_config(text.text, text.path));
    ASSIGN_OR_RETURN(const CheckpointFiles files, open_checkpoint(path));
    StoredWeights stored = stored_weights_of(files, *config.quantisation);
    RETURN_IF_ERROR(expect_parameters(stored, config.model, path.string()));
    return QuantisedCheckpoint{std::move(config.model), std::move(stored)};
}

}  // namespace verbatim::reference
