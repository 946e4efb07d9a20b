// engine/base/indexed_heap.h: owns items with a number each, ordered: the lowest is first, and any can be replaced or
// erased.
//   P1  an item is not lower than the one that it lies below; four lie below each
//   P2  places_ says where the item of a number lies
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/base/check.h"

namespace verbatim {

// `Item` has a `uint32_t number` and operator<. No two items of a heap are equal, nor are their numbers.
template <typename Item>
class IndexedHeap {
public:
    [[nodiscard]] bool contains(uint32_t number) const { return number < places_.size() && places_[number] != kNone; }
    [[nodiscard]] const Item& at(uint32_t number) const { return items_[place_of(number)]; }
    [[nodiscard]] size_t size() const { return items_.size(); }
    void insert(const Item& item) {
        CHECK(!contains(item.number), "item {} is there already", item.number);
        if (places_.size() <= item.number) places_.resize(item.number + 1, kNone);
        items_.push_back(item);
        rise(items_.size() - 1, item);
    }
    // The item of the same number becomes this one.
    void replace(const Item& item) { put(place_of(item.number), item); }
    void erase(uint32_t number) {
        const size_t place = place_of(number);
        places_[number] = kNone;
        const Item last = items_.back();
        items_.pop_back();
        if (place < items_.size()) put(place, last);
    }
    // Calls visit(item) from the lowest on, until it returns false. The k-th visit takes O(log k).
    template <typename Visit>
    void visit_in_order(const Visit& visit) const {
        std::vector<size_t> next;  // places whose item may be the next one: a heap, the lowest first
        const auto is_higher = [&](size_t a, size_t b) { return items_[b] < items_[a]; };
        if (!items_.empty()) next.push_back(0);
        while (!next.empty()) {
            std::ranges::pop_heap(next, is_higher);
            const size_t place = next.back();
            next.pop_back();
            if (!visit(items_[place])) return;
            for (size_t child = first_below(place); child < end_below(place); ++child) {
                next.push_back(child);
                std::ranges::push_heap(next, is_higher);
            }
        }
    }
    [[nodiscard]] std::vector<Item> in_order() const {
        std::vector<Item> ordered = items_;
        std::ranges::sort(ordered, [](const Item& a, const Item& b) { return a < b; });
        return ordered;
    }
    void verify() const {
        for (size_t place = 0; place < items_.size(); ++place) {
            CHECK_EQ(places_[items_[place].number], place);
            CHECK(place == 0 || items_[above(place)] < items_[place],
                  "item {} is lower than the one that it lies below", items_[place].number);
        }
        CHECK_EQ(places_.size() - static_cast<size_t>(std::ranges::count(places_, kNone)), items_.size());
    }

private:
    static constexpr uint32_t kNone = ~uint32_t{0};
    static constexpr size_t kWidth = 4;
    static size_t above(size_t place) { return (place - 1) / kWidth; }
    static size_t first_below(size_t place) { return kWidth * place + 1; }
    [[nodiscard]] size_t end_below(size_t place) const { return std::min(first_below(place) + kWidth, items_.size()); }
    [[nodiscard]] size_t place_of(uint32_t number) const {
        CHECK(contains(number), "there is no item {}", number);
        return places_[number];
    }
    void lay(size_t place, const Item& item) {
        items_[place] = item;
        places_[item.number] = static_cast<uint32_t>(place);
    }
    void put(size_t place, const Item& item) {
        if (place > 0 && item < items_[above(place)]) {
            rise(place, item);
        } else {
            sink(place, item);
        }
    }
    void rise(size_t place, const Item item) {
        for (; place > 0 && item < items_[above(place)]; place = above(place)) lay(place, items_[above(place)]);
        lay(place, item);
    }
    void sink(size_t place, const Item item) {
        while (first_below(place) < items_.size()) {
            size_t lowest = first_below(place);
            for (size_t child = lowest + 1; child < end_below(place); ++child) {
                if (items_[child] < items_[lowest]) lowest = child;
            }
            if (item < items_[lowest]) break;
            lay(place, items_[lowest]);
            place = lowest;
        }
        lay(place, item);
    }

    std::vector<Item> items_;
    std::vector<uint32_t> places_;  // by number; kNone: not there
};

}  // namespace verbatim
