#include "tools/program/svg.h"

#include <fmt/format.h>

namespace verbatim::tools {
namespace {

std::string escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (c == '&') out += "&amp;";
        if (c == '<') out += "&lt;";
        if (c == '>') out += "&gt;";
        if (c != '&' && c != '<' && c != '>') out += c;
    }
    return out;
}

}  // namespace

std::string svg_begin(int width, int height) {
    return fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
        "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
        width, height);
}

std::string svg_text(int x, int y, std::string_view text, std::string_view more) {
    return fmt::format("<text x=\"{}\" y=\"{}\" {}>{}</text>\n", x, y, more, escaped(text));
}

}  // namespace verbatim::tools
