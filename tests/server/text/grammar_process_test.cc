// The process that runs grammars, with a script in the place of the library's: what is said of one that is late, that
// ends, or that has no library, and that others go on.
#include "server/text/grammar_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <map>
#include <string>

#include "server/text/tokenizer_json.h"
#include "tests/support/grammar_script.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The mask allows the token (sum of the tokens so far + their number) mod 20. A grammar's name says what else happens.
const std::string kScript = tests::grammar_script(R"(
    if grammar == "late" or (grammar == "late later" and len(tokens) == 2):
        time.sleep(100)
    if grammar == "ends":
        os._exit(1)
    if grammar.startswith("ends once ") and len(tokens) == 1:
        try:
            os.mkdir(grammar[10:])
            os._exit(1)
        except FileExistsError:
            pass
    if grammar == "refused":
        return say(b"refused", b"it is no grammar")
    say(b"mask", (1 << (sum(tokens) + len(tokens)) % 20).to_bytes(3, "little"))
)");

class GrammarProcesses : public ::testing::Test {
protected:
    [[nodiscard]] GrammarRunner runner(const std::string& script, int64_t mask_ms = 20'000) {
        const std::string path = folder_.path("script.py");
        std::ofstream(path) << script;
        return {.program = {.script = path}, .vocabulary = &vocabulary_, .limits = {.mask_ms = mask_ms}};
    }
    // All masks that are owed, by sequence.
    static std::map<int64_t, NextMask> collect(GrammarProcess& process) {
        std::map<int64_t, NextMask> masks;
        while (process.num_owed() > 0) {
            for (NextMask& next : process.collect(1000)) masks[next.sequence] = std::move(next);
        }
        return masks;
    }
    tests::ScratchFolder folder_;
    GrammarVocabulary vocabulary_{.vocab_size = 20, .end_tokens = {0}, .description = "{\"vocab_size\": 20}\n"};
};

TEST_F(GrammarProcesses, MasksFollowFromTheTokensOfEachSequence) {
    GrammarProcess process(runner(kScript));
    process.start(1, "a");
    process.start(2, "b");
    auto masks = collect(process);
    EXPECT_THAT(masks[1].mask.runs, ElementsAre(0, 1));
    process.take(1, 4);
    process.take(2, 9);
    masks = collect(process);
    EXPECT_THAT(masks[1].mask.runs, ElementsAre(5, 1));
    EXPECT_THAT(masks[2].mask.runs, ElementsAre(10, 1));
    process.take(2, 1);
    process.stop(2);  // what is owed to it comes to nothing
    process.take(1, 2);
    masks = collect(process);
    EXPECT_EQ(masks.size(), 1U);
    EXPECT_THAT(masks[1].mask.runs, ElementsAre(8, 1));
    process.start(2, "b");  // its number is free
    EXPECT_THAT(collect(process)[2].mask.runs, ElementsAre(0, 1));
}

TEST_F(GrammarProcesses, ARefusalIsTheGrammarsAndEndsTheSequence) {
    GrammarProcess process(runner(kScript));
    const NextMask refused = process.first_mask("refused");
    EXPECT_EQ(refused.problem, "it is no grammar");
    EXPECT_TRUE(refused.is_grammars);
    EXPECT_EQ(process.first_mask("a").problem, "");
}

TEST_F(GrammarProcesses, OneThatTakesTooLongFailsAndOthersGoOn) {
    GrammarProcess process(runner(kScript, 300));
    process.start(1, "a");
    process.start(2, "late later");
    process.start(3, "c");
    collect(process);
    for (const TokenId token : {3, 4}) {
        for (const int64_t sequence : {1, 2, 3}) process.take(sequence, token);
        const auto masks = collect(process);
        EXPECT_THAT(masks.at(1).mask.runs, ElementsAre(token == 3 ? 4 : 9, 1));
        EXPECT_THAT(masks.at(3).mask.runs, ElementsAre(token == 3 ? 4 : 9, 1));
        EXPECT_EQ(masks.at(2).problem, token == 3 ? "" : "it takes more than 300 ms");
        EXPECT_EQ(masks.at(2).is_grammars, true);
    }
    EXPECT_EQ(process.first_mask("late").problem, "it takes more than 300 ms");
    process.take(1, 1);
    EXPECT_THAT(collect(process).at(1).mask.runs, ElementsAre(11, 1));
}

// A mask that is late is not waited for.
TEST_F(GrammarProcesses, CollectWaitsForAsLongAsItIsTold) {
    GrammarProcess process(runner(kScript));
    process.start(1, "late");
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_TRUE(process.collect(20).empty());
    EXPECT_EQ(process.num_owed(), 1U);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
}

TEST_F(GrammarProcesses, AnEndedProcessIsReplacedByOneThatGoesOn) {
    GrammarProcess process(runner(kScript));
    process.start(1, "a");
    process.start(2, "ends once " + folder_.path("mark"));
    collect(process);
    process.take(1, 4);
    process.take(2, 5);
    auto masks = collect(process);
    EXPECT_THAT(masks.at(1).mask.runs, ElementsAre(5, 1));
    EXPECT_THAT(masks.at(2).mask.runs, ElementsAre(6, 1));
    process.take(1, 1);
    EXPECT_THAT(collect(process).at(1).mask.runs, ElementsAre(7, 1));
}

// A token may be there before the mask of the one before it is read.
TEST_F(GrammarProcesses, AnEndedProcessOwesEveryMaskOfASequence) {
    GrammarProcess process(runner(kScript));
    process.start(2, "ends once " + folder_.path("mark"));
    process.take(2, 5);
    process.start(1, "a");
    std::map<int64_t, std::vector<int32_t>> first_runs;
    while (process.num_owed() > 0) {
        for (const NextMask& next : process.collect(1000)) first_runs[next.sequence].push_back(next.mask.runs.at(0));
    }
    EXPECT_THAT(first_runs.at(2), ElementsAre(0, 6));
    EXPECT_THAT(first_runs.at(1), ElementsAre(0));
}

TEST_F(GrammarProcesses, OneThatEndsItsProcessTwiceFails) {
    GrammarProcess process(runner(kScript));
    process.start(1, "a");
    process.start(2, "ends");
    process.start(3, "c");
    const auto masks = collect(process);
    EXPECT_EQ(masks.at(1).problem, "");
    EXPECT_THAT(masks.at(2).problem, HasSubstr("it takes more than 2048 MiB"));
    EXPECT_THAT(masks.at(3).mask.runs, ElementsAre(0, 1));
}

TEST_F(GrammarProcesses, WithoutTheLibraryNoGrammarIsToBlame) {
    GrammarProcess process(runner("print('failed 9\\nno module', end='', flush=True)\n"));
    const NextMask first = process.first_mask("a");
    EXPECT_EQ(first.problem, "no module");
    EXPECT_FALSE(first.is_grammars);
    GrammarProcess none({.program = {.script = "none.py", .interpreter = "/nonexistent/python3"},
                         .vocabulary = &vocabulary_,
                         .limits = {}});
    const NextMask ended = none.first_mask("a");
    EXPECT_THAT(ended.problem, HasSubstr("/nonexistent/python3 -I none.py ended"));
    EXPECT_FALSE(ended.is_grammars);
}

TEST(GrammarVocabularies, SpellTheTokensOfTheModelAndItsEnds) {
    const auto tokenizer = load_tokenizer(std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python");
    ASSERT_TRUE(tokenizer);
    const GrammarVocabulary vocabulary = grammar_vocabulary(*tokenizer, 2048, {0});
    EXPECT_THAT(vocabulary.description, HasSubstr("\"ends\":[0]"));
    EXPECT_THAT(vocabulary.description, HasSubstr("\"vocab_size\":2048"));
    EXPECT_THAT(vocabulary.description, HasSubstr("\"646566\""));  // def
    EXPECT_EQ(vocabulary.description.back(), '\n');
}

}  // namespace
}  // namespace verbatim::text
