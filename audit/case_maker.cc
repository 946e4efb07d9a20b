#include "audit/case_maker.h"

#include <fmt/format.h>

#include <utility>

namespace verbatim::audit {

Case CaseMaker::new_case(std::string name, bool is_sampled) const {
    Case script;
    script.relation = relation_;
    script.name = std::move(name);
    script.is_sampled = is_sampled;
    return script;
}

Ask CaseMaker::ask(const std::string& prompt, const AskOptions& options) const {
    return ask(std::vector<std::string>{prompt}, options);
}

Ask CaseMaker::ask(const std::vector<std::string>& turns, AskOptions options) const {
    if (options.max_tokens == AskOptions().max_tokens) options.max_tokens = config_.max_tokens;
    return make_ask(info_, turns, options);
}

std::vector<std::string> CaseMaker::prompts(size_t count) const {
    const std::vector<std::string>& from = config_.prompts.empty() ? built_in_prompts() : config_.prompts;
    std::vector<std::string> result;
    for (size_t i = 0; i < count && i < from.size(); ++i) {
        const std::string prompt = fmt::format("{}{{{{fresh {}}}}}.\n\n{}", Words::kOpening, i, from[i]);
        if (fits(static_cast<int64_t>(prompt.size()) / 3)) result.push_back(prompt);
    }
    return result;
}

std::string CaseMaker::sized(int64_t num_tokens, int64_t fresh) const {
    if (!fits(num_tokens)) return {};
    return info_.words.prompt(num_tokens, fresh, config_.seed + static_cast<uint64_t>(num_tokens)).value_or("");
}

std::string CaseMaker::long_prompt(int64_t num_tokens, int64_t fresh) const {
    for (int64_t length = num_tokens; length >= 16; length /= 2) {
        if (std::string prompt = sized(length, fresh); !prompt.empty()) return prompt;
    }
    return {};
}

bool CaseMaker::fits(int64_t num_tokens) const {
    return !info_.max_tokens || num_tokens + config_.max_tokens <= *info_.max_tokens;
}

Case CaseMaker::warmed(const std::string& name, const std::string& prompt, const std::vector<AskOptions>& ways) const {
    Case script = new_case(name, !ways.empty() && ways[0].seed.has_value());
    script.waves.push_back({{ask(prompt, ways[0])}});
    for (const AskOptions& way : ways) script.waves.push_back({{ask(prompt, way)}});
    for (size_t i = 1; i < ways.size(); ++i) script.pairs.push_back({{1, 0}, {i + 1, 0}});
    return script;
}

}  // namespace verbatim::audit
