// Reading UTF-8.
#include "server/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace verbatim::tests {
namespace {

using text::first_invalid_utf8;

// Many bytes are looked at together: wherever the bad one is, it is found.
TEST(Utf8, TheFirstInvalidByteIsFoundWhereverItIs) {
    for (size_t size = 1; size < 40; ++size) {
        for (size_t at = 0; at < size; ++at) {
            std::string text(size, 'a');
            EXPECT_EQ(first_invalid_utf8(text), std::nullopt);
            text[at] = '\xff';
            EXPECT_EQ(first_invalid_utf8(text), at);
            text.insert(at, "\u20ac");
            EXPECT_EQ(first_invalid_utf8(text), at + 3);
            text.resize(at + 2);  // the character is not whole
            EXPECT_EQ(first_invalid_utf8(text), at);
        }
    }
}

}  // namespace
}  // namespace verbatim::tests
