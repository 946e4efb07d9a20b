// engine/drafting/pacing.h: how many drafts a request asks for next, by what was accepted of those before and by what
// their rows cost. Integers only.
//
// A window that was accepted whole doubles the next one; another makes the next one as long as its accepted part. After
// a window without an accepted draft the request pauses: twice as long each time, kMaxPause steps at most. A draft is
// asked for only where its chance of acceptance is at least the least that pays for its row (draft_worth.h).
#pragma once

#include <algorithm>
#include <cstdint>

namespace verbatim {

inline constexpr int64_t kSure = 1024;  // a probability of one

class DraftPacing {
public:
    static constexpr int32_t kFirst = 2;
    static constexpr int32_t kMaxPause = 64;

    // Of at most `max_drafts`; once for every step in which the request could draft. `least`: how likely a draft must
    // be to be worth its row, of kSure (DraftTerms).
    [[nodiscard]] int32_t next(int32_t max_drafts, int64_t least = 0) {
        if (pause_ > 0) {
            --pause_;
            return 0;
        }
        int32_t worth = 0;
        for (int64_t sure = acceptance(); worth < max_drafts && sure >= least; ++worth)
            sure = sure * acceptance() / kSure;
        if (worth == 0) {  // one draft from time to time measures whether that still holds
            pause_ = kMaxPause;
            worth = 1;
        }
        return std::min({limit_, max_drafts, worth});
    }
    // Takes in a window's outcome. REQUIRES: 0 <= accepted <= drafted, drafted > 0.
    void record(int32_t drafted, int32_t accepted, int32_t max_drafts) {
        accepted_ += kSure * accepted - accepted_ / kMemory;
        tested_ += kSure * (accepted + (accepted < drafted ? 1 : 0)) - tested_ / kMemory;
        if (accepted == 0) {
            next_pause_ = std::min(2 * next_pause_, kMaxPause);
            pause_ = std::max(pause_, next_pause_);
            limit_ = 1;
            return;
        }
        next_pause_ = 1;
        limit_ = accepted == drafted ? std::min(2 * std::max(limit_, drafted), max_drafts) : accepted + 1;
    }

private:
    static constexpr int64_t kMemory = 8;  // windows, about

    // The chance of a draft whose predecessors were accepted, of kSure. Drafts behind a rejected one do not count.
    [[nodiscard]] int64_t acceptance() const { return kSure * accepted_ / tested_; }

    int64_t accepted_ = 3 * kSure;
    int64_t tested_ = 4 * kSure;
    int32_t limit_ = kFirst;
    int32_t pause_ = 0;
    int32_t next_pause_ = 1;
};

}  // namespace verbatim
