#include "tools/verify/report.h"

#include <algorithm>

#include "files/json_text.h"
#include "reference/records/run_again.h"
#include "tools/program/cli.h"
#include "tools/program/verdict_text.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;
using records::Verdict;

std::string of_total(const records::ComparedShare& share, const char* unit) {
    return fmt::format("{} of {}", share.compared().of(unit), share.total().of(unit));
}

ordered_json one_json(const Verification& verification) {
    ordered_json json;
    json["identical"] = verification.comparison.identical();
    json["verdict"] = name(verification.verdict());
    json["compared"] = compared_json(verification.comparison.compared);
    json["compared_share"] = compared_share_json(verification.comparison.share);
    if (verification.comparison.num_ordinary > 0) json["ordinary_not_compared"] = verification.comparison.num_ordinary;
    json["first_difference"] =
        verification.comparison.first ? record_difference_json(*verification.comparison.first) : ordered_json(nullptr);
    return json;
}

}  // namespace

const Verification& worst_of(const std::vector<Verification>& verifications) {
    return *std::ranges::max_element(verifications, {}, &Verification::verdict);
}

std::string verify_table(const RecordedRun& run, const std::vector<Verification>& verifications) {
    const records::RunDescription& recorded = run.record.run;
    std::string text = fmt::format("{}: {} on {}, {}, {} steps, {} bytes, digests of {}\n", run.path, recorded.model,
                                   recorded.executor, recorded.numerics, run.index->num_steps(), run.record.file_bytes,
                                   records::name(recorded.digests));
    if (!run.record.cut_off.empty()) text += run.record.cut_off + "; compared as far as it goes\n";
    Table table({"schedule", "executor", "steps", "reused", "requests", "positions", "tokens", "logits", "operations",
                 "states", "result"});
    for (const Verification& v : verifications) {
        const records::ComparedShare& share = v.comparison.share;
        table.add_row({to_string(v.schedule), run.executor, fmt::format("{}", v.num_steps),
                       fmt::format("{}", v.reused_tokens), of_total(share, "requests"), of_total(share, "positions"),
                       of_total(share, "tokens"), of_total(share, "logits"),
                       fmt::format("{}", v.comparison.compared.operations), of_total(share, "states"),
                       verdict_words(v.verdict(), share)});
    }
    text += table.to_string();
    for (const Verification& v : verifications) {
        const std::string left_out = left_out_line(v.comparison.share);
        if (v.verdict() != Verdict::kSame) {
            text += fmt::format("{}: {}\n", to_string(v.schedule), why_not_same(v.comparison));
        } else if (!left_out.empty()) {
            text += fmt::format("{}: not promised, and not compared: {}\n", to_string(v.schedule), left_out);
        }
        if (v.comparison.first && !v.comparison.first->remark.empty())
            text += fmt::format("  {}\n", v.comparison.first->remark);
    }
    return text;
}

ordered_json verify_json(const RecordedRun& run, const std::vector<Verification>& verifications) {
    const Verification& worst = worst_of(verifications);
    ordered_json json = one_json(worst);
    json["record"] = run.path;
    json["executor"] = run.executor;
    json["numerics"] = run.record.run.numerics;
    if (worst.verdict() == Verdict::kNotAllCompared) json["remark"] = why_not_same(worst.comparison);
    if (!run.record.cut_off.empty()) json["cut_off"] = run.record.cut_off;
    json["schedules"] = ordered_json::array();
    for (const Verification& v : verifications) {
        ordered_json one = {{"schedule", to_string(v.schedule)}};
        one.update(one_json(v));
        if (!v.failure.empty()) one["failure"] = v.failure;
        if (v.verdict() == Verdict::kNotAllCompared) one["remark"] = why_not_same(v.comparison);
        json["schedules"].push_back(std::move(one));
    }
    return json;
}

std::string verify_junit(const RecordedRun& run, const std::vector<Verification>& verifications) {
    JunitSuite suite{.name = "verbatim verify", .cases = {}, .elapsed_s = 0};
    for (const Verification& v : verifications) {
        JunitCase& one = suite.cases.emplace_back(junit_case(v.comparison));
        one.classname = run.path;
        one.name = to_string(v.schedule);
        one.details = json_text(one_json(v), -1);
        one.elapsed_s = v.elapsed_s;
        *suite.elapsed_s += v.elapsed_s;
    }
    return junit_text(suite);
}

}  // namespace verbatim::tools
