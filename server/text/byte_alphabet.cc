#include "server/text/byte_alphabet.h"

#include <array>

#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

constexpr char32_t kFirstOther = 0x100;
constexpr size_t kNumCharacters = 0x100 + 68;  // 68 bytes are not printable

bool is_printable(size_t byte) {
    return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
    std::array<char32_t, 256> character_of{};
    std::array<int, kNumCharacters> byte_of{};  // -1: stands for none
};

Alphabet make_alphabet() {
    Alphabet alphabet;
    alphabet.byte_of.fill(-1);
    char32_t next = kFirstOther;
    for (size_t byte = 0; byte < 256; ++byte) {
        alphabet.character_of[byte] = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
        alphabet.byte_of[alphabet.character_of[byte]] = static_cast<int>(byte);
    }
    return alphabet;
}

const Alphabet& alphabet() {
    static const Alphabet kAlphabet = make_alphabet();
    return kAlphabet;
}

}  // namespace

std::string to_byte_alphabet(std::string_view bytes) {
    std::string token;
    for (const char c : bytes) append_utf8(token, alphabet().character_of[static_cast<unsigned char>(c)]);
    return token;
}

std::optional<std::string> from_byte_alphabet(std::string_view token) {
    std::string bytes;
    for (size_t at = 0; at < token.size();) {
        const char32_t c = next_character(token, at);
        const int byte = c < kNumCharacters ? alphabet().byte_of[c] : -1;
        if (byte < 0) return std::nullopt;
        bytes += static_cast<char>(byte);
    }
    return bytes;
}

}  // namespace verbatim::text
