#include "traces/strict.h"

namespace verbatim::traces {

std::string shown(std::string_view text) {
    constexpr size_t kMaxBytes = 40;
    std::string result(text.substr(0, kMaxBytes));
    for (char& c : result) {
        if (c < ' ' || c > '~') c = '?';
    }
    return "'" + result + (text.size() > kMaxBytes ? "...'" : "'");
}

}  // namespace verbatim::traces
