// files/xml.h: text inside XML, HTML and SVG.
#pragma once

#include <string>
#include <string_view>

namespace verbatim {

// For an element's text and for an attribute between double quotes. A control character that XML does not allow becomes
// a space.
[[nodiscard]] std::string xml_escaped(std::string_view text);

}  // namespace verbatim
