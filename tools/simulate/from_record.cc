#include "tools/simulate/from_record.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "reference/loader/model_choice.h"
#include "reference/loader/stored_weights_of.h"
#include "reference/records/rerun.h"
#include "reference/records/run_again.h"
#include "reference/records/run_recorder.h"
#include "simulator/cost_executor.h"
#include "simulator/device_file.h"
#include "simulator/sharding.h"
#include "tools/program/cli.h"
#include "tools/program/recorded_run.h"
#include "tools/program/shape_choice.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;
using records::Record;
using records::StepRecord;

std::vector<const StepRecord*> steps_of(const Record& record) {
    std::vector<const StepRecord*> steps;
    for (const records::Entry& entry : record.entries) {
        if (const auto* step = std::get_if<StepRecord>(&entry)) steps.push_back(step);
    }
    return steps;
}

std::map<RequestId, std::vector<TokenId>> answers_of(const Record& record) {
    std::map<RequestId, std::vector<TokenId>> answers;
    for (const records::Entry& entry : record.entries) {
        if (const auto* call = std::get_if<Call>(&entry); call != nullptr && call->kind == CallKind::kSubmit)
            answers[call->id];
        const auto* reported = std::get_if<records::Reported>(&entry);
        if (reported == nullptr) continue;
        for (const records::ReportedToken& token : reported->tokens) answers[token.request].push_back(token.token);
    }
    return answers;
}

// Virtual times by request: the sum of the steps' times before an entry.
struct RequestTimes {
    int64_t submitted_ns = 0;
    int64_t first_ns = -1;
    int64_t last_ns = -1;
};
std::map<RequestId, RequestTimes> times_of(const Record& record) {
    std::map<RequestId, RequestTimes> times;
    int64_t now_ns = 0;
    for (const records::Entry& entry : record.entries) {
        if (const auto* call = std::get_if<Call>(&entry)) {
            if (call->kind == CallKind::kSubmit) times[call->id].submitted_ns = now_ns;
        } else if (const auto* step = std::get_if<StepRecord>(&entry)) {
            now_ns += step->elapsed_ns;
        } else {
            for (const records::ReportedToken& token : std::get<records::Reported>(entry).tokens) {
                RequestTimes& one = times[token.request];
                if (one.first_ns < 0) one.first_ns = now_ns;
                one.last_ns = now_ns;
            }
        }
    }
    return times;
}

double at_rank(const std::vector<std::pair<double, RequestId>>& sorted, double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * static_cast<double>(sorted.size())));
    return sorted[std::max<size_t>(rank, 1) - 1].first;
}

// `to`: the first or the last token.
RequestErrors errors_of(const std::map<RequestId, RequestTimes>& recorded,
                        const std::map<RequestId, RequestTimes>& simulated, int64_t RequestTimes::*to) {
    std::vector<std::pair<double, RequestId>> errors;
    std::vector<double> signs;
    for (const auto& [request, times] : recorded) {
        const auto other = simulated.find(request);
        const int64_t took_ns = times.*to - times.submitted_ns;
        if (times.*to < 0 || took_ns <= 0 || other == simulated.end() || other->second.*to < 0) continue;
        const auto error =
            static_cast<double>(other->second.*to - other->second.submitted_ns) / static_cast<double>(took_ns) - 1;
        errors.emplace_back(std::abs(error), request);
        signs.push_back(error);
    }
    if (errors.empty()) return {};
    std::ranges::sort(errors);
    std::ranges::sort(signs);
    return {.num_requests = std::ssize(errors),
            .median = at_rank(errors, 0.5),
            .p90 = at_rank(errors, 0.9),
            .worst = errors.back().first,
            .worst_request = errors.back().second,
            .of_median = signs[(signs.size() - 1) / 2]};
}

std::string batch_of(const StepRecord& step) {
    std::string text;
    for (const records::SequenceRecord& sequence : step.sequences) {
        text += fmt::format("{}request {} [{}, {})", text.empty() ? "" : ", ", index(sequence.request), sequence.begin,
                            sequence.end);
    }
    return text.empty() ? "nothing" : text;
}

bool same_plan(const StepRecord& a, const StepRecord& b) {
    return a.step == b.step && a.digest == b.digest && a.plan == b.plan;
}

std::string difference_at(const StepRecord& recorded, const StepRecord& simulated) {
    const std::string first = batch_of(recorded);
    const std::string second = batch_of(simulated);
    if (first != second) return fmt::format("step {}: recorded {}; simulated {}", recorded.step, first, second);
    return fmt::format("step {}: the same tokens of {}, with other blocks, rows or copies", recorded.step, first);
}

double seconds_of(const std::vector<const StepRecord*>& steps) {
    double seconds = 0;
    for (const StepRecord* step : steps) seconds += static_cast<double>(step->elapsed_ns) * 1e-9;
    return seconds;
}

// A cost model has one arithmetic, makes no heads from elsewhere, and does not fail.
Status check_repeatable(const Record& record, const std::string& path) {
    if (record.run.engine.scheduler.verify_tokens > 0 || !record.run.policy.empty())
        return error("{}: a run in two arithmetics (--policy): a cost model has one", path);
    for (const Call& call : records::calls_of(record)) {
        if (call.kind == CallKind::kImportHead || call.kind == CallKind::kReplaceExecutor ||
            call.kind == CallKind::kFailStep)
            return error("{}: before step {} it has the call {}, which a cost model cannot repeat", path, call.step,
                         name(call.kind));
    }
    return {};
}

// The cost of the record's model on the device, at one place for its whole life.
struct PricedModel {
    Device device;
    ModelShape model;
    std::unique_ptr<KernelTimes> kernels;
    std::unique_ptr<CostModel> cost;
};
Result<PricedModel> price_model(const std::string& model, const SimulateConfig& config, const std::string& device) {
    PricedModel priced;
    ASSIGN_OR_RETURN(priced.device, read_device(device));
    ASSIGN_OR_RETURN(const ModelShape shape, choose_shape(model));
    if (config.step_overhead_ns) {
        priced.device.step_overhead_ns = static_cast<double>(*config.step_overhead_ns);
        priced.device.sequence_overhead_ns = 0;
    }
    RETURN_IF_ERROR(check_parallelism(shape, priced.device, config.parallelism));
    priced.model = deployed_shape(config, shape);
    ASSIGN_OR_RETURN(priced.kernels, kernel_times(config.cost, priced.device));
    ASSIGN_OR_RETURN(priced.cost, cost_model(config, priced.model, priced.device, *priced.kernels));
    return priced;
}

Result<reference::ModelConfig> config_of(const std::string& model) {
    ASSIGN_OR_RETURN(auto quantised, reference::find_quantised_checkpoint(model));
    if (quantised) return std::move(quantised->config);
    return reference::choose_config(model);
}

// Makes the record's run again.
Result<Record> repeat(const Record& record, CostExecutor& executor) {
    ASSIGN_OR_RETURN(const EngineConfig config, records::config_under(record.run, {}));
    ASSIGN_OR_RETURN(const auto model, config_of(record.run.model));
    ASSIGN_OR_RETURN(const auto policy, policy_by_name(record.run.eviction, model));
    Record made;
    made.run = record.run;
    records::RecordKeeper keeper(made);
    const auto level =
        record.run.digests >= records::DigestLevel::kHeads ? records::DigestLevel::kHeads : records::DigestLevel::kNone;
    records::RunRecorder recorder(level, keeper);
    Engine engine(config, executor, *policy, *record.store, recorder);
    records::RecordedDrafter drafts(record);
    drafts.listen_to(engine);
    if (drafts.has_drafts()) engine.draft_with(&drafts, config.scheduler.max_window, /*paced_windows=*/false);
    const Status ran = records::rerun_as_recorded(record, engine, executor);
    recorder.finish(ran ? "" : ran.error().message);
    return made;
}

}  // namespace

void compare_runs(const Record& recorded, const Record& simulated, FromRecordReport& report) {
    const auto wanted = steps_of(recorded);
    const auto got = steps_of(simulated);
    report.num_steps = std::ssize(wanted);
    for (size_t i = 0; i < std::min(wanted.size(), got.size()); ++i) {
        if (same_plan(*wanted[i], *got[i])) {
            ++report.num_equal;
        } else if (report.first_difference.empty()) {
            report.first_difference = difference_at(*wanted[i], *got[i]);
        }
    }
    const auto failure_of = [](const Record& record) { return record.end ? record.end->failure : ""; };
    const std::string failure = failure_of(simulated);
    if (report.first_difference.empty() && (wanted.size() != got.size() || failure != failure_of(recorded))) {
        report.first_difference = fmt::format("{} steps were recorded, {} simulated", wanted.size(), got.size());
        if (!failure.empty()) report.first_difference += ": " + failure;
    }
    report.num_calls = std::ssize(records::calls_of(recorded));
    report.recorded_s = seconds_of(wanted);
    report.simulated_s = seconds_of(got);
    const auto recorded_times = times_of(recorded);
    const auto simulated_times = times_of(simulated);
    report.ttft = errors_of(recorded_times, simulated_times, &RequestTimes::first_ns);
    report.e2e = errors_of(recorded_times, simulated_times, &RequestTimes::last_ns);
}

Result<FromRecordReport> simulate_record(const std::string& path, StepTimesFrom times, const SimulateConfig& config,
                                         const std::string& device) {
    ASSIGN_OR_RETURN(const Record record, open_record(path, /*allow_cut=*/false));
    RETURN_IF_ERROR(check_repeatable(record, path));
    FromRecordReport report{.record = path, .times = times};
    std::optional<PricedModel> priced;
    if (times == StepTimesFrom::kModel) {
        ASSIGN_OR_RETURN(priced, price_model(record.run.model, config, device));
        report.priced_by = priced->device.name;
    }
    CostExecutor executor(priced ? priced->cost.get() : nullptr, record.run.vocab_size);
    for (auto& [request, answer] : answers_of(record)) executor.expect_answer(request, answer);
    std::vector<int64_t> elapsed_ns;  // by step
    if (times == StepTimesFrom::kRecord) {
        for (const StepRecord* step : steps_of(record)) {
            elapsed_ns.resize(static_cast<size_t>(step->step) + 1);
            elapsed_ns.back() = step->elapsed_ns;
        }
        executor.replay_times(elapsed_ns);
    }
    ASSIGN_OR_RETURN(const Record made, repeat(record, executor));
    compare_runs(record, made, report);
    return report;
}

ExitCode from_record_exit_code(const FromRecordReport& report) {
    if (!report.first_difference.empty()) return kExitDifference;
    const bool has_times = report.ttft.num_requests > 0 || report.e2e.num_requests > 0;
    const bool is_compared = report.num_steps > 0 && (report.times == StepTimesFrom::kRecord || has_times);
    return is_compared ? kExitOk : kExitNotAllCompared;
}

std::string from_record_table(const FromRecordReport& report) {
    const bool is_priced = report.times == StepTimesFrom::kModel;
    std::string text = fmt::format("{}: {} calls, {} steps\n\n", report.record, report.num_calls, report.num_steps);
    text += fmt::format("decisions: {} of {} steps have the recorded plan\n", report.num_equal, report.num_steps);
    if (!report.first_difference.empty()) text += "first difference: " + report.first_difference + "\n";
    if (report.num_steps == 0) text += "nothing was compared: the record has no step\n";
    if (report.recorded_s == 0) text += "no step has a recorded time: record with --record-times\n";
    text += fmt::format("all steps: {:.3f} s recorded, {:.3f} s {}\n", report.recorded_s, report.simulated_s,
                        is_priced ? "by the prices of " + report.priced_by : "replayed");
    if (!is_priced) return text;
    Table table({"error by request", "requests", "median", "P90", "worst", "of request", "signed median"});
    for (const auto& [name, errors] :
         {std::pair{"time to first token", report.ttft}, std::pair{"end to end", report.e2e}}) {
        if (errors.num_requests == 0) {
            table.add_row({name, "0", "-", "-", "-", "-", "-"});
            continue;
        }
        const auto percent = [](double value) { return fmt::format("{:.2f} %", 100 * value); };
        table.add_row({name, fmt::format("{}", errors.num_requests), percent(errors.median), percent(errors.p90),
                       percent(errors.worst), fmt::format("{}", index(errors.worst_request)),
                       fmt::format("{:+.2f} %", 100 * errors.of_median)});
    }
    return text + "\n" + table.to_string();
}

ordered_json from_record_json(const FromRecordReport& report) {
    const auto errors_json = [](const RequestErrors& errors) -> ordered_json {
        if (errors.num_requests == 0)
            return {{"requests", 0}, {"median", nullptr}, {"p90", nullptr}, {"worst", nullptr}};
        return {{"requests", errors.num_requests},
                {"median", errors.median},
                {"p90", errors.p90},
                {"worst", errors.worst},
                {"worst_request", index(errors.worst_request)},
                {"signed_median", errors.of_median}};
    };
    ordered_json json = {{"record", report.record},
                         {"times", report.times == StepTimesFrom::kModel ? "model" : "recorded"},
                         {"calls", report.num_calls},
                         {"steps", report.num_steps},
                         {"equal_plans", report.num_equal},
                         {"first_difference", report.first_difference.empty() ? ordered_json(nullptr)
                                                                              : ordered_json(report.first_difference)},
                         {"recorded_s", report.recorded_s},
                         {"simulated_s", report.simulated_s}};
    if (report.times == StepTimesFrom::kModel) {
        json["device"] = report.priced_by;
        json["errors"] = {{"ttft", errors_json(report.ttft)}, {"e2e", errors_json(report.e2e)}};
    }
    return json;
}

}  // namespace verbatim::tools
