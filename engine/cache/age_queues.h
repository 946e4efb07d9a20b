// engine/cache/age_queues.h: owns the ages of heads and of ghosts: admissions since the last use, in half octaves
// (ReuseModel::bucket_of).
//   U1  those of one age are in one queue, in the order of their last uses: the first one leaves it first
//   U2  a call takes the same time however many are followed; tick() as much as it visits
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/slot_map.h"
#include "engine/cache/reuse_model.h"

namespace verbatim {

class AgeQueues {
public:
    static constexpr uint32_t kNone = ~uint32_t{0};  // is no number

    // What is followed: a head or its ghost. `place` is the caller's.
    struct Followed {
        HeadId head = kNoHead;
        uint32_t place = 0;
        bool is_ghost = false;
        uint8_t head_class = 0;  // ReuseModel::class_of
    };
    static_assert(ReuseModel::kNumClasses <= std::numeric_limits<uint8_t>::max());
    // Used now. Returns its number.
    [[nodiscard]] uint32_t add(const Followed& followed);
    void use(uint32_t number, int32_t head_class);   // used now; it is of this class from now on
    void age_like(uint32_t number, uint32_t other);  // its last use is that of the other one, and so is its class
    void become(uint32_t number, const Followed& followed);
    void erase(uint32_t number);
    [[nodiscard]] size_t size() const { return items_.size(); }
    [[nodiscard]] int64_t now() const { return now_; }
    [[nodiscard]] int32_t age(uint32_t number) const { return items_[number].age; }

    // One more admission. Calls fetch(followed) for all that come to their next ages, then visit(followed, age) for
    // each, in the order of heads; twice where two ages begin at once.
    template <typename Fetch, typename Visit>
    void tick(const Fetch& fetch, const Visit& visit) {
        const auto& due = take_due();
        for (const auto& [head, number] : due) fetch(std::as_const(items_[number].followed));
        for (const auto& [head, number] : due) {
            Item& item = items_[number];
            do visit(std::as_const(item.followed), ++item.age);
            while (due_of(item) <= now_);
            link(number, queues_[static_cast<size_t>(item.age)].last);
        }
    }
    void verify() const;  // U1 from scratch

private:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
    struct Item {
        Followed followed;
        int64_t last_use = 0;  // of now_
        uint32_t next = kNone;
        uint32_t previous = kNone;
        int32_t age = 0;
    };
    struct Queue {
        uint32_t first = kNone;
        uint32_t last = kNone;
        int64_t due = kNever;  // when the first one comes to its next age
    };
    [[nodiscard]] static int64_t due_of(const Item& item) {
        return item.age + 1 < ReuseModel::kNumBuckets ? item.last_use + ReuseModel::begin_of(item.age + 1) : kNever;
    }
    [[nodiscard]] const std::vector<std::pair<HeadId, uint32_t>>& take_due();
    void link(uint32_t number, uint32_t before);  // behind `before`, which may be kNone
    void unlink(uint32_t number);

    SlotMap<Item, uint32_t> items_;
    std::array<Queue, ReuseModel::kNumBuckets> queues_;  // by age
    std::vector<std::pair<HeadId, uint32_t>> due_;       // take_due's
    int64_t now_ = 0;                                    // admissions
};

}  // namespace verbatim
