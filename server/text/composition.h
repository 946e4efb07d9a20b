// server/text/composition.h: owns the normal form NFC of Unicode (UAX #15).
//
//   N1  nfc(nfc(x)) == nfc(x)
//   N2  only runs of characters that composing could change are decomposed, each with the character before it
#pragma once

#include <string>
#include <string_view>

namespace verbatim::text {

std::string nfc(std::string_view text);  // REQUIRES: valid UTF-8

}  // namespace verbatim::text
