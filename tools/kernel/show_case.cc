#include "tools/kernel/show_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "files/json_text.h"
#include "kernels/sandbox/value_case.h"
#include "tools/program/verdict_text.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using CaseJson = nlohmann::ordered_json;

std::string result_text(const CaseOutcome& outcome) {
    if (!outcome.supported) return "does not take these sizes";
    if (!outcome.failure.empty()) return outcome.failure;
    return outcome.difference ? to_string(*outcome.difference) : "equal";
}

CaseJson outcome_json(const CaseOutcome& outcome) {
    CaseJson json = {{"kernel", outcome.kernel}, {"machine", outcome.machine}, {"profile", outcome.profile}};
    json["equal"] = outcome.supported ? CaseJson(outcome.equal()) : CaseJson(nullptr);
    json["failure"] = outcome.failure.empty() ? CaseJson(nullptr) : CaseJson(outcome.failure);
    json["first_difference"] = nullptr;
    if (const auto& d = outcome.difference) {
        json["first_difference"] = {
            {"tensor", d->tensor},           {d->unit, d->index},
            {"element", d->element},         {"computed", d->got},
            {"expected", d->wanted},         {"ulps", d->ulps ? CaseJson(*d->ulps) : CaseJson(nullptr)},
            {"different", d->num_different}, {"of", d->num_elements}};
    }
    return json;
}

// The definition is what the case was made with: alone it shows nothing of the implementations.
records::ComparedShare share_of(const std::vector<CaseOutcome>& outcomes) {
    records::ComparedShare share;
    share.compare("implementations", 0);
    for (const CaseOutcome& outcome : outcomes) {
        if (outcome.kernel == "reference") continue;
        if (outcome.supported) {
            share.compare("implementations", 1);
        } else {
            share.leave_out("does not take these sizes", records::Promise::kNone, "implementations", 1);
        }
    }
    return share;
}

}  // namespace

Result<records::Verdict> show_case(const std::string& path, OutputFormat format) {
    ASSIGN_OR_RETURN(const ValueCase one, read_value_case(path));
    const std::vector<CaseOutcome> outcomes = run_value_case(one);
    const bool differs =
        std::ranges::any_of(outcomes, [](const CaseOutcome& outcome) { return outcome.supported && !outcome.equal(); });
    const records::ComparedShare share = share_of(outcomes);
    const records::Verdict verdict = verdict_of(differs, share);
    const std::string what =
        fmt::format("{}, {}", one.call.operation->name, describe(*one.call.operation, one.call.sizes));
    if (format == OutputFormat::kJson) {
        CaseJson json = {{"case", path}, {"op", one.call.operation->name}, {"profile", one.profile}, {"met", one.met}};
        json["identical"] = verdict == records::Verdict::kSame;
        json["verdict"] = name(verdict);
        json["compared_share"] = compared_share_json(share);
        json["implementations"] = CaseJson::array();
        for (const CaseOutcome& outcome : outcomes) json["implementations"].push_back(outcome_json(outcome));
        fmt::print("{}\n", json_text(json));
        return verdict;
    }
    fmt::print("{}: {}, of {}\n", path, what, one.profile);
    if (!one.met.empty()) fmt::print("met: {}\n", one.met);
    Table table({"implementation", "machine", "profile", "result"});
    for (const CaseOutcome& outcome : outcomes)
        table.add_row({outcome.kernel, outcome.machine, outcome.profile, result_text(outcome)});
    fmt::print("{}{}", table.to_string(), share_lines(share));
    return verdict;
}

}  // namespace verbatim::tools
