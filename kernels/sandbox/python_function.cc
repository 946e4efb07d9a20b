#include "kernels/sandbox/python_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "files/repository_path.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/element_values.h"

namespace verbatim::sandbox {
namespace {

using PythonJson = nlohmann::json;

constexpr std::array<std::string_view, 3> kRoleNames = {"in", "out", "in_out"};
constexpr std::array<std::string_view, 3> kUnitNames = {"call", "sequence", "row"};  // as Axis
constexpr std::array<std::string_view, 3> kToleranceNames = {"bits", "ulps", "ulps_of_unit"};

template <typename Names>
Result<int32_t> index_of_name(const Names& names, const std::string& text, const char* what) {
    const auto found = std::ranges::find(names, text);
    if (found == names.end()) return error("{} {:?} is none of contract.h's", what, text);
    return static_cast<int32_t>(found - names.begin());
}

Result<ContractSpec> spec_of_json(const PythonJson& json) {
    ContractSpec spec{.name = json.at("name"),
                      .formula = json.at("formula"),
                      .is_of_sequences = json.at("batch") == "sequences",
                      .sizes = {},
                      .operands = {},
                      .admits = json.at("admits"),
                      .flops = json.at("flops"),
                      .shapes = json.at("shapes"),
                      .has_no_nan = json.at("has_no_nan")};
    for (const PythonJson& size : json.at("sizes")) {
        spec.sizes.push_back({size.at("name"), size.at("least"), size.at("usual"), size.at("edges"),
                              size.at("is_choice"), size.at("real")});
    }
    for (const PythonJson& operand : json.at("operands")) {
        ContractSpec::Operand& one = spec.operands.emplace_back();
        one = {.name = operand.at("name"),
               .width = operand.at("width"),
               .below = operand.at("below"),
               .is_plain = operand.at("is_plain"),
               .lies_in = operand.at("lies_in"),
               .continues = operand.at("continues")};
        constexpr std::array kDtypes = {Dtype::kF32,    Dtype::kBf16, Dtype::kF16, Dtype::kF8E4m3,
                                        Dtype::kF8E5m2, Dtype::kI8,   Dtype::kI32, Dtype::kI64};
        std::array<std::string_view, kDtypes.size()> names;
        std::ranges::transform(kDtypes, names.begin(), [](Dtype dtype) { return name(dtype); });
        ASSIGN_OR_RETURN(const int32_t dtype, index_of_name(names, operand.at("dtype"), "dtype"));
        ASSIGN_OR_RETURN(const int32_t role, index_of_name(kRoleNames, operand.at("role"), "role"));
        ASSIGN_OR_RETURN(const int32_t unit, index_of_name(kUnitNames, operand.at("unit"), "unit"));
        one.dtype = kDtypes[static_cast<size_t>(dtype)];
        one.role = static_cast<Role>(role);
        one.unit = static_cast<Axis>(unit);
    }
    for (const auto& [parameter, values] : json.at("parameters").items())
        spec.parameters.push_back({parameter, values});
    ASSIGN_OR_RETURN(const int32_t of, index_of_name(kToleranceNames, json.at("tolerance_kind"), "tolerance"));
    spec.tolerance = {static_cast<Tolerance::Of>(of), json.at("tolerance")};
    return spec;
}

}  // namespace

std::vector<std::string> python_command(const std::vector<std::string>& arguments) {
    const auto variable = [](const char* name) -> std::string {
        const char* const value = std::getenv(name);
        return value != nullptr ? value : "";
    };
    const std::string python = variable("VERBATIM_PYTHON");
    const std::string path = variable("PYTHONPATH");
    std::vector<std::string> command = {
        "env",
        "PYTHONPATH=" + repository_path("tools/python") + (path.empty() ? "" : ":" + path),
        "TRITON_INTERPRET=1",
        python.empty() ? "python3" : python,
        "-m",
        "verbatim.kernel"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

Result<PythonFunction> python_function(const std::string& target, const std::string& arrays) {
    constexpr std::string_view kSocket = "socket:";
    if (target.starts_with(kSocket)) return PythonFunction{"", arrays, target.substr(kSocket.size())};
    const size_t colon = target.rfind(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == target.size())
        return error("--python {:?}: wanted module:function", target);
    return PythonFunction{target, arrays, ""};
}

Result<ContractSpec> described_in_python(const std::string& file) {
    const ScratchFolder folder;
    const std::filesystem::path output = folder.path() / "contract.json";
    const int code = run_command(python_command({"describe", std::filesystem::absolute(file).string()}), output);
    std::string text = said_in(output);
    while (text.ends_with('\n')) text.pop_back();
    const std::string last = text.substr(text.rfind('\n') + 1);
    if (code != 0) return error("python ends with {}: {}", code, last);
    try {
        return spec_of_json(PythonJson::parse(last));
    } catch (const PythonJson::exception& wrong) {
        return error("python says {:?}: {}", last, wrong.what());
    }
}

PythonFunction reference_in_python(const std::string& file) {
    return {std::filesystem::absolute(file).string() + ":contract.reference", "numpy", ""};
}

}  // namespace verbatim::sandbox
