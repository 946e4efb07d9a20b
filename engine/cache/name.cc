#include "engine/cache/name.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim {

void Name::note_gone(int64_t length, NotReused reason) {
    CHECK_GE(length, 0);
    CHECK(gone.size() <= kMaxGone && std::ranges::is_sorted(gone, {}, &GoneHeads::last), "'{}' knows {} gone heads",
          key.conversation_id, gone.size());
    gone.change([&](std::vector<GoneHeads>& entries) {
        const auto place = std::ranges::find_if(entries, [&](const GoneHeads& entry) { return entry.last >= length; });
        if (place != entries.end() && place->first <= length) {
            if (place->first == place->last) place->reason = reason;  // the newest head of one length counts
            return;
        }
        entries.insert(place, {length, length, reason});
        if (entries.size() <= kMaxGone) return;
        entries[1].first = entries[0].first;
        entries.erase(entries.begin());
    });
    CHECK_LE(gone.size(), kMaxGone);
}

bool Name::knows_gone(int64_t length) const {
    const auto lies_in = [&](const GoneHeads& entry) { return entry.first <= length && length <= entry.last; };
    return std::ranges::any_of(gone, lies_in);
}

void Name::forget_gone_beyond(int64_t length) {
    if (gone.empty()) return;
    gone.change([&](std::vector<GoneHeads>& entries) {
        std::erase_if(entries, [&](const GoneHeads& entry) { return entry.first > length; });
        if (!entries.empty()) entries.back().last = std::min(entries.back().last, length);
    });
    CHECK(gone.empty() || gone.back().first <= gone.back().last, "'{}' knows of gone heads beyond {}",
          key.conversation_id, length);
}

}  // namespace verbatim
