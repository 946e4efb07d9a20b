// server/text/byte_alphabet.h: owns the characters that stand for bytes in byte-level vocabularies.
//
// Printable bytes of Latin-1 are themselves, the rest follow from U+0100 on (GPT-2's encoder, Radford et al. 2019).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace verbatim::text {

std::string to_byte_alphabet(std::string_view bytes);
// Empty when `token` has a character that stands for no byte. REQUIRES: valid UTF-8.
std::optional<std::string> from_byte_alphabet(std::string_view token);

}  // namespace verbatim::text
