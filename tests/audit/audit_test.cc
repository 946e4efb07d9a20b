// Whole audits of a server without sockets: an exact one, noisy honest ones, and one planted fault for each relation.
#include "audit/audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "audit/answer.h"
#include "audit/drafts.h"
#include "audit/restart.h"
#include "tests/audit/fake_server.h"

namespace verbatim::audit {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::FakeServer;
using tests::FakeServerConfig;
using tests::Fault;
using tests::NoiseKind;

AuditResult audited(FakeServer& server, std::vector<std::string> only = {}, AuditConfig config = {}) {
    config.runner.server = &server;
    config.only = std::move(only);
    if (config.relations.lengths.empty()) config.relations.lengths = {40, 47, 48, 49, 101, 256, 333, 528};
    Result<AuditResult> result = run_audit(config);
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
    return result ? *std::move(result) : AuditResult();
}

const RelationVerdict& of(const AuditResult& result, const std::string& relation) {
    for (const RelationVerdict& one : result.relations) {
        if (one.relation == relation) return one;
    }
    ADD_FAILURE() << relation << " was not run";
    return result.relations.at(0);
}

const std::vector<std::string> kOfOneServer = {"again",   "cold-warm",   "alone-batched", "stream-whole",
                                               "chunked", "stop-resume", "aborted",       "n",
                                               "order",   "logprobs"};

TEST(Audit, OfAnExactServerFindsEveryRelationEqual) {
    FakeServer server;
    const AuditResult result = audited(server, kOfOneServer);
    for (const RelationVerdict& one : result.relations) {
        EXPECT_EQ(one.verdict, Verdict::kEqual) << one.relation << ": " << one.why;
        EXPECT_GT(one.num_pairs, 0u) << one.relation;
        // A prompt may be shorter than a block, an answer may end before its connection is cut.
        EXPECT_EQ(one.count(Verdict::kEqual) + one.count(Verdict::kNotTried), one.cases.size()) << one.relation;
        EXPECT_GT(one.count(Verdict::kEqual), one.count(Verdict::kNotTried)) << one.relation;
    }
}

struct Planted {
    Fault fault;
    const char* relation;
};
void PrintTo(const Planted& planted, std::ostream* out) { *out << planted.relation; }

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsCorruptOnAnExactServerAndOnANoisyOne) {
    for (const NoiseKind noise : {NoiseKind::kNone, NoiseKind::kEachRun, NoiseKind::kByPath}) {
        FakeServer server({.fault = GetParam().fault, .noise = noise});
        const AuditResult result = audited(server, {"again", GetParam().relation});
        EXPECT_EQ(of(result, GetParam().relation).verdict, Verdict::kCorrupt)
            << static_cast<int>(noise) << of(result, GetParam().relation).why;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Audit, PlantedFault,
    testing::Values(Planted{Fault::kForgetsItself, "again"}, Planted{Fault::kTokenOnceSeen, "cold-warm"},
                    Planted{Fault::kStalePrefix, "cold-warm"}, Planted{Fault::kNeighboursToken, "alone-batched"},
                    Planted{Fault::kCutCharacter, "stream-whole"}, Planted{Fault::kLostLastChunk, "stream-whole"},
                    Planted{Fault::kPartialHit, "chunked"}, Planted{Fault::kContinuedText, "stop-resume"},
                    Planted{Fault::kAfterAbort, "aborted"}, Planted{Fault::kThirdChoice, "n"},
                    Planted{Fault::kPreviousRequest, "order"}, Planted{Fault::kWithoutLogProbs, "logprobs"},
                    Planted{Fault::kShiftedEcho, "logprobs"}, Planted{Fault::kOtherTemplate, "template"}));

AuditResult of_two(FakeServerConfig one, FakeServerConfig other, const std::string& relation) {
    FakeServer server(std::move(one));
    FakeServer against(std::move(other));
    AuditConfig config;
    config.runner.against = &against;
    config.relations.has_against = true;
    return audited(server, {relation}, config);
}

TEST(AuditOfTwo, ComparesWhatIsCachedWithWhatAnotherServerComputes) {
    EXPECT_EQ(of_two({}, {.caches = false}, "cache").verdict(), Verdict::kEqual);
    EXPECT_EQ(of_two({}, {.fault = Fault::kUncached, .caches = false}, "cache").verdict(), Verdict::kCorrupt);
    EXPECT_EQ(of_two({.caches = false}, {.caches = false}, "cache").verdict(), Verdict::kNotTried);
}

TEST(AuditOfTwo, ComparesSpeculationWhereDraftsWereAccepted) {
    const FakeServerConfig speculates = {.accepted_drafts = 5};
    EXPECT_EQ(of_two(speculates, {}, "speculation").verdict(), Verdict::kEqual);
    EXPECT_EQ(of_two(speculates, {.fault = Fault::kUncached, .caches = false}, "speculation").verdict(),
              Verdict::kCorrupt);
    EXPECT_EQ(of_two({.accepted_drafts = 0}, {}, "speculation").verdict(), Verdict::kNotTried);
    EXPECT_THAT(of_two({}, {}, "speculation").relations.at(0).why, HasSubstr("neither server tells"));
}

AuditConfig with_restart(std::function<void()> restart) {
    AuditConfig config;
    config.relations.has_restart = true;
    config.runner.restart = [restart = std::move(restart)]() -> Status {
        restart();
        return {};
    };
    return config;
}

TEST(AuditOfTwo, RestartsTheServerOnceAndSaysWhenThatFails) {
    FakeServer server;
    int num_restarts = 0;
    AuditConfig config = with_restart([&] {
        ++num_restarts;
        server.restart();
    });
    EXPECT_EQ(audited(server, {"cache"}, config).verdict(), Verdict::kEqual);
    EXPECT_EQ(num_restarts, 1);
    config.runner.restart = []() -> Status { return error("--restart: the command ended with status 256"); };
    const AuditResult failed = audited(server, {"cache"}, config);
    EXPECT_EQ(failed.verdict(), Verdict::kNotTried);
    EXPECT_THAT(failed.relations.at(0).why, HasSubstr("status 256"));
}

TEST(AuditOfTwo, WaitsForTheServerAfterARestart) {
    FakeServer server;
    AuditConfig config = with_restart([&] { server.restart(5); });
    double slept_s = 0;
    config.runner.sleep = [&](double seconds) { slept_s += seconds; };
    EXPECT_EQ(audited(server, {"cache"}, config).verdict(), Verdict::kEqual);
    EXPECT_GT(slept_s, 0);
}

// A server that is being stopped answers for a while.
TEST(AuditOfTwo, DoesNotTakeADyingServerForTheNextOne) {
    FakeServer server({.has_metrics = true});
    AuditConfig config = with_restart([] {});
    config.runner.sleep = [&, num_slept = 0](double) mutable {
        if (++num_slept == 3) server.restart(2);
    };
    const AuditResult result = audited(server, {"cache"}, config);
    EXPECT_EQ(result.verdict(), Verdict::kEqual);
    EXPECT_EQ(result.relations.at(0).trials.at(0).restart_proof, "the server was down");
}

TEST(AuditOfTwo, SaysThatTheServerDoesNotComeBack) {
    FakeServer server;
    AuditConfig config = with_restart([&] { server.restart(1'000'000); });
    config.runner.restart_timeout_s = 20;
    const AuditResult result = audited(server, {"cache"}, config);
    EXPECT_EQ(result.verdict(), Verdict::kNotTried);
    EXPECT_THAT(result.relations.at(0).why,
                AllOf(HasSubstr("does not answer 20 s after the restart command"), HasSubstr("connection refused")));
}

TEST(AuditOfTwo, CallsNothingEqualWhereTheCommandRestartedNothing) {
    FakeServer server;
    const AuditResult result = audited(server, {"cache"}, with_restart([] {}));
    EXPECT_EQ(result.verdict(), Verdict::kNotTried);
    EXPECT_THAT(result.relations.at(0).why, HasSubstr("nothing shows that the server was restarted"));
}

TEST(AuditOfTwo, ARestartShowsInMetrics) {
    EXPECT_EQ(restart_shown("a_total 5\nprocess_start_time_seconds 1.0\n", "process_start_time_seconds 2.0\n"),
              "process_start_time_seconds changed");
    EXPECT_EQ(restart_shown("a_total{b=\"c\"} 5\n", "a_total{b=\"c\"} 3\n"), "a_total{b=\"c\"} fell from 5 to 3");
    EXPECT_EQ(restart_shown("a_total 5\nb 3\n", "a_total 6\nb 2\n"), "");
}

TEST(AuditOfTwo, ComparesSpeculationBeforeAndAfterARestartThatSwitchesIt) {
    FakeServer server({.counted_drafts = 5});
    const AuditConfig switches = with_restart([&] {
        server.restart();
        server.config().counted_drafts = 0;
    });
    const AuditResult result = audited(server, {"speculation"}, switches);
    EXPECT_EQ(result.verdict(), Verdict::kEqual) << result.relations.at(0).why;
    EXPECT_THAT(result.relations.at(0).why, HasSubstr("spec_decode_num_accepted_tokens_total rose"));
    server.config().counted_drafts = 5;
    const AuditResult both = audited(server, {"speculation"}, with_restart([&] { server.restart(); }));
    EXPECT_EQ(both.verdict(), Verdict::kNotTried);
    EXPECT_THAT(both.relations.at(0).why, HasSubstr("both sides accept drafted tokens"));
}

TEST(AuditOfTwo, CountsAcceptedDraftsOfKnownServers) {
    const std::string vllm = "vllm:spec_decode_num_accepted_tokens_total{engine=\"0\"} ";
    EXPECT_EQ(drafts_between(vllm + "3.0\n", vllm + "10.0\n").num_accepted, 7);
    EXPECT_EQ(drafts_between("", "sglang:spec_accept_length{tp_rank=\"0\"} 2.4\n").num_accepted, 1);
    EXPECT_EQ(drafts_between("", "sglang:spec_accept_length 0.0\n").num_accepted, 0);
    EXPECT_FALSE(drafts_between("", "").is_counted);
    HttpReply llama;
    llama.status = 200;
    llama.arrivals = {{R"({"choices": [{"text": "a"}], "timings": {"draft_n": 9, "draft_n_accepted": 4}})", 0}};
    EXPECT_EQ(parse_answer(llama).accepted_drafts, 4);
}

TEST(AuditOfTwo, SaysThatTheSecondServerIsNotThere) {
    FakeServer server;
    FakeServer gone;
    gone.restart(1'000'000);
    AuditConfig config;
    config.runner.server = &server;
    config.runner.against = &gone;
    const auto result = run_audit(config);
    ASSERT_FALSE(result.has_value());
    EXPECT_THAT(result.error().message, HasSubstr("the second server (--against): no answer: connection refused"));
}

TEST(AuditOfTwo, SaysWhichFlagIsMissing) {
    FakeServer server;
    const AuditResult result = audited(server, {"speculation", "cache"});
    EXPECT_THAT(result.relations.at(0).why, HasSubstr("--against URL"));
    EXPECT_THAT(result.relations.at(1).why, HasSubstr("--restart CMD"));
}

int64_t from_environment(const char* name, int64_t otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::atoll(value) : otherwise;
}

// VERBATIM_AUDITS=1000 makes as many audits, VERBATIM_FIRST_AUDIT=N begins with the N-th; docs/audit.md has the result.
TEST(Audit, CallsNoHonestNoisyServerCorrupt) {
    const int64_t first = from_environment("VERBATIM_FIRST_AUDIT", 0);
    const int64_t count = from_environment("VERBATIM_AUDITS", 12);
    int64_t drifted = 0;
    for (int64_t i = first; i < first + count; ++i) {
        FakeServerConfig config;
        config.seed = static_cast<uint64_t>(1000 + i);
        config.noise = i % 2 == 0 ? NoiseKind::kEachRun : NoiseKind::kByPath;
        config.is_laplace = i % 3 == 0;
        constexpr double kScales[] = {0.0005, 0.003, 0.01, 0.03, 0.1};
        config.noise_scale = kScales[i % 5];
        config.has_completions = i % 7 != 0;
        FakeServer server(config);
        AuditConfig audit;
        audit.runner.seed = audit.relations.seed = audit.discover.seed = static_cast<uint64_t>(i);
        const AuditResult result = audited(server, kOfOneServer, audit);
        for (const RelationVerdict& one : result.relations)
            EXPECT_NE(one.verdict, Verdict::kCorrupt) << "seed " << i << ", " << one.relation << ": " << one.why;
        drifted += result.verdict() == Verdict::kDrift ? 1 : 0;
    }
    EXPECT_GT(drifted, count / 2);
}

TEST(Audit, CallsNothingEqualWhereNothingWasReused) {
    FakeServer server({.caches = false});
    const AuditResult result = audited(server, {"cold-warm", "chunked"});
    EXPECT_EQ(of(result, "cold-warm").verdict, Verdict::kNotTried);
    EXPECT_THAT(of(result, "cold-warm").why, HasSubstr("cached_tokens is 0"));
    EXPECT_EQ(of(result, "chunked").verdict, Verdict::kNotTried);
    EXPECT_TRUE(result.compared_nothing());
}

TEST(Audit, CallsNothingEqualWhereReuseIsNotReported) {
    FakeServer server({.reports_cached = false});
    EXPECT_EQ(of(audited(server, {"cold-warm"}), "cold-warm").verdict, Verdict::kNotTried);
}

TEST(Audit, ProvesReuseByTheCounterInMetrics) {
    FakeServer server({.reports_cached = false, .has_metrics = true});
    const AuditResult result = audited(server, {"cold-warm"});
    EXPECT_EQ(of(result, "cold-warm").verdict, Verdict::kEqual) << of(result, "cold-warm").why;
}

TEST(Audit, CallsNothingEqualWhereRequestsRanOneByOne) {
    FakeServer server({.runs_together = false});
    const AuditResult result = audited(server, {"alone-batched"});
    EXPECT_EQ(of(result, "alone-batched").verdict, Verdict::kNotTried);
    EXPECT_THAT(of(result, "alone-batched").why, HasSubstr("did not run at one time"));
}

TEST(Audit, OfAServerThatPromisesBitsCallsDriftCorrupt) {
    FakeServer server({.noise = NoiseKind::kByPath, .noise_scale = 1e-6, .fingerprint = "exact/1-fake"});
    const AuditResult result = audited(server, {"cold-warm"});
    EXPECT_EQ(of(result, "cold-warm").verdict, Verdict::kCorrupt);
    EXPECT_THAT(of(result, "cold-warm").why, HasSubstr("promises equal bits"));
}

TEST(Audit, WithoutLogProbabilitiesTellsDriftFromCorruptionByDraws) {
    FakeServer corrupt({.fault = Fault::kTokenOnceSeen, .has_log_probs = false});
    const RelationVerdict found = of(audited(corrupt, {"again", "cold-warm"}), "cold-warm");
    EXPECT_EQ(found.verdict, Verdict::kCorrupt) << found.why;
    EXPECT_THAT(found.why, HasSubstr("draws"));
    FakeServer honest({.noise = NoiseKind::kByPath, .noise_scale = 0.05, .has_log_probs = false});
    const RelationVerdict drifted = of(audited(honest, {"again", "cold-warm"}), "cold-warm");
    EXPECT_EQ(drifted.verdict, Verdict::kDrift) << drifted.why;
    EXPECT_THAT(drifted.why, HasSubstr("draws"));
}

// Chats cannot be continued by draws: a difference is no drift where nothing measured it.
TEST(Audit, CallsADifferenceUndecidedWhereNothingMeasuresIt) {
    FakeServer server({.fault = Fault::kTokenOnceSeen, .has_completions = false, .has_log_probs = false});
    const AuditResult result = audited(server, {"again", "cold-warm"});
    EXPECT_EQ(of(result, "again").verdict, Verdict::kEqual);
    EXPECT_EQ(of(result, "cold-warm").verdict, Verdict::kUndecided) << of(result, "cold-warm").why;
    EXPECT_EQ(of(result, "cold-warm").count(Verdict::kDrift), 0u);
    EXPECT_THAT(of(result, "cold-warm").why, HasSubstr("no log-probabilities"));
    EXPECT_EQ(result.verdict(), Verdict::kUndecided);
}

TEST(Audit, OfAServerThatIgnoresSeedsLeavesSampledAnswersOut) {
    FakeServer server({.noise = NoiseKind::kByPath, .honours_seed = false});
    const AuditResult result = audited(server, {"again", "cold-warm", "stream-whole"});
    for (const RelationVerdict& one : result.relations) {
        EXPECT_LE(one.verdict, Verdict::kDrift) << one.relation << ": " << one.why;
        EXPECT_GT(one.count(Verdict::kNotTried), 0u) << one.relation;
    }
    // Without `again` seeds are tried first.
    FakeServer other({.noise = NoiseKind::kByPath, .honours_seed = false});
    EXPECT_LE(of(audited(other, {"stream-whole"}), "stream-whole").verdict, Verdict::kDrift);
}

// As Hugging Face's server does.
TEST(Audit, SaysHowMuchOfAnEqualRelationWasComparedAndWhyNotTheRest) {
    RelationVerdict relation;
    const auto add = [&](const char* name, Verdict verdict, const char* evidence) {
        CaseVerdict& one = relation.cases.emplace_back();
        one.name = name;
        one.verdict = verdict;
        one.evidence = evidence;
    };
    add("prompt 0", Verdict::kEqual, "");
    conclude(relation);
    EXPECT_EQ(relation.left_out, "");
    for (const char* name : {"prompt 1", "prompt 2", "prompt 3", "prompt 4"}) add(name, Verdict::kNotTried, "short");
    add("prompt 5", Verdict::kNotTried, "the answer came in one piece");
    conclude(relation);
    EXPECT_EQ(relation.verdict, Verdict::kEqual);
    EXPECT_EQ(relation.left_out,
              "1 of 6 cases were compared; not tried: prompt 1, prompt 2, prompt 3 and 1 more: short; prompt 5: the "
              "answer came in one piece");
    relation.cases.erase(relation.cases.begin());
    conclude(relation);
    EXPECT_EQ(relation.verdict, Verdict::kNotTried);
    EXPECT_EQ(relation.left_out, "") << "its reason says it";
}

TEST(Audit, CallsNIgnoredNotTried) {
    FakeServer server({.ignores_n = true});
    const RelationVerdict verdict = of(audited(server, {"n"}), "n");
    EXPECT_EQ(verdict.verdict, Verdict::kNotTried);
    EXPECT_THAT(verdict.why, HasSubstr("fewer choices than were asked for"));
}

TEST(Audit, KeepsToItsBudget) {
    FakeServer server;
    AuditConfig config;
    config.runner.budget.requests = 20;
    const AuditResult result = audited(server, {}, config);
    EXPECT_LE(result.num_requests, 20);
    EXPECT_THAT(of(result, "cold-warm").why, HasSubstr("budget"));
    EXPECT_EQ(of(result, "cold-warm").verdict, Verdict::kNotTried);
}

TEST(Audit, OfAChatServerComparesChats) {
    FakeServer server({.has_completions = false});
    const AuditResult result = audited(server, {"cold-warm", "stop-resume"});
    EXPECT_TRUE(result.server.is_chat);
    EXPECT_EQ(of(result, "cold-warm").verdict, Verdict::kEqual);
    EXPECT_EQ(of(result, "stop-resume").verdict, Verdict::kNotTried);
}

TEST(Audit, NamesTheKnownRelationsWhereOneIsUnknown) {
    FakeServer server;
    AuditConfig config;
    config.runner.server = &server;
    config.only = {"warm-cold"};
    const auto result = run_audit(config);
    ASSERT_FALSE(result.has_value());
    EXPECT_THAT(result.error().message, HasSubstr("cold-warm"));
    EXPECT_EQ(server.num_requests(), 0);
}

TEST(Audit, MakesPromptsOfTheLengthsThatBlocksHave) {
    FakeServer server;
    const AuditResult result = audited(server, {"cold-warm"});
    const RelationVerdict& verdict = of(result, "cold-warm");
    EXPECT_EQ(verdict.cases.at(2).name, "48 tokens");
    EXPECT_EQ(verdict.trials.at(2).answer(0, 0).prompt_tokens, 48);
}

}  // namespace
}  // namespace verbatim::audit
