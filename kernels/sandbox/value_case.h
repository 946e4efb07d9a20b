// kernels/sandbox/value_case.h: owns cases that keep their values: one call of an operation from a run, the
// definition's result, the file that holds both, and the results of every builtin kernel.
//
// The file is the JSON of `verbatim kernel check --case` with the values instead of their generator: "item_rows",
// "scalars" (bits), "tensors" and "expected" (bits of each element in hexadecimal, highest digit first, concatenated),
// and for people "contract", "profile" and "met".
//   V1  a call that was read is safe for every kernel: sizes, lengths and every index in it are checked
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

struct ValueCase {
    Arguments call;      // outputs hold zeros
    Arguments expected;  // the call with its outputs
    std::string profile = "exact";
    std::string met;  // where it was found, for people
};

// The definition computes the outputs. An operation with one arithmetic for all profiles has profile "exact".
ValueCase value_case_of(Arguments call, std::string profile, std::string met);

std::string value_case_file(const ValueCase& one);
// Errors: not a case file, sizes that the operation does not have, tensors of another length, an index out of range.
Result<ValueCase> read_value_case_text(const std::string& path, const std::string& text);
Result<ValueCase> read_value_case(const std::string& path);

// The first difference of two results of a call, in the order of its tensors.
struct ElementDifference {
    std::string tensor;
    std::string unit;  // the unit that `index` counts: "row", "sequence" or "call"
    int64_t index = 0;
    int64_t element = 0;
    std::string got, wanted;      // values, and their bits
    std::optional<int64_t> ulps;  // of binary32
    int64_t num_different = 0;    // of that tensor
    int64_t num_elements = 0;
};
[[nodiscard]] std::string to_string(const ElementDifference& difference);

// A kernel's result for a case.
struct CaseOutcome {
    std::string kernel, machine, profile;
    bool supported = true;
    std::string failure;  // why it did not complete
    std::optional<ElementDifference> difference;

    [[nodiscard]] bool equal() const { return supported && failure.empty() && !difference; }
};
// Runs every builtin kernel of the case's profile, and of the profile with the same bits: the definition, the CPU by
// instruction set, the emulated GPU.
std::vector<CaseOutcome> run_value_case(const ValueCase& one);

}  // namespace verbatim::sandbox
