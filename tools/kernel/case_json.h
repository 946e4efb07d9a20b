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

nlohmann::ordered_json case_json(const Operation& operation, const KernelCase& one);
// `where` begins every error. Errors: what is missing, is out of bounds, or is not admitted by the contract; a call
// larger than anybody would try. Throws what the JSON library throws at a wrong type.
Result<KernelCase> read_case(const std::string& where, const Operation& operation, const nlohmann::json& json);

}  // namespace verbatim::tools
