#include "engine/request/key_map.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <string>

#include "engine/base/prng.h"

namespace verbatim::tests {
namespace {

ConversationKey random_key(Prng& prng) {
    ConversationKey key{{}, std::string(1, static_cast<char>('a' + prng.below(5)))};
    if (prng.below(2) == 0) key.salt.value = std::string(prng.below(3), 's');
    return key;
}

// No salt is a salt of its own, and so is an empty one.
TEST(KeyMap, IsAMapOfKeys) {
    Prng prng(3);
    KeyMap<int> keys;
    std::map<ConversationKey, int> model;
    for (int step = 0; step < 4000; ++step) {
        const ConversationKey key = random_key(prng);
        const auto found = keys.find(key);
        ASSERT_EQ(found != keys.end(), model.contains(key));
        if (found != keys.end()) ASSERT_EQ(found->second, model.at(key));
        switch (prng.below(4)) {
            case 0: keys[key] = model[key] = step; break;
            case 1: ASSERT_EQ(keys.emplace(key, step).second, model.emplace(key, step).second); break;
            case 2: ASSERT_EQ(keys.erase(key), model.erase(key)); break;
            default:
                if (found != keys.end()) keys.erase(found);
                model.erase(key);
        }
        ASSERT_EQ(keys.size(), model.size());
    }
    size_t num_seen = 0;
    for (const auto& [numbered, value] : keys) num_seen += model.at(numbered.key) == value ? 1 : 0;
    EXPECT_EQ(num_seen, model.size());
}

}  // namespace
}  // namespace verbatim::tests
