#include "files/svg.h"

#include <fmt/format.h>

#include "files/xml.h"

namespace verbatim {
std::string svg_begin(int width, int height) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width, height);
}

std::string svg_text(int x, int y, std::string_view text, std::string_view more) {
    return fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", x, y, more, xml_escaped(text));
}

}  // namespace verbatim
