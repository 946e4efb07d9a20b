#include "audit/relations_of_two.h"

#include <fmt/format.h>

#include <utility>

#include "audit/case_maker.h"

namespace verbatim::audit {

using nlohmann::ordered_json;

std::string needs_rendering(const ServerInfo& info, const RelationConfig&) {
    if (info.is_chat || !info.has_chat) return "the server does not have both chats and completions";
    if (info.has_apply_template || info.has_tokenize) return {};
    return "the server has neither /apply-template nor /tokenize";
}

std::vector<Case> template_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "template");
    ServerInfo chat = info;
    chat.is_chat = true;
    const CaseMaker make_chat(chat, config, "template");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(6);
    for (size_t i = 0; i < prompts.size(); ++i) {
        Case script = make.new_case(fmt::format("prompt {}", i));
        const Ask asked = make_chat.ask(prompts[i]);
        Ask rendering;
        rendering.path = info.has_apply_template ? "/apply-template" : "/tokenize";
        rendering.body = {{"model", info.model}, {"messages", asked.body["messages"]}};
        Ask rendered = make.ask("");
        rendered.body["prompt"] = info.has_apply_template ? "{{answer 0 0}}" : "{{tokens 0 0}}";
        script.waves = {{{std::move(rendering)}}, {{asked}}, {{asked}}, {{std::move(rendered)}}};
        Pair pair{{2, 0}, {3, 0}};
        pair.same_prompt = true;
        script.pairs = {pair};
        cases.push_back(std::move(script));
    }
    return cases;
}

std::string needs_plain_server(const ServerInfo&, const RelationConfig& config) {
    return config.has_against || config.has_restart
               ? ""
               : "it compares two servers, or one before and after a restart that switches speculation: give "
                 "--against URL or --restart CMD";
}

std::vector<Case> speculation_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "speculation");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(8);
    if (!config.has_against) {
        // One restart for all prompts.
        AskOptions way;
        way.max_tokens = 3 * config.max_tokens;
        Case script = make.new_case("before and after a restart");
        for (const size_t round : {0, 1}) {
            for (size_t i = 0; i < prompts.size(); ++i) {
                script.waves.push_back({{make.ask(prompts[i], way)}, round == 1 && i == 0});
                if (round == 1) script.pairs.push_back({{i, 0}, {prompts.size() + i, 0}});
            }
        }
        script.needs = {{NeedKind::kRestarted, prompts.size(), 0}, {NeedKind::kDrafted, 0, 0}};
        return {std::move(script)};
    }
    for (size_t i = 0; i < prompts.size(); ++i) {
        AskOptions way;
        way.max_tokens = 3 * config.max_tokens;
        // Speculation keeps the distribution; only an exact server draws the same tokens from it.
        if (i % 4 == 3 && info.is_exact) way.seed = 20251 + i;
        Case script =
            make.new_case(fmt::format("prompt {}{}", i, way.seed ? ", sampled with a seed" : ""), way.seed.has_value());
        const Ask here = make.ask(prompts[i], way);
        Ask there = here;
        there.server = 1;
        there.body.erase("model");
        script.waves = {{{here}}, {{std::move(there)}}};
        script.pairs = {{{0, 0}, {1, 0}}};
        script.needs = {{NeedKind::kDrafted, 0, 0}};
        cases.push_back(std::move(script));
    }
    return cases;
}

std::string needs_other_cache(const ServerInfo&, const RelationConfig& config) {
    return config.has_against || config.has_restart
               ? ""
               : "it compares two servers, or one before and after a restart: give --against URL or --restart CMD";
}

std::vector<Case> cache_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "cache");
    std::vector<std::string> prompts = make.prompts(config.has_against ? 4 : 2);
    for (const int64_t length : {100, 600, 1100}) {
        if (const std::string prompt = make.sized(length, 60 + length); !prompt.empty()) prompts.push_back(prompt);
    }
    if (!config.has_against) {
        // One restart for all prompts.
        Case script = make.new_case("before and after a restart");
        for (const size_t round : {0, 1, 2}) {
            for (size_t i = 0; i < prompts.size(); ++i) {
                script.waves.push_back({{make.ask(prompts[i])}, round == 2 && i == 0});
                if (round == 1) script.needs.push_back({NeedKind::kReused, prompts.size() + i, 0});
                if (round == 2) script.needs.push_back({NeedKind::kRestarted, 2 * prompts.size() + i, 0});
                if (round == 2) script.pairs.push_back({{prompts.size() + i, 0}, {2 * prompts.size() + i, 0}});
            }
        }
        return {std::move(script)};
    }
    std::vector<Case> cases;
    for (size_t i = 0; i < prompts.size(); ++i) {
        Case script = make.new_case(fmt::format("prompt {}", i));
        const Ask here = make.ask(prompts[i]);
        Ask there = here;
        there.server = 1;
        there.body.erase("model");
        script.waves = {{{here}}, {{here}}, {{std::move(there)}}};
        script.pairs = {{{1, 0}, {2, 0}}};
        script.needs = {{NeedKind::kReused, 1, 0}, {NeedKind::kFresh, 2, 0}};
        cases.push_back(std::move(script));
    }
    return cases;
}

}  // namespace verbatim::audit
