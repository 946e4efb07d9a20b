// The fuzzer of every trace format: VERBATIM_FUZZED is the format's name. With another name ("compressed") the content
// is recognised: gzip and zstd frames first of all.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "traces/hit_rate.h"
#include "traces/read.h"
#include "traces/stats.h"
#include "traces/verbatim_csv.h"

namespace verbatim::traces {
namespace {

// Reads the input as `format` (none: detected). An accepted trace is valid, can be counted, and round trips.
int read_and_check(const uint8_t* data, size_t size, std::optional<Format> format) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    ReadOptions options;
    options.format = format;
    options.keep_blocks = true;
    options.tokens_per_id = size % 3;  // Verbatim's CSV refuses it, which covers another path
    if (size % 5 == 0) {
        options.max_context = 1000;
        options.over_context = static_cast<OverContext>(size % 3);
    }
    if (size % 7 == 0) options.sessions = SessionRange{0, 1};
    if (size % 11 == 0) options.sessions_scale = 2;
    const auto trace = read_trace_text("fuzz", text, options);
    if (!trace) {
        CHECK(!trace.error().message.empty());
        return 0;
    }
    CHECK(validate(trace->trace).has_value());
    const TraceStats stats = stats_of(trace->trace);
    CHECK_EQ(stats.prompt_total, stats.by_continuation + stats.by_rewrite + stats.by_edit + stats.repeated_within +
                                     stats.repeated_across + stats.new_tokens);
    const HitRates rates = unlimited_hit_rates(trace->blocks);
    CHECK_LE(rates.whole.blocks_hit, rates.whole.blocks);
    std::ostringstream first, second;
    write_verbatim_csv(trace->trace, first);
    const std::string csv = first.str();
    const auto again = read_trace_text("csv", csv);
    CHECK(again.has_value(), "{}", again ? "" : again.error().message);
    write_verbatim_csv(again->trace, second);
    CHECK(second.str() == csv);
    return 0;
}

}  // namespace
}  // namespace verbatim::traces

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace verbatim::traces;
    return read_and_check(data, size, format_by_name(VERBATIM_FUZZED));
}
