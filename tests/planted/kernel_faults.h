// tests/planted/kernel_faults.h: the expected findings of planted faults in CUDA kernels.
#pragma once

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/simt/emulator.h"
#include "reference/numerics/profile.h"

namespace verbatim::cuda {

inline constexpr std::string_view kNoFault;

struct Expected {
    std::string_view fault;
    const char* kernel;
    simt::FindingKind kind;
    reference::Profile profile = reference::Profile::kExact;
};
// One of the findings has the expected kind and kernel.
inline void expect_named(const std::vector<simt::Finding>& findings, const Expected& expected,
                         simt::Schedule schedule) {
    std::string all;
    bool named = false;
    for (const simt::Finding& finding : findings) {
        all += finding.text + '\n';
        named |= finding.kind == expected.kind && finding.text.starts_with(std::string(expected.kernel) + ": block (");
    }
    EXPECT_TRUE(named) << expected.fault << ", schedule " << static_cast<int>(schedule) << ": wanted "
                       << simt::name(expected.kind) << " in " << expected.kernel << ", got\n"
                       << all;
}

// Faults that the matmul tests show (kernel_faults_of_matmuls_test.cc).
std::set<std::string_view> shown_in_matmuls();

}  // namespace verbatim::cuda
