// tests/support/chat_templates.h: the chat templates of tests/data/templates.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

namespace verbatim::tests {

inline std::string chat_template_of(const std::string& family) {
    std::ifstream file(std::string(VERBATIM_SOURCE_DIR) + "/tests/data/templates/" + family + ".jinja");
    std::string source{std::istreambuf_iterator<char>(file), {}};
    EXPECT_FALSE(source.empty()) << family;
    return source;
}

}  // namespace verbatim::tests
