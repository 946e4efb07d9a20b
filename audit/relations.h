// audit/relations.h: owns the table of relations: what each one changes, what it needs, and its scripts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "audit/script.h"
#include "audit/server_info.h"

namespace verbatim::audit {

struct RelationConfig {
    uint64_t seed = 0;
    bool has_against = false;
    bool has_restart = false;
    int64_t max_tokens = 24;           // of an answer
    std::vector<int64_t> lengths;      // of prompts in `cold-warm`; empty: kLengths
    std::vector<std::string> prompts;  // in the place of the built-in ones
    std::vector<int64_t> neighbours = {1, 7, 31};
};

struct Relation {
    const char* name;
    const char* changes;  // "the same prompt from the cache and computed"
    const char* needs;    // of the server
    // Empty: the server and the flags have what it needs.
    std::string (*why_not)(const ServerInfo& info, const RelationConfig& config);
    std::vector<Case> (*cases)(const ServerInfo& info, const RelationConfig& config);
};

// In the order in which they are run: `again` first, for it measures the noise.
[[nodiscard]] std::span<const Relation> relations();
[[nodiscard]] const Relation* find_relation(const std::string& name);

// Prompt lengths around the block sizes of serving engines, and odd ones.
[[nodiscard]] const std::vector<int64_t>& usual_lengths();
// A small set of prompts in English, code and other scripts.
[[nodiscard]] const std::vector<std::string>& built_in_prompts();

}  // namespace verbatim::audit
