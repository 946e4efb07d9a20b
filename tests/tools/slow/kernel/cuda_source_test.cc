// CUDA source as its authors write it (tests/cuda_sources): it compiles, runs and is checked as it stands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kernels/sandbox/compile_kernel.h"
#include "kernels/sandbox/cuda_source.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using Json = nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;

std::string source_file(const std::string& name) { return VERBATIM_SOURCE_DIR "/tests/cuda_sources/" + name; }

Outcome run_source(const char* verb, const char* op, const std::string& file, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"kernel", verb, op, "--effort", "short", "--file", file, "--format", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_verbatim(arguments);
}

struct Source {
    const char* file;
    const char* op;
};
class CudaSources : public testing::TestWithParam<Source> {};

TEST_P(CudaSources, PassAsTheyStand) {
    const auto [file, op] = GetParam();
    for (const char* verb : {"check", "race"}) {
        const Outcome outcome = run_source(verb, op, source_file(file));
        EXPECT_EQ(outcome.exit_code, kExitOk) << verb << outcome.err << outcome.out;
        EXPECT_THAT(outcome.out, testing::Not(testing::HasSubstr("they do the same work")));
    }
}

// It refuses rows of no multiple of 16 bytes.
TEST(CudaSource, RaceTriesTwelveShapesOfAKernelThatRefusesMost) {
    const Outcome outcome = run_source("race", "matmul", source_file("matmul.multicast.cu"));
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err << outcome.out;
    EXPECT_THAT(outcome.out, testing::ContainsRegex("\"cases\": 12,\n  \"unsupported\": [1-9]"));
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, CudaSources,
    testing::Values(Source{"rms_norm_kernel.cu", "rms_norm"}, Source{"fused_add_rms_norm_kernel.cu", "rms_norm"},
                    Source{"activation_kernels.cu", "activation"}, Source{"pos_encoding_kernels.cu", "rope"},
                    Source{"features.cu", "rms_norm"}, Source{"ptx.cu", "rms_norm"},
                    Source{"matmul.tensor_cores.cu", "matmul"}, Source{"rms_norm.bulk_copies.cu", "rms_norm"},
                    Source{"rms_norm.vectors.cu", "rms_norm"}, Source{"conv.causal_conv1d.cu", "conv"},
                    Source{"matmul.split_k.cu", "matmul"}, Source{"matmul.warpgroups.cu", "matmul"},
                    Source{"rms_norm.cluster_pushes.cu", "rms_norm"}, Source{"attention.paged_decode.cu", "attention"},
                    Source{"matmul.stream_k.cu", "matmul"}, Source{"l2_norm.named_barriers.cu", "l2_norm"},
                    Source{"choose.radix_select.cu", "choose"}, Source{"matmul.wmma.cu", "matmul"},
                    Source{"head_digest.coalesced.cu", "head_digest"}, Source{"rms_norm.grid_sync.cu", "rms_norm"},
                    Source{"rms_norm.pipeline.cu", "rms_norm"}, Source{"rms_norm.two_streams.cu", "rms_norm"},
                    Source{"rms_norm.clusters.cu", "rms_norm"}, Source{"l2_norm.dependent.cu", "l2_norm"},
                    Source{"rms_norm.cluster_ptx.cu", "rms_norm"}, Source{"add_routed.bulk_store.cu", "add_routed"}),
    [](const auto& source) {
        std::string name = source.param.file;
        name = name.substr(0, name.rfind('.'));
        std::ranges::replace(name, '.', '_');
        return name;
    });

// The counter of tiles is for the last block to set back: every block that does so begins with all tiles again, and
// writes the same results.
TEST(CudaSource, BlocksThatDoTheSameWorkAreNamed) {
    std::ifstream source(source_file("router.persistent.cu"));
    std::string text((std::istreambuf_iterator<char>(source)), std::istreambuf_iterator<char>());
    const std::string last = "if (atomicInc(&blocks_left, gridDim.x - 1) == gridDim.x - 1) ";
    ASSERT_NE(text.find(last), std::string::npos);
    const sandbox::ScratchFolder folder;
    const std::string file = (folder.path() / "mine.cu").string(), one = (folder.path() / "case.json").string();
    std::ofstream(one) << R"({"op": "router", "sizes": {"rows": 3, "experts": 9, "k": 40}, "values": "normal",
        "seed": 1, "placing": "aligned", "in_place": false, "num_threads": 4})";
    const std::string note = "`out`: a block writes what another block of the launch has written, and has not read";
    std::ofstream(file) << text;
    EXPECT_THAT(run_source("check", "router", file, {"--case", one}).out, testing::Not(HasSubstr(note)));
    text.replace(text.find(last), last.size(), "");
    std::ofstream(file) << text;
    const Outcome outcome = run_source("check", "router", file, {"--case", one});
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.out << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr(note));
}

// One change to a correct kernel, and what is found at which kind of line.
struct Planted {
    const char* what;
    const char* file;
    const char* op;
    const char* from;
    const char* to;
    const char* verdict;
    const char* detail;
};

class CudaSourceFaults : public testing::TestWithParam<Planted> {};

TEST_P(CudaSourceFaults, AreFoundAndNamed) {
    const Planted& planted = GetParam();
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(source_file(planted.file));
    const size_t at = source.find(planted.from);
    ASSERT_NE(at, std::string::npos);
    source.replace(at, std::string(planted.from).size(), planted.to);
    const Outcome outcome = run_source("check", planted.op, scratch.write("mine.cu", source));
    EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err << outcome.out;
    const Json report = Json::parse(outcome.out, nullptr, false);
    EXPECT_EQ(report["verdict"], planted.verdict) << outcome.out;
    EXPECT_THAT(report["first_failure"]["detail"].get<std::string>(), ContainsRegex(planted.detail));
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, CudaSourceFaults,
    testing::Values(
        Planted{"MissingBarrier", "rms_norm_kernel.cu", "rms_norm", "    __syncthreads();\n", "\n", "race",
                "mine.cu:[0-9]+: .*of a shared array is"},
        Planted{"ReadBehindTheRow", "rms_norm_kernel.cu", "rms_norm", "idx < hidden_size", "idx <= hidden_size",
                "out of bounds", "mine.cu:[0-9]+: .*of device memory"},
        // The host's processor refuses it, too.
        Planted{"MisalignedVectors", "rms_norm_kernel.cu", "rms_norm", "aligned ? hidden_size", "true ? hidden_size",
                "misaligned", "mine.cu:[0-9]+: .*16 bytes at byte [0-9]+ of"},
        Planted{"UnwrittenShared", "rms_norm_kernel.cu", "rms_norm", "if (threadIdx.x == 0) {",
                "if (threadIdx.x == 99) {", "uninitialised", "mine.cu:[0-9]+: .*of a shared array is read"},
        Planted{"DivergentShuffle", "fused_add_rms_norm_kernel.cu", "rms_norm", "val = warpReduceSum<T>(val);",
                "if (lane < 16)\n        val += __shfl_xor_sync(0xffffffff, val, 16);\n    else\n        val += "
                "__shfl_xor_sync(0xffffffff, val, 16);",
                "divergent", "a shuffle: it is at line [0-9]+, lane [0-9]+ at [0-9]+ .mine.cu:[0-9]+"},
        Planted{"StaticMemory", "fused_add_rms_norm_kernel.cu", "rms_norm", "__shared__ float s_variance;",
                "static float s_variance;", "out of bounds", "mine.cu:[0-9]+: .*which is no __shared__ array"},
        Planted{"TooLittleSharedMemory", "fused_add_rms_norm_kernel.cu", "rms_norm", "32 * sizeof(float), stream",
                "2 * sizeof(float), stream", "out of bounds", "mine.cu:[0-9]+: .*dynamic shared memory"},
        // The rest of what asynchronous copies and matrices get wrong is in tests/kernel_corpus.
        Planted{"NoWaitGroup", "matmul.tensor_cores.cu", "matmul", "cp_async_wait<1>();\n        __sync", "__sync",
                "not awaited", "mine.cu:27: .*a shared array is touched while a copy to it is under way"},
        Planted{"MisalignedRow", "matmul.tensor_cores.cu", "matmul", "kk + lane / 16 * 8]", "kk + lane / 16 * 8 + 4]",
                "misaligned", "mine.cu:27: .*16 bytes at byte [0-9]+ of"},
        Planted{"HostReadsDevice", "matmul.tensor_cores.cu", "matmul", "const int k = int(op.x.width)",
                "const int k = int(op.x.width + (op.x.data[0] > 1e30f))", "bypasses the emulator",
                "mine.cu:[0-9]+: byte 0 of [0-9]+ bytes of device memory is read by run.. on the host"},
        Planted{"VariableOfAllBlocks", "ptx.cu", "rms_norm", "const float scale = ",
                "rows_done = 1; const float scale = ", "race", "mine.cu:[0-9]+: .*of a __device__ variable is"},
        Planted{"PtxReadsTheNextArray", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ float v; asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : )"
                R"("r"(uint32_t(__cvta_generic_to_shared(partials)) + 256)); } const float scale = )",
                "out of bounds", "mine.cu:[0-9]+: .*byte 256 of 256 bytes of a shared array"},
        Planted{"PtxRowBehindTheArray", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ unsigned r; asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, )"
                R"([%1];" : "=r"(r) : "r"(uint32_t(__cvta_generic_to_shared(matrices)) + 16384)); )"
                R"(} const float scale = )",
                "out of bounds", "mine.cu:[0-9]+: .*byte 16384 of 512 bytes of a shared array"},
        Planted{"PtxReadsItsOutput", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ int a; asm volatile("add.s32 %0, %0, %1;" : "=r"(a) : "r"(5)); } const float )"
                R"(scale = )",
                "uninitialised", "mine.cu:[0-9]+: .*register 0 of an asm is read"},
        Planted{"PtxReadsALocal", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ int a; asm volatile("{.reg .b32 t; add.s32 %0, t, 7;}" : "=r"(a)); } const )"
                R"(float scale = )",
                "uninitialised", "mine.cu:[0-9]+: .*register 1 of an asm is read"},
        Planted{"PtxLeavesAnOutput", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ float v; asm volatile("{.reg .pred p; setp.ne.b32 p, %2, 0; @p ld.global.f32 )"
                R"(%0, [%1];}" : "=f"(v) : "l"(x), "r"(0)); } const float scale = )",
                "uninitialised", "mine.cu:[0-9]+: .*%0 is an output of an asm"},
        Planted{"PtxSourceOfMoreBytes", "ptx.cu", "rms_norm", "const float scale = ",
                R"(asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2; cp.async.wait_all;" )"
                R"(::"r"(uint32_t(__cvta_generic_to_shared(shared + threadIdx.x))), "l"(x), )"
                R"("r"(400)); const float scale = )",
                "out of bounds", "mine.cu:[0-9]+: .*cp.async of 4 bytes has a source of 400"},
        Planted{"BarrierIsWrittenOver", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ __shared__ uint64_t bar; const uint32_t at = __cvta_generic_to_shared(&bar); )"
                R"(if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" )"
                R"(::"r"(at)); __syncthreads(); if (threadIdx.x == 0) bar = 4; } const float scale )"
                R"(= )",
                "barrier misused", "mine.cu:[0-9]+: .*an initialised barrier is written over"},
        Planted{"AnswerOfATestIsIgnored", "ptx.cu", "rms_norm", "const float scale = ",
                R"({ __shared__ uint64_t bar; const uint32_t at = __cvta_generic_to_shared(&bar); if )"
                R"((threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(at)); )"
                R"(shared[threadIdx.x] = 0; __syncthreads(); shared[threadIdx.x] = 1; asm )"
                R"(volatile("mbarrier.arrive.shared.b64 _, [%0]; {.reg .pred p; )"
                R"(mbarrier.test_wait.parity.shared.b64 p, [%0], 0;}" ::"r"(at)); if (shared[63 - )"
                R"(threadIdx.x] > 5.0f) return; } const float scale = )",
                "race", "mine.cu:[0-9]+: .*of a shared array is"},
        Planted{"LastBlockWithoutAFence", "ptx.cu", "rms_norm", "        __threadfence();\n", "\n", "race",
                "mine.cu:[0-9]+: .*of a __device__ variable is"},
        Planted{
            "VectorsOfAnArrayOfFloats", "ptx.cu", "rms_norm", "__shared__ alignas(16) float shared[256]",
            "__shared__ float shared[256]", "misaligned",
            "mine.cu:[0-9]+: .*[0-9]+ bytes at byte [0-9]+ of 1024 bytes of a shared array, which is declared with an "
            "alignment of 4"},
        Planted{"WaitsForALaterBlock", "ptx.cu", "rms_norm", "const float scale = ",
                "if (threadIdx.x == 0) while (atomicAdd(&tickets, 0u) != 12345u) {} const float scale = ", "hang",
                "mine.cu:[0-9]+: .*a value is read 16384 times, and no thread can change it"},
        Planted{"WaitsForAValueInPtx", "ptx.cu", "rms_norm", "const float scale = ",
                R"(unsigned v; do asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(&tickets)); )"
                R"(while (v == 0); const float scale = )",
                "hang", "mine.cu:[0-9]+: .*a value is read 16384 times"},
        Planted{"PlainStoreOfAFlag", "ptx.cu", "rms_norm",
                R"(asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(at), "r"(5) : "memory");)", "flag = 5;",
                "race", "mine.cu:[0-9]+: .*of a shared array is"},
        Planted{"RelaxedStoreOfAFlag", "ptx.cu", "rms_norm", "st.release.cta.shared.u32", "st.relaxed.cta.shared.u32",
                "race", "mine.cu:[0-9]+: .*of a shared array is read while another thread writes it"},
        Planted{"BlocksBeyondTheirBounds", "ptx.cu", "rms_norm", "__launch_bounds__(64, 2)", "__launch_bounds__(32, 2)",
                "launch limit", "mine.cu:[0-9]+: .*blocks of 64 threads, and its __launch_bounds__ are 32"},
        Planted{"MoreSharedMemoryThanAskedFor", "fused_add_rms_norm_kernel.cu", "rms_norm",
                "32 * sizeof(float), stream", "49156, stream", "launch limit",
                "fused_add_rms_norm_kernel: .*4[0-9]+ bytes of shared memory, and a block has 49152 unless"},
        Planted{"StaticAndDynamicSharedMemory", "fused_add_rms_norm_kernel.cu", "rms_norm",
                "32 * sizeof(float), stream", "49152, stream", "launch limit",
                "mine.cu:[0-9]+: .*49156 bytes of shared memory, and a block has 49152 unless"},
        Planted{"MoreStaticSharedMemoryThanThereIs", "ptx.cu", "rms_norm", "__shared__ float partials[64]",
                "__shared__ float partials[12288]", "launch limit", "bytes of shared arrays, and a block has 49152"},
        Planted{"ReadOnlyMemoryIsWritten", "rms_norm_kernel.cu", "rms_norm", "__ldg(weight + idx);",
                "__ldg(weight + idx); if (idx == 0) out[blockIdx.x * out_stride] += 0 * __ldg(out + blockIdx.x * "
                "out_stride);",
                "race", "mine.cu:[0-9]+: .*is read as read-only memory"},
        Planted{"OtherValuesOfAWarp", "rms_norm.vectors.cu", "rms_norm", "smem[ty] = sum_sq;",
                "smem[ty] = sum_sq + tx;", "race", "mine.cu:[0-9]+: .*is written by two threads with nothing between"},
        Planted{"TooManyThreads", "pos_encoding_kernels.cu", "rope", "dim3 block(std::min<int64_t>(",
                "dim3 block(2048 + std::min<int64_t>(", "launch limit", "CUDA takes 1 to 1024"}),
    [](const auto& planted) { return std::string(planted.param.what); });

TEST(CudaSource, BarriersOfPlainSourceAreLeftOutAndNeeded) {
    const Outcome outcome = run_source("race", "rms_norm", source_file("rms_norm_kernel.cu"), {"--mutate"});
    EXPECT_THAT(outcome.out, ContainsRegex("without rms_norm_kernel.cu:[0-9]+ sync_block.*found: "));
}

TEST(CudaSource, WhatIsNotTakenIsOneLine) {
    const auto why = [](const std::string& line) {
        const auto translated = sandbox::translate_cuda("my.cu", "__global__ void f() {}\n" + line + "\n");
        return translated ? "" : translated.error().message;
    };
    EXPECT_EQ(why("void g() { asm volatile(\"bar.sync 0;\"); }"), "");
    EXPECT_THAT(why("void g() { asm volatile(\"{\\n\"\n\"tcgen05.fence::before_thread_sync;\"); }"),
                HasSubstr("my.cu:3: `tcgen05.fence::before_thread_sync` in inline PTX is not taken"));
    EXPECT_THAT(why("void g() { asm(\"wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%0}, %1, %1, 1;\" : "
                    "\"+f\"(x) : \"l\"(y)); }"),
                HasSubstr("`wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16` in inline PTX is not taken"));
    EXPECT_THAT(
        why("void g() { asm(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %0}, %1, %1, 1, 1, 1, 0, "
            "0;\" : \"+f\"(x) : \"l\"(y)); }"),
        HasSubstr("operand 1 is a vector of 4, not of 2"));
    EXPECT_THAT(why("void g() { asm(\"mov.u32 %0, %1;\" : \"=r\"(x)); }"),
                HasSubstr("my.cu:2: `%1`: the asm has no such operand"));
    EXPECT_THAT(why("void g() { asm(\"mov.u64 %0, %%globaltimer;\" : \"=l\"(x)); }"), HasSubstr("`%globaltimer`"));
    EXPECT_THAT(why("void g() { asm(\"bra L;\"); }"), HasSubstr("my.cu:2: `L` is no label of this asm"));
    EXPECT_THAT(why("void g() { asm(\"mov.u32 %0, 1\" : \"=r\"(x)); }"), HasSubstr("does not end with a semicolon"));
    EXPECT_THAT(why("void g() { asm(\"mov.u32 %0;\" : \"=r\"(x)); }"), HasSubstr("`mov.u32` has 2 operands or more"));
    EXPECT_THAT(why("void g() { asm(\"\" : [x] \"=r\"(x)); }"), HasSubstr("my.cu:2: nvcc takes no `asm` with named"));
    EXPECT_THAT(why("void g() { asm(\"\" : \"=m\"(x)); }"), HasSubstr("my.cu:2: `=m`: this constraint"));
    EXPECT_THAT(why("void g() { asm(\"bar.sync \" NAME \";\"); }"), HasSubstr("my.cu:2: the PTX of `asm`"));
    EXPECT_THAT(why("void g() { asm(\"bar.sync 0;\" }"), HasSubstr("my.cu:2: `asm` is written"));
    EXPECT_THAT(why("void g() { asm(R\"({\n mov.u32 %0, 1;\n})\" : \"=r\"(x)); }"),
                HasSubstr("my.cu:2: the PTX of `asm` is not taken but as string literals"));
    EXPECT_EQ(why("const char* text = R\"-(asm(\" ) -- cudaMallocHost)-\";"), "");
    EXPECT_THAT(
        why("void g() { asm(\"cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
            "[%1, {%2}], [%0];\" :: \"r\"(x), \"l\"(y), \"r\"(z)); }"),
        HasSubstr("::bytes` has 2 coordinates, not 1"));
    EXPECT_THAT(
        why("void g() { asm(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1}, [%2];\" : \"=r\"(x), \"=r\"(y) "
            ": \"r\"(z)); }"),
        HasSubstr("operand 1 is a vector of 4, not of 2"));
    EXPECT_THAT(why("void g() { asm(\"st.shared.v4.f32 [%0], {%1, %1};\" :: \"r\"(x), \"f\"(y)); }"),
                HasSubstr("operand 2 is a vector of 4, not of 2"));
    EXPECT_THAT(why("void g() { asm(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%0,%0,%0}, {%1,%1}, "
                    "{%1}, {%0,%0,%0,%0};\" : \"+f\"(x) : \"r\"(y)); }"),
                HasSubstr("operand 2 is a vector of 4, not of 2"));
    EXPECT_THAT(why("void g() { asm(\"add.s32 %0, {%1, %1}, 1;\" : \"=r\"(x) : \"r\"(y)); }"),
                HasSubstr("operand 2 is no vector"));
    for (const char* number : {"12abc", "0d3FF0", "0b12", "0x", "08", "99999999999999999999"}) {
        EXPECT_THAT(why(std::string("void g() { asm(\"mov.u32 %0, ") + number + ";\" : \"=r\"(x)); }"),
                    HasSubstr(std::string("`") + number + "` is no number"));
    }
    std::string braces, letters;
    for (int i = 0; i < 3000; ++i) {
        braces += "\"" + std::string(100, '{') + "\"\n";
        letters += "\"" + std::string(100, 'a') + "\"\n";
    }
    EXPECT_THAT(why("void g() { asm(\n" + braces + "); }"), HasSubstr("braces in PTX are at most 64 deep"));
    EXPECT_THAT(why("void g() { asm(\"mov.b32 %0, \"" + braces + ": \"=r\"(x)); }"), HasSubstr("my.cu:2"));
    EXPECT_THAT(why("void g() { asm(\"ld.global.L1::\"" + letters + "); }"), HasSubstr("aaa...` in inline PTX is not"));
    EXPECT_THAT(why("int " + std::string(400000, 'a') + ";"), HasSubstr("my.cu:2: a line has at most 4096"));
    EXPECT_THAT(why("#include <torch/all.h>"), HasSubstr("my.cu:2: <torch/all.h> is not taken"));
    EXPECT_THAT(why("#include <cuda/semaphore>"), HasSubstr("my.cu:2: <cuda/semaphore> is not taken"));
    EXPECT_THAT(why("#include <cuda_awbarrier_primitives.h>"), HasSubstr("my.cu:2: <cuda_awbarrier_primitives.h> is"));
    EXPECT_EQ(why("#include <device_launch_parameters.h>"), "");
    EXPECT_THAT(why("void g() { cudaMallocManaged(&p, 4); }"), HasSubstr("my.cu:2: `cudaMallocManaged`"));
    EXPECT_THAT(why("void g() { cudaFreeHost(p); }"), HasSubstr("my.cu:2: `cudaFreeHost`"));
    EXPECT_THAT(why("void g() { cudaMallocFromPoolAsync(&p, 4, q, s); }"),
                HasSubstr("my.cu:2: `cudaMallocFromPoolAsync`"));
    for (const char* line :
         {"void g() { cudaMallocAsync(&p, 4, s); cudaFreeAsync(p, s); }",
          "void g() { cudaMalloc(&p, 4); cudaFree(p); }", "void g() { auto c = cooperative_groups::this_cluster(); }",
          "__cluster_dims__(2) __global__ void g() {}", "void g() { unsigned m = __activemask(); }"}) {
        EXPECT_EQ(why(line), "") << line;
    }
    EXPECT_THAT(why("int a = cudaLaunchAttributeClusterSchedulingPolicyPreference;"), HasSubstr("of clusters the dim"));
    EXPECT_EQ(why("void g() { asm(\"barrier.cluster.arrive;\"); }"), "");
    EXPECT_THAT(why("void g() { asm(\"tcgen05.wait::ld.sync.aligned;\"); }"),
                HasSubstr("`tcgen05.wait::ld.sync.aligned` in inline PTX"));
    EXPECT_THAT(why("void g() { asm(\"{.reg .b32 d; .reg .pred p; mov.b32 d|p, 1;}\"); }"),
                HasSubstr("`mov.b32`: operand 1 has no predicate"));
    EXPECT_THAT(why("void g() { cudaMemcpy2DToArray(p); }"), HasSubstr("my.cu:2: `cudaMemcpy2DToArray`"));
    EXPECT_EQ(why("void g() { cudaMemcpy2D(p, 4, q, 4, 4, 1, k); }"), "");
    EXPECT_EQ(why("__device__ int counter = 0;"), "");
    EXPECT_EQ(why("void g() { cudaMemcpyToSymbol(p, q, 4); }"), "");
    EXPECT_THAT(why("extern __device__ int counter;"), HasSubstr("my.cu:2: `extern __device__`"));
    EXPECT_THAT(why("void g() { f<<<1, 32; }"), HasSubstr("my.cu:2: a launch is written"));
    EXPECT_THAT(why("void g() { extern __shared__ float one; }"), HasSubstr("my.cu:2: dynamic shared memory"));
    for (const char* line :
         {"// asm volatile(\"\");", "const char* text = \"cudaMallocHost\";", "/* __device__ int x; */",
          "__device__ int f(int x);", "int g(int asmx) { return asmx << 3 >> 3; }"}) {
        EXPECT_EQ(why(line), "") << line;
    }
    const tests::ScratchFolder scratch;
    const std::string file = scratch.write("my.cu", "__global__ void f() { asm(\"clusterlaunch;\"); }\n");
    const Outcome outcome = run_source("check", "rope", file);
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("my.cu:1: `clusterlaunch` in inline PTX is not taken"));
    EXPECT_THAT(outcome.err, testing::Not(HasSubstr("g++")));
}

// The fused norm with instances that differ by a number, launched by `launches` instead of as it stands.
std::string fused_norm_launched(const std::string& launches) {
    std::string source = file_bytes(source_file("fused_add_rms_norm_kernel.cu"));
    for (const auto& [from, to] : {std::pair<std::string, std::string>{"template <typename scalar_t>",
                                                                       "template <typename scalar_t, int kWay = 0>"},
                                   {"static int64_t workspace_bytes",
                                    R"(using Kernel = void (*)(float*, float*, const float*, int64_t, float, int);
struct Plan { Kernel kernel, others[2]; };
template <typename K, typename... Arguments>
void launch_with(K kernel, dim3 grid, size_t bytes, Arguments... arguments) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<grid, 128, bytes>>>(arguments...);
}
#define NOTHING op.out.data, residual, op.weight, op.out.stride, op.eps, 0
#define ARGUMENTS op.out.data, residual, op.weight, op.out.stride, op.eps, int(op.x.width)
#define ASK(kernel, bytes) cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
static int64_t workspace_bytes)"},
                                   {"    LAUNCH_FUSED_ADD_RMS_NORM(float)", launches}}) {
        EXPECT_NE(source.find(from), std::string::npos);
        source.replace(source.find(from), from.size(), to);
    }
    return source;
}

TEST(CudaSource, SharedMemoryIsAskedForByTheKernelsAddress) {
    const tests::ScratchFolder scratch;
    const Outcome outcome = run_source("check", "rms_norm", scratch.write("mine.cu", fused_norm_launched(R"(
    ASK((fused_add_rms_norm_kernel<float, 0>), 60000)
    cudaFuncSetAttribute(fused_add_rms_norm_kernel<float, 0>, cudaFuncAttributePreferredSharedMemoryCarveout, 100);
    fused_add_rms_norm_kernel<<<grid, block, 60000>>>(ARGUMENTS);
    launch_with(fused_add_rms_norm_kernel<float, 1>, grid, 60001, NOTHING);
    const auto kernel = &fused_add_rms_norm_kernel<float, 2>;
    ASK((const void*)kernel, 60002)
    kernel<<<grid, block, 60002>>>(NOTHING);
    const Plan plan = {fused_add_rms_norm_kernel<float, 3>,
                       {fused_add_rms_norm_kernel<float, 4>, fused_add_rms_norm_kernel<float, 5>}};
    const Plan* const plans = &plan;
    ASK(plan.kernel, 60003)
    plan.kernel<<<grid, block, 60003>>>(NOTHING);
    ASK(plan.others[0], 60004)
    plans->others[0]<<<grid, block, 60004>>>(NOTHING);
    ASK(plan.others[1], 60005)
    (*plans->others[1])<<<grid, block, 60005>>>(NOTHING);
)")));
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err << outcome.out;
}

// As much as was asked for, and no more, and for this instance alone.
TEST(CudaSource, SharedMemoryOfAnotherKernelIsNoneOfThisOne) {
    for (const char* const launch :
         {"ASK((fused_add_rms_norm_kernel<float, 0>), 60000) ASK((fused_add_rms_norm_kernel<float, 1>), 59996) "
          "fused_add_rms_norm_kernel<float, 1><<<grid, block, 60000>>>(ARGUMENTS);",
          "ASK((fused_add_rms_norm_kernel<float, 0>), 60000) "
          "const auto kernel = fused_add_rms_norm_kernel<float, 1>; kernel<<<grid, block, 60000>>>(ARGUMENTS);",
          "ASK((fused_add_rms_norm_kernel<float, 1>), 59996) "
          "fused_add_rms_norm_kernel<<<grid, block, 60000>>>(ARGUMENTS);"}) {
        const tests::ScratchFolder scratch;
        const Outcome outcome = run_source("check", "rms_norm", scratch.write("mine.cu", fused_norm_launched(launch)));
        EXPECT_THAT(outcome.out, HasSubstr("60000 bytes of shared memory, and a block has 49152 unless")) << launch;
    }
}

// Headers in the file's folder are translated, too, and branches for other machines may have anything.
TEST(CudaSource, HeadersOfTheFolderAndDeadBranches) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(source_file("fused_add_rms_norm_kernel.cu"));
    const size_t begin = source.find("template <typename T>"), end = source.find("__global__ void prepare_kernel");
    ASSERT_NE(end, std::string::npos);
    scratch.write("reduction.cuh", "#pragma once\n" + source.substr(begin, end - begin));
    source =
        "#include \"reduction.cuh\"\n#ifdef USE_ROCM\nvoid f() { cudaMalloc(&p, 4); asm(\"s_waitcnt 0;\"); }\n"
        "#elif __CUDA_ARCH__ >= \\\n    1000\nvoid g() { asm(\"tcgen05.fence;\"); }\n#else\n#define LIVE 1\n#endif\n"
        "static_assert(LIVE == 1);\n" +
        source.substr(0, begin) + source.substr(end);
    const std::string file = scratch.write("mine.cu", source);
    const Outcome outcome = run_source("check", "rms_norm", file);
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err << outcome.out;
    scratch.write("reduction.cuh", "#pragma once\n__device__ void h() { asm(\"tcgen05.fence;\"); }\n");
    EXPECT_THAT(run_source("check", "rms_norm", file).err, HasSubstr("reduction.cuh:2: `tcgen05.fence` in"));
}

// Both passes of the compiler have the same flags and folders: what is compiled is seen.
TEST(CudaSource, BranchesAreThoseThatAreCompiled) {
    for (const std::string condition :
         {"defined __OPTIMIZE__", "__has_include(<beside.h>)", "defined __SANITIZE_THREAD__",
          "1 /* a comment\n of two lines */", "defined MINE"}) {
        SCOPED_TRACE(condition);
        const tests::ScratchFolder scratch;
        scratch.write("beside.h", "\n");
        std::string source = file_bytes(source_file("rms_norm_kernel.cu"));
        const std::string from = "    if (threadIdx.x == 0) {\n";
        ASSERT_NE(source.find(from), std::string::npos);
        source.replace(source.find(from), from.size(), "#if " + condition + "\n    variance *= 2;\n#endif\n" + from);
        const Outcome outcome = run_source("check", "rms_norm", scratch.write("mine.cu", source), {"--flag", "-DMINE"});
        EXPECT_EQ(outcome.exit_code, kExitDifference) << outcome.err;
    }
}

TEST(CudaSource, ADeclarationMayHaveBranches) {
    const tests::ScratchFolder scratch;
    std::string source = file_bytes(source_file("fused_add_rms_norm_kernel.cu"));
    const std::string from = "extern __shared__ ";
    const size_t at = source.find(from);
    ASSERT_NE(at, std::string::npos);
    const size_t end = source.find(';', at) + 1;
    const std::string declaration = source.substr(at + from.size(), end - at - from.size());
    source.replace(at, end - at, from + "\n#ifdef NONE\n int none[];\n#else\n" + declaration + "\n#endif\n");
    const Outcome outcome = run_source("check", "rms_norm", scratch.write("mine.cu", source));
    EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err << outcome.out;
}

// The first pass fails: its message, of the user's file and line.
TEST(CudaSource, WhatThePreprocessorRefusesIsReported) {
    const tests::ScratchFolder scratch;
    const std::string file = scratch.write("my.cu", "#if 1\n#endif\n#if 1 +\n#endif\n__global__ void f() {}\n");
    const Outcome outcome = run_source("check", "rms_norm", file);
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("my.cu:3:"));
    const std::string good = source_file("rms_norm_kernel.cu");
    EXPECT_THAT(run_source("check", "rms_norm", scratch.write("good.cu", "#if 1\n#endif\n" + file_bytes(good)),
                           {"--flag", "-dM"})
                    .err,
                HasSubstr("does not print what it compiles"));
}

TEST(CudaSource, AnUnknownNameOfCudaIsOneLine) {
    const tests::ScratchFolder scratch;
    const auto why = [&](const std::string& line) {
        return run_source("check", "rope",
                          scratch.write("my.cu", "#include <cub/cub.cuh>\n__global__ void f() {\n" + line + "\n}\n"))
            .err;
    };
    EXPECT_THAT(why("__nv_tex_surf_handler(1);"), HasSubstr("my.cu:3: `__nv_tex_surf_handler` is not taken"));
    EXPECT_THAT(why("cub::DeviceScan::ExclusiveSum(1);"), HasSubstr("my.cu:3: `cub::DeviceScan` is not taken"));
    EXPECT_THAT(why("cub::BlockScan<int, 64>::TempStorage t; cub::BlockScan<int, 64>(t).Max(1);"),
                HasSubstr("my.cu:3: `cub::BlockScan<int, 64>::Max` is not taken"));
    EXPECT_THAT(why("cub::WarpScan<int>::TempStorage t; cub::WarpScan<int>(t).InclusiveSum(1);"),
                HasSubstr("my.cu:3: `cub::WarpScan<int>::InclusiveSum(int)` is not taken"));
    EXPECT_THAT(why("struct Key { int a, b, c; }; using Sort = cub::BlockRadixSort<Key, 32, 1>; Sort::TempStorage t; "
                    "Key keys[1]; Sort(t).Sort(keys);"),
                HasSubstr("my.cu:3: not taken: a radix sort of CUB has keys of 1, 2, 4 or 8 bytes"));
    EXPECT_THAT(why("using T = nvcuda::wmma::precision::tf32;"),
                HasSubstr("my.cu:3: `nvcuda::wmma::precision` is not taken"));
    EXPECT_THAT(why("double2 two; atomicAdd(&two, two);"), HasSubstr("my.cu:3: not taken: no match for"));
    EXPECT_THAT(why("using namespace nvcuda::wmma; fragment<matrix_a, 16, 16, 8, half, row_major> a;"),
                HasSubstr("my.cu:3: not taken: a shape that wmma does not have, or that is not taken"));
    EXPECT_THAT(why("f<<<1, 1>>>(1);"), HasSubstr("my.cu:3: a launch: too many arguments to function"));
    EXPECT_THAT(why("void (*g)(int) = nullptr; g<<<1, 1>>>(\"\");"),
                HasSubstr("my.cu:3: a launch: invalid conversion"));
    EXPECT_THAT(why("cudaLaunchConfig_t one; one.gridDim = 1; cudaLaunchKernelEx(&one, f, 1);"),
                HasSubstr("my.cu:3: not taken: a launch has another number of arguments than its kernel"));
    EXPECT_THAT(why("cudaGraph_t graph;"), HasSubstr("my.cu:3: `cudaGraph_t` is not taken"));
    EXPECT_THAT(why("cudaGetDevice(nullptr);"), testing::Not(HasSubstr("g++ ends")));
    EXPECT_THAT(why("mine(1);"), HasSubstr("g++ ends with 1"));
}

// Kernels that a macro defines, and memory that malloc would map by itself.
TEST(CudaSource, MemoryOfTheHostIsFoundInKernelsOfMacros) {
    const tests::ScratchFolder scratch;
    const auto said = [&](const std::string& argument, const std::string& launch) {
        std::string source = file_bytes(source_file("rms_norm_kernel.cu"));
        const std::string end = "VERBATIM_EXPORT";
        source.insert(
            source.find(end),
            "#include <vector>\n#define KERNEL(name) static __global__ void name\nKERNEL(mine)(const float* x) "
            "{\n    if (*x == 3.5f) __trap();\n}\nusing Kernel = void (*)(const float*);\n"
            "static int32_t mine_first(const verbatim_kernel* kernel, const verbatim_run* one) {\n"
            "    const float value = 1.0f;\n    const std::vector<float> table(1 << 18, value);\n"
            "    Kernel pointer = mine;\n    " +
                launch + "(" + argument + ");\n    return run(kernel, one);\n}\n");
        const size_t at = source.rfind("run");
        source.replace(at, 3, "mine_first");
        return run_source("check", "rms_norm", scratch.write("mine.cu", source)).out;
    };
    for (const std::string launch : {"mine<<<1, 32>>>", "pointer<<<1, 32>>>", "(*pointer)<<<1, 32>>>"}) {
        EXPECT_THAT(said("&value", launch), HasSubstr("a variable of the host is read by a kernel")) << launch;
        EXPECT_THAT(said("table.data()", launch), HasSubstr("memory is read that is no tensor")) << launch;
    }
    EXPECT_THAT(said("one->args.rms_norm->weight", "(*pointer)<<<1, 32>>>"), HasSubstr("\"verdict\": \"pass\""));
}

TEST(CudaSource, ALaunchByAKernelIsALaunchLimit) {
    const tests::ScratchFolder scratch;
    const std::string file = scratch.write(
        "my.cu",
        "#include <device_launch_parameters.h>\n#include \"kernels/sandbox/kernel.h\"\n"
        "__global__ void inner(float* x) { __builtin_assume(x != nullptr); if (x == nullptr) __trap(); }\n"
        "__global__ void outer(float* x) {\n    inner<<<1, 1>>>(x);\n}\n"
        "static int32_t run(const verbatim_kernel*, const verbatim_run* run) {\n"
        "    outer<<<1, 1>>>(run->args.rms_norm->out.data);\n    return 0;\n}\n"
        "VERBATIM_EXPORT const verbatim_kernel* verbatim_kernel_at(int32_t index) {\n"
        "    static const verbatim_kernel kernel = {.abi = VERBATIM_KERNEL_ABI, .name = \"my\", "
        ".operation = \"rms_norm\", .profile = \"fast\", .machine = \"cuda\", .run = run};\n"
        "    return index == 0 ? &kernel : nullptr;\n}\n");
    const Outcome outcome = run_source("check", "rms_norm", file);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_THAT(outcome.out, HasSubstr("launch limit: it launches inner: launches by a kernel"));
}

TEST(CudaSource, MacrosOfAnAsmAreExpandedBeforeItIsRead) {
    const tests::ScratchFolder scratch;
    const auto why = [&](const std::string& source) {
        const std::string file = scratch.write("my.cu", source + "\n__global__ void f() {}\n");
        return run_source("check", "rms_norm", file).err;
    };
    EXPECT_THAT(
        why("#define FENCE(kind) \\\n    asm volatile(\"tcgen05.\" kind \";\")\nvoid g() { FENCE(\"fence\"); }"),
        HasSubstr("my.cu:3: `tcgen05.fence` in inline PTX is not taken"));
    EXPECT_THAT(why("#define IN(x) \"m\"(x)\nvoid g(int x) {\n asm(\"mov.u32 %0, %1;\" : \"=r\"(x) : IN(x)); }"),
                HasSubstr("my.cu:3: `m`: this constraint"));
    EXPECT_THAT(why("void g(int x) {\n asm(\"mov.u32 %0, %1;\" : \"=r\"(x) : INPUTS); }"),
                HasSubstr("my.cu:2: an operand of `asm` is written \"constraint\"(expression)"));
    EXPECT_THAT(why("#define SYNC(x) asm(x)\nvoid g() { SYNC(\n\"bar.sync 0;\"\n);\n asm(\"none;\"); }"),
                HasSubstr("my.cu:5: `none`"));
    EXPECT_THAT(why("void g() { asm(\"bar.sync \" NUMBER \";\"); }"), HasSubstr("my.cu:1: the PTX of `asm` is not"));
}

TEST(CudaSource, PtxAndVariablesAreTranslatedInPlace) {
    const auto translated = sandbox::translate_cuda(
        "my.cu",
        "__global__ void f() {}\n__device__ int a = 1, b[2];\n__device__ int g(int x);\n#define WAIT(n) \\\n    asm "
        "volatile( \\\n        \"cp.async.wait_group %0;\" :: \"n\"(n))\nint last;\n");
    ASSERT_TRUE(translated.has_value()) << translated.error().message;
    EXPECT_THAT(*translated, HasSubstr("static int a = 1, b[2]; [[maybe_unused]] static const bool verbatim_told_a = "
                                       "::verbatim::cuda_source::told_variable(a); [[maybe_unused]] static const bool "
                                       "verbatim_told_b = ::verbatim::cuda_source::told_variable(b);\n"));
    EXPECT_THAT(*translated, HasSubstr("__device__ int g(int x);"));
    EXPECT_THAT(*translated, HasSubstr("#define WAIT(n) \\\n    ::verbatim::cuda_source::inline_ptx("));
    EXPECT_THAT(*translated, HasSubstr("ptx_in<'n'>(n)) \\\n\nint last;"));
}

TEST(CudaSource, TranslationMovesNoLineAndKeepsTheRest) {
    const std::string source =
        "__global__ void f(float* x) {\n    extern __shared__\n        float4 all[];\n    __shared__ float a[2][3], "
        "b;\n"
        "}\nvoid g() { ns::f<float, (1 > 0)>\n<<<dim3(1, 2), 32, n * sizeof(float)>>>(x); }\n";
    const auto translated = sandbox::translate_cuda("my.cu", source);
    ASSERT_TRUE(translated.has_value()) << translated.error().message;
    EXPECT_EQ(std::count(translated->begin(), translated->end(), '\n'),
              1 + std::count(source.begin(), source.end(), '\n'));
    EXPECT_THAT(*translated,
                HasSubstr("auto& all = *static_cast<float4  (*)[]>(::verbatim::cuda_source::dynamic_shared());"));
    EXPECT_THAT(*translated,
                HasSubstr("static float a[2][3], b; ::verbatim::cuda_source::shared_array(a, __alignof__(a)); "
                          "::verbatim::cuda_source::shared_array(b, __alignof__(b));"));
    EXPECT_THAT(*translated, HasSubstr("launcher(VERBATIM_TEXT_OF(f), VERBATIM_ADDRESS_OF(ns::f<float, (1 > 0)> ), "
                                       "::verbatim::cuda_source::Config(dim3(1, 2), 32, n * sizeof(float)),"));
    const auto clusters =
        sandbox::translate_cuda("my.cu", "__global__ void __cluster_dims__(2, kRows) f(int x) {\n}\n");
    ASSERT_TRUE(clusters.has_value()) << clusters.error().message;
    EXPECT_THAT(*clusters, HasSubstr("f(int x) { ::verbatim::cuda_source::kernel_begins(2, kRows);\n}\n"));
}

}  // namespace
}  // namespace verbatim::tools
