// engine/drafting/pacing.h: how many drafts a request asks for next, by what was accepted of those before. Integers
// only.
//
// A window that was accepted whole doubles the next one; one that was not makes it as long as it was right. After
// drafts of which none was right the request does without for a while: twice as long each time, kMaxPause steps at
// most.
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbatim {

class DraftPacing {
public:
    static constexpr int32_t kFirst = 2;
    static constexpr int32_t kMaxPause = 64;

    // Of at most `max_drafts`; once for every step in which the request could draft.
    [[nodiscard]] int32_t next(int32_t max_drafts) {
        if (pause_ > 0) {
            --pause_;
            return 0;
        }
        return std::min(limit_, max_drafts);
    }
    // What became of a window. REQUIRES: 0 <= accepted <= drafted, drafted > 0.
    void told(int32_t drafted, int32_t accepted, int32_t max_drafts) {
        if (accepted == 0) {
            next_pause_ = std::min(2 * next_pause_, kMaxPause);
            pause_ = next_pause_;
            limit_ = 1;
            return;
        }
        next_pause_ = 1;
        limit_ = accepted == drafted ? std::min(2 * std::max(limit_, drafted), max_drafts) : accepted + 1;
    }

private:
    int32_t limit_ = kFirst;
    int32_t pause_ = 0;
    int32_t next_pause_ = 1;
};

}  // namespace verbatim
