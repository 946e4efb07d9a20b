// audit/case_maker.h: owns the making of cases for one server: prompts that fit it, and requests as it takes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "audit/relations.h"
#include "audit/script.h"
#include "audit/server_info.h"

namespace verbatim::audit {

class CaseMaker {
public:
    // Borrows both.
    CaseMaker(const ServerInfo& info, const RelationConfig& config, const char* relation)
        : info_(info), config_(config), relation_(relation) {}

    [[nodiscard]] Case new_case(std::string name, bool is_sampled = false) const;
    // The configured length of answers, where the options say nothing else.
    [[nodiscard]] Ask ask(const std::string& prompt, const AskOptions& options = {}) const;
    [[nodiscard]] Ask ask(const std::vector<std::string>& turns, AskOptions options = {}) const;
    // The built-in prompts or the user's, `count` of them at most, each with fresh words before it.
    [[nodiscard]] std::vector<std::string> prompts(size_t count) const;
    // Of exactly (where words were measured) this many tokens; empty: it does not fit.
    [[nodiscard]] std::string sized(int64_t num_tokens, int64_t fresh = 0) const;
    // The same, half as long and half of that, until it fits.
    [[nodiscard]] std::string long_prompt(int64_t num_tokens, int64_t fresh = 0) const;
    [[nodiscard]] bool fits(int64_t num_tokens) const;
    // The prompt once to warm it up, and then in each of these ways, whose answers must be equal.
    [[nodiscard]] Case warmed(const std::string& name, const std::string& prompt,
                              const std::vector<AskOptions>& ways) const;
    [[nodiscard]] const ServerInfo& info() const { return info_; }
    [[nodiscard]] const RelationConfig& config() const { return config_; }

private:
    const ServerInfo& info_;
    const RelationConfig& config_;
    const char* relation_;
};

}  // namespace verbatim::audit
