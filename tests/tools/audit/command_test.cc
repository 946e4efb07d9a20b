// `verbatim audit`: flags and servers that it cannot work with, and the reports of what it found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"
#include "tools/audit/hits_report.h"
#include "tools/audit/page.h"
#include "tools/audit/report.h"

namespace verbatim::tools {
namespace {

using audit::RelationVerdict;
using audit::Verdict;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(AuditCommand, RefusesWhatIsNoAddress) {
    const Outcome refused = run_verbatim({"audit", "localhost:8000"});
    EXPECT_EQ(refused.exit_code, kExitBadUsage);
    EXPECT_THAT(refused.err, HasSubstr("wanted http://HOST:PORT"));
}

TEST(AuditCommand, RefusesCertificatesWithoutHttps) {
    const Outcome refused = run_verbatim({"audit", "http://127.0.0.1:9", "--ca", "mine.pem"});
    EXPECT_EQ(refused.exit_code, kExitBadUsage);
    EXPECT_THAT(refused.err, HasSubstr("no address here has it"));
}

TEST(AuditCommand, SaysWhereNoServerAnswers) {
    const Outcome refused = run_verbatim({"audit", "http://127.0.0.1:9"});
    EXPECT_EQ(refused.exit_code, kExitBadInput);
    EXPECT_THAT(refused.err, AllOf(HasSubstr("http://127.0.0.1:9: no answer"), HasSubstr("is the server there?")));
}

TEST(AuditCommand, RefusesUnknownRelationsAndBudgets) {
    EXPECT_EQ(run_verbatim({"audit", "http://127.0.0.1:9", "--only", "warm"}).exit_code, kExitBadUsage);
    const Outcome none = run_verbatim({"audit", "http://127.0.0.1:9", "--only", "n", "--skip", "n"});
    EXPECT_EQ(none.exit_code, kExitBadUsage);
    EXPECT_THAT(none.err, HasSubstr("leave no relation"));
    const Outcome refused = run_verbatim({"audit", "http://127.0.0.1:9", "--budget", "10"});
    EXPECT_EQ(refused.exit_code, kExitBadUsage);
    EXPECT_THAT(refused.err, HasSubstr("wanted REQUESTS,TOKENS"));
}

TEST(AuditCommand, SaysWhatIsWrongWithAFile) {
    tests::ScratchFolder files;
    files.write("bundle.json", "{}");
    files.write("prompts.txt", "\n");
    const Outcome bundle = run_verbatim({"audit", "http://127.0.0.1:9", "--bundle", files.path("bundle.json")});
    EXPECT_EQ(bundle.exit_code, kExitBadInput);
    const Outcome missing = run_verbatim({"audit", "http://127.0.0.1:9", "--bundle", files.path("none.json")});
    EXPECT_EQ(missing.exit_code, kExitBadInput);
    EXPECT_THAT(missing.err, HasSubstr("No such file"));
    EXPECT_THAT(bundle.err, HasSubstr("verbatim audit bundle 1"));
    const Outcome prompts = run_verbatim({"audit", "http://127.0.0.1:9", "--prompts", files.path("prompts.txt")});
    EXPECT_EQ(prompts.exit_code, kExitBadInput);
    EXPECT_THAT(prompts.err, HasSubstr("there is no prompt in it"));
}

TEST(AuditCommand, TheCanaryTakesNoFlagOfRelations) {
    for (const std::vector<std::string>& flag :
         {std::vector<std::string>{"--bundles", "folder"}, {"--junit", "a.xml"}, {"--only", "n"}, {"--exact"}}) {
        std::vector<std::string> command = {"audit", "http://127.0.0.1:9", "--expect-hits", "trace.csv"};
        command.insert(command.end(), flag.begin(), flag.end());
        const Outcome refused = run_verbatim(command);
        EXPECT_EQ(refused.exit_code, kExitBadUsage) << flag[0];
        EXPECT_THAT(refused.err, AllOf(HasSubstr(flag[0]), HasSubstr("--expect-hits"))) << flag[0];
    }
}

// An audit takes minutes, and a model's name goes into JSON.
TEST(AuditCommand, RefusesBeforeItAsksWhatWouldFailAfterwards) {
    tests::ScratchFolder files;
    const auto refused = [](const std::vector<std::string>& flags, int code, const std::string& said) {
        std::vector<std::string> command = {"audit", "http://127.0.0.1:9"};
        command.insert(command.end(), flags.begin(), flags.end());
        const Outcome outcome = run_verbatim(command);
        EXPECT_EQ(outcome.exit_code, code) << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr(said));
    };
    refused({"--model", "\xff"}, kExitBadUsage, "--model \"\\xff\": is no UTF-8");
    refused({"--key-env", "VERBATIM_NO_SUCH_KEY"}, kExitBadUsage, "VERBATIM_NO_SUCH_KEY: the environment has no");
    const std::string file = files.write("file", "");
    refused({"--bundles", file}, kExitMachine, "--bundles " + file + ": is no folder");
    refused({"--bundles", files.path("none_yet")}, kExitBadInput, "no answer");
}

// A trace without reuse, or blocks longer than its prompts: a server without a cache would pass.
TEST(AuditReport, TheCanaryComparesNothingWhereNoHitCanBeMissing) {
    audit::HitsResult result{.rows = {{.prompt_tokens = 8, .reported = 4}}, .prompt_tokens = 8, .reported = 4};
    EXPECT_EQ(hits_exit_code(result), kExitNotAllCompared);
    EXPECT_THAT(hits_table({}, result), AllOf(HasSubstr("not tried"), HasSubstr("no hit can be missing")));
    EXPECT_EQ(hits_json({}, result)["verdict"], "not tried");
    result.expected = 4;
    EXPECT_EQ(hits_exit_code(result), kExitOk);
    EXPECT_THAT(hits_table({}, result), AllOf(HasSubstr("as expected"), Not(HasSubstr("no hit can be missing"))));
    result.reported = 0;
    EXPECT_EQ(hits_exit_code(result), kExitDifference);
    result.reported = 9;
    result.from_before = 5;
    EXPECT_EQ(hits_exit_code(result), kExitNotAllCompared);
    EXPECT_THAT(hits_table({}, result), HasSubstr("5 of the reported tokens were in no earlier request"));
    EXPECT_EQ(hits_json({}, result)["from_before"], 5);
}

AuditReport reported(std::vector<std::pair<const char*, Verdict>> relations) {
    AuditReport report;
    report.url = "http://host:8000";
    for (const auto& [name, verdict] : relations) {
        RelationVerdict one;
        one.relation = name;
        one.verdict = verdict;
        one.why = "<why> & \"how\"";
        report.result.relations.push_back(one);
    }
    return report;
}

TEST(AuditReport, EndsInOneForCorruptionAndInFiveForNothingCompared) {
    EXPECT_EQ(audit_exit_code(reported({{"again", Verdict::kEqual}, {"n", Verdict::kNotTried}})), kExitOk);
    EXPECT_EQ(audit_exit_code(reported({{"again", Verdict::kDrift}})), kExitOk);
    EXPECT_EQ(audit_exit_code(reported({{"again", Verdict::kEqual}, {"n", Verdict::kCorrupt}})), kExitDifference);
    EXPECT_EQ(audit_exit_code(reported({{"again", Verdict::kNotTried}})), kExitNotAllCompared);
    EXPECT_EQ(audit_exit_code(reported({{"again", Verdict::kEqual}, {"n", Verdict::kUndecided}})), kExitNotAllCompared);
    AuditReport named = reported({{"again", Verdict::kEqual}, {"n", Verdict::kNotTried}});
    named.only = {"n"};
    EXPECT_EQ(audit_exit_code(named), kExitNotAllCompared);
}

TEST(AuditReport, AsJunitFailsForCorruptionAndSkipsWhatWasNotTried) {
    const std::string junit = audit_junit(reported({{"again", Verdict::kCorrupt}, {"n", Verdict::kNotTried}}));
    EXPECT_THAT(audit_junit(reported({{"n", Verdict::kUndecided}})),
                HasSubstr("failures=\"0\" errors=\"0\" skipped=\"1\""));
    EXPECT_THAT(
        junit, AllOf(HasSubstr("tests=\"2\" failures=\"1\" errors=\"0\" skipped=\"1\""), HasSubstr("<failure message="),
                     HasSubstr("<skipped message=\"&lt;why&gt; &amp; "), Not(HasSubstr("<why>"))));
}

TEST(AuditReport, AsPageSaysWhatWasFoundAndEscapesIt) {
    const std::string page = audit_page(reported({{"cold-warm", Verdict::kCorrupt}, {"n", Verdict::kEqual}}));
    EXPECT_THAT(page, AllOf(HasSubstr("1 of 2 checks found corruption"), HasSubstr("&lt;why&gt;"),
                            Not(HasSubstr("<why>")), Not(HasSubstr("<script"))));
    EXPECT_THAT(audit_page(reported({{"n", Verdict::kNotTried}})), HasSubstr("Nothing could be compared"));
}

TEST(AuditReport, AsTableSaysHowAFindingOfTwoServersIsRunAgain) {
    AuditReport report = reported({{"cold-warm", Verdict::kCorrupt}, {"cache", Verdict::kCorrupt}});
    report.bundles = {"a.json", "b.json"};
    EXPECT_THAT(audit_table(report), HasSubstr("--bundle b.json --url http://host:8000 --restart CMD\n"));
    report.against = "http://other:1";
    EXPECT_THAT(audit_table(report), AllOf(HasSubstr("--bundle a.json --url http://host:8000\n"),
                                           HasSubstr("--url http://host:8000 --against http://other:1\n")));
}

TEST(AuditReport, SaysWhatOfARelationWasNotTried) {
    AuditReport report = reported({{"aborted", Verdict::kEqual}});
    report.result.relations[0].left_out = "5 of 6 cases were compared; not tried: prompt <3>: it ended before";
    EXPECT_THAT(audit_table(report),
                HasSubstr("\naborted: 5 of 6 cases were compared; not tried: prompt <3>: it ended"));
    EXPECT_EQ(audit_json(report)["relations"][0]["left_out"], report.result.relations[0].left_out);
    EXPECT_THAT(audit_page(report), HasSubstr("; 5 of 6 cases were compared; not tried: prompt &lt;3&gt;: it ended"));
    EXPECT_THAT(audit_junit(report), HasSubstr("5 of 6 cases were compared"));
}

TEST(AuditReport, ABundleThatShowsNothingIsNotReproduced) {
    AuditReport report = reported({{"cold-warm", Verdict::kEqual}});
    report.result.is_of_bundle = true;
    report.result.relations[0].num_pairs = 4;
    EXPECT_THAT(audit_table(report), AllOf(HasSubstr("cold-warm  not reproduced "), Not(HasSubstr(" equal:"))));
    EXPECT_EQ(audit_json(report)["relations"][0]["reproduced"], false);
    EXPECT_THAT(audit_page(report), HasSubstr("<h1>The finding was not reproduced</h1>"));
    EXPECT_EQ(audit_exit_code(report), kExitOk);
    report.result.relations[0].verdict = Verdict::kCorrupt;
    EXPECT_EQ(audit_json(report)["relations"][0]["reproduced"], true);
    EXPECT_THAT(audit_table(report), HasSubstr("cold-warm  corrupt "));
    report.result.is_of_bundle = false;
    EXPECT_FALSE(audit_json(report)["relations"][0].contains("reproduced"));
}

TEST(AuditReport, AsJsonHasEveryRelation) {
    const nlohmann::ordered_json json =
        audit_json(reported({{"cold-warm", Verdict::kCorrupt}, {"n", Verdict::kEqual}}));
    EXPECT_EQ(json["verdict"], "corrupt");
    EXPECT_EQ(json["relations"][1]["verdict"], "equal");
    EXPECT_TRUE(json["relations"][0].contains("error_rate"));
}

}  // namespace
}  // namespace verbatim::tools
