#include "audit/expected_hits.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_set>
#include <utility>

#include "simulator/block_cache.h"
#include "traces/hit_rate.h"

namespace verbatim::audit {
namespace {

// A piece of a prompt: a word, or an answer.
struct Part {
    std::string text;
    std::vector<uint64_t> tokens;  // names of them: equal for equal text at one place
};

struct Sent {
    std::vector<Part> prompt;
    std::optional<Part> answer;
    bool skipped = false;
};

uint64_t mix(uint64_t a, uint64_t b) { return Prng(a * 0x9e3779b97f4a7c15u + b).next(); }

class Replay {
public:
    Replay(const traces::Trace& trace, const ServerInfo& info, Runner& runner, const HitsConfig& config, uint64_t seed)
        : trace_(trace), info_(info), runner_(runner), config_(config), seed_(seed) {
        log_.block_tokens = config.block_tokens;
    }

    HitsResult run() {
        result_.tolerance = config_.tolerance;
        for (size_t row = 0; row < trace_.rows.size() && result_.problem.empty(); ++row) {
            sent_.push_back(prompt_of(trace_.rows[row]));
            if (sent_.back().skipped)
                ++result_.num_skipped;
            else
                ask(trace_.rows[row], sent_.back());
        }
        count_expected();
        return std::move(result_);
    }

private:
    Part word(uint64_t space, int64_t at) const {
        const uint64_t hash = mix(mix(seed_, space), static_cast<uint64_t>(at));
        const std::vector<std::string>& words = info_.words.fresh_words();
        const uint64_t choice = hash % words.size();
        Part part{words[choice], {}};
        for (int64_t i = 0; i < info_.words.fresh_cost(); ++i)
            part.tokens.push_back(mix(choice, static_cast<uint64_t>(i)));
        return part;
    }

    // What the row takes from its predecessor.
    std::vector<Part> taken(const traces::Row& row) const {
        const Sent& from = sent_[static_cast<size_t>(row.from)];
        std::vector<Part> parts = from.prompt;
        if (row.take == traces::Take::kPrompt) return parts;
        if (row.take == traces::Take::kTokens && row.take_tokens < static_cast<int64_t>(parts.size())) {
            parts.resize(static_cast<size_t>(row.take_tokens));
            return parts;
        }
        if (from.answer) parts.push_back(*from.answer);
        return parts;
    }

    Sent prompt_of(const traces::Row& row) const {
        Sent sent;
        sent.skipped = row.event != traces::Event::kHistory;
        if (row.from != traces::kNoRow && !sent.skipped) {
            sent.skipped = sent_[static_cast<size_t>(row.from)].skipped;
            if (!sent.skipped) sent.prompt = taken(row);
        }
        if (sent.skipped) return sent;
        for (uint32_t i = 0; i < row.num_pieces; ++i) {
            const traces::Piece& piece = trace_.pieces[row.first_piece + i];
            for (int64_t at = piece.begin; at < piece.begin + piece.length; ++at)
                sent.prompt.push_back(word(piece.space, at));
        }
        int64_t num_tokens = info_.words.least_tokens();
        for (const Part& part : sent.prompt) num_tokens += static_cast<int64_t>(part.tokens.size());
        sent.skipped = sent.prompt.empty() || (info_.max_tokens && num_tokens + config_.max_answer > *info_.max_tokens);
        return sent;
    }

    void ask(const traces::Row& row, Sent& sent) {
        std::string prompt = Words::kOpening;
        for (const Part& part : sent.prompt) prompt += part.text;
        AskOptions options;
        options.log_probs = false;
        options.max_tokens = row.max_tokens > 0 ? std::min(row.max_tokens, config_.max_answer) : config_.max_answer;
        Case script;
        script.relation = "expect-hits";
        script.waves = {{{make_ask(info_, {prompt}, options)}}};
        const Trial trial = runner_.run(script);
        if (!trial.problem.empty()) {
            result_.problem = trial.problem;
            return;
        }
        const Answer& answer = trial.answer(0, 0);
        std::optional<int64_t> reported = answer.cached_tokens;
        if (!reported) reported = info_.reports_cached ? std::optional<int64_t>(0) : trial.metric_hits[0];
        if (!reported) {
            result_.is_reported = false;
            result_.problem = "the server does not tell what it reuses (usage, /metrics)";
            return;
        }
        const std::vector<uint64_t> prefixes = prefixes_of(sent.prompt);
        add_to_log(prefixes);
        const int64_t prompt_tokens = answer.prompt_tokens.value_or(log_.prompt_tokens.back());
        result_.rows.push_back({prompt_tokens, *reported, sent_before(prefixes, prompt_tokens)});
        const std::string& text = answer.choices.at(0).text;
        Part part{text, {}};
        uint64_t hash = seed_;
        for (const char c : text) hash = mix(hash, static_cast<unsigned char>(c));
        for (int64_t i = 0; i < answer.completion_tokens.value_or(1); ++i)
            part.tokens.push_back(mix(hash, static_cast<uint64_t>(i)));
        sent_prefixes_.insert(prefixes.begin(), prefixes.end());
        uint64_t end = prefixes.back();
        for (const uint64_t token : part.tokens) sent_prefixes_.insert(end = mix(end, token));
        sent.answer = std::move(part);
    }

    // Each token's name, which is that of all tokens up to it: [num_tokens].
    std::vector<uint64_t> prefixes_of(const std::vector<Part>& prompt) const {
        std::vector<uint64_t> prefixes;
        uint64_t hash = 1;
        for (int64_t i = 0; i < info_.words.base_tokens(); ++i)
            prefixes.push_back(hash = mix(hash, static_cast<uint64_t>(i)));
        for (const Part& part : prompt) {
            for (const uint64_t token : part.tokens) prefixes.push_back(hash = mix(hash, token));
        }
        return prefixes;
    }

    // The opening of all prompts is known to every server that has been looked at. Behind it a chat's template may have
    // the tokens that follow a prompt, which base_tokens() counts.
    int64_t sent_before(const std::vector<uint64_t>& prefixes, int64_t prompt_tokens) const {
        const auto first_new =
            std::ranges::find_if(prefixes, [&](uint64_t prefix) { return !sent_prefixes_.contains(prefix); });
        if (first_new == prefixes.end()) return prompt_tokens;
        return std::max<int64_t>(first_new - prefixes.begin(), info_.words.base_tokens());
    }

    // The prompt's blocks: a block is named by all tokens up to its end.
    void add_to_log(const std::vector<uint64_t>& prefixes) {
        const auto block_tokens = static_cast<size_t>(config_.block_tokens);
        for (size_t end = block_tokens; end < prefixes.size() + block_tokens; end += block_tokens) {
            // No server reuses a whole prompt, nor part of a block: such a block is shared with no other.
            const bool is_shared = end < prefixes.size();
            const uint64_t name =
                is_shared ? prefixes[end - 1] : mix(prefixes.back(), 1000 + log_.prompt_tokens.size());
            const auto [at, is_new] = blocks_.try_emplace(name, static_cast<int64_t>(blocks_.size()));
            log_.runs.push_back({at->second, 1});
        }
        log_.run_ends.push_back(log_.runs.size());
        log_.prompt_tokens.push_back(static_cast<int64_t>(prefixes.size()));
        log_.output_tokens.push_back(0);
    }

    void count_expected() {
        for (const HitsRow& row : result_.rows) {
            result_.prompt_tokens += row.prompt_tokens;
            result_.reported += row.reported;
            result_.from_before += std::max<int64_t>(0, row.reported - row.sent_before);
        }
        if (result_.rows.empty()) return;
        const DenseLog dense(log_);
        const traces::HitRates rates =
            config_.room_tokens == 0
                ? traces::unlimited_hit_rates(log_)
                : block_hit_rates(log_, dense, config_.room_tokens / config_.block_tokens, EvictionChoice::kLru, {});
        result_.expected = rates.whole.tokens_hit;
    }

    const traces::Trace& trace_;
    const ServerInfo& info_;
    Runner& runner_;
    const HitsConfig& config_;
    uint64_t seed_;
    std::vector<Sent> sent_;
    traces::BlockLog log_;
    std::map<uint64_t, int64_t> blocks_;
    std::unordered_set<uint64_t> sent_prefixes_;  // of prompts and their answers
    HitsResult result_;
};

}  // namespace

bool HitsResult::is_of_earlier_run() const {
    return static_cast<double>(from_before) > tolerance * static_cast<double>(expected);
}

bool HitsResult::holds() const {
    return static_cast<double>(reported - from_before) >= (1 - tolerance) * static_cast<double>(expected);
}

HitsResult expect_hits(const traces::Trace& trace, const ServerInfo& info, Runner& runner, const HitsConfig& config,
                       uint64_t seed) {
    return Replay(trace, info, runner, config, seed).run();
}

}  // namespace verbatim::audit
