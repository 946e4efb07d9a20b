// Findings as files: shrunk, written, read and run again.
#include "audit/bundle.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "audit/shrink.h"
#include "tests/audit/fake_server.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::audit {
namespace {

using testing::HasSubstr;
using testing::Not;
using tests::FakeServer;
using tests::Fault;
using tests::NoiseKind;

AuditResult found(FakeServer& server, const std::string& relation) {
    AuditConfig config;
    config.runner.server = &server;
    config.only = {relation};
    config.relations.lengths = {333, 528};
    Result<AuditResult> result = run_audit(config);
    EXPECT_TRUE(result.has_value());
    return *std::move(result);
}

std::string bundle_of(const AuditResult& result) {
    const Shrunk& shrunk = *result.shrunk.at(0);
    return bundle_json(shrunk.trial, shrunk.verdict, result.relations.at(0), result).dump();
}

size_t num_asks(const Case& script) {
    size_t count = 0;
    for (const Wave& wave : script.waves) count += wave.asks.size();
    return count;
}

TEST(AuditBundle, OfANeighboursTokenKeepsOneNeighbour) {
    FakeServer server({.fault = Fault::kNeighboursToken});
    const AuditResult result = found(server, "alone-batched");
    ASSERT_EQ(result.relations.at(0).verdict, Verdict::kCorrupt);
    const Case& script = result.shrunk.at(0)->trial.script;
    EXPECT_EQ(num_asks(script), 3u);  // alone, and with one other
    EXPECT_EQ(script.waves.back().asks.size(), 2u);
}

TEST(AuditBundle, OfAPromptThatWasSeenIsShorterThanTheCaseWas) {
    FakeServer server({.fault = Fault::kTokenOnceSeen});
    const AuditResult result = found(server, "cold-warm");
    const Trial& trial = result.shrunk.at(0)->trial;
    EXPECT_EQ(num_asks(trial.script), 2u);
    EXPECT_LT(trial.answer(0, 0).prompt_tokens.value(), 60);
    EXPECT_EQ(trial.sent[0][0]["max_tokens"], 4);
}

TEST(AuditBundle, ShowsTheCorruptionAgainAndNotOnAServerWithoutIt) {
    FakeServer server({.fault = Fault::kTokenOnceSeen, .noise = NoiseKind::kEachRun});
    const Result<Bundle> bundle = parse_bundle(bundle_of(found(server, "cold-warm")));
    ASSERT_TRUE(bundle.has_value()) << bundle.error().message;
    FakeServer same({.fault = Fault::kTokenOnceSeen, .noise = NoiseKind::kEachRun, .seed = 5});
    FakeServer sound({.noise = NoiseKind::kEachRun, .seed = 6});
    AuditConfig config;
    config.runner.server = &same;
    EXPECT_EQ(run_bundle(config, *bundle)->verdict(), Verdict::kCorrupt);
    config.runner.server = &sound;
    const Result<AuditResult> healed = run_bundle(config, *bundle);
    EXPECT_LE(healed->verdict(), Verdict::kDrift);
    EXPECT_GT(healed->relations.at(0).num_pairs, 0u);
    EXPECT_FALSE(healed->is_reproduced());
    EXPECT_THAT(healed->relations.at(0).why, HasSubstr("the finding was not reproduced in 4 tries"));
}

// A fault that shows now and then: equal answers do not say that it is gone.
TEST(AuditBundle, OfAFaultThatDoesNotShowIsNotReproduced) {
    FakeServer server({.fault = Fault::kTokenOnceSeen});
    const Result<Bundle> bundle = parse_bundle(bundle_of(found(server, "cold-warm")));
    ASSERT_TRUE(bundle.has_value()) << bundle.error().message;
    FakeServer sound;
    AuditConfig config;
    config.runner.server = &sound;
    const Result<AuditResult> result = run_bundle(config, *bundle);
    EXPECT_TRUE(result->is_of_bundle);
    EXPECT_EQ(result->verdict(), Verdict::kEqual);
    EXPECT_THAT(result->relations.at(0).why, HasSubstr("the finding was not reproduced in 4 tries: "));
    FakeServer faulty({.fault = Fault::kTokenOnceSeen});
    config.runner.server = &faulty;
    const Result<AuditResult> shown = run_bundle(config, *bundle);
    EXPECT_TRUE(shown->is_reproduced());
    EXPECT_THAT(shown->relations.at(0).why, Not(HasSubstr("not reproduced")));
}

TEST(AuditBundle, IsTheSameScriptWhenItIsReadAgain) {
    FakeServer server({.fault = Fault::kContinuedText});
    const AuditResult result = found(server, "stop-resume");
    const Result<Bundle> bundle = parse_bundle(bundle_of(result));
    ASSERT_TRUE(bundle.has_value());
    EXPECT_EQ(bundle->script, result.shrunk.at(0)->trial.script);
}

// A server may draft for these words, and for no others.
TEST(AuditBundle, RunsWithTheWordsOfTheFindingFirst) {
    FakeServer server({.fault = Fault::kTokenOnceSeen});
    const Result<Bundle> bundle = parse_bundle(bundle_of(found(server, "cold-warm")));
    ASSERT_TRUE(bundle.has_value()) << bundle.error().message;
    const std::string words = bundle->words.at("fresh 0");
    FakeServer again;
    AuditConfig config;
    config.runner.server = &again;
    const Result<AuditResult> result = run_bundle(config, *bundle);
    const std::vector<Trial>& trials = result->relations.at(0).trials;
    ASSERT_EQ(trials.size(), 4u);
    EXPECT_THAT(trials[0].script.name, HasSubstr("with the words of the finding"));
    EXPECT_THAT(trials[0].sent[0][0]["prompt"].get<std::string>(), HasSubstr(words));
    EXPECT_THAT(trials[1].sent[0][0]["prompt"].get<std::string>(), Not(HasSubstr(words)));
}

TEST(AuditBundle, OfAnotherFormatIsRefused) {
    EXPECT_THAT(parse_bundle("[]").error().message, HasSubstr("a bundle is what verbatim audit writes"));
    EXPECT_THAT(parse_bundle(R"({"format": "x"})").error().message, HasSubstr("verbatim audit bundle 1"));
    FakeServer server({.fault = Fault::kTokenOnceSeen});
    nlohmann::ordered_json json = nlohmann::ordered_json::parse(bundle_of(found(server, "cold-warm")));
    json["case"]["pairs"][0]["left"][0] = 99;
    EXPECT_THAT(parse_bundle(json.dump()).error().message, HasSubstr("no request 0 in wave 99"));
}

TEST(AuditBundle, AsCurlCommandsIsAShellScriptWithFreshWords) {
    FakeServer server({.fault = Fault::kContinuedText});
    const AuditResult result = found(server, "stop-resume");
    const std::string script = curl_script(result.shrunk.at(0)->trial, result.shrunk.at(0)->verdict);
    EXPECT_THAT(script, HasSubstr("filled "));
    EXPECT_THAT(script, Not(HasSubstr("{{half")));
    tests::ScratchFolder files;
    files.write("again.sh", script);
    EXPECT_EQ(std::system(fmt::format("bash -n {}", files.path("again.sh")).c_str()), 0);
}

TEST(AuditBundle, AsCurlCommandsCutsConnectionsAndNamesTheSecondServer) {
    FakeServer cut({.fault = Fault::kAfterAbort});
    const AuditResult result = found(cut, "aborted");
    const std::string script = curl_script(result.shrunk.at(0)->trial, result.shrunk.at(0)->verdict);
    EXPECT_THAT(script, HasSubstr("answer-1-0.json 1500\n"));
    EXPECT_THAT(script, Not(HasSubstr("${2")));
    Trial trial = result.shrunk.at(0)->trial;
    trial.script.waves.back().asks[0].server = 1;
    trial.script.waves.back().restarts = true;
    EXPECT_THAT(curl_script(trial, result.shrunk.at(0)->verdict),
                testing::AllOf(HasSubstr("\"${2:?the second server"), HasSubstr("ask 1 /v1"), HasSubstr("Restart")));
}

TEST(AuditShrink, LeavesWhatAnAnswerStandsFor) {
    Case script;
    for (int i = 0; i < 3; ++i) script.waves.push_back({{Ask{}}});
    script.waves[2].asks[0].body = {{"prompt", "a{{answer 1 0}}"}};
    script.pairs = {{{2, 0}, {2, 0}}};
    EXPECT_FALSE(without_ask(script, 1, 0).has_value());
    EXPECT_FALSE(without_ask(script, 2, 0).has_value());
    const std::optional<Case> fewer = without_ask(script, 0, 0);
    ASSERT_TRUE(fewer.has_value());
    EXPECT_EQ(fewer->waves[1].asks[0].body["prompt"], "a{{answer 0 0}}");
    EXPECT_EQ(fewer->pairs[0].left, (Place{1, 0}));
}

}  // namespace
}  // namespace verbatim::audit
