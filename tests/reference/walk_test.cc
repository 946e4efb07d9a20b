#include "reference/walk.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "reference/forward_pass.h"
#include "reference/model/random_model.h"

namespace verbatim::reference {
namespace {

using testing::ElementsAre;

// Writes down what it is asked to do.
class Diary final : public WalkBackend {
public:
    std::vector<std::string> entries;
    std::vector<std::string> observed;

    void begin(const WalkBatch& batch) override {
        note("begin {} rows {} logits", batch.num_rows(), batch.num_logit_rows());
    }
    void embed(float multiplier) override { note("embed {}", multiplier); }
    void norm(int32_t layer, Norm norm, float) override { note("norm {} {}", layer, static_cast<int>(norm)); }
    void matmul(MatrixId id, Buffer in, float in_multiplier, Buffer out) override {
        note("matmul {} {} {}*{} {}", id.layer, matrix_name(id.matrix), buffer_name(in), in_multiplier,
             buffer_name(out));
    }
    void scale(Buffer buffer, Columns columns, float multiplier) override {
        note("scale {} {}+{} {}", buffer_name(buffer), columns.first, columns.count, multiplier);
    }
    void conv(int32_t layer, const MambaConfig&) override { note("conv {}", layer); }
    void scan(int32_t layer, const MambaConfig&) override { note("scan {}", layer); }
    void check_state(int32_t layer) override { note("check_state {}", layer); }
    void gated_norm(int32_t layer, const MambaConfig&, float) override { note("gated_norm {}", layer); }
    void rope(int32_t layer, const AttentionConfig&) override { note("rope {}", layer); }
    void store_kv(int32_t layer, const AttentionConfig&) override { note("store_kv {}", layer); }
    void attention(int32_t layer, const AttentionConfig&, float scale) override {
        note("attention {} {}", layer, scale);
    }
    void activation(int32_t layer, const MlpConfig&) override { note("activation {}", layer); }
    void add_branch(float branch, float residual) override { note("add_branch {} {}", branch, residual); }
    void scale_logits(float multiplier, float divisor) override { note("scale_logits {} {}", multiplier, divisor); }
    void check_logits() override { note("check_logits"); }
    void route(int32_t layer, const MoeConfig&) override { note("route {}", layer); }
    void choose(int32_t layer, const MoeConfig&) override { note("choose {}", layer); }
    void experts(int32_t layer, const MoeConfig&, Buffer in, Buffer out) override {
        note("experts {} {} {}", layer, buffer_name(in), buffer_name(out));
    }
    void add_routed(bool gated) override { note("add_routed {}", static_cast<int>(gated)); }
    void delta_conv(int32_t layer, const DeltaConfig&) override { note("delta_conv {}", layer); }
    void delta_gates(int32_t layer, const DeltaConfig&) override { note("delta_gates {}", layer); }
    void l2_norm(int32_t layer, const DeltaConfig&) override { note("l2_norm {}", layer); }
    void delta_update(int32_t layer, const DeltaConfig&) override { note("delta_update {}", layer); }
    void delta_norm(int32_t layer, const DeltaConfig&, float) override { note("delta_norm {}", layer); }
    void head_norm(int32_t layer, const AttentionConfig&, float) override { note("head_norm {}", layer); }
    void output_gate(int32_t layer, const AttentionConfig&) override { note("output_gate {}", layer); }
    void observe(const WalkPoint& point) override { observed.push_back(to_string(point)); }

private:
    template <typename... Args>
    void note(fmt::format_string<Args...> format, Args&&... args) {
        entries.push_back(fmt::format(format, std::forward<Args>(args)...));
    }
};

ModelConfig small_config() {
    ModelConfig config;
    config.vocab_size = 10;
    config.hidden_size = 4;
    config.max_position_embeddings = 100;
    return config;
}

MambaConfig small_mamba() {
    MambaConfig mamba;
    mamba.n_heads = 2;
    mamba.head_dim = 4;
    mamba.d_state = 3;
    return mamba;
}

AttentionConfig small_attention(int32_t n_heads, double scale) {
    AttentionConfig attention;
    attention.n_heads = n_heads;
    attention.n_kv_heads = 1;
    attention.head_dim = 2;
    attention.scale = scale;
    return attention;
}

constexpr WalkSequence kTwoRows{0, 2, 0};
const std::vector<TokenId> kTwoTokens = {1, 2};

std::vector<std::string> entries_of(const ModelConfig& config, const std::vector<int32_t>& logit_rows) {
    Diary diary;
    walk(config, forward_pass(config), {kTwoTokens, {&kTwoRows, 1}, logit_rows}, diary);
    return diary.entries;
}

TEST(Walk, ALayerWithBothMixersRunsMambaThenAttentionOnTheSameNormedRows) {
    ModelConfig config = small_config();
    config.embedding_multiplier = 12.0;
    config.logits_divisor = 3.0;
    LayerConfig layer;
    layer.mamba = small_mamba();
    layer.mamba->in_multiplier = 1.25;
    layer.mamba->multipliers = {.z = 0.5, .x = 1.0, .b = 0.25, .c = 2.0, .dt = 4.0};
    layer.mamba->out_multiplier = 0.75;
    layer.attention = small_attention(2, 0.5);
    layer.attention->in_multiplier = 0.5;
    layer.attention->key_multiplier = 8.0;
    layer.attention->rope = {.kind = RopeKind::kDefault, .n_rotary_dims = 2};
    layer.mlp = MlpConfig{.kind = MlpKind::kGatedSilu, .d_ff = 5};
    layer.mlp->out_multiplier = 2.0;
    config.residual_multiplier = 0.25;
    config.layers = {layer};
    EXPECT_THAT(entries_of(config, {1}),
                ElementsAre("begin 2 rows 1 logits", "embed 12", "norm 0 0", "matmul 0 in_proj normed*1.25 projected",
                            "scale projected 0+8 0.5", "scale projected 16+3 0.25", "scale projected 19+3 2",
                            "scale projected 22+2 4", "conv 0", "scan 0", "check_state 0", "gated_norm 0",
                            "matmul 0 out_proj mixed*1 branch", "add_branch 0.75 0.25", "matmul 0 q normed*0.5 q",
                            "matmul 0 k normed*0.5 k", "matmul 0 v normed*0.5 v", "scale k 0+2 8", "rope 0",
                            "store_kv 0", "attention 0 0.5", "matmul 0 o mixed*1 branch", "add_branch 1 0.25",
                            "norm 0 1", "matmul 0 gate normed*1 gate", "matmul 0 up normed*1 up", "activation 0",
                            "matmul 0 down up*1 branch", "add_branch 2 0.25", "norm 1 2",
                            "matmul 1 lm_head head*1 logits", "scale_logits 1 3", "check_logits"));
}

TEST(Walk, ALayerOfOneBranchHasOneNorm) {
    ModelConfig config = small_config();
    config.layers.resize(2);
    config.layers[0].mlp = MlpConfig{.kind = MlpKind::kReluSquared, .d_ff = 5};
    config.layers[1].attention = small_attention(1, 1.0);
    EXPECT_THAT(entries_of(config, {}),
                ElementsAre("begin 2 rows 0 logits", "embed 1", "norm 0 1", "matmul 0 up normed*1 up", "activation 0",
                            "matmul 0 down up*1 branch", "add_branch 1 1", "norm 1 0", "matmul 1 q normed*1 q",
                            "matmul 1 k normed*1 k", "matmul 1 v normed*1 v", "store_kv 1", "attention 1 1",
                            "matmul 1 o mixed*1 branch", "add_branch 1 1"));
}

TEST(Walk, RoutedExpertsComeBeforeTheSharedOneAndAreAddedToIt) {
    ModelConfig config = small_config();
    config.layers.resize(1);
    config.layers[0].mlp = MlpConfig{.kind = MlpKind::kReluSquared, .d_ff = 5};
    config.layers[0].moe = MoeConfig{.n_experts = 4, .n_chosen = 2, .d_ff = 3, .d_latent = 2, .shared_gate = true};
    EXPECT_THAT(entries_of(config, {}),
                ElementsAre("begin 2 rows 0 logits", "embed 1", "norm 0 1", "route 0", "choose 0",
                            "matmul 0 latent_in normed*1 latent", "experts 0 latent latent_sum",
                            "matmul 0 latent_out latent_sum*1 routed", "matmul 0 up normed*1 up", "activation 0",
                            "matmul 0 down up*1 branch", "matmul 0 shared_gate normed*1 shared_gate", "add_routed 1",
                            "add_branch 1 1"));
    config.layers[0].mlp.reset();
    config.layers[0].moe = MoeConfig{.n_experts = 4, .n_chosen = 2, .d_ff = 3};
    EXPECT_THAT(entries_of(config, {}), ElementsAre("begin 2 rows 0 logits", "embed 1", "norm 0 1", "route 0",
                                                    "choose 0", "experts 0 normed branch", "add_branch 1 1"));
    Diary diary;
    walk(config, forward_pass(config), {kTwoTokens, {&kTwoRows, 1}, {}}, diary);
    EXPECT_THAT(diary.observed, ElementsAre("layer -1 embed residual", "layer 0 norm normed", "layer 0 route router",
                                            "layer 0 choose chosen", "layer 0 experts branch",
                                            "layer 0 add_branch residual", "layer 0 layer residual"));
}

TEST(Walk, ReportsWhatEachOperationWrote) {
    ModelConfig config = small_config();
    config.layers.resize(1);
    config.layers[0].mlp = MlpConfig{.kind = MlpKind::kReluSquared, .d_ff = 5};
    Diary diary;
    walk(config, forward_pass(config), {kTwoTokens, {&kTwoRows, 1}, std::vector<int32_t>{0}}, diary);
    EXPECT_THAT(
        diary.observed,
        ElementsAre("layer -1 embed residual", "layer 0 norm normed", "layer 0 matmul up", "layer 0 activation up",
                    "layer 0 matmul branch", "layer 0 add_branch residual", "layer 0 layer residual",
                    "layer 1 final_norm head", "layer 1 matmul logits", "layer 1 logits logits"));
}

TEST(Walk, NamesEveryMatmulOfAPassInOrderAndItsWeights) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
        const Model model = make_random_model(draw_small_config(seed), seed);
        std::vector<std::string> named;
        for (const MatrixId id : matrices_of(model.config)) {
            named.push_back(fmt::format("{} {}", id.layer, matrix_name(id.matrix)));
            const Linear linear = linear_of(model.weights, id);
            EXPECT_FALSE(linear.weight.empty());
            EXPECT_TRUE(linear.bias.empty() || static_cast<int64_t>(linear.bias.size()) == linear.weight.rows);
        }
        std::vector<std::string> walked;
        for (const std::string& entry : entries_of(model.config, {0, 1})) {
            if (!entry.starts_with("matmul ")) continue;
            walked.push_back(entry.substr(7, entry.find(' ', entry.find(' ', 7) + 1) - 7));
        }
        EXPECT_EQ(walked, named) << seed;
    }
}

TEST(Walk, CallsOfMatmulsHaveTheShapesOfTheirWeights) {
    for (uint64_t seed = 0; seed < 12; ++seed) {
        const Model model = make_random_model(draw_small_config(seed), seed);
        int num_matmuls = 0;
        for (const OpCall& op : forward_pass(model.config)) {
            if (op.op != WalkOp::kMatmul) continue;
            ++num_matmuls;
            const Linear linear = linear_of(model.weights, op.matrix_id());
            EXPECT_EQ(op.columns, (Columns{0, linear.weight.cols})) << matrix_name(op.matrix);
            ASSERT_EQ(op.written().size(), 1u);
            EXPECT_EQ(op.written()[0].columns, (Columns{0, linear.weight.rows})) << matrix_name(op.matrix);
            EXPECT_EQ(op.written()[0].buffer, op.out);
        }
        EXPECT_GT(num_matmuls, 1) << seed;
    }
}

TEST(Walk, BuffersAreAsWideAsTheWidestLayer) {
    ModelConfig config = small_config();
    config.layers.resize(2);
    config.layers[0].mamba = small_mamba();
    config.layers[1].attention = small_attention(5, 1.0);
    EXPECT_EQ(width_of(config, Buffer::kMixed), 10);
    EXPECT_EQ(width_of(config, Buffer::kProjected), 8 + 8 + 3 + 3 + 2);
    EXPECT_EQ(width_of(config, Buffer::kConv), 14);
    EXPECT_EQ(width_of(config, Buffer::kQ), 10);
    EXPECT_EQ(width_of(config, Buffer::kK), 2);
    EXPECT_EQ(width_of(config, Buffer::kUp), 0);
    EXPECT_EQ(width_of(config, Buffer::kResidual), 4);
    EXPECT_EQ(width_of(config, Buffer::kLogits), 10);
}

TEST(WalkDeathTest, RefusesInvalidBatches) {
    const ModelConfig config = small_config();
    Diary diary;
    const auto try_batch = [&](const WalkSequence& sequence, const std::vector<TokenId>& tokens,
                               std::vector<int32_t> logit_rows) {
        walk(config, forward_pass(config), {tokens, {&sequence, 1}, logit_rows}, diary);
    };
    EXPECT_DEATH(try_batch({0, 3, 0}, {1, 2}, {}), "3 vs 2");
    EXPECT_DEATH(try_batch({1, 1, 0}, {1, 2}, {}), "1 vs 0");
    EXPECT_DEATH(try_batch({0, 2, 99}, {1, 2}, {}), "101 vs 100");
    EXPECT_DEATH(try_batch({0, 2, 0}, {1, 10}, {}), "token 10 of 10");
    EXPECT_DEATH(try_batch({0, 2, 0}, {1, 2}, {1, 1}), "logits of row 1 after row 1, of 2");
}

}  // namespace
}  // namespace verbatim::reference
