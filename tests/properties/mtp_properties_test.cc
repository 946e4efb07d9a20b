// Drafts by the model's own multi-token prediction layer: the bits of plain decoding, whatever is guessed; and the
// layer's guesses, which depend on the request's tokens and on nothing else, as long as it has seen all of them.
#include <rapidcheck/gtest.h>

#include <map>

#include "kernels/executors/mtp_drafter.h"
#include "reference/model/mtp_layer.h"
#include "tests/properties/numeric_scene.h"
#include "tests/reference/families.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

using executors::MtpDrafter;
using reference::Architecture;

SceneOptions mtp_options(int32_t max_window) {
    SceneOptions options;
    options.block_size = 4;
    options.num_blocks = 80;
    options.num_state_rows = 12;
    options.max_window = max_window;
    return options;
}

// A config of a family that has the layer, with a layer whose shapes it can have.
reference::ModelConfig draw_config(uint64_t seed) {
    constexpr std::array kFamilies = {Architecture::kQwen35, Architecture::kQwen35Moe, Architecture::kQwen3Next,
                                      Architecture::kNemotronH};
    for (;; ++seed) {
        const Architecture family = kFamilies[seed % kFamilies.size()];
        const auto config = seed % 2 == 0 || !reference::has_experts(family)
                                ? reference::draw_small_config(family, seed)
                                : reference::draw_small_moe_config(family, seed);
        if (reference::mtp_config(config)) return config;
    }
}

// Asks the layer, and gives right tokens and wrong ones in turn instead of its guesses: random weights guess badly.
class ReplacedGuesses final : public Drafter {
public:
    ReplacedGuesses(MtpDrafter& mtp, Drafter& instead) : mtp_(mtp), instead_(instead) {}
    void step_begins() override { mtp_.step_begins(); }
    void draft(std::span<DraftJob> jobs) override {
        mtp_.draft(jobs);
        for (DraftJob& job : jobs) {
            if (job.drafts.empty()) continue;
            guesses[{job.request, job.prompt->size() + std::ssize(job.output)}] = job.drafts;
            job.max_drafts = static_cast<int32_t>(job.drafts.size());
            job.drafts.clear();
        }
        for (DraftJob& job : jobs)
            if (guesses.contains({job.request, job.prompt->size() + std::ssize(job.output)})) instead_.draft({&job, 1});
    }
    void ended(RequestId request) override {
        mtp_.ended(request);
        instead_.ended(request);
    }
    std::map<std::pair<RequestId, int64_t>, std::vector<TokenId>> guesses;  // by known tokens

private:
    MtpDrafter& mtp_;
    Drafter& instead_;
};

// A scene with that drafter. The layer computes in exact, so that its guesses do not depend on the batch.
struct MtpScene {
    MtpScene(uint64_t seed, const SceneOptions& options, int32_t num_blocks = 200, int32_t max_num_slots = 12,
             Machine machine = Machine::kCpu)
        : scene(draw_config(seed), seed, options, 1, machine),
          oracle(scene.reference),
          adversary(
              [this](const DraftJob& job, int64_t ahead) {
                  return std::optional(oracle.token(job, scene.engine.find(job.request)->request.sampling, ahead));
              },
              scene.model.config.vocab_size, seed) {
        CHECK(reference::add_random_mtp(scene.model, seed).has_value());
        use(num_blocks, max_num_slots);
    }
    // Makes the drafter, once the layer's weights are what they shall be.
    void use(int32_t num_blocks, int32_t max_num_slots) {
        const PoolSizes pools{.block_size = 4, .num_blocks = num_blocks};
        layer.emplace(scene.model.mtp->config, scene.model.mtp->weights, cpu::CpuExecutorConfig{.pools = pools});
        mtp.emplace(executors::MtpDrafterConfig{.pools = pools, .max_num_slots = max_num_slots, .step_tokens = 7},
                    scene.model, *layer, scene.engine);
        mtp->listen_to(scene.computing.get());
        drafter.emplace(*mtp, adversary);
        scene.engine.draft_with(&*drafter);
    }
    void finish() {
        RC_ASSERT(scene.first_difference() == "");
        scene.expect_home();
    }

    NumericScene scene;
    ReferenceOracle oracle;
    AdversaryDrafter adversary;
    std::optional<cpu::CpuExecutor> layer;
    std::optional<MtpDrafter> mtp;
    std::optional<ReplacedGuesses> drafter;
};

ChatRequest sampled_by(ChatRequest request, uint64_t seed) {
    if (seed % 2 == 0) return request;
    request.sampling = {.temperature = 0.9F, .top_k = 12, .repetition_penalty = 1.4F};
    request.seed = seed;
    return request;
}

// Three conversations, then a second turn of one of them, and of a fork of it.
void take_turns(NumericScene& scene, uint64_t seed) {
    for (uint64_t i = 0; i < 3; ++i) {
        const auto num_prompt = static_cast<int64_t>(1 + (seed >> (8 * i)) % 100);
        scene.submit(sampled_by(scene.history(std::to_string(i), scene.text(seed + i, num_prompt), 12), seed + i));
    }
    scene.run();
    ASSERT_TRUE(scene.engine.fork(scene.key("1"), "fork").has_value());
    scene.submit(sampled_by(scene.suffix("1", scene.text(seed + 5, 3), 12), seed));
    scene.submit(scene.suffix("fork", scene.text(seed + 6, 2), 12));
    scene.run();
}

RC_GTEST_PROP(MtpProperties, DraftsChangeNothingButTheNumberOfSteps, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = mtp_options(*rc::gen::inRange<int32_t>(2, 8).as("max_window"));
    options.num_blocks = 140;
    MtpScene mtp(seed, options);
    take_turns(mtp.scene, seed);
    const EngineStats& stats = mtp.scene.engine.stats();
    RC_ASSERT(stats.windows > 0 && stats.accepted_tokens > 0 && stats.rolled_back_tokens > 0);
    RC_ASSERT(mtp.mtp->num_taken_in() > 0);
    mtp.finish();
}

// Both second turns attach to the first one's head, and one of them goes on with its rows of the layer, except where
// a turn ends too early for either to reuse any.
TEST(MtpProperties, ASecondTurnGoesOnWithTheRowsOfItsHead) {
    int num_continued = 0;
    constexpr uint64_t kSeeds = 5;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        SceneOptions options = mtp_options(4);
        options.num_blocks = 140;
        MtpScene mtp(seed, options);
        take_turns(mtp.scene, seed);
        num_continued += static_cast<int>(mtp.mtp->num_continued() > 0);
        EXPECT_EQ(mtp.scene.first_difference(), "");
    }
    EXPECT_GE(num_continued, 4);
}

// Little memory of the layer: some requests have no drafts, others lose their rows and begin again.
RC_GTEST_PROP(MtpProperties, WithoutRoomForTheLayerTheBitsAreTheSame, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = mtp_options(*rc::gen::inRange<int32_t>(2, 8).as("max_window"));
    options.num_blocks = 140;
    MtpScene mtp(seed, options, *rc::gen::inRange<int32_t>(0, 30).as("num_blocks"),
                 *rc::gen::inRange<int32_t>(1, 4).as("max_num_slots"));
    take_turns(mtp.scene, seed);
    mtp.finish();
}

// Four requests of 55 tokens, and room for 72. What a request's layer guesses is what it guesses alone, without
// windows: rows of withdrawn drafts and of preempted turns leave no trace.
RC_GTEST_PROP(MtpProperties, GuessesDependOnTheRequestsTokensAlone, ()) {
    const auto seed = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed");
    SceneOptions options = mtp_options(*rc::gen::inRange<int32_t>(3, 8).as("max_window"));
    options.num_blocks = 72 / options.block_size;
    MtpScene crowd(seed, options);
    MtpScene alone(seed, mtp_options(2));
    for (uint64_t i = 0; i < 4; ++i) {
        for (NumericScene* scene : {&crowd.scene, &alone.scene}) {
            scene->submit(sampled_by(scene->history(std::to_string(i), scene->text(seed + i, 15), 40), seed + i));
            if (scene == &alone.scene) scene->run();
        }
    }
    crowd.scene.run();
    RC_ASSERT(crowd.scene.engine.stats().preemptions > 0);
    RC_ASSERT(crowd.scene.engine.stats().accepted_tokens > 0);
    int64_t num_compared = 0;
    for (const auto& [place, guesses] : crowd.drafter->guesses) {
        const auto same = alone.drafter->guesses.find(place);
        if (same == alone.drafter->guesses.end()) continue;
        RC_ASSERT(guesses.front() == same->second.front());
        ++num_compared;
    }
    RC_ASSERT(num_compared > 20);
    crowd.finish();
}

// What one tenant has computed is not seen in another one's windows, nor what ran without the cache in any. The rows of
// the first turn are gone when the second one comes; those of an equal request are there.
TEST(MtpProperties, RowsStayWithinTheirSaltAndTheCache) {
    const auto num_continued = [](const std::optional<std::string>& salt_of_equal, bool equal_uses_cache) {
        MtpScene scene(3, mtp_options(4), 200, /*max_num_slots=*/2);
        const std::vector<TokenId> prompt = scene.scene.text(3, 20);
        static_cast<void>(scene.scene.complete(scene.scene.history("a", prompt, 8)));
        for (const uint64_t other : {5, 6})
            static_cast<void>(
                scene.scene.complete(scene.scene.history(fmt::format("{}", other), scene.scene.text(other, 20), 8)));
        ChatRequest equal = scene.scene.history("equal", prompt, 8);
        equal.conversation.salt = CacheSalt{salt_of_equal};
        equal.use_cache = equal_uses_cache;
        static_cast<void>(scene.scene.complete(equal));
        const FinishedEvent second = scene.scene.complete(scene.scene.suffix("a", scene.scene.text(4, 5), 8));
        EXPECT_GT(second.num_reused_tokens, 20);
        return scene.mtp->num_continued();
    };
    EXPECT_EQ(num_continued(std::nullopt, true), 1);
    EXPECT_EQ(num_continued("x", true), 0);
    EXPECT_EQ(num_continued(std::nullopt, false), 0);
}

// A second turn that attaches to the first one's head goes on with the layer's rows: it guesses what it guesses where
// the whole prompt is computed again.
TEST(MtpProperties, AContinuedTurnGuessesAsIfNothingWereAttached) {
    const RandomCases cases = RandomCases::from_environment(6);
    int64_t num_compared = 0;
    for (uint64_t seed = cases.seed; seed < cases.seed + cases.count; ++seed) {
        MtpScene attached(seed, mtp_options(4));
        MtpScene whole(seed, mtp_options(4));
        const std::vector<TokenId> first = attached.scene.text(seed, 20);
        const FinishedEvent done = attached.scene.complete(attached.scene.history("a", first, 12));
        std::vector<TokenId> known = first;
        const std::vector<TokenId> output = attached.scene.streamed(done.request);
        known.insert(known.end(), output.begin(), output.end());
        const std::vector<TokenId> more = attached.scene.text(seed + 1, 5);
        known.insert(known.end(), more.begin(), more.end());
        attached.drafter->guesses.clear();
        const FinishedEvent second = attached.scene.complete(attached.scene.suffix("a", more, 12));
        EXPECT_GT(second.num_reused_tokens, 20) << seed;
        EXPECT_EQ(attached.mtp->num_continued(), 1) << seed;
        static_cast<void>(whole.scene.complete(whole.scene.history("b", known, 12)));
        for (const auto& [place, guesses] : attached.drafter->guesses) {
            const auto same = std::ranges::find_if(
                whole.drafter->guesses, [&](const auto& other) { return other.first.second == place.second; });
            if (same == whole.drafter->guesses.end()) continue;
            EXPECT_EQ(guesses.front(), same->second.front()) << seed << " at " << place.second;
            ++num_compared;
        }
        EXPECT_EQ(attached.scene.first_difference(), "") << seed;
    }
    EXPECT_GT(num_compared, cases.count >= 6 ? 10 : 0);
}

// Makes the layer pass one of its two inputs on, normed, and add nothing to it.
void pass_on(reference::Model& layer, bool embedding) {
    reference::ModelWeights& weights = layer.weights;
    const auto set = [&](reference::MatrixView& view, bool is_identity) {
        constexpr uint16_t kOne = 0x3F80;
        const auto values = weights.storage->allocate_bf16(view.rows * view.cols);
        std::ranges::fill(values, uint16_t{0});
        for (int64_t i = 0; is_identity && i < view.rows; ++i) values[i * view.cols + i] = kOne;
        view.data = values.data();
    };
    const auto fill = [&](reference::VectorView& view, float value) {
        const auto values = weights.storage->allocate_float(std::ssize(view));
        std::ranges::fill(values, value);
        view = values;
    };
    const float one = layer.config.norm_plus_one ? 0.0F : 1.0F;
    set(weights.input.embedding, embedding);
    set(weights.input.hidden, !embedding);
    for (reference::LayerWeights& part : weights.layers) {
        for (reference::MatrixView* last : {&part.attention.o, &part.mlp.down, &part.moe.latent_out})
            if (!last->empty()) set(*last, false);
        for (reference::MlpWeights& expert : part.moe.experts) set(expert.down, false);
        for (reference::VectorView* bias : {&part.attention.o_bias, &part.mlp.down_bias, &part.moe.latent_out_bias})
            fill(*bias, 0.0F);
    }
    fill(weights.input.embedding_norm, one);
    fill(weights.input.hidden_norm, one);
    fill(weights.final_norm, one);
    if (embedding) weights.lm_head = weights.embedding;
}

// The share of first guesses that are the last known token.
double share_of_last_tokens(uint64_t seed, bool embedding) {
    MtpScene mtp(seed, mtp_options(3));
    pass_on(*mtp.scene.model.mtp, embedding);
    mtp.use(200, 4);
    const auto done = mtp.scene.complete(mtp.scene.history("a", mtp.scene.text(seed, 9), 20));
    const std::vector<TokenId> output = mtp.scene.streamed(done.request);
    double num_right = 0;
    for (const auto& [place, guesses] : mtp.drafter->guesses)
        num_right += guesses.front() == output[static_cast<size_t>(place.second) - 10] ? 1 : 0;
    return num_right / static_cast<double>(std::max<size_t>(1, mtp.drafter->guesses.size()));
}

// A layer that passes the model's normed hidden row on has the model's logits, so it guesses the token that followed
// that row: the last known one. With a row of another position, or without a norm, it would not. The second norm rounds
// again, so two tokens may be that near.
TEST(MtpProperties, TheHiddenRowIsThatBeforeTheLastKnownToken) {
    for (const uint64_t seed : {2, 3, 4, 8}) EXPECT_GE(share_of_last_tokens(seed, false), 0.9) << seed;
}

// One that passes the embedding on guesses the token that is nearest: the last known one, but for long neighbours.
TEST(MtpProperties, TheTokenIsTheLastKnownOne) {
    for (const uint64_t seed : {2, 3, 4, 8}) EXPECT_GE(share_of_last_tokens(seed, true), 0.6) << seed;
}

}  // namespace
}  // namespace verbatim::tests
