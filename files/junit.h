// files/junit.h: owns the text of JUnit's test reports, for the verbs with --junit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace verbatim {

enum class JunitOutcome : uint8_t { kPassed, kFailure, kError, kSkipped };

struct JunitCase {
    std::string classname;
    std::string name;
    JunitOutcome outcome = JunitOutcome::kPassed;
    std::string message;  // unless it passed
    std::string details;  // the same for programs; may be empty
    std::string output;   // what the case says in any outcome
    std::optional<double> elapsed_s;
};

struct JunitSuite {
    std::string name;
    std::vector<JunitCase> cases;
    std::optional<double> elapsed_s;
};
[[nodiscard]] std::string junit_text(const JunitSuite& suite);

}  // namespace verbatim
