// engine/request/key_numbers.h: owns the numbers of values by conversation, for millions of them. The values know their
// keys, so that a key is stored once.
//
// A hash table by a number made of the key finds the value; its key is compared. Keys with one number, which clients
// could choose, are in a tree from the second on: a look-up never takes more than the tree's depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "engine/base/check.h"
#include "engine/base/index_table.h"
#include "engine/request/request.h"

namespace verbatim {

struct NumberOfKey {
    uint64_t operator()(const ConversationKey& key) const {
        const std::hash<std::string> hash;
        const uint64_t salt = key.salt.value ? hash(*key.salt.value) : 1;
        return hash(key.conversation_id) ^ salt * 0x9e3779b97f4a7c15u;
    }
};

template <typename NumberOf = NumberOfKey>
class BasicKeyNumbers {
public:
    static constexpr uint32_t kNone = IndexTable::kNone;

    // key_at(number) is the key of a value. kNone: not there.
    template <typename KeyAt>
    [[nodiscard]] uint32_t find(const ConversationKey& key, const KeyAt& key_at) const {
        const uint32_t first = firsts_.find(NumberOf{}(key));
        if (first != kNone && key_at(first) == key) return first;
        if (later_.empty()) return kNone;
        const auto found = later_.find(key);
        return found == later_.end() ? kNone : found->second;
    }
    // REQUIRES: the key is not there.
    void insert(const ConversationKey& key, uint32_t number) {
        if (!firsts_.insert(NumberOf{}(key), number)) CHECK(later_.emplace(key, number).second);
    }
    // REQUIRES: the key has this number.
    void erase(const ConversationKey& key, uint32_t number) {
        const uint64_t hash = NumberOf{}(key);
        if (firsts_.find(hash) == number) {
            firsts_.erase(hash);
        } else {
            CHECK(later_.erase(key) == 1, "'{}' has no number", key.conversation_id);
        }
    }
    [[nodiscard]] size_t size() const { return firsts_.size() + later_.size(); }

private:
    IndexTable firsts_;
    std::map<ConversationKey, uint32_t> later_;
};
using KeyNumbers = BasicKeyNumbers<>;

}  // namespace verbatim
