// kernels/sandbox/case_json.h: owns the JSON of a kernel's case: sizes, class of values, seed and, for a call of a real
// run, its rows, scalars and values in hexadecimal.
//
//   {"sizes": {...}, "values": "normal", "seed": 1, "captured": {"rows": [...], "scalars": "...", "tensors": {...}}}
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/result.h"
#include "kernels/sandbox/arguments.h"

namespace verbatim::sandbox {

// Bytes that are not UTF-8 (a kernel's output, a file's name) become U+FFFD.
std::string json_text(const nlohmann::ordered_json& json, int indent);

// All sizes by name. Errors: one that is missing, unknown, or that the operation cannot have.
Result<Sizes> read_sizes(const std::string& path, const Operation& operation, const nlohmann::json& json);
nlohmann::ordered_json case_json(const Operation& operation, const KernelCase& one);
// `where` begins every error. Errors: a member that is missing, out of bounds, or not admitted by the contract; a call
// that is too large to try. Throws the JSON library's exceptions for a wrong type.
Result<KernelCase> read_case(const std::string& where, const Operation& operation, const nlohmann::json& json);

}  // namespace verbatim::sandbox
