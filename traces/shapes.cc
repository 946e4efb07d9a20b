#include "traces/shapes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "traces/builder.h"
#include "traces/chance.h"
#include "traces/transform.h"

namespace verbatim::traces {
namespace {

// Spaces: shared texts are 0, 1, ...; a request's own text has space kFirstOwn + its number.
constexpr uint64_t kFirstOwn = 1'000'000;

struct Text {
    uint64_t space = 0;
    int64_t begin = 0;
    int64_t length = 0;
};

class ShapeMaker {
public:
    explicit ShapeMaker(const ShapeOptions& options) : options_(options), chance_(options.seed) {
        row_options_.ignore_stop = true;
    }

    Trace make() {
        switch (options_.shape) {
            case Shape::kDocuments: make_documents(); break;
            case Shape::kOneShots: make_one_shots(); break;
            case Shape::kToolLoops: make_tool_loops(); break;
            case Shape::kTemplates: make_templates(); break;
        }
        Trace trace = builder_.finish();
        sort_by_arrival(trace);
        return trace;
    }

private:
    // A new conversation, or the next turn of `from`.
    RowIndex ask(RowIndex from, const std::vector<Text>& texts, int64_t num_output, double think_s = 0) {
        const std::string name = fmt::format("r{}", num_rows_++);
        Row row;
        row.from = row.wait_for = from;
        row.conversation =
            from == kNoRow ? builder_.add_conversation(name, std::nullopt) : builder_.trace().row(from).conversation;
        row.arrival_ns = std::llround(time_s_ * 1e9);
        if (from != kNoRow) {
            row.start = Start::kAfterAnswer;
            row.think_ns = std::llround(think_s * 1e9);
            row.take = Take::kAll;
        }
        for (const Text& text : texts)
            builder_.add_piece({text.space, text.begin, static_cast<int32_t>(text.length), false, false});
        builder_.end_message(/*checkpoint=*/from != kNoRow);
        row.name = builder_.add_name(name);
        row.max_tokens = num_output;
        row.options = builder_.add_options(row_options_);
        time_s_ += chance_.exponential(1 / options_.rate);
        return builder_.add_row(row);
    }
    [[nodiscard]] Text own(int64_t length) const { return {kFirstOwn + static_cast<uint64_t>(num_rows_), 0, length}; }

    // Document n is asked for in proportion to 1 / (n + 1).
    void make_documents() {
        const int64_t num_documents = std::max<int64_t>(options_.requests / 8, 1);
        std::vector<int64_t> lengths;
        std::vector<double> until;
        double sum = 0;
        for (int64_t n = 0; n < num_documents; ++n) {
            lengths.push_back(std::min<int64_t>(chance_.length({12'000, 0.8}), 60'000));
            until.push_back(sum += 1 / static_cast<double>(n + 1));
        }
        RowIndex last = kNoRow;
        while (num_rows_ < options_.requests) {
            if (last != kNoRow && chance_.happens(0.2)) {
                last = ask(last, {own(chance_.length({60, 0.7}))}, chance_.length({150, 0.7}), chance_.exponential(20));
                continue;
            }
            const auto n =
                static_cast<size_t>(std::ranges::lower_bound(until, chance_.uniform() * sum) - until.begin());
            const Text instructions{0, 0, 200};
            const Text document{1 + n, 0, lengths[n]};
            last = ask(kNoRow, {instructions, document, own(chance_.length({60, 0.7}))}, chance_.length({150, 0.7}));
        }
    }

    void make_one_shots() {
        RowIndex agent = ask(kNoRow, {own(8000)}, 200);
        while (num_rows_ < options_.requests) {
            if (num_rows_ % 20 == 0) {
                agent = ask(agent, {own(chance_.length({600, 0.8}))}, chance_.length({200, 0.6}));
            } else {
                ask(kNoRow, {own(chance_.length({900, 0.6}))}, chance_.length({120, 0.6}));
            }
        }
    }

    void make_tool_loops() {
        constexpr int64_t kKinds = 5;
        constexpr size_t kAgents = 40;  // at a time
        struct Agent {
            RowIndex last = kNoRow;
            int64_t num_turns = 0;
        };
        std::vector<Agent> agents(kAgents);
        while (num_rows_ < options_.requests) {
            Agent& agent = agents[static_cast<size_t>(chance_.below(kAgents))];
            if (agent.num_turns == 0) {
                const Text instructions{static_cast<uint64_t>(chance_.below(kKinds)), 0, 4000};
                agent.last = ask(kNoRow, {instructions, own(chance_.length({500, 0.8}))}, chance_.length({120, 0.6}));
                agent.num_turns = chance_.geometric(25);
            } else {
                agent.last = ask(agent.last, {own(chance_.length({800, 1.0}))}, chance_.length({120, 0.6}),
                                 chance_.exponential(2));
                --agent.num_turns;
            }
        }
    }

    void make_templates() {
        constexpr int64_t kTemplates = 30;
        constexpr int64_t kCommon = 1500;
        while (num_rows_ < options_.requests) {
            const auto n = static_cast<uint64_t>(chance_.below(kTemplates));
            const auto variant = static_cast<uint64_t>(chance_.below(2));
            const int64_t rest = 700 + 37 * static_cast<int64_t>(n);
            ask(kNoRow, {{n, 0, kCommon}, {kTemplates + 2 * n + variant, 0, rest}, own(chance_.length({400, 0.8}))},
                chance_.length({80, 0.6}));
        }
    }

    ShapeOptions options_;
    Chance chance_;
    TraceBuilder builder_;
    RowOptions row_options_;
    int64_t num_rows_ = 0;
    double time_s_ = 0;
};

}  // namespace

Status validate(const ShapeOptions& options) {
    if (options.requests < 1 || options.requests > 10'000'000)
        return error("--requests: got {}, wanted 1 to 10000000", options.requests);
    if (!(options.rate >= 1e-6 && options.rate <= 1e9))
        return error("--rate: got {}, wanted 1e-6 to 1e9", options.rate);
    return {};
}

Trace generate_shape(const ShapeOptions& options) { return ShapeMaker(options).make(); }

}  // namespace verbatim::traces
