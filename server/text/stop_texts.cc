#include "server/text/stop_texts.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::text {
namespace {

// How much of the end of `text` is the beginning of `stop`, and not all of it.
size_t begun(std::string_view text, std::string_view stop) {
    for (size_t size = std::min(text.size(), stop.size() - 1); size > 0; --size) {
        if (text.ends_with(stop.substr(0, size))) return size;
    }
    return 0;
}

}  // namespace

std::string StopTexts::add(std::string_view piece) {
    if (stopped()) return "";
    waiting_ += piece;
    std::pair<size_t, size_t> first = {std::string::npos, 0};  // where it is complete, where it begins
    size_t held = 0;
    for (const std::string& stop : stops_) {
        CHECK(!stop.empty(), "an empty stop text");
        const size_t begin = waiting_.find(stop);
        const std::pair place(begin + stop.size(), begin);
        if (begin != std::string::npos && place < first) {
            first = place;
            found_ = stop;
        }
        held = std::max(held, begun(waiting_, stop));
    }
    std::string out = waiting_.substr(0, stopped() ? first.second : waiting_.size() - held);
    CHECK(stopped() || waiting_.size() - out.size() == held, "{} bytes wait, {} begin a stop text", waiting_.size(),
          held);
    waiting_.erase(0, out.size());
    return out;
}

std::string StopTexts::finish() { return stopped() ? "" : std::exchange(waiting_, {}); }

}  // namespace verbatim::text
