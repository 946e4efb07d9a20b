// `verbatim plan`: its objectives, its search, and its answers compared with those of an exhaustive search.
#include "simulator/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "engine/base/prng.h"
#include "reference/loader/model_choice.h"
#include "simulator/device_file.h"
#include "simulator/model_shape.h"
#include "simulator/plan_search.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"
#include "traces/read.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const char* const kPlannedTrace = VERBATIM_SOURCE_DIR "/traces/data/mooncake_conversation_trace.jsonl.gz";

TEST(Objectives, ArePercentilesOfLatencies) {
    const auto parsed = parse_objectives("p99:ttft=2s,p99.9:tpot=50ms,mean:e2e=1500us");
    ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
    EXPECT_EQ(*parsed, (std::vector<Objective>{{Latency::kTtft, 99, 2'000'000'000},
                                               {Latency::kTpot, 99.9, 50'000'000},
                                               {Latency::kE2e, 0, 1'500'000}}));
    EXPECT_EQ(name(parsed->at(1)), "p99.9:tpot");
    EXPECT_EQ(name(parsed->at(2)), "mean:e2e");
}

TEST(Objectives, WhatIsNoneIsNamed) {
    for (const char* wrong :
         {"ttft=2s", "p99:ttft", "p99:ttft=2", "p99:ttft=-2s", "p99:ttft=0s", "p0:ttft=2s", "p101:ttft=2s",
          "q99:ttft=2s", "p99:itl=2s", "p99:ttft=2s,,p50:tpot=1s", "p99=2s:ttft", "pnan:ttft=2s", "mean99:ttft=2s"}) {
        const auto parsed = parse_objectives(wrong);
        ASSERT_FALSE(parsed.has_value()) << wrong;
        EXPECT_THAT(parsed.error().message, HasSubstr("wanted objectives such as p99:ttft=2s")) << wrong;
    }
    EXPECT_THAT(parse_objectives("").error().message, HasSubstr("got nothing"));
    EXPECT_THAT(parse_objectives("p99:ttft=2s,p99:ttft=3s").error().message, HasSubstr("p99:ttft is there twice"));
}

TEST(Objectives, AreMeasuredAtTheirRankAmongAnsweredRequests) {
    std::vector<RowTimes> rows;
    for (const int64_t ms : {50, 10, 40, 20, 30}) {
        rows.push_back({.due_ns = 0,
                        .first_token_ns = ms * 1'000'000,
                        .end_ns = 100'000'000,
                        .prompt_tokens = ms,
                        .output_tokens = 1,
                        .outcome = RowOutcome::kServed});
    }
    rows.push_back({.due_ns = 0, .outcome = RowOutcome::kRejected});
    const auto ttft = [&](double percentile) { return measure({Latency::kTtft, percentile, 1}, rows); };
    EXPECT_EQ(ttft(100).value_ns, 50'000'000);
    EXPECT_EQ(ttft(100).row, 0u);
    EXPECT_EQ(ttft(80).value_ns, 40'000'000);
    EXPECT_EQ(ttft(80.1).value_ns, 50'000'000);
    EXPECT_EQ(ttft(1).value_ns, 10'000'000);
    EXPECT_EQ(ttft(1).prompt_tokens, 10);
    EXPECT_EQ(ttft(0).value_ns, 30'000'000) << "the mean";
    const Measured none = measure({Latency::kTpot, 99, 1}, rows);
    EXPECT_FALSE(none.has_value);
    EXPECT_TRUE(none.keeps({Latency::kTpot, 99, 1}));
}

TEST(Search, FindsWhatAnExhaustiveSearchFinds) {
    for (int64_t most = 1; most <= 40; ++most) {
        for (int64_t least = 1; least <= most + 1; ++least) {
            int asked = 0;
            const auto found = fewest(1, most, [&](int64_t count) -> Result<bool> {
                ++asked;
                EXPECT_TRUE(count >= 1 && count <= most);
                return count >= least;
            });
            ASSERT_TRUE(found.has_value());
            EXPECT_EQ(*found, least <= most ? std::optional(least) : std::nullopt) << least << " of " << most;
            EXPECT_LE(asked, 13);
        }
    }
}

TEST(Search, FindsABorderWhereTheAnswersAreMixed) {
    Prng prng(7);
    for (int round = 0; round < 1000; ++round) {
        std::vector<bool> answers(33);
        for (size_t i = 1; i < answers.size(); ++i) answers[i] = prng.below(3) == 0;
        const auto found =
            fewest(1, 32, [&](int64_t count) -> Result<bool> { return bool{answers[static_cast<size_t>(count)]}; });
        if (!*found) continue;
        EXPECT_TRUE(answers[static_cast<size_t>(**found)]);
        EXPECT_FALSE(answers[static_cast<size_t>(**found) - 1]);
    }
}

TEST(Search, FindsTheHighestRateToWithinAStep) {
    for (const double limit : {0.4, 0.5, 0.9, 1.0, 3.3, 7.9, 8.0, 20.0}) {
        double least_refused = 1e9;
        const auto found = highest(0.5, 8, [&](double rate) -> Result<bool> {
            if (rate > limit) least_refused = std::min(least_refused, rate);
            return rate <= limit;
        });
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->has_value(), limit >= 0.5);
        if (!*found) continue;
        EXPECT_LE(**found, limit);
        if (limit >= 8) EXPECT_EQ(**found, 8);
        if (limit < 8) EXPECT_LE(least_refused / **found, kRateStep);
    }
    EXPECT_FALSE(highest(1, 2, [](double) -> Result<bool> { return error("broken"); }).has_value());
}

struct Inputs {
    ModelShape model;
    Device device;
    traces::Trace trace;
};

Inputs small_inputs() {
    Inputs inputs;
    inputs.model = shape_of("granite-4.0-h-micro", *reference::choose_config("granite-4.0-h-micro"));
    inputs.device = *read_device("h100_sxm");
    inputs.trace = traces::read_trace(kPlannedTrace, {.limit = 150})->trace;
    return inputs;
}

// At this multiple of Mooncake's rate some replicas are too few.
PlanConfig small_plan(const std::string& slo) {
    PlanConfig config;
    config.objectives = *parse_objectives(slo);
    config.max_replicas = 8;
    config.rate_scale = 20;
    return config;
}

const PlanCandidate kSmallCandidate{"h100_sxm", 8192, 256};

// By trying every number from one on; 0: none keeps the objectives.
int32_t fewest_by_hand(const PlanConfig& config, const Inputs& inputs) {
    for (int32_t n = 1; n <= config.max_replicas; ++n) {
        const auto trial =
            try_plan(config, inputs.model, kSmallCandidate, inputs.device, n, config.rate_scale, inputs.trace);
        EXPECT_TRUE(trial.has_value()) << trial.error().message;
        if (!trial || trial->keeps) return n;
    }
    return 0;
}

// The fewest replicas where kernels take so many times as long.
int32_t fewest_by_hand(PlanConfig config, const Inputs& inputs, const KernelFactors& factors) {
    config.simulate.factors = factors;
    return fewest_by_hand(config, inputs);
}

int32_t replicas_of(const std::optional<Trial>& trial) { return trial ? trial->num_replicas : 0; }

TEST(Plan, BoundsAreTheFewestReplicasWithTheFastestAndTheSlowestKernels) {
    const Inputs inputs = small_inputs();
    PlanConfig config = small_plan("p90:ttft=20s,p90:tpot=1s");
    const auto plan_with = [&](int32_t num_threads, const Device& device) {
        config.num_threads = num_threads;
        return *make_plan(config, inputs.model, {kSmallCandidate}, {{"h100_sxm", device}}, "m", inputs.trace);
    };
    // Wide enough that one more replica, or one less, is needed.
    Inputs uncertain = inputs;
    uncertain.device.roofline_fast = 0.3;
    uncertain.device.roofline_slow = 3;
    const Plan plan = plan_with(1, uncertain.device);
    ASSERT_TRUE(plan.bounds.has_value());
    const auto& [fast, slow] = *plan.bounds;
    EXPECT_EQ(fast.factors.rooflines, 0.3);
    EXPECT_EQ(slow.factors.rooflines, 3);
    EXPECT_EQ(replicas_of(fast.best), fewest_by_hand(config, uncertain, fast.factors));
    EXPECT_EQ(replicas_of(slow.best), fewest_by_hand(config, uncertain, slow.factors));
    const int32_t answer = plan.candidates[0].best->num_replicas;
    EXPECT_LT(replicas_of(fast.best), replicas_of(slow.best)) << "around " << answer;
    EXPECT_EQ(slow.answer.num_replicas, answer);
    EXPECT_TRUE(fast.answer.keeps);
    EXPECT_EQ(slow.answer.keeps, replicas_of(slow.best) == answer);
    const Plan threaded = plan_with(2, uncertain.device);
    EXPECT_EQ(replicas_of(threaded.bounds->fast.best), replicas_of(fast.best));
    EXPECT_EQ(replicas_of(threaded.bounds->slow.best), replicas_of(slow.best));
    Device certain = inputs.device;
    certain.roofline_fast = certain.roofline_slow = 1;
    EXPECT_FALSE(plan_with(1, certain).bounds.has_value()) << "no price has bounds";
}

TEST(Plan, FindsTheFewestReplicasThatAnExhaustiveSearchFinds) {
    const Inputs inputs = small_inputs();
    int differing = 0;
    for (const char* slo : {"p90:ttft=40s", "p90:ttft=20s,p90:tpot=1s", "p50:ttft=6s"}) {
        SCOPED_TRACE(slo);
        const PlanConfig config = small_plan(slo);
        const int32_t least = fewest_by_hand(config, inputs);
        const auto plan =
            make_plan(config, inputs.model, {kSmallCandidate}, {{"h100_sxm", inputs.device}}, "mooncake", inputs.trace);
        ASSERT_TRUE(plan.has_value()) << plan.error().message;
        const CandidatePlan& found = plan->candidates.at(0);
        ASSERT_EQ(found.best.has_value(), least > 0);
        if (!found.best) continue;
        EXPECT_EQ(found.best->num_replicas, least);
        EXPECT_TRUE(found.best->keeps);
        EXPECT_EQ(found.worse.has_value(), least > 1);
        if (found.worse) EXPECT_FALSE(found.worse->keeps);
        differing |= 1 << least;
    }
    EXPECT_NE(differing & ~2, 0) << "some need more than one replica";
}

TEST(Plan, OneConfigurationMoreOrAnotherThreadChangesNoOther) {
    const Inputs inputs = small_inputs();
    PlanConfig config = small_plan("p90:ttft=20s");
    const std::vector<PlanCandidate> candidates = {
        {"h100_sxm", 2048, 256}, {"h100_sxm", 8192, 256}, {"h100_sxm", 8192, 4}};
    const std::map<std::string, Device> devices = {{"h100_sxm", inputs.device}};
    const auto once = make_plan(config, inputs.model, candidates, devices, "m", inputs.trace);
    config.num_threads = 3;
    const auto threaded = make_plan(config, inputs.model, candidates, devices, "m", inputs.trace);
    ASSERT_TRUE(once.has_value() && threaded.has_value());
    EXPECT_EQ(once->answer, threaded->answer);
    EXPECT_EQ(once->runner_up, threaded->runner_up);
    for (size_t i = 0; i < candidates.size(); ++i) {
        ASSERT_EQ(once->candidates[i].best.has_value(), threaded->candidates[i].best.has_value());
        if (!once->candidates[i].best) continue;
        EXPECT_EQ(once->candidates[i].best->num_replicas, threaded->candidates[i].best->num_replicas);
        EXPECT_EQ(once->candidates[i].best->measured[0].value_ns, threaded->candidates[i].best->measured[0].value_ns);
        if (once->answer) {
            EXPECT_LE(once->candidates[*once->answer].best->num_replicas, once->candidates[i].best->num_replicas);
        }
    }
}

Outcome run_plan(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"plan", "--trace", kPlannedTrace, "--limit", "150"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_verbatim(arguments);
}

// Of the same rows, as JSON.
Outcome simulate_planned(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"simulate", "--trace",     kPlannedTrace, "--limit",
                                          "150",      "--no-bounds", "--format",    "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_verbatim(arguments);
}

TEST(PlanCommand, SaysHowManyGpusWhatBindsAndWhatTheyCost) {
    const std::vector<std::string> flags = {
        "--slo", "p90:ttft=20s,p99:e2e=1000s", "--rate-scale", "20", "--price", "3.6", "--chunk", "2048,8192"};
    std::vector<std::string> as_json = flags;
    as_json.insert(as_json.end(), {"--format", "json"});
    const Outcome outcome = run_plan(as_json);
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json plan = json::parse(outcome.out);
    EXPECT_EQ(plan["question"], "fewest_gpus");
    const json& best = plan["answer"]["best"];
    EXPECT_TRUE(best["keeps"]);
    EXPECT_LE(best["values_s"]["p90:ttft"].get<double>(), 20);
    EXPECT_FALSE(plan["answer"]["worse"]["keeps"]);
    EXPECT_THAT(plan["answer"]["explanation"], HasSubstr("that binds"));
    EXPECT_EQ(plan["candidates"].size(), 2u);
    EXPECT_FALSE(plan["runner_up"].is_null());
    // An hour of a GPU at 700 W is 2.52 MJ: a dollar of it 0.7 MJ.
    EXPECT_NEAR(best["joules_per_token"].get<double>() / best["dollars_per_million_tokens"].get<double>(),
                700 * 3600 / 3.6 / 1e6, 1e-9);
    const Outcome table = run_plan(flags);
    ASSERT_EQ(table.exit_code, kExitOk) << table.err;
    for (const std::string& text :
         {fmt::format("the fewest GPUs: {}", best["gpus"].get<int>()), std::string("runner-up"),
          plan["answer"]["explanation"].get<std::string>(), std::string("per million tokens"),
          fmt::format("bounds: with the fastest kernels {} GPU", plan["bounds"]["fast"]["best"]["gpus"].get<int>())}) {
        EXPECT_THAT(table.out, HasSubstr(text));
    }
    as_json.emplace_back("--no-bounds");
    const json unbounded = json::parse(run_plan(as_json).out);
    EXPECT_TRUE(unbounded["bounds"].is_null());
    EXPECT_EQ(unbounded["answer"], plan["answer"]);
}

// Turns of a CSV that names no `wait_for` are sent at their times, and find theirs busy: what is answered without them
// is no plan for the trace.
TEST(PlanCommand, IsWrongWhereRowsEndUnexpectedly) {
    tests::ScratchFolder files;
    std::string text = "# verbatim-trace 1\nrow,event,conversation,arrival_ns,from,tokens,max_tokens\n";
    for (int i = 0; i < 6; ++i) text += fmt::format("r{},history,c{},{},,{}:0+3000,200\n", i, i % 2, i * 1000, i);
    const std::string busy = files.write("busy.csv", text);
    std::vector<std::string> flags = {"plan", "--trace", busy, "--slo", "p99:ttft=5s", "--no-bounds"};
    const Outcome table = run_verbatim(flags);
    EXPECT_EQ(table.exit_code, kExitDifference);
    EXPECT_THAT(table.out, HasSubstr("2 of 6"));
    EXPECT_THAT(table.err, AllOf(HasSubstr("4 rows of the trace ended in another way"), HasSubstr("got busy")));
    flags.insert(flags.end(), {"--format", "json"});
    const json best = json::parse(run_verbatim(flags).out)["answer"]["best"];
    EXPECT_EQ(best["requests"], 6);
    EXPECT_EQ(best["answered"], 2);
    EXPECT_EQ(best["unexpected"].size(), 4u);
    EXPECT_EQ(best["client_wait_s"]["p99"], 0);
}

TEST(PlanCommand, SaysWhatNoNumberOfReplicasImproves) {
    const Outcome outcome = run_plan({"--slo", "p100:ttft=50ms", "--max-replicas", "4"});
    EXPECT_EQ(outcome.exit_code, kExitDifference);
    EXPECT_THAT(outcome.out, HasSubstr("the fewest GPUs: none of what was asked"));
    EXPECT_TRUE(std::regex_search(
        outcome.out, std::regex("no number of replicas does: one prompt of [0-9]+ tokens.* alone takes .* s "
                                "\\(p100:ttft, wanted 50 ms\\)")))
        << outcome.out;
}

TEST(Objectives, ARequestIsHeldAgainstTheLongestLimitOfEachLatency) {
    const Slo slo = slo_of({{Latency::kTtft, 50, 100}, {Latency::kTtft, 99, 2000}, {Latency::kTpot, 0, 50}});
    EXPECT_EQ(slo.ttft_ns, 2000);
    EXPECT_EQ(slo.tpot_ns, 50);
    EXPECT_FALSE(slo.e2e_ns.has_value());
}

// Every trial is there, with the goodput of the same simulation.
TEST(PlanCommand, TellsWhatItTried) {
    const Outcome outcome =
        run_plan({"--slo", "p50:ttft=2s,p90:ttft=10s,p99:tpot=40ms", "--max-replicas", "8", "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json answer = json::parse(outcome.out)["answer"];
    ASSERT_EQ(answer["tried"].size(), answer["trials"]);
    int before = 0;
    for (const json& trial : answer["tried"]) {
        EXPECT_GT(trial["replicas"], before);
        before = trial["replicas"];
        const Outcome simulated =
            simulate_planned({"--slo", "ttft=10s,tpot=40ms", "--replicas", trial["replicas"].dump()});
        ASSERT_EQ(simulated.exit_code, kExitOk) << simulated.err;
        const json whole = json::parse(simulated.out);
        const json& goodput = whole["details"]["goodput"];
        EXPECT_EQ(trial["goodput"]["requests"], goodput["requests"]);
        EXPECT_NEAR(trial["goodput"]["requests_per_s"].get<double>(), goodput["requests_per_s"].get<double>(), 1e-9);
        EXPECT_EQ(trial["ttft_s"]["p99"], whole["ttft_s"]["p99"]);
        EXPECT_EQ(trial["tpot_s"]["p50"], whole["tpot_s"]["p50"]);
    }
}

TEST(PlanCommand, APageAnswersTheQuestion) {
    const tests::ScratchFolder files;
    const auto page_of = [&](std::vector<std::string> flags, int exit_code) {
        flags.insert(flags.end(), {"--html", files.path("page.html")});
        const Outcome outcome = run_plan(flags);
        EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
        return file_bytes(files.path("page.html"));
    };
    const std::string page = page_of({"--slo", "p90:ttft=10s,p99:tpot=1s", "--chunk", "2048,8192"}, kExitOk);
    for (const char* text :
         {"<h1>How many GPUs does mooncake_conversation_trace.jsonl.gz need with granite-4.0-h-micro, for p90:ttft of "
          "at most 10 s and p99:tpot of at most 1 s?</h1>",
          "<dt>GPUs</dt>", "goodput over GPUs", "time to first token over GPUs", "time per token over GPUs",
          "answer, p90</text>", "answer, p50</text>", "runner-up, p99</text>", "p90:ttft: at most 10 s</text>",
          "class=\"limit\"", "one replica is enough", "of these within all limits"}) {
        EXPECT_THAT(page, HasSubstr(text));
    }
    EXPECT_THAT(page, ::testing::Not(HasSubstr("src="))) << "needs no network";
    EXPECT_THAT(page, ::testing::Not(HasSubstr("nan")));
    const std::string none = page_of({"--slo", "p100:ttft=50ms", "--max-replicas", "4"}, kExitDifference);
    EXPECT_THAT(none, HasSubstr("<dd>none of what was asked</dd>"));
    EXPECT_THAT(none, HasSubstr("no number of replicas does"));
    EXPECT_THAT(none, HasSubstr("time to first token over GPUs"));
    const std::string rates =
        page_of({"--slo", "p90:ttft=10s", "--rate-scale", "1..64", "--max-replicas", "2"}, kExitOk);
    EXPECT_THAT(rates, HasSubstr("<h1>At how many times its rate do 2 replicas of granite-4.0-h-micro serve"));
    EXPECT_THAT(rates, HasSubstr("time to first token over times the trace's rate"));
}

TEST(PlanCommand, FindsTheHighestRate) {
    const Outcome outcome =
        run_plan({"--slo", "p90:ttft=10s", "--rate-scale", "1..64", "--max-replicas", "2", "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json plan = json::parse(outcome.out);
    EXPECT_EQ(plan["question"], "highest_rate");
    const json& answer = plan["answer"];
    EXPECT_EQ(answer["best"]["gpus"], 2);
    ASSERT_FALSE(answer["worse"].is_null());
    EXPECT_LE(answer["worse"]["rate_scale"].get<double>(), 1.011 * answer["best"]["rate_scale"].get<double>());
    EXPECT_GT(answer["worse"]["values_s"]["p90:ttft"].get<double>(), 10);
}

// A GPU of 8 GB holds the weights in four bits alone.
TEST(PlanCommand, WeightsOfFewerBytesAreCandidates) {
    const std::vector<std::string> flags = {"--slo", "p90:ttft=100s", "--weights", "bf16,int4", "--memory", "9GB"};
    std::vector<std::string> as_json = flags;
    as_json.insert(as_json.end(), {"--format", "json"});
    const Outcome outcome = run_plan(as_json);
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json plan = json::parse(outcome.out);
    ASSERT_EQ(plan["candidates"].size(), 2u);
    EXPECT_EQ(plan["candidates"][0]["weights"], "bf16");
    EXPECT_TRUE(plan["candidates"][0]["best"].is_null());
    EXPECT_THAT(plan["candidates"][0]["explanation"], HasSubstr("--memory: of"));
    EXPECT_EQ(plan["answer"]["weights"], "int4");
    EXPECT_THAT(run_plan(flags).out, HasSubstr("h100_sxm, bf16 weights, 8192 tokens a step"));
    EXPECT_EQ(run_plan({"--slo", "p90:ttft=100s", "--weights", "q4_k"}).exit_code, kExitBadUsage);
}

// Each candidate has the times of verbatim simulate with its flags.
TEST(PlanCommand, DeploymentsAreCandidatesWithTheTimesOfTheirSimulations) {
    const Outcome outcome =
        run_plan({"--slo", "p99:ttft=100s", "--device", "b200_sxm", "--tp", "1,2", "--kv-dtype", "bf16,fp8",
                  "--weights", "fp8,nvfp4", "--route", "prefix-aware", "--format", "json"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json plan = json::parse(outcome.out);
    ASSERT_EQ(plan["candidates"].size(), 8u);
    std::set<double> times;
    for (const json& candidate : plan["candidates"]) {
        ASSERT_FALSE(candidate["best"].is_null()) << candidate;
        EXPECT_EQ(candidate["best"]["gpus"], candidate["tp"]);
        const Outcome simulated = simulate_planned({"--device", "b200_sxm", "--tp", candidate["tp"].dump(),
                                                    "--kv-dtype", candidate["kv_dtype"].get<std::string>(), "--weights",
                                                    candidate["weights"].get<std::string>()});
        ASSERT_EQ(simulated.exit_code, kExitOk) << simulated.err;
        EXPECT_DOUBLE_EQ(candidate["best"]["values_s"]["p99:ttft"].get<double>(),
                         json::parse(simulated.out)["ttft_s"]["p99"].get<double>())
            << candidate;
        times.insert(candidate["best"]["values_s"]["p99:ttft"].get<double>());
    }
    EXPECT_EQ(times.size(), 8u);
    EXPECT_EQ(run_plan({"--slo", "p99:ttft=2s", "--route", "trace"}).exit_code, kExitBadUsage);
}

TEST(PlanCommand, WhatDoesNotFitIsSaidAndTheRestIsPlanned) {
    const Outcome outcome =
        run_plan({"--slo", "p90:ttft=100s", "--model", "llama-3.2-1b", "--chunk", "8192,1000000", "--memory", "40GB"});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("1000000 tokens a step, 256 sequences: --memory: of"));
    EXPECT_THAT(outcome.out, HasSubstr("8192 tokens a step, 256 sequences: one replica is enough"));
}

TEST(PlanCommand, WrongFlagsAreErrors) {
    const auto wrong = [](std::vector<std::string> flags, const char* text) {
        const Outcome outcome = run_plan(std::move(flags));
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << outcome.out;
        EXPECT_THAT(outcome.err, HasSubstr(text));
    };
    wrong({"--slo", "ttft=2s"}, "--slo: got 'ttft=2s', wanted objectives such as");
    wrong({}, "--slo");
    for (const char* rates : {"0", "2..1", "a..b", "1..", "-1", "1..2..3"})
        wrong({"--slo", "p99:ttft=2s", "--rate-scale", rates}, "--rate-scale: got");
    wrong({"--slo", "p99:ttft=2s", "--max-replicas", "0"}, "--max-replicas");
    wrong({"--slo", "p99:ttft=2s", "--price", "0"}, "--price");
    wrong({"--slo", "p99:ttft=2s", "--tier-evict", "lru"}, "--tier-evict: there is no memory behind the device's");
    wrong({"--slo", "p99:ttft=2s", "--restore", "never"}, "--restore: there is no memory behind the device's");
    wrong({"--slo", "p99:ttft=2s", "--session-rate", "1"}, "--session-rate: mooncake traces say when");
    wrong({"--slo", "p99:ttft=2s", "--input-format", "azure", "--time-unit", "s"}, "--time-unit: azure traces have");
    EXPECT_EQ(run_plan({"--slo", "p99:ttft=2s", "--device", "none"}).exit_code, kExitBadInput);
}

TEST(PlanCommand, ATraceWhoseRowsAreRejectedIsNotWhollyServed) {
    const auto run = [](const std::string& context) {
        return run_verbatim({"plan", "--trace", kPlannedTrace, "--limit", "50", "--context", context, "--no-bounds",
                             "--slo", "p99:ttft=2000s", "--max-replicas", "1"});
    };
    EXPECT_EQ(run("3000").exit_code, kExitNotAllCompared);
    EXPECT_EQ(run("131072").exit_code, kExitOk);
}

// Answers of one token have no time per token, whatever it may be at most.
TEST(PlanCommand, AnObjectiveThatNoRequestHasIsNotCompared) {
    const tests::ScratchFolder files;
    const std::string trace =
        files.write("one.jsonl", R"({"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [1]})");
    const std::vector<std::string> plan = {"plan", "--trace", trace, "--no-bounds", "--slo"};
    const auto run = [&](const std::string& slo, const std::vector<std::string>& more = {}) {
        std::vector<std::string> arguments = plan;
        arguments.push_back(slo);
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_verbatim(arguments);
    };
    const Outcome nothing = run("p99:tpot=1us,p99:ttft=1s");
    EXPECT_EQ(nothing.exit_code, kExitNotAllCompared) << nothing.err;
    EXPECT_THAT(nothing.out, HasSubstr("p99:tpot: nothing was compared: no answered request has such a time"));
    EXPECT_EQ(json::parse(run("p99:tpot=1us,p99:ttft=1s", {"--format", "json"}).out)["not_compared"],
              json::array({"p99:tpot"}));
    const Outcome all = run("p99:ttft=1s");
    EXPECT_EQ(all.exit_code, kExitOk) << all.err;
    EXPECT_THAT(all.out, testing::Not(HasSubstr("nothing was compared")));
}

// As of a sweep whose points all have a problem: nothing was simulated that could keep or break an objective.
TEST(PlanCommand, ConfigurationsThatCannotRunAreNoAnswer) {
    const std::vector<std::string> slo = {"--slo", "p99:ttft=2000s", "--max-replicas", "1"};
    const auto run = [&](const std::vector<std::string>& more) {
        std::vector<std::string> arguments = slo;
        arguments.insert(arguments.end(), more.begin(), more.end());
        return run_plan(arguments);
    };
    EXPECT_EQ(run({"--memory", "1GB"}).exit_code, kExitBadInput);
    EXPECT_EQ(run({"--tp", "3"}).exit_code, kExitBadInput);
    EXPECT_EQ(run({"--tp", "3,1"}).exit_code, kExitOk);
}

TEST(PlanCommand, APriceIsAboveNothing) {
    for (const char* price : {"0", "-1", "nan", "1e999"}) {
        const Outcome refused =
            run_verbatim({"plan", "--trace", kPlannedTrace, "--slo", "p99:ttft=2s", "--price", price});
        EXPECT_EQ(refused.exit_code, kExitBadUsage) << price;
        EXPECT_THAT(refused.err, HasSubstr("wanted a number above 0")) << price;
    }
}

}  // namespace
}  // namespace verbatim::tools
