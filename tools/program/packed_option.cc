#include "tools/program/packed_option.h"

#include <CLI/CLI.hpp>

#include "reference/loader/model_choice.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

void add_packed_option(CLI::App& command, std::string& file) {
    add_output_option(
        command, "--packed", file,
        "keeps the weights of --model DIR or FILE.gguf as cpu reads them: the next start is quicker; made "
        "where it is not");
}

Status check_packed_file(const std::string& file, const std::string& model, bool uses_cpu, std::string_view executors) {
    if (file.empty()) return {};
    if (reference::is_preset(model))
        return error(
            "--packed: keeps a checkpoint's weights, but --model {} is a preset: make it a checkpoint first "
            "(verbatim model init)",
            model);
    if (!uses_cpu) return error("--packed: {} packs weights as cpu does", executors);
    return {};
}

}  // namespace verbatim::tools
