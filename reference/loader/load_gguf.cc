#include "reference/loader/load_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "files/strict_json.h"
#include "reference/loader/checkpoint_files.h"
#include "reference/loader/gguf.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/gguf_rope.h"
#include "reference/loader/gguf_tensors.h"
#include "reference/loader/tensor_values.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/mtp_layer.h"
#include "reference/model/weight_storage.h"
#include "reference/worker_pool.h"

namespace verbatim::reference {
namespace {

std::vector<int64_t> without_ones(std::vector<int64_t> shape) {
    std::erase(shape, 1);
    return shape;
}

Status check_tensor(const GgufPlace& wanted, const GgufTensor& got, std::string_view source) {
    if (without_ones(got.shape) != without_ones(wanted.shape))
        return error("{}: {} has shape {}, the metadata wants {}", source, wanted.name, shape_text(got.shape),
                     shape_text(wanted.shape));
    const int64_t share = wanted.shape.back() / std::max<int64_t>(1, std::ssize(wanted.matrices));
    if (wanted.by_columns && share % got.format->num_weights != 0)
        return error("{}: {} is in {}, wanted blocks that divide rows of {}", source, wanted.name, got.format->name,
                     share);
    return {};
}

std::optional<TensorDtype> dense_dtype(const BlockFormat& format) {
    if (format.name == "F32") return TensorDtype::kF32;
    if (format.name == "F16") return TensorDtype::kF16;
    if (format.name == "BF16") return TensorDtype::kBf16;
    return std::nullopt;
}

class GgufLoader {
public:
    GgufLoader(const LoadOptions& options, Model& model) : pool_(options.num_threads), model_(model) {}

    void fill_matrix(const GgufPlace& wanted, const GgufTensor& got) {
        const int64_t cols = wanted.shape.back();
        MatrixView all{nullptr, wanted.num_elements() / cols, cols};
        if (const auto dtype = dense_dtype(*got.format)) {
            all.data = as_bf16(got, *dtype);
        } else {
            model_.weights.quantised = true;
            all.format = got.format;
            all.blocks = got.bytes.data();
            model_.report.num_quantised += got.num_elements();
            model_.report.quantised_bytes += static_cast<int64_t>(got.bytes.size());
        }
        if (wanted.rows.changes()) all = with_rows_in_order(all, wanted.rows);
        if (wanted.columns.changes()) all = with_columns_in_order(all, wanted.columns);
        const auto num_shares = static_cast<int64_t>(wanted.matrices.size());
        for (int64_t i = 0; i < num_shares; ++i) {
            *wanted.matrices[static_cast<size_t>(i)] =
                wanted.by_columns ? column_share(all, i, cols / num_shares)
                                  : all.slice_rows(i * (all.rows / num_shares), all.rows / num_shares);
        }
    }

    Status fill_vector(const GgufPlace& wanted, const GgufTensor& got, std::string_view source) {
        const auto values = model_.weights.storage->allocate_float(got.num_elements());
        dequantise(*got.format, got.bytes, values);
        for (float& value : values) {
            if (wanted.change == GgufChange::kPlusOne) value -= 1.0F;
            if (wanted.change != GgufChange::kNegativeExp) continue;
            if (!(value < 0) || !std::isnormal(value))
                return error("{}: {} has the value {}, wanted -exp(A_log), which is negative", source, wanted.name,
                             value);
            value = log_of_decay(value);
        }
        if (wanted.rows.changes()) {
            const std::vector<float> moved(values.begin(), values.end());
            const int64_t width = got.num_elements() / wanted.shape.front();
            for (int64_t r = 0; r < wanted.shape.front(); ++r)
                std::copy_n(moved.begin() + wanted.rows.in_file(r) * width, width, values.begin() + r * width);
        }
        *wanted.vector = values;
        return {};
    }

private:
    const uint16_t* as_bf16(const GgufTensor& got, TensorDtype dtype) {
        const TensorEntry entry{std::string(got.name), dtype, got.shape, got.bytes};
        if (is_aligned_bf16(entry) && is_canonical(entry, pool_))
            return reinterpret_cast<const uint16_t*>(got.bytes.data());
        model_.canonical = false;
        const auto owned = model_.weights.storage->allocate_bf16(got.num_elements());
        convert_to_bf16(entry, owned, model_.report);
        return owned.data();
    }

    // A matrix like `like` in allocated memory, to be filled.
    std::pair<MatrixView, std::byte*> allocate(const MatrixView& like) {
        MatrixView view = like;
        if (like.is_quantised()) {
            std::byte* to = model_.weights.storage->allocate_bytes(like.rows * like.row_bytes()).data();
            view.blocks = to;
            return {view, to};
        }
        const auto owned = model_.weights.storage->allocate_bf16(like.rows * like.cols);
        view.data = owned.data();
        return {view, std::as_writable_bytes(owned).data()};
    }

    MatrixView with_rows_in_order(const MatrixView& from, const GgufOrder& order) {
        const std::byte* bytes = from.bytes().data();
        const int64_t row_bytes = from.row_bytes();
        const auto [ordered, to] = allocate(from);
        for (int64_t r = 0; r < from.rows; ++r)
            std::memcpy(to + r * row_bytes, bytes + order.in_file(r) * row_bytes, static_cast<size_t>(row_bytes));
        return ordered;
    }

    // Columns of blocks are never moved: the config has tiled_values then.
    MatrixView with_columns_in_order(const MatrixView& from, const GgufOrder& order) {
        CHECK(!from.is_quantised());
        const auto owned = model_.weights.storage->allocate_bf16(from.rows * from.cols);
        for (int64_t r = 0; r < from.rows; ++r) {
            const std::span<const uint16_t> row = from.row(r);
            for (int64_t c = 0; c < from.cols; ++c)
                owned[static_cast<size_t>(r * from.cols + c)] = row[static_cast<size_t>(order.in_file(c))];
        }
        return {owned.data(), from.rows, from.cols};
    }

    // Share i of a matrix of which each share has `cols` columns.
    MatrixView column_share(const MatrixView& from, int64_t i, int64_t cols) {
        MatrixView like = from;
        like.cols = cols;
        const auto [share, to] = allocate(like);
        for (int64_t r = 0; r < from.rows; ++r)
            std::memcpy(to + r * like.row_bytes(), from.bytes().data() + r * from.row_bytes() + i * like.row_bytes(),
                        static_cast<size_t>(like.row_bytes()));
        return share;
    }

    WorkerPool pool_;
    Model& model_;
};

GgufForm form_of(const GgufFile& file, int64_t first_block) {
    const bool fused = std::ranges::any_of(
        file.tensors, [](const auto& entry) { return entry.first.ends_with(".ffn_gate_up_exps.weight"); });
    return {first_block, fused};
}

// Whether the tensor is of what `model` is not: of the other one of model and prediction layers.
bool is_of_other_part(const GgufFile& file, const ModelConfig& trunk, bool reads_hidden, std::string_view name) {
    return is_prediction_tensor(file, trunk, name) != reads_hidden;
}

// Tensors that are missing, misshaped, or too many.
Status check_tensors(const GgufFile& file, const std::vector<GgufPlace>& places, const ModelConfig& trunk,
                     std::string_view source, Model& model) {
    std::map<std::string_view, GgufTensor> extra = file.tensors;
    for (const GgufPlace& wanted : places) {
        const auto found = extra.find(wanted.name);
        if (found == extra.end())
            return error("{}: tensor {} of shape {} is missing", source, wanted.name, shape_text(wanted.shape));
        RETURN_IF_ERROR(check_tensor(wanted, found->second, source));
        extra.erase(found);
    }
    if (model.config.architecture == Architecture::kLlama) extra.erase(kRopeFreqs);  // gguf_config() has read it
    for (const auto& [name, tensor] : extra) {
        if (!is_of_other_part(file, trunk, model.config.reads_hidden, name))
            return error("{}: tensor {} of shape {} is not part of a {} with this metadata", source, quote_text(name),
                         shape_text(tensor.shape), architecture_name(model.config.architecture));
        ++model.report.num_skipped;
        ++model.report.num_skipped_mtp;
    }
    return {};
}

// Of the model, or of its prediction layer: `trunk` is the model's config.
Status fill_weights(const GgufFile& file, const ModelConfig& trunk, std::string_view source, const LoadOptions& options,
                    Model& model) {
    const int64_t first_block = model.config.reads_hidden ? std::ssize(trunk.layers) : 0;
    const std::vector<GgufPlace> places = gguf_places(model.config, model.weights, form_of(file, first_block));
    RETURN_IF_ERROR(check_tensors(file, places, trunk, source, model));
    GgufLoader loader(options, model);
    model.canonical = true;
    for (const GgufPlace& wanted : places) {
        const GgufTensor& got = file.tensors.find(wanted.name)->second;
        if (wanted.vector)
            RETURN_IF_ERROR(loader.fill_vector(wanted, got, source));
        else
            loader.fill_matrix(wanted, got);
        ++model.report.num_tensors;
        model.report.num_parameters += wanted.num_elements();
    }
    return check_experts(model.weights, source);
}

Status fill_prediction(const GgufFile& file, std::string_view source, const LoadOptions& options, Model& model) {
    const int64_t num_blocks = num_prediction_blocks(file);
    if (num_blocks != 1)
        return error("{}: has {} layers that predict more tokens, wanted 1 (nextn_predict_layers)", source, num_blocks);
    const auto config = mtp_config(model.config);
    if (!config) return error("{}: {}", source, config.error().message);
    model.mtp = std::make_unique<Model>();
    model.mtp->config = *config;
    RETURN_IF_ERROR(fill_weights(file, model.config, source, options, *model.mtp));
    model.report.num_skipped_mtp = model.report.num_skipped = 0;
    share_embedding(model);
    return {};
}

}  // namespace

Result<Model> load_gguf(const std::filesystem::path& path, const LoadOptions& options) {
    const std::string source = path.string();
    ASSIGN_OR_RETURN(GgufFile file, open_gguf(path));
    Model model;
    model.source = state_digest("GGUF", file.files);
    ASSIGN_OR_RETURN(model.config, gguf_config(file, source));
    RETURN_IF_ERROR(fill_weights(file, model.config, source, options, model));
    if (model.config.tie_word_embeddings) model.weights.lm_head = model.weights.embedding;
    if (options.mtp) RETURN_IF_ERROR(fill_prediction(file, source, options, model));
    model.report.num_files = static_cast<int64_t>(file.files.size());
    for (MappedFile& part : file.files) model.weights.storage->keep(std::move(part));
    return model;
}

}  // namespace verbatim::reference
