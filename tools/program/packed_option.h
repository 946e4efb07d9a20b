// tools/program/packed_option.h: --packed, the file that keeps a checkpoint's weights as the executor cpu reads them
// (kernels/cpu/packed_file.h).
#pragma once

#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

void add_packed_option(CLI::App& command, std::string& file);

// `uses_cpu`: whether one of the executors is cpu; `executors` names them for the error, "neither --executor X nor
// --beside Y". Nothing is checked where `file` is empty. Errors: a preset has no checkpoint; no executor is cpu.
Status check_packed_file(const std::string& file, const std::string& model, bool uses_cpu, std::string_view executors);

}  // namespace verbatim::tools
