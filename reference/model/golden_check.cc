#include "reference/model/golden_check.h"

#include <algorithm>
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
};

Computed compute_double(const Model& model, std::span<const int32_t> tokens) {
    DoubleOutput output = run_double_model(model, tokens);
    Computed computed{std::move(output.logits), std::move(output.hidden), {}, {}, true};
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

Computed compute_exact(const ReferenceModel& model, std::span<const int32_t> tokens) {
    const auto num_layers = static_cast<int32_t>(model.config().layers.size());
    Computed computed;
    computed.oldest_conv_input = false;
    const auto observer = [&](const WalkPoint& point, ConstFloatRows written) {
        const bool complete = point.op == WalkOp::kEmbed ||
                              (point.op == WalkOp::kLayer && point.layer + 1 < num_layers) ||
                              point.op == WalkOp::kFinalNorm;
        if (complete) computed.hidden.push_back(widen(written));
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

GoldenErrors errors_of(const ModelConfig& config, const Computed& computed, const GoldenPrompt& prompt, bool exact) {
    GoldenErrors errors;
    compare(computed.logits, prompt.logits, errors.logits);
    for (const auto& [layer, truth] : prompt.ssm) compare(computed.ssm.at(layer), truth, errors.states);
    for (const auto& [layer, truth] : prompt.conv)
        compare_conv(config.layers[static_cast<size_t>(layer)], computed, layer, truth, errors.states);
    for (const auto& [k, truth] : prompt.hidden) {
        ErrorMeter meter;
        compare(computed.hidden[static_cast<size_t>(k)], truth, meter);
        if (!within(meter, exact) && !errors.first_off_hidden) errors.first_off_hidden = k;
    }
    return errors;
}

bool all_within(const GoldenErrors& errors, bool exact) {
    return within(errors.logits, exact) && within(errors.states, exact) && !errors.first_off_hidden;
}

}  // namespace

void GoldenErrors::merge(const GoldenErrors& other) {
    logits.merge(other.logits);
    states.merge(other.states);
    if (other.first_off_hidden && (!first_off_hidden || *other.first_off_hidden < *first_off_hidden))
        first_off_hidden = other.first_off_hidden;
}

bool GoldenReport::passes() const { return all_within(double_model, false) && all_within(exact, true); }

GoldenReport check_golden(const Model& model, const std::vector<GoldenPrompt>& prompts) {
    const ReferenceModel exact_model(model.config, model.weights);
    GoldenReport report;
    for (const GoldenPrompt& prompt : prompts) {
        GoldenPromptReport& row = report.prompts.emplace_back();
        row.num_tokens = static_cast<int64_t>(prompt.tokens.size());
        row.double_model = errors_of(model.config, compute_double(model, prompt.tokens), prompt, false);
        row.exact = errors_of(model.config, compute_exact(exact_model, prompt.tokens), prompt, true);
        report.num_positions += row.num_tokens;
        report.double_model.merge(row.double_model);
        report.exact.merge(row.exact);
    }
    return report;
}

}  // namespace verbatim::reference
