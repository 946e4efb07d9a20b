// tools/kernel/value_case.h: owns cases that keep their values: one call of an operation as it was met in a run, what
// the definition makes of it, the file that holds both, and what every kernel of ours makes of it.
//
// The file is the JSON of `verbatim kernel check --case` with the values instead of how they are made: "item_rows",
// "scalars" (bits), "tensors" and "expected" (bits of each element in hexadecimal, highest digit first, one after
// another), and for people "contract", "profile" and "met".
//   V1  what is read is a call that every kernel may be given: sizes, lengths and every index in it are looked at
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "tools/kernel/operation.h"

namespace verbatim::tools {

struct ValueCase {
    Arguments call;      // outputs hold zeros
    Arguments expected;  // the call with its outputs
    std::string profile = "exact";
    std::string met;  // where, for people
};

// With what the definition gives as the outputs. An operation with one arithmetic for all profiles is of "exact".
ValueCase value_case_of(Arguments call, std::string profile, std::string met);

std::string value_case_file(const ValueCase& one);
// Errors: not our JSON, sizes that the operation has not, tensors of another length, an index beyond what it is into.
Result<ValueCase> read_value_case_text(const std::string& path, const std::string& text);
Result<ValueCase> read_value_case(const std::string& path);

// Where two results of a call part first, in the order of its tensors.
struct ElementDifference {
    std::string tensor;
    std::string unit;  // of what `index` is the number: "row", "sequence" or "call"
    int64_t index = 0;
    int64_t element = 0;
    std::string got, wanted;      // values, and their bits
    std::optional<int64_t> ulps;  // of binary32
    int64_t num_different = 0;    // of that tensor
    int64_t num_elements = 0;
};
[[nodiscard]] std::string to_string(const ElementDifference& difference);

// What a kernel made of a case.
struct CaseOutcome {
    std::string kernel, machine, profile;
    bool supported = true;
    std::string failure;  // it did not come to its end, and why
    std::optional<ElementDifference> difference;

    [[nodiscard]] bool equal() const { return supported && failure.empty() && !difference; }
};
// Every kernel of ours in the case's profile, and in the one that its bits are of: the definition, the CPU by
// instruction set, the emulated GPU.
std::vector<CaseOutcome> run_value_case(const ValueCase& one);

}  // namespace verbatim::tools
