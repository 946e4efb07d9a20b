#include "engine/cache/name.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {

void Name::note_gone(int64_t length, NotReused reason) {
    CHECK_GE(length, 0);
    CHECK(gone.size() <= kMaxGone && std::ranges::is_sorted(gone, {}, &GoneHeads::last), "'{}' knows {} gone heads",
          key.conversation_id, gone.size());
    const auto place = std::ranges::find_if(gone, [&](const GoneHeads& entry) { return entry.last >= length; });
    if (place != gone.end() && place->first <= length) {
        if (place->first == place->last) place->reason = reason;  // the newest head of one length counts
        return;
    }
    gone.insert(place, {length, length, reason});
    if (gone.size() <= kMaxGone) return;
    gone[1].first = gone[0].first;
    gone.erase(gone.begin());
    CHECK_LE(gone.size(), kMaxGone);
}

bool Name::knows_gone(int64_t length) const {
    const auto lies_in = [&](const GoneHeads& entry) { return entry.first <= length && length <= entry.last; };
    return std::ranges::any_of(gone, lies_in);
}

void Name::forget_gone_beyond(int64_t length) {
    std::erase_if(gone, [&](const GoneHeads& entry) { return entry.first > length; });
    if (gone.empty()) return;
    gone.back().last = std::min(gone.back().last, length);
    CHECK_LE(gone.back().first, gone.back().last);
}

}  // namespace verbatim
