// scripted_server FAMILY: a server whose answers are scripted, for clients in other languages (tool_loop.py), where the
// trained model of the repository is too small to call tools. FAMILY is a template of tests/data/templates.
#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <string>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/chat_templates.h"

// Prints its address. Each line of stdin is a JSON text, which all answers behind it say; `said` answers the line.
int main(int argc, char** argv) {
    using namespace verbatim::tests;
    if (argc != 2) {
        fmt::print(stderr, "usage: scripted_server FAMILY\n");
        return 2;
    }
    HttpSceneConfig config;
    config.chat_template = chat_template_of(argv[1]);
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
