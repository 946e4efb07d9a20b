// tools/program/executor_option.h: the flag that names the executor of a verb.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "kernels/executors/executor_choice.h"
#include "tools/program/choice_option.h"

namespace verbatim::tools {

// What `executor` is at the call is the default in --help.
inline CLI::Option* add_executor_option(CLI::App& verb, std::string& executor, const std::string& description) {
    Choices<std::string> names;
    for (const std::string_view name : executors::executor_names()) names.emplace_back(name, name);
    return add_choice_option(verb, "--executor", executor, names, description);
}

}  // namespace verbatim::tools
