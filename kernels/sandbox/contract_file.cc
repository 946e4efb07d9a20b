#include "kernels/sandbox/contract_file.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <memory>
#include <regex>
#include <utility>

#include "engine/base/check.h"
#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/contract_operation.h"
#include "kernels/sandbox/judge.h"
#include "kernels/sandbox/python_function.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

// What the header is compiled with: it exports the contract, and its reference as a kernel.
constexpr const char* kLibrarySource = R"(#define VERBATIM_CONTRACT_LIBRARY
{}static int32_t verbatim_run_reference(const struct verbatim_kernel*, const struct verbatim_run* run) {{
    return verbatim_contract()->reference(run->args.call);
}}
VERBATIM_EXPORT const struct verbatim_kernel* verbatim_kernel_at(int32_t index) {{
    static const struct verbatim_kernel kernel = {{VERBATIM_KERNEL_ABI, "reference", verbatim_contract()->name,
        "exact", "cpu", nullptr, nullptr, nullptr, nullptr, nullptr, verbatim_run_reference}};
    return index == 0 ? &kernel : nullptr;
}}
)";

std::string include_of(const std::string& path) { return fmt::format("#include \"{}\"\n", path); }

std::string text_of(const char* text) { return text != nullptr ? text : ""; }

template <typename T>
Result<T> wanted(std::optional<T> value, const char* what, int32_t number) {
    if (!value) return error("{} {} is none of contract.h's", what, number);
    return *value;
}

Result<std::vector<int64_t>> numbers_of(const char* text, const char* what) {
    auto numbers = read_numbers(text_of(text));
    if (!numbers) return error("{}: {}", what, numbers.error().message);
    return numbers;
}

Result<std::vector<float>> floats_of(const std::string& text) {
    std::vector<float> values;
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find(' ', at), text.size());
        if (end > at) {
            float& value = values.emplace_back();
            const auto [last, problem] = std::from_chars(text.data() + at, text.data() + end, value);
            if (problem != std::errc() || last != text.data() + end)
                return error("{:?} is no number", text.substr(at, end - at));
        }
        at = end + 1;
    }
    return values;
}

Result<ContractSpec> spec_of(const verbatim_contract& contract) {
    if (contract.abi < 3 || contract.abi > VERBATIM_KERNEL_ABI)
        return error("it is of ABI {}, wanted 3 ... {}", contract.abi, VERBATIM_KERNEL_ABI);
    if (contract.reference == nullptr) return error("it has no reference");
    ContractSpec spec{.name = text_of(contract.name),
                      .formula = text_of(contract.formula),
                      .is_of_sequences = contract.batch == VERBATIM_SEQUENCES,
                      .sizes = {},
                      .operands = {},
                      .admits = text_of(contract.admits),
                      .flops = text_of(contract.flops),
                      .shapes = text_of(contract.shapes),
                      .has_no_nan = contract.has_no_nan != 0};
    for (const verbatim_contract_size* size = contract.sizes; size->name != nullptr; ++size) {
        ContractSpec::Size& one = spec.sizes.emplace_back();
        one.name = size->name;
        one.least = size->least != 0 ? size->least : 1;
        one.is_choice = size->is_choice != 0;
        ASSIGN_OR_RETURN(one.edges, numbers_of(size->edges, size->name));
        ASSIGN_OR_RETURN(one.real, numbers_of(size->real, size->name));
        one.usual = size->usual != 0 ? size->usual : one.is_choice && !one.edges.empty() ? one.edges[0] : 3;
    }
    for (const verbatim_contract_operand* operand = contract.operands; operand->name != nullptr; ++operand) {
        ContractSpec::Operand& one = spec.operands.emplace_back();
        one.name = operand->name;
        ASSIGN_OR_RETURN(one.role, wanted(contract_role(operand->role), "role", operand->role));
        ASSIGN_OR_RETURN(one.dtype, wanted(contract_dtype(operand->dtype), "dtype", operand->dtype));
        ASSIGN_OR_RETURN(one.unit, wanted(contract_unit(operand->unit), "unit", operand->unit));
        one.width = text_of(operand->width);
        one.below = text_of(operand->below);
        one.is_plain = operand->is_plain != 0;
        one.lies_in = text_of(operand->lies_in);
        one.continues = text_of(operand->continues);
    }
    for (const verbatim_contract_parameter* parameter = contract.parameters; parameter->name != nullptr; ++parameter) {
        ContractSpec::Parameter& one = spec.parameters.emplace_back();
        one.name = parameter->name;
        ASSIGN_OR_RETURN(one.values, floats_of(text_of(parameter->values)));
    }
    ASSIGN_OR_RETURN(spec.tolerance.of,
                     wanted(contract_tolerance(contract.tolerance_kind), "tolerance_kind", contract.tolerance_kind));
    spec.tolerance.ulps = contract.tolerance;
    return spec;
}

// A process that runs the reference, and what it runs.
struct Reference {
    ScratchFolder folder;
    std::unique_ptr<PythonFunction> python;  // null: a library
    std::unique_ptr<KernelHost> host;
    KernelInfo info;

    Result<Arguments> run(const Arguments& call, uint8_t poison = 0) const {
        CallOptions options;
        options.output_poison = poison;
        CallResult result = host->call(info, call, options);
        if (result.end == CallEnd::kDone) return std::move(result.after);
        return error("{}: {}", name(verdict_of(result)), result.detail);
    }
};

Result<ContractSpec> compiled_contract(const std::string& file, const std::vector<std::string>& flags,
                                       const HostLimits& limits, Reference& reference) {
    std::error_code problem;
    if (!fs::is_regular_file(file, problem)) return error("there is no such file (`verbatim kernel new --contract`)");
    const fs::path source = reference.folder.path() / "contract.cc";
    write_scratch(source, fmt::format(kLibrarySource, include_of("kernels/sandbox/contract.h") +
                                                          include_of(fs::absolute(file).string())));
    ASSIGN_OR_RETURN(const CompiledKernel compiled, compile_kernel(source.string(), flags, reference.folder));
    void* const library = dlopen(compiled.library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return error("{}", dlerror());
    const auto contract = reinterpret_cast<const verbatim_contract* (*)()>(dlsym(library, "verbatim_contract"));
    Result<ContractSpec> spec = error("it exports no contract: it ends with VERBATIM_CONTRACT(name)");
    if (contract != nullptr) spec = spec_of(*contract());
    dlclose(library);
    reference.host = std::make_unique<KernelHost>(compiled.library, limits);
    reference.info = {"reference", "", "exact", "cpu", 0};
    return spec;
}

// The usual call, twice: what a contract's reference must be able to do.
Status try_reference(const Operation& operation, const Reference& reference) {
    KernelCase usual;
    for (size_t i = 0; i < operation.sizes.size(); ++i) usual.sizes[i] = operation.sizes[i].usual;
    const Arguments call = make_arguments(operation, usual);
    ASSIGN_OR_RETURN(const Arguments first, reference.run(call));
    ASSIGN_OR_RETURN(const Arguments second, reference.run(call, 1));
    const std::string difference = first_difference(second, first);
    if (difference.empty()) return {};
    return error("its reference leaves an output unwritten, reads one, or is not deterministic: {}", difference);
}

Result<const Operation*> loaded(const std::string& file, const std::vector<std::string>& flags,
                                const HostLimits& limits) {
    const auto reference = std::make_shared<Reference>();
    ContractSpec spec;
    if (file.ends_with(".py")) {
        ASSIGN_OR_RETURN(spec, described_in_python(file));
        reference->python = std::make_unique<PythonFunction>(reference_in_python(file));
        reference->host = std::make_unique<KernelHost>("", limits);
        reference->info = reference->python->info("reference", spec.name, "exact");
    } else {
        ASSIGN_OR_RETURN(spec, compiled_contract(file, flags, limits, *reference));
    }
    const auto run = [reference](const Arguments& arguments) { return reference->run(arguments); };
    ASSIGN_OR_RETURN(Operation operation, operation_of(std::move(spec), run));
    ASSIGN_OR_RETURN(const Operation* added, add_operation(std::move(operation)));
    RETURN_IF_ERROR(try_reference(*added, *reference));
    return added;
}

constexpr const char* kFirstForCpu = R"(// {0}, computed by its contract's reference: correct and slow.
{1}
static int32_t run(const struct verbatim_kernel*, const struct verbatim_run* run) {{
    const struct verbatim_call* call = run->args.call;
    return {2}(call);
}}
)";
constexpr const char* kFirstForCuda = R"(// {0}, computed by its contract's reference in one thread: correct and slow.
{1}
__global__ void first_kernel(const verbatim_call call) {{
    if (blockIdx.x == 0 && threadIdx.x == 0) {2}(&call);
}}

static int32_t run(const struct verbatim_kernel*, const struct verbatim_run* run) {{
    first_kernel<<<1, 32, 0, static_cast<cudaStream_t>(run->device)>>>(*run->args.call);
    return cudaGetLastError() == cudaSuccess ? 0 : 1;
}}
)";
constexpr const char* kExport = R"(
VERBATIM_EXPORT const struct verbatim_kernel* verbatim_kernel_at(int32_t index) {{
    static const struct verbatim_kernel kernel = {{VERBATIM_KERNEL_ABI, "first", "{0}", "exact", "{1}",
                                                  0, 0, 0, 0, 0, run}};
    return index == 0 ? &kernel : 0;
}}
)";

}  // namespace

bool is_contract_file(std::string_view name) { return name.ends_with(".h") || name.ends_with(".py"); }

Result<const Operation*> load_contract(const std::string& file, const std::vector<std::string>& flags,
                                       const HostLimits& limits) {
    if (!is_contract_file(file)) return error("{}: a contract is a .h or .py file", file);
    auto operation = loaded(file, flags, limits);
    if (!operation) return error("{}: {}", file, operation.error().message);
    return operation;
}

Result<std::string> first_kernel(const std::string& contract_file, const Operation& operation,
                                 std::string_view machine) {
    if (contract_file.ends_with(".py"))
        return error(
            "{}: `kernel new` writes kernels for contracts in C: the reference of this one is a kernel "
            "itself (--python)",
            contract_file);
    static const std::regex kReference(R"(\.reference\s*=\s*&?(\w+))");
    const std::string text = said_in(contract_file);
    std::smatch found;
    if (!std::regex_search(text, found, kReference)) return error("{}: it has no `.reference = ...`", contract_file);
    const std::string header = include_of(fs::path(contract_file).filename().string());
    const bool is_for_cuda = machine == "cuda";
    return fmt::format(fmt::runtime(is_for_cuda ? kFirstForCuda : kFirstForCpu), operation.name, header,
                       found[1].str()) +
           fmt::format(kExport, operation.name, machine);
}

}  // namespace verbatim::sandbox
