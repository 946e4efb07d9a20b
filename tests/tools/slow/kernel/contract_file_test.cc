// `verbatim kernel --contract FILE`: an example that is right, kernels held against contracts, and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/kernel/run_kernel.h"

namespace verbatim::tools {
namespace {

using ContractJson = nlohmann::json;
using testing::HasSubstr;

std::string contract_path(const std::string& name) { return VERBATIM_SOURCE_DIR "/tests/contracts/" + name; }

ContractJson contract_json(std::vector<std::string> arguments, int exit_code) {
    for (const char* more : {"--effort", "short", "--format", "json"}) arguments.emplace_back(more);
    const Outcome outcome = run_kernel(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err << outcome.out;
    return ContractJson::parse(outcome.out, nullptr, false);
}

// The example, its first kernels for both machines, and every verb.
TEST(ContractFiles, TheExampleAndItsFirstKernelsAreRight) {
    const tests::ScratchFolder scratch;
    const std::string contract = scratch.path("my_op.h");
    const Outcome example = run_kernel({"new", "--contract", contract, "--out", scratch.path("my_op.cc")});
    ASSERT_EQ(example.exit_code, kExitOk) << example.err;
    ASSERT_EQ(run_kernel({"new", "--contract", contract, "--for", "cuda", "--out", scratch.path("my_op.cu")}).exit_code,
              kExitOk);
    for (const std::string file : {"my_op.cc", "my_op.cu"}) {
        for (const std::string verb : {"check", "invariance"}) {
            const ContractJson report =
                contract_json({verb, "--contract", contract, "--file", scratch.path(file)}, kExitOk);
            EXPECT_EQ(report["op"], "quantise_rows");
            EXPECT_EQ(report["verdict"], "pass") << verb << ' ' << file;
        }
    }
    contract_json({"race", "--contract", contract, "--file", scratch.path("my_op.cu")}, kExitOk);
    const Outcome perf =
        run_kernel({"perf", "--contract", contract, "--file", scratch.path("my_op.cc"), "--buffer", "4MiB"});
    EXPECT_EQ(perf.exit_code, kExitOk) << perf.err;
    EXPECT_THAT(perf.out, HasSubstr("rows 64, width 2048"));
    const Outcome list = run_kernel({"list", "--contract", contract});
    EXPECT_THAT(list.out, HasSubstr("x [width] bf16 per row, in"));
}

TEST(ContractFiles, AFaultHasItsSmallestCaseAndACaseFileRepeatsIt) {
    const tests::ScratchFolder scratch;
    const std::string contract = VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/contract.h";
    const std::string file = contract_path("quantise_two_scales.cc");
    const std::string one = scratch.path("case.json");
    const ContractJson report =
        contract_json({"check", "--contract", contract, "--file", file, "--case-out", one}, kExitDifference);
    EXPECT_EQ(report["verdict"], "wrong bits");
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), HasSubstr("`q` row"));
    EXPECT_EQ(report["first_failure"]["sizes"], ContractJson({{"rows", 1}, {"width", 32}}));
    const ContractJson again =
        contract_json({"check", "--contract", contract, "--file", file, "--case", one}, kExitDifference);
    EXPECT_EQ(again["cases"], 1);
}

TEST(ContractFiles, EveryDtypeAndAToleranceAndStates) {
    const std::vector<std::string> flags = {"--contract", contract_path("weighted_sum.h"), "--file",
                                            contract_path("weighted_sums.cc")};
    const auto verdict = [&](std::vector<std::string> arguments, int exit_code) {
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return contract_json(arguments, exit_code);
    };
    const ContractJson good = verdict({"check", "--kernel", "good"}, kExitOk);
    EXPECT_EQ(good["notes"][0], "bound: 64 ulps of the reference's greatest element of a row, sequence or call");
    const ContractJson invariance = verdict({"invariance", "--kernel", "good"}, kExitOk);
    EXPECT_EQ(invariance["invariant"]["chunk"], true);
    const ContractJson scaled = verdict({"check", "--kernel", "scaled"}, kExitDifference);
    EXPECT_EQ(scaled["verdict"], "beyond the bound");
    EXPECT_THAT(scaled["first_failure"]["detail"].get<std::string>(), HasSubstr("is allowed, by 64 ulps"));
    EXPECT_EQ(verdict({"check", "--kernel", "restarts"}, kExitDifference)["verdict"], "beyond the bound");
    const ContractJson cut = verdict({"check", "--kernel", "cuts_off"}, kExitDifference);
    EXPECT_EQ(cut["verdict"], "wrong bits");
}

TEST(ContractFiles, AMatmulOverBlocksHoldsKernelsToItsRoundingsAndItsOrder) {
    const std::vector<std::string> flags = {"--contract",
                                            VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/quantised_matmul.h", "--file",
                                            contract_path("quantised_matmuls.cc")};
    const auto verdict = [&](std::vector<std::string> arguments, int exit_code) {
        arguments.insert(arguments.end(), flags.begin(), flags.end());
        return contract_json(arguments, exit_code);
    };
    EXPECT_EQ(verdict({"check", "--kernel", "by_rows"}, kExitOk)["verdict"], "pass");
    EXPECT_EQ(verdict({"invariance", "--kernel", "by_rows"}, kExitOk)["verdict"], "pass");
    const ContractJson contracted = verdict({"check", "--kernel", "contracted"}, kExitDifference);
    EXPECT_EQ(contracted["verdict"], "wrong bits");
    EXPECT_EQ(contracted["first_failure"]["sizes"]["numbers"], 2);
    EXPECT_EQ(verdict({"check", "--kernel", "two_sums"}, kExitDifference)["verdict"], "wrong bits");
}

TEST(ContractFiles, WhatIsWrongIsOneLine) {
    const tests::ScratchFolder scratch;
    const std::string good = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/contract.h");
    const std::string kernel = contract_path("quantise_two_scales.cc");
    const auto spoiled = [&](const std::string& from, const std::string& to) {
        std::string text = good;
        text.replace(text.find(from), from.size(), to);
        const Outcome outcome = run_kernel({"check", "--contract", scratch.write("bad.h", text), "--file", kernel});
        EXPECT_EQ(outcome.exit_code, kExitBadInput);
        return outcome.err;
    };
    EXPECT_THAT(spoiled("\"width\"},\n                 {\"q\"", "\"depth\"},\n                 {\"q\""),
                HasSubstr("bad.h: width of x \"depth\": \"depth\" is no size: there are rows, width"));
    EXPECT_THAT(spoiled("VERBATIM_CONTRACT(quantise_rows)", ""), HasSubstr("does not compile"));
    EXPECT_THAT(spoiled("    return 0;", "    return 7;"), HasSubstr("bad.h: fails: run() returns 7"));
    EXPECT_THAT(spoiled("*VERBATIM_UNIT(float, call, kScale, r) = scale;", ""),
                HasSubstr("its reference leaves an output unwritten"));
    EXPECT_THAT(spoiled("\"quantise_rows\"", "\"rope\""), HasSubstr("\"rope\" is a built-in operation"));
    const Outcome none = run_kernel({"check", "--contract", scratch.path("none.h"), "--file", kernel});
    EXPECT_THAT(none.err, HasSubstr("none.h: there is no such file"));
    const Outcome other = run_kernel({"check", "rope", "--contract", scratch.write("good.h", good), "--file", kernel});
    EXPECT_THAT(other.err, HasSubstr("is the contract of quantise_rows, not of rope"));
    const Outcome neither = run_kernel({"check", "--contract", scratch.path("good.h")});
    EXPECT_THAT(neither.err, HasSubstr("give --file or --python"));
    const Outcome there = run_kernel({"new", "--contract", scratch.path("good.h")});
    EXPECT_EQ(there.exit_code, kExitBadInput);
}

}  // namespace
}  // namespace verbatim::tools
