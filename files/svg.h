// files/svg.h: the common parts of SVG pictures.
#pragma once

#include <string>
#include <string_view>

namespace verbatim {

// The start of a picture on white; "</svg>\n" ends it.
std::string svg_begin(int width, int height);
// A line of text at (x, y), escaped; `more`: attributes.
std::string svg_text(int x, int y, std::string_view text, std::string_view more = "");

}  // namespace verbatim
