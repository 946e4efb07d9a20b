// The reports of `verbatim bench --speculate`, `--dvr` and `--row-lag`: one way to decode against another.
#include <nlohmann/json.hpp>

#include "kernels/executors/drafter_choice.h"
#include "kernels/median.h"
#include "tools/bench/report.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

using namespace bench;
using namespace executors;
namespace {

std::string name_of(const SpeculateRow& row) {
    if (row.mismatch_rate < 0) return row.draft;
    return fmt::format("{}wrong {:g}", drafts_by_mtp(row.draft) ? "mtp, " : "", row.mismatch_rate);
}

// What all three begin with.
nlohmann::ordered_json begun_json(const BenchConfig& config, const std::string& isa) {
    return {{"model", config.model}, {"threads", config.num_threads}, {"isa", isa}};
}
std::string begun_line(const BenchConfig& config, const std::string& isa) {
    return fmt::format("{}, {} threads, {}", config.model, config.num_threads, isa);
}

}  // namespace

std::string speculate_table(const SpeculateReport& report) {
    Table table({"batch", "draft", "window", "tokens/s", "of plain", "accepted", "a window", "check"});
    for (const SpeculateRow& row : report.rows) {
        const auto share = [](int64_t part, int64_t whole) {
            return whole == 0 ? std::string("-")
                              : fmt::format("{:.2f}", static_cast<double>(part) / static_cast<double>(whole));
        };
        table.add_row({fmt::format("{}", row.batch), name_of(row),
                       row.window == 0 ? "auto" : fmt::format("{}", row.window),
                       fmt::format("{:.1f}", median(row.tokens_per_s)), fmt::format("{:.2f}", median(row.of_plain)),
                       share(row.accepted_tokens, row.drafted_tokens),
                       share(row.accepted_tokens + row.windows, row.windows), row.wrong ? "WRONG" : "same tokens"});
    }
    const std::string prompts = report.trace.empty() ? fmt::format("contexts of {}", report.config.contexts.front())
                                                     : "prompts of " + report.trace;
    return begun_line(report.config, report.isa) + fmt::format(", {}, seed {}\n", prompts, report.config.seed) +
           table.to_string();
}

nlohmann::ordered_json speculate_json(const SpeculateReport& report) {
    nlohmann::ordered_json json = begun_json(report.config, report.isa);
    if (report.trace.empty()) {
        json["context"] = report.config.contexts.front();
    } else {
        json["trace"] = report.trace;
    }
    json["seed"] = report.config.seed;
    json["rows"] = nlohmann::ordered_json::array();
    for (const SpeculateRow& row : report.rows) {
        nlohmann::ordered_json one;
        one["batch"] = row.batch;
        one["draft"] = row.draft;
        one["mismatch_rate"] =
            row.mismatch_rate < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(row.mismatch_rate);
        one["window"] = row.window == 0 ? nlohmann::ordered_json("auto") : nlohmann::ordered_json(row.window);
        one["tokens_per_s"] = median(row.tokens_per_s);
        one["of_plain"] = median(row.of_plain);
        one["windows"] = row.windows;
        one["drafted_tokens"] = row.drafted_tokens;
        one["accepted_tokens"] = row.accepted_tokens;
        one["identical"] = !row.wrong;
        json["rows"].push_back(std::move(one));
    }
    return json;
}

std::string dvr_table(const DvrReport& report) {
    Table table({"deterministic", "policy", "window", "tokens/s", "kept", "mean ttft", "p99 ttft", "tokens/window",
                 "by formula", "answers"});
    for (const DvrRow& row : report.rows) {
        const bool verifies = row.policy == Policy::kVerify;
        table.add_row(
            {fmt::format("{} %", row.percent), row.percent == 0 ? "none" : std::string(name(row.policy)),
             verifies ? std::to_string(row.window) : "", fmt::format("{:.1f}", median(row.tokens_per_s)),
             fmt::format("{:.2f}", median(row.kept)), fmt::format("{:.2f}", median(row.mean_ttft)),
             fmt::format("{:.2f}", median(row.p99_ttft)),
             verifies ? fmt::format("{:.2f}", row.tokens_per_window()) : "",
             verifies ? fmt::format("{:.2f}", expected_tokens_per_window(report.dvr.mismatch_rate, row.window)) : "",
             row.percent == 0 ? ""
             : row.wrong      ? "DIFFERENT"
                              : "identical"});
    }
    return begun_line(report.config, report.isa) +
           fmt::format(": {} requests, {} at a time, {} tokens each and {} of an answer, seed {}\n",
                       report.load.num_requests, report.load.batch, report.load.prompt_tokens,
                       report.load.output_tokens, report.config.seed) +
           table.to_string();
}

nlohmann::ordered_json dvr_json(const DvrReport& report) {
    nlohmann::ordered_json json = begun_json(report.config, report.isa);
    json["requests"] = report.load.num_requests;
    json["batch"] = report.load.batch;
    json["context"] = report.load.prompt_tokens;
    json["output"] = report.load.output_tokens;
    json["mismatch_rate"] = report.dvr.mismatch_rate;
    json["verify_share"] = report.dvr.verify_share;
    json["seed"] = report.config.seed;
    json["rows"] = nlohmann::ordered_json::array();
    for (const DvrRow& row : report.rows) {
        nlohmann::ordered_json one;
        const bool verifies = row.policy == Policy::kVerify;
        one["deterministic_percent"] = row.percent;
        one["policy"] = row.percent == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(name(row.policy));
        one["window"] = verifies ? nlohmann::ordered_json(row.window) : nlohmann::ordered_json();
        one["tokens_per_s"] = median(row.tokens_per_s);
        one["kept"] = median(row.kept);
        one["mean_ttft"] = median(row.mean_ttft);
        one["p99_ttft"] = median(row.p99_ttft);
        one["windows"] = row.windows;
        one["tokens_per_window"] =
            verifies ? nlohmann::ordered_json(row.tokens_per_window()) : nlohmann::ordered_json();
        one["identical"] = !row.wrong;
        json["rows"].push_back(std::move(one));
    }
    return json;
}

std::string row_lag_table(const RowLagReport& report) {
    Table table({"batch", "lag", "ms a step", "tokens/s", "of lag 0", "logits", ""});
    for (const RowLagRow& row : report.rows) {
        const double time = median(row.times_s);
        table.add_row({fmt::format("{}", row.batch), fmt::format("{}", row.lag), fmt::format("{:.2f}", 1e3 * time),
                       fmt::format("{:.1f}", static_cast<double>(row.batch) / time),
                       fmt::format("{:.2f}", median(row.speed)), row.wrong ? "DIFFERENT" : "identical",
                       row.lag == report.best(row.batch) ? "best" : ""});
    }
    return begun_line(report.config, report.isa) +
           fmt::format(", contexts of {}, seed {}\n", report.config.contexts.front(), report.config.seed) +
           table.to_string();
}

nlohmann::ordered_json row_lag_json(const RowLagReport& report) {
    nlohmann::ordered_json json = begun_json(report.config, report.isa);
    json["context"] = report.config.contexts.front();
    json["seed"] = report.config.seed;
    json["rows"] = nlohmann::ordered_json::array();
    for (const RowLagRow& row : report.rows) {
        json["rows"].push_back({{"batch", row.batch},
                                {"lag", row.lag},
                                {"step_ms", 1e3 * median(row.times_s)},
                                {"of_lag_0", median(row.speed)},
                                {"identical", !row.wrong},
                                {"best", row.lag == report.best(row.batch)}});
    }
    return json;
}

}  // namespace verbatim::tools
