#include "engine/cache/name.h"

#include <algorithm>

namespace verbatim {

void Name::note_gone(int64_t length, NotReused reason) {
    const auto place = std::ranges::find_if(gone, [&](const GoneHeads& entry) { return entry.last >= length; });
    if (place != gone.end() && place->first <= length) {
        if (place->first == place->last) place->reason = reason;  // the newest head of one length counts
        return;
    }
    gone.insert(place, {length, length, reason});
    if (gone.size() <= kMaxGone) return;
    gone[1].first = gone[0].first;
    gone.erase(gone.begin());
}

void Name::forget_gone_beyond(int64_t length) {
    std::erase_if(gone, [&](const GoneHeads& entry) { return entry.first > length; });
    if (!gone.empty()) gone.back().last = std::min(gone.back().last, length);
}

}  // namespace verbatim
