#include "files/strict_json.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "files/quick_json.h"

namespace verbatim {
namespace {

constexpr size_t kMaxDepth = 64;

// Quotes Infinity outside strings. Few texts have it.
std::string quote_infinities(std::string_view text) {
    constexpr std::string_view kInfinity = "Infinity";
    std::string quoted;
    quoted.reserve(text.size() + 16);
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
        quoted += c;
    }
    return quoted;
}

using Keys = std::set<std::string>;

// Null: the object has the member. A map knows its keys.
nlohmann::json* add_member(nlohmann::json::object_t& object, Keys&, std::string& key) {
    const auto [member, is_new] = object.try_emplace(std::move(key));
    return is_new ? &member->second : nullptr;
}

// Bypasses emplace(), which compares with every member, and the container's growth, which copies them.
nlohmann::ordered_json* add_member(nlohmann::ordered_json::object_t& object, Keys& keys, std::string& key) {
    if (!keys.insert(key).second) return nullptr;
    using Members = nlohmann::ordered_json::object_t::Container;
    Members& members = object;
    if (members.size() == members.capacity()) {
        Members larger;
        larger.reserve(std::max<size_t>(1, members.size() * 2));
        for (auto& [name, value] : members) larger.emplace_back(name, std::move(value));
        members.swap(larger);
    }
    return &members.emplace_back(std::move(key), nullptr).second;
}

// Makes the value of what the parser sees. Time and memory are as the text's length, whatever it says.
template <typename Json>
class Builder final : public JsonEvents {
public:
    bool null() override { return put(nullptr); }
    bool boolean(bool value) override { return put(value); }
    bool number_integer(number_integer_t value) override { return put(value); }
    bool number_unsigned(number_unsigned_t value) override { return put(value); }
    bool number_float(number_float_t value, const std::string&) override { return put(value); }
    bool string(std::string& value) override { return put(std::move(value)); }
    bool binary(binary_t&) override { return false; }  // JSON has none
    bool start_object(size_t) override { return open(Json::object()); }
    bool start_array(size_t) override { return open(Json::array()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(std::string& key) override {
        Level& level = levels_.back();
        level.member = add_member(level.container->template get_ref<typename Json::object_t&>(), level.keys, key);
        if (level.member == nullptr) duplicate_ = key;
        return level.member != nullptr;
    }
    bool parse_error(size_t, const std::string&, const nlohmann::json::exception& problem) override {
        problem_ = problem.what();
        return false;
    }

    [[nodiscard]] const std::optional<std::string>& duplicate() const { return duplicate_; }
    [[nodiscard]] const std::string& problem() const { return problem_; }
    [[nodiscard]] bool is_too_deep() const { return is_too_deep_; }
    [[nodiscard]] Json take() { return std::move(value_); }

private:
    struct Level {
        Json* container = nullptr;
        Json* member = nullptr;  // of an object: whose value comes next
        Keys keys;               // of an ordered object
    };
    // Where the next value goes. Nothing grows that a level points into: only the innermost container is added to.
    template <typename Value>
    Json& place(Value&& value) {
        if (levels_.empty()) return value_ = std::forward<Value>(value);
        Level& level = levels_.back();
        if (level.container->is_object()) return *level.member = std::forward<Value>(value);
        auto& list = level.container->template get_ref<typename Json::array_t&>();
        return list.emplace_back(std::forward<Value>(value));
    }
    template <typename Value>
    bool put(Value&& value) {
        place(std::forward<Value>(value));
        return true;
    }
    bool open(Json container) {
        is_too_deep_ = levels_.size() == kMaxDepth;
        if (is_too_deep_) return false;
        Json& there = place(std::move(container));
        levels_.push_back({&there, nullptr, {}});
        return true;
    }
    bool close() {
        levels_.pop_back();
        return true;
    }

    Json value_;
    std::vector<Level> levels_;
    std::optional<std::string> duplicate_;
    std::string problem_;
    bool is_too_deep_ = false;
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

// "[json.exception.parse_error.101] parse error at line 1, column 9: ..." without its bracket.
std::string without_bracket(std::string_view what) {
    if (const size_t bracket = what.find("] "); bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
    return printable(what);
}

enum class Infinities : uint8_t { kAreErrors, kAreTexts };  // J2

// nlohmann's parser takes a NUL byte for the end of the text; JSON has none (RFC 8259).
Status refuse_nul(std::string_view text, std::string_view source) {
    const size_t nul = text.find('\0');
    if (nul == std::string_view::npos) return {};
    const std::string_view before = text.substr(0, nul);
    const size_t line_begin = before.rfind('\n') + 1;  // 0 on the first line
    return error("{}: NUL byte at line {}, column {}: wanted JSON text without NUL bytes", source,
                 1 + std::ranges::count(before, '\n'), nul - line_begin + 1);
}

template <typename Json>
Result<Json> parse_strictly(std::string_view text, std::string_view source, Infinities infinities) {
    RETURN_IF_ERROR(refuse_nul(text, source));
    std::optional<Builder<Json>> built(std::in_place);
    if (read_quickly(text, *built)) return built->take();
    built.emplace();  // the parser that knows the position reports every error
    bool is_json = Json::sax_parse(text, &*built);
    // What no parser understands may be an Infinity; long texts that only speak of it are not copied.
    const bool may_be_quoted = infinities == Infinities::kAreTexts && !is_json && !built->problem().empty();
    if (may_be_quoted && text.find("Infinity") != std::string_view::npos) {
        built.emplace();
        is_json = Json::sax_parse(quote_infinities(text), &*built);
    }
    if (built->is_too_deep()) return error("{}: nested deeper than {} levels", source, kMaxDepth);
    if (built->duplicate()) return error("{}: key {} occurs twice", source, quote_text(*built->duplicate()));
    if (!is_json) return error("{}: {}", source, without_bracket(built->problem()));
    return built->take();
}

}  // namespace

Result<nlohmann::json> parse_strict_json(std::string_view text, std::string_view source) {
    return parse_strictly<nlohmann::json>(text, source, Infinities::kAreTexts);
}

Result<nlohmann::ordered_json> parse_strict_ordered_json(std::string_view text, std::string_view source) {
    return parse_strictly<nlohmann::ordered_json>(text, source, Infinities::kAreErrors);
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

}  // namespace verbatim
