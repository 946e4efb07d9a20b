#include "tools/audit/hits_report.h"

#include <fmt/format.h>

namespace verbatim::tools {
namespace {

std::string of_prompts(int64_t hits, const audit::HitsResult& result) {
    const double part =
        result.prompt_tokens == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(result.prompt_tokens);
    return fmt::format("{} of {} prompt tokens ({:.1f} %)", hits, result.prompt_tokens, 100 * part);
}

const char* verdict_of(const audit::HitsResult& result) {
    if (!result.has_compared()) return "not tried";
    if (!result.holds()) return "too few hits";
    return result.problem.empty() ? "as expected" : "as expected, as far as it went";
}

}  // namespace

ExitCode hits_exit_code(const audit::HitsResult& result) {
    if (!result.has_compared()) return kExitNotAllCompared;
    if (!result.holds()) return kExitDifference;
    return result.problem.empty() ? kExitOk : kExitNotAllCompared;
}

std::string hits_table(const AuditReport& report, const audit::HitsResult& result) {
    std::string text = fmt::format("{}: {}\n", report.url, verdict_of(result));
    if (!result.rows.empty()) {
        text += fmt::format("expected at least {}\nreported {}\n", of_prompts(result.expected, result),
                            of_prompts(result.reported, result));
        text += fmt::format(
            "{} requests, {} rows left out (too long, taken from such a row, or no request); {} % may be "
            "missing\n",
            result.rows.size(), result.num_skipped, 100 * result.tolerance);
    }
    if (result.rows.empty() && result.num_skipped > 0)
        text += fmt::format(
            "no row fits the server's context: {} rows are longer, take from such a row, or are no request\n",
            result.num_skipped);
    if (!result.rows.empty() && result.is_reported && result.expected == 0)
        text += "no row takes a whole block from an earlier one: no hit can be missing\n";
    if (result.is_of_earlier_run())
        text += fmt::format(
            "{} of the reported tokens were in no earlier request of this replay: the server had them before it, and "
            "nothing is known of this replay's; another --seed makes other words\n",
            result.from_before);
    if (!result.problem.empty()) text += result.problem + "\n";
    return text;
}

nlohmann::ordered_json hits_json(const AuditReport& report, const audit::HitsResult& result) {
    return {{"url", report.url},
            {"verdict", verdict_of(result)},
            {"prompt_tokens", result.prompt_tokens},
            {"expected", result.expected},
            {"reported", result.reported},
            {"from_before", result.from_before},
            {"tolerance", result.tolerance},
            {"requests", result.rows.size()},
            {"left_out", result.num_skipped},
            {"problem", result.problem}};
}

}  // namespace verbatim::tools
