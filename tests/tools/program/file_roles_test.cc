#include "tools/program/file_roles.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "files/output_file.h"
#include "tests/support/scratch_folder.h"
#include "tests/tools/program/run_program.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using tests::ScratchFolder;

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string problem_of(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs) {
    const Status checked = check_file_roles(inputs, outputs);
    return checked ? "" : checked.error().message;
}

TEST(FileRoles, AnOutputThatIsAnInputIsRefusedUnderEveryName) {
    const ScratchFolder folder;
    const std::string trace = folder.write("t.csv", "rows");
    fs::create_directory(folder.path("sub"));
    fs::create_symlink("t.csv", folder.path("symbolic"));
    fs::create_hard_link(trace, folder.path("hard"));
    for (const std::string name : {"t.csv", "symbolic", "hard", "sub/../t.csv", "./t.csv"}) {
        EXPECT_THAT(problem_of({{"--trace", trace}}, {{"--record", folder.path(name)}}),
                    AllOf(HasSubstr("--record " + folder.path(name)), HasSubstr("--trace " + trace)))
            << name;
        EXPECT_NE(problem_of({{"--trace", folder.path(name)}}, {{"--record", trace}}), "") << name;
    }
    EXPECT_EQ(problem_of({{"--trace", trace}}, {{"--record", folder.path("other")}}), "");
    EXPECT_EQ(problem_of({{"--trace", folder.path("none")}}, {{"--record", folder.path("none")}}), "") << "no file yet";
}

TEST(FileRoles, AnOutputIsNoFileOfAFolderThatIsAnInput) {
    const ScratchFolder folder;
    fs::create_directory(folder.path("model"));
    const std::string weights = folder.write("model/model.safetensors", "weights");
    for (const std::string& value : {folder.path("model"), "model:" + folder.path("model")}) {
        EXPECT_THAT(problem_of({{"--model", value}}, {{"--out", weights}}), HasSubstr("--model " + value));
    }
    EXPECT_EQ(problem_of({{"--model", folder.path("model")}}, {{"--packed", folder.path("model/packed")}}), "");
    EXPECT_THAT(problem_of({{"--ledger", "sqlite://" + weights}}, {{"--record", weights}}), HasSubstr("--ledger"));
}

TEST(FileRoles, TwoOutputsAreTwoFiles) {
    const ScratchFolder folder;
    fs::create_symlink("a", folder.path("link"));
    EXPECT_THAT(problem_of({}, {{"--html", folder.path("a")}, {"--perfetto", folder.path("link")}}),
                AllOf(HasSubstr("--html"), HasSubstr("--perfetto"), HasSubstr("one file")));
    EXPECT_NE(problem_of({}, {{"--html", folder.path("a")}, {"--perfetto", folder.path("a.partial")}}), "");
    EXPECT_NE(problem_of({}, {{"--html", folder.path("a.partial")}, {"--perfetto", folder.path("a")}}), "");
    EXPECT_EQ(problem_of({}, {{"--html", folder.path("a")}, {"--perfetto", folder.path("b")}}), "");
    EXPECT_EQ(problem_of({}, {{"--html", "/dev/null"}, {"--perfetto", "/dev/null"}, {"--to", "-"}, {"--out", "-"}}),
              "");
}

// `verify run.rec.partial --junit run.rec` would remove the only copy of what a killed run recorded.
TEST(FileRoles, AnInputIsNotTheNameOfAnUnfinishedOutput) {
    const ScratchFolder folder;
    const std::string partial = folder.write("run.rec.partial", "frames");
    EXPECT_THAT(problem_of({{"record", partial}}, {{"--junit", folder.path("run.rec")}}),
                HasSubstr("run.rec.partial until it is complete"));
}

TEST(FileRoles, AnOutputIsNotStandardOutputsFile) {
    const ScratchFolder folder;
    const std::string path = folder.write("out", "");
    const int before = ::dup(1);
    const int file = ::open(path.c_str(), O_WRONLY);
    ::dup2(file, 1);
    const std::string problem = problem_of({}, {{"--to", path}});
    ::dup2(before, 1);
    ::close(before);
    ::close(file);
    EXPECT_THAT(problem, HasSubstr("standard output"));
    EXPECT_EQ(problem_of({}, {{"--to", path}}), "");
}

// The names of commands in a --help, `verbatim VERB ... --help`.
std::vector<std::string> commands_in(const std::string& help) {
    std::vector<std::string> names;
    std::istringstream lines(help.substr(std::min(help.find("\nSubcommands:"), help.size())));
    for (std::string line; std::getline(lines, line);)
        if (line.size() > 2 && line.starts_with("  ") && line[2] != ' ')
            names.push_back(line.substr(2, line.find(' ', 2) - 2));
    return names;
}

// Flags that sound as if they named a file that is written, and are not marked as such.
void add_unmarked(const std::vector<std::string>& command, std::vector<std::string>& unmarked, int& num_marked) {
    std::vector<std::string> arguments = command;
    arguments.emplace_back("--help");
    const std::string help = run_verbatim(arguments).out;
    const std::regex written(
        R"( +(--(out|to|html|junit|plot|picture|record|perfetto|timeline|packed|[a-z-]+-(csv|svg|graph|out|to))) .*)");
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
        std::smatch flag;
        if (!std::regex_match(line, flag, written)) continue;
        const bool is_marked = line.find(" OUTFILE") != std::string::npos;
        num_marked += is_marked ? 1 : 0;
        if (!is_marked) unmarked.push_back(fmt::format("{} {}", fmt::join(command, " "), flag[1].str()));
    }
    for (const std::string& name : commands_in(help)) {
        std::vector<std::string> deeper = command;
        deeper.push_back(name);
        add_unmarked(deeper, unmarked, num_marked);
    }
}

TEST(FileRoles, EveryFlagThatNamesAFileToWriteIsMarked) {
    std::vector<std::string> unmarked;
    int num_marked = 0;
    add_unmarked({}, unmarked, num_marked);
    // A folder that has no checkpoint yet, and a type.
    EXPECT_THAT(unmarked, testing::UnorderedElementsAre("model init --out", "model quantise --to"));
    EXPECT_GE(num_marked, 25);
}

// Of every verb that writes: the flags alone decide, before anything is read.
TEST(FileRoles, EveryVerbRefusesToWriteOverItsInput) {
    const ScratchFolder folder;
    const std::string in = folder.write("in", "what must stay\n");
    const std::string other = folder.path("other");
    const std::vector<std::vector<const char*>> commands = {
        {"replay", "--trace", in.c_str(), "--record", in.c_str()},
        {"replay", "--trace", in.c_str(), "--capture", "rms_norm", "--capture-out", in.c_str()},
        {"replay", "--trace", in.c_str(), "--model", "x", "--packed", in.c_str()},
        {"show", in.c_str(), "--cache-graph", in.c_str()},
        {"show", in.c_str(), "--cache-svg", in.c_str()},
        {"show", in.c_str(), "--timeline", in.c_str()},
        {"serve", "--api-key-file", in.c_str(), "--record", in.c_str()},
        {"serve", "--ledger", in.c_str(), "--record", in.c_str()},
        {"bench", "--model", in.c_str(), "--speculate", "--record", in.c_str()},
        {"bench", "--model", in.c_str(), "--plot", in.c_str()},
        {"verify", in.c_str(), "--junit", in.c_str()},
        {"diff", other.c_str(), in.c_str(), "--junit", in.c_str()},
        {"shrink", in.c_str(), "--to", in.c_str()},
        {"shrink", in.c_str(), "--to", other.c_str(), "--case-to", in.c_str()},
        {"simulate", "--trace", in.c_str(), "--requests-csv", in.c_str()},
        {"simulate", "--trace", in.c_str(), "--steps-csv", in.c_str()},
        {"simulate", "--trace", in.c_str(), "--perfetto", in.c_str()},
        {"simulate", "--device", in.c_str(), "--trace", other.c_str(), "--html", in.c_str()},
        {"sweep", "--trace", in.c_str(), "--memory", "40GB", "--to", in.c_str()},
        {"sweep", "merge", in.c_str(), "--to", in.c_str()},
        {"sweep", "plot", in.c_str(), "--to", in.c_str()},
        {"plan", "--trace", in.c_str(), "--slo", "p99:ttft=2s", "--html", in.c_str()},
        {"head", "export", "--model", "x", "--tokens", in.c_str(), "--out", in.c_str()},
        {"head", "export", "--model", in.c_str(), "--tokens", other.c_str(), "--out", in.c_str()},
        {"head", "export", "--model", "x", "--ledger", in.c_str(), "--conversation", "c", "--out", in.c_str()},
        {"trace", "convert", in.c_str(), "--to", in.c_str()},
        {"trace", "convert-chat", in.c_str(), "--model", "x", "--to", in.c_str()},
        {"trace", "stats", in.c_str(), "--picture", in.c_str()},
        {"calibrate", "--model", in.c_str(), "--out", in.c_str()},
        {"kernel", "check", "rms_norm", "--file", in.c_str(), "--case-out", in.c_str()},
        {"kernel", "roofline", "rms_norm", "--case", in.c_str(), "--plot", in.c_str()},
    };
    for (const auto& arguments : commands) {
        const Outcome outcome = run_verbatim(std::vector<std::string>(arguments.begin(), arguments.end()));
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << arguments[0] << ": " << outcome.err;
        EXPECT_THAT(outcome.err, HasSubstr("and would be overwritten")) << arguments[0];
        EXPECT_EQ(text_of(in), "what must stay\n") << arguments[0];
    }
    EXPECT_FALSE(fs::exists(other));
}

// The lock is asked for before the work begins, and the file stays as it is.
TEST(FileRoles, EveryVerbRefusesAFileThatIsBeingWritten) {
    const ScratchFolder folder;
    const std::string out = folder.write("out", "former\n");
    const auto other = files::OutputFile::create(out);
    ASSERT_TRUE(other);
    const std::string scenario = VERBATIM_SOURCE_DIR "/traces/scenario.csv";
    const std::vector<std::vector<std::string>> commands = {
        {"replay", "--trace", scenario, "--record", out},
        {"replay", "--trace", scenario, "--capture", "rms_norm", "--capture-out", out},
        {"serve", "--record", out},
        {"bench", "--preset", "tiny-granite", "--plot", out},
        {"simulate", "--trace", scenario, "--requests-csv", out},
        {"simulate", "--trace", scenario, "--steps-csv", out},
        {"simulate", "--trace", scenario, "--perfetto", out},
        {"simulate", "--trace", scenario, "--html", out},
        {"plan", "--trace", scenario, "--slo", "p99:ttft=2s", "--html", out},
        {"sweep", "merge", scenario, "--to", out},
        {"sweep", "plot", scenario, "--to", out},
        {"trace", "convert", scenario, "--to", out},
        {"trace", "convert-chat", scenario, "--model", "x", "--to", out},
        {"trace", "stats", scenario, "--picture", out},
        {"trace", "generate", "--to", out},
        {"calibrate", "--out", out},
        {"kernel", "new", "rms_norm", "--out", out},
        {"kernel", "check", "rms_norm", "--case-out", out},
        {"kernel", "roofline", "rms_norm", "--plot", out},
    };
    for (const auto& arguments : commands) {
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.exit_code, kExitMachine) << fmt::format("{}: {}", fmt::join(arguments, " "), outcome.err);
        EXPECT_THAT(outcome.err, HasSubstr("out: is being written")) << arguments[0];
        EXPECT_EQ(text_of(out), "former\n") << arguments[0];
    }
}

// A limit on the size of files stands for a full disk.
TEST(FileRoles, BeyondTheLimitOfFileSizesTheFormerFileStays) {
    const ScratchFolder folder;
    const std::string out = folder.write("out", "former\n");
    rlimit before = {};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small = {4096, before.rlim_max};
    std::signal(SIGXFSZ, SIG_DFL);
    setrlimit(RLIMIT_FSIZE, &small);
    const Status written = [&] {
        std::vector<const char*> argv = {"verbatim", "trace", "generate", "--to", out.c_str()};
        const int code = run_program(static_cast<int>(argv.size()), argv.data());
        return code == kExitMachine ? Status{} : tl::unexpected(Error{fmt::format("exit code {}", code)});
    }();
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_TRUE(written) << written.error().message;
    EXPECT_EQ(text_of(out), "former\n");
    EXPECT_FALSE(fs::exists(out + ".partial"));
}

}  // namespace
}  // namespace verbatim::tools
