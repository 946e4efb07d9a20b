// server/text/unicode_tables.h: owns the Unicode data that the text pipeline stands on, as generated text.
//
// tools/text/make_unicode_tables.py says the versions, where they are from and why; server/text/unicode.h and
// server/text/composition.h read them.
#pragma once

#include <string_view>

namespace verbatim::text {

// "Cc32Zs1...": runs of one general category, from code point 0 to 10FFFF.
extern const std::string_view kGeneralCategoryRuns;

// "300-314:230;...": runs of one canonical combining class, hexadecimal, ascending; all others have class 0.
extern const std::string_view kCombiningClassRuns;

// "c0=41+300;340>300;...": canonical decompositions into one or two characters, hexadecimal, ascending; '=' where
// composing gives the character back, '>' where it does not. Hangul syllables go by arithmetic and are not listed.
extern const std::string_view kDecompositions;

}  // namespace verbatim::text
