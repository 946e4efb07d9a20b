#include "reference/loader/load_gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "files/strict_json.h"
#include "reference/loader/gguf.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/gguf_rope.h"
#include "reference/loader/gguf_tensors.h"
#include "reference/loader/tensor_values.h"
#include "reference/model/checkpoint_tensors.h"
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
    if (wanted.change == GgufChange::kRotaryRows && wanted.head_dim % 2 != 0)
        return error("{}: {}: rows of heads of {} cannot alternate", source, wanted.name, wanted.head_dim);
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
        if (wanted.change == GgufChange::kRotaryRows) all = in_checkpoint_order(all, wanted.head_dim);
        const int64_t rows = all.rows / static_cast<int64_t>(wanted.matrices.size());
        for (size_t i = 0; i < wanted.matrices.size(); ++i)
            *wanted.matrices[i] = all.slice_rows(static_cast<int64_t>(i) * rows, rows);
    }

    Status fill_vector(const GgufPlace& wanted, const GgufTensor& got, std::string_view source) {
        const auto values = model_.weights.storage->allocate_float(got.num_elements());
        dequantise(*got.format, got.bytes, values);
        if (wanted.change == GgufChange::kNegativeExp) {
            for (float& value : values) {
                if (!(value < 0) || !std::isnormal(value))
                    return error("{}: {} has the value {}, wanted -exp(A_log), which is negative", source, wanted.name,
                                 value);
                value = log_of_decay(value);
            }
        }
        if (wanted.change == GgufChange::kRotaryRows) {
            const std::vector<float> alternating(values.begin(), values.end());
            for (size_t r = 0; r < values.size(); ++r)
                values[r] =
                    alternating[static_cast<size_t>(rotary_source_row(static_cast<int64_t>(r), wanted.head_dim))];
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

    MatrixView in_checkpoint_order(const MatrixView& from, int64_t head_dim) {
        const std::span<const std::byte> bytes = from.bytes();
        const size_t row_bytes = bytes.size() / static_cast<size_t>(from.rows);
        MatrixView ordered = from;
        std::byte* to = nullptr;
        if (from.is_quantised()) {
            to = model_.weights.storage->allocate_bytes(static_cast<int64_t>(bytes.size())).data();
            ordered.blocks = to;
        } else {
            const auto owned = model_.weights.storage->allocate_bf16(from.rows * from.cols);
            to = std::as_writable_bytes(owned).data();
            ordered.data = owned.data();
        }
        for (int64_t r = 0; r < from.rows; ++r)
            std::memcpy(to + static_cast<size_t>(r) * row_bytes,
                        bytes.data() + static_cast<size_t>(rotary_source_row(r, head_dim)) * row_bytes, row_bytes);
        return ordered;
    }

    WorkerPool pool_;
    Model& model_;
};

Status fill_weights(const GgufFile& file, std::string_view source, const LoadOptions& options, Model& model) {
    const std::vector<GgufPlace> places = gguf_places(model.config, model.weights);
    std::map<std::string_view, GgufTensor> extra = file.tensors;
    for (const GgufPlace& wanted : places) {
        const auto found = extra.find(wanted.name);
        if (found == extra.end())
            return error("{}: tensor {} of shape {} is missing", source, wanted.name, shape_text(wanted.shape));
        RETURN_IF_ERROR(check_tensor(wanted, found->second, source));
        extra.erase(found);
    }
    if (model.config.architecture == Architecture::kLlama) extra.erase(kRopeFreqs);  // gguf_config() has read it
    if (!extra.empty())
        return error("{}: tensor {} of shape {} is not part of a {} with this metadata", source,
                     quote_text(extra.begin()->first), shape_text(extra.begin()->second.shape),
                     architecture_name(model.config.architecture));
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

}  // namespace

Result<Model> load_gguf(const std::filesystem::path& path, const LoadOptions& options) {
    const std::string source = path.string();
    ASSIGN_OR_RETURN(GgufFile file, open_gguf(path));
    if (options.mtp) return error("{}: a layer that predicts more tokens is not read from GGUF files", source);
    Model model;
    ASSIGN_OR_RETURN(model.config, gguf_config(file, source));
    RETURN_IF_ERROR(fill_weights(file, source, options, model));
    if (model.config.tie_word_embeddings) model.weights.lm_head = model.weights.embedding;
    model.report.num_files = static_cast<int64_t>(file.files.size());
    for (MappedFile& part : file.files) model.weights.storage->keep(std::move(part));
    return model;
}

}  // namespace verbatim::reference
