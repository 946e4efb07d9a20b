#include "files/chrome_trace.h"

#include "files/json_text.h"

#include <fmt/format.h>

namespace verbatim {
namespace {

std::string microseconds(int64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string in_quotes(std::string_view text) { return json_text(nlohmann::json(std::string(text)), -1); }

}  // namespace

ChromeTrace::ChromeTrace(const std::string& process)
    : text_(
          "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n" +
          json_text(nlohmann::json({{"ph", "M"}, {"pid", 1}, {"name", "process_name"}, {"args", {{"name", process}}}}),
                    -1)) {}

void ChromeTrace::name_track(int64_t track, const std::string& name) {
    text_ += fmt::format(",\n{{\"ph\":\"M\",\"pid\":1,\"tid\":{},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}",
                         track, in_quotes(name));
}

void ChromeTrace::slice(int64_t track, std::string_view name, int64_t begin_ns, int64_t elapsed_ns,
                        const nlohmann::ordered_json& args) {
    text_ += fmt::format(",\n{{\"ph\":\"X\",\"pid\":1,\"tid\":{},\"name\":{},\"ts\":{},\"dur\":{},\"args\":{}}}", track,
                         in_quotes(name), microseconds(begin_ns), microseconds(elapsed_ns), json_text(args, -1));
}

void ChromeTrace::counter(std::string_view name, int64_t at_ns, const nlohmann::ordered_json& values) {
    text_ += fmt::format(",\n{{\"ph\":\"C\",\"pid\":1,\"name\":{},\"ts\":{},\"args\":{}}}", in_quotes(name),
                         microseconds(at_ns), json_text(values, -1));
}

void ChromeTrace::mark(int64_t track, std::string_view name, int64_t at_ns, const nlohmann::ordered_json& args) {
    text_ += fmt::format(",\n{{\"ph\":\"i\",\"s\":\"t\",\"pid\":1,\"tid\":{},\"name\":{},\"ts\":{},\"args\":{}}}",
                         track, in_quotes(name), microseconds(at_ns), json_text(args, -1));
}

}  // namespace verbatim
