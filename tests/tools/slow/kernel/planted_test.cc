// The planted kernels (tests/planted_kernels): each gets exactly its verdict, by `check`, `invariance` or `race`.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sandbox/compile_kernel.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

using namespace sandbox;

namespace {

using Json = nlohmann::json;

std::string planted_file(const std::string& name) { return VERBATIM_SOURCE_DIR "/tests/planted_kernels/" + name; }

// Calls are ended after `seconds`, so that what hangs does; what does not has time enough on a busy machine.
Json kernel_json(std::vector<std::string> arguments, int exit_code, const char* seconds = "60") {
    arguments.insert(arguments.begin(), "kernel");
    for (const char* more : {"--format", "json", "--time-limit", seconds}) arguments.emplace_back(more);
    const Outcome outcome = run_verbatim(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err << outcome.out;
    return Json::parse(outcome.out, nullptr, false);
}

// What `kernel check` says.
struct PlantedFault {
    const char* file;
    const char* op;
    const char* verdict;
    const char* detail;  // a part of it
};

std::string planted_name(const testing::TestParamInfo<PlantedFault>& info) {
    std::string name = info.param.file;
    for (char& c : name) c = c == '.' ? '_' : c;
    return name;
}

class PlantedFaults : public testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaults, GetTheirVerdict) {
    const PlantedFault& fault = GetParam();
    const Json report = kernel_json({"check", fault.op, "--effort", "short", "--file", planted_file(fault.file)},
                                    kExitDifference, std::string_view(fault.verdict) == "hang" ? "1" : "60");
    EXPECT_EQ(report["verdict"], fault.verdict);
    EXPECT_EQ(report["first_failure"]["verdict"], fault.verdict);
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), testing::HasSubstr(fault.detail));
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, PlantedFaults,
    testing::Values(PlantedFault{"activation_fast_exp.cc", "activation", "wrong bits", "`up` row"},
                    PlantedFault{"activation_rough_exp.cc", "activation", "beyond the bound", "are allowed"},
                    PlantedFault{"activation_loses_nan.cc", "activation", "beyond the bound", "has nan"},
                    PlantedFault{"matmul_masks_by_zero.cc", "matmul", "beyond the bound", ": nan"},
                    PlantedFault{"sampling_forgets_ties.cc", "sampling", "wrong bits", "`tokens` row"},
                    PlantedFault{"conv_drops_tail.cc", "conv", "leaves output unwritten", "`out` row"},
                    PlantedFault{"conv_writes_vectors.cc", "conv", "writes outside", "`out`"},
                    PlantedFault{"gated_norm_scratch_in_z.cc", "gated_norm", "changes an input", "`z`"},
                    PlantedFault{"head_digest_hangs.cc", "head_digest", "hang", "no answer after 1 s"},
                    PlantedFault{"matmul_reads_output.cc", "matmul", "reads its output", "`out` row"},
                    PlantedFault{"rms_norm_reads_workspace.cc", "rms_norm", "reads unwritten workspace", "`out`"},
                    PlantedFault{"rms_norm_not_deterministic.cc", "rms_norm", "not deterministic", "`out`"},
                    PlantedFault{"rms_norm_reads_past_end.cc", "rms_norm", "crash", "behind `x`"},
                    PlantedFault{"scan_wide_state.cc", "scan", "wrong bits", "`y` row"},
                    PlantedFault{"choose_ties_to_higher_id.cc", "choose", "wrong bits", "`out` row"},
                    PlantedFault{"delta_wrong_value_head.cc", "delta_update", "wrong bits", "sequence"},
                    PlantedFault{"rms_norm_barrier_too_few.cu", "rms_norm", "race", "rms_norm_barrier_too_few.cu:"},
                    PlantedFault{"rms_norm_uninitialised_shared.cu", "rms_norm", "uninitialised", "nobody has written"},
                    PlantedFault{"rms_norm_barrier_in_branch.cu", "rms_norm", "divergent",
                                 "rms_norm_barrier_in_branch.cu:"},
                    PlantedFault{"rms_norm_divergent_shuffle.cu", "rms_norm", "divergent", "a shuffle: it is at line"},
                    PlantedFault{"rms_norm_copy_not_awaited.cu", "rms_norm", "out of bounds", "is copied"},
                    PlantedFault{"rms_norm_reads_gap.cu", "rms_norm", "out of bounds", "lies between two rows"},
                    PlantedFault{"rms_norm_host_reads_device.cu", "rms_norm", "bypasses the emulator",
                                 ": element 0 of `x` is read by run() on the host"},
                    PlantedFault{"rms_norm_bare_pointer.cu", "rms_norm", "bypasses the emulator",
                                 ": element 0 of `weight` is read through a bare pointer"},
                    PlantedFault{"rms_norm_static_array.cu", "rms_norm", "bypasses the emulator", "static memory"},
                    PlantedFault{"rms_norm_too_many_threads.cu", "rms_norm", "launch limit", "a block of 2048 threads"},
                    PlantedFault{"rms_norm_grid_too_tall.cu", "rms_norm", "launch limit", "(1, 70000, 1) blocks"},
                    PlantedFault{"rms_norm_flushes_subnormals.cc", "rms_norm", "fails", "run() leaves MXCSR 0x9fc0"},
                    PlantedFault{"rms_norm_static_scratch.cc", "rms_norm", "race",
                                 "rms_norm_static_scratch.cc:20: `(anonymous namespace)::partials` is written by task"},
                    PlantedFault{"rms_norm_shared_workspace.cc", "rms_norm", "race", "of its workspace is written"},
                    PlantedFault{"matmul_sum_of_tasks.cc", "matmul", "race", "of `out` is written by task 0"},
                    PlantedFault{"rms_norm_reads_past_row.cu", "rms_norm", "out of bounds", "is read"},
                    PlantedFault{"rms_norm_misaligned_loads.cu", "rms_norm", "misaligned", "from element 1"}),
    planted_name);

TEST(PlantedKernels, AWrongStateSizeIsTheSmallestCase) {
    const Json report = kernel_json({"check", "scan", "--file", planted_file("scan_wide_state.cc")}, kExitDifference);
    const Json sizes = report["first_failure"]["sizes"];
    EXPECT_EQ(sizes["d_state"], 256);
    for (const char* size : {"sequences", "tokens", "groups", "heads", "head_dim"}) EXPECT_EQ(sizes[size], 1) << size;
}

TEST(PlantedKernels, AWrongKeyHeadIsFoundWithTheFewestHeadsThatShowIt) {
    const Json report =
        kernel_json({"check", "delta_update", "--file", planted_file("delta_wrong_value_head.cc")}, kExitDifference);
    const Json sizes = report["first_failure"]["sizes"];
    for (const char* size : {"key_heads", "values"}) EXPECT_EQ(sizes[size], 2) << size;
    for (const char* size : {"sequences", "tokens", "key_dim", "value_dim"}) EXPECT_EQ(sizes[size], 1) << size;
}

// Right within the fast profile's tolerance, but for what they know of the world.
struct PlantedVariation {
    const char* file;
    const char* op;
    std::vector<const char*> broken;
};

void expect_variation(const PlantedVariation& planted) {
    SCOPED_TRACE(planted.file);
    // The fast profile promises no invariance: a finding is reported, and is no failure.
    const Json report =
        kernel_json({"invariance", planted.op, "--effort", "short", "--file", planted_file(planted.file)}, kExitOk);
    EXPECT_EQ(report["verdict"], "varies");
    for (const auto& [property, holds] : report["invariant"].items()) {
        const bool is_broken = std::ranges::find(planted.broken, property) != planted.broken.end();
        EXPECT_EQ(holds.get<bool>(), !is_broken) << property;
    }
}
void expect_broken(const PlantedVariation& planted) {
    const Json check =
        kernel_json({"check", planted.op, "--effort", "short", "--file", planted_file(planted.file)}, kExitOk);
    EXPECT_EQ(check["verdict"], "pass") << planted.file;
    expect_variation(planted);
}

TEST(PlantedKernels, SplittingKByBatchBreaksBatchInvarianceAlone) {
    expect_broken({"matmul_split_k_by_batch.cc", "matmul", {"batch"}});
}
TEST(PlantedKernels, OddRowsBreakBatchAndPosition) {
    expect_broken({"matmul_odd_rows.cc", "matmul", {"batch", "position"}});
}
TEST(PlantedKernels, TheOrderOfTasksBreaksThreadsAlone) {
    expect_variation({"matmul_sum_of_tasks.cc", "matmul", {"threads"}});
}
TEST(PlantedKernels, ANanInANeighbourBreaksBatchAndPosition) {
    expect_variation({"matmul_masks_by_zero.cc", "matmul", {"batch", "position"}});
}
TEST(PlantedKernels, TheSizeOfPagesCountsAmongThreads) {
    expect_broken({"attention_sums_by_page.cc", "attention", {"threads"}});
}
TEST(PlantedKernels, AlignmentCountsAmongThreads) {
    expect_broken({"rms_norm_knows_alignment.cc", "rms_norm", {"threads"}});
}
TEST(PlantedKernels, TheSizeOfBlocksCountsAmongThreads) {
    expect_broken({"rms_norm_knows_block_size.cu", "rms_norm", {"threads"}});
}
TEST(PlantedKernels, TheSizeOfTheGpuCountsAmongThreads) {
    expect_broken({"rms_norm_split_by_grid.cu", "rms_norm", {"threads"}});
}
TEST(PlantedKernels, ASumInOrderOfArrivalIsNotRunToRunDeterministic) {
    expect_variation({"rms_norm_sums_in_arrival.cu", "rms_norm", {"run"}});
    const Json race =
        kernel_json({"race", "rms_norm", "--file", planted_file("rms_norm_sums_in_arrival.cu")}, kExitDifference);
    EXPECT_EQ(race["verdict"], "not deterministic");
    EXPECT_THAT(race["first_failure"]["detail"].get<std::string>(),
                testing::HasSubstr("in another order of blocks and warps"));
}
TEST(PlantedKernels, ADeterministicScanThatDependsOnItsChunk) {
    expect_broken({"scan_chunk_start.cc", "scan", {"chunk"}});
}
TEST(PlantedKernels, ADeterministicDeltaNetThatDependsOnItsChunk) {
    expect_broken({"delta_chunk_start.cc", "delta_update", {"chunk"}});
}

// What a kernel refuses is passed over, and does not end what is asked.
TEST(PlantedKernels, AKernelThatRefusesSingleRowsDependsOnItsBatch) {
    expect_broken({"matmul_split_k_of_two_rows.cc", "matmul", {"batch"}});
}
TEST(PlantedKernels, AScanOfEvenRowsThatDependsOnItsChunk) {
    expect_broken({"scan_chunks_of_even_rows.cc", "scan", {"chunk"}});
}
// It begins every sequence from zeros, and so continues no chunk.
TEST(PlantedKernels, APropertyWithoutEvidenceIsNotTriedAndDoesNotPass) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/scan.cc");
    const std::string field = ".supports = nullptr";
    source.replace(source.find(field), field.size(),
                   ".supports = [](const verbatim_kernel*, verbatim_args args) -> int32_t {\n"
                   "        return args.scan->states_in == nullptr;\n    }");
    const std::string file = scratch.write("mine.cc", source);
    const Json report = kernel_json({"invariance", "scan", "--effort", "short", "--file", file}, kExitNotAllCompared);
    EXPECT_EQ(report["verdict"], "not tried");
    EXPECT_EQ(report["outcome"], "not_all_compared");
    EXPECT_EQ(report["invariant"]["chunk"], false);
    EXPECT_EQ(report["tried"]["chunk"]["taken"], 0);
    EXPECT_GT(report["tried"]["chunk"]["refused"], 0);
    for (const char* property : {"run", "batch", "position", "threads"}) EXPECT_EQ(report["invariant"][property], true);
    const Outcome table = run_verbatim({"kernel", "invariance", "scan", "--effort", "short", "--file", file});
    EXPECT_THAT(table.out, testing::ContainsRegex("chunk-invariant +not tried .it refuses"));
}

TEST(PlantedKernels, AnExpertThatDependsOnItsOtherRows) {
    expect_broken({"experts_split_by_company.cc", "experts", {"batch"}});
}

// The tasks are watched, and so chance decides nothing.
TEST(PlantedKernels, TasksThatShareStaticMemoryAreFoundWithEverySeed) {
    for (int seed = 1; seed <= 10; ++seed) {
        const Json report = kernel_json({"check", "rms_norm", "--effort", "short", "--seed", std::to_string(seed),
                                         "--file", planted_file("rms_norm_static_scratch.cc")},
                                        kExitDifference);
        EXPECT_EQ(report["verdict"], "race") << seed;
    }
}

// The bounds grow with the number of roundings, and not further.
TEST(PlantedKernels, OneAccumulatorOverALongKPassesAndOneOfBf16DoesNot) {
    const auto check = [](const char* file, int exit_code) {
        return kernel_json(
            {"check", "matmul", "--effort", "short", "--shape", "rows=2,n=8,k=21499", "--file", planted_file(file)},
            exit_code);
    };
    const Json good = check("matmul_one_accumulator.cc", kExitOk);
    EXPECT_THAT(good["notes"][0].get<std::string>(), testing::StartsWith("bound: 4 * gamma_(K+2) * sum of |products|"));
    EXPECT_EQ(check("matmul_bf16_accumulator.cc", kExitDifference)["verdict"], "beyond the bound");
}

// CUDA's conversion keeps what the definition makes +0.
TEST(PlantedKernels, ValuesBelowTheSmallestBf16HaveRoomInTheBound) {
    const auto check = [](const char* file, int exit_code) {
        return kernel_json({"check", "matmul", "--effort", "short", "--values", "tiny", "--file", planted_file(file)},
                           exit_code);
    };
    EXPECT_EQ(check("matmul_one_accumulator.cc", kExitOk)["verdict"], "pass");
    EXPECT_EQ(check("matmul_bf16_accumulator.cc", kExitDifference)["verdict"], "beyond the bound");
}

// What it promises is the classes that it is asked for, and the report says so.
TEST(PlantedKernels, AChunkedScanPassesWithTheClassesOfValuesThatItTakes) {
    const std::string file = planted_file("scan_chunked.cc");
    const std::string values = "normal,integers,cancelling,tiny,subnormal";
    const Json report =
        kernel_json({"check", "scan", "--effort", "short", "--values", values, "--file", file}, kExitOk);
    EXPECT_EQ(report["notes"][0], "values: " + values + " alone (--values)");
    EXPECT_THAT(report["notes"][1].get<std::string>(), testing::HasSubstr("sum of |dt A|"));
    const Outcome unknown = run_verbatim({"kernel", "check", "scan", "--values", "normal,odd", "--file", file});
    EXPECT_EQ(unknown.exit_code, kExitBadUsage);
    EXPECT_THAT(unknown.err, testing::HasSubstr("\"odd\" is no class of values"));
}

// The class that was asked for, not the small integers that are easier to read.
TEST(PlantedKernels, TheSmallestCaseHasAClassOfValuesThatWasAskedFor) {
    const std::string file = planted_file("conv_drops_tail.cc");
    for (const std::string values : {"normal", "integers", "tiny"}) {
        const Json report =
            kernel_json({"check", "conv", "--effort", "short", "--values", values, "--file", file}, kExitDifference);
        EXPECT_EQ(report["first_failure"]["values"], values);
    }
}

// A lock orders tasks.
TEST(PlantedKernels, TasksThatShareALockedCountPass) {
    const Json report = kernel_json(
        {"check", "rms_norm", "--effort", "short", "--file", planted_file("rms_norm_locked_count.cc")}, kExitOk);
    EXPECT_EQ(report["verdict"], "pass");
}

TEST(PlantedKernels, AnEarlyReturnBeforeBarriersPassesWithANote) {
    const Json report = kernel_json(
        {"check", "rms_norm", "--effort", "short", "--file", planted_file("rms_norm_early_return.cu")}, kExitOk);
    EXPECT_EQ(report["verdict"], "pass");
    ASSERT_FALSE(report["notes"].empty());
    EXPECT_THAT(report["notes"][0].get<std::string>(),
                testing::MatchesRegex("rms_norm_early_return.cu:[0-9]+: .*CUDA allows it"));
}

TEST(PlantedKernels, AHangNamesItsLineAndWhatAKernelPrintsIsShown) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc");
    const size_t at = source.find("int32_t run(");
    source.insert(source.find('\n', at) + 1,
                  "    fprintf(stderr, \"I spin\\n\");\n    for (volatile int spin = 1; spin != 0;) {\n    }\n");
    source.insert(0, "#include <cstdio>\n");
    const std::string file = scratch.write("spins.cc", source);
    const Json report = kernel_json({"check", "rope", "--file", file}, kExitDifference, "1");
    EXPECT_EQ(report["verdict"], "hang");
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), testing::MatchesRegex("spins.cc:[0-9]+: no .*"));
    EXPECT_EQ(report["notes"], Json({"it printed: I spin"}));
}

TEST(PlantedKernels, SanitizersOfFlagsRunOrAreRefused) {
    const std::string racy = planted_file("matmul_sum_of_tasks.cc");
    const auto check = [](const std::string& op, const std::string& file, const std::string& sanitizer) {
        return run_verbatim({"kernel", "check", op, "--effort", "short", "--file", file, "--flag", sanitizer});
    };
    const Outcome good = check("rms_norm", planted_file("rms_norm_locked_count.cc"), "-fsanitize=thread");
    EXPECT_EQ(good.exit_code, kExitOk) << good.err;
    EXPECT_THAT(good.out, testing::HasSubstr("-fsanitize=thread: nothing found in 16 calls on 4 threads"));
    // What it does with memory that it allocates is known to the sanitizer alone.
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cc");
    const size_t at = source.find("int32_t run(");
    source.insert(
        source.find('\n', at) + 1,
        "    int* const table = new int[4]();\n    const volatile int beyond = table[run->num_threads > 0 ? 4 : 0];\n"
        "    (void)beyond;\n    delete[] table;\n");
    source.replace(source.find("const verbatim_run*"), 0, "");
    const Outcome bad = check("rope", scratch.write("beyond.cc", source), "-fsanitize=address");
    EXPECT_EQ(bad.exit_code, kExitDifference) << bad.out << bad.err;
    EXPECT_THAT(bad.out,
                testing::ContainsRegex("out of bounds.*\n.*beyond.cc:[0-9]+: AddressSanitizer: heap-buffer-over"));
    const Outcome emulated = check("rms_norm", planted_file("rms_norm_early_return.cu"), "-fsanitize=thread");
    EXPECT_EQ(emulated.exit_code, kExitBadInput);
    EXPECT_THAT(emulated.err, testing::HasSubstr("runs on the emulator"));
}

TEST(PlantedKernels, ARaceIsReportedWithFileAndLine) {
    const Json report =
        kernel_json({"race", "rms_norm", "--file", planted_file("rms_norm_barrier_too_few.cu")}, kExitDifference);
    EXPECT_EQ(report["verdict"], "race");
    EXPECT_THAT(report["notes"][0].get<std::string>(), testing::MatchesRegex("rms_norm_barrier_too_few.cu:[0-9]+: .*"));
}

TEST(PlantedKernels, AUselessBarrierIsNamedAndEachOtherOneIsNeeded) {
    const Json report = kernel_json(
        {"race", "rms_norm", "--mutate", "--file", planted_file("rms_norm_useless_barrier.cu")}, kExitDifference);
    EXPECT_EQ(report["verdict"], "useless barrier");
    ASSERT_EQ(report["notes"].size(), 3u);
    EXPECT_THAT(report["notes"][0].get<std::string>(), testing::HasSubstr("nobody misses it"));
    EXPECT_THAT(report["notes"][1].get<std::string>(), testing::HasSubstr("found:"));
    EXPECT_THAT(report["notes"][2].get<std::string>(), testing::HasSubstr("found:"));
}

std::vector<std::string> notes_of_mutants(const std::string& file, int exit_code, const char* op = "rms_norm") {
    return kernel_json({"race", op, "--mutate", "--effort", "short", "--file", file}, exit_code)["notes"];
}

// The lines that say "// useless" of themselves, and no others; a call that goes over two lines is at its first.
TEST(PlantedKernels, UselessBarriersAndWaitsOfEveryKindAreNamed) {
    const std::string name = "rms_norm_useless_waits.cu";
    std::istringstream source(file_bytes(planted_file(name)));
    std::vector<std::string> wanted;
    int number = 1;
    for (std::string line; std::getline(source, line); ++number) {
        if (line.ends_with("// useless")) wanted.push_back(fmt::format("{}:{}", name, number));
    }
    EXPECT_EQ(wanted.size(), 8u);
    std::vector<std::string> useless, missed;
    for (const std::string& note : notes_of_mutants(planted_file(name), kExitDifference)) {
        const std::string place = note.substr(8, note.find(' ', 8) - 8);  // behind "without "
        (note.find("nobody misses it") != std::string::npos ? useless : missed).push_back(place);
    }
    EXPECT_EQ(useless, wanted);
    EXPECT_EQ(missed.size(), 6u);
}

// A barrier in a header of one's own is left out like another one, and what no case reaches is named.
TEST(PlantedKernels, BarriersThatNoCaseReachesAreNamed) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rms_norm.cu");
    const std::string barrier = "simt::sync_block();";
    source.replace(source.find(barrier), barrier.size(), "meet(x.width);");
    const std::string include = "#include \"kernels/sandbox/cuda_kernel.h\"\n";
    source.insert(source.find(include) + include.size(), "#include \"local.h\"\n");
    const std::string header =
        "SIMT_FUNCTION void meet(long width) {\n    verbatim::simt::sync_block();\n"
        "    if (width == 123457) verbatim::simt::named_barrier(1, 64);\n}\n";
    ASSERT_EQ(scratch.write("local.h", header), scratch.path("local.h"));
    const std::vector<std::string> notes = notes_of_mutants(scratch.write("mine.cu", source), kExitOk);
    ASSERT_EQ(notes.size(), 3u);
    EXPECT_THAT(notes[0], testing::MatchesRegex("without local.h:2 sync_block.*found:.*"));
    EXPECT_THAT(notes[1], testing::MatchesRegex("without mine.cu:37 sync_block.*found:.*"));
    EXPECT_THAT(notes[2], testing::MatchesRegex("local.h:3 named_barrier.*no case reaches it"));
    // In the file itself it is as useless as a barrier without effect.
    source.replace(source.find("meet("), 5, "if (x.width == 123457) simt::sync_warp();\n        meet(");
    const Json report =
        kernel_json({"race", "rms_norm", "--mutate", "--file", scratch.write("mine.cu", source)}, kExitDifference);
    EXPECT_EQ(report["verdict"], "useless barrier");
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(),
                testing::MatchesRegex("mine.cu:34 sync_warp.*no case reaches it: it is useless.*"));
}

TEST(PlantedKernels, AKernelWithoutBarriersIsReported) {
    const std::string file = VERBATIM_SOURCE_DIR "/kernels/sandbox/naive/rope.cu";
    EXPECT_EQ(notes_of_mutants(file, kExitOk, "rope"), std::vector<std::string>{"it has no barriers and no waits"});
}

// Places are reported without a source, too.
TEST(PlantedKernels, BarriersOfALibraryAndOfBuiltinKernelsAreLeftOut) {
    const ScratchFolder folder;
    const auto library = compile_kernel(planted_file("rms_norm_useless_barrier.cu"), {}, folder);
    ASSERT_TRUE(library.has_value());
    const std::vector<std::string> notes = notes_of_mutants(library->library, kExitDifference);
    ASSERT_EQ(notes.size(), 3u);
    EXPECT_THAT(notes[0],
                testing::MatchesRegex("without .*rms_norm_useless_barrier.cu:[0-9]+ sync_block.*misses it.*"));
    EXPECT_THAT(notes[1], testing::ContainsRegex("found: rms_norm_useless_barrier.cu:[0-9]+: "));
    const Json ours = kernel_json({"race", "rms_norm", "--mutate", "--effort", "short"}, kExitOk);
    ASSERT_GE(ours["notes"].size(), 3u);
    for (const Json& note : ours["notes"]) {
        EXPECT_THAT(note.get<std::string>(), testing::MatchesRegex("without kernels/cuda/ops/.*found:.*"));
    }
}

// A property without evidence has not passed.
TEST(PlantedKernels, AKernelThatRefusesEverythingDoesNotPass) {
    const tests::ScratchFolder scratch;
    const std::string file = planted_file("rope_takes_nothing.cc");
    const std::vector<std::vector<std::string>> commands = {
        {"check", "rope", "--file", file},
        {"invariance", "rope", "--file", file},
        {"perf", "rope", "--file", file, "--buffer", "4MiB"},
        {"roofline", "rope", "--file", file, "--buffer", "4MiB", "--plot", scratch.path("roof.svg")}};
    for (const std::vector<std::string>& command : commands) {
        SCOPED_TRACE(command[0]);
        const Json report = kernel_json(command, kExitNotAllCompared);
        EXPECT_EQ(report["verdict"], "takes no shape that was tried");
        EXPECT_EQ(report["cases"], 0);
    }
}

// A failure that is written as a case fails again, with the same verdict, and alone.
TEST(PlantedKernels, ACaseFileRepeatsTheFailure) {
    const tests::ScratchFolder scratch;
    const std::string path = scratch.path("case.json");
    const std::string file = planted_file("scan_wide_state.cc");
    kernel_json({"check", "scan", "--file", file, "--case-out", path}, kExitDifference);
    const Json again = kernel_json({"check", "scan", "--file", file, "--case", path}, kExitDifference);
    EXPECT_EQ(again["verdict"], "wrong bits");
    EXPECT_EQ(again["cases"], 1);
    kernel_json({"check", "scan", "--case", path}, kExitOk);
}

}  // namespace
}  // namespace verbatim::tools
