#include "traces/strict.h"

#include <fmt/format.h>

namespace verbatim::traces {

std::string shown(std::string_view text) {
    constexpr size_t kMaxBytes = 40;
    std::string result(text.substr(0, kMaxBytes));
    for (char& c : result) {
        if (c < ' ' || c > '~') c = '?';
    }
    return "'" + result + (text.size() > kMaxBytes ? "...'" : "'");
}

std::string listed(const std::vector<std::string_view>& names) {
    std::string text;
    for (size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
        text += fmt::format("'{}'", names[i]);
    }
    return text;
}

}  // namespace verbatim::traces
