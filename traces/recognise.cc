#include "traces/recognise.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "traces/strict.h"

namespace verbatim::traces {
namespace {

bool has_key(std::string_view line, std::string_view key) {
    return line.find(fmt::format("\"{}\"", key)) != std::string_view::npos;
}

// Whether the value of the first member with this name begins so.
bool value_begins(std::string_view line, std::string_view key, char first) {
    const std::string quoted = fmt::format("\"{}\"", key);
    const size_t place = line.find(quoted);
    if (place == std::string_view::npos) return false;
    line.remove_prefix(place + quoted.size());
    constexpr const char* kSpaces = " \t";
    line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
    if (!line.starts_with(':')) return false;
    line.remove_prefix(1);
    line.remove_prefix(std::min(line.find_first_not_of(kSpaces), line.size()));
    return line.starts_with(first);
}

// Its time is a string, and its passages are lists in an object; Mooncake's time is a number, its blocks a list.
bool is_ragpulse(std::string_view line) {
    if (has_key(line, "passages_ids") || value_begins(line, "hash_ids", '{')) return true;
    return has_key(line, "input_length") && value_begins(line, "timestamp", '"');
}

}  // namespace

Result<Format> recognise(const TextInput& input) {
    const std::string_view text = input.peek();
    const std::string_view line = text.substr(0, text.find_first_of("\r\n"));
    if (line.starts_with("# verbatim-trace")) return Format::kVerbatim;
    if (line.starts_with('{')) {
        if (has_key(line, "resourceSpans")) return Format::kOtel;
        if (is_ragpulse(line)) return Format::kRagPulse;
        if (has_key(line, "input_lens")) return Format::kVllmBench;
        if (has_key(line, "requests")) return Format::kAgentic;
        if (has_key(line, "chat_id")) return Format::kBailian;
        if (has_key(line, "hash_ids")) return Format::kMooncake;
        if (has_key(line, "input_length")) return Format::kMooncake;
    }
    for (const auto& [column, format] :
         {std::pair{"TIMESTAMP", Format::kAzure}, std::pair{"Timestamp", Format::kBurstGpt},
          std::pair{"arrived_at", Format::kVidur}}) {
        if (line.starts_with(fmt::format("{},", column)) || line.starts_with(fmt::format("\"{}\",", column)))
            return format;
    }
    return error("{}:1: got {}, wanted a trace: {} (--input-format forces one)", input.path(), shown(line),
                 fmt::join(kFormatNames, ", "));
}

Result<Format> recognise_file(const std::string& path) {
    std::error_code problem;
    if (!std::filesystem::is_regular_file(path, problem)) return error("{}: is no regular file", path);
    ASSIGN_OR_RETURN(const TextInput input, TextInput::open(path));
    return recognise(input);
}

}  // namespace verbatim::traces
