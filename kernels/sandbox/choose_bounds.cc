#include "kernels/sandbox/choose_bounds.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>

#include "kernels/sandbox/error_bounds.h"
#include "kernels/sandbox/operation_parts.h"

namespace verbatim::sandbox {
namespace {

constexpr double kRounding = 0x1p-24;
constexpr double kLeastError = 0x1p-120;                              // what is smaller may be 0
constexpr double kNoBound = std::numeric_limits<double>::infinity();  // no bound

// Of exp(z) and sigmoid(z), relative: a fast exp scales its argument first.
double exp_error(double z) { return (10 + 1.5 * std::abs(z)) * kRounding; }

// A number with its error, absolute.
struct ScoreWithError {
    double value = 0, error = 0;
    size_t of = 0;  // the expert, or the group
    double logit = 0;

    // By (value descending, number ascending).
    [[nodiscard]] bool comes_before(const ScoreWithError& other) const {
        return value > other.value || (value == other.value && of < other.of);
    }
    // Whether errors may change which of both comes first. Of equal logits it is the one with the lower number.
    [[nodiscard]] bool is_close_to(const ScoreWithError& other) const {
        const bool is_equal = value == other.value && error == other.error && logit == other.logit;
        return !is_equal && std::abs(value - other.value) <= kTimesAnalysis * (error + other.error);
    }
};

void put_in_order(std::vector<ScoreWithError>& scores) {
    std::ranges::sort(scores, [](const ScoreWithError& a, const ScoreWithError& b) { return a.comes_before(b); });
}

// exp(x - greatest) / sum, each with its error.
std::vector<ScoreWithError> softmax_of(std::span<const double> x) {
    const double greatest = *std::ranges::max_element(x);
    double sum = 0, sum_error = 0;
    for (const double one : x) sum += std::exp(one - greatest);
    for (const double one : x) sum_error += std::exp(one - greatest) / sum * exp_error(one - greatest);
    sum_error += static_cast<double>(x.size() + 2) * kRounding;
    std::vector<ScoreWithError> scores;
    for (size_t i = 0; i < x.size(); ++i) {
        const double value = std::exp(x[i] - greatest) / sum;
        scores.push_back({value, value * (exp_error(x[i] - greatest) + sum_error) + kLeastError, i, x[i]});
    }
    return scores;
}

class ChosenRow {
public:
    ChosenRow(const verbatim_choose& op, int64_t row) : op_(op) {
        for (int64_t e = 0; e < op.n_experts; ++e) {
            logits_.push_back(row_of(op.logits, row)[e]);
            is_finite_ = is_finite_ && std::isfinite(logits_.back());
        }
        if (!is_finite_) return;
        score();
        chosen_ = first_of(in_play(), static_cast<size_t>(op.n_chosen));
        std::ranges::sort(chosen_, {}, &ScoreWithError::of);
        weigh();
    }

    // Rows with NaN and infinities have no model; of softmax over all, every weight is then NaN.
    void add_to(std::vector<double>& model, std::vector<double>& bounds) const {
        const auto count = static_cast<size_t>(op_.n_chosen);
        const double weight = op_.router == VERBATIM_SOFTMAX_ALL ? std::nan("") : 0;
        for (size_t i = 0; i < 2 * count; ++i) {
            const bool is_id = i < count;
            const ScoreWithError one = !is_finite_ ? ScoreWithError{is_id ? 0 : weight, kNoBound, 0}
                                       : is_id     ? ScoreWithError{static_cast<double>(chosen_[i].of), 0, 0}
                                                   : weights_[i - count];
            model.push_back(one.value);
            bounds.push_back(is_close_ ? kNoBound : one.error);
        }
    }

private:
    void score() {
        if (op_.router == VERBATIM_SOFTMAX_ALL) scores_ = softmax_of(logits_);
        for (size_t e = 0; e < logits_.size() && op_.router != VERBATIM_SOFTMAX_ALL; ++e) {
            const double x = logits_[e], open = 1 / (1 + std::exp(-x));
            const double error = open * (exp_error(x) + 2 * kRounding) + kLeastError;
            scores_.push_back(op_.router == VERBATIM_SIGMOID_BIAS ? ScoreWithError{open, error, e, x}
                                                                  : ScoreWithError{x, 0, e, x});
        }
        choice_ = scores_;
        for (size_t e = 0; e < choice_.size() && op_.router == VERBATIM_SIGMOID_BIAS; ++e) {
            choice_[e].value += op_.choice_bias[e];
            choice_[e].error += kRounding * std::abs(choice_[e].value);
        }
    }

    // The first of the scores; notes whether errors may change which these are.
    std::vector<ScoreWithError> first_of(std::vector<ScoreWithError> all, size_t count) {
        put_in_order(all);
        for (size_t i = 0; i < count; ++i) {
            for (size_t j = count; j < all.size(); ++j) is_close_ = is_close_ || all[i].is_close_to(all[j]);
        }
        all.resize(count);
        return all;
    }

    std::vector<ScoreWithError> in_play() {
        const auto groups = static_cast<size_t>(op_.n_groups);
        if (groups == 1) return choice_;
        const size_t size = choice_.size() / groups;
        std::vector<ScoreWithError> of_groups;
        for (size_t g = 0; g < groups; ++g) {
            const auto begin = choice_.begin() + static_cast<ptrdiff_t>(g * size);
            std::vector<ScoreWithError> members(begin, begin + static_cast<ptrdiff_t>(size));
            put_in_order(members);
            const double sum = members[0].value + members[1].value;
            // Of two that are close it does not matter which one is added.
            double error = kRounding * std::abs(sum);
            for (const ScoreWithError& one : members)
                error = std::max(error, 2 * one.error + kRounding * std::abs(sum));
            of_groups.push_back({sum, error, g});
        }
        std::vector<ScoreWithError> experts;
        for (const ScoreWithError& group : first_of(of_groups, static_cast<size_t>(op_.n_chosen_groups))) {
            for (size_t i = 0; i < size; ++i) experts.push_back(choice_[group.of * size + i]);
        }
        return experts;
    }

    void weigh() {
        std::vector<double> of_chosen;
        for (const ScoreWithError& one : chosen_) of_chosen.push_back(scores_[one.of].value);
        if (op_.router == VERBATIM_SOFTMAX_CHOSEN) weights_ = softmax_of(of_chosen);
        for (const ScoreWithError& one : chosen_) {
            if (op_.router != VERBATIM_SOFTMAX_CHOSEN) weights_.push_back(scores_[one.of]);
        }
        const bool divides = op_.normalize != 0;
        double total = op_.sum_epsilon, error = 0;
        for (const ScoreWithError& weight : weights_) {
            total += weight.value;
            error += weight.error;
        }
        const double relative = divides ? error / total + static_cast<double>(weights_.size() + 2) * kRounding : 0;
        for (ScoreWithError& weight : weights_) {
            const double by = (divides ? 1 / total : 1) * op_.scale;
            weight.error = (weight.error + weight.value * (relative + 2 * kRounding)) * std::abs(by);
            weight.value *= by;
        }
    }

    const verbatim_choose& op_;
    std::vector<double> logits_;
    bool is_finite_ = true;
    bool is_close_ = false;
    std::vector<ScoreWithError> scores_, choice_, chosen_, weights_;
};

struct ChosenBounds {
    std::vector<double> model, bounds;
};
ChosenBounds both_of(const verbatim_choose& op) {
    ChosenBounds both;
    for (int64_t row = 0; row < op.logits.num_rows; ++row) ChosenRow(op, row).add_to(both.model, both.bounds);
    return both;
}

}  // namespace

std::vector<std::vector<double>> choose_doubles(const AbiArgs& abi) { return {both_of(abi.choose).model}; }

std::vector<std::vector<double>> choose_bounds(const AbiArgs& abi, const std::vector<std::vector<double>>&) {
    return {both_of(abi.choose).bounds};
}

}  // namespace verbatim::sandbox
