#include "reference/loader/write_quantised.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <vector>

#include "files/output_file.h"
#include "files/strict_json.h"
#include "reference/loader/safetensors.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/scaled_blocks.h"
#include "reference/numerics/bf16.h"

namespace verbatim::reference {

using Json = nlohmann::json;

struct QuantisedKind {
    std::string_view name;
    TensorDtype dtype = TensorDtype::kI8;  // of the quants
    std::string_view quants;               // the tensor's name after the matrix's
    std::string_view scales;
    int32_t bits = 8;
    int32_t block_rows = 1;
    int32_t block_columns = 0;  // 0: all
    float greatest = 0.0F;      // quant, of the greatest weight of a block
    bool bf16_scales = true;
};

namespace {

namespace fs = std::filesystem;

constexpr std::array<QuantisedKind, 4> kKinds = {{
    {"int8", TensorDtype::kI32, ".weight_packed", ".weight_scale", 8, 1, 0, 127.5F},
    {"int4-g128", TensorDtype::kI32, ".weight_packed", ".weight_scale", 4, 1, 128, 7.5F},
    {"fp8", TensorDtype::kF8E4M3, ".weight", ".weight_scale", 8, 1, 0, 448.0F},
    {"fp8-block", TensorDtype::kF8E4M3, ".weight", ".weight_scale_inv", 8, 128, 128, 448.0F, false},
}};

bool is_packed(const QuantisedKind& kind) { return kind.dtype == TensorDtype::kI32; }

// `ignored` are the linear layers that stay as they are.
Json compressed_tensors_json(const QuantisedKind& kind, const std::vector<std::string>& ignored) {
    const bool grouped = kind.block_columns != 0;
    const std::string format = is_packed(kind) ? "pack-quantized" : "float-quantized";
    const Json weights = {{"num_bits", kind.bits},
                          {"type", is_packed(kind) ? "int" : "float"},
                          {"symmetric", true},
                          {"dynamic", false},
                          {"strategy", grouped ? "group" : "channel"},
                          {"group_size", grouped ? Json(kind.block_columns) : Json()}};
    const Json dynamic = {{"num_bits", 8},   {"type", "float"},     {"symmetric", true},
                          {"dynamic", true}, {"strategy", "token"}, {"group_size", nullptr}};
    const Json group = {{"targets", {"Linear"}},
                        {"weights", weights},
                        {"input_activations", is_packed(kind) ? Json() : dynamic},
                        {"output_activations", nullptr},
                        {"format", format}};
    return {{"quant_method", "compressed-tensors"},  {"format", format},  {"quantization_status", "compressed"},
            {"config_groups", {{"group_0", group}}}, {"ignore", ignored}, {"kv_cache_scheme", nullptr}};
}

Json quantisation_json(const QuantisedKind& kind, const std::vector<std::string>& ignored) {
    if (kind.block_rows == 1) return compressed_tensors_json(kind, ignored);
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {kind.block_rows, kind.block_columns}},
            {"modules_to_not_convert", ignored}};
}

// The nearest e4m3 number, ties to the even one; beyond the greatest, the greatest.
uint8_t to_e4m3(float value) {
    const float magnitude = std::abs(value);
    uint8_t bits = 0x7E;
    if (magnitude < 464.0F) {
        const int exponent = magnitude == 0.0F ? -6 : std::max(std::ilogb(magnitude), -6);
        const float unit = std::ldexp(1.0F, exponent - 3);
        // Of the number's bits without sign, which are consecutive across exponents.
        bits = static_cast<uint8_t>((exponent + 6) * 8 + static_cast<int>(std::nearbyint(magnitude / unit)));
    }
    return std::signbit(value) ? bits | 128 : bits;
}

// A matrix of the file, row by row.
class QuantisedMatrix {
public:
    QuantisedMatrix(const CheckpointTensor& tensor, const QuantisedKind& kind)
        : tensor_(tensor),
          kind_(kind),
          cols_(tensor.shape.back()),
          rows_(tensor.num_elements() / cols_),
          block_columns_(kind.block_columns == 0 ? cols_ : kind.block_columns),
          num_groups_((cols_ + block_columns_ - 1) / block_columns_) {}

    [[nodiscard]] std::string part(std::string_view name) const {
        return tensor_.name.substr(0, tensor_.name.size() - std::string_view(".weight").size()) + std::string(name);
    }
    [[nodiscard]] std::vector<TensorLayout> layouts() const {
        std::vector<TensorLayout> layouts = {
            {part(kind_.quants), kind_.dtype, {rows_, row_bytes() / dtype_bytes(kind_.dtype)}},
            {part(kind_.scales),
             kind_.bf16_scales ? TensorDtype::kBf16 : TensorDtype::kF32,
             {num_scale_rows(), num_groups_}}};
        if (is_packed(kind_)) layouts.push_back({part(".weight_shape"), TensorDtype::kI64, {2}});
        return layouts;
    }
    // In the order of layouts().
    Status write(files::OutputFile& file) {
        RETURN_IF_ERROR(find_scales());
        std::vector<float> row(static_cast<size_t>(cols_));
        std::vector<std::byte> quants(static_cast<size_t>(row_bytes()));
        for (int64_t r = 0; r < rows_; ++r) {
            read_row(r, row);
            std::ranges::fill(quants, std::byte{0});
            for (int64_t k = 0; k < cols_; ++k)
                put(row[static_cast<size_t>(k)] / scales_[scale_index(r, k)], k, quants);
            RETURN_IF_ERROR(file.write(quants));
        }
        RETURN_IF_ERROR(write_scales(file));
        const std::array shape = {rows_, cols_};
        return is_packed(kind_) ? file.write(std::as_bytes(std::span(shape))) : Status{};
    }

private:
    [[nodiscard]] int64_t row_bytes() const { return cols_ * kind_.bits / 8; }
    [[nodiscard]] int64_t num_scale_rows() const { return (rows_ + kind_.block_rows - 1) / kind_.block_rows; }
    // Of weight k of row r.
    [[nodiscard]] size_t scale_index(int64_t r, int64_t k) const {
        return static_cast<size_t>(r / kind_.block_rows * num_groups_ + k / block_columns_);
    }

    void read_row(int64_t r, std::span<float> values) const {
        const int64_t rows = tensor_.matrices.front()->rows;
        tensor_.matrices[static_cast<size_t>(r / rows)]->read_row(r % rows, values);
    }

    // A block of zeros has the scale 1.
    Status find_scales() {
        scales_.assign(static_cast<size_t>(num_scale_rows() * num_groups_), 0.0F);
        std::vector<float> row(static_cast<size_t>(cols_));
        for (int64_t r = 0; r < rows_; ++r) {
            read_row(r, row);
            for (int64_t k = 0; k < cols_; ++k) {
                const float value = row[static_cast<size_t>(k)];
                if (!std::isfinite(value)) return error("{} has a value that is not finite", tensor_.name);
                float& greatest = scales_[scale_index(r, k)];
                greatest = std::max(greatest, std::abs(value));
            }
        }
        for (float& scale : scales_) {
            scale = scale == 0.0F ? 1.0F : scale / kind_.greatest;
            if (kind_.bf16_scales) scale = bf16_value(scale);
        }
        return {};
    }

    void put(float value, int64_t k, std::span<std::byte> quants) const {
        if (kind_.dtype == TensorDtype::kF8E4M3) {
            quants[static_cast<size_t>(k)] = static_cast<std::byte>(to_e4m3(value));
            return;
        }
        const auto least = static_cast<float>(-(1 << (kind_.bits - 1)));
        const auto quant = static_cast<int32_t>(std::clamp(std::nearbyint(value), least, -least - 1));
        const int64_t bit = k * kind_.bits;
        quants[static_cast<size_t>(bit / 8)] |=
            static_cast<std::byte>((quant - static_cast<int32_t>(least)) << bit % 8);
    }

    Status write_scales(files::OutputFile& file) const {
        if (!kind_.bf16_scales) return file.write(std::as_bytes(std::span(scales_)));
        std::vector<uint16_t> rounded(scales_.size());
        std::ranges::transform(scales_, rounded.begin(), [](float scale) { return round_to_bf16(scale); });
        return file.write(std::as_bytes(std::span(rounded)));
    }

    const CheckpointTensor& tensor_;
    const QuantisedKind& kind_;
    int64_t cols_;
    int64_t rows_;
    int64_t block_columns_;
    int64_t num_groups_;
    std::vector<float> scales_;  // [num_scale_rows, num_groups]
};

bool is_linear(const CheckpointTensor& tensor, const ModelWeights& weights) {
    return !tensor.matrices.empty() && tensor.shape.size() == 2 && tensor.name.ends_with(".weight") &&
           tensor.matrices.front() != &weights.embedding;
}

// The head is a linear layer, but stays as it is.
bool is_quantised(const CheckpointTensor& tensor, const QuantisedKind& kind, const ModelWeights& weights) {
    const int64_t columns = kind.block_columns == 0 ? kScaledWeights : kind.block_columns;
    return is_linear(tensor, weights) && tensor.matrices.front() != &weights.lm_head &&
           tensor.shape[0] % kind.block_rows == 0 && tensor.shape[1] % columns == 0;
}

// A tensor that stays as it is loaded: BF16 or F32.
Status write_dense(const CheckpointTensor& tensor, files::OutputFile& file) {
    if (tensor.vector) return file.write(std::as_bytes(*tensor.vector));
    for (const MatrixView* view : tensor.matrices) RETURN_IF_ERROR(file.write(view->bytes()));
    return {};
}

Status write_weights(Model& model, const std::vector<CheckpointTensor>& tensors, const QuantisedKind& kind,
                     const fs::path& path) {
    std::vector<TensorLayout> layouts;
    for (const CheckpointTensor& tensor : tensors) {
        if (is_quantised(tensor, kind, model.weights))
            std::ranges::move(QuantisedMatrix(tensor, kind).layouts(), std::back_inserter(layouts));
        else
            layouts.push_back({tensor.name, tensor.vector ? TensorDtype::kF32 : TensorDtype::kBf16, tensor.shape});
    }
    ASSIGN_OR_RETURN(files::OutputFile file, files::OutputFile::create(path));
    const std::string prefix = safetensors_prefix(layouts);
    RETURN_IF_ERROR(file.write(std::as_bytes(std::span(prefix))));
    for (const CheckpointTensor& tensor : tensors)
        RETURN_IF_ERROR(is_quantised(tensor, kind, model.weights) ? QuantisedMatrix(tensor, kind).write(file)
                                                                  : write_dense(tensor, file));
    return file.finish();
}

}  // namespace

const QuantisedKind* find_quantised_kind(std::string_view name) {
    const auto* found = std::ranges::find(kKinds, name, &QuantisedKind::name);
    return found == kKinds.end() ? nullptr : found;
}

std::string quantised_kind_names() {
    std::string names;
    for (const QuantisedKind& kind : kKinds) names += (names.empty() ? "" : ", ") + std::string(kind.name);
    return names;
}

Status write_quantised(Model& model, std::string_view config_text, const QuantisedKind& kind, const fs::path& folder) {
    if (model.weights.quantised) return error("the checkpoint is quantised already");
    ASSIGN_OR_RETURN(Json config, parse_strict_json(config_text, "config.json"));
    const std::vector<CheckpointTensor> tensors = checkpoint_tensors(model.config, model.weights);
    std::vector<std::string> ignored;
    int64_t num_quantised = 0;
    for (const CheckpointTensor& tensor : tensors) {
        if (!tensor.parts.empty()) return error("{}: rows that lie key head by key head: not supported", tensor.name);
        if (is_quantised(tensor, kind, model.weights))
            ++num_quantised;
        else if (is_linear(tensor, model.weights))
            ignored.push_back(tensor.name.substr(0, tensor.name.rfind('.')));
    }
    if (num_quantised == 0)
        return error("no linear layer is in whole blocks of {} rows and {} columns", kind.block_rows,
                     kind.block_columns == 0 ? kScaledWeights : kind.block_columns);
    if (model.config.tie_word_embeddings) ignored.emplace_back("lm_head");
    config["quantization_config"] = quantisation_json(kind, ignored);
    ASSIGN_OR_RETURN(files::OutputFile config_file, new_checkpoint(folder));
    RETURN_IF_ERROR(write_weights(model, tensors, kind, folder / "model.safetensors"));
    return config_file.finish_with(config.dump(2) + "\n");
}

}  // namespace verbatim::reference
