// Answers of a form over HTTP, with a script in the place of the library's: what is refused before, what fails in the
// middle, and what goes on behind an executor that failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/server/http/http_scene.h"
#include "tests/support/grammar_script.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// Every mask allows all tokens. The grammar `regex fails N` has none behind N tokens; `regex wrong` is none, and `regex
// alone` none where another one runs; the masks of `regex slow M N` behind M and N tokens take longer than steps wait
// for.
constexpr const char* kAnswer = R"(
    words = grammar.split()
    if words[1] == "slow" and str(len(tokens)) in words[2:]:
        time.sleep(0.07)
    if words[1] == "alone" and len(sequences) > 1:
        return say(b"refused", b"others run")
    if words[1] == "wrong" or (words[1] == "fails" and len(tokens) == int(words[2])):
        return say(b"refused", b"it is too much")
    say(b"mask", b"\xff" * (vocab_size // 8))
)";

// Masks come while a step runs, or all before their steps.
HttpSceneConfig with_script(bool takes_late_masks = true) {
    HttpSceneConfig config;
    config.grammar_script = grammar_script(kAnswer);
    config.executor.takes_late_masks = takes_late_masks;
    return config;
}

// End tokens end it, as an answer of a form needs.
json chat(const json& more = json::object()) {
    json body = hello({{"ignore_eos", false}});
    body.update(more);
    return body;
}

json regex(const std::string& text, const json& more = json::object()) {
    json body = chat({{"structured_outputs", {{"regex", text}}}});
    body.update(more);
    return body;
}

class HttpMasks : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Http, HttpMasks, testing::Bool(),
                         [](const auto& info) { return info.param ? "InTheStep" : "BeforeTheStep"; });

TEST_P(HttpMasks, AnAnswerUnderMasksThatAllowAllIsTheAnswerWithoutThem) {
    HttpScene scene(with_script(GetParam()));
    const json free = scene.chat(chat()).json()["choices"];
    EXPECT_EQ(scene.chat(regex("a")).json()["choices"], free);
    EXPECT_EQ(joined(scene.chat(regex("a", {{"stream", true}}))).text, free[0]["message"]["content"]);
    const json two = scene.chat(regex("a", {{"n", 2}})).json()["choices"];
    EXPECT_EQ(two[0], free[0]);
    EXPECT_EQ(two, scene.chat(chat({{"n", 2}})).json()["choices"]);
    const int64_t num_masks = scene.host().view().num_masks;
    EXPECT_GT(num_masks, 0);
    EXPECT_EQ(scene.chat(regex("slow 3 4")).json()["choices"], free);
    EXPECT_EQ(scene.chat(regex("slow 3 4", {{"n", 2}})).json()["choices"], two);
    EXPECT_GT(scene.host().view().num_masks, num_masks);
}

// A slow mask that comes while a step waits for another request's is that of a later step.
TEST(HttpGrammars, AMaskThatComesInAnotherRequestsStepIsKept) {
    HttpScene scene(with_script());
    const json free = scene.chat(chat()).json()["choices"];
    scene.wait_until_idle();
    scene.gate().let_through(4);  // the first slow mask is in the fourth
    const HttpClient slow(scene.port());
    slow.send(post("/v1/chat/completions", regex("slow 3 8").dump()));
    scene.gate().wait_until_closed();
    const HttpClient quick(scene.port());
    quick.send(post("/v1/chat/completions", regex("a").dump()));
    while (scene.host().num_requests() < 2) std::this_thread::yield();
    scene.gate().open();
    EXPECT_EQ(quick.read_answer().json()["choices"], free);
    EXPECT_EQ(slow.read_answer().json()["choices"], free);
}

TEST(HttpGrammars, AFinishedAnswerLeavesNoSequenceInTheProcess) {
    HttpScene scene(with_script());
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(scene.chat(regex("alone")).status, 200);
        scene.wait_until_idle();
    }
}

TEST(HttpGrammars, AFormThatIsNoneIsRefusedWithItsField) {
    HttpScene scene(with_script());
    const HttpAnswer refused = scene.chat(regex("wrong"));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.json()["error"]["param"], "structured_outputs.regex");
    EXPECT_THAT(refused.body, HasSubstr("it is too much"));
    EXPECT_EQ(scene.chat(regex("a")).status, 200);
}

TEST_P(HttpMasks, AnAnswerThatCannotGoOnFailsAloneAndCommitsNothing) {
    HttpScene scene(with_script(GetParam()));
    const HttpAnswer whole = scene.chat(regex("fails 3", {{"conversation_id", "c"}}));
    EXPECT_EQ(whole.status, 400) << whole.body;
    EXPECT_EQ(whole.json()["error"]["code"], "grammar_failed");
    const HttpAnswer stream = scene.chat(regex("fails 3", {{"stream", true}}));
    const json error = stream.status == 200 ? json::parse(stream.events().back()) : stream.json();
    EXPECT_EQ(error["error"]["code"], "grammar_failed") << stream.body;
    EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]")));
    EXPECT_EQ(scene.chat(regex("a", {{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    EXPECT_EQ(scene.engine().stats().commits, 1);
}

TEST_P(HttpMasks, AnAnswerGoesOnBehindAnExecutorThatFailed) {
    const json right = HttpScene(with_script()).chat(regex("a")).json()["choices"];
    HttpSceneConfig config = with_script(GetParam());
    config.executor.fail_at_step = 4;
    config.replaces_executor = true;
    HttpScene scene(config);
    EXPECT_EQ(scene.chat(regex("a")).json()["choices"], right);
    EXPECT_EQ(scene.host().view().num_replaced_executors, 1);
}

// The process that it starts does not keep its connection open.
TEST(HttpGrammars, AClientThatLeavesEndsItsAnswer) {
    HttpScene scene(with_script());
    scene.gate().let_through(3);
    {
        HttpClient client(scene.port());
        client.send(post("/v1/chat/completions", regex("a", {{"stream", true}}).dump()));
        EXPECT_THAT(client.read_until("data: "), HasSubstr("200"));
    }
    scene.wait_until_aborts(1);
    scene.gate().open();
    scene.wait_until_idle();
    EXPECT_EQ(scene.chat(regex("a")).status, 200);
}

TEST(HttpGrammars, WithoutTheLibraryItIsSaid) {
    HttpSceneConfig config;
    config.grammar_script = "print('failed 9\\nno module', end='', flush=True)\n";
    const HttpScene scene(config);
    const HttpAnswer refused = scene.chat(regex("a"));
    EXPECT_EQ(refused.status, 501);
    EXPECT_EQ(refused.json()["error"]["code"], "structured_output_unavailable");
    EXPECT_THAT(refused.body, HasSubstr("tests/environment.py build/python llguidance"));
    EXPECT_THAT(refused.body, HasSubstr("no module"));
    EXPECT_EQ(scene.chat(chat()).status, 200);
}

TEST(HttpGrammars, FormsAreReadOrRefusedByTheirField) {
    HttpScene scene(with_script());
    const auto param = [&](const json& more, int status = 400) {
        const HttpAnswer answer = scene.chat(chat(more));
        EXPECT_EQ(answer.status, status) << answer.body;
        return answer.json()["error"].value("param", json());
    };
    const json schema = {{"type", "object"}};
    const auto format = [&](const json& inner) {
        return json{{"response_format", {{"type", "json_schema"}, {"json_schema", inner}}}};
    };
    EXPECT_EQ(scene.chat(chat({{"response_format", {{"type", "text"}}}})).status, 200);
    EXPECT_EQ(scene.chat(chat({{"response_format", {{"type", "json_object"}}}})).status, 200);
    EXPECT_EQ(scene.chat(chat(format({{"name", "n"}, {"schema", schema}, {"strict", false}}))).status, 200);
    for (const json& form : std::vector<json>{{{"json", schema}},
                                              {{"json", schema.dump()}},
                                              {{"json_object", true}},
                                              {{"choice", {"a", "b"}}},
                                              {{"grammar", "start: \"a\""}},
                                              {{"regex", "a"}, {"json", nullptr}, {"disable_fallback", false}}})
        EXPECT_EQ(scene.chat(chat({{"structured_outputs", form}})).status, 200) << form;
    EXPECT_EQ(scene.chat(chat({{"guided_choice", {"a"}}})).status, 200);
    EXPECT_EQ(scene.complete({{"prompt", "a"}, {"max_tokens", 2}, {"guided_regex", "a"}}).status, 200);
    EXPECT_EQ(param({{"response_format", "text"}}), "response_format");
    EXPECT_EQ(param({{"response_format", {{"type", "xml"}}}}), "response_format");
    EXPECT_EQ(param({{"response_format", {{"type", "json_object"}, {"x", 1}}}}), "response_format.x");
    EXPECT_EQ(param(format({{"name", "n"}})), "response_format.json_schema.schema");
    EXPECT_EQ(param(format({{"name", 1}, {"schema", schema}})), "response_format.json_schema.name");
    EXPECT_EQ(param(format({{"schema", schema}, {"strict", 1}})), "response_format.json_schema.strict");
    EXPECT_EQ(param(format({{"schema", schema}, {"x", 1}})), "response_format.json_schema.x");
    EXPECT_EQ(param({{"structured_outputs", json::object()}}), "structured_outputs");
    EXPECT_EQ(param({{"structured_outputs", {{"regex", "a"}, {"choice", {"a"}}}}}, 422), "structured_outputs");
    EXPECT_EQ(param({{"structured_outputs", {{"whitespace_pattern", "a"}}}}), "structured_outputs.whitespace_pattern");
    EXPECT_EQ(param({{"guided_choice", json::array()}}), "guided_choice");
    EXPECT_EQ(param({{"guided_choice", {"a", 1}}}), "guided_choice");
    EXPECT_EQ(param({{"guided_regex", ""}}), "guided_regex");
    EXPECT_EQ(param({{"guided_json", "{"}}), "guided_json");
    EXPECT_EQ(param({{"guided_regex", std::string(300'000, 'a')}}), "guided_regex");
    EXPECT_EQ(param({{"guided_regex", "a"}, {"guided_choice", {"a"}}}, 422), "guided_regex");
    EXPECT_EQ(param({{"guided_regex", "a"}, {"ignore_eos", true}}), "ignore_eos");
    const json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
    EXPECT_EQ(param({{"guided_regex", "a"}, {"tools", {tool}}}), "tools");
}

}  // namespace
}  // namespace verbatim::tests
