// kernels/sandbox/contract_operation.h: owns what a contract says (kernels/sandbox/contract.h, or a Python module), and
// the Operation made of it: the same description as a built-in operation has, so that every verb takes it.
//
//   T1  what a contract says is valid once it is an Operation: names are unique, expressions are of its sizes, outputs
//       and inputs that refer to each other agree
//   T2  an operand's pointer, number of units, width and stride are those of a tensor in the contract's order
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/contract.h"
#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

struct ContractSpec {
    struct Size {
        std::string name;
        int64_t least = 1;
        int64_t usual = 3;
        std::vector<int64_t> edges = {};  // empty: edges_up_to(65)
        bool is_choice = false;
        std::vector<int64_t> real = {};  // empty: of rows and sequences, those of a step's batch
    };
    struct Operand {
        std::string name;
        Role role = Role::kIn;
        Dtype dtype = Dtype::kF32;
        Axis unit = Axis::kRow;
        std::string width;
        std::string below = {};      // "": small integers of both signs
        bool is_plain = false;       //
        std::string lies_in = {};    // "": in no input's memory
        std::string continues = {};  // "": no output
    };
    struct Parameter {
        std::string name;
        std::vector<float> values;
    };
    std::string name;
    std::string formula;
    bool is_of_sequences = false;
    std::vector<Size> sizes;
    std::vector<Operand> operands;
    std::vector<Parameter> parameters = {};
    std::string admits = {};  // "": all
    std::string flops = {};   // "": one for each element
    std::string shapes = {};  // "": none
    Tolerance tolerance = {};
    bool has_no_nan = false;
};

// Errors name the contract's field: a size or operand without a name, an expression that does not parse, a width below
// 0, `lies_in` or `continues` of what does not fit, more than kernel.h's numbers of sizes, operands and parameters.
Result<Operation> operation_of(ContractSpec spec,
                               std::function<Result<Arguments>(const Arguments& arguments)> definition);

// The numbers of "1 2 16 17". Error: something else between the spaces.
Result<std::vector<int64_t>> read_numbers(std::string_view text);

// By the values of contract.h's enums. Empty: none of them.
std::optional<Dtype> contract_dtype(int32_t number);
std::optional<Role> contract_role(int32_t number);
std::optional<Axis> contract_unit(int32_t number);
std::optional<Tolerance::Of> contract_tolerance(int32_t number);

}  // namespace verbatim::sandbox
