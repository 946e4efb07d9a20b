#include "audit/prompt_files.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "audit/answer.h"
#include "traces/read.h"

namespace verbatim::audit {
namespace {

using nlohmann::json;

// Of a line that is a JSON object; none: it has no prompt.
std::optional<std::string> prompt_of(const json& line) {
    if (line.contains("prompt") && line["prompt"].is_string()) return line["prompt"].get<std::string>();
    if (!line.contains("messages") || !line["messages"].is_array()) return std::nullopt;
    for (const json& message : line["messages"]) {
        if (message.is_object() && message.value("role", json()) == "user" && message.contains("content") &&
            message["content"].is_string())
            return message["content"].get<std::string>();
    }
    return std::nullopt;
}

}  // namespace

Result<std::vector<std::string>> read_prompts(const std::string& path) {
    std::ifstream file(path);
    if (!file) return error("{}: cannot be read", path);
    std::vector<std::string> prompts;
    std::string line;
    for (int64_t number = 1; std::getline(file, line); ++number) {
        if (line.ends_with('\r')) line.pop_back();
        if (line.empty()) continue;
        if (!is_utf8(line)) return error("{}:{}: no UTF-8", path, number);
        const json parsed = json::parse(line, nullptr, false);
        if (!parsed.is_object()) {
            prompts.push_back(line);
            continue;
        }
        const std::optional<std::string> prompt = prompt_of(parsed);
        if (!prompt) return error("{}:{}: the object has neither a text `prompt` nor a user's message", path, number);
        prompts.push_back(*prompt);
    }
    if (prompts.empty()) return error("{}: there is no prompt in it: wanted one a line", path);
    return prompts;
}

Result<std::vector<int64_t>> read_lengths(const std::string& path, size_t count) {
    ASSIGN_OR_RETURN(const traces::ReadTrace read, traces::read_trace(path));
    std::set<int64_t> all;
    for (const traces::Row& row : read.trace.rows) {
        if (row.prompt_tokens > 0) all.insert(row.prompt_tokens);
    }
    if (all.empty()) return error("{}: no row has a prompt", path);
    const std::vector<int64_t> sorted(all.begin(), all.end());
    std::vector<int64_t> lengths;
    const size_t wanted = std::min(count, sorted.size());
    for (size_t i = 0; i < wanted; ++i) lengths.push_back(sorted[i * sorted.size() / wanted]);
    return lengths;
}

}  // namespace verbatim::audit
