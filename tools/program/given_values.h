// tools/program/given_values.h: owns the checks that every flag's value has to pass, whatever its verb.
#pragma once

#include "engine/base/result.h"

namespace CLI {
class App;
}  // namespace CLI

namespace verbatim::tools {

// Checks the values of all parsed flags. Errors, with the flag's name: an empty value, as of a shell's variable that is
// not set; a whole number that has more than a sign and decimal digits, or a leading 0 (CLI11 reads 010 as 8).
Status check_given_values(const CLI::App& app);

}  // namespace verbatim::tools
