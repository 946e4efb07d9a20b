// files/chrome_trace.h: timelines in the format of Perfetto and Chrome (about:tracing).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

namespace verbatim {

// One process with its tracks. Takes nanoseconds; writes microseconds with three decimals, as the format requires.
class ChromeTrace {
public:
    explicit ChromeTrace(const std::string& process);

    void name_track(int64_t track, const std::string& name);
    void slice(int64_t track, std::string_view name, int64_t begin_ns, int64_t elapsed_ns,
               const nlohmann::ordered_json& args);
    void counter(std::string_view name, int64_t at_ns, const nlohmann::ordered_json& values);
    void mark(int64_t track, std::string_view name, int64_t at_ns, const nlohmann::ordered_json& args);
    [[nodiscard]] std::string json() const { return text_ + "\n]}\n"; }
    // The whole is what is taken, and then what json() gives.
    [[nodiscard]] std::string take() { return std::exchange(text_, {}); }
    [[nodiscard]] size_t size() const { return text_.size(); }

private:
    std::string text_;
};

}  // namespace verbatim
