#include "tests/house/include_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace verbatim::house {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Violations violations_of(const std::string& path, const std::string& text) { return forbidden_includes({path, text}); }

TEST(IncludeRule, HoldsInEverySourceFile) {
    const std::vector<SourceFile> files = source_files();
    ASSERT_GT(files.size(), 10u) << "the source folders were not found below " VERBATIM_SOURCE_DIR;
    for (const SourceFile& file : files) {
        const Violations found = forbidden_includes(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

TEST(IncludeRule, FindsAPlantedIncludeOfAnUpperFolder) {
    EXPECT_THAT(violations_of("engine/cache/x.cc", "#include <vector>\n#include \"reference/model/x.h\"\n"),
                ElementsAre(HasSubstr("engine/cache/x.cc:2: includes reference/model/x.h: engine/ must not know")));
    EXPECT_THAT(violations_of("reference/x.h", "#include \"kernels/cpu/x.h\"\n"), testing::SizeIs(1));
    EXPECT_THAT(violations_of("traces/x.h", "#include \"reference/model/x.h\"\n"), testing::SizeIs(1));
    EXPECT_THAT(violations_of("kernels/cpu/x.h", "#include \"tools/program/cli.h\"\n"), testing::SizeIs(1));
    EXPECT_THAT(violations_of("tools/x.h", "#include \"tests/house/x.h\"\n"), testing::SizeIs(1));
}

TEST(IncludeRule, FindsAFolderThatHasNoRule) {
    EXPECT_THAT(violations_of("novelties/x.h", "#include <vector>\n"), ElementsAre(HasSubstr("does not know")));
}

TEST(IncludeRule, FilesAreWrittenByOutputFileAlone) {
    for (const SourceFile& file : source_files()) {
        const Violations found = forbidden_writing(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
    for (const char* line : {"std::ofstream file(path);", "open(path, O_WRONLY | O_CREAT, 0666);",
                             "std::fopen(path.c_str(), \"wb\");", "fopen(path, \"a\");"}) {
        EXPECT_THAT(forbidden_writing({"tools/x.cc", line}), testing::SizeIs(1)) << line;
        EXPECT_THAT(forbidden_writing({"files/x.cc", line}), IsEmpty()) << line;
    }
    EXPECT_THAT(forbidden_writing({"tools/x.cc", "std::fopen(path.c_str(), \"rb\");"}), IsEmpty());
}

TEST(IncludeRule, FindsAnIncludeOfTheProgram) {
    for (const char* file :
         {"engine/x.h", "traces/x.h", "reference/x.h", "kernels/x.h", "simulator/x.h", "files/x.h"}) {
        EXPECT_THAT(violations_of(file, "#include \"tools/replay/run.h\"\n"), testing::SizeIs(1)) << file;
        EXPECT_THAT(violations_of(file, "#include \"tests/support/must.h\"\n"), testing::SizeIs(1)) << file;
    }
}

TEST(IncludeRule, FindsAnIncludeThroughAWall) {
    const auto expect_wall = [](const std::string& path, const std::string& include, const char* why) {
        EXPECT_THAT(violations_of(path, "#include " + include + "\n"), ElementsAre(HasSubstr(why)));
    };
    expect_wall("kernels/x.h", "\"kernels/cpu/x.h\"", "knows nobody who shares it");
    expect_wall("reference/model/x.h", "\"reference/loader/x.h\"", "does not know its files");
    expect_wall("reference/ops/x.h", "\"reference/records/x.h\"", "does not know files");
    expect_wall("kernels/cpu/x.h", "\"kernels/cuda/cuda_ops.h\"", "do not know CUDA's");
    expect_wall("kernels/cuda/x.cc", "\"kernels/cpu/x.h\"", "do not know the CPU's");
    expect_wall("kernels/simt/x.h", "\"kernels/cuda/cuda_ops.h\"", "the machine does not know");
    expect_wall("kernels/cuda/x.cu", "\"kernels/simt/emulator.h\"", "does not know the emulator");
    expect_wall("kernels/cuda/ops/x.h", "\"kernels/cuda/emulated_device.h\"", "does not know the emulator");
    expect_wall("kernels/cuda/x.cc", "<boost/context/fiber.hpp>", "fibers");
    for (const char* include : {"kernels/simt/emulator.h", "kernels/cuda/cuda_ops.h", "kernels/pair.h"}) {
        EXPECT_THAT(violations_of("kernels/cuda/emulated_device.cc", fmt::format("#include \"{}\"\n", include)),
                    IsEmpty());
    }
    EXPECT_THAT(violations_of("kernels/simt/emulator.h", "#include <boost/context/fiber.hpp>\n"), IsEmpty());
}

TEST(IncludeRule, FindsAHeaderThatEngineMustNotUse) {
    EXPECT_THAT(violations_of("engine/x.cc", "#include <thread>\n"), ElementsAre(HasSubstr("includes thread")));
    EXPECT_THAT(violations_of("engine/x.cc", "  #  include <cmath>  // why\n"), ElementsAre(HasSubstr("cmath")));
    EXPECT_THAT(violations_of("kernels/cpu/x.cc", "#include <thread>\n"), IsEmpty());
}

TEST(IncludeRule, FindsAPathThatDoesNotStartAtTheRoot) {
    EXPECT_THAT(violations_of("engine/cache/x.cc", "#include \"x.h\"\n"), ElementsAre(HasSubstr("root")));
    EXPECT_THAT(violations_of("engine/cache/x.cc", "#include \"../base/x.h\"\n"), ElementsAre(HasSubstr("root")));
    EXPECT_THAT(violations_of("engine/cache/x.cc", "#include <engine/base/x.h>\n"), ElementsAre(HasSubstr("quotes")));
}

TEST(IncludeRule, AllowsPermittedIncludes) {
    EXPECT_THAT(violations_of("engine/x.cc", "#include \"engine/base/x.h\"\n#include <vector>\n"), IsEmpty());
    EXPECT_THAT(violations_of("kernels/x.cc", "#include \"reference/ops/x.h\"\n"), IsEmpty());
    EXPECT_THAT(violations_of("tests/x.cc", "#include \"tools/program/cli.h\"\n"), IsEmpty());
    EXPECT_THAT(violations_of("engine/x.cc", "// #include <thread>\n/* #include <cmath>\n*/"), IsEmpty());
}

TEST(IncludeRule, NoVerbIncludesAnother) {
    EXPECT_THAT(violations_of("tools/bench/x.cc", "#include \"tools/kernel/x.h\"\n"),
                ElementsAre(HasSubstr("no verb includes another")));
    for (const char* name : {"tools/bench/y.h", "tools/program/cli.h", "kernels/sandbox/judge.h"}) {
        EXPECT_THAT(violations_of("tools/bench/x.cc", "#include \"" + std::string(name) + "\"\n"), IsEmpty()) << name;
    }
}

TEST(ArithmeticRule, HoldsInEverySourceFile) {
    for (const SourceFile& file : source_files()) {
        const Violations found = forbidden_arithmetic(file);
        EXPECT_THAT(found, IsEmpty()) << fmt::format("{}", fmt::join(found, "\n"));
    }
}

TEST(ArithmeticRule, FindsFloatingPointInEngine) {
    for (const char* code :
         {"double x;", "std::vector<float> x;", "auto x = 1.5;", "auto x = 1e9;", "auto x = 2.0f;"}) {
        EXPECT_THAT(forbidden_arithmetic({"engine/x.cc", code}), testing::SizeIs(1)) << code;
        EXPECT_THAT(forbidden_arithmetic({"engine/request/sampling.h", code}), IsEmpty()) << code;
        EXPECT_THAT(forbidden_arithmetic({"tools/x.cc", code}), IsEmpty()) << code;
    }
}

TEST(ArithmeticRule, IgnoresCommentsStringsAndIntegers) {
    EXPECT_THAT(forbidden_arithmetic({"engine/x.cc",
                                      "int a = 1'000;  // float, 1.5\nauto b = \"double 1.5\";\n"
                                      "char c = '\"';  /* double */ int d = 0x1e5; x.y = 3;\n"
                                      "auto e = R\"(\"float)\";"}),
                IsEmpty());
}

TEST(ArithmeticRule, FindsLibmWhereTheNumericsForbidIt) {
    for (const char* code : {"y = std::exp(x);", "y = expf(x);", "return cos(x);", "y = (log1p(x));"}) {
        EXPECT_THAT(forbidden_arithmetic({"reference/ops/x.cc", code}), testing::SizeIs(1)) << code;
        EXPECT_THAT(forbidden_arithmetic({"kernels/cuda/x.cu", code}), testing::SizeIs(1)) << code;
        EXPECT_THAT(forbidden_arithmetic({"reference/model/x.cc", code}), IsEmpty()) << code;
    }
    EXPECT_THAT(forbidden_arithmetic({"kernels/sandbox/dense_operations.cc", "y = std::exp(x);"}), IsEmpty());
    EXPECT_THAT(forbidden_arithmetic({"kernels/sandbox/judge.cc", "y = std::exp(x);"}), testing::SizeIs(1));
    EXPECT_THAT(forbidden_arithmetic({"kernels/cpu/x.cc", "y = exact_exp(x); z = ops::exp(x); w = log_of.exp(x);"}),
                IsEmpty());
}

}  // namespace
}  // namespace verbatim::house
