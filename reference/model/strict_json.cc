#include "reference/model/strict_json.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace verbatim::reference {
namespace {

constexpr int kMaxDepth = 64;

// One pass over the text before the parser sees it: bounds the nesting and quotes Infinity outside strings.
Result<std::string> quote_infinities(std::string_view text, std::string_view source) {
    constexpr std::string_view kInfinity = "Infinity";
    std::string quoted;
    quoted.reserve(text.size());
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            quoted += c;
            if (c == '\\' && i + 1 < text.size()) quoted += text[++i];
            if (c == '"') in_string = false;
            continue;
        }
        const bool minus = c == '-' && text.substr(i + 1).starts_with(kInfinity);
        if (minus || text.substr(i).starts_with(kInfinity)) {
            quoted += minus ? "\"-Infinity\"" : "\"Infinity\"";
            i += kInfinity.size() - (minus ? 0 : 1);
            continue;
        }
        in_string = c == '"';
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
        if (depth > kMaxDepth) return error("{}: nested deeper than {} levels", source, kMaxDepth);
        quoted += c;
    }
    return quoted;
}

// Sees every key as it is parsed; remembers the first that its object already has.
template <typename Json>
class DuplicateKeys {
public:
    bool operator()(int depth, typename Json::parse_event_t event, const Json& parsed) {
        using Event = typename Json::parse_event_t;
        const auto level = static_cast<size_t>(depth);
        if (event == Event::object_start) {
            if (keys_.size() <= level + 1) keys_.resize(level + 2);
            keys_[level + 1].clear();
        } else if (event == Event::key && !duplicate_) {
            const auto& key = parsed.template get_ref<const std::string&>();
            if (!keys_[level].insert(key).second) duplicate_ = key;
        }
        return true;
    }
    [[nodiscard]] const std::optional<std::string>& duplicate() const { return duplicate_; }

private:
    std::vector<std::set<std::string>> keys_;  // by nesting level
    std::optional<std::string> duplicate_;
};

// Control characters and whatever is no ASCII as \xNN.
std::string printable(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        if (c < 0x20 || c == 0x7f)  // char is signed: bytes from 0x80 are negative
            escaped += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        else
            escaped += c;
    }
    return escaped;
}

template <typename Json>
Result<Json> parse_strictly(std::string_view text, std::string_view source) {
    ASSIGN_OR_RETURN(const std::string quoted, quote_infinities(text, source));
    DuplicateKeys<Json> duplicates;
    Json value;
    try {
        value = Json::parse(quoted, std::ref(duplicates));
    } catch (const nlohmann::json::exception& problem) {
        // "[json.exception.parse_error.101] parse error at line 1, column 9: ..." without its bracket.
        std::string_view what = problem.what();
        if (const size_t bracket = what.find("] "); bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
        return error("{}: {}", source, printable(what));
    }
    if (duplicates.duplicate()) return error("{}: key {} occurs twice", source, quote_text(*duplicates.duplicate()));
    return value;
}

}  // namespace

Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view source) {
    return parse_strictly<nlohmann::json>(text, source);
}

Result<nlohmann::ordered_json> parse_strict_ordered_json(std::string_view text, std::string_view source) {
    return parse_strictly<nlohmann::ordered_json>(text, source);
}

std::string quote_text(std::string_view text) {
    constexpr size_t kLongest = 60;
    return fmt::format("\"{}{}\"", printable(text.substr(0, kLongest)), text.size() > kLongest ? "..." : "");
}

std::string quote_json(const nlohmann::json& value) {
    constexpr size_t kLongest = 60;
    if (value.is_string()) return quote_text(value.get_ref<const std::string&>());
    std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
    return text;
}

}  // namespace verbatim::reference
