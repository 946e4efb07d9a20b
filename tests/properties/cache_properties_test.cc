// Whatever the engine does with its cache, the bits are those of the uncached reference: every logit that a token was
// drawn from, and every head's KV and states. Over small random models of every family, with real arithmetic.
//
// RC_PARAMS="seed=n max_success=m" chooses the cases; RapidCheck prints what it used, and shrinks a case that fails.
#include <rapidcheck/gtest.h>

#include "tests/properties/numeric_scene.h"

namespace verbatim::tests {
namespace {

uint64_t draw_seed() { return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<uint64_t>(0, 1 << 30)).as("seed"); }
int64_t draw_length(int64_t least, int64_t below, const char* what) { return *rc::gen::inRange(least, below).as(what); }

SceneOptions draw_options() {
    SceneOptions options;
    options.block_size = *rc::gen::element(1, 2, 3, 16).as("block_size");
    options.num_blocks = 400 / options.block_size + 10;
    options.num_state_rows = 24;
    // All blocks and half of the rows, or separate pools.
    const bool is_shared = *rc::gen::arbitrary<bool>().as("one budget");
    if (is_shared) options.budget_bytes = options.num_blocks * options.block_size + 12 * options.row_bytes;
    options.step_tokens = *rc::gen::element(1, 2, 5, 16, 63, 64, 65, 512).as("step_tokens");
    options.lag_steps = *rc::gen::inRange(0, 3).as("lag_steps");
    options.max_window = *rc::gen::element(1, 2, 5, 9).as("max_window");
    options.max_state_lag_tokens = *rc::gen::element(0, 0, 1, 4).as("max_row_lag");
    options.admission = *rc::gen::element(AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens).as("admission");
    options.max_wait_steps = *rc::gen::element(0, 3, 100).as("max_wait_steps");
    return options;
}

// Sampled, so that a wrong logit shows in the tokens that follow, too.
ChatRequest sampled(ChatRequest request, uint64_t seed) {
    request.sampling.temperature = 1;
    request.seed = seed;
    return request;
}

// The scene's cache was used: a head of `length` tokens was attached, its tail copied and its state read once each.
void expect_engaged(NumericScene& scene, const FinishedEvent& event, int64_t length) {
    RC_ASSERT(event.num_reused_tokens == length);
    const bool tail = scene.has_kv() && length % scene.options.block_size != 0;
    RC_ASSERT(scene.engine.stats().tail_copies == (tail ? 1 : 0));
    RC_ASSERT(scene.engine.stats().state_copies == (scene.has_state() ? 1 : 0));
}

RC_GTEST_PROP(CacheProperties, CachedPrefixAndSuffixEqualUncached, ()) {
    const uint64_t seed = draw_seed();
    const int64_t prompt = draw_length(1, 90, "prompt");
    const int64_t output = draw_length(1, 6, "output");
    NumericScene scene(seed, draw_options());
    scene.complete(sampled(scene.history("a", scene.text(seed, prompt), output), seed));
    const int64_t suffix = draw_length(1, 80, "suffix");
    const FinishedEvent event = scene.complete(sampled(scene.suffix("a", scene.text(seed + 1, suffix), 3), seed));
    expect_engaged(scene, event, prompt + output - 1);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(CacheProperties, AnyChunkingEqualsTheWhole, ()) {
    const uint64_t seed = draw_seed();
    const int64_t prompt = draw_length(2, 140, "prompt");
    SceneOptions options = draw_options();
    options.step_tokens = *rc::gen::inRange(1, 140).as("step_tokens");
    NumericScene scene(seed, options);
    scene.complete(scene.history("a", scene.text(seed, prompt), 2));
    const auto num_chunks = static_cast<size_t>((prompt + options.step_tokens - 1) / options.step_tokens);
    RC_ASSERT(scene.log.plans.size() > num_chunks);
    RC_ASSERT(scene.first_difference() == "");
}

RC_GTEST_PROP(CacheProperties, BatchCompositionDoesNotChangeOutput, ()) {
    const uint64_t seed = draw_seed();
    SceneOptions options = draw_options();
    options.step_tokens = *rc::gen::element(16, 64, 512).as("step_tokens");
    NumericScene scene(seed, options);
    const int64_t num_requests = draw_length(2, 6, "requests");
    for (int64_t i = 0; i < num_requests; ++i) {
        const int64_t length = draw_length(1, 50, "length");
        scene.submit(sampled(scene.history(std::to_string(i), scene.text(seed + i, length), 2 + i), seed + i));
        // The last two come together, so that there is company.
        if (*rc::gen::arbitrary<bool>().as("step between") && i + 2 < num_requests) scene.step();
    }
    scene.run();
    const auto shared =
        std::ranges::count_if(scene.log.plans, [](const auto& plan) { return plan.sequences.size() > 1; });
    RC_ASSERT(shared > 0);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(CacheProperties, PrefillEqualsDecode, ()) {
    const uint64_t seed = draw_seed();
    const int64_t prompt = draw_length(1, 20, "prompt");
    const int64_t forced = draw_length(2, 90, "forced");
    NumericScene scene(seed, draw_options());
    const std::vector<TokenId> all = scene.text(seed, prompt + forced);
    ChatRequest decode = scene.history("decode", {all.begin(), all.begin() + prompt});
    decode.forced_output = scene.store.store({all.data() + prompt, static_cast<size_t>(forced)});
    const FinishedEvent decoded = scene.complete(decode);
    const FinishedEvent prefilled = scene.complete(scene.history("prefill", {all.begin(), all.end() - 1}, 0));
    const auto digest = [&](const FinishedEvent& event) { return scene.engine.cache().find(event.head)->digest; };
    RC_ASSERT(digest(decoded) == digest(prefilled));
    RC_ASSERT(scene.first_difference() == "");
}

RC_GTEST_PROP(CacheProperties, ForkAndRewindEqualUninterrupted, ()) {
    const uint64_t seed = draw_seed();
    NumericScene scene(seed, draw_options());
    scene.complete(sampled(scene.history("a", scene.text(seed, draw_length(1, 50, "prompt")), 3), seed));
    const auto first = static_cast<int64_t>(scene.committed("a").size());
    scene.complete(sampled(scene.suffix("a", scene.text(seed + 1, draw_length(1, 40, "suffix")), 3), seed));
    RC_ASSERT(scene.engine.fork(scene.key("a"), "b").has_value());
    RC_ASSERT(scene.engine.rewind(scene.key("a"), 1).has_value());
    const auto forked = static_cast<int64_t>(scene.committed("b").size());
    const RequestId a = scene.submit(sampled(scene.suffix("a", scene.text(seed + 2, 9), 4), seed));
    const RequestId b = scene.submit(sampled(scene.suffix("b", scene.text(seed + 3, 7), 4), seed));
    scene.run();
    // The turn head, or the prompt head of the turn that was taken back, when that one ends with what is left.
    RC_ASSERT(scene.finished(a).num_reused_tokens >= first - 1);
    RC_ASSERT(scene.finished(b).num_reused_tokens == forked - 1);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(CacheProperties, EvictedAndBackEqualsUninterrupted, ()) {
    const uint64_t seed = draw_seed();
    SceneOptions options = draw_options();
    options.num_blocks = 120 / options.block_size + 3;
    options.num_state_rows = 2;
    options.budget_bytes = 0;
    NumericScene scene(seed, options);
    RC_PRE(scene.has_kv() || scene.has_state());  // a model of MLPs alone needs no memory
    scene.complete(sampled(scene.history("a", scene.text(seed, draw_length(1, 40, "prompt")), 3), seed));
    for (const char* id : {"b", "c"}) scene.complete(scene.history(id, scene.text(seed + id[0], 70), 2));
    RC_ASSERT(scene.engine.stats().evictions > 0);
    RC_ASSERT(scene.head_lengths("a", HeadKind::kTurn).empty());
    const FinishedEvent event = scene.complete(sampled(scene.suffix("a", scene.text(seed + 1, 9), 4), seed));
    RC_ASSERT(event.num_reused_tokens == 0);
    RC_ASSERT(scene.not_reused(NotReused::kEvicted) > 0);
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(CacheProperties, PreemptedAndResumedEqualsUninterrupted, ()) {
    const uint64_t seed = draw_seed();
    SceneOptions options = draw_options();
    options.step_tokens = 64;
    options.max_window = 1;
    options.num_blocks = 72 / options.block_size + 2;
    options.budget_bytes = 0;
    // Two requests of 50 to 60 tokens do not fit in 72: with attention, the younger one is preempted.
    NumericScene scene(seed, options);
    const RequestId a = scene.submit(sampled(scene.history("a", scene.text(seed, 20), 40), seed));
    const RequestId b =
        scene.submit(sampled(scene.history("b", scene.text(seed + 1, draw_length(20, 26, "b")), 30), seed));
    scene.run();
    RC_ASSERT(scene.finished(a).committed && scene.finished(b).committed);
    RC_ASSERT((scene.engine.stats().preemptions > 0) == scene.has_kv());
    RC_ASSERT((scene.engine.stats().recomputed_tokens > 0) == scene.has_kv());
    RC_ASSERT(scene.first_difference() == "");
    scene.expect_home();
}

RC_GTEST_PROP(CacheProperties, TailCopyOnWriteNeverChangesTheHead, ()) {
    const uint64_t seed = draw_seed();
    NumericScene scene(seed, draw_options());
    const FinishedEvent first = scene.complete(scene.history("0", scene.text(seed, draw_length(1, 60, "prompt")), 2));
    const Head* head = scene.engine.cache().find(first.head);
    const auto digest_now = [&] {
        return *scene.executor.head_digest(
            {kNoSlot, head->length(), scene.engine.cache().kv().runs(head->blocks), head->state});
    };
    const Digest before = digest_now();
    RC_ASSERT(before == head->digest);
    const int64_t num_forks = draw_length(1, 4, "forks");
    for (int64_t i = 1; i <= num_forks; ++i)
        RC_ASSERT(scene.engine.fork(scene.key("0"), std::to_string(i)).has_value());
    for (int64_t i = 0; i <= num_forks; ++i) {
        scene.submit(sampled(scene.suffix(std::to_string(i), scene.text(seed + i, 1 + i), 5), seed + i));
    }
    while (scene.step()) RC_ASSERT(digest_now() == before);
    const bool tail = scene.has_kv() && head->length() % scene.options.block_size != 0;
    RC_ASSERT(scene.engine.stats().tail_copies == (tail ? num_forks + 1 : 0));
    RC_ASSERT(scene.engine.stats().attaches == num_forks + 1);
    RC_ASSERT(scene.first_difference() == "");
}

RC_GTEST_PROP(CacheProperties, AbortAtAnyEventKeepsTheHeadAndGivesEverythingBack, ()) {
    const uint64_t seed = draw_seed();
    SceneOptions options = draw_options();
    options.step_tokens = *rc::gen::element(2, 5, 64).as("step_tokens");
    NumericScene scene(seed, options);
    const FinishedEvent first = scene.complete(scene.history("a", scene.text(seed, draw_length(1, 40, "prompt")), 2));
    const Digest before = scene.engine.cache().find(first.head)->digest;
    const RequestId id = scene.submit(scene.suffix("a", scene.text(seed + 1, 12), 4));
    for (int64_t steps = draw_length(0, 12, "steps"); steps > 0 && !scene.is_finished(id); --steps) scene.step();
    RC_PRE(!scene.is_finished(id));
    if (*rc::gen::arbitrary<bool>().as("step open") && !scene.engine.idle()) {
        const StepPlan& plan = scene.engine.plan_step();
        scene.abort(id);
        StepResult result;
        RC_ASSERT(scene.executor.execute(plan, result).has_value());
        scene.engine.apply(result);
    } else {
        scene.abort(id);
    }
    scene.run();
    scene.expect_home();
    const Head* head = scene.engine.cache().find(first.head);
    RC_ASSERT(*scene.executor.head_digest(
                  {kNoSlot, head->length(), scene.engine.cache().kv().runs(head->blocks), head->state}) == before);
    const FinishedEvent again = scene.complete(sampled(scene.suffix("a", scene.text(seed + 1, 12), 4), seed));
    RC_ASSERT(again.num_reused_tokens >= head->length());
    RC_ASSERT(scene.first_difference() == "");
}

RC_GTEST_PROP(CacheProperties, AnyNumberOfThreadsGivesTheSameBits, ()) {
    const uint64_t seed = draw_seed();
    const auto threads = *rc::gen::inRange<int32_t>(2, 6).as("threads");
    NumericScene scene(seed, draw_options(), threads);
    for (int i = 0; i < 3; ++i) {
        scene.submit(sampled(scene.history(std::to_string(i), scene.text(seed + i, 5 + 20 * i), 3), seed));
    }
    scene.run();
    RC_ASSERT(scene.complete(scene.suffix("1", scene.text(seed, 9), 3)).num_reused_tokens == 27);
    RC_ASSERT(scene.first_difference() == "");
}

}  // namespace
}  // namespace verbatim::tests
