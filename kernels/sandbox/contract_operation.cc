#include "kernels/sandbox/contract_operation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>
#include <set>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "kernels/sandbox/element_values.h"
#include "kernels/sandbox/given_sizes.h"
#include "kernels/sandbox/operation_parts.h"
#include "kernels/sandbox/size_expression.h"

namespace verbatim::sandbox {
namespace {

constexpr int64_t kMostWidth = int64_t{1} << 40;
constexpr int64_t kDefaultEdge = 65;

// The contract with its expressions, which the functions of an Operation share.
struct ReadContract {
    ContractSpec spec;
    std::vector<SizeExpression> widths;                // of the operands
    std::vector<std::optional<SizeExpression>> below;  // likewise
    std::optional<SizeExpression> admits, flops;
    std::string text;           // Operation::contract
    std::vector<Sizes> shapes;  // of models

    [[nodiscard]] int64_t width(size_t i, const Sizes& sizes) const {
        return std::clamp<int64_t>(widths[i].at(sizes), 0, kMostWidth);
    }
};
using Shared = std::shared_ptr<const ReadContract>;

const char* role_text(Role role) { return role == Role::kIn ? "in" : role == Role::kOut ? "out" : "in place"; }
const char* unit_text(Axis unit, bool is_of_sequences) {
    if (unit == Axis::kCall) return "call";
    return unit == Axis::kRow ? is_of_sequences ? "token" : "row" : "sequence";
}

std::string contract_words(const ContractSpec& spec) {
    std::string text;
    for (const ContractSpec::Operand& operand : spec.operands) {
        text += fmt::format("{} [{}] {} per {}, {}{}{}\n", operand.name, operand.width, name(operand.dtype),
                            unit_text(operand.unit, spec.is_of_sequences), role_text(operand.role),
                            operand.lies_in.empty() ? "" : ", may lie in " + operand.lies_in,
                            operand.continues.empty() ? "" : ", continues " + operand.continues);
    }
    for (const ContractSpec::Parameter& parameter : spec.parameters)
        text += fmt::format("{}: one of {}\n", parameter.name, fmt::join(parameter.values, ", "));
    text += spec.formula;
    return text.ends_with('\n') ? text : text + "\n";
}

// --- what may be wrong

Status check_names(const ContractSpec& spec) {
    const auto check = [](const char* what, const auto& list, size_t most) -> Status {
        if (list.size() > most) return error("{} {}s, at most {}", list.size(), what, most);
        std::set<std::string> names;
        for (const auto& one : list) {
            if (one.name.empty()) return error("a {} without a name", what);
            if (!names.insert(one.name).second) return error("{} {:?} is there twice", what, one.name);
        }
        return {};
    };
    if (spec.name.empty()) return error("it has no name");
    RETURN_IF_ERROR(check("size", spec.sizes, kMaxSizes));
    RETURN_IF_ERROR(check("operand", spec.operands, VERBATIM_MAX_OPERANDS));
    RETURN_IF_ERROR(check("parameter", spec.parameters, kMaxScalars));
    const size_t wanted = spec.is_of_sequences ? 2 : 1;
    if (spec.sizes.size() < wanted)
        return error("{} sizes: a contract of {} begins with {}", spec.sizes.size(),
                     spec.is_of_sequences ? "sequences" : "rows",
                     spec.is_of_sequences ? "the sequences, and the tokens of one" : "the rows");
    return {};
}

Status check_size(const ContractSpec::Size& size) {
    if (size.usual < size.least) return error("size {}: usual {} is below {}", size.name, size.usual, size.least);
    for (const std::vector<int64_t>* list : {&size.edges, &size.real}) {
        for (const int64_t value : *list) {
            if (value < size.least) return error("size {}: {} is below {}", size.name, value, size.least);
        }
    }
    const bool is_valid = !size.is_choice || std::ranges::find(size.edges, size.usual) != size.edges.end();
    if (!is_valid)
        return error("size {}: usual {} is none of its choices {}", size.name, size.usual, fmt::join(size.edges, ", "));
    return {};
}

Status check_operand(const ContractSpec& spec, const ContractSpec::Operand& operand) {
    const auto find = [&](const std::string& name) -> const ContractSpec::Operand* {
        const auto found = std::ranges::find(spec.operands, name, &ContractSpec::Operand::name);
        return found == spec.operands.end() ? nullptr : &*found;
    };
    const auto fits = [&](const ContractSpec::Operand* other, Role role) {
        return other != nullptr && other->role == role && other->unit == operand.unit && other->dtype == operand.dtype;
    };
    if (operand.unit == Axis::kItem && !spec.is_of_sequences)
        return error("operand {} is per sequence, in a contract of rows", operand.name);
    if (!operand.below.empty() && is_float(operand.dtype))
        return error("operand {}: `below` is for integers, not for {}", operand.name, name(operand.dtype));
    if (operand.role != Role::kIn && operand.unit == Axis::kCall)
        return error("operand {} is an output per call: a call of some rows has no such output", operand.name);
    const bool lies_in = !operand.lies_in.empty();
    if (lies_in && (operand.role != Role::kOut || !fits(find(operand.lies_in), Role::kIn) ||
                    find(operand.lies_in)->width != operand.width))
        return error("operand {}: lies_in {:?} is no input of its dtype, unit and width", operand.name,
                     operand.lies_in);
    const bool continues = !operand.continues.empty();
    if (continues &&
        (operand.unit != Axis::kItem || operand.role != Role::kIn || !fits(find(operand.continues), Role::kOut)))
        return error("operand {}: continues {:?}, which is no output per sequence of its dtype", operand.name,
                     operand.continues);
    return {};
}

Status read_expressions(ReadContract& contract) {
    std::vector<std::string> names;
    for (const ContractSpec::Size& size : contract.spec.sizes) names.push_back(size.name);
    const auto read = [&](const std::string& where, const std::string& text) -> Result<SizeExpression> {
        auto expression = SizeExpression::read(text, names);
        if (!expression) return error("{} {}", where, expression.error().message);
        return expression;
    };
    // A call of some rows has fewer of them, and the same units.
    const auto read_of_unit = [&](const std::string& where, const std::string& text) -> Result<SizeExpression> {
        ASSIGN_OR_RETURN(SizeExpression expression, read(where, text));
        for (size_t i = 0; i < (contract.spec.is_of_sequences ? 2 : 1); ++i) {
            if (expression.reads(static_cast<int64_t>(i)))
                return error("{} {:?} depends on {}, which a call of some of them has fewer of", where, text, names[i]);
        }
        return expression;
    };
    for (const ContractSpec::Operand& operand : contract.spec.operands) {
        ASSIGN_OR_RETURN(contract.widths.emplace_back(), read_of_unit("width of " + operand.name, operand.width));
        contract.below.emplace_back();
        if (operand.below.empty()) continue;
        ASSIGN_OR_RETURN(contract.below.back(), read_of_unit("below of " + operand.name, operand.below));
    }
    if (!contract.spec.admits.empty()) {
        ASSIGN_OR_RETURN(contract.admits, read("admits", contract.spec.admits));
    }
    if (!contract.spec.flops.empty()) {
        ASSIGN_OR_RETURN(contract.flops, read("flops", contract.spec.flops));
    }
    return {};
}

Status check_contract(const ContractSpec& spec) {
    RETURN_IF_ERROR(check_names(spec));
    for (const ContractSpec::Size& size : spec.sizes) RETURN_IF_ERROR(check_size(size));
    for (const ContractSpec::Operand& operand : spec.operands) RETURN_IF_ERROR(check_operand(spec, operand));
    const auto is_output = [](const ContractSpec::Operand& operand) { return operand.role != Role::kIn; };
    if (std::ranges::none_of(spec.operands, is_output)) return error("it has no output");
    for (const ContractSpec::Parameter& parameter : spec.parameters) {
        if (parameter.values.empty()) return error("parameter {} has no values", parameter.name);
    }
    if (spec.tolerance.ulps < 0) return error("a tolerance of {} ulps", spec.tolerance.ulps);
    return {};
}

// --- the functions of the Operation

std::vector<TensorSpec> contract_tensors(const ReadContract& contract, const Sizes& sizes) {
    std::vector<TensorSpec> tensors;
    const auto text = [](const std::string& name) { return name.empty() ? nullptr : name.c_str(); };
    for (size_t i = 0; i < contract.spec.operands.size(); ++i) {
        const ContractSpec::Operand& operand = contract.spec.operands[i];
        const Fill fill = !is_float(operand.dtype) ? Fill::kOwn : operand.is_plain ? Fill::kPlain : Fill::kValues;
        tensors.push_back({.name = operand.name.c_str(),
                           .dtype = operand.dtype,
                           .role = operand.role,
                           .axis = operand.unit,
                           .width = contract.width(i, sizes),
                           .fill = fill,
                           .strided = operand.unit == Axis::kRow,
                           .lies_in = text(operand.lies_in),
                           .continues = text(operand.continues)});
    }
    if (contract.spec.is_of_sequences) tensors.push_back(first_rows());
    return tensors;
}

void set_integer(Tensor& tensor, size_t i, int64_t value) {
    switch (tensor.spec.dtype) {
        case Dtype::kI8: tensor.as<int8_t>()[i] = static_cast<int8_t>(value); return;
        case Dtype::kI32: tensor.as<int32_t>()[i] = static_cast<int32_t>(value); return;
        case Dtype::kI64: tensor.as<int64_t>()[i] = value; return;
        default: CHECK(false, "`{}` has no integers of a contract", tensor.spec.name);
    }
}

void contract_finish(const ReadContract& contract, Arguments& arguments, Prng& prng) {
    constexpr int64_t kSmall = 127;
    for (size_t p = 0; p < contract.spec.parameters.size(); ++p) {
        const std::vector<float>& values = contract.spec.parameters[p].values;
        arguments.scalars[p] = values[prng.below(values.size())];
    }
    for (size_t i = 0; i < contract.spec.operands.size(); ++i) {
        Tensor& tensor = arguments.tensors[i];
        if (tensor.spec.fill != Fill::kOwn || tensor.spec.role == Role::kOut) continue;
        const int64_t below = contract.below[i] ? std::max<int64_t>(contract.below[i]->at(arguments.sizes), 1) : 0;
        for (int64_t at = 0; at < num_elements(tensor); ++at) {
            const int64_t value = below > 0 ? static_cast<int64_t>(prng.below(static_cast<uint64_t>(below)))
                                            : static_cast<int64_t>(prng.below(2 * kSmall + 1)) - kSmall;
            set_integer(tensor, static_cast<size_t>(at), value);
        }
    }
}

verbatim_args contract_bind(const ReadContract& contract, const Placed& placed, AbiArgs& abi) {
    abi.call = {};
    std::ranges::copy(placed.sizes, abi.call.sizes);
    abi.call.sizes[0] = placed.num_items;  // of a call of some of them, too
    std::ranges::copy(placed.scalars, abi.call.parameters);
    abi.call.num_rows = placed.num_rows;
    const size_t count = contract.spec.operands.size();
    for (size_t i = 0; i < count; ++i) {
        const Axis unit = contract.spec.operands[i].unit;
        abi.call.operands[i] = {.data = placed.data[i],
                                .num_units = unit == Axis::kRow    ? placed.num_rows
                                             : unit == Axis::kItem ? placed.num_items
                                                                   : 1,
                                // A chunk continues from a state, where the first one has none.
                                .width = unit == Axis::kRow ? contract.width(i, placed.sizes) : placed.stride[i],
                                .stride = placed.stride[i]};
    }
    if (contract.spec.is_of_sequences) abi.call.sequences = placed_sequences(placed, count);
    return {.call = &abi.call};
}

Work contract_work(const ReadContract& contract, const Arguments& arguments) {
    double flops = 0;
    if (contract.flops) {
        flops = static_cast<double>(contract.flops->at(arguments.sizes));
    } else {
        for (const Tensor& tensor : arguments.tensors) flops += static_cast<double>(num_elements(tensor));
    }
    return {bytes_of_tensors(arguments), flops};
}

std::vector<SizeSpec> contract_sizes(const ContractSpec& spec) {
    std::vector<SizeSpec> sizes;
    for (size_t i = 0; i < spec.sizes.size(); ++i) {
        const ContractSpec::Size& size = spec.sizes[i];
        SizeSpec one{.name = size.name.c_str(),
                     .least = size.least,
                     .usual = size.usual,
                     .edges = size.edges,
                     .is_choice = size.is_choice,
                     .is_cut = !size.is_choice,
                     .real = size.real};
        if (one.edges.empty()) one.edges = edges_up_to(kDefaultEdge);
        std::erase_if(one.edges, [&](int64_t edge) { return edge < size.least; });
        if (one.edges.empty()) one.edges = {size.least};
        if (i == 0 && one.real.empty()) one.real = spec.is_of_sequences ? real_sequences() : real_rows();
        sizes.push_back(std::move(one));
    }
    return sizes;
}

Result<std::vector<Sizes>> read_shapes(const Operation& operation, std::string_view text) {
    std::vector<Sizes> shapes;
    for (std::string_view rest = text; !rest.empty();) {
        std::string_view one = rest.substr(0, rest.find(';'));
        rest.remove_prefix(std::min(rest.size(), one.size() + 1));
        while (one.starts_with(' ')) one.remove_prefix(1);
        while (one.ends_with(' ')) one.remove_suffix(1);
        if (one.empty()) continue;
        auto sizes = read_shape(operation, one);
        if (!sizes) return error("shapes: {}", sizes.error().message);
        shapes.push_back(*sizes);
    }
    return shapes;
}

}  // namespace

Result<Operation> operation_of(ContractSpec spec,
                               std::function<Result<Arguments>(const Arguments& arguments)> definition) {
    RETURN_IF_ERROR(check_contract(spec));
    const auto contract = std::make_shared<ReadContract>();
    contract->spec = std::move(spec);
    RETURN_IF_ERROR(read_expressions(*contract));
    contract->text = contract_words(contract->spec);
    Operation operation{.name = contract->spec.name.c_str(),
                        .contract = contract->text.c_str(),
                        .takes_not_finite = !contract->spec.has_no_nan,
                        .sizes = contract_sizes(contract->spec),
                        .scalars = {}};
    for (const ContractSpec::Parameter& parameter : contract->spec.parameters)
        operation.scalars.push_back(parameter.name);
    const Shared shared = contract;
    if (shared->admits) operation.go_together = [shared](const Sizes& sizes) { return shared->admits->at(sizes) != 0; };
    operation.tensors = [shared](const Sizes& sizes) { return contract_tensors(*shared, sizes); };
    operation.items = shared->spec.is_of_sequences ? sequences_of_tokens : single_rows;
    operation.finish = [shared](Arguments& arguments, Prng& prng) { contract_finish(*shared, arguments, prng); };
    operation.bind = [shared](const Placed& placed, AbiArgs& abi) { return contract_bind(*shared, placed, abi); };
    operation.work = [shared](const Arguments& arguments) { return contract_work(*shared, arguments); };
    operation.definition = std::move(definition);
    operation.tolerance = shared->spec.tolerance;
    Sizes usual{};
    for (size_t i = 0; i < operation.sizes.size(); ++i) usual[i] = operation.sizes[i].usual;
    if (!go_together(operation, usual))
        return error("its usual sizes, {}, do not go together", describe(operation, usual));
    for (size_t i = 0; i < shared->widths.size(); ++i) {
        if (shared->widths[i].at(usual) < 0)
            return error("width of {} is {} at the usual sizes", shared->spec.operands[i].name,
                         shared->widths[i].at(usual));
    }
    ASSIGN_OR_RETURN(contract->shapes, read_shapes(operation, shared->spec.shapes));
    if (contract->shapes.empty()) contract->shapes = {usual};
    operation.published = [shared] { return shared->shapes; };
    return operation;
}

Result<std::vector<int64_t>> read_numbers(std::string_view text) {
    std::vector<int64_t> numbers;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(' '));
        text.remove_prefix(std::min(text.size(), word.size() + 1));
        if (word.empty()) continue;
        int64_t& number = numbers.emplace_back();
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
        if (problem != std::errc() || end != word.data() + word.size()) return error("{:?} is no whole number", word);
    }
    return numbers;
}

std::optional<Dtype> contract_dtype(int32_t number) {
    constexpr Dtype kAll[] = {Dtype::kF32,    Dtype::kBf16, Dtype::kF16, Dtype::kF8E4m3,
                              Dtype::kF8E5m2, Dtype::kI8,   Dtype::kI32, Dtype::kI64};
    if (number < 0 || number >= std::ssize(kAll)) return std::nullopt;
    return kAll[number];
}
std::optional<Role> contract_role(int32_t number) {
    if (number < VERBATIM_IN || number > VERBATIM_IN_OUT) return std::nullopt;
    return static_cast<Role>(number);
}
std::optional<Axis> contract_unit(int32_t number) {
    constexpr Axis kAll[] = {Axis::kRow, Axis::kItem, Axis::kCall};
    if (number < 0 || number >= std::ssize(kAll)) return std::nullopt;
    return kAll[number];
}
std::optional<Tolerance::Of> contract_tolerance(int32_t number) {
    if (number < VERBATIM_BITS || number > VERBATIM_ULPS_OF_UNIT) return std::nullopt;
    return static_cast<Tolerance::Of>(number);
}

}  // namespace verbatim::sandbox
