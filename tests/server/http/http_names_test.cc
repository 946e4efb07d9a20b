// What the model is called, and usage in every chunk.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/http/http_server.h"
#include "tests/server/http/http_scene.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(HttpNames, AnyOfSeveralNamesIsTheModelAndTheFirstIsInAnswers) {
    HttpSceneConfig config;
    config.names = {{"first", "second"}};
    const HttpScene scene(std::move(config));
    for (const char* name : {"first", "second"}) {
        EXPECT_EQ(scene.chat(hello({{"model", name}})).json()["model"], "first");
        EXPECT_EQ(scene.ask(get(std::string("/v1/models/") + name)).json()["id"], name);
    }
    const json models = scene.ask(get("/v1/models")).json()["data"];
    ASSERT_EQ(models.size(), 2);
    EXPECT_EQ(models[1]["id"], "second");
    const HttpAnswer other = scene.chat(hello({{"model", "third"}}));
    EXPECT_EQ(other.status, 404);
    EXPECT_EQ(other.json()["error"]["message"], "model \"third\" is not here: first, second are");
    EXPECT_EQ(scene.ask(get("/v1/models/third")).status, 404);
}

TEST(HttpNames, WithAnyEveryNameIsTheModel) {
    HttpSceneConfig config;
    config.names = {{"first"}, /*takes_any=*/true};
    const HttpScene scene(std::move(config));
    EXPECT_EQ(scene.chat(hello({{"model", "gpt-4o"}})).json()["model"], "first");
    EXPECT_EQ(scene.ask(get("/v1/models/gpt-4o")).json()["id"], "gpt-4o");
    EXPECT_EQ(scene.chat(hello({{"model", 5}})).json()["error"]["param"], "model") << "a name is a text";
}

TEST(HttpUsage, IsInEveryChunkWhereItIsAskedFor) {
    const HttpScene scene;
    const auto chunks = [&](const json& options, const json& more = json::object()) {
        json body = hello({{"stream", true}, {"stream_options", options}});
        body.update(more);
        std::vector<json> all;
        for (const std::string& event : scene.chat(body).events()) {
            if (event != "[DONE]") all.push_back(json::parse(event));
        }
        return all;
    };
    const auto all = chunks({{"include_usage", true}, {"continuous_usage_stats", true}});
    ASSERT_GT(all.size(), 3u);
    int64_t last = 0;
    for (const json& chunk : all) {
        ASSERT_TRUE(chunk.contains("usage")) << chunk;
        const json& usage = chunk["usage"];
        EXPECT_GE(usage["completion_tokens"], last);
        last = usage["completion_tokens"];
        EXPECT_EQ(usage["total_tokens"].get<int64_t>(), usage["prompt_tokens"].get<int64_t>() + last);
    }
    EXPECT_EQ(all.front()["usage"]["completion_tokens"], 0);
    EXPECT_EQ(last, 12);
    EXPECT_EQ(all.back()["choices"], json::array()) << "the usage of all choices comes last as ever";
    EXPECT_EQ(all[all.size() - 2]["usage"]["completion_tokens"], 12) << "with the finish_reason";
    for (const json& chunk : chunks({{"continuous_usage_stats", true}}))
        EXPECT_FALSE(chunk.contains("usage")) << "include_usage is false, as in vLLM";
    const HttpAnswer refused = scene.chat(hello({{"stream_options", {{"other", true}}}}));
    EXPECT_THAT(refused.json()["error"]["message"].get<std::string>(), HasSubstr("continuous_usage_stats"));
}

}  // namespace
}  // namespace verbatim::tests
