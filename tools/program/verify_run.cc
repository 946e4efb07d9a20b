#include "tools/program/verify_run.h"

#include <utility>

#include "files/progress_bar.h"
#include "files/steady_clock.h"
#include "kernels/executors/executor_choice.h"
#include "reference/records/locate.h"
#include "tools/program/cli.h"

namespace verbatim::tools {

std::vector<records::Schedule> all_schedules(reference::Profile profile, bool quantised) {
    std::vector<records::Schedule> all = {{},
                                          {.batch = 1},
                                          {.chunks = 37},
                                          {.chunks = 1},
                                          {.batch = 1, .chunks = 64},
                                          {.no_cache = true},
                                          {.chunks = 13, .no_cache = true},
                                          {.blocks = 3},
                                          {.blocks = 64},
                                          {.windows = 4},
                                          {.batch = 2, .chunks = 64, .admission = AdmissionOrder::kFewestTokens},
                                          {.policy = "lfu"},
                                          {.requests = "verify"}};
    // Fast promises nothing that could be verified; quantised weights have one arithmetic for all requests.
    if (profile == reference::Profile::kFast || quantised) all.pop_back();
    return all;
}

Result<Verification> verify_run(const RecordedRun& run, const records::Schedule& schedule, bool follow_tokens) {
    Verification verification;
    verification.schedule = schedule;
    SteadyClock clock;
    const int64_t begin_ns = clock.now_ns();
    records::RunAgainOptions again = run.again;
    again.schedule = schedule;
    const bool ordinary = computes_ordinary_alike(run, schedule);
    again.by_causes |= !ordinary;  // how long ordinary answers are, and where drafts end, may be another matter now
    const auto num_calls = static_cast<uint64_t>(run.record.entries.size());
    ProgressBar progress(fmt::format("{}, {}", run.path, to_string(schedule)), num_calls);
    again.after_step = [&](int64_t made) { progress.update(static_cast<uint64_t>(made)); };
    again.at_end = [&](Engine& engine) { verification.reused_tokens = engine.stats().reused_tokens; };
    ASSIGN_OR_RETURN(const records::Record computed, records::run_again(run.record, again));
    const records::RunIndex index(computed);
    verification.num_steps = index.num_steps();
    verification.failure = computed.end->failure;
    verification.comparison = records::compare(*run.index, index, *run.points,
                                               {.follow_tokens = follow_tokens,
                                                .is_complete = verification.failure.empty(),
                                                .same_prompts = ordinary,
                                                .ordinary = ordinary});
    if (verification.comparison.first) {
        again.after_step = {};
        again.at_end = {};
        RETURN_IF_ERROR(records::locate({.record = run.record,
                                         .recorded = *run.index,
                                         .computed = index,
                                         .points = *run.points,
                                         .model = run.model,
                                         .profile = witness_profile(run.profile),
                                         .again = again},
                                        *verification.comparison.first));
    }
    verification.elapsed_s = static_cast<double>(clock.now_ns() - begin_ns) * 1e-9;
    return verification;
}

}  // namespace verbatim::tools
