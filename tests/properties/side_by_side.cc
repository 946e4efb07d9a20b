#include "tests/properties/side_by_side.h"

#include <utility>

#include "engine/base/prng.h"
#include "tests/support/token_grammar.h"

namespace verbatim::tests {
namespace {

cpu::CpuExecutorConfig cpu_config(const SceneOptions& options) {
    cpu::CpuExecutorConfig config{.pools = options.pools(),
                                  .max_log_tokens = options.max_state_lag_tokens + options.max_window - 1,
                                  .budget = options.budget()};
    if (options.verify_tokens > 0) {
        config.ordinary_profile = reference::Profile::kFast;
        config.max_joined_rows = 0;
    }
    return config;
}

// Without what the model has no use for.
SceneOptions fitted(SceneOptions options, const reference::ModelConfig& config) {
    const auto geometry = reference::geometry(config);
    if (geometry.kv_bytes_per_token == 0) options.num_blocks = 0;
    if (geometry.state_bytes_per_row == 0) options.num_state_rows = 0;
    return options;
}

}  // namespace

SideBySide::SideBySide(const reference::Model& model, const SceneOptions& scene_options, ChangePlan change)
    : SideBySide(fitted(scene_options, model.config), model, std::move(change)) {}

SideBySide::SideBySide(const SceneOptions& options, const reference::Model& model, ChangePlan change)
    : model_(model),
      cpu_(model.config, model.weights, cpu_config(options)),
      witness_(model.config, model.weights),
      lockstep_(cpu_, witness_),
      changer_(lockstep_, std::move(change)),
      rig_(options, changer_, model.config.vocab_size),
      book_({options.end_of_turn}, rig_.store),
      reference_(model.config, model.weights),
      oracle_(reference_),
      adversary_(
          [this](const DraftJob& job, int64_t ahead) {
              return std::optional(oracle_.token(job, rig_.engine.find(job.request)->request.sampling, ahead));
          },
          model.config.vocab_size, 9) {
    rig_.log.listeners.push_back(&book_);
    lockstep_.take_requests_from(&book_);
    if (options.max_window > 1 && options.verify_tokens == 0) rig_.engine.draft_with(&adversary_);
}

std::vector<TokenId> SideBySide::text(uint64_t seed, int64_t count) const {
    Prng prng(seed);
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) {
        tokens.push_back(static_cast<TokenId>(prng.below(static_cast<uint64_t>(model_.config.vocab_size))));
    }
    return tokens;
}

void SideBySide::submit(ChatRequest request) {
    if (!is_over()) rig_.submit(std::move(request));
}

void SideBySide::run() {
    while (!is_over()) {
        const auto stepped = rig_.engine.step();
        if (!stepped) refusal_ = stepped.error().message;
        if (!stepped || !*stepped) return;
        supply_masks(rig_.engine);
    }
}

// Three long conversations in a memory for two: the youngest are preempted while they decode, with penalties that count
// what they have generated. Then turns that attach in the middle of a block, one without tokens to draw, one that is
// given its tokens.
void SideBySide::converse(bool goes_on) {
    goes_on_ = goes_on;
    const SamplingParams penalties{.temperature = 0.9F,
                                   .top_k = 40,
                                   .top_p = 0.95F,
                                   .repetition_penalty = 1.5F,
                                   .presence_penalty = 0.6F,
                                   .frequency_penalty = 0.4F};
    for (uint64_t i = 0; i < 3; ++i) {
        ChatRequest request = rig_.history(std::to_string(i), text(i, 9), 22);
        request.messages.push_back({rig_.store.store(text(10 + i, 3)), true});
        request.sampling = penalties;
        if (i == 1) request.seed = 77;  // the engine draws those of the others
        submit(std::move(request));
    }
    run();
    if (is_over()) return;
    CHECK(rig_.engine.fork(rig_.key("1"), "fork").has_value());
    ChatRequest forced = rig_.suffix("0", text(20, 3));
    forced.forced_output = rig_.store.store(text(21, 6));
    submit(std::move(forced));
    ChatRequest drawn = rig_.suffix("fork", text(22, 6), 8);
    drawn.sampling = penalties;
    drawn.sampling.min_p = 0.01F;
    drawn.sampling.min_tokens = 5;
    drawn.sampling.end_tokens = {7};
    drawn.sampling.logit_bias = {{3, 1.5F}};
    submit(with_grammar(std::move(drawn), 11, model_.config.vocab_size));
    ChatRequest scored = rig_.suffix("1", text(23, 5), 0);
    scored.scored_from = 4;
    submit(std::move(scored));
    run();
    submit(rig_.regenerate("0", 5));
    ChatRequest ordinary = rig_.history("3", text(24, 7), 6);
    ordinary.deterministic = false;
    submit(std::move(ordinary));
    run();
}

std::string SideBySide::found() const {
    if (const auto& difference = lockstep_.first_difference()) return to_string(*difference);
    return refusal_;
}

}  // namespace verbatim::tests
