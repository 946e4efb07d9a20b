// `verbatim serve --record`: what clients asked over HTTP is recorded, and `verify` makes it again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/tools/program/run_program.h"
#include "tests/tools/serve/served.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;

TEST(ServeRecord, WhatClientsAskedIsMadeAgain) {
    const tests::ScratchFolder files;
    const std::string path = files.path("served.rec");
    const Served served({"--threads", "1", "--cache", "32MiB", "--record", path, "--digests", "layers"});
    ASSERT_GT(served.port(), 0);
    for (const int max_tokens : {5, 9}) {
        const std::string answer = served.post("/v1/completions", {{"model", "tiny-python"},
                                                                   {"prompt", "def add(a, b):"},
                                                                   {"max_tokens", max_tokens},
                                                                   {"temperature", 1},
                                                                   {"seed", 7}});
        EXPECT_THAT(answer, testing::HasSubstr("200 OK"));
    }
    EXPECT_EQ(served.end(), kExitOk);
    const Outcome verified = run_verbatim({"verify", path, "--format", "json"});
    ASSERT_EQ(verified.exit_code, kExitOk) << verified.out << verified.err;
    const json result = json::parse(verified.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_GE(result["compared"]["tokens"], 5);
    EXPECT_GT(result["compared"]["operations"], 10);
    EXPECT_GE(result["compared"]["states"], 2);
    EXPECT_FALSE(result.contains("cut_off"));
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "cache=off", "chunks=3", "--executor", "reference"}).exit_code,
              kExitOk);
}

}  // namespace
}  // namespace verbatim::tools
