// The masks of requests with a grammar, from their process to the engine.
#include <algorithm>
#include <chrono>

#include "engine/base/check.h"
#include "server/engine_host.h"

namespace verbatim::server {
namespace {

constexpr int64_t kLeastWaitMs = 5;  // for masks, in front of a step that has other requests
constexpr int64_t kIdleWaitMs = 20;  // in front of none: between two looks at what clients want
constexpr int64_t kSlowMs = 50;      // in a step: a mask that takes longer is awaited before the next steps

int64_t sequence_of(RequestId request) { return index(request); }

}  // namespace

void EngineHost::begin_grammar(RequestId request, Live& live, const std::string& grammar) {
    CHECK(grammars_.has_value(), "request {} has a grammar, and no process runs it", index(request));
    live.has_grammar = live.has_first_mask = true;
    grammars_->start(sequence_of(request), grammar);
}

// Before anything else is done with a step's tokens: their masks are computed meanwhile. A token that ends its turn
// asks for none.
void EngineHost::take_in_grammars(std::span<const EngineEvent> events) {
    if (!grammars_) return;
    for (const EngineEvent& event : events) {
        const auto* token = std::get_if<TokenEvent>(&event);
        const auto live = token == nullptr ? live_.end() : live_.find(token->request);
        if (live == live_.end() || !live->second.has_grammar) continue;
        const Sequence* sequence = engine_.find(token->request);
        const bool goes_on =
            sequence != nullptr && sequence->status == SequenceStatus::kRunning && !sequence->ending.has_value();
        if (goes_on && live->second.grammar_problem.empty()) grammars_->take(sequence_of(token->request), token->token);
    }
    grammars_->send();
}

void EngineHost::end_grammar(RequestId request, const Live& live) {
    if (live.has_grammar) grammars_->stop(sequence_of(request));
}

// The executor that is used now, and from now on calls complete_masks().
bool EngineHost::takes_late_masks() {
    return grammars_ && executor_.executor->complete_masks_with([this] { complete_masks(); });
}

// Which requests can be in a step before their masks have come.
void EngineHost::expect_masks() {
    const bool is_quick = takes_late_masks_ && grammars_->is_quick();
    for (const auto& [request, live] : live_) {
        if (live.has_grammar) engine_.expect_late_masks(request, is_quick && !live.is_slow);
    }
}

// Of requests that wait for their masks none is in a step without it. The masks of a step's requests come together, so
// it is better to wait a little for all of them than to compute some without the others.
void EngineHost::supply_masks() {
    if (!grammars_) return;
    for (const text::NextMask& next : std::exchange(held_masks_, {})) supply(next);
    if (grammars_->num_owed() == 0) return;
    expect_masks();
    const auto waits = [](const Sequence* sequence) { return sequence->waits_for_mask(); };
    const bool are_awaited =
        !takes_late_masks_ || !grammars_->is_quick() || std::ranges::any_of(engine_.scheduler().running(), waits);
    if (!are_awaited) return;
    const auto begin = steady_now();
    const int64_t wait_ms = has_step() ? std::max(kLeastWaitMs, step_ns_ / 2'000'000) : kIdleWaitMs;
    for (const text::NextMask& next : grammars_->collect(wait_ms)) supply(next);
    mask_wait_ns_ += std::chrono::nanoseconds(steady_now() - begin).count();
}

// In the open step, when nothing but sampling is left of it.
void EngineHost::complete_masks() {
    const auto begin = steady_now();
    const auto ns_since_begin = [&] { return std::chrono::nanoseconds(steady_now() - begin).count(); };
    std::vector<RequestId> refused;
    while (engine_.lacks_masks()) {
        CHECK(grammars_->num_owed() > 0, "a step lacks masks, and none comes");
        for (const text::NextMask& next : grammars_->collect(kSlowMs)) {
            const auto request = static_cast<RequestId>(next.sequence);
            const Sequence* sequence = engine_.find(request);
            if (sequence == nullptr || !sequence->is_late) {
                held_masks_.push_back(next);
                continue;
            }
            if (!next.problem.empty()) refused.push_back(request);
            live_.at(request).is_slow |= ns_since_begin() > kSlowMs * 1'000'000;
            complete(request, next);
        }
    }
    mask_wait_ns_ += ns_since_begin();
    for (const RequestId request : refused) engine_.abort(request);
}

// What is sampled for a request whose grammar does not go on is read by nothing.
void EngineHost::complete(RequestId request, const text::NextMask& next) {
    ++num_masks_;
    live_.at(request).grammar_problem = next.problem;
    const TokenMask any{{0, engine_.token_store().vocab_size()}};
    CHECK(engine_.allow(request, next.problem.empty() ? next.mask : any), "request {} takes no mask", index(request));
}

void EngineHost::supply(const text::NextMask& next) {
    const auto request = static_cast<RequestId>(next.sequence);
    const auto found = live_.find(request);
    if (found == live_.end()) return;
    ++num_masks_;
    Live& live = found->second;
    CHECK(live.has_grammar, "request {} gets a mask and has no grammar", index(request));
    if (!next.problem.empty()) {
        live.grammar_problem = next.problem;
        engine_.abort(request);
        return;
    }
    if (std::exchange(live.has_first_mask, false)) return;
    engine_.allow(request, next.mask);
}

// Whether a step would do anything.
bool EngineHost::has_step() const {
    const Scheduler& scheduler = engine_.scheduler();
    const auto awaits_head = [](const auto& waiting) { return waiting.second->awaits_head; };
    const bool none_comes_in = scheduler.waiting().empty() || std::ranges::any_of(scheduler.waiting(), awaits_head);
    return !engine_.idle() && !engine_.waits_for_head() && !(scheduler.waits_for_masks() && none_comes_in);
}

}  // namespace verbatim::server
