#include "server/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace verbatim::text {
namespace {

using Kind = Utf8Step::Kind;

// What may follow a lead byte: how many bytes, and the range of the first of them. Length 0: no lead byte.
struct Lead {
    int num_bytes = 0;
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
};

Lead lead_of(unsigned char byte) {
    if (byte < 0x80) return {1};
    if (byte < 0xC2) return {};
    if (byte < 0xE0) return {2};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte < 0xF0) return {3};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte < 0xF4) return {4};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {};
}

}  // namespace

Utf8Step read_utf8(std::string_view bytes) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
    const Lead lead = lead_of(byte(0));
    if (lead.num_bytes == 0) return {Kind::kInvalid, 0, 1};
    for (int i = 1; i < lead.num_bytes; ++i) {
        const auto at = static_cast<size_t>(i);
        if (at >= bytes.size()) return {Kind::kIncomplete, 0, i};
        const bool follows = i == 1 ? byte(at) >= lead.low && byte(at) <= lead.high : (byte(at) & 0xC0) == 0x80;
        if (!follows) return {Kind::kInvalid, 0, i};
    }
    size_t end = 0;
    return {Kind::kCharacter, next_character(bytes, end), lead.num_bytes};
}

void append_utf8(std::string& to, char32_t code_point) {
    const auto add = [&](char32_t bits) { to += static_cast<char>(static_cast<unsigned char>(bits)); };
    if (code_point < 0x80) return add(code_point);
    if (code_point < 0x800) {
        add(0xC0 | code_point >> 6);
    } else {
        if (code_point < 0x10000) {
            add(0xE0 | code_point >> 12);
        } else {
            add(0xF0 | code_point >> 18);
            add(0x80 | (code_point >> 12 & 0x3F));
        }
        add(0x80 | (code_point >> 6 & 0x3F));
    }
    add(0x80 | (code_point & 0x3F));
}

std::optional<size_t> first_invalid_utf8(std::string_view bytes) {
    constexpr uint64_t kHighBits = 0x8080808080808080;
    for (size_t at = 0; at < bytes.size();) {
        uint64_t eight = kHighBits;
        if (at + sizeof eight <= bytes.size()) std::memcpy(&eight, bytes.data() + at, sizeof eight);
        if ((eight & kHighBits) == 0) {  // most texts are ASCII for long
            at += sizeof eight;
            continue;
        }
        if (static_cast<unsigned char>(bytes[at]) < 0x80) {
            ++at;
            continue;
        }
        const Utf8Step step = read_utf8(bytes.substr(at, 4));
        if (step.kind != Kind::kCharacter) return at;
        at += static_cast<size_t>(step.num_bytes);
    }
    return std::nullopt;
}

}  // namespace verbatim::text
