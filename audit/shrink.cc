#include "audit/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <regex>
#include <utility>

namespace verbatim::audit {
namespace {

using nlohmann::ordered_json;

void visit_strings(ordered_json& json, const std::function<void(std::string&)>& visit) {
    if (json.is_string()) {
        std::string text = json.get<std::string>();
        visit(text);
        json = std::move(text);
    } else if (json.is_structured()) {
        for (ordered_json& one : json) visit_strings(one, visit);
    }
}

void visit_strings(Case& script, const std::function<void(std::string&)>& visit) {
    for (Wave& wave : script.waves) {
        for (Ask& ask : wave.asks) visit_strings(ask.body, visit);
    }
}

const std::regex& reference() {
    static const std::regex kPattern(R"(\{\{(answer|half|tokens) (\d+) (\d+)\}\})");
    return kPattern;
}

bool is_referred_to(Case script, size_t wave, size_t ask) {
    bool found = false;
    const std::string mark = fmt::format(" {} {}}}}}", wave, ask);
    visit_strings(script, [&](std::string& text) { found = found || text.find(mark) != std::string::npos; });
    for (const Pair& pair : script.pairs) {
        for (const Place& place : {pair.left, pair.right}) found = found || (place.wave == wave && place.ask == ask);
    }
    return found;
}

// Where a request is after one is gone.
void renumber(size_t& wave, size_t& ask, size_t gone_wave, size_t gone_ask, bool wave_is_gone) {
    if (wave == gone_wave && ask > gone_ask) --ask;
    if (wave_is_gone && wave > gone_wave) --wave;
}

std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    for (const char c : text) {
        if (words.empty() || c == ' ') words.emplace_back();
        words.back() += c;
    }
    return words;
}

// The longest text of the script: what there is to shorten.
std::string longest_text(Case script) {
    std::string longest;
    visit_strings(script, [&](std::string& text) {
        if (text.size() > longest.size()) longest = text;
    });
    return longest;
}

void erase_everywhere(Case& script, const std::string& part) {
    visit_strings(script, [&](std::string& text) {
        if (const size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
    });
}

class Shrinker {
public:
    Shrinker(Shrunk start, Runner& runner, const ServerInfo& info, const Noise& floor, const JudgeOptions& options,
             int64_t max_runs)
        : best_(std::move(start)),
          runner_(runner),
          info_(info),
          floor_(floor),
          options_(options),
          max_runs_(max_runs) {}

    Shrunk run() {
        keep_one_pair();
        shorten_answers();
        drop_requests();
        shorten_texts();
        drop_requests();
        return std::move(best_);
    }

private:
    [[nodiscard]] bool may_go_on() const {
        return best_.num_runs < max_runs_ && !runner_.is_out_of_budget() && !runner_.is_stopped();
    }

    bool try_script(const Case& script) {
        if (!may_go_on()) return false;
        ++best_.num_runs;
        std::vector<Trial> trials;
        trials.push_back(runner_.run(script));
        RelationVerdict judged = judge(script.relation, std::move(trials), info_, floor_, options_);
        if (judged.verdict != Verdict::kCorrupt) return false;
        best_.trial = std::move(judged.trials[0]);
        best_.verdict = std::move(judged.cases[0]);
        return true;
    }

    void keep_one_pair() {
        Case script = best_.trial.script;
        if (script.pairs.size() < 2) return;
        script.pairs = {script.pairs[best_.verdict.worst_pair]};
        try_script(script);
    }

    void shorten_answers() {
        if (!best_.verdict.worst || !best_.verdict.worst->has_scores) return;
        Case script = best_.trial.script;
        const auto enough = static_cast<int64_t>(best_.verdict.worst->position) + 1;
        for (Wave& wave : script.waves) {
            for (Ask& ask : wave.asks) {
                if (ask.body.contains("max_tokens") && ask.body["max_tokens"].get<int64_t>() > enough)
                    ask.body["max_tokens"] = enough;
            }
        }
        try_script(script);
    }

    // The neighbours of a wave by halves, then every request that nothing refers to, last ones first.
    void drop_requests() {
        for (size_t wave = 0; wave < best_.trial.script.waves.size(); ++wave) {
            for (size_t count = best_.trial.script.waves[wave].asks.size() / 2; count > 1; count /= 2) {
                std::optional<Case> fewer = best_.trial.script;
                for (size_t i = 0; i < count && fewer && fewer->waves[wave].asks.size() > 1; ++i)
                    fewer = without_ask(*fewer, wave, fewer->waves[wave].asks.size() - 1);
                if (fewer) try_script(*fewer);
            }
        }
        for (size_t wave = best_.trial.script.waves.size(); wave-- > 0;) {
            for (size_t ask = best_.trial.script.waves[wave].asks.size(); ask-- > 0;) {
                const std::optional<Case> fewer = without_ask(best_.trial.script, wave, ask);
                if (fewer) try_script(*fewer);
            }
        }
    }

    // Words of the longest text, in the middle, by halves: what begins it makes it fresh.
    void shorten_texts() {
        for (size_t parts = 2; parts <= 16 && may_go_on();) {
            const std::vector<std::string> words = words_of(longest_text(best_.trial.script));
            const size_t length = words.size() / parts;
            if (length == 0) return;
            bool shrank = false;
            for (size_t part = 0; part < parts && may_go_on() && !shrank; ++part) {
                std::string text;
                for (size_t i = part * length; i < (part + 1) * length; ++i) text += words[i];
                if (text.find("{{") != std::string::npos || text.find("}}") != std::string::npos) continue;
                Case script = best_.trial.script;
                erase_everywhere(script, text);
                shrank = try_script(script);
            }
            if (!shrank) parts *= 2;
        }
    }

    Shrunk best_;
    Runner& runner_;
    const ServerInfo& info_;
    const Noise& floor_;
    const JudgeOptions& options_;
    int64_t max_runs_;
};

}  // namespace

std::optional<Case> without_ask(const Case& script, size_t wave, size_t ask) {
    if (is_referred_to(script, wave, ask)) return std::nullopt;
    Case fewer = script;
    std::vector<Ask>& asks = fewer.waves[wave].asks;
    const bool wave_is_gone = asks.size() == 1;
    if (wave_is_gone && fewer.waves[wave].restarts) return std::nullopt;
    asks.erase(asks.begin() + static_cast<long>(ask));
    if (wave_is_gone) fewer.waves.erase(fewer.waves.begin() + static_cast<long>(wave));
    std::erase_if(fewer.needs, [&](const Need& need) { return need.wave == wave && need.ask == ask; });
    for (Need& need : fewer.needs) renumber(need.wave, need.ask, wave, ask, wave_is_gone);
    for (Pair& pair : fewer.pairs) {
        for (Place* place : {&pair.left, &pair.right}) renumber(place->wave, place->ask, wave, ask, wave_is_gone);
    }
    visit_strings(fewer, [&](std::string& text) {
        std::string result;
        size_t done = 0;
        for (std::sregex_iterator at(text.begin(), text.end(), reference()), end; at != end; ++at) {
            size_t to_wave = std::stoul((*at)[2]);
            size_t to_ask = std::stoul((*at)[3]);
            renumber(to_wave, to_ask, wave, ask, wave_is_gone);
            result += text.substr(done, static_cast<size_t>(at->position()) - done);
            result += fmt::format("{{{{{} {} {}}}}}", (*at)[1].str(), to_wave, to_ask);
            done = static_cast<size_t>(at->position() + at->length());
        }
        text = result + text.substr(done);
    });
    return fewer;
}

Shrunk shrink(Trial trial, const CaseVerdict& verdict, Runner& runner, const ServerInfo& info, const Noise& floor,
              const JudgeOptions& options, int64_t max_runs) {
    Shrunk start{std::move(trial), verdict, 0};
    return Shrinker(std::move(start), runner, info, floor, options, max_runs).run();
}

}  // namespace verbatim::audit
