#include "engine/request/key_map.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "engine/base/prng.h"

namespace verbatim::tests {
namespace {

ConversationKey random_key(Prng& prng) {
    ConversationKey key{{}, std::string(1, static_cast<char>('a' + prng.below(5)))};
    if (prng.below(2) == 0) key.salt.value = std::string(prng.below(3), 's');
    return key;
}

// No salt is one more salt, and so is an empty one.
TEST(KeyMap, IsAMapOfKeys) {
    Prng prng(3);
    KeyMap<int> keys;
    std::map<ConversationKey, int> model;
    for (int step = 0; step < 4000; ++step) {
        const ConversationKey key = random_key(prng);
        const int* found = keys.find(key);
        ASSERT_EQ(found != nullptr, model.contains(key));
        if (found != nullptr) ASSERT_EQ(*found, model.at(key));
        switch (prng.below(3)) {
            case 0: keys[key] = model[key] = step; break;
            case 1: ASSERT_EQ(keys.emplace(key, step), model.emplace(key, step).second); break;
            default: ASSERT_EQ(keys.erase(key), model.erase(key));
        }
        ASSERT_EQ(keys.size(), model.size());
    }
    size_t num_seen = 0;
    keys.for_each([&](const ConversationKey& key, int value) { num_seen += model.at(key) == value ? 1 : 0; });
    EXPECT_EQ(num_seen, model.size());
}

// Keys of one number, which a client can choose: an empty salt is a salt, and so is none.
TEST(KeyNumbers, KeysOfOneNumberAreToldApart) {
    const auto always_one = [](const ConversationKey&) { return uint64_t{1}; };
    const std::vector<ConversationKey> keys = {{{}, "a"}, {{}, "b"}, {{}, "c"}};
    const auto key_at = [&](uint32_t number) -> const ConversationKey& { return keys.at(number); };
    for (uint32_t erased = 0; erased < keys.size(); ++erased) {
        BasicKeyNumbers<decltype(always_one)> numbers;
        for (uint32_t i = 0; i < keys.size(); ++i) {
            EXPECT_EQ(numbers.find(keys[i], key_at), KeyNumbers::kNone);
            numbers.insert(keys[i], i);
        }
        numbers.erase(keys[erased], erased);
        EXPECT_EQ(numbers.size(), 2u);
        for (uint32_t i = 0; i < keys.size(); ++i)
            EXPECT_EQ(numbers.find(keys[i], key_at), i == erased ? KeyNumbers::kNone : i);
        numbers.insert(keys[erased], erased);
        EXPECT_EQ(numbers.find(keys[erased], key_at), erased);
    }
}

}  // namespace
}  // namespace verbatim::tests
