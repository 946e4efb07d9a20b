// Kernels that are wrong, or depend on their company, at the sizes of real batches alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// A plain kernel with one change of its source.
struct Change {
    const char* kernel;  // "matmul.cc"
    const char* from;
    const char* to;
    bool is_fast = false;  // in the profile that tolerates another order of sums
};

class RealSizes : public testing::Test {
protected:
    std::string changed(const Change& change) {
        std::string source = file_bytes(repository_path("kernels/sandbox/naive/" + std::string(change.kernel)));
        const auto replace = [&source](std::string_view from, std::string_view to) {
            const size_t at = source.find(from);
            ASSERT_NE(at, std::string::npos) << from;
            source.replace(at, from.size(), to);
        };
        replace(change.from, change.to);
        if (change.is_fast) replace(R"(.profile = "exact")", R"(.profile = "fast")");
        return scratch_.write(change.kernel, source);
    }
    // Of `kernel VERB OP`; the seconds are time enough on a busy machine.
    json report_of(const char* verb, const std::string& file, std::vector<std::string> more = {}) {
        const std::string name = file.substr(file.find_last_of('/') + 1);
        std::vector<std::string> arguments = {
            "kernel", verb, name.substr(0, name.find('.')), "--file", file, "--format", "json", "--time-limit", "60"};
        arguments.insert(arguments.end(), more.begin(), more.end());
        const Outcome outcome = run_verbatim(arguments);
        EXPECT_EQ(outcome.err, "");
        return json::parse(outcome.out, nullptr, false);
    }
    tests::ScratchFolder scratch_;
};

// A sum of squares in another order.
constexpr const char* kSum = "sum_of_squares(x, n) / static_cast";
std::string sum_from(const std::string& condition) {
    return "(" + condition +
           " ? [&] { float s = 0; for (int64_t i = 0; i < n; ++i) s += x[i] * x[i]; return s; }()"
           " : sum_of_squares(x, n)) / static_cast";
}

TEST_F(RealSizes, AWrongRowBeyondAThresholdIsFound) {
    const std::string file = changed({"matmul.cc", "op.bias != nullptr ? total + op.bias[n] : total",
                                      "m >= 64 ? 12345.0F : op.bias != nullptr ? total + op.bias[n] : total"});
    const json report = report_of("check", file, {"--effort", "short"});
    EXPECT_EQ(report["verdict"], "wrong bits");
    EXPECT_EQ(report["first_failure"]["sizes"]["rows"], 65) << "the smallest one";
}

TEST_F(RealSizes, ASumThatChangesWithTheBatchIsNotInvariant) {
    for (const char* rows : {"20", "32", "64", "256", "511"}) {
        SCOPED_TRACE(rows);
        const std::string sum = sum_from("op.x.num_rows >= " + std::string(rows));
        const std::string file = changed({"rms_norm.cc", kSum, sum.c_str(), true});
        EXPECT_EQ(report_of("check", file, {"--effort", "short"})["verdict"], "pass") << "within the tolerance";
        const json report = report_of("invariance", file, {"--effort", "short"});
        EXPECT_EQ(report["verdict"], "varies");
        EXPECT_EQ(report["invariant"]["batch"], false);
        EXPECT_EQ(report["invariant"]["threads"], true);
    }
}

// No list of sizes has 300 rows.
TEST_F(RealSizes, AConstantOfTheSourceIsAnEdge) {
    const std::string sum = sum_from("op.x.num_rows == 0x12C");
    const std::string file = changed({"rms_norm.cc", kSum, sum.c_str(), true});
    const json report = report_of("invariance", file, {"--effort", "short"});
    EXPECT_EQ(report["invariant"]["batch"], false);
    const std::string wide = sum_from("op.x.width == 1'234 || op.x.width == 4321");
    const json of_width = report_of("check", changed({"rms_norm.cc", kSum, wide.c_str()}), {"--effort", "short"});
    EXPECT_EQ(of_width["verdict"], "wrong bits");
    EXPECT_THAT(of_width["first_failure"]["sizes"]["width"].get<int>(), testing::AnyOf(1234, 4321));
}

// No literal of the source, nor what literals compute, is the width.
TEST_F(RealSizes, AShapeOfTheCommandLineIsTried) {
    const std::string sum = sum_from("(op.x.width ^ 0xF00) == 0x0F7");
    const std::string file = changed({"rms_norm.cc", kSum, sum.c_str()});
    EXPECT_EQ(report_of("check", file, {"--effort", "short"})["verdict"], "pass");
    const json report = report_of("check", file, {"--effort", "short", "--shape", "rows=3,width=4087"});
    EXPECT_EQ(report["verdict"], "wrong bits");
    EXPECT_EQ(report["first_failure"]["sizes"]["width"], 4087);
}

TEST_F(RealSizes, WrongShapesAreRefused) {
    const auto said = [](const char* shape) {
        const Outcome outcome = run_verbatim({"kernel", "check", "matmul", "--shape", shape});
        EXPECT_EQ(outcome.exit_code, kExitBadUsage) << shape;
        return outcome.err;
    };
    EXPECT_THAT(said("width=3"), HasSubstr("wanted NAME=VALUE, of rows, n, k, bias"));
    EXPECT_THAT(said("rows"), HasSubstr("wanted NAME=VALUE"));
    EXPECT_THAT(said("rows="), HasSubstr("wanted a whole number"));
    EXPECT_THAT(said("rows=3x"), HasSubstr("wanted a whole number"));
    EXPECT_THAT(said("rows=0"), HasSubstr("wanted at least 1"));
    EXPECT_THAT(said("bias=2"), HasSubstr("wanted one of 0, 1"));
    EXPECT_THAT(said("rows=1000000,n=1000000"), HasSubstr("too large"));
    EXPECT_THAT(said("rows=99999999999999999999"), HasSubstr("wanted a whole number"));
}

// A launch knows the longest sequence of its batch.
TEST_F(RealSizes, ASplitByTheLongestContextOfTheBatchIsNotInvariant) {
    const std::string file = changed({"attention.cc", "constexpr int64_t kTile = 64;",
                                      "constexpr int64_t kTile = 64;\nint64_t max_blocks_of_call = 0;", true});
    std::string source = file_bytes(file);
    const std::string sum = "    return partial[0];";
    source.replace(source.find(sum), sum.size(),
                   "    float in_order = 0;\n    for (int64_t j = 0; j < kTile; ++j) in_order += p[j];\n"
                   "    return max_blocks_of_call > 100 ? in_order : partial[0];");
    const std::string begin = "const verbatim_attention& op = *run->args.attention;";
    ASSERT_NE(source.find(begin), std::string::npos);
    source.replace(source.find(begin), begin.size(), begin + "\n    max_blocks_of_call = op.max_blocks;");
    const std::string split = scratch_.write("attention.cc", source);
    EXPECT_EQ(report_of("check", split, {"--effort", "short"})["verdict"], "pass") << "within the tolerance";
    const json report = report_of("invariance", split, {"--effort", "short"});
    EXPECT_EQ(report["verdict"], "varies");
    EXPECT_EQ(report["invariant"]["batch"], false);
}

TEST_F(RealSizes, TheLengthOfARotaryTableIsCompany) {
    const std::string file = changed({"rope.cc", "const verbatim_rope& op = *run->args.rope;",
                                      "verbatim_rope op = *run->args.rope;\n"
                                      "    if (op.num_positions > 600) op.x.num_rows = 0;"});
    EXPECT_EQ(report_of("invariance", file, {"--effort", "short"})["invariant"]["batch"], false);
}

TEST_F(RealSizes, OurKernelsHoldAtThem) {
    for (const char* file : {"matmul.cc", "rms_norm.cc", "attention.cc", "scan.cc", "conv.cc", "sampling.cc"}) {
        const std::string plain = repository_path("kernels/sandbox/naive/" + std::string(file));
        EXPECT_EQ(report_of("check", plain, {"--effort", "short"})["verdict"], "pass") << file;
        EXPECT_EQ(report_of("invariance", plain, {"--effort", "short"})["verdict"], "pass") << file;
    }
}

}  // namespace
}  // namespace verbatim::tools
