#include "tools/model/command.h"

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "files/json_text.h"
#include "files/mapped_file.h"
#include "files/output_file.h"
#include "files/progress_bar.h"
#include "reference/loader/gguf_config.h"
#include "reference/loader/golden_check.h"
#include "reference/loader/load_model.h"
#include "reference/loader/stored_weights_of.h"
#include "reference/loader/write_checkpoint.h"
#include "reference/loader/write_gguf.h"
#include "reference/loader/write_quantised.h"
#include "reference/model/presets.h"
#include "server/text/gguf_text.h"
#include "tools/model/report.h"
#include "tools/program/cli.h"
#include "tools/program/file_roles.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;
using namespace verbatim::reference;

constexpr const char* kModelExitCodes =
    "Exit codes: 0 done; 1 the check failed; 2 bad flag or preset; 3 a file cannot be read or is wrong;\n"
    "4 a file cannot be written; 5 check: no logits of a model could be compared.";

struct ModelOptions {
    std::string preset;
    std::string folder;  // of init and check
    std::string model;   // of info: folder or preset
    std::string golden;
    std::string to;   // of quantise: the type
    std::string out;  // of quantise: the file
    uint64_t seed = 1;
    uint64_t memory_bytes = 0;
    OutputFormat format = OutputFormat::kTable;
};

void print(const std::string& text) { std::fputs(text.c_str(), stdout); }

int run_init(const ModelOptions& options) {
    const auto config = preset(options.preset);
    if (!config) return report_error(config.error(), kExitBadUsage);
    const int64_t num_parameters = geometry(*config).num_parameters;
    {
        ProgressBar bar("writing", static_cast<uint64_t>(num_parameters));
        const Status written = write_random_checkpoint(*config, options.seed, options.folder,
                                                       [&](int64_t done) { bar.update(static_cast<uint64_t>(done)); });
        if (!written) return report_error(written.error(), kExitMachine);
    }
    if (options.format == OutputFormat::kJson) {
        const nlohmann::ordered_json json = {{"preset", options.preset},
                                             {"seed", options.seed},
                                             {"folder", options.folder},
                                             {"parameters", num_parameters}};
        print(json_text(json) + "\n");
    } else {
        print(fmt::format("{}: {} parameters of {}, seed {}\n", options.folder, num_parameters, options.preset,
                          options.seed));
    }
    return kExitOk;
}

int run_info(const ModelOptions& options) {
    ModelInfo info;
    info.name = options.model;
    info.memory_bytes = options.memory_bytes;
    // A folder or file of a preset's name is meant as that: its weights are there to look at.
    if (std::error_code ignored; fs::exists(options.model, ignored)) {
        auto model = load_model(options.model);
        if (!model) return report_error(model.error());
        info.config = model->config;
        info.load = model->report;
        const std::string& problem = model->weights.fp8_problem;
        if (!problem.empty())
            info.activations = fmt::format("not in exact.fp8: {}", problem);
        else if (model->weights.has_fp8_activations)
            info.activations =
                model->report.num_static_scales > 0 ? "in exact.fp8, under static scales" : "in exact.fp8";
    } else {
        const auto config = preset(options.model);
        if (!config)
            return report_error(Error{fmt::format("{:?} is neither a folder, a GGUF file nor a preset: {}",
                                                  options.model, config.error().message)});
        info.config = *config;
    }
    print(options.format == OutputFormat::kJson ? info_json(info) : info_table(info));
    return kExitOk;
}

int run_check(const ModelOptions& options) {
    const fs::path folder = options.folder;
    const auto model = load_model(folder);
    if (!model) return report_error(model.error());
    if (options.golden.empty() && !fs::is_directory(folder))
        return report_error(Error{fmt::format("{}: is a file: --golden says what it is compared with", options.folder)},
                            kExitBadUsage);
    const fs::path golden = options.golden.empty() ? folder / "golden.safetensors" : fs::path(options.golden);
    const auto prompts = load_golden(golden, model->config);
    if (!prompts) return report_error(prompts.error());
    const GoldenReport report = check_golden(*model, *prompts);
    print(options.format == OutputFormat::kJson ? check_json(options.folder, report)
                                                : check_table(options.folder, report));
    return exit_code_of(verdict_of(report));
}

// What the file or folder that was written has in each type, by its headers: rows that are not whole blocks stay as
// they were.
int report_written(const ModelOptions& options, const Model& model) {
    const auto written = find_quantised_checkpoint(options.out);
    if (!written) return report_error(written.error());
    std::string types;
    if (*written) {
        for (const StoredType& type : (*written)->stored.types)
            types += fmt::format("{}{} in {}", types.empty() ? ": " : ", ", type.num_weights, type.name);
    }
    print(fmt::format("{}: {} parameters{}\n", options.out, model.report.num_parameters, types));
    return kExitOk;
}

// Writes DIR as a GGUF file.
int run_quantise_gguf(const ModelOptions& options, const BlockFormat& format, Model& model) {
    auto metadata = gguf_metadata(model.config);
    if (!metadata) return report_error(Error{fmt::format("{}: {}", options.model, metadata.error().message)});
    if (const Status texts = text::put_gguf_texts(options.model, model.config.vocab_size, *metadata); !texts)
        return report_error(texts.error());
    auto out = files::OutputFile::create(options.out);
    if (!out) return report_error(out.error(), kExitMachine);
    const Status written = write_gguf(model.config, model.weights, format, metadata->view(),
                                      [&](std::string_view bytes) { return out->write(bytes); });
    if (!written) return report_error(written.error());
    if (const Status kept = out->finish(); !kept) return report_error(kept.error(), kExitMachine);
    return report_written(options, model);
}

// The files of a checkpoint that are neither weights nor config.json, where it has them.
Status copy_texts(const fs::path& from, const fs::path& to) {
    for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                             "generation_config.json", "chat_template.jinja", "chat_template.json"}) {
        std::error_code code;
        if (!fs::exists(from / name, code)) continue;
        fs::copy_file(from / name, to / name, fs::copy_options::overwrite_existing, code);
        if (code) return error("{}: cannot be copied: {}", (from / name).string(), code.message());
    }
    return {};
}

// Writes DIR as a folder of safetensors with its linear layers in one type.
int run_quantise_folder(const ModelOptions& options, const QuantisedKind& kind, Model& model) {
    const auto config = read_text_file(fs::path(options.model) / "config.json", kMaxConfigBytes);
    if (!config) return report_error(config.error());
    if (const Status written = write_quantised(model, *config, kind, options.out); !written) {
        const Error& wrong = written.error();
        if (wrong.kind == ErrorKind::kMachine) return report_error(wrong);  // it names what cannot be written
        return report_error(Error{fmt::format("{}: {}", options.model, wrong.message)});
    }
    if (const Status copied = copy_texts(options.model, options.out); !copied)
        return report_error(copied.error(), kExitMachine);
    return report_written(options, model);
}

int run_quantise(const ModelOptions& options) {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kGgufTypes = {
        {{"q8_0", "Q8_0"}, {"q4_0", "Q4_0"}, {"q4_k", "Q4_K"}, {"bf16", "BF16"}}};
    const BlockFormat* format = nullptr;
    for (const auto& [flag, name] : kGgufTypes)
        if (flag == options.to) format = find_block_format(name);
    const auto* kind = find_quantised_kind(options.to);
    if (format == nullptr && kind == nullptr)
        return report_error(
            Error{fmt::format("--to {}: wanted q8_0, q4_0, q4_k, bf16, {}", options.to, quantised_kind_names())},
            kExitBadUsage);
    if (!fs::is_directory(options.model))
        return report_error(Error{fmt::format("{}: wanted the folder of a checkpoint", options.model)});
    auto model = load_model(options.model);
    if (!model) return report_error(model.error());
    if (model->weights.quantised)
        return report_error(Error{fmt::format("{}: is quantised already, wanted the checkpoint", options.model)});
    return format != nullptr ? run_quantise_gguf(options, *format, *model)
                             : run_quantise_folder(options, *kind, *model);
}

using ModelFlags = std::shared_ptr<ModelOptions>;

void add_init(CLI::App& model, const ModelFlags& options, int& exit_code) {
    CLI::App* verb = model.add_subcommand("init", "write a checkpoint with random weights of a preset's shapes");
    std::string names;
    for (const std::string_view name : preset_names()) names += fmt::format("\n  {}", name);
    verb->footer(fmt::format("Presets:{}\n{}", names, kModelExitCodes));
    verb->add_option("--preset", options->preset, "whose shapes")->required()->type_name("NAME");
    add_seed_option(*verb, options->seed);
    verb->add_option("--out", options->folder, "the folder to make; it must not have a checkpoint yet")
        ->required()
        ->type_name("DIR");
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_init(*options); });
}

void add_info(CLI::App& model, const ModelFlags& options, int& exit_code) {
    CLI::App* verb =
        model.add_subcommand("info", "layers, parameters, bytes of KV and state of a checkpoint or preset");
    verb->footer(kModelExitCodes);
    verb->add_option("model", options->model, "a checkpoint's folder, a GGUF file, or a preset's name")
        ->required()
        ->type_name("DIR|FILE|PRESET");
    add_bytes_option(*verb, "--memory", options->memory_bytes, "say what fits into this much beside the weights");
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_info(*options); });
}

void add_check(CLI::App& model, const ModelFlags& options, int& exit_code) {
    CLI::App* verb = model.add_subcommand("check", "compare the double and the exact model with a golden file");
    verb->footer(
        fmt::format("Right are: double, max error / max logit <= {:g}; exact, rms error / rms logit <= {:g}.\n{}",
                    kDoubleTolerance, kExactTolerance, kModelExitCodes));
    verb->add_option("model", options->folder, "a checkpoint's folder, or a GGUF file")
        ->required()
        ->type_name("DIR|FILE");
    verb->add_option("--golden", options->golden, "the golden file; DIR/golden.safetensors by default")
        ->type_name("FILE");
    add_format_option(*verb, options->format);
    verb->callback([options, &exit_code] { exit_code = run_check(*options); });
}

void add_quantise(CLI::App& model, const ModelFlags& options, int& exit_code) {
    CLI::App* verb =
        model.add_subcommand("quantise", "write a checkpoint with quantised matrices: a GGUF file or a folder");
    verb->footer(kModelExitCodes);
    verb->add_option("model", options->model, "a checkpoint's folder")->required()->type_name("DIR");
    verb->add_option(
            "--to", options->to,
            "the matrices' type: of a GGUF file q8_0, q4_0, q4_k, or bf16 as they are; of a folder of safetensors " +
                quantised_kind_names())
        ->required()
        ->type_name("TYPE");
    add_output_option(*verb, "--out", options->out, "the GGUF file or folder to write")->required();
    verb->callback([options, &exit_code] { exit_code = run_quantise(*options); });
}

}  // namespace

void add_model_command(CLI::App& app, int& exit_code) {
    CLI::App* model = app.add_subcommand("model", "make, describe and check models");
    model->require_subcommand(1);
    model->footer(kModelExitCodes);
    add_init(*model, std::make_shared<ModelOptions>(), exit_code);
    add_info(*model, std::make_shared<ModelOptions>(), exit_code);
    add_check(*model, std::make_shared<ModelOptions>(), exit_code);
    add_quantise(*model, std::make_shared<ModelOptions>(), exit_code);
}

}  // namespace verbatim::tools
