#include "server/text/stop_texts.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace verbatim::tests {
namespace {

using text::StopTexts;

std::string word_of(const char* letters, int longest) {
    const auto size = static_cast<size_t>(*rc::gen::inRange(1, longest));
    return *rc::gen::container<std::string>(size, rc::gen::elementOf(std::string(letters)));
}

RC_GTEST_PROP(StopTexts, JoinedPiecesAreTheTextBeforeTheFirstStop, ()) {
    std::vector<std::string> stops;
    for (int count = *rc::gen::inRange(0, 4); count > 0; --count) stops.push_back(word_of("ab", 5));
    const std::string whole = word_of("abc", 30);
    // The shortest beginning of the text that ends in a stop text, without the longest that it ends in.
    std::string wanted = whole;
    bool stops_here = false;
    for (size_t size = 1; size <= whole.size() && !stops_here; ++size) {
        const std::string_view beginning = std::string_view(whole).substr(0, size);
        for (const std::string& stop : stops) {
            if (!beginning.ends_with(stop)) continue;
            const std::string before(beginning.substr(0, size - stop.size()));
            wanted = stops_here && wanted.size() < before.size() ? wanted : before;
            stops_here = true;
        }
    }
    StopTexts texts(stops);
    std::string joined;
    for (size_t at = 0; at < whole.size();) {
        const auto size = static_cast<size_t>(*rc::gen::inRange(1, 5));
        joined += texts.add(std::string_view(whole).substr(at, size));
        RC_ASSERT(whole.starts_with(joined));
        at += size;
    }
    joined += texts.finish();
    RC_ASSERT(joined == wanted);
    RC_ASSERT(texts.stopped() == stops_here);
}

}  // namespace
}  // namespace verbatim::tests
