#include "tools/audit/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "files/json_text.h"
#include "files/junit.h"

namespace verbatim::tools {
namespace {

using audit::CaseVerdict;
using audit::RelationVerdict;
using audit::Verdict;
using nlohmann::ordered_json;

// How much of the evidence the table shows; JSON has all of it.
constexpr size_t kShownCharacters = 300;

// At most so many bytes, and no part of a character.
std::string shortened(std::string text) {
    if (text.size() <= kShownCharacters) return text;
    size_t end = kShownCharacters;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + "...";
}

std::string server_line(const AuditReport& report) {
    const audit::ServerInfo& server = report.result.server;
    const auto has = [](bool there, const char* what) { return std::string(there ? "" : "no ") + what; };
    return fmt::format("{}: {}{}, {}, {}, {}, {}", report.url, server.model,
                       server.engine.empty() ? "" : " on " + server.engine,
                       server.is_chat ? "chat completions" : "completions",
                       has(server.has_log_probs, "log-probabilities"), has(server.reports_cached, "cached_tokens"),
                       server.isolation.is_null() ? "no way around its cache"
                                                  : "around its cache by " + server.isolation.begin().key());
}

std::string floor_line(const AuditReport& report) {
    const audit::AuditResult& result = report.result;
    if (result.is_exact) return "the server promises equal bits: any difference is corruption";
    if (!result.has_floor) return "the noise from run to run was not measured (relation `again`)";
    return fmt::format("noise from run to run: {:.4g} nats (rms), {:.4g} at most, of {} changes", result.floor.rms,
                       result.floor.most, result.floor.num_samples);
}

// The flags that a finding of two servers, or of a restart, needs again.
std::string other_side(const AuditReport& report, const RelationVerdict& relation) {
    if (relation.relation != "cache" && relation.relation != "speculation") return {};
    return report.against.empty() ? " --restart CMD" : " --against " + report.against;
}

bool was_named(const AuditReport& report, const std::string& relation) {
    return std::ranges::find(report.only, relation) != report.only.end();
}

// Equal answers are no proof that a fault is gone that shows now and then.
const char* shown_verdict(const AuditReport& report, const RelationVerdict& relation) {
    const bool is_equal = relation.verdict == Verdict::kEqual;
    return report.result.is_of_bundle && is_equal ? "not reproduced" : name(relation.verdict);
}

ordered_json case_verdict_json(const CaseVerdict& one) {
    ordered_json json = {{"name", one.name},
                         {"verdict", name(one.verdict)},
                         {"evidence", one.evidence},
                         {"path_taken", one.engaged.happened},
                         {"proof", one.engaged.proof}};
    if (one.worst) {
        json["position"] = one.worst->position;
        json["left"] = one.worst->left_text;
        json["right"] = one.worst->right_text;
        json["flip_nats"] = one.worst->flip ? ordered_json(*one.worst->flip) : ordered_json();
    }
    return json;
}

ordered_json noise_json(const audit::Noise& noise) {
    return {
        {"samples", noise.num_samples}, {"rms_nats", noise.rms}, {"high_nats", noise.high}, {"most_nats", noise.most}};
}

ordered_json relation_json(const AuditReport& report, size_t index) {
    const RelationVerdict& one = report.result.relations[index];
    ordered_json json = {
        {"relation", one.relation}, {"verdict", name(one.verdict)}, {"why", one.why}, {"compared", one.num_pairs}};
    json["left_out"] = one.left_out;
    if (report.result.is_of_bundle) json["reproduced"] = report.result.is_reproduced();
    json["counts"] = {{"equal", one.count(Verdict::kEqual)},
                      {"drift", one.count(Verdict::kDrift)},
                      {"undecided", one.count(Verdict::kUndecided)},
                      {"corrupt", one.count(Verdict::kCorrupt)},
                      {"not_tried", one.count(Verdict::kNotTried)}};
    json["noise"] = noise_json(one.noise);
    json["flip_limit_nats"] = one.flip_limit;
    if (one.verdict == Verdict::kCorrupt) json["error_rate"] = one.error_rate;
    if (index < report.bundles.size() && !report.bundles[index].empty()) json["bundle"] = report.bundles[index];
    json["cases"] = ordered_json::array();
    for (const CaseVerdict& of_case : one.cases) json["cases"].push_back(case_verdict_json(of_case));
    return json;
}

}  // namespace

ExitCode audit_exit_code(const AuditReport& report) {
    if (report.result.verdict() == Verdict::kCorrupt) return kExitDifference;
    const auto is_left_out = [&](const RelationVerdict& one) {
        return one.verdict == Verdict::kUndecided ||
               (one.verdict == Verdict::kNotTried && was_named(report, one.relation));
    };
    const bool left_out = std::ranges::any_of(report.result.relations, is_left_out);
    return left_out || report.interrupted || report.result.compared_nothing() ? kExitNotAllCompared : kExitOk;
}

std::string audit_table(const AuditReport& report) {
    const audit::AuditResult& result = report.result;
    std::string text = server_line(report) + "\n" + floor_line(report) + "\n";
    Table table({"relation", "verdict", "cases", "equal", "drift", "undecided", "corrupt", "not tried", "compared",
                 "noise (nats)"});
    for (const RelationVerdict& one : result.relations) {
        const auto count = [&](Verdict of) { return fmt::format("{}", one.count(of)); };
        table.add_row({one.relation, shown_verdict(report, one), fmt::format("{}", one.cases.size()),
                       count(Verdict::kEqual), count(Verdict::kDrift), count(Verdict::kUndecided),
                       count(Verdict::kCorrupt), count(Verdict::kNotTried), fmt::format("{}", one.num_pairs),
                       one.num_pairs == 0 ? "" : fmt::format("{:.4g}", one.noise.rms)});
    }
    text += table.to_string();
    for (size_t i = 0; i < result.relations.size(); ++i) {
        const RelationVerdict& one = result.relations[i];
        if (!one.why.empty())
            text += shortened(fmt::format("{}: {}: {}", one.relation, shown_verdict(report, one), one.why)) + "\n";
        if (!one.left_out.empty()) text += shortened(fmt::format("{}: {}", one.relation, one.left_out)) + "\n";
        if (one.verdict == Verdict::kCorrupt && !result.is_exact)
            text +=
                fmt::format("  an honest server is called so in fewer than {:.1f} % of audits\n", 100 * one.error_rate);
        if (i < report.bundles.size() && !report.bundles[i].empty())
            text += fmt::format("  again: verbatim audit --bundle {} --url {}{}\n", report.bundles[i], report.url,
                                other_side(report, one));
    }
    text += fmt::format("{} requests, {} tokens, {:.1f} s, seed {}{}\n", result.num_requests, result.num_tokens,
                        report.elapsed_s, report.seed, report.interrupted ? "; interrupted" : "");
    return text;
}

ordered_json audit_json(const AuditReport& report) {
    const audit::AuditResult& result = report.result;
    ordered_json json = {{"url", report.url}, {"verdict", name(result.verdict())}, {"seed", report.seed}};
    const audit::ServerInfo& server = result.server;
    json["server"] = {{"model", server.model},
                      {"engine", server.engine},
                      {"fingerprint", server.fingerprint},
                      {"endpoint", server.is_chat ? "chat" : "completions"},
                      {"logprobs", server.has_log_probs},
                      {"echo", server.has_echo},
                      {"cached_tokens", server.reports_cached},
                      {"hits_metric", server.hits_metric},
                      {"isolation", server.isolation}};
    json["exact"] = result.is_exact;
    json["floor"] = result.has_floor ? noise_json(result.floor) : ordered_json();
    json["requests"] = result.num_requests;
    json["tokens"] = result.num_tokens;
    json["interrupted"] = report.interrupted;
    json["relations"] = ordered_json::array();
    for (size_t i = 0; i < result.relations.size(); ++i) json["relations"].push_back(relation_json(report, i));
    return json;
}

std::string audit_junit(const AuditReport& report) {
    JunitSuite suite{.name = "verbatim audit", .cases = {}, .elapsed_s = report.elapsed_s};
    for (size_t i = 0; i < report.result.relations.size(); ++i) {
        const RelationVerdict& of = report.result.relations[i];
        JunitCase& one = suite.cases.emplace_back();
        one.classname = report.url;
        one.name = of.relation;
        one.message = of.why;
        one.output = fmt::format("{}: {} compared; {}", shown_verdict(report, of), of.num_pairs, of.why);
        if (!of.left_out.empty()) one.output += "; " + of.left_out;
        if (of.verdict == Verdict::kCorrupt) {
            one.outcome = JunitOutcome::kFailure;
            one.details = json_text(relation_json(report, i), -1);
        }
        if (of.verdict == Verdict::kNotTried || of.verdict == Verdict::kUndecided) one.outcome = JunitOutcome::kSkipped;
    }
    return junit_text(suite);
}

}  // namespace verbatim::tools
