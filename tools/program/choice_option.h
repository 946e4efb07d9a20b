// tools/program/choice_option.h: flags whose value is one of a list of names; --help shows them as a|b|c.
#pragma once

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/choices.h"

namespace verbatim::tools {

// Sets `value` when the flag is given. Its current value is the default in --help, if it is one of the choices.
template <typename T, typename Value>
CLI::Option* add_choice_option(CLI::App& command, const std::string& flag, Value& value, const Choices<T>& choices,
                               const std::string& description) {
    const std::vector<std::string> names = names_of(choices);
    std::string current;
    for (const auto& [name, choice] : choices) {
        if (value == choice) current = name;
    }
    const auto set = [&value, choices](const std::string& given) {
        for (const auto& [name, choice] : choices) {
            if (name == given) value = choice;
        }
    };
    return command.add_option_function<std::string>(flag, set, description)
        ->check(CLI::IsMember(names).description(""))  // the type name shows it
        ->type_name(fmt::format("{}", fmt::join(names, "|")))
        ->default_str(current);
}

}  // namespace verbatim::tools
