// For clients in other languages (tests/server/wire/tool_loop.py): a server whose answers are scripted, where the
// trained model of the repository is too small to call tools.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/chat_templates.h"

namespace verbatim::tests {
namespace {

// Prints its address; each line of stdin is a JSON text, which all answers behind it say. `said` answers the line.
TEST(ScriptedServer, DISABLED_SaysTheLinesOfItsInput) {
    const char* family = std::getenv("VERBATIM_SCRIPTED_FAMILY");
    ASSERT_NE(family, nullptr) << "a template of tests/data/templates";
    HttpSceneConfig config;
    config.chat_template = chat_template_of(family);
    HttpScene scene(std::move(config));
    fmt::print("scripted at http://127.0.0.1:{}/v1\n", scene.port());
    std::fflush(stdout);
    for (std::string line; std::getline(std::cin, line);) {
        scene.wait_until_idle();
        scene.say(nlohmann::json::parse(line).get<std::string>());
        fmt::print("said\n");
        std::fflush(stdout);
    }
}

}  // namespace
}  // namespace verbatim::tests
