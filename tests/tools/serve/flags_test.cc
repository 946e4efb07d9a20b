// Flags of `verbatim serve` that are refused before anything is loaded or a port is opened, and the templates that both
// `serve` and `text template` take from a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using testing::HasSubstr;
using testing::Not;

Outcome refused(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"serve", "--port", "0", "--ledger", "none"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_verbatim(arguments);
}

TEST(ServeCommand, ANameIsATextThatAClientCanSend) {
    for (const std::string& name : {std::string(), std::string("a\nb"), std::string(257, 'x'), std::string("\xff")}) {
        const Outcome outcome = refused({"--name", "good", "--name", name});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << name;
        EXPECT_THAT(outcome.err, HasSubstr("--name"));
    }
}

TEST(ServeCommand, AFlagIsNoName) {
    const Outcome outcome = refused({"--name", "--max-requests"});
    EXPECT_EQ(outcome.exit_code, kExitBadUsage);
    EXPECT_THAT(outcome.err, HasSubstr("--name"));
}

TEST(ServeCommand, AFlagThatNothingReadsIsRefused) {
    for (const auto& [flags, says] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"--restore", "always"}, "--restore: there are no heads to read"},
             {{"--tier", "folder", "--tier-bytes", "0"}, "--tier-bytes: got 0"},
             {{"--max-wait-steps", "5"}, "--max-wait-steps: of --admission fewest-tokens alone"}}) {
        const Outcome outcome = refused(flags);
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << says;
        EXPECT_THAT(outcome.err, HasSubstr(says));
    }
}

// It showed at the first request of a form alone.
TEST(ServeCommand, APythonThatCannotBeRunIsAWarningAtTheStart) {
    const std::vector<std::string> no_model = {"--model", "/nonexistent", "--grammar-python"};
    const auto starting = [&](const std::string& python) {
        std::vector<std::string> flags = no_model;
        flags.push_back(python);
        return refused(flags).err;
    };
    for (const char* python : {"nope", "/nonexistent/python3", "/usr", "/etc/passwd"})
        EXPECT_THAT(starting(python), HasSubstr(fmt::format("warning: --grammar-python {}: no program", python)));
    EXPECT_THAT(starting("/bin/sh"), Not(HasSubstr("warning")));
}

TEST(ServeCommand, AnOriginIsWrittenAsBrowsersWriteIt) {
    for (const char* origin : {"app.example", "https://app.example/", "https://app.example/x", "HTTPS://app.example",
                               "https://App.example", "https://", "://x", "https://a b"}) {
        const Outcome outcome = refused({"--cors-origin", origin});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << origin;
        EXPECT_THAT(outcome.err, HasSubstr("scheme://host")) << origin;
    }
}

// Beyond 32 bits they would be other numbers: 4294967297 tokens of a block, one.
TEST(ServeCommand, NumbersOfTheEngineHaveTheRangesOfReplay) {
    const std::vector<std::pair<const char*, std::string>> flags = {
        {"--block-size", "4096"}, {"--step-tokens", "1048576"}, {"--threads", "1024"}};
    for (const auto& [flag, most] : flags) {
        for (const std::string& number : {std::string("0"), most + "0", std::string("4294967297"), std::string("-1")}) {
            const Outcome outcome = refused({flag, number});
            EXPECT_EQ(outcome.exit_code, kExitBadUsage) << flag << " " << number;
            EXPECT_THAT(outcome.err, HasSubstr("not in range 1 to " + most)) << flag << " " << number;
        }
    }
}

TEST(ServeCommand, AWordThatIsNoneOfAFlagsIsABadFlag) {
    const Outcome executor = refused({"--executor", "tpu"});
    EXPECT_EQ(executor.exit_code, kExitBadUsage);
    EXPECT_THAT(executor.err, HasSubstr("tpu not in {cpu,reference,cuda,cuda-emulated}"));
    const Outcome bytes = refused({"--tier-bytes", "1GiB"});
    EXPECT_EQ(bytes.exit_code, kExitBadUsage);
    EXPECT_THAT(bytes.err, HasSubstr("--tier-bytes requires --tier"));
}

TEST(ServeCommand, ATemplateFileThatIsNotThereOrDoesNotCompileIsNamed) {
    const tests::ScratchFolder files;
    const Outcome missing = refused({"--chat-template", files.path("none.jinja")});
    EXPECT_EQ(missing.exit_code, kExitBadInput);
    EXPECT_THAT(missing.err, HasSubstr("none.jinja"));
    const Outcome broken = refused({"--chat-template", files.write("broken.jinja", "{% if %}")});
    EXPECT_EQ(broken.exit_code, kExitBadInput);
    EXPECT_THAT(broken.err,
                testing::AllOf(HasSubstr("broken.jinja"), HasSubstr("TemplateSyntaxError"), HasSubstr("line 1")));
    const Outcome latin = refused({"--chat-template", files.write("latin.jinja", "caf\xe9")});
    EXPECT_EQ(latin.exit_code, kExitBadInput);
    EXPECT_THAT(latin.err, HasSubstr("latin.jinja: the chat template is not UTF-8 at byte 3"));
}

}  // namespace
}  // namespace verbatim::tools
