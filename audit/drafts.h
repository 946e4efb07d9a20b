// audit/drafts.h: owns what a server's /metrics say of speculation: how many drafted tokens it has accepted.
#pragma once

#include <cstdint>
#include <string>

namespace verbatim::audit {

// Of one side of a case.
struct Drafts {
    bool is_counted = false;
    int64_t num_accepted = 0;
    std::string proof;  // "vllm:spec_decode_num_accepted_tokens_total rose"
    void add(const Drafts& more);
};

// What the requests between two texts of /metrics did: vLLM counts accepted tokens; SGLang has a gauge of the tokens
// that a verification gives, which is above 1 where drafts are accepted, and counts as one of them.
[[nodiscard]] Drafts drafts_between(const std::string& before, const std::string& after);

}  // namespace verbatim::audit
