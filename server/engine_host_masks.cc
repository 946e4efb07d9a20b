// The masks of requests with a grammar, from their process to the engine.
#include <algorithm>
#include <chrono>

#include "engine/base/check.h"
#include "server/engine_host.h"

namespace verbatim::server {
namespace {

using std::chrono::steady_clock;

constexpr int64_t kLeastWaitMs = 5;  // for masks, in front of a step that has other requests
constexpr int64_t kIdleWaitMs = 20;  // in front of none: between two looks at what clients want

int64_t sequence_of(RequestId request) { return index(request); }

}  // namespace

void EngineHost::begin_grammar(RequestId request, Live& live, const std::string& grammar) {
    CHECK(grammars_.has_value(), "request {} has a grammar, and no process runs it", index(request));
    live.has_grammar = live.has_first_mask = true;
    grammars_->start(sequence_of(request), grammar);
}

// A token that ends its turn asks for no mask.
void EngineHost::take_in_grammar(RequestId request, const Live& live, TokenId token) {
    const Sequence* sequence = engine_.find(request);
    const bool goes_on =
        sequence != nullptr && sequence->status == SequenceStatus::kRunning && !sequence->ending.has_value();
    if (goes_on && live.grammar_problem.empty()) grammars_->take(sequence_of(request), token);
}

void EngineHost::end_grammar(RequestId request, const Live& live) {
    if (live.has_grammar) grammars_->stop(sequence_of(request));
}

// A request that has everything but its mask is in no step. The masks of a step's requests come together, so it is
// better to wait a little for all of them than to compute some without the others.
void EngineHost::supply_masks() {
    if (!grammars_ || grammars_->num_owed() == 0) return;
    const auto begin = steady_clock::now();
    const int64_t wait_ms = has_step() ? std::max(kLeastWaitMs, step_ns_ / 2'000'000) : kIdleWaitMs;
    for (const text::NextMask& next : grammars_->collect(wait_ms)) supply(next);
    mask_wait_ns_ += std::chrono::nanoseconds(steady_clock::now() - begin).count();
}

void EngineHost::supply(const text::NextMask& next) {
    const auto request = static_cast<RequestId>(next.sequence);
    const auto found = live_.find(request);
    if (found == live_.end()) return;
    ++num_masks_;
    Live& live = found->second;
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
    return !engine_.idle() && !(scheduler.waits_for_masks() && scheduler.waiting().empty());
}

}  // namespace verbatim::server
