// The CPU executor on models with weights in blocks: equal to the reference, bit for bit, in chunks, batches and with
// states that are attached again.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_executor.h"
#include "reference/model/presets.h"
#include "reference/reference_executor.h"
#include "tests/reference/executor_scene.h"
#include "tests/reference/lockstep_scene.h"
#include "tests/reference/quantised_model.h"

namespace verbatim::cpu {
namespace {

using tests::draw_tokens;
using tests::first_different_bit;
using tests::iota;
using tests::QuantisedMatrices;
using tests::SceneModel;
using tests::uncached;

constexpr CpuExecutorConfig kBlocksExecutor{.pools = {.block_size = 16, .num_blocks = 64, .num_state_rows = 8},
                                            .num_threads = 2};

// A preset, and the formats of its matrices in turn: those of GGUF files, or of quantised safetensors.
struct QuantisedCase {
    const char* preset;
    std::vector<std::string_view> formats = {"Q8_0", "Q4_0"};
    reference::Profile profile = reference::Profile::kExact;
    bool by_matrix = false;  // an expert's gate and up have different formats
    int32_t hidden_size = 64;
    bool tiled = false;  // value heads of delta nets, as in GGUF files
};

reference::ModelConfig config_of(const QuantisedCase& of) {
    reference::ModelConfig config = tests::in_whole_blocks(*reference::preset(of.preset), of.hidden_size);
    for (reference::LayerConfig& layer : config.layers)
        if (layer.delta) layer.delta->tiled_values = of.tiled;
    return config;
}

std::string_view id_of(reference::Profile profile) {
    if (profile == reference::Profile::kExactFp8) return "exact.fp8/1";
    return profile == reference::Profile::kExactInt8 ? "exact.int8/2" : "exact.blocks/1";
}

class QuantisedCpu : public testing::TestWithParam<QuantisedCase> {
protected:
    QuantisedCpu()
        : model_(config_of(GetParam()), 43),
          quantised_(model_.model, GetParam().formats, GetParam().by_matrix),
          reference_(model_.model.config, model_.model.weights, GetParam().profile) {
        config_.profile = GetParam().profile;
    }
    SceneModel model_;
    QuantisedMatrices quantised_;
    reference::ReferenceModel reference_;
    CpuExecutorConfig config_ = kBlocksExecutor;
};

TEST_P(QuantisedCpu, AgreesWithTheReferenceInEveryOperation) {
    ASSERT_TRUE(model_.model.weights.quantised);
    CpuExecutor cpu(model_.model.config, model_.model.weights, config_);
    reference::ReferenceExecutor reference(model_.model.config, model_.model.weights, 1, GetParam().profile);
    reference::LockstepExecutor lockstep(cpu, reference);
    tests::expect_identical(model_, lockstep, {.num_prefilled = 61, .num_more = 9});
    EXPECT_GT(lockstep.counts().compared_operations, 70);
}

TEST_P(QuantisedCpu, ARowDoesNotDependOnItsBatch) {
    CpuExecutor cpu(model_.model.config, model_.model.weights, config_);
    tests::Scene scene(model_, cpu, 16);
    scene.next();
    const std::vector<int64_t> lengths = {1, 30, 7, 17};
    for (int32_t i = 0; i < 4; ++i) {
        scene.start({.slot = i, .tokens = model_.tokens(lengths[i], static_cast<uint64_t>(i))});
        scene.compute({.slot = i,
                       .num_new_tokens = static_cast<int32_t>(lengths[i]),
                       .num_sampled_positions = 1,
                       .state_dst = i,
                       .new_blocks = iota(4 * i, (lengths[i] + 15) / 16)});
    }
    scene.step();
    for (int32_t i = 0; i < 4; ++i) {
        const auto wanted = uncached(reference_, model_.tokens(lengths[i], static_cast<uint64_t>(i)));
        const auto got = cpu.logits(SequenceSlot{i}, 0);
        const int64_t different = first_different_bit(got, wanted.logits);
        EXPECT_EQ(different, -1) << i << ": logit " << different << " is " << got[different] << ", uncached "
                                 << wanted.logits[different];
    }
}

TEST_P(QuantisedCpu, HeadsHaveAnArithmeticOfTheirOwn) {
    const CpuExecutor cpu(model_.model.config, model_.model.weights, config_);
    const reference::ReferenceExecutor reference(model_.model.config, model_.model.weights, 1, GetParam().profile);
    EXPECT_EQ(cpu.numerics_id(), id_of(GetParam().profile));
    EXPECT_EQ(reference.numerics_id(), cpu.numerics_id());
    const SceneModel plain(*reference::preset(GetParam().preset), 43);
    EXPECT_EQ(CpuExecutor(plain.model.config, plain.model.weights, kBlocksExecutor).numerics_id(), "exact/1");
}

constexpr reference::Profile kExact = reference::Profile::kExact;
constexpr reference::Profile kInt8 = reference::Profile::kExactInt8;
constexpr reference::Profile kFp8 = reference::Profile::kExactFp8;
const std::vector<std::string_view> kScaledFormats = {"FP8_E4M3", "INT4_ZERO", "INT8", "INT4"};

INSTANTIATE_TEST_SUITE_P(
    Families, QuantisedCpu,
    testing::Values(QuantisedCase{"tiny-granite"}, QuantisedCase{"tiny-granite-moe"}, QuantisedCase{"tiny-llama"},
                    QuantisedCase{"tiny-mamba2"}, QuantisedCase{"tiny-nemotron-h"}, QuantisedCase{"tiny-qwen3.5-moe"},
                    QuantisedCase{"tiny-granite", kScaledFormats}, QuantisedCase{"tiny-llama", {"INT_ORDER", "INT4"}},
                    QuantisedCase{"tiny-llama", kScaledFormats}, QuantisedCase{"tiny-qwen3.5", kScaledFormats},
                    QuantisedCase{"tiny-qwen3.5", {"Q8_0", "Q4_0"}, kExact, false, 64, true},
                    QuantisedCase{"tiny-granite", {"Q8_0", "Q4_0", "FP8_E4M3"}, kInt8},
                    QuantisedCase{"tiny-granite-moe", {"Q4_0", "Q8_0"}, kInt8},
                    QuantisedCase{"tiny-llama", {"Q8_0", "Q4_0"}, kInt8},
                    QuantisedCase{"tiny-mamba2", {"Q4_0", "Q8_0"}, kInt8},
                    QuantisedCase{"tiny-llama", {"INT8", "INT4", "INT4_ZERO", "FP8_E4M3"}, kInt8},
                    QuantisedCase{"tiny-qwen3.5", {"INT4", "INT8"}, kInt8},
                    QuantisedCase{"tiny-granite-moe", {"INT8", "Q8_0", "INT4_ZERO"}, kInt8},
                    QuantisedCase{"tiny-nemotron-h", {"Q8_0", "Q4_0"}, kInt8},
                    QuantisedCase{"tiny-qwen3.5-moe", {"Q8_0", "Q4_0"}, kInt8},
                    QuantisedCase{"tiny-granite-moe", {"BF16", "Q8_0"}, kExact, true},
                    QuantisedCase{"tiny-granite-moe", {"BF16", "Q8_0"}, kInt8, true},
                    QuantisedCase{"tiny-granite-moe", {"Q8_0", "Q4_K"}, kInt8, true, 256},
                    QuantisedCase{"tiny-qwen3.5-moe", {"Q4_K", "Q8_0"}, kInt8, true, 256},
                    QuantisedCase{"tiny-granite", {"FP8_ROW", "BF16", "FP8_GROUPS", "FP8_E4M3"}, kFp8, false, 256},
                    QuantisedCase{"tiny-llama", {"FP8_GROUPS", "INT8"}, kFp8},
                    QuantisedCase{"tiny-qwen3.5", {"FP8_ROW"}, kFp8, false, 256},
                    QuantisedCase{"tiny-llama", {"FP8_STATIC"}, kFp8},
                    QuantisedCase{"tiny-granite", {"FP8_STATIC", "FP8_ROW", "BF16"}, kFp8, false, 256},
                    QuantisedCase{"tiny-granite-moe", {"FP8_STATIC"}, kFp8, true, 256},
                    QuantisedCase{"tiny-qwen3.5-moe", {"FP8_GROUPS", "FP8_ROW", "BF16"}, kFp8, true, 256}),
    [](const auto& info) {
        std::string name =
            fmt::format("{}_{}_{}", info.param.preset, info.param.formats.front(), reference::name(info.param.profile));
        std::ranges::replace_if(
            name, [](char c) { return c == '-' || c == '.'; }, '_');
        return name;
    });

}  // namespace
}  // namespace verbatim::cpu
