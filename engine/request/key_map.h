// engine/request/key_map.h: owns values by conversation, for millions of them that are looked up all the time. Values
// stay where they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "engine/base/slot_map.h"
#include "engine/request/key_numbers.h"
#include "engine/request/request.h"

namespace verbatim {

template <typename T>
class KeyMap {
public:
    // Null: not there.
    [[nodiscard]] T* find(const ConversationKey& key) {
        const uint32_t number = number_of(key);
        return number == KeyNumbers::kNone ? nullptr : &values_[number]->second;
    }
    [[nodiscard]] const T* find(const ConversationKey& key) const { return const_cast<KeyMap*>(this)->find(key); }
    // Made if it is not there.
    T& operator[](const ConversationKey& key) {
        if (T* found = find(key)) return *found;
        return add(key, T{});
    }
    // False, and nothing has changed: the key is there.
    bool emplace(const ConversationKey& key, T value) {
        if (find(key) != nullptr) return false;
        add(key, std::move(value));
        return true;
    }
    size_t erase(const ConversationKey& key) {
        const uint32_t number = number_of(key);
        if (number == KeyNumbers::kNone) return 0;
        numbers_.erase(values_[number]->first, number);
        values_.free(number);
        return 1;
    }
    [[nodiscard]] size_t size() const { return values_.size(); }
    // Calls visit(key, value) for each, in an order that says nothing.
    template <typename Visit>
    void for_each(const Visit& visit) const {
        for (const auto& value : values_.all()) {
            if (value) visit(value->first, value->second);
        }
    }

private:
    using Value = std::optional<std::pair<ConversationKey, T>>;  // empty: free
    [[nodiscard]] uint32_t number_of(const ConversationKey& key) const {
        return numbers_.find(key, [&](uint32_t number) -> const ConversationKey& { return values_[number]->first; });
    }
    T& add(const ConversationKey& key, T value) {
        const uint32_t number = values_.add(Value({key, std::move(value)}));
        numbers_.insert(key, number);
        return values_[number]->second;
    }

    SlotMap<Value, uint32_t> values_;
    KeyNumbers numbers_;  // of values_
};

}  // namespace verbatim
