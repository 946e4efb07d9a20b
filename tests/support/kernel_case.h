// tests/support/kernel_case.h: runs a case of one operation, from `verbatim shrink`, as a test:
//
//   EXPECT_TRUE(case_holds(repository_path("tests/data/cases/scan.json")));
//
// Needs verbatim_sandbox.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "files/repository_path.h"
#include "kernels/sandbox/value_case.h"

namespace verbatim::tests {

// The definition, the CPU by instruction set and the emulated GPU give the case's expected result.
inline testing::AssertionResult case_holds(const std::string& path) {
    const auto one = sandbox::read_value_case(path);
    if (!one) return testing::AssertionFailure() << one.error().message;
    int num_tried = 0;
    for (const sandbox::CaseOutcome& outcome : sandbox::run_value_case(*one)) {
        if (!outcome.supported) continue;
        ++num_tried;
        if (outcome.equal()) continue;
        return testing::AssertionFailure() << path << ": " << outcome.kernel << ": "
                                           << (outcome.difference ? to_string(*outcome.difference) : outcome.failure);
    }
    if (num_tried == 0) return testing::AssertionFailure() << path << ": no kernel takes it";
    return testing::AssertionSuccess();
}

}  // namespace verbatim::tests
