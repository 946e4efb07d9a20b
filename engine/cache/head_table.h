// engine/cache/head_table.h: owns values by head id, for millions of heads. Values stay where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "engine/base/index_table.h"
#include "engine/base/slot_map.h"

namespace verbatim {

template <typename T>
class HeadTable {
public:
    [[nodiscard]] T* find(HeadId head) {
        const uint32_t number = numbers_.find(key_of(head));
        return number == IndexTable::kNone ? nullptr : &values_[number].value;
    }
    [[nodiscard]] const T* find(HeadId head) const { return const_cast<HeadTable*>(this)->find(head); }
    [[nodiscard]] bool contains(HeadId head) const { return find(head) != nullptr; }
    // REQUIRES: the head is not there.
    T& add(HeadId head, T value) {
        const uint32_t number = values_.add({head, std::move(value)});
        CHECK(numbers_.insert(key_of(head), number), "head {} is in the table already", index(head));
        return values_[number].value;
    }
    // REQUIRES: the head is there.
    void erase(HeadId head) {
        const uint32_t number = numbers_.find(key_of(head));
        CHECK(number != IndexTable::kNone, "head {} is not in the table", index(head));
        numbers_.erase(key_of(head));
        values_.free(number);
    }
    [[nodiscard]] size_t size() const { return numbers_.size(); }
    // A head keeps its number until it is erased.
    [[nodiscard]] uint32_t number_of(HeadId head) const {
        return numbers_.find(key_of(head));
    }  // REQUIRES: it is there
    [[nodiscard]] T& at(uint32_t number) { return values_[number].value; }
    // Calls visit(head, value) for each, in an order that depends on the calls so far alone.
    template <typename Visit>
    void for_each(const Visit& visit) const {
        for (const auto& [head, value] : values_.all()) {
            if (head != kNoHead) visit(head, value);
        }
    }

private:
    static uint64_t key_of(HeadId head) { return static_cast<uint64_t>(index(head)); }

    struct Value {
        HeadId head = kNoHead;  // kNoHead: free
        T value{};
    };
    SlotMap<Value, uint32_t> values_;
    IndexTable numbers_;  // of values_
};

}  // namespace verbatim
