// Whatever a trace file says that the reader accepts, its run comes to an end: nothing that a file can say stops
// the program.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "simulator/trace_driver.h"
#include "tests/support/hash_executor.h"
#include "traces/read.h"

namespace verbatim {
namespace {

// One row of few conversations, with links to any earlier rows. Most are accepted where they stand.
std::string random_row(int place) {
    const auto any = [](std::vector<std::string> choices) { return *rc::gen::elementOf(choices); };
    const auto earlier = [&] {
        return place == 0 || *rc::gen::inRange(0, 3) == 0 ? "" : fmt::format("r{}", *rc::gen::inRange(0, place));
    };
    const std::string event =
        any({"history", "history", "history", "suffix", "suffix", "regenerate", "fork", "rewind", "delete"});
    const bool request = event == "history" || event == "suffix" || event == "regenerate";
    const bool own = event == "history" || event == "suffix";
    const std::string from = own && event == "suffix" ? "" : request && event == "regenerate" ? "" : earlier();
    std::vector<std::string> fields = {fmt::format("r{}", place),
                                       event,
                                       fmt::format("c{}", *rc::gen::inRange(0, 3)),
                                       any({"", "arrival", "answer", "running"}),
                                       earlier(),
                                       from};
    fields.push_back(event == "history" && !from.empty() ? any({"", "all", "prompt", "3"}) : "");
    fields.push_back(own ? fmt::format("{}:0+{}", *rc::gen::inRange(1, 4), *rc::gen::inRange(1, 30)) : "");
    fields.push_back(request ? any({"0", "1", "6", ""}) : "");
    fields.push_back(request ? any({"", "", "0", "1"}) : "");
    fields.push_back(request ? any({"", "", "", "t1", "t2"}) : "");
    fields.push_back(request ? any({"", "", "", "none", earlier()}) : "");
    return fmt::format("{}\n", fmt::join(fields, ","));
}

// Rows that the reader refuses are left out.
traces::Trace random_trace() {
    std::string text =
        "# verbatim-trace "
        "1\nrow,event,conversation,start,wait_for,from,take,tokens,max_tokens,abort_after,turn,parent\n";
    traces::Trace trace;
    const int num_rows = *rc::gen::inRange(1, 16);
    for (int place = 0; place < num_rows; ++place) {
        std::string longer = text + random_row(place);
        auto read = traces::read_trace_text("any", longer);
        if (!read) continue;
        text = std::move(longer);
        trace = std::move(read->trace);
    }
    RC_LOG() << text;
    return trace;
}

RC_GTEST_PROP(AnyTrace, RunsToItsEndOrSaysWhyNot, ()) {
    const traces::Trace trace = random_trace();
    EngineConfig config;
    config.cache.pools.block_size = 4;
    config.cache.pools.num_blocks = *rc::gen::inRange(6, 40);
    config.cache.pools.num_state_rows = *rc::gen::inRange(3, 20);
    config.cache.lookup = *rc::gen::element(LookupMode::kConversation, LookupMode::kPrefix);
    config.scheduler.step_tokens = *rc::gen::inRange(1, 40);
    config.scheduler.admission = *rc::gen::element(AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens);
    config.scheduler.max_wait_steps = *rc::gen::inRange(0, 40);
    config.max_model_len = *rc::gen::inRange(5, 100);
    config.default_max_tokens = 5;
    config.digest_heads = true;
    TokenStore store(1000);
    tests::HashExecutor executor({.pools = {.block_size = 4,
                                            .num_blocks = config.cache.pools.num_blocks,
                                            .num_state_rows = config.cache.pools.num_state_rows}});
    LruEviction policy;
    DigestRecorder recorder;
    Engine engine(config, executor, policy, store, recorder);
    auto requests = traces::RequestMaker::create(trace, store);
    RC_ASSERT(requests.has_value());
    TraceDriver driver({.verify_every_step = true}, trace, *requests, engine, store);
    const auto report = driver.run();
    if (!report) {
        RC_ASSERT(report.error().message.find("can never start") != std::string::npos);
        return;
    }
    RC_ASSERT(engine.idle());
    const DriverReport& r = *report;
    RC_ASSERT(r.turns == r.served + r.aborted +
                             static_cast<int64_t>(std::ranges::count_if(r.unexpected, [](const std::string& what) {
                                 return what.find("the turn ended as") != std::string::npos;
                             })));
}

}  // namespace
}  // namespace verbatim
