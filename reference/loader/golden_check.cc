#include "reference/loader/golden_check.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "engine/base/check.h"
#include "reference/double_model.h"
#include "reference/reference_model.h"

namespace verbatim::reference {
namespace {

// What one model computed of what a golden file may ask, everything in the golden file's order.
struct Computed {
    std::vector<double> logits;                   // [num_tokens, vocab]
    std::vector<std::vector<double>> hidden;      // [K] of [num_tokens, hidden]
    std::map<int32_t, std::vector<double>> ssm;   // by layer: [n_heads, head_dim, d_state] or as a delta net's
    std::map<int32_t, std::vector<double>> conv;  // by layer: [conv_dim, d_conv]
    bool oldest_conv_input = true;                // false: conv's first column was not kept
    std::map<int32_t, DoubleChoice> choices;      // by layer
};

Computed compute_double(const Model& model, std::span<const int32_t> tokens) {
    DoubleOutput output = run_double_model(model, tokens);
    Computed computed{std::move(output.logits), std::move(output.hidden), {}, {}, true, {}};
    for (DoubleChoice& choice : output.choices) computed.choices[choice.layer] = std::move(choice);
    for (DoubleState& state : output.states) {
        computed.ssm[state.layer] = std::move(state.recurrent);
        computed.conv[state.layer] = std::move(state.conv);
    }
    return computed;
}

std::vector<double> widen(ConstFloatRows rows) {
    std::vector<double> values;
    for (int64_t r = 0; r < rows.num_rows; ++r) values.insert(values.end(), rows.row(r), rows.row(r) + rows.width);
    return values;
}

// [n_heads, d_state, head_dim] -> [n_heads, head_dim, d_state]
std::vector<double> transpose_ssm(const MambaConfig& mamba, std::span<const float> state) {
    std::vector<double> values;
    for (int64_t h = 0; h < mamba.n_heads; ++h)
        for (int64_t p = 0; p < mamba.head_dim; ++p)
            for (int64_t n = 0; n < mamba.d_state; ++n)
                values.push_back(state[static_cast<size_t>((h * mamba.d_state + n) * mamba.head_dim + p)]);
    return values;
}

// [d_conv − 1, conv_dim] -> [conv_dim, d_conv], the oldest column 0.
std::vector<double> transpose_conv(int64_t conv_dim, int64_t d_conv, std::span<const float> window) {
    std::vector<double> values;
    for (int64_t c = 0; c < conv_dim; ++c) {
        values.push_back(0.0);
        for (int64_t j = 0; j + 1 < d_conv; ++j) values.push_back(window[static_cast<size_t>(j * conv_dim + c)]);
    }
    return values;
}

// From the router's logits or its choice, whichever was written.
void note_choice(ReferenceModel& model, const WalkPoint& point, ConstFloatRows written, Computed& computed) {
    const MoeConfig& moe = *model.config().layers[static_cast<size_t>(point.layer)].moe;
    DoubleChoice& choice = computed.choices[point.layer];
    choice.layer = point.layer;
    if (point.op == WalkOp::kRoute) {
        const MoeWeights& weights = model.weights().layers[static_cast<size_t>(point.layer)].moe;
        choice.scores = choice_scores(moe, weights.choice_bias, widen(written));
    } else {
        for (const double id : widen(written.columns(0, moe.n_chosen)))
            choice.chosen.push_back(static_cast<int32_t>(id));
    }
}

Computed compute_exact(ReferenceModel& model, std::span<const int32_t> tokens) {
    const auto num_layers = static_cast<int32_t>(model.config().layers.size());
    Computed computed;
    computed.oldest_conv_input = false;
    const auto observer = [&](const WalkPoint& point, ConstFloatRows written) {
        const bool complete = point.op == WalkOp::kEmbed ||
                              (point.op == WalkOp::kLayer && point.layer + 1 < num_layers) ||
                              point.op == WalkOp::kFinalNorm;
        if (complete) computed.hidden.push_back(widen(written));
        if (point.op == WalkOp::kRoute || point.op == WalkOp::kChoose) note_choice(model, point, written, computed);
    };
    ReferenceSequence sequence(model);
    sequence.append(tokens, LogitRows::kAll, observer);
    CHECK_EQ(static_cast<int32_t>(computed.hidden.size()), num_layers + 1);
    computed.logits = widen(sequence.logits());
    for (int32_t i = 0; i < num_layers; ++i) {
        const LayerConfig& layer = model.config().layers[static_cast<size_t>(i)];
        const auto conv = sequence.conv_window(i);
        if (layer.mamba) {
            computed.ssm[i] = transpose_ssm(*layer.mamba, sequence.ssm_state(i));
            computed.conv[i] = transpose_conv(layer.mamba->conv_dim(), layer.mamba->d_conv, conv);
        }
        if (layer.delta) {
            const auto state = sequence.delta_state(i);
            computed.ssm[i].assign(state.begin(), state.end());
            computed.conv[i] = transpose_conv(layer.delta->conv_dim(), layer.delta->d_conv, conv);
        }
    }
    return computed;
}

void compare(std::span<const double> values, std::span<const double> truth, ErrorMeter& meter) {
    CHECK_EQ(values.size(), truth.size());
    for (size_t i = 0; i < truth.size(); ++i) meter.add(values[i], truth[i]);
}

// The first `num_rows` of `num_all` rows.
void compare_rows(std::span<const double> values, std::span<const double> truth, int64_t num_rows, size_t num_all,
                  ErrorMeter& meter) {
    CHECK_EQ(values.size(), truth.size());
    const size_t count = truth.size() / num_all * static_cast<size_t>(num_rows);
    compare(values.first(count), truth.first(count), meter);
}

// The row's scores into the meter; returns the greatest difference.
double compare_scores(std::span<const double> scores, std::span<const double> truth, ErrorMeter& meter) {
    double greatest = 0;
    for (size_t e = 0; e < truth.size(); ++e) {
        meter.add(scores[e], truth[e]);
        greatest = std::max(greatest, std::abs(scores[e] - truth[e]));
    }
    return greatest;
}

// Returns how many positions come before the first set that differs.
int64_t compare_choices(const ModelConfig& config, const Computed& computed, const Computed& true_scores,
                        const GoldenPrompt& prompt, bool exact, ChoiceErrors& errors) {
    const auto num_tokens = static_cast<int64_t>(prompt.tokens.size());
    for (int64_t t = 0; t < num_tokens; ++t) {
        for (const auto& [layer, ids] : prompt.experts) {
            const MoeConfig& moe = *config.layers[static_cast<size_t>(layer)].moe;
            const auto row = [&](const auto& all, int64_t width) {
                return std::span(all).subspan(static_cast<size_t>(t * width), static_cast<size_t>(width));
            };
            const DoubleChoice& choice = computed.choices.at(layer);
            const double off = compare_scores(row(choice.scores, moe.n_experts),
                                              row(true_scores.choices.at(layer).scores, moe.n_experts), errors.scores);
            ++errors.num_compared;
            if (std::ranges::equal(row(choice.chosen, moe.n_chosen), row(ids, moe.n_chosen))) continue;
            const double turned = (moe.n_groups > 1 ? 4 : 2) * (exact ? off : kDoubleTolerance);
            const bool close = prompt.margin.at(layer)[static_cast<size_t>(t)] <= turned;
            (close ? errors.num_close_calls : errors.num_wrong) += 1;
            return t;
        }
    }
    return num_tokens;
}

void compare_conv(const LayerConfig& of, const Computed& computed, int32_t layer, std::span<const double> truth,
                  ErrorMeter& meter) {
    const auto d_conv = static_cast<size_t>(of.delta ? of.delta->d_conv : of.mamba->d_conv);
    const std::vector<double>& values = computed.conv.at(layer);
    CHECK_EQ(values.size(), truth.size());
    for (size_t i = 0; i < truth.size(); ++i)
        if (computed.oldest_conv_input || i % d_conv != 0) meter.add(values[i], truth[i]);
}

bool within(const ErrorMeter& meter, bool exact) {
    return exact ? meter.rms_error() <= kExactTolerance : meter.max_error() <= kDoubleTolerance;
}

void compare_states(const ModelConfig& config, const Computed& computed, const GoldenPrompt& prompt,
                    ErrorMeter& meter) {
    for (const auto& [layer, truth] : prompt.ssm) compare(computed.ssm.at(layer), truth, meter);
    for (const auto& [layer, truth] : prompt.conv)
        compare_conv(config.layers[static_cast<size_t>(layer)], computed, layer, truth, meter);
}

GoldenErrors errors_of(const ModelConfig& config, const Computed& computed, const Computed& true_scores,
                       const GoldenPrompt& prompt, bool exact) {
    GoldenErrors errors;
    const size_t num_tokens = prompt.tokens.size();
    errors.num_positions = compare_choices(config, computed, true_scores, prompt, exact, errors.choices);
    compare_rows(computed.logits, prompt.logits, errors.num_positions, num_tokens, errors.logits);
    if (errors.num_positions == static_cast<int64_t>(num_tokens))
        compare_states(config, computed, prompt, errors.states);
    for (const auto& [k, truth] : prompt.hidden) {
        ErrorMeter meter;
        compare_rows(computed.hidden[static_cast<size_t>(k)], truth, errors.num_positions, num_tokens, meter);
        errors.num_hidden += meter.count() > 0 ? 1 : 0;
        if (!within(meter, exact) && !errors.first_off_hidden) errors.first_off_hidden = k;
    }
    return errors;
}

bool all_within(const GoldenErrors& errors, bool exact) {
    return within(errors.logits, exact) && within(errors.states, exact) && !errors.first_off_hidden &&
           within(errors.choices.scores, exact) && errors.choices.num_wrong == 0;
}

}  // namespace

void ChoiceErrors::merge(const ChoiceErrors& other) {
    scores.merge(other.scores);
    num_compared += other.num_compared;
    num_close_calls += other.num_close_calls;
    num_wrong += other.num_wrong;
}

void GoldenErrors::merge(const GoldenErrors& other) {
    logits.merge(other.logits);
    states.merge(other.states);
    choices.merge(other.choices);
    num_positions += other.num_positions;
    num_hidden += other.num_hidden;
    if (other.first_off_hidden && (!first_off_hidden || *other.first_off_hidden < *first_off_hidden))
        first_off_hidden = other.first_off_hidden;
}

bool GoldenReport::passes() const { return all_within(double_model, false) && all_within(exact, true); }

GoldenReport check_golden(const Model& model, const std::vector<GoldenPrompt>& prompts) {
    ReferenceModel exact_model(model.config, model.weights);
    GoldenReport report;
    for (const GoldenPrompt& prompt : prompts) {
        GoldenPromptReport& row = report.prompts.emplace_back();
        row.num_tokens = static_cast<int64_t>(prompt.tokens.size());
        const Computed double_model = compute_double(model, prompt.tokens);
        row.double_model = errors_of(model.config, double_model, double_model, prompt, false);
        row.exact = errors_of(model.config, compute_exact(exact_model, prompt.tokens), double_model, prompt, true);
        report.num_positions += row.num_tokens;
        report.double_model.merge(row.double_model);
        report.exact.merge(row.exact);
    }
    return report;
}

}  // namespace verbatim::reference
