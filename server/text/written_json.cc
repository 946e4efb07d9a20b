#include "server/text/written_json.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace verbatim::text {
namespace {

// By byte: whether it is written as it is.
constexpr std::array<bool, 256> kPlain = [] {
    std::array<bool, 256> plain{};
    for (size_t c = 0x20; c < plain.size(); ++c) plain[c] = c != '"' && c != '\\';
    return plain;
}();

// The place of the next byte that needs an escape, or the end. Eight bytes at once: a byte below 0x20, and one that is
// zero after XOR with a quote or a backslash, borrows from its highest bit; the last bytes one by one.
size_t end_of_plain(std::string_view text, size_t at) {
    constexpr uint64_t kEach = 0x0101010101010101;
    const auto borrows = [](uint64_t bytes, uint64_t from) { return (bytes - from * kEach) & ~bytes; };
    for (uint64_t bytes = 0; at + sizeof bytes <= text.size(); at += sizeof bytes) {
        std::memcpy(&bytes, text.data() + at, sizeof bytes);
        const uint64_t found =
            borrows(bytes, 0x20) | borrows(bytes ^ ('"' * kEach), 1) | borrows(bytes ^ ('\\' * kEach), 1);
        if ((found & (0x80 * kEach)) != 0) break;
    }
    while (at < text.size() && kPlain[static_cast<unsigned char>(text[at])]) ++at;
    return at;
}

// As the library writes it.
void append_escape(std::string& out, char c) {
    constexpr std::string_view kMeant = "\"\\\b\f\n\r\t";
    constexpr std::string_view kNames = "\"\\bfnrt";
    constexpr std::string_view kDigits = "0123456789abcdef";
    out += '\\';
    if (const size_t which = kMeant.find(c); which != std::string_view::npos) {
        out += kNames[which];
        return;
    }
    out += "u00";
    out += kDigits[static_cast<unsigned char>(c) >> 4];
    out += kDigits[static_cast<unsigned char>(c) & 15];
}

// Where the text that begins at `at` ends.
size_t end_of_text(std::string_view json, size_t at) {
    for (++at; at < json.size() && json[at] != '"'; ++at) {
        if (json[at] == '\\') ++at;
    }
    return at + 1;
}

}  // namespace

// Texts are long, and few of their characters are escaped.
void append_json_text(std::string& out, std::string_view text) {
    out += '"';
    size_t done = 0;
    for (size_t at = end_of_plain(text, 0); at < text.size(); at = end_of_plain(text, at + 1)) {
        out.append(text, done, at - done);
        done = at + 1;
        append_escape(out, text[at]);
    }
    out.append(text, done);
    out += '"';
}

void append_json(std::string& out, const Json& value) {
    if (value.is_string()) return append_json_text(out, value.get_ref<const std::string&>());
    if (!value.is_structured()) {
        out += value.dump();
        return;
    }
    out += value.is_object() ? '{' : '[';
    const char* between = "";
    for (auto inner = value.begin(); inner != value.end(); ++inner, between = ",") {
        out += between;
        if (value.is_object()) {
            append_json_text(out, inner.key());
            out += ':';
        }
        append_json(out, *inner);
    }
    out += value.is_object() ? '}' : ']';
}

std::string written(const Json& value) {
    std::string out;
    append_json(out, value);
    return out;
}

std::string written_list(const std::vector<std::string>& values) {
    size_t size = 2 + values.size();
    for (const std::string& value : values) size += value.size();
    std::string list;
    list.reserve(size);
    list += '[';
    for (const std::string& value : values) {
        if (list.size() > 1) list += ',';
        list += value;
    }
    return list += ']';
}

std::optional<std::vector<std::string_view>> values_of_list(std::string_view list) {
    if (list.size() < 2 || list.front() != '[' || list.back() != ']') return std::nullopt;
    list = list.substr(1, list.size() - 2);
    std::vector<std::string_view> values;
    size_t begin = 0;
    int depth = 0;
    for (size_t at = 0; at < list.size();) {
        const char c = list[at];
        if (c == '"') {
            at = end_of_text(list, at);
            continue;
        }
        if (c == '{' || c == '[') ++depth;
        if (c == '}' || c == ']') --depth;
        if (c == ',' && depth == 0) {
            values.push_back(list.substr(begin, at - begin));
            begin = at + 1;
        }
        ++at;
    }
    if (depth != 0) return std::nullopt;
    if (!list.empty()) values.push_back(list.substr(begin));
    return values;
}

}  // namespace verbatim::text
