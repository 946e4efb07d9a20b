#include "traces/generate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "engine/base/prng.h"
#include "traces/builder.h"
#include "traces/chance.h"
#include "traces/transform.h"

namespace verbatim::traces {
namespace {

// Gamma gaps of shape 1/9 have a coefficient of variation of 3. Marsaglia and Tsang (2000) for shape + 1, boosted.
double gamma_one_ninth(Chance& chance) {
    constexpr double kShape = 1.0 / 9;
    constexpr double kD = kShape + 1 - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * kD);
    while (true) {
        const double x = chance.normal();
        const double v = std::pow(1 + c * x, 3);
        if (v <= 0 || std::log(1 - chance.uniform()) >= 0.5 * x * x + kD - kD * v + kD * std::log(v)) continue;
        return kD * v * std::pow(1 - chance.uniform(), 1 / kShape) / kShape;  // mean 1
    }
}

std::vector<int64_t> start_times_ns(const GenerateOptions& options) {
    Chance chance(options.seed);
    std::vector<int64_t> starts;
    double seconds = 0;
    for (int64_t i = 0; i < options.conversations; ++i) {
        starts.push_back(std::llround(seconds * 1e9));
        double gap = 1;
        if (options.arrivals == ArrivalProcess::kPoisson) gap = chance.exponential(1);
        if (options.arrivals == ArrivalProcess::kBursty) gap = gamma_one_ninth(chance);
        seconds += gap / options.rate;
    }
    return starts;
}

// Spaces: system prompts are 0, 1, ...; conversation n has space kFirstConversation + n.
constexpr uint64_t kFirstConversation = 1'000'000;

// Creates the rows of one conversation and its forks.
class ConversationMaker {
public:
    ConversationMaker(const GenerateOptions& options, TraceBuilder& builder, int64_t number, int64_t start_ns)
        : options_(options),
          builder_(builder),
          number_(number),
          time_ns_(start_ns),
          chance_(seed_of(options.seed, number)),
          chance_of_arithmetic_(seed_of(~options.seed, number)) {
        suffix_ = chance_.happens(options.suffix_share);
        row_options_.deterministic = chance_.happens(options.deterministic_share);
        row_options_.ignore_stop = true;
        if (options.salts > 0) salt_ = fmt::format("salt-{}", chance_.below(options.salts));
        system_prompt_ = options.system_prompts > 0 ? chance_.below(options.system_prompts) : -1;
    }

    void make() {
        conversation_ = builder_.add_conversation(fmt::format("c{}", number_), salt_);
        const int64_t num_turns = chance_.geometric(options_.mean_turns);
        for (int64_t turn = 0; turn < num_turns; ++turn) {
            if (chance_.happens(options_.abort_chance)) make_turn(/*abort=*/true);
            make_turn(/*abort=*/false);
            if (chance_.happens(options_.regenerate_chance)) regenerate();
            if (chance_.happens(options_.fork_chance)) fork();
        }
    }

private:
    static uint64_t seed_of(uint64_t seed, int64_t number) {
        Prng prng(seed ^ static_cast<uint64_t>(number) * 0x9e3779b97f4a7c15u);
        return prng.next();
    }

    // The next row of the conversation, or its first.
    Row next_row() {
        Row row;
        row.conversation = conversation_;
        row.session = static_cast<int32_t>(number_);
        row.wait_for = last_;
        if (last_ != kNoRow) {
            row.start = Start::kAfterAnswer;
            row.think_ns = std::llround(chance_.exponential(options_.mean_think_seconds) * 1e9);
            time_ns_ += row.think_ns;
        }
        row.arrival_ns = time_ns_;
        return row;
    }

    RowIndex add(Row row) {
        if (is_request(row.event)) {
            const bool is_first = num_rows_ == 0;
            row.name = builder_.add_name(fmt::format("c{}.{}", number_, num_rows_++));
            if (!is_first) row_options_.deterministic = chance_of_arithmetic_.happens(options_.deterministic_share);
            row.options = builder_.add_options(row_options_);
        }
        last_ = builder_.add_row(row);
        return last_;
    }

    void say(int64_t count) {
        builder_.add_piece(
            {kFirstConversation + static_cast<uint64_t>(number_), said_, static_cast<int32_t>(count), false, false});
        builder_.end_message(/*checkpoint=*/true);
        said_ += count;
    }

    void make_turn(bool abort) {
        Row row = next_row();
        row.from = tip_;
        if (tip_ == kNoRow) {
            if (system_prompt_ >= 0) {
                builder_.add_piece({static_cast<uint64_t>(system_prompt_), 0,
                                    static_cast<int32_t>(options_.system_prompt_tokens), false, false});
                builder_.end_message(/*checkpoint=*/true);
            }
            say(chance_.length(options_.first_tokens));
        } else {
            row.event = suffix_ ? Event::kSuffix : Event::kHistory;
            row.take = suffix_ ? Take::kTokens : Take::kAll;
            if (chance_.happens(options_.edit_chance)) {
                row.event = Event::kHistory;
                row.take = Take::kTokens;
                row.take_tokens = 1 + chance_.below(builder_.trace().row(tip_).prompt_tokens);
            }
            say(chance_.length(options_.turn_tokens));
        }
        row.max_tokens = chance_.length(options_.output_tokens);
        if (abort) row.abort_after = chance_.below(row.max_tokens);
        const RowIndex added = add(row);
        if (!abort) tip_ = added;
    }

    void regenerate() {
        Row row = next_row();
        row.event = Event::kRegenerate;
        row.from = tip_;
        row.max_tokens = chance_.length(options_.output_tokens);
        tip_ = add(row);
    }

    // One turn in a new conversation; the original one continues unchanged.
    void fork() {
        const auto here = std::pair{conversation_, tip_};
        Row row = next_row();
        row.event = Event::kFork;
        row.from = tip_;
        row.conversation = conversation_ =
            builder_.add_conversation(fmt::format("c{}.f{}", number_, num_forks_++), salt_);
        add(row);
        make_turn(/*abort=*/false);
        std::tie(conversation_, tip_) = here;
    }

    const GenerateOptions& options_;
    TraceBuilder& builder_;
    int64_t number_;
    int64_t time_ns_;
    Chance chance_;
    Chance chance_of_arithmetic_;  // separate, so that `deterministic_share` changes no other draw
    ConversationIndex conversation_{};
    RowIndex tip_ = kNoRow;   // the last turn that commits
    RowIndex last_ = kNoRow;  // the last row
    RowOptions row_options_;
    std::optional<std::string> salt_;
    int64_t system_prompt_ = -1;
    int64_t said_ = 0;
    int64_t num_rows_ = 0;
    int64_t num_forks_ = 0;
    bool suffix_ = false;
};

}  // namespace

Status validate(const GenerateOptions& options) {
    std::vector<std::string> problems;
    const auto within = [&](const std::string& flag, auto value, double least, double most) {
        if (static_cast<double>(value) >= least && static_cast<double>(value) <= most) return;
        problems.push_back(fmt::format("{}: got {}, wanted {} to {}", flag, value, least, most));
    };
    const auto lengths = [&](const std::string& flag, const LengthDistribution& of) {
        within(flag, of.median, 1, 1e6);
        within(flag + "-sigma", of.sigma, 0, 10);
    };
    within("--conversations", options.conversations, 1, 1e7);
    within("--rate", options.rate, 1e-6, 1e9);
    within("--turns", options.mean_turns, 1, 1e4);
    lengths("--first-tokens", options.first_tokens);
    lengths("--turn-tokens", options.turn_tokens);
    lengths("--output-tokens", options.output_tokens);
    within("--think", options.mean_think_seconds, 0, 1e6);
    within("--system-prompts", options.system_prompts, 0, 1e6);
    within("--system-prompt-tokens", options.system_prompt_tokens, 1, 1e6);
    within("--salts", options.salts, 0, 1e6);
    within("--suffix-share", options.suffix_share, 0, 1);
    within("--deterministic-share", options.deterministic_share, 0, 1);
    within("--fork", options.fork_chance, 0, 1);
    within("--edit", options.edit_chance, 0, 1);
    within("--regenerate", options.regenerate_chance, 0, 1);
    within("--abort", options.abort_chance, 0, 1);
    if (problems.empty()) return {};
    return error("{}", fmt::join(problems, "; "));
}

Trace generate(const GenerateOptions& options) {
    TraceBuilder builder;
    const std::vector<int64_t> starts = start_times_ns(options);
    for (size_t i = 0; i < starts.size(); ++i)
        ConversationMaker(options, builder, static_cast<int64_t>(i), starts[i]).make();
    Trace trace = builder.finish();
    sort_by_arrival(trace);
    return trace;
}

}  // namespace verbatim::traces
