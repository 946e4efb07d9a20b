#include "tools/program/given_values.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <string_view>

#include "tools/program/cli.h"
#include "traces/strict.h"

namespace verbatim::tools {
namespace {

bool is_decimal(std::string_view text) {
    if (text.starts_with('-')) text.remove_prefix(1);
    const bool has_digits = !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
    return has_digits && (text == "0" || !text.starts_with('0'));
}

Status check_values(const CLI::Option& option) {
    const bool is_whole = option.get_type_name().find("INT") != std::string::npos;
    for (const std::string& value : option.results()) {
        if (value.empty())
            return error("{}: its value is empty: leave the flag out, or give it one", option.get_name());
        if (is_whole && !is_decimal(value))
            return error("{}: got {}, wanted a whole number in decimal digits", option.get_name(),
                         traces::shown(value));
    }
    return {};
}

}  // namespace

Status check_given_values(const CLI::App& app) {
    for (const CLI::Option* option : options_of_parsed(app)) RETURN_IF_ERROR(check_values(*option));
    return {};
}

}  // namespace verbatim::tools
