// tools/kernel/report.h: owns the output of the sandbox's verbs: a table, JSON, JUnit.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/sandbox/kernel_report.h"

namespace verbatim::tools {

enum class KernelFormat : uint8_t { kTable, kJson, kJunit };

std::string to_text(const sandbox::KernelReports& reports, KernelFormat format);
// For `kernel list`: one operation, or all (null).
std::string list_text(KernelFormat format, const sandbox::Operation* one);
// A picture of the rows below the machine's roof, both axes logarithmic.
std::string roofline_svg(const sandbox::KernelReports& reports);

}  // namespace verbatim::tools
