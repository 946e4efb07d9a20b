// tools/kernel/case_json.h: owns how a case of a kernel stands in a file: sizes, class of values, seed and, of a call
// of a real run, its rows, scalars and values in hexadecimal.
//
//   {"sizes": {...}, "values": "normal", "seed": 1, "captured": {"rows": [...], "scalars": "...", "tensors": {...}}}
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/base/result.h"
#include "tools/kernel/arguments.h"

namespace verbatim::tools {

// Bytes that are no UTF-8 (a kernel's last words, a file's name) stand as U+FFFD.
std::string json_text(const nlohmann::ordered_json& json, int indent);

// The sizes by name, all of them. Errors: one that is missing, unknown, or that the operation cannot have.
Result<Sizes> read_sizes(const std::string& path, const Operation& operation, const nlohmann::json& json);
nlohmann::ordered_json case_json(const Operation& operation, const KernelCase& one);
// `where` begins every error. Errors: what is missing, is out of bounds, or is not admitted by the contract; a call
// larger than anybody would try. Throws what the JSON library throws at a wrong type.
Result<KernelCase> read_case(const std::string& where, const Operation& operation, const nlohmann::json& json);

}  // namespace verbatim::tools
