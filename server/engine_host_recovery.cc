// What becomes of the turns of an executor that failed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "server/engine_host.h"

#include "engine/base/check.h"

namespace verbatim::server {

// A fresh executor takes the place of the failed one, or everything ends here.
void EngineHost::recover(const std::string& why) {
    takes_late_masks_ = false;  // the failed one is not used any more
    const Result<HostExecutor> fresh = config_.replacement ? config_.replacement() : error("{}", why);
    if (!fresh) return fail(config_.replacement ? fmt::format("{}; then: {}", why, fresh.error().message) : why);
    const NumericsIds& wanted = engine_.scheduler().numerics_ids();
    if (const NumericsIds got = numerics_ids_of(*fresh->executor); got != wanted) {
        return fail(fmt::format("{}; then: the fresh executor computes in {}, wanted {}", why, fmt::join(got, " and "),
                                fmt::join(wanted, " and ")));
    }
    executor_ = *fresh;
    takes_late_masks_ = takes_late_masks();
    engine_.replace_executor(*executor_.executor);
    ++num_replaced_executors_;
    for (FailedTurn& turn : engine_.take_failed_turns()) try_again(std::move(turn));
}

std::string EngineHost::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

// Every turn has ended; nothing more is taken in, for what the executor holds is not known.
void EngineHost::fail(const std::string& why) {
    const std::lock_guard lock(mutex_);
    failure_ = why;
}

// A turn that failed twice, or that is refused now, ends with what the engine has said of it.
void EngineHost::try_again(FailedTurn turn) {
    const auto found = live_.find(turn.request);
    if (found == live_.end() || found->second.is_second_try) return;
    const std::string grammar = turn.again.grammar;
    const auto accepted = engine_.submit(std::move(turn.again));
    if (!accepted) return;
    end_grammar(found->first, found->second);
    Live live = std::move(found->second);
    live_.erase(found);
    live.is_second_try = true;
    live.log_probs.clear();
    live.is_non_finite = false;
    read_answer(live);
    ++num_retried_turns_;
    CHECK(requests_.contains(live.ticket) && !live_.contains(accepted->request), "request {} tries again as {}",
          static_cast<int64_t>(live.ticket), index(accepted->request));
    requests_[live.ticket] = accepted->request;
    if (live.has_grammar) begin_grammar(accepted->request, live, grammar);
    live_[accepted->request] = std::move(live);
}

}  // namespace verbatim::server
