#include "tools/verify/report.h"

#include <algorithm>
#include <cmath>

#include "reference/records/run_again.h"
#include "tools/program/cli.h"
#include "tools/program/json_text.h"
#include "tools/program/xml.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;
using records::RecordDifference;

ordered_json known(int64_t value) { return value < 0 ? ordered_json(nullptr) : ordered_json(value); }

template <typename T>
ordered_json known(const std::optional<T>& value) {
    if constexpr (std::is_same_v<T, double>) {
        if (value && !std::isfinite(*value)) return fmt::format("{}", *value);
    }
    return value ? ordered_json(*value) : ordered_json(nullptr);
}

constexpr const char* kNothing = "nothing was compared: the record holds no tokens, logits or states that both have";

std::string verdict(const Verification& verification) {
    if (verification.comparison.first) return to_string(*verification.comparison.first);
    if (!verification.failure.empty()) return verification.failure;
    return verification.identical() ? "identical" : kNothing;
}

const Verification& worst(const std::vector<Verification>& all) {
    const auto differs = std::ranges::find_if(all, [](const Verification& v) { return !v.identical(); });
    return differs == all.end() ? all.front() : *differs;
}

ordered_json one_json(const Verification& verification) {
    ordered_json json;
    json["identical"] = verification.identical();
    json["compared"] = compared_json(verification.comparison.compared);
    if (verification.comparison.num_ordinary > 0) json["ordinary_not_compared"] = verification.comparison.num_ordinary;
    json["first_difference"] =
        verification.comparison.first ? record_difference_json(*verification.comparison.first) : ordered_json(nullptr);
    return json;
}

}  // namespace

ordered_json compared_json(const records::ComparedCounts& compared) {
    return {{"tokens", compared.tokens},
            {"logits", compared.logits},
            {"operations", compared.operations},
            {"states", compared.states}};
}

ordered_json record_difference_json(const RecordDifference& d) {
    ordered_json json;
    json["step"] = known(d.step);
    json["request"] = known(index(d.request));
    json["position"] = known(d.position);
    json["layer"] = d.layer < -1 ? ordered_json(nullptr) : ordered_json(d.layer);
    json["op"] = d.op;
    json["element"] = known(d.element);
    json["recorded"] = known(d.recorded);
    json["computed"] = known(d.computed);
    json["ulps"] = known(d.ulps);
    json["inputs_equal"] = known(d.inputs_equal);
    if (!d.remark.empty()) json["remark"] = d.remark;
    return json;
}

std::string verify_table(const RecordedRun& run, const std::vector<Verification>& verifications) {
    const records::RunDescription& recorded = run.record.run;
    std::string text = fmt::format("{}: {} on {}, {}, {} steps, {} bytes, digests of {}\n", run.path, recorded.model,
                                   recorded.executor, recorded.numerics, run.index->num_steps(), run.record.file_bytes,
                                   records::name(recorded.digests));
    if (!run.record.cut_off.empty()) text += run.record.cut_off + "; compared as far as it goes\n";
    Table table({"schedule", "executor", "steps", "reused", "tokens", "logits", "operations", "states", "result"});
    for (const Verification& v : verifications) {
        const records::ComparedCounts& compared = v.comparison.compared;
        std::vector<std::string> cells = {to_string(v.schedule), run.executor};
        for (const int64_t count :
             {v.num_steps, v.reused_tokens, compared.tokens, compared.logits, compared.operations, compared.states}) {
            cells.push_back(fmt::format("{}", count));
        }
        cells.emplace_back(v.identical() ? "identical" : v.nothing() ? "nothing compared" : "different");
        table.add_row(std::move(cells));
    }
    text += table.to_string();
    for (const Verification& v : verifications) {
        if (v.comparison.num_other_prompts > 0) {
            text += fmt::format("{}: {} requests had other prompts, and were not compared\n", to_string(v.schedule),
                                v.comparison.num_other_prompts);
        }
        if (v.comparison.num_ordinary > 0) {
            text += fmt::format(
                "{}: {} ordinary requests were not compared: their arithmetic promises no bits to another run\n",
                to_string(v.schedule), v.comparison.num_ordinary);
        }
        if (v.identical()) continue;
        text += fmt::format("{}: {}\n", to_string(v.schedule), verdict(v));
        if (v.comparison.first && !v.comparison.first->remark.empty())
            text += fmt::format("  {}\n", v.comparison.first->remark);
    }
    return text;
}

ordered_json verify_json(const RecordedRun& run, const std::vector<Verification>& verifications) {
    ordered_json json = one_json(worst(verifications));
    json["record"] = run.path;
    json["executor"] = run.executor;
    json["numerics"] = run.record.run.numerics;
    if (worst(verifications).nothing()) json["remark"] = kNothing;
    if (!run.record.cut_off.empty()) json["cut_off"] = run.record.cut_off;
    json["schedules"] = ordered_json::array();
    for (const Verification& v : verifications) {
        ordered_json one = {{"schedule", to_string(v.schedule)}};
        one.update(one_json(v));
        if (!v.failure.empty()) one["failure"] = v.failure;
        if (v.nothing()) one["remark"] = kNothing;
        json["schedules"].push_back(std::move(one));
    }
    return json;
}

std::string verify_junit(const RecordedRun& run, const std::vector<Verification>& verifications) {
    double elapsed_s = 0;
    for (const Verification& v : verifications) elapsed_s += v.elapsed_s;
    const auto failures = std::ranges::count_if(verifications, [](const Verification& v) { return !v.identical(); });
    std::string text = fmt::format(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuite name=\"verbatim verify\" tests=\"{}\" failures=\"{}\" errors=\"0\" time=\"{:.3f}\">\n",
        verifications.size(), failures, elapsed_s);
    for (const Verification& v : verifications) {
        text += fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"", xml_escaped(run.path),
                            xml_escaped(to_string(v.schedule)), v.elapsed_s);
        if (v.identical()) {
            text += "/>\n";
        } else {
            text += fmt::format(">\n    <failure message=\"{}\">{}</failure>\n  </testcase>\n", xml_escaped(verdict(v)),
                                xml_escaped(json_text(one_json(v), -1)));
        }
    }
    return text + "</testsuite>\n";
}

}  // namespace verbatim::tools
