#include "tools/audit/page.h"

#include <fmt/format.h>

#include "audit/relations.h"
#include "files/xml.h"

namespace verbatim::tools {
namespace {

using audit::RelationVerdict;
using audit::Verdict;

constexpr const char* kStyle =
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.4em .6em;border-bottom:1px solid #ddd;"
    "vertical-align:top}.v{font-weight:600;white-space:nowrap}.equal{color:#176b2c}.drift,.undecided{color:#8a5a00}"
    ".corrupt{color:#b00020}.not{color:#666}code,pre{background:#f5f5f5;padding:.1em .3em}"
    "pre{padding:.6em;white-space:pre-wrap;overflow-wrap:anywhere}";

const char* css_class(Verdict verdict) { return verdict == Verdict::kNotTried ? "not" : name(verdict); }

std::string headline(const audit::AuditResult& result) {
    size_t corrupt = 0;
    size_t compared = 0;
    for (const RelationVerdict& one : result.relations) {
        corrupt += one.verdict == Verdict::kCorrupt ? 1 : 0;
        compared += one.verdict != Verdict::kNotTried ? 1 : 0;
    }
    if (corrupt > 0)
        return fmt::format("Answers depend on the path: {} of {} checks found corruption", corrupt, compared);
    if (compared == 0) return "Nothing could be compared";
    if (result.is_of_bundle && result.verdict() != Verdict::kUndecided) return "The finding was not reproduced";
    if (result.verdict() == Verdict::kUndecided)
        return fmt::format("Some answers of {} checks differ, and nothing tells noise from corruption", compared);
    if (result.verdict() == Verdict::kDrift)
        return fmt::format("No corruption in {} checks; some answers drift as the server's own noise explains",
                           compared);
    return fmt::format("The answers are the same by every path that was tried: {} checks", compared);
}

std::string changes_of(const std::string& relation) {
    const audit::Relation* found = audit::find_relation(relation);
    return found != nullptr ? found->changes : "";
}

std::string answer_block(const audit::Trial& trial, const audit::Place& place, const char* title) {
    const audit::Answer& answer = trial.answer(place.wave, place.ask);
    const std::string text = place.choice < answer.choices.size() ? answer.choices[place.choice].text : "";
    return fmt::format("<h4>{}: request {} of wave {}</h4><pre>{}</pre>", title, place.ask, place.wave,
                       xml_escaped(text));
}

std::string finding(const AuditReport& report, size_t index) {
    const RelationVerdict& one = report.result.relations[index];
    std::string text = fmt::format("<h3>{}: {}</h3><p>{}</p>", one.relation, xml_escaped(changes_of(one.relation)),
                                   xml_escaped(one.why));
    text += fmt::format("<p>An honest server is called corrupt in fewer than {:.1f} % of audits.</p>",
                        100 * one.error_rate);
    if (index < report.result.shrunk.size() && report.result.shrunk[index]) {
        const audit::Trial& trial = report.result.shrunk[index]->trial;
        const audit::Pair& pair = trial.script.pairs.at(0);
        text += answer_block(trial, pair.left, "One answer") + answer_block(trial, pair.right, "The other answer");
    }
    if (index < report.bundles.size() && !report.bundles[index].empty())
        text += fmt::format("<p>Again: <code>verbatim audit --bundle {} --url {}</code></p>",
                            xml_escaped(report.bundles[index]), xml_escaped(report.url));
    return text;
}

}  // namespace

std::string audit_page(const AuditReport& report) {
    const audit::AuditResult& result = report.result;
    std::string text = fmt::format(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Audit of "
        "{0}</title><style>{1}</style></head>"
        "<body><h1>{2}</h1><p>{0}: {3}{4}. {5} requests, {6} tokens.</p><table><tr><th>check</th><th>what changes</th>"
        "<th>verdict</th><th>compared</th><th>why</th></tr>",
        xml_escaped(report.url), kStyle, headline(result), xml_escaped(result.server.model),
        result.server.engine.empty() ? "" : " on " + result.server.engine, result.num_requests, result.num_tokens);
    for (const RelationVerdict& one : result.relations)
        text +=
            fmt::format("<tr><td>{}</td><td>{}</td><td class=\"v {}\">{}</td><td>{}</td><td>{}</td></tr>", one.relation,
                        xml_escaped(changes_of(one.relation)), css_class(one.verdict), name(one.verdict), one.num_pairs,
                        xml_escaped(one.why + (one.why.empty() || one.left_out.empty() ? "" : "; ") + one.left_out));
    text +=
        "</table><p><b>equal</b>: the same answer. <b>drift</b>: another answer, by no more than the noise of the "
        "server's arithmetic explains. <b>undecided</b>: another answer, and the server gives nothing to measure it "
        "by. <b>corrupt</b>: noise does not explain the difference. <b>not tried</b>: "
        "nothing was compared.</p>";
    bool any = false;
    for (size_t i = 0; i < result.relations.size(); ++i) {
        if (result.relations[i].verdict != Verdict::kCorrupt) continue;
        if (!any) text += "<h2>Findings</h2>";
        any = true;
        text += finding(report, i);
    }
    return text + "</body></html>\n";
}

}  // namespace verbatim::tools
