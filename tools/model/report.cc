#include "tools/model/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "files/json_text.h"
#include "reference/model/checkpoint_tensors.h"
#include "reference/model/state_tensors.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

using namespace verbatim::reference;
using Json = nlohmann::ordered_json;

// Lengths for which `info --memory` says how many sequences fit: those of these that the model has positions for.
std::vector<int64_t> lengths_of(const ModelConfig& config) {
    std::vector<int64_t> lengths;
    for (const int64_t length : {1 << 10, 1 << 13, 1 << 15, 1 << 17})
        if (length <= config.max_position_embeddings) lengths.push_back(length);
    return lengths;
}

// As held in memory: matrices bf16 or in blocks, vectors binary32.
int64_t weight_bytes(const ModelInfo& info) {
    ModelWeights shapes_only;
    int64_t bytes = info.load ? info.load->quantised_bytes - 2 * info.load->num_quantised : 0;
    for (const CheckpointTensor& tensor : checkpoint_tensors(info.config, shapes_only))
        bytes += tensor.num_elements() * (tensor.vector ? 4 : 2);
    return bytes;
}

// Tensors that differ only in their layer.
struct TensorGroup {
    StateTensor first;
    int64_t num_layers = 0;
    [[nodiscard]] int64_t num_bytes() const { return num_layers * first.num_bytes(); }
};
std::vector<TensorGroup> group_tensors(const ModelConfig& config) {
    std::vector<TensorGroup> all;
    for (StateTensor tensor : state_tensors(config)) {
        const auto is_same = [&](const TensorGroup& group) {
            tensor.layer = group.first.layer;
            return tensor == group.first;
        };
        const auto known = std::ranges::find_if(all, is_same);
        known == all.end() ? all.push_back({tensor, 1}) : static_cast<void>(++known->num_layers);
    }
    return all;
}

// Sequences of this length that fit next to the weights, each with its KV and one state row.
int64_t sequences_that_fit(const ModelInfo& info, const ModelGeometry& g, int64_t length) {
    const auto memory = static_cast<int64_t>(std::min<uint64_t>(info.memory_bytes, INT64_MAX));
    const int64_t left = memory - weight_bytes(info);
    const int64_t each = length * g.kv_bytes_per_token + g.state_bytes_per_row;
    return left > 0 && each > 0 ? left / each : 0;
}

std::string with_unit(int64_t bytes) {
    return fmt::format("{} ({})", bytes, format_bytes(static_cast<uint64_t>(bytes)));
}

void add_tensor_rows(const ModelConfig& config, StatePer per, Table& table) {
    for (const TensorGroup& group : group_tensors(config)) {
        const StateTensor& tensor = group.first;
        if (tensor.per != per) continue;
        table.add_row({fmt::format("  {}, {} x {} [{}]", tensor.kind.name, group.num_layers, dtype_name(tensor.dtype),
                                   fmt::join(tensor.shape, ", ")),
                       with_unit(group.num_bytes())});
    }
}

Json tensors_json(const ModelConfig& config) {
    Json list = Json::array();
    for (const TensorGroup& group : group_tensors(config)) {
        const StateTensor& tensor = group.first;
        list.push_back({{"kind", tensor.kind.name},
                        {"per", tensor.per == StatePer::kToken ? "token" : "sequence"},
                        {"dtype", dtype_name(tensor.dtype)},
                        {"shape", tensor.shape},
                        {"layers", group.num_layers},
                        {"bytes", group.num_bytes()}});
    }
    return list;
}

Json load_json(const LoadReport& load) {
    return {{"files", load.num_files},
            {"tensors", load.num_tensors},
            {"skipped_tensors", load.num_skipped},
            {"skipped_mtp_tensors", load.num_skipped_mtp},
            {"quantised_values", load.num_quantised},
            {"quantised_bytes", load.quantised_bytes},
            {"float16_values", load.num_float16},
            {"float32_values", load.num_float32},
            {"rounded_values", load.num_rounded},
            {"max_relative_change", load.max_relative_change},
            {"flushed_values", load.num_flushed},
            {"overflowed_values", load.num_overflowed},
            {"not_finite_values", load.num_not_finite}};
}

void add_load_rows(const LoadReport& load, Table& table) {
    table.add_row({"files, tensors", fmt::format("{}, {}", load.num_files, load.num_tensors)});
    if (load.num_skipped_mtp > 0)
        table.add_row({"tensors of multi-token prediction (--draft mtp)", fmt::to_string(load.num_skipped_mtp)});
    if (load.num_skipped > load.num_skipped_mtp)
        table.add_row(
            {"tensors of other modalities, left aside", fmt::to_string(load.num_skipped - load.num_skipped_mtp)});
    if (load.num_quantised > 0)
        table.add_row({"matrix values in blocks, their bytes",
                       fmt::format("{}, {}", load.num_quantised, with_unit(load.quantised_bytes))});
    table.add_row({"matrix values that were fp16, fp32", fmt::format("{}, {}", load.num_float16, load.num_float32)});
    table.add_row({"rounded to bf16",
                   fmt::format("{} (by at most {:.3g} of the value)", load.num_rounded, load.max_relative_change)});
    table.add_row({"flushed to 0 (below 2^-56)", fmt::to_string(load.num_flushed)});
    table.add_row({"overflowed, not finite", fmt::format("{}, {}", load.num_overflowed, load.num_not_finite)});
}

const char* verdict_text(records::Verdict verdict) {
    switch (verdict) {
        case records::Verdict::kSame: return "right";
        case records::Verdict::kNotAllCompared: return "nothing compared";
        case records::Verdict::kDifferent: return "WRONG";
    }
    return "";
}

// Null of values that were not compared.
Json known(const ErrorMeter& meter, double error) { return meter.count() > 0 ? Json(error) : Json(nullptr); }

Json errors_json(const GoldenErrors& errors) {
    Json json = {{"max_error", known(errors.logits, errors.logits.max_error())},
                 {"rms_error", known(errors.logits, errors.logits.rms_error())},
                 {"state_max_error", known(errors.states, errors.states.max_error())},
                 {"state_rms_error", known(errors.states, errors.states.rms_error())},
                 {"logit_values", errors.logits.count()},
                 {"state_values", errors.states.count()},
                 {"hidden_tensors", errors.num_hidden}};
    json["first_off_hidden"] = errors.first_off_hidden ? Json(*errors.first_off_hidden) : Json(nullptr);
    if (errors.choices.num_compared > 0)
        json["experts"] = {{"positions", errors.num_positions},
                           {"sets", errors.choices.num_compared},
                           {"close_calls", errors.choices.num_close_calls},
                           {"wrong", errors.choices.num_wrong},
                           {"score_rms_error", errors.choices.scores.rms_error()}};
    return json;
}

std::string error_text(const ErrorMeter& meter, double error) {
    return meter.count() > 0 ? fmt::format("{:.2e}", error) : "-";
}
std::string max_text(const ErrorMeter& meter) { return error_text(meter, meter.max_error()); }
std::string rms_text(const ErrorMeter& meter) { return error_text(meter, meter.rms_error()); }

// "ok", or where the hidden rows first leave the bound; "-": the golden file has none.
std::string layers_text(const GoldenErrors& errors) {
    if (errors.num_hidden == 0) return "-";
    if (!errors.first_off_hidden) return "ok";
    if (*errors.first_off_hidden == 0) return "off from the embedding on";
    return fmt::format("off from layer {} on", *errors.first_off_hidden - 1);
}

void add_error_row(const std::string& name, int64_t num_positions, const GoldenErrors& double_model,
                   const GoldenErrors& exact, Table& table) {
    table.add_row({name, fmt::to_string(num_positions), max_text(double_model.logits), rms_text(double_model.logits),
                   layers_text(double_model), max_text(exact.logits), rms_text(exact.logits), layers_text(exact)});
}

std::string choices_line(std::string_view model, const GoldenErrors& errors, int64_t num_positions) {
    return fmt::format("experts, {}: {} of {} positions before a set that differs; {} sets, {} close calls, {} wrong\n",
                       model, errors.num_positions, num_positions, errors.choices.num_compared,
                       errors.choices.num_close_calls, errors.choices.num_wrong);
}

// Nothing of a model without experts.
std::string choices_text(const GoldenReport& report) {
    if (report.double_model.choices.num_compared == 0) return {};
    return choices_line("double", report.double_model, report.num_positions) +
           choices_line("exact", report.exact, report.num_positions);
}

}  // namespace

std::string info_table(const ModelInfo& info) {
    const ModelGeometry g = geometry(info.config);
    Table table;
    table.add_row({"model", info.name});
    table.add_row({"architecture", std::string(architecture_name(info.config.architecture))});
    table.add_row({"layers", fmt::to_string(g.num_layers)});
    table.add_row({"  with Mamba-2", fmt::to_string(g.num_mamba_layers)});
    table.add_row({"  with attention", fmt::to_string(g.num_attention_layers)});
    table.add_row({"  with an MLP", fmt::to_string(g.num_mlp_layers)});
    if (g.num_moe_layers > 0) table.add_row({"  with experts", fmt::to_string(g.num_moe_layers)});
    table.add_row({"hidden size", fmt::to_string(info.config.hidden_size)});
    table.add_row({"vocabulary", fmt::to_string(info.config.vocab_size)});
    table.add_row({"positions", fmt::to_string(info.config.max_position_embeddings)});
    table.add_row({"head", info.config.tie_word_embeddings ? "tied to the embedding" : "its own matrix"});
    table.add_row({"parameters", fmt::to_string(g.num_parameters)});
    if (g.num_moe_layers > 0) table.add_row({"  active for a token", fmt::to_string(g.num_active_parameters)});
    table.add_row({"weight bytes", with_unit(weight_bytes(info))});
    table.add_row({"KV bytes per token", with_unit(g.kv_bytes_per_token)});
    add_tensor_rows(info.config, StatePer::kToken, table);
    table.add_row({"state bytes per sequence", with_unit(g.state_bytes_per_row)});
    add_tensor_rows(info.config, StatePer::kSequence, table);
    table.add_row({"break-even length", g.break_even_tokens ? fmt::format("{} tokens", *g.break_even_tokens)
                                                            : std::string("none: there is no KV")});
    if (info.memory_bytes > 0)
        for (const int64_t length : lengths_of(info.config))
            table.add_row({fmt::format("sequences of {} tokens in {}", length, format_bytes(info.memory_bytes)),
                           fmt::to_string(sequences_that_fit(info, g, length))});
    if (info.load) add_load_rows(*info.load, table);
    if (!info.activations.empty()) table.add_row({"the recipe's activations are computed", info.activations});
    return table.to_string();
}

std::string info_json(const ModelInfo& info) {
    const ModelGeometry g = geometry(info.config);
    Json json = {{"model", info.name}, {"architecture", architecture_name(info.config.architecture)}};
    json["layers"] = {{"total", g.num_layers},
                      {"mamba", g.num_mamba_layers},
                      {"attention", g.num_attention_layers},
                      {"mlp", g.num_mlp_layers}};
    json["hidden_size"] = info.config.hidden_size;
    json["vocab_size"] = info.config.vocab_size;
    json["max_position_embeddings"] = info.config.max_position_embeddings;
    json["tied"] = info.config.tie_word_embeddings;
    json["parameters"] = g.num_parameters;
    if (g.num_moe_layers > 0) {
        json["layers"]["moe"] = g.num_moe_layers;
        json["active_parameters"] = g.num_active_parameters;
    }
    json["weight_bytes"] = weight_bytes(info);
    json["kv_bytes_per_token"] = g.kv_bytes_per_token;
    json["state_bytes"] = g.state_bytes_per_row;
    json["tensors"] = tensors_json(info.config);
    json["break_even_tokens"] = g.break_even_tokens ? Json(*g.break_even_tokens) : Json(nullptr);
    if (info.memory_bytes > 0) {
        json["memory_bytes"] = info.memory_bytes;
        for (const int64_t length : lengths_of(info.config))
            json["sequences_that_fit"][fmt::to_string(length)] = sequences_that_fit(info, g, length);
    }
    if (info.load) json["load"] = load_json(*info.load);
    if (!info.activations.empty()) json["recipe_activations"] = info.activations;
    return json_text(json) + "\n";
}

records::Verdict verdict_of(const GoldenReport& report) {
    if (!report.passes()) return records::Verdict::kDifferent;
    const bool is_empty = report.double_model.num_positions == 0 || report.exact.num_positions == 0;
    return is_empty ? records::Verdict::kNotAllCompared : records::Verdict::kSame;
}

std::string check_table(const std::string& checkpoint, const GoldenReport& report) {
    Table table(
        {"prompt", "positions", "double max", "double rms", "double hidden", "exact max", "exact rms", "exact hidden"});
    for (size_t i = 0; i < report.prompts.size(); ++i) {
        const GoldenPromptReport& prompt = report.prompts[i];
        add_error_row(fmt::to_string(i), prompt.num_tokens, prompt.double_model, prompt.exact, table);
    }
    add_error_row("all", report.num_positions, report.double_model, report.exact, table);
    return fmt::format(
        "{}: error of logits, max / max logit and rms / rms logit\n{}states: double max {} of {} values, exact rms {} "
        "of {}\n{}"
        "compared: {} of {} positions in double, {} in exact\n{}\n",
        checkpoint, table.to_string(), max_text(report.double_model.states), report.double_model.states.count(),
        rms_text(report.exact.states), report.exact.states.count(), choices_text(report),
        report.double_model.num_positions, report.num_positions, report.exact.num_positions,
        verdict_text(verdict_of(report)));
}

std::string check_json(const std::string& checkpoint, const GoldenReport& report) {
    Json json = {{"checkpoint", checkpoint}, {"positions", report.num_positions}};
    json["double"] = errors_json(report.double_model);
    json["exact"] = errors_json(report.exact);
    json["passes"] = verdict_of(report) == records::Verdict::kSame;
    json["verdict"] = records::name(verdict_of(report));
    json["compared"] = {{"double", report.double_model.num_positions}, {"exact", report.exact.num_positions}};
    for (const GoldenPromptReport& prompt : report.prompts)
        json["prompts"].push_back({{"positions", prompt.num_tokens},
                                   {"double", errors_json(prompt.double_model)},
                                   {"exact", errors_json(prompt.exact)}});
    return json_text(json) + "\n";
}

}  // namespace verbatim::tools
