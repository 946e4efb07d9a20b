#include "kernels/bench/dvr.h"

#include <algorithm>
#include <cmath>

#include "kernels/executors/drafter_choice.h"
#include "kernels/median.h"
#include "reference/loader/model_choice.h"

namespace verbatim::bench {

using namespace executors;
namespace {

constexpr int64_t kLeastRequests = 50;  // so that two in a hundred are at least one request

// Rows in the order in which they run: the one without deterministic requests first, of a share policy exact first.
std::vector<DvrRow> dvr_rows(const DvrConfig& config) {
    std::vector<DvrRow> rows{{}};
    for (const int64_t percent : config.percents) {
        const auto add = [&](Policy policy, int64_t window) {
            rows.push_back(
                {.percent = static_cast<int32_t>(percent), .policy = policy, .window = static_cast<int32_t>(window)});
        };
        for (const Policy policy : config.policies) {
            if (policy == Policy::kExact) add(policy, 1);
            for (const int64_t window : config.windows) {
                if (policy == Policy::kVerify) add(policy, window);
            }
        }
    }
    return rows;
}

}  // namespace

double expected_tokens_per_window(double mismatch_rate, int32_t window) {
    return mismatch_rate == 0 ? window : (1 - std::pow(1 - mismatch_rate, window)) / mismatch_rate;
}

bool DvrReport::wrong() const { return std::ranges::any_of(rows, &DvrRow::wrong); }

Result<DvrReport> run_dvr(const BenchConfig& config, const DvrConfig& dvr) {
    ASSIGN_OR_RETURN(const reference::Model model,
                     reference::choose_model(config.model, config.seed, {.num_threads = config.num_threads}));
    DvrReport report{.config = config, .dvr = dvr, .rows = dvr_rows(dvr)};
    report.load.batch = static_cast<int32_t>(config.batches.front());
    report.load.num_requests = std::max<int64_t>(kLeastRequests, 3 * report.load.batch);
    report.load.prompt_tokens = config.contexts.front();
    report.load.output_tokens = dvr.output_tokens;
    if (report.load.prompt_tokens + dvr.output_tokens > model.config.max_position_embeddings) {
        return error("bench --dvr: {} + {} tokens are more than the model's {} positions", report.load.prompt_tokens,
                     dvr.output_tokens, model.config.max_position_embeddings);
    }
    int32_t longest = 1;
    for (const DvrRow& row : report.rows) longest = std::max(longest, row.window);
    PolicyRunner runner(model, {.num_threads = config.num_threads, .isa = config.isa}, report.load, longest,
                        config.seed);
    report.isa = cpu::isa_name(runner.isa());
    const int32_t mismatch_ppm = ppm_of(dvr.mismatch_rate);
    for (int64_t round = 0; round <= config.repeats; ++round) {  // the first one is not timed
        PolicyFigures none;
        std::vector<std::vector<TokenId>> answers;  // of the share at hand
        int32_t percent = 0;
        for (DvrRow& row : report.rows) {
            ASSIGN_OR_RETURN(PolicyFigures figures,
                             runner.run(row.policy, row.percent, row.window, dvr.verify_share, mismatch_ppm));
            if (row.percent == 0) none = figures;
            if (row.percent != percent) answers = figures.deterministic_answers;
            percent = row.percent;
            row.wrong |= figures.deterministic_answers != answers;
            if (round == 0) continue;
            row.tokens_per_s.push_back(figures.tokens_per_s);
            row.kept.push_back(figures.tokens_per_s / none.tokens_per_s);
            row.mean_ttft.push_back(figures.mean_ttft_s / none.mean_ttft_s);
            row.p99_ttft.push_back(figures.p99_ttft_s / none.p99_ttft_s);
            row.windows += figures.stats.windows;
            row.accepted_tokens += figures.stats.accepted_tokens;
        }
    }
    return report;
}

}  // namespace verbatim::bench
