// server/text/unicode_tables.h: owns the Unicode data of the text pipeline, as generated text.
//
// tools/text/make_unicode_tables.py documents the versions and their sources; server/text/unicode.h and
// server/text/composition.h read the data.
#pragma once

#include <string_view>

namespace verbatim::text {

// "Cc32Zs1...": runs of one general category, from code point 0 to 10FFFF.
extern const std::string_view kGeneralCategoryRuns;

// "300-314:230;...": runs of one canonical combining class, hexadecimal, ascending; all others have class 0.
extern const std::string_view kCombiningClassRuns;

// "c0=41+300;340>300;...": canonical decompositions into one or two characters, hexadecimal, ascending; '=' where
// composition restores the character, '>' where it does not. Hangul syllables are computed and not listed.
extern const std::string_view kDecompositions;

}  // namespace verbatim::text
