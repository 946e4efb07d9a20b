#include "tools/program/isa_option.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace verbatim::tools {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"auto", "avx512", "avx512_bf16", "avx2", "portable"};

bool supports(cpu::Isa isa) { return std::ranges::count(cpu::supported_isas(), isa) > 0; }

std::string supported_names() {
    std::vector<std::string_view> names;
    for (const cpu::Isa isa : cpu::supported_isas()) names.push_back(cpu::isa_name(isa));
    return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace

Result<std::optional<cpu::Isa>> parse_isa(std::string_view name) {
    if (std::ranges::count(kNames, name) == 0) {
        return error("{:?} is no instruction set: there are {}", name, fmt::join(kNames, ", "));
    }
    if (name == "auto") return std::nullopt;
    cpu::Isa isa = cpu::Isa::kPortable;
    if (name == "avx2") isa = cpu::Isa::kAvx2;
    if (name == "avx512") isa = cpu::best_isa() == cpu::Isa::kAvx512Bf16 ? cpu::best_isa() : cpu::Isa::kAvx512;
    if (name == "avx512_bf16") isa = cpu::Isa::kAvx512Bf16;
    if (!supports(isa)) return error("{} is not what this processor has: {}", name, supported_names());
    return isa;
}

CLI::Option* add_isa_option(CLI::App& command, std::optional<cpu::Isa>& isa) {
    const auto set = [&isa](const std::string& name) {
        const auto parsed = parse_isa(name);
        if (!parsed) throw CLI::ValidationError("--isa", parsed.error().message);
        isa = *parsed;
    };
    return command
        .add_option_function<std::string>("--isa", set,
                                          "the instruction set of the loops; the bits do not depend on it")
        ->type_name("auto|avx512|avx512_bf16|avx2|portable")
        ->default_str("auto");
}

}  // namespace verbatim::tools
