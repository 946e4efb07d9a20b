// audit/bundle.h: owns the files of a finding: a script with its answers, which an audit runs again on any server, and
// the same as a shell script of curl commands. Neither has a key in it: keys are no part of a request's body.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "audit/audit.h"
#include "audit/script.h"
#include "audit/verdict.h"

namespace verbatim::audit {

struct Bundle {
    Case script;
    std::map<std::string, std::string> words;  // of the trial that showed it (Trial::words)
    Noise noise;                               // that a difference was held against
    bool is_exact = false;
    std::string engine;  // of the server that it was found on
    std::string model;
    std::string evidence;
};

// Of a case of a relation with a finding, shrunk or not.
[[nodiscard]] nlohmann::ordered_json bundle_json(const Trial& trial, const CaseVerdict& verdict,
                                                 const RelationVerdict& relation, const AuditResult& result);
// Errors: no bundle, another version of the format, something missing.
[[nodiscard]] Result<Bundle> parse_bundle(const std::string& text);

// Shell commands that send the same requests in the same order; $1 is the server, $OPENAI_API_KEY the key.
[[nodiscard]] std::string curl_script(const Trial& trial, const CaseVerdict& verdict);

// Runs a bundle with its words, and `num_runs` times with fresh ones. Errors: as run_audit.
[[nodiscard]] Result<AuditResult> run_bundle(const AuditConfig& config, const Bundle& bundle, int num_runs = 3);

}  // namespace verbatim::audit
