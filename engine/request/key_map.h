// engine/request/key_map.h: owns values by conversation, for many thousand of them that are looked up all the time.
//
// A number made of the key comes first in the order, so that finding one compares numbers. Keys with one number, which
// clients could choose, are ordered by themselves: a look-up never takes more than a tree's depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/request/request.h"

namespace verbatim {

template <typename T>
class KeyMap {
public:
    struct Key {
        uint64_t number = 0;
        ConversationKey key;
    };

    [[nodiscard]] auto find(const ConversationKey& key) { return map_.find(View{number_of(key), key}); }
    [[nodiscard]] auto find(const ConversationKey& key) const { return map_.find(View{number_of(key), key}); }
    // Made if it is not there.
    T& operator[](const ConversationKey& key) {
        const View view{number_of(key), key};
        const auto place = map_.lower_bound(view);
        if (place != map_.end() && place->first.number == view.number && place->first.key == key) return place->second;
        return map_.emplace_hint(place, Key{view.number, key}, T{})->second;
    }
    auto emplace(const ConversationKey& key, T value) {
        return map_.emplace(Key{number_of(key), key}, std::move(value));
    }
    size_t erase(const ConversationKey& key) {
        const auto found = find(key);
        if (found == map_.end()) return 0;
        map_.erase(found);
        return 1;
    }
    template <typename Iterator>
    void erase(Iterator place) requires(!std::is_convertible_v<Iterator, ConversationKey>) {
        map_.erase(place);
    }
    [[nodiscard]] size_t size() const { return map_.size(); }
    // In an order that says nothing.
    [[nodiscard]] auto begin() const { return map_.begin(); }
    [[nodiscard]] auto end() const { return map_.end(); }
    [[nodiscard]] auto end() { return map_.end(); }

private:
    struct View {
        uint64_t number;
        const ConversationKey& key;
    };
    struct ByNumber {
        using is_transparent = void;
        template <typename A, typename B>
        bool operator()(const A& a, const B& b) const {
            return a.number != b.number ? a.number < b.number : a.key < b.key;
        }
    };
    static uint64_t number_of(const ConversationKey& key) {
        const std::hash<std::string> hash;
        const uint64_t salt = key.salt.value ? hash(*key.salt.value) : 1;
        return hash(key.conversation_id) ^ salt * 0x9e3779b97f4a7c15u;
    }

    std::map<Key, T, ByNumber> map_;
};

}  // namespace verbatim
