#include "reference/loader/load_model.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "files/strict_json.h"
#include "reference/loader/checkpoint_files.h"
#include "reference/loader/config_json.h"
#include "reference/loader/load_gguf.h"
#include "reference/loader/quantised_tensors.h"
#include "reference/loader/tensor_values.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/mtp_layer.h"
#include "reference/model/weight_storage.h"
#include "reference/worker_pool.h"

namespace verbatim::reference {
namespace {

Status check_entry(const CheckpointTensor& wanted, const TensorEntry& got, std::string_view folder) {
    if (got.shape != wanted.shape)
        return error("{}: {} has shape {}, config.json wants {}: is this the right config?", folder, wanted.name,
                     shape_text(got.shape), shape_text(wanted.shape));
    if (!is_convertible(got.dtype))
        return error("{}: {} has dtype {}, wanted BF16, F16 or F32: is the checkpoint quantised?", folder, wanted.name,
                     dtype_name(got.dtype));
    return {};
}

bool is_mtp(std::string_view name) { return name.starts_with("mtp."); }

bool has_other_modalities(Architecture architecture) {
    return architecture == Architecture::kQwen35 || architecture == Architecture::kQwen35Moe;
}

// Whether the tensor belongs to a part of a published checkpoint that is not the language model: images, and
// multi-token prediction heads.
bool is_of_other_part(Architecture architecture, std::string_view name) {
    if (is_mtp(name)) return has_mtp(architecture);
    return has_other_modalities(architecture) && name.starts_with("model.visual.");
}

// How the model's experts are filed, where a family has two ways.
ExpertFiling expert_filing(const ModelConfig& config, const CheckpointFiles& files) {
    for (const auto& [name, entry] : files.tensors) {
        if (!config.reads_hidden && is_of_other_part(config.architecture, name)) continue;
        if (name.ends_with(".mlp.experts.gate_up_proj")) return ExpertFiling::kTogether;
        if (name.find(".mlp.experts.0.gate_proj.") != std::string::npos) return ExpertFiling::kOneByOne;
    }
    return ExpertFiling::kAsPublished;
}

void fill_matrix(const CheckpointTensor& wanted, const TensorEntry& got, bool known_canonical, WorkerPool& pool,
                 Model& model) {
    const auto* data = reinterpret_cast<const uint16_t*>(got.bytes.data());
    if (!is_aligned_bf16(got) || !(known_canonical || is_canonical(got, pool))) {
        model.canonical = false;
        const auto owned = model.weights.storage->allocate_bf16(got.num_elements());
        convert_to_bf16(got, owned, model.report);
        data = owned.data();
    }
    const int64_t cols = wanted.shape.back();
    split_rows(wanted, {data, got.num_elements() / cols, cols}, *model.weights.storage);
}

void fill_vector(const CheckpointTensor& wanted, const TensorEntry& got, Model& model) {
    const auto owned = model.weights.storage->allocate_float(got.num_elements());
    convert_to_float(got, owned);
    *wanted.vector = owned;
}

// A Qwen3.5 saved without its other modalities has model.layers where a published one has model.language_model.layers.
void name_as_published(Architecture architecture, CheckpointFiles& files) {
    constexpr std::string_view kText = "model.";
    constexpr std::string_view kPublished = "model.language_model.";
    if (!has_other_modalities(architecture)) return;
    const auto first = files.tensors.lower_bound(kPublished);
    if (first != files.tensors.end() && first->first.starts_with(kPublished)) return;
    std::map<std::string, TensorEntry, std::less<>> renamed;
    for (auto& [name, entry] : files.tensors) {
        const bool is_text = name.starts_with(kText) && !is_of_other_part(architecture, name);
        renamed.emplace(is_text ? std::string(kPublished) + name.substr(kText.size()) : name, std::move(entry));
    }
    files.tensors = std::move(renamed);
}

// Extra tensors that do not change a checkpoint's meaning.
Status check_extra(const std::string& name, const TensorEntry& got, const CheckpointFiles& files,
                   const ModelConfig& config, const std::string& embedding_name, std::string_view folder) {
    if (name.ends_with(".rotary_emb.inv_freq")) return {};  // old Llamas store the table that rope_theta gives
    if (name == "lm_head.weight" && config.tie_word_embeddings) {
        const TensorEntry& embedding = files.tensors.find(embedding_name)->second;
        if (std::ranges::equal(got.bytes, embedding.bytes) && got.dtype == embedding.dtype) return {};
        return error("{}: lm_head.weight is not the embedding, config.json says tie_word_embeddings = true", folder);
    }
    return error("{}: tensor {} of shape {} is not part of a {} with this config.json: is this the right config?",
                 folder, quote_text(name), shape_text(got.shape), architecture_name(config.architecture));
}

// What fills a tensor of the model: one of the checkpoint's, or those of a quantised matrix.
struct Filling {
    const CheckpointTensor* wanted = nullptr;
    const TensorEntry* dense = nullptr;
    std::optional<QuantisedTensors> quantised = {};
};

Result<Filling> find_filling(const CheckpointTensor& wanted, const std::optional<QuantisationConfig>& quantisation,
                             const CheckpointFiles& files, std::string_view folder) {
    if (quantisation && !wanted.vector) {
        if (auto quantised = find_quantised(*quantisation, files.tensors, wanted.name))
            return Filling{&wanted, nullptr, std::move(quantised)};
    }
    const auto found = files.tensors.find(wanted.name);
    if (found == files.tensors.end())
        return error("{}: tensor {} of shape {} is missing: is this the right config?", folder, wanted.name,
                     shape_text(wanted.shape));
    RETURN_IF_ERROR(check_entry(wanted, found->second, folder));
    return Filling{&wanted, &found->second};
}

// One for each wanted tensor, in their order. Errors: what the checkpoint lacks, and what it has too much.
Result<std::vector<Filling>> find_fillings(const std::vector<CheckpointTensor>& tensors,
                                           const std::optional<QuantisationConfig>& quantisation,
                                           const CheckpointFiles& files, std::string_view folder, Model& model) {
    std::vector<Filling> fillings;
    TensorsByName extra = files.tensors;
    for (const CheckpointTensor& wanted : tensors) {
        ASSIGN_OR_RETURN(Filling filling, find_filling(wanted, quantisation, files, folder));
        if (!filling.quantised) extra.erase(wanted.name);
        if (filling.quantised)
            for (const std::string& name : filling.quantised->names) extra.erase(name);
        fillings.push_back(std::move(filling));
    }
    for (const auto& [name, got] : extra) {
        if (quantisation && is_of_kv_cache(*quantisation, name)) continue;
        if (model.config.reads_hidden || !is_of_other_part(model.config.architecture, name)) {
            RETURN_IF_ERROR(check_extra(name, got, files, model.config, tensors.front().name, folder));
        } else {
            ++model.report.num_skipped;
            model.report.num_skipped_mtp += is_mtp(name) ? 1 : 0;
        }
    }
    return fillings;
}

// A scale that is missing or wrong is a problem of exact.fp8 alone: other profiles do not read it.
void take_static_scale(const QuantisedTensors& tensors, std::string_view weight, MatrixView& blocks, Model& model) {
    const auto scale = static_scale_of(tensors, weight);
    if (scale) {
        blocks.activation_scale = *scale;
        ++model.report.num_static_scales;
        return;
    }
    blocks.activations = Fp8Sharing::kNone;
    if (model.weights.fp8_problem.empty()) model.weights.fp8_problem = scale.error().message;
}

Status fill_quantised(const Filling& filling, const QuantisationConfig& config, std::string_view folder,
                      WorkerPool& pool, Model& model) {
    const CheckpointTensor& wanted = *filling.wanted;
    if (wanted.by_columns) return error("{}: {} is quantised, wanted bf16, fp16 or fp32", folder, wanted.name);
    const int64_t cols = wanted.shape.back();
    const int64_t rows = wanted.num_elements() / cols;
    auto blocks = to_blocks(config, *filling.quantised, wanted.name, rows, cols, pool, *model.weights.storage);
    if (!blocks) return error("{}: {}", folder, blocks.error().message);
    if (config.has_static_scales && blocks->activations != Fp8Sharing::kNone)
        take_static_scale(*filling.quantised, wanted.name, *blocks, model);
    split_rows(wanted, *blocks, *model.weights.storage);
    model.weights.quantised = true;
    model.weights.has_fp8_activations |= blocks->activations != Fp8Sharing::kNone;
    model.report.num_quantised += wanted.num_elements();
    model.report.quantised_bytes += static_cast<int64_t>(blocks->bytes().size());
    return {};
}

// Reads the quantised tensors, and leaves their pages of the files: blocks are in other memory.
Status fill_weights(CheckpointFiles& files, const std::optional<QuantisationConfig>& quantisation,
                    std::string_view folder, const LoadOptions& options, Model& model) {
    const ExpertFiling filing = expert_filing(model.config, files);
    const std::vector<CheckpointTensor> tensors = checkpoint_tensors(model.config, model.weights, filing);
    ASSIGN_OR_RETURN(const std::vector<Filling> fillings, find_fillings(tensors, quantisation, files, folder, model));
    const bool known_canonical = options.known_canonical == model.source;
    if (!known_canonical) {
        for (const MappedFile& file : files.files) read_ahead(file.bytes());
    }
    for (const Filling& filling : fillings) {
        if (filling.wanted->vector) read_ahead(filling.dense->bytes);
    }
    WorkerPool pool(options.num_threads);
    model.canonical = true;
    if (quantisation && !quantisation->activation_problem.empty())
        model.weights.fp8_problem = "quantization_config has " + quantisation->activation_problem;
    for (const Filling& filling : fillings) {
        if (filling.quantised) {
            RETURN_IF_ERROR(fill_quantised(filling, *quantisation, folder, pool, model));
            for (const MappedFile& file : files.files) file.release(filling.quantised->quants->bytes);
        } else if (filling.wanted->vector) {
            fill_vector(*filling.wanted, *filling.dense, model);
        } else {
            fill_matrix(*filling.wanted, *filling.dense, known_canonical, pool, model);
        }
        ++model.report.num_tensors;
        model.report.num_parameters += filling.wanted->num_elements();
    }
    return check_experts(model.weights, folder);
}

// The tensors of multi-token prediction, without which `files` is left.
TensorsByName take_mtp(CheckpointFiles& files) {
    TensorsByName taken;
    for (auto next = files.tensors.lower_bound("mtp."); next != files.tensors.end() && is_mtp(next->first);)
        taken.insert(files.tensors.extract(next++));
    return taken;
}

// `files` has its tensors alone.
Status fill_mtp(CheckpointFiles& files, const std::optional<QuantisationConfig>& quantisation, std::string_view folder,
                const LoadOptions& options, Model& model) {
    if (!has_mtp(model.config.architecture) || files.tensors.empty())
        return error(
            "{}: has no tensors mtp.* of Qwen3.5, Qwen3-Next or Nemotron-H: there is no layer that predicts "
            "more tokens",
            folder);
    model.mtp = std::make_unique<Model>();
    const auto config = mtp_config(model.config);
    if (!config) return error("{}: {}", folder, config.error().message);
    model.mtp->config = *config;
    model.mtp->source = model.source;
    RETURN_IF_ERROR(fill_weights(files, quantisation, folder, options, *model.mtp));
    share_embedding(model);
    return {};
}

}  // namespace

Result<Model> load_model(const std::filesystem::path& path, const LoadOptions& options) {
    std::error_code ignored;
    if (std::filesystem::is_regular_file(path, ignored)) return load_gguf(path, options);
    if (!std::filesystem::is_directory(path, ignored))
        return error("{}: is neither a folder with config.json and model.safetensors nor a GGUF file", path.string());
    const std::filesystem::path& folder = path;
    ASSIGN_OR_RETURN(std::string written, read_text_file(folder / "config.json", kMaxConfigBytes));
    ASSIGN_OR_RETURN(const std::string text, with_hf_quant_config(std::move(written), folder));
    Model model;
    ASSIGN_OR_RETURN(CheckpointConfig config, parse_checkpoint_config(text, (folder / "config.json").string()));
    model.config = std::move(config.model);
    ASSIGN_OR_RETURN(CheckpointFiles files, open_checkpoint(folder));
    model.source = state_digest(text, files.files);
    name_as_published(model.config.architecture, files);
    TensorsByName mtp = options.mtp ? take_mtp(files) : TensorsByName();
    RETURN_IF_ERROR(fill_weights(files, config.quantisation, folder.string(), options, model));
    if (model.config.tie_word_embeddings) model.weights.lm_head = model.weights.embedding;
    if (options.mtp) {
        files.tensors = std::move(mtp);
        RETURN_IF_ERROR(fill_mtp(files, config.quantisation, folder.string(), options, model));
    }
    model.report.num_files = static_cast<int64_t>(files.files.size());
    for (MappedFile& file : files.files) model.weights.storage->keep(std::move(file));
    return model;
}

}  // namespace verbatim::reference
