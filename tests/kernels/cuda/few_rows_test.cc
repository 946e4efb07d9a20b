// Steps of a few rows: matmuls are one launch with the norm before them and the activation or the residual stream
// behind them, and the bits are those of one operation after another.
#include <gtest/gtest.h>

#include "kernels/cuda/emulated_device.h"
#include "tests/kernels/cuda/decoding.h"
#include "tests/kernels/cuda/matvec_case.h"
#include "tests/kernels/cuda/schedules.h"

namespace verbatim::cuda {
namespace {

using reference::Architecture;
using reference::MambaGate;
using tests::SceneModel;

// Each kernel; one chunk, several, and more than a block takes at once; outputs of one panel and of several.
void expect_definitions(const std::vector<MatvecShape>& shapes) {
    for (const simt::Schedule schedule : schedules()) {
        simt::Emulator emulator(schedule, 5);
        const auto device = make_emulated_device(emulator);
        for (size_t i = 0; i < shapes.size(); ++i) {
            EXPECT_TRUE(MatvecCase(*device, shapes[i]).is_as_defined()) << i << ", schedule " << name_of(schedule);
        }
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

TEST(CudaFewRows, AMatvecHasTheBitsOfOneOperationAfterAnother) {
    expect_definitions({
        {1, 70, {200, 66, 3}, MatvecEnd::kWrite, true},
        {2, 600, {64, 1, 65}, MatvecEnd::kWrite, true},
        {4, 1300, {130}, MatvecEnd::kAddBranch, true},
        {3, 96, {66}, MatvecEnd::kAddBranch, true, MambaGate::kGateThenNorm, 3},
        {1, 33, {40}, MatvecEnd::kAddBranch, true, MambaGate::kNormThenGate},
        {2, 520, {64}, MatvecEnd::kAddBranch, true, MambaGate::kNormThenGate, 2},
        {4, 64, {64}, MatvecEnd::kAddBranch, true, MambaGate::kGateOnly},
        {1, kMatvecNormWidth, {40}, MatvecEnd::kAddBranch, true, MambaGate::kGateThenNorm},
        {1, 8500, {70}, MatvecEnd::kAddBranch},
        {2, 300, {131}, MatvecEnd::kAddBranch},
        {1, 2048, {200, 200}, MatvecEnd::kSwiglu, true},
        {2, 33, {67, 67}, MatvecEnd::kSwiglu, true},
        {4, 500, {96, 96}, MatvecEnd::kSwiglu, true},
        {1, 8500, {18, 18}, MatvecEnd::kSwiglu},
        {3, 257, {131}, MatvecEnd::kReluSquared, true},
    });
}

// The same on tensor cores: tiles that are not full, chunks in one turn and in several, up to eight rows.
TEST(CudaFewRows, AMatvecOnTensorCoresHasTheBitsOfOneOperationAfterAnother) {
    std::vector<MatvecShape> shapes = {
        {1, 70, {200, 66, 3}, MatvecEnd::kWrite, true},
        {2, 600, {64, 1, 65}, MatvecEnd::kWrite, true},
        {7, 1100, {40, 17, 16}, MatvecEnd::kWrite},
        {4, 1300, {130}, MatvecEnd::kAddBranch, true},
        {3, 96, {66}, MatvecEnd::kAddBranch, true, MambaGate::kGateThenNorm, 3},
        {2, 520, {64}, MatvecEnd::kAddBranch, true, MambaGate::kNormThenGate, 2},
        {4, 64, {64}, MatvecEnd::kAddBranch, true, MambaGate::kGateOnly},
        {1, kMatvecNormWidth, {40}, MatvecEnd::kAddBranch, true, MambaGate::kGateThenNorm},
        {8, 4700, {70}, MatvecEnd::kAddBranch},
        {1, 2048, {200, 200}, MatvecEnd::kSwiglu, true},
        {2, 33, {67, 67}, MatvecEnd::kSwiglu, true},
        {8, 2600, {18, 18}, MatvecEnd::kSwiglu},
        {5, 500, {96, 96}, MatvecEnd::kSwiglu},
        {3, 257, {131}, MatvecEnd::kReluSquared, true},
        {6, 40, {17}, MatvecEnd::kReluSquared},
    };
    for (MatvecShape& shape : shapes) shape.profile = reference::Profile::kTensorSm90;
    expect_definitions(shapes);
}

// The launches of a step of granite's rows. A Mamba layer: norm and in_proj, convolution and time steps, scan, gated
// norm with out_proj and the residual stream. An attention layer: norm with q, k and v, the KV write, attention's runs,
// their merge, o with the residual stream. Both: norm with gate, up and swiglu, and down with the residual stream. With
// more rows than each block can norm redundantly, the norms are separate launches.
void expect_launches(reference::Profile profile, size_t num_sequences, int64_t of_mamba, int64_t of_attention) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
        reference::ModelConfig config = reference::draw_small_config(Architecture::kGraniteHybrid, seed);
        int64_t in_layers = 0;
        for (reference::LayerConfig& layer : config.layers) {
            if (layer.attention) layer.attention->rope = {};
            ASSERT_TRUE(layer.mlp && !layer.moe);
            layer.mlp->d_ff = 150;  // more outputs than a block has: what one leaves, another must not be reading
            in_layers += layer.mamba ? of_mamba : of_attention;
        }
        const SceneModel model(config, seed, profile);
        simt::Emulator emulator;
        const auto device = make_emulated_device(emulator);
        Decoding decoding(model, *device, std::vector<int64_t>(num_sequences, 3));
        const bool scales = config.logits_multiplier != 1.0 || config.logits_divisor != 1.0;
        // The embedding, the last norm, the logits and the look at them, a draw.
        const int64_t outside = 1 + 1 + 1 + 1 + 5 + (scales ? 1 : 0);
        EXPECT_EQ(decoding.step(num_sequences).launches - outside, in_layers) << "seed " << seed;
        EXPECT_EQ(decoding.step(num_sequences).graph_launches, 1);
        EXPECT_TRUE(emulator.findings().empty()) << emulator.findings().front().text;
    }
}

TEST(CudaFewRows, AMambaLayerIsSixLaunchesAndAnAttentionLayerSeven) {
    expect_launches(reference::Profile::kExact, 1, 6, 7);
    expect_launches(reference::Profile::kTensorSm90, 1, 6, 7);
    expect_launches(reference::Profile::kTensorSm90, 4, 6, 7);
}

TEST(CudaFewRows, UpToEightRowsOnTensorCoresAreNineLaunchesALayer) {
    expect_launches(reference::Profile::kTensorSm90, 5, 9, 9);
    expect_launches(reference::Profile::kTensorSm90, 8, 9, 9);
}

TEST(CudaFewRows, MoreRowsLaunchEachOperation) {
    expect_launches(reference::Profile::kExact, 5, 13, 15);
    expect_launches(reference::Profile::kTensorSm90, 9, 13, 15);
}

}  // namespace
}  // namespace verbatim::cuda
