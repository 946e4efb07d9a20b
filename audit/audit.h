// audit/audit.h: owns an audit: every relation that was asked for, run and judged, within one budget.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "audit/relations.h"
#include "audit/runner.h"
#include "audit/server_info.h"
#include "audit/shrink.h"
#include "audit/verdict.h"

namespace verbatim::audit {

struct AuditConfig {
    RunnerConfig runner;
    RelationConfig relations;
    JudgeOptions judge;
    DiscoverOptions discover;
    std::vector<std::string> only;  // names; empty: all
    std::vector<std::string> skip;
    bool shrinks = true;  // the worst case of a relation that is corrupt
    // Called before each case: what runs, and how far the audit is.
    std::function<void(const std::string& what, size_t done, size_t total)> progress = [](auto&&...) {};
};

struct AuditResult {
    ServerInfo server;
    bool is_exact = false;
    Noise floor;  // of `again`
    bool has_floor = false;
    std::vector<RelationVerdict> relations;
    std::vector<std::optional<Shrunk>> shrunk;  // [relation]: of a corrupt one
    bool is_of_bundle = false;                  // its one relation's cases are the tries to show a finding again
    int64_t num_requests = 0;
    int64_t num_tokens = 0;
    [[nodiscard]] Verdict verdict() const;                                               // the worst
    [[nodiscard]] bool is_reproduced() const { return verdict() == Verdict::kCorrupt; }  // of a bundle
    [[nodiscard]] bool compared_nothing() const;
};

// Errors: a name that no relation has; no relation is left.
[[nodiscard]] Status check_selection(const std::vector<std::string>& only, const std::vector<std::string>& skip);

// Errors: the server does not answer, or is no such server; an unknown relation.
[[nodiscard]] Result<AuditResult> run_audit(const AuditConfig& config);

}  // namespace verbatim::audit
