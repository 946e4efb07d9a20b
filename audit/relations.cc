#include "audit/relations.h"

#include "audit/case_maker.h"
#include "audit/relations_of_two.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace verbatim::audit {
namespace {

constexpr uint64_t kSampleSeed = 20251;
constexpr int64_t kAbortAfterBytes = 1500;  // of a stream: past its first events
constexpr int64_t kLongAnswer = 200;        // of a neighbour that is to be there all the while

std::string always(const ServerInfo&, const RelationConfig&) { return {}; }

std::string needs_isolation(const ServerInfo& info, const RelationConfig&) {
    if (!info.isolation.is_null()) return {};
    return "the server has no way to compute a prompt again that it has cached, of cache_salt, use_cache and "
           "cache_prompt, or does not report cached_tokens, which would prove it";
}

std::string needs_completions(const ServerInfo& info, const RelationConfig&) {
    return info.is_chat ? "the server has no /v1/completions, which continues a text" : "";
}

std::string needs_log_probs(const ServerInfo& info, const RelationConfig&) {
    return info.has_log_probs ? "" : "the server gives no log-probabilities";
}

// Of the built-in prompts every fourth one is sampled, with a seed.
AskOptions way_of(size_t prompt) {
    AskOptions way;
    if (prompt % 4 == 3) way.seed = kSampleSeed + prompt;
    return way;
}
std::string name_of(size_t prompt, const AskOptions& way) {
    return fmt::format("prompt {}{}", prompt, way.seed ? ", sampled with a seed" : "");
}

// The prompt as the server has not seen it, and again from its cache.
Case cold_warm_case(const CaseMaker& make, const std::string& name, const std::string& prompt, const AskOptions& way) {
    Case script = make.new_case(name, way.seed.has_value());
    script.waves = {{{make.ask(prompt, way)}}, {{make.ask(prompt, way)}}};
    script.pairs = {{{0, 0}, {1, 0}}};
    script.needs = {{NeedKind::kFresh, 0, 0}, {NeedKind::kReused, 1, 0}};
    return script;
}

std::vector<Case> again_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "again");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(4);
    for (size_t i = 0; i < prompts.size(); ++i)
        cases.push_back(make.warmed(fmt::format("prompt {}", i), prompts[i], std::vector<AskOptions>(4)));
    if (const std::string prompt = make.long_prompt(700); !prompt.empty())
        cases.push_back(make.warmed("long prompt", prompt, std::vector<AskOptions>(4)));
    for (size_t i = 0; i < std::min<size_t>(prompts.size(), 2); ++i) {
        AskOptions sampled;
        sampled.seed = kSampleSeed + i;
        cases.push_back(make.warmed(name_of(i, sampled), prompts[i], std::vector<AskOptions>(3, sampled)));
    }
    return cases;
}

void add_turns(const CaseMaker& make, std::vector<Case>& cases) {
    const std::string prompt = make.long_prompt(300);
    if (prompt.empty() || !make.fits(300 + 3 * make.config().max_tokens + 60)) return;
    // Two turns go on from the answers; the last one is repeated, and computed where that can be asked for.
    Case script = make.new_case("a conversation of three turns");
    const std::string second = " Go on, and give a second example.";
    const std::string third = " Now say it in one sentence.";
    const std::vector<std::string> turns = {prompt, "{{answer 0 0}}", second, "{{answer 1 0}}", third};
    script.waves.push_back({{make.ask(std::vector<std::string>(turns.begin(), turns.begin() + 1))}});
    script.waves.push_back({{make.ask(std::vector<std::string>(turns.begin(), turns.begin() + 3))}});
    script.waves.push_back({{make.ask(turns)}});
    AskOptions last;
    last.isolated = !make.info().isolation.is_null();
    script.waves.push_back({{make.ask(turns, last)}});
    script.pairs = {{{2, 0}, {3, 0}}};
    script.needs = {{NeedKind::kReused, 2, 0}};
    if (last.isolated) script.needs.push_back({NeedKind::kFresh, 3, 0});
    cases.push_back(std::move(script));
}

void add_edit(const CaseMaker& make, std::vector<Case>& cases) {
    const std::string begin = make.long_prompt(300);
    if (begin.empty() || !make.fits(620)) return;
    const Words& words = make.info().words;
    const auto whole = [&](const char* middle) { return begin + middle + words.filler(250, make.config().seed); };
    Case script = make.new_case("after an edit in the middle");
    AskOptions last;
    last.isolated = !make.info().isolation.is_null();
    script.waves = {
        {{make.ask(whole(" and then"))}}, {{make.ask(whole(" but not"))}}, {{make.ask(whole(" but not"), last)}}};
    script.pairs = {{{1, 0}, {2, 0}}};
    script.needs = {{NeedKind::kReused, 1, 0}};
    cases.push_back(std::move(script));
}

void add_filled(const CaseMaker& make, std::vector<Case>& cases) {
    const std::string prompt = make.long_prompt(700);
    if (prompt.empty()) return;
    Case script = make.new_case("after other prompts have filled the cache");
    script.waves = {{{make.ask(prompt)}}, {{make.ask(prompt)}}};
    for (int64_t k = 1; k <= 4; ++k) {
        Wave wave;
        for (int64_t i = 0; i < 4; ++i)
            wave.asks.push_back(make.ask(make.long_prompt(2000, 4 * k + i), {.max_tokens = 1}));
        script.waves.push_back(std::move(wave));
    }
    script.waves.push_back({{make.ask(prompt)}});
    script.pairs = {{{0, 0}, {6, 0}}};
    script.needs = {{NeedKind::kFresh, 0, 0}, {NeedKind::kReused, 1, 0}};
    cases.push_back(std::move(script));
}

std::vector<Case> cold_warm_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "cold-warm");
    std::vector<Case> cases;
    for (const int64_t length : config.lengths.empty() ? usual_lengths() : config.lengths) {
        const std::string prompt = make.sized(length);
        if (prompt.empty()) continue;
        const std::string name = fmt::format("{}{} tokens", info.words.is_exact() ? "" : "about ", length);
        cases.push_back(cold_warm_case(make, name, prompt, {}));
    }
    const std::vector<std::string> prompts = make.prompts(8);
    for (size_t i = 0; i < prompts.size(); ++i)
        cases.push_back(cold_warm_case(make, name_of(i, way_of(i)), prompts[i], way_of(i)));
    add_turns(make, cases);
    add_edit(make, cases);
    add_filled(make, cases);
    return cases;
}

std::vector<Case> batched_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "alone-batched");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(2);
    for (const int64_t others : config.neighbours) {
        for (size_t p = 0; p < prompts.size(); ++p) {
            AskOptions way;
            way.streams = true;
            Case script = make.new_case(fmt::format("prompt {} with {} other{}", p, others, others == 1 ? "" : "s"));
            script.waves = {{{make.ask(prompts[p], way)}}, {{make.ask(prompts[p], way)}}};
            Wave wave;
            wave.asks.push_back(make.ask(prompts[p], way));
            for (int64_t i = 0; i < others; ++i) {
                // Every fourth one has a long prompt to compute.
                AskOptions longer = way;
                longer.max_tokens = 2 * config.max_tokens;
                const int64_t fresh = 100 + i;
                const std::string prompt = i % 4 == 1 ? make.long_prompt(900, fresh) : make.long_prompt(64 + i, fresh);
                if (!prompt.empty()) wave.asks.push_back(make.ask(prompt, longer));
            }
            script.waves.push_back(std::move(wave));
            script.pairs = {{{1, 0}, {2, 0}}};
            script.needs = {{NeedKind::kTogether, 2, 0}};
            cases.push_back(std::move(script));
        }
    }
    return cases;
}

std::vector<Case> stream_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "stream-whole");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(8);
    for (size_t i = 0; i < prompts.size(); ++i) {
        const AskOptions whole = way_of(i);
        AskOptions streamed = whole;
        streamed.streams = true;
        Case script = make.warmed(name_of(i, whole), prompts[i], {whole, streamed});
        script.needs = {{NeedKind::kStreamed, 2, 0}};
        cases.push_back(std::move(script));
    }
    return cases;
}

std::vector<Case> chunked_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "chunked");
    std::vector<Case> cases;
    for (const int64_t length : {200, 600, 1100}) {
        const std::string prompt = make.sized(length);
        if (prompt.empty()) continue;
        Case script = make.new_case(fmt::format("{} tokens in five turns", length));
        for (size_t part = 1; part <= 4; ++part) {
            const size_t cut = prompt.find(' ', prompt.size() * part / 5);
            script.waves.push_back({{make.ask(prompt.substr(0, cut), {.max_tokens = 1})}});
        }
        AskOptions apart;
        apart.isolated = true;
        script.waves.push_back({{make.ask(prompt)}});
        script.waves.push_back({{make.ask(prompt, apart)}});
        script.pairs = {{{4, 0}, {5, 0}}};
        script.needs = {{NeedKind::kReused, 4, 0}, {NeedKind::kFresh, 5, 0}};
        cases.push_back(std::move(script));
    }
    return cases;
}

std::vector<Case> resume_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "stop-resume");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(6);
    for (size_t i = 0; i < prompts.size(); ++i) {
        Case script = make.new_case(fmt::format("prompt {}", i));
        script.waves = {{{make.ask(prompts[i])}}, {{make.ask(prompts[i])}}, {{make.ask(prompts[i] + "{{half 1 0}}")}}};
        script.pairs = {{{1, 0}, {2, 0}, /*continues=*/true}};
        cases.push_back(std::move(script));
    }
    return cases;
}

std::vector<Case> aborted_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "aborted");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(3);
    for (size_t i = 0; i < prompts.size(); ++i) {
        for (const bool same_prompt : {true, false}) {
            AskOptions way;
            way.streams = true;
            Case script = make.new_case(fmt::format("prompt {}, a neighbour {} aborts", i,
                                                    same_prompt ? "with the same prompt" : "with a long prompt"));
            const std::string other = same_prompt ? prompts[i] : make.long_prompt(600, 50);
            if (other.empty()) continue;
            AskOptions longer = way;
            longer.max_tokens = kLongAnswer;
            Ask aborted = make.ask(other, longer);
            aborted.abort_after_bytes = kAbortAfterBytes;
            const Ask asked = make.ask(prompts[i], way);
            script.waves = {{{asked}}, {{asked}}, {{asked, aborted}}, {{asked}}};
            script.pairs = {{{1, 0}, {2, 0}}, {{1, 0}, {3, 0}}};
            script.needs = {{NeedKind::kAborted, 2, 1}};
            cases.push_back(std::move(script));
        }
    }
    return cases;
}

std::vector<Case> n_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "n");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(4);
    for (size_t i = 0; i < prompts.size(); ++i) {
        Case script = make.new_case(fmt::format("prompt {}", i));
        AskOptions four;
        four.n = 4;
        const Ask one = make.ask(prompts[i]);
        script.waves = {{{one}}, {{one, one, one, one}}, {{make.ask(prompts[i], four)}}};
        for (size_t k = 0; k < 4; ++k) script.pairs.push_back({{1, k, 0}, {2, 0, k}});
        cases.push_back(std::move(script));
    }
    return cases;
}

std::vector<Case> order_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "order");
    const std::vector<std::string> prompts = make.prompts(6);
    if (prompts.size() < 2) return {};
    Case script = make.new_case("the prompts forwards and backwards");
    const size_t count = prompts.size();
    for (size_t round = 0; round < 3; ++round) {
        for (size_t i = 0; i < count; ++i)
            script.waves.push_back({{make.ask(prompts[round == 2 ? count - 1 - i : i])}});
    }
    for (size_t i = 0; i < count; ++i) script.pairs.push_back({{count + i, 0}, {3 * count - 1 - i, 0}});
    // The same at one time, in both orders.
    for (const bool backwards : {false, true}) {
        Wave wave;
        for (size_t i = 0; i < count; ++i) {
            AskOptions way;
            way.streams = true;
            wave.asks.push_back(make.ask(prompts[backwards ? count - 1 - i : i], way));
        }
        script.waves.push_back(std::move(wave));
    }
    for (size_t i = 0; i < count; ++i) script.pairs.push_back({{3 * count, i}, {3 * count + 1, count - 1 - i}});
    return {std::move(script)};
}

std::vector<Case> log_prob_cases(const ServerInfo& info, const RelationConfig& config) {
    const CaseMaker make(info, config, "logprobs");
    std::vector<Case> cases;
    const std::vector<std::string> prompts = make.prompts(6);
    for (size_t i = 0; i < prompts.size(); ++i) {
        AskOptions without;
        without.log_probs = false;
        cases.push_back(make.warmed(fmt::format("prompt {}, with and without", i), prompts[i], {{}, without}));
        for (Pair& pair : cases.back().pairs) pair.chosen_first = true;
        if (!info.has_echo || info.is_chat) continue;
        Case script = make.new_case(fmt::format("prompt {}, drawn and as a prompt", i));
        Ask echo = make.ask(prompts[i] + "{{answer 1 0}}", {.max_tokens = 1});
        echo.body["echo"] = true;
        script.waves = {{{make.ask(prompts[i])}}, {{make.ask(prompts[i])}}, {{std::move(echo)}}};
        Pair pair{{1, 0}, {2, 0}};
        pair.scores_only = true;
        script.pairs = {pair};
        cases.push_back(std::move(script));
    }
    return cases;
}

}  // namespace

std::span<const Relation> relations() {
    static constexpr std::array kRelations = {
        Relation{"again", "the same request, again and again", "nothing", always, again_cases},
        Relation{"cold-warm", "a prompt that the server has not seen, and the same from its cache",
                 "cached_tokens in usage, a counter in /metrics, or a clear difference in time", always,
                 cold_warm_cases},
        Relation{"alone-batched", "a request alone, and among 1, 7 and 31 others", "answers that run at one time",
                 always, batched_cases},
        Relation{"stream-whole", "an answer in one piece, and as a stream", "streams in more than one piece", always,
                 stream_cases},
        Relation{"chunked", "a long prompt at once, and built up turn by turn",
                 "a way to compute a cached prompt again", needs_isolation, chunked_cases},
        Relation{"stop-resume", "an answer, and the rest of it when its first half is sent as prompt",
                 "/v1/completions", needs_completions, resume_cases},
        Relation{"aborted", "an answer, and the same while a neighbour's connection is cut", "streams", always,
                 aborted_cases},
        Relation{"n", "four requests, and one with n = 4", "n above 1 at temperature 0", always, n_cases},
        Relation{"order", "requests in one order, and in another", "nothing", always, order_cases},
        Relation{"logprobs",
                 "with log-probabilities and without; of an answer, and of the same text as a prompt (echo)",
                 "log-probabilities", needs_log_probs, log_prob_cases},
        Relation{"template", "a chat, and a completion of its prompt as /apply-template or /tokenize renders it",
                 "chats, completions, and one of these", needs_rendering, template_cases},
        Relation{"speculation", "a server that speculates, and one that does not",
                 "--against URL or --restart CMD, and counted accepted drafts", needs_plain_server, speculation_cases},
        Relation{"cache", "a prompt from the cache, and computed by another server or after a restart",
                 "--against URL or --restart CMD", needs_other_cache, cache_cases},
    };
    return kRelations;
}

const Relation* find_relation(const std::string& name) {
    for (const Relation& one : relations()) {
        if (one.name == name) return &one;
    }
    return nullptr;
}

const std::vector<int64_t>& usual_lengths() {
    static const std::vector<int64_t> kLengths = [] {
        std::vector<int64_t> lengths = {37, 101, 333, 777, 1531};
        for (const int64_t block : {16, 32, 64, 128, 256, 512, 528, 1024, 2048}) {
            for (const int64_t off : {-1, 0, 1}) lengths.push_back(block + off);
        }
        std::ranges::sort(lengths);
        return lengths;
    }();
    return kLengths;
}

const std::vector<std::string>& built_in_prompts() {
    static const std::vector<std::string> kPrompts = {
        "Explain in three sentences why the sky is blue.",
        "Write a Python function that returns the n-th Fibonacci number.\n\ndef fibonacci(n):\n",
        "Übersetze ins Englische: Der Zug fährt um 17 Uhr vom Gleis vier ab. ☕",
        "List five rivers of South America with the countries that they cross.",
        "下面是一段关于春天的短文：春天来了，",
        "Once upon a time, in a village by the sea, there lived a clockmaker",
        "{\"name\": \"Ada\", \"born\": 1815, \"languages\": [\"English\",",
        "A train leaves at 9:40 and arrives at 13:05. How long does the journey take? Show each step. 🚆",
    };
    return kPrompts;
}

}  // namespace verbatim::audit
