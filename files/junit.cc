#include "files/junit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "files/xml.h"

namespace verbatim {
namespace {

// By JunitOutcome.
constexpr std::array kElements = {"", "failure", "error", "skipped"};

std::string time_text(const std::optional<double>& elapsed_s) {
    return elapsed_s ? fmt::format(" time=\"{:.3f}\"", *elapsed_s) : "";
}

std::string case_text(const JunitCase& one) {
    std::string text = fmt::format("  <testcase classname=\"{}\" name=\"{}\"{}>\n", xml_escaped(one.classname),
                                   xml_escaped(one.name), time_text(one.elapsed_s));
    if (one.outcome != JunitOutcome::kPassed) {
        text += fmt::format("    <{0} message=\"{1}\">{2}</{0}>\n", kElements[static_cast<size_t>(one.outcome)],
                            xml_escaped(one.message), xml_escaped(one.details));
    }
    return text + fmt::format("    <system-out>{}</system-out>\n  </testcase>\n", xml_escaped(one.output));
}

}  // namespace

std::string junit_text(const JunitSuite& suite) {
    const auto count = [&](JunitOutcome of) { return std::ranges::count(suite.cases, of, &JunitCase::outcome); };
    std::string text = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" skipped=\"{}\"{}>\n",
        xml_escaped(suite.name), suite.cases.size(), count(JunitOutcome::kFailure), count(JunitOutcome::kError),
        count(JunitOutcome::kSkipped), time_text(suite.elapsed_s));
    for (const JunitCase& one : suite.cases) text += case_text(one);
    return text + "</testsuite>\n";
}

}  // namespace verbatim
