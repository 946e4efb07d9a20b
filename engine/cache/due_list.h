// engine/cache/due_list.h: owns which heads are due at which tick.
//
//   U1  a call takes the same time however many heads there are; take() as much as it takes
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/index_table.h"
#include "engine/base/slot_map.h"

namespace verbatim {

class DueList {
public:
    static constexpr uint32_t kNone = IndexTable::kNone;  // is no entry's number

    // The number of the entry, until it is erased or taken.
    [[nodiscard]] uint32_t add(HeadId head, int64_t tick);
    void erase(uint32_t number);  // REQUIRES: it is an entry's
    // Takes the heads that are due at this tick out of the list; ascending.
    [[nodiscard]] std::vector<HeadId> take(int64_t tick);
    [[nodiscard]] size_t size() const { return entries_.size(); }

private:
    struct Entry {
        HeadId head = kNoHead;
        int64_t tick = 0;
        uint32_t next = kNone;  // of the same tick
        uint32_t previous = kNone;
    };

    SlotMap<Entry, uint32_t> entries_;
    IndexTable firsts_;  // entries, by tick
};

}  // namespace verbatim
