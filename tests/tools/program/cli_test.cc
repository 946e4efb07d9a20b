#include "tools/program/cli.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using testing::HasSubstr;

TEST(ParseBytes, ReadsPowersOf1024AndOf1000) {
    EXPECT_EQ(parse_bytes("0").value(), 0u);
    EXPECT_EQ(parse_bytes("4096").value(), 4096u);
    EXPECT_EQ(parse_bytes("3B").value(), 3u);
    EXPECT_EQ(parse_bytes("64KiB").value(), 65536u);
    EXPECT_EQ(parse_bytes("64kB").value(), 64000u);
    EXPECT_EQ(parse_bytes("2GiB").value(), uint64_t{2} << 30);
    EXPECT_EQ(parse_bytes("9223372036854775807").value(), uint64_t{INT64_MAX});
    EXPECT_EQ(parse_bytes("8388607TiB").value(), uint64_t{8388607} << 40);
}

TEST(ParseBytes, TakesDecimalsBeforeAUnit) {
    EXPECT_EQ(parse_bytes("24.8GB").value(), 24'800'000'000u);
    EXPECT_EQ(parse_bytes("1.5GiB").value(), uint64_t{3} << 29);
    EXPECT_EQ(parse_bytes("0.000001MB").value(), 1u);
    EXPECT_EQ(parse_bytes("0.3KiB").value(), 307u) << "307.2, of which the fraction of a byte is dropped";
    EXPECT_EQ(parse_bytes("8388607.999999TiB").value(), 9223372036853676296u);
}

TEST(ParseBytes, RefusesWhatIsNoNumberOfBytes) {
    for (const char* text : {"", "MiB", "-1", "+1", " 1", "1 MiB", "1.5", "1.5B", "1.GB", ".5GB", "1.5.5GB", "1,5GB",
                             "1.1234567GB", "1e9", "0x10", "64mib", "64K", "64KiBs"}) {
        EXPECT_FALSE(parse_bytes(text)) << text;
    }
    EXPECT_THAT(parse_bytes("64mib").error().message, HasSubstr("\"mib\", which is no unit of bytes"));
}

TEST(ParseBytes, RefusesMoreThanAnInt64Takes) {
    for (const char* text : {"9223372036854775808", "18446744073709551616", "8388608TiB", "99999999999999999999KiB"}) {
        ASSERT_FALSE(parse_bytes(text)) << text;
        EXPECT_THAT(parse_bytes(text).error().message, HasSubstr("more than 2^63 - 1")) << text;
    }
}

TEST(FormatBytes, ShowsOneDecimalRoundedDown) {
    EXPECT_EQ(format_bytes(0), "0 B");
    EXPECT_EQ(format_bytes(1023), "1023 B");
    EXPECT_EQ(format_bytes(1024), "1.0 KiB");
    EXPECT_EQ(format_bytes(1024 * 1024 - 1), "1023.9 KiB");
    EXPECT_EQ(format_bytes(uint64_t{3} << 29), "1.5 GiB");
    EXPECT_EQ(format_bytes(UINT64_MAX), "16777215.9 TiB");
}

// A shell's variable that is not set, and what CLI11 reads as another number.
TEST(GivenValues, AnEmptyValueAndANumberThatIsNotDecimalAreRefusedByEveryVerb) {
    const auto expect_refused = [](const std::vector<std::string>& arguments, const std::string& message) {
        const Outcome ran = run_verbatim(arguments);
        EXPECT_EQ(ran.exit_code, kExitBadUsage) << fmt::format("{}", fmt::join(arguments, " "));
        EXPECT_THAT(ran.err, HasSubstr(message)) << fmt::format("{}", fmt::join(arguments, " "));
    };
    for (const char* flag : {"--trace", "--record", "--tier", "--packed", "--model"})
        expect_refused({"replay", flag, ""}, fmt::format("{}: its value is empty", flag));
    expect_refused({"serve", "--model", "m", "--api-key-file", ""}, "--api-key-file: its value is empty");
    expect_refused({"trace", "stats", ""}, "its value is empty");
    for (const char* number : {"010", "0x10", "+4", "04", " 4"})
        expect_refused({"replay", "--block-size", number}, "--block-size: got");
    expect_refused({"bench", "--preset", "tiny-granite", "--batches", "1,010"},
                   "--batches: got '010', wanted a whole number in decimal digits");
}

TEST(AddGroup, HeadsTheFlagsThatAreAddedInItAlone) {
    CLI::App verb;
    bool flag = false;
    CLI::Option* before = verb.add_flag("--before", flag);
    CLI::Option* replaced = verb.add_flag("--replaced", flag);
    CLI::Option* inside = nullptr;
    CLI::Option* nested = nullptr;
    add_group(verb, "Group", [&] {
        verb.remove_option(replaced);
        inside = verb.add_flag("--inside", flag);
        add_group(verb, "Other", [&] { nested = verb.add_flag("--nested", flag); });
    });
    CLI::Option* after = verb.add_flag("--after", flag);
    EXPECT_EQ(inside->get_group(), "Group");
    EXPECT_EQ(nested->get_group(), "Other");
    EXPECT_EQ(after->get_group(), before->get_group());
}

TEST(Table, AlignsNumbersRightAndWordsLeft) {
    Table table({"name", "count"});
    table.add_row({"a", "5"});
    table.add_row({"longer name", "12345"});
    EXPECT_EQ(table.to_string(),
              "name         count\n"
              "a                5\n"
              "longer name  12345\n");
}

TEST(Table, LeavesNoSpaceAtALinesEnd) {
    Table table;
    table.add_row({"1", "x"});
    table.add_row({"22", "longer"});
    table.add_row({"-3", ""});
    EXPECT_EQ(table.to_string(), " 1  x\n22  longer\n-3\n");
}

TEST(Table, WithoutRowsShowsItsHeader) {
    EXPECT_EQ(Table({"a", "b"}).to_string(), "a  b\n");
    EXPECT_EQ(Table().to_string(), "");
}

TEST(Flags, AreReadIntoWhatTheyName) {
    CLI::App app;
    OutputFormat format = OutputFormat::kTable;
    uint64_t seed = 1;
    uint64_t bytes = 0;
    add_format_option(app, format);
    add_seed_option(app, seed);
    int64_t threads = 4;
    add_count_option(app, "--threads", threads, 1, "");
    add_bytes_option(app, "--kv-bytes", bytes, "");
    app.parse("--format json --seed 18446744073709551615 --kv-bytes 3MiB --threads 1");
    EXPECT_EQ(format, OutputFormat::kJson);
    EXPECT_EQ(seed, UINT64_MAX);
    EXPECT_EQ(bytes, 3u << 20);
    EXPECT_EQ(threads, 1);
}

TEST(Flags, WrongOnesAreParseErrors) {
    for (const char* line : {"--format xml", "--seed -1", "--seed x", "--seed 18446744073709551616", "--threads 0",
                             "--threads 4x", "--threads 9223372036854775808", "--kv-bytes 1.5"}) {
        CLI::App app;
        OutputFormat format = OutputFormat::kTable;
        uint64_t seed = 1;
        uint64_t bytes = 0;
        int64_t threads = 4;
        add_format_option(app, format);
        add_seed_option(app, seed);
        add_count_option(app, "--threads", threads, 1, "");
        add_bytes_option(app, "--kv-bytes", bytes, "");
        EXPECT_THROW(app.parse(line), CLI::ParseError) << line;
    }
}

TEST(Program, WithoutAVerbExplainsItselfOnStderr) {
    const Outcome outcome = run_verbatim({});
    EXPECT_EQ(outcome.exit_code, kExitBadUsage);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr("Exit codes:"));
}

TEST(Program, HelpAndVersionAreResults) {
    const Outcome version = run_verbatim({"--version"});
    EXPECT_EQ(version.exit_code, kExitOk);
    EXPECT_THAT(version.out, testing::MatchesRegex("verbatim [0-9.]+\n"));
    const Outcome help = run_verbatim({"--help"});
    EXPECT_EQ(help.exit_code, kExitOk);
    EXPECT_THAT(help.out, HasSubstr("Exit codes:"));
    EXPECT_EQ(help.err, "");
}

TEST(Program, AnUnknownFlagOrVerbIsBadUsage) {
    for (const char* argument : {"--no-such-flag", "no-such-verb"}) {
        const Outcome outcome = run_verbatim({argument});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage);
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.err, testing::StartsWith("verbatim: error: "));
        EXPECT_THAT(outcome.err, HasSubstr(argument));
    }
}

TEST(ReportError, PrintsOneLineAndReturnsTheCode) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(report_error(Error{"x.csv:3: no such row"}), kExitBadInput);
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "verbatim: error: x.csv:3: no such row\n");
}

TEST(ReportError, TheKindIsTheExitCode) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(report_error(Error{"no memory left", ErrorKind::kMachine}), kExitMachine);
    EXPECT_EQ(report_error(Error{"a race", ErrorKind::kCheck}), kExitDifference);
    EXPECT_EQ(report_error(Error{"no such row", ErrorKind::kMachine}, kExitBadUsage), kExitBadUsage);
    testing::internal::GetCapturedStderr();
}

}  // namespace
}  // namespace verbatim::tools
