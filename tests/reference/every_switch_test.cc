// Every family with every switch (biases, gates, groups, conv widths, time_step_limit, rotary kinds, multipliers, tied
// or not) in random combinations: the exact model is as near to the double-precision one as rounding to bf16 leaves it.
// The two share the config and the weights, and no arithmetic. The goldens say that the double-precision model is
// right.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/double_model.h"
#include "reference/model/random_model.h"
#include "reference/reference_model.h"

namespace verbatim::reference {
namespace {

constexpr int64_t kNumTokens = 21;

std::vector<TokenId> tokens_for(const ModelConfig& config, uint64_t seed) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < kNumTokens; ++i)
        tokens.push_back(static_cast<TokenId>((seed * 977 + static_cast<uint64_t>(i) * 41) %
                                              static_cast<uint64_t>(config.vocab_size)));
    return tokens;
}

// rms of the difference of the logits / rms of the logits
double exact_error(const Model& model, const Model& exact_model, uint64_t seed) {
    const std::vector<TokenId> tokens = tokens_for(model.config, seed);
    const DoubleOutput truth = run_double_model(model, tokens);
    ReferenceModel reference(exact_model.config, exact_model.weights);
    ReferenceSequence sequence(reference);
    sequence.append(tokens);
    EXPECT_EQ(sequence.fault_layer(), std::nullopt) << "seed " << seed;
    double error = 0, size = 0;
    const ConstFloatRows logits = sequence.logits();
    for (int64_t r = 0; r < logits.num_rows; ++r) {
        for (int64_t i = 0; i < logits.width; ++i) {
            const double wanted = truth.logits[static_cast<size_t>(r * logits.width + i)];
            error += std::pow(logits.row(r)[i] - wanted, 2);
            size += wanted * wanted;
        }
    }
    return std::sqrt(error / size);
}

constexpr double kMostByRounding = 0.05;
constexpr double kSeen = 1.5;  // times the error that rounding leaves

TEST(EverySwitch, TheExactModelIsNearTheDoubleOneInEveryFamily) {
    for (int family = 0; family < 7; ++family) {
        for (uint64_t seed = 0; seed < 25; ++seed) {
            const Model model = make_random_model(draw_small_config(static_cast<Architecture>(family), seed), seed);
            EXPECT_LT(exact_error(model, model, seed), kMostByRounding)
                << architecture_name(model.config.architecture) << ", seed " << seed;
        }
    }
}

// An expert that flips moves its row and all later ones by more than rounding does: of many models, most have none.
TEST(EverySwitch, TheExactModelIsNearTheDoubleOneWithExperts) {
    for (const Architecture family :
         {Architecture::kGraniteHybrid, Architecture::kNemotronH, Architecture::kQwen35Moe, Architecture::kQwen3Next}) {
        int near = 0;
        for (uint64_t seed = 0; seed < 25; ++seed) {
            const Model model = make_random_model(draw_small_moe_config(family, seed), seed);
            near += exact_error(model, model, seed) < kMostByRounding;
        }
        EXPECT_GE(near, 15) << architecture_name(family);
    }
}

// The same weights with one switch of the exact model turned: the error shows it.
TEST(EverySwitch, EverySwitchChangesTheResult) {
    std::map<std::string, int> seen;
    const auto turn = [&](const std::string& name, uint64_t seed, const auto& change) {
        const Model model = make_random_model(draw_small_config(seed), seed);
        Model turned = make_random_model(model.config, seed);
        bool applies = false;
        for (LayerConfig& layer : turned.config.layers) applies |= change(layer);
        if (!applies || !validate(turned.config).empty()) return;
        seen[name] += exact_error(model, turned, seed) > kSeen * exact_error(model, model, seed);
    };
    for (uint64_t seed = 0; seed < 60; ++seed) {
        turn("gate", seed, [](LayerConfig& layer) {
            if (!layer.mamba || layer.mamba->gate == MambaGate::kGateOnly) return false;
            layer.mamba->gate =
                layer.mamba->gate == MambaGate::kGateThenNorm ? MambaGate::kNormThenGate : MambaGate::kGateThenNorm;
            return true;
        });
        turn("time_step_limit", seed, [](LayerConfig& layer) {
            if (!layer.mamba) return false;
            layer.mamba->dt_max = 1e-4;
            return true;
        });
        turn("rope", seed, [](LayerConfig& layer) {
            if (!layer.attention || layer.attention->rope.kind == RopeKind::kNone) return false;
            layer.attention->rope = {};
            return true;
        });
        turn("mlp kind", seed, [](LayerConfig& layer) {
            if (!layer.mlp || layer.mlp->kind != MlpKind::kGatedSilu) return false;
            layer.mlp->kind = MlpKind::kReluSquared;
            return true;
        });
    }
    for (const char* name : {"gate", "time_step_limit", "rope", "mlp kind"}) EXPECT_GT(seen[name], 0) << name;
}

// A bias that is there is added: with zeros in its place the exact model moves away from the double one.
TEST(EverySwitch, EveryBiasReachesTheLogits) {
    using BiasOf = std::function<VectorView&(LayerWeights&)>;
    const std::map<std::string, BiasOf> biases = {
        {"q", [](LayerWeights& w) -> VectorView& { return w.attention.q_bias; }},
        {"k", [](LayerWeights& w) -> VectorView& { return w.attention.k_bias; }},
        {"v", [](LayerWeights& w) -> VectorView& { return w.attention.v_bias; }},
        {"o", [](LayerWeights& w) -> VectorView& { return w.attention.o_bias; }},
        {"in", [](LayerWeights& w) -> VectorView& { return w.mamba.in_bias; }},
        {"conv", [](LayerWeights& w) -> VectorView& { return w.mamba.conv_bias; }},
        {"out", [](LayerWeights& w) -> VectorView& { return w.mamba.out_bias; }},
        {"gate", [](LayerWeights& w) -> VectorView& { return w.mlp.gate_bias; }},
        {"up", [](LayerWeights& w) -> VectorView& { return w.mlp.up_bias; }},
        {"down", [](LayerWeights& w) -> VectorView& { return w.mlp.down_bias; }},
    };
    const std::vector<float> zeros(4096);
    for (const auto& [name, bias_of] : biases) {
        int seen = 0;
        for (uint64_t seed = 0; seed < 100 && seen == 0; ++seed) {
            const Model model = make_random_model(draw_small_config(seed), seed);
            Model without = make_random_model(model.config, seed);
            bool applies = false;
            for (LayerWeights& layer : without.weights.layers) {
                VectorView& bias = bias_of(layer);
                applies |= !bias.empty();
                bias = VectorView(zeros).first(bias.size());
            }
            seen += applies && exact_error(model, without, seed) > kSeen * exact_error(model, model, seed);
        }
        EXPECT_GT(seen, 0) << name;
    }
}

}  // namespace
}  // namespace verbatim::reference
