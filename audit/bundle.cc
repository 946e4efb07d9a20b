#include "audit/bundle.h"

#include <fmt/format.h>

#include <algorithm>
#include <regex>
#include <set>
#include <utility>

namespace verbatim::audit {
namespace {

using nlohmann::ordered_json;

constexpr const char* kFormat = "verbatim audit bundle 1";

// For a shell word between single quotes.
std::string quoted(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? "'\\''" : std::string(1, c);
    return result + "'";
}

// Answers become what they were; fresh words and names are left to the shell.
ordered_json with_answers(const ordered_json& script, const ordered_json& sent) {
    if (script.is_string()) {
        const std::string text = script.get<std::string>();
        const bool has_answers = text.find("{{answer") != std::string::npos ||
                                 text.find("{{half") != std::string::npos || text.find("{{tokens") != std::string::npos;
        return has_answers ? sent : script;
    }
    ordered_json result = script;
    if (script.is_object()) {
        for (const auto& [key, value] : script.items()) result[key] = with_answers(value, sent.at(key));
    } else if (script.is_array()) {
        for (size_t i = 0; i < script.size(); ++i) result[i] = with_answers(script[i], sent.at(i));
    }
    return result;
}

std::set<std::string> names_in(const std::string& text) {
    static const std::regex kName(R"(\{\{(fresh|unique) (\d+)\}\})");
    std::set<std::string> names;
    for (std::sregex_iterator at(text.begin(), text.end(), kName), end; at != end; ++at)
        names.insert((*at)[1].str() + " " + (*at)[2].str());
    return names;
}

}  // namespace

ordered_json bundle_json(const Trial& trial, const CaseVerdict& verdict, const RelationVerdict& relation,
                         const AuditResult& result) {
    ordered_json json = {{"format", kFormat},
                         {"relation", relation.relation},
                         {"verdict", name(verdict.verdict)},
                         {"evidence", verdict.evidence}};
    json["server"] = {{"model", result.server.model},
                      {"engine", result.server.engine},
                      {"fingerprint", result.server.fingerprint},
                      {"exact", result.is_exact}};
    json["noise"] = {{"samples", relation.usual.num_samples},
                     {"rms_nats", relation.usual.rms},
                     {"high_nats", relation.usual.high},
                     {"flip_limit_nats", relation.flip_limit}};
    json["case"] = case_json(trial.script);
    json["words"] = trial.words;
    json["sent"] = trial.sent;
    json["answers"] = ordered_json::array();
    for (const auto& wave : trial.answers) {
        ordered_json answers = ordered_json::array();
        for (const Answer& answer : wave) answers.push_back(answer_json(answer));
        json["answers"].push_back(std::move(answers));
    }
    return json;
}

Result<Bundle> parse_bundle(const std::string& text) {
    const ordered_json json = ordered_json::parse(text, nullptr, false);
    if (!json.is_object()) return error("no JSON object: a bundle is what verbatim audit writes");
    if (json.value("format", "") != kFormat)
        return error("its format is {:?}, wanted {:?}", json.value("format", ""), kFormat);
    Bundle bundle;
    try {
        ASSIGN_OR_RETURN(bundle.script, parse_case(json.at("case")));
        bundle.words = json.value("words", bundle.words);
        bundle.noise.rms = json.at("noise").at("rms_nats").get<double>();
        bundle.noise.high = json.at("noise").at("high_nats").get<double>();
        bundle.is_exact = json.at("server").at("exact").get<bool>();
        bundle.engine = json.at("server").at("engine").get<std::string>();
        bundle.model = json.at("server").at("model").get<std::string>();
        bundle.evidence = json.at("evidence").get<std::string>();
    } catch (const nlohmann::json::exception& problem) {
        return error("{}", problem.what());
    }
    return bundle;
}

std::string curl_script(const Trial& trial, const CaseVerdict& verdict) {
    bool two = false;
    for (const Wave& wave : trial.script.waves)
        two = two || std::ranges::any_of(wave.asks, [](const Ask& ask) { return ask.server == 1; });
    std::string text = fmt::format(
        "#!/usr/bin/env bash\n"
        "# {2}, {3}: {4}\n"
        "# Usage: bash THIS http://HOST:PORT{0}     (the key, if any, in OPENAI_API_KEY)\n"
        "set -u\n"
        "servers=(\"${{1:?the server, http://HOST:PORT}}\"{1})\n"
        "words=(a b c d e f g h k m n p in to is on of it at we the as or for)\n"
        "fresh() {{ for _ in 1 2 3 4 5 6 7 8; do printf ' %s' \"${{words[RANDOM % ${{#words[@]}}]}}\"; done; }}\n"
        "ask() {{ # SERVER PATH BODY NAME [BYTES]: the answer into the file NAME; the connection is cut after BYTES\n"
        "    curl -sSN \"${{servers[$1]}}$2\" -H 'Content-Type: application/json' -H \"Authorization: Bearer "
        "${{OPENAI_API_KEY:-none}}\" -d \"$3\" | head -c \"${{5:-1000000000}}\" > \"$4\"\n}}\n",
        two ? " http://OTHER:PORT" : "", two ? " \"${2:?the second server, http://HOST:PORT}\"" : "",
        trial.script.relation, trial.script.name, std::regex_replace(verdict.evidence, std::regex("[\r\n]"), " "));
    std::string all;
    for (const Wave& wave : trial.script.waves) {
        for (const Ask& ask : wave.asks) all += ask.body.dump();
    }
    std::string filled = "filled() {\n    local text=$1\n";
    for (const std::string& one : names_in(all)) {
        const std::string variable = std::regex_replace(one, std::regex(" "), "_");
        text += fmt::format(
            "{}=$({})\n", variable,
            one.starts_with("fresh") ? "fresh" : "printf '%04x%04x%04x%04x' $RANDOM $RANDOM $RANDOM $RANDOM");
        filled += fmt::format("    text=${{text//\"{{{{{}}}}}\"/\"${}\"}}\n", one, variable);
    }
    text += filled + "    printf '%s' \"$text\"\n}\n";
    for (size_t w = 0; w < trial.sent.size(); ++w) {
        text += fmt::format("\n# wave {}\n", w);
        if (trial.script.waves[w].restarts)
            text += "read -rp 'Restart the server, wait until it answers, and press Enter: '\n";
        for (size_t a = 0; a < trial.sent[w].size(); ++a) {
            const Ask& ask = trial.script.waves[w].asks[a];
            text += fmt::format("ask {} {} \"$(filled {})\" answer-{}-{}.json{}{}\n", ask.server, ask.path,
                                quoted(with_answers(ask.body, trial.sent[w][a]).dump()), w, a,
                                ask.abort_after_bytes > 0 ? fmt::format(" {}", ask.abort_after_bytes) : "",
                                trial.sent[w].size() > 1 ? " &" : "");
        }
        if (trial.sent[w].size() > 1) text += "wait\n";
    }
    const Pair& pair = trial.script.pairs.at(std::min(verdict.worst_pair, trial.script.pairs.size() - 1));
    text += fmt::format("\n# {}\nfor name in {}-{} {}-{}; do cat answer-$name.json; echo; done\n",
                        pair.continues ? "The second one should go on from the first half of the first one:"
                                       : "These two should be equal:",
                        pair.left.wave, pair.left.ask, pair.right.wave, pair.right.ask);
    return text;
}

Result<AuditResult> run_bundle(const AuditConfig& config, const Bundle& bundle, int num_runs) {
    AuditResult result;
    config.progress("looking at the server", 0, 0);
    DiscoverOptions discovering = config.discover;
    if (bundle.script.waves.at(0).asks.at(0).path.find("/chat/") != std::string::npos) discovering.endpoint = "chat";
    ASSIGN_OR_RETURN(result.server, discover(*config.runner.server, discovering));
    JudgeOptions judging = config.judge;
    judging.is_exact = result.is_exact = judging.is_exact || result.server.is_exact;
    result.floor = bundle.noise;
    Case script = bundle.script;
    for (Wave& wave : script.waves) {
        for (Ask& ask : wave.asks) {
            if (ask.body.contains("model")) ask.body["model"] = result.server.model;
        }
    }
    Runner runner(config.runner, result.server);
    std::vector<Trial> trials;
    for (int run = 0; run <= num_runs; ++run) {
        config.progress(script.relation + ": " + script.name, static_cast<size_t>(run),
                        1 + static_cast<size_t>(num_runs));
        const bool repeats = run == 0 && !bundle.words.empty();
        Case renamed = script;
        if (repeats) renamed.name += ", with the words of the finding";
        trials.push_back(runner.run(renamed, repeats ? bundle.words : std::map<std::string, std::string>()));
    }
    result.is_of_bundle = true;
    RelationVerdict& relation =
        result.relations.emplace_back(judge(script.relation, std::move(trials), result.server, bundle.noise, judging));
    const size_t num_tries = relation.cases.size() - relation.count(Verdict::kNotTried);
    if (num_tries > 0 && !result.is_reproduced())
        relation.why = fmt::format("the finding was not reproduced in {} tries{}{}", num_tries,
                                   relation.why.empty() ? "" : ": ", relation.why);
    result.num_requests = runner.num_requests();
    result.num_tokens = runner.num_tokens();
    return result;
}

}  // namespace verbatim::audit
