// `verbatim text` and `verbatim trace convert-chat` as people and scripts use them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "files/repository_path.h"
#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string tiny_python() { return repository_path("server/models/tiny-python"); }

// The program with `input` as its stdin.
Outcome run_with_input(const std::vector<std::string>& arguments, const std::string& input) {
    std::istringstream lines(input);
    std::streambuf* const before = std::cin.rdbuf(lines.rdbuf());
    Outcome outcome = run_verbatim(arguments);
    std::cin.rdbuf(before);
    return outcome;
}

TEST(TextCommand, EncodeAndDecodeAreInverse) {
    const json text = {{"text", "def f(x):\n    return x + 1<|end_of_text|>\u00e9"}};
    for (const std::vector<std::string>& flags : {std::vector<std::string>{}, {"--no-special"}}) {
        std::vector<std::string> encode = {"text", "encode", tiny_python()};
        encode.insert(encode.end(), flags.begin(), flags.end());
        const Outcome encoded = run_with_input(encode, text.dump() + "\n" + text.dump() + "\n");
        ASSERT_EQ(encoded.exit_code, kExitOk) << encoded.err;
        const Outcome decoded = run_with_input({"text", "decode", tiny_python()}, encoded.out);
        EXPECT_EQ(decoded.out, text.dump() + "\n" + text.dump() + "\n");
        const auto ids = json::parse(encoded.out.substr(0, encoded.out.find('\n')))["ids"].get<std::vector<int>>();
        EXPECT_EQ(std::count(ids.begin(), ids.end(), 0), flags.empty() ? 1 : 0);
    }
}

TEST(TextCommand, DecodeLeavesSpecialTokensOutWhenAsked) {
    const Outcome outcome =
        run_with_input({"text", "decode", tiny_python(), "--no-special"}, "{\"ids\": [72, 0, 73]}\n");
    EXPECT_EQ(outcome.out, "{\"text\":\"de\"}\n");
}

TEST(TextCommand, TemplateGivesTextAndIds) {
    const Outcome outcome =
        run_with_input({"text", "template", tiny_python()},
                       R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}],)"
                       R"( "add_generation_prompt": true})");
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const json out = json::parse(outcome.out);
    EXPECT_EQ(out["text"],
              "<|start_of_role|>system<|end_of_role|>s<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>"
              "u<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>");
    const Outcome encoded =
        run_with_input({"text", "encode", tiny_python()}, json{{"text", out["text"]}}.dump() + "\n");
    EXPECT_EQ(json::parse(encoded.out)["ids"], out["ids"]);
}

TEST(TextCommand, ATemplateMayComeFromAFileAndGoOnFromTheLastMessage) {
    const tests::ScratchFolder files;
    const std::string own =
        files.write("own.jinja", "{% for message in messages %}<{{ message.content | trim }}>\n{% endfor %}");
    const std::vector<std::string> arguments = {"text", "template", tiny_python(), "--chat-template", own};
    const std::string messages = R"("messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b "}])";
    const Outcome whole = run_with_input(arguments, "{" + messages + "}");
    EXPECT_EQ(json::parse(whole.out)["text"], "<a>\n<b>\n") << whole.err;
    const Outcome open = run_with_input(arguments, "{" + messages + R"(, "continue_final_message": true})");
    EXPECT_EQ(json::parse(open.out)["text"], "<a>\n<b") << open.err;
    files.write("own.jinja",
                "{% for message in messages %}\n{{ 5 + (message.content | length if loop.first else 'x') }}"
                "{% endfor %}");
    const Outcome failed = run_with_input(arguments, "{" + messages + "}");
    EXPECT_EQ(failed.exit_code, kExitBadInput);
    EXPECT_THAT(failed.err, testing::AllOf(HasSubstr("messages[1] at its line 2"), HasSubstr("TypeError")));
}

// As the server does (Messages.* in tests/server/http): a verb that shows another prompt than the server computes would
// mislead.
TEST(TextCommand, TemplateGetsMessagesAsTheServerPreparesThem) {
    const tests::ScratchFolder files;
    const std::string own =
        files.write("own.jinja",
                    "{% for message in messages %}[{{ message.content }}]{% for call in message.tool_calls %}"
                    "{% for key, value in call.function.arguments.items() %}{{ key }}={{ value }};{% endfor %}{% "
                    "endfor %}{% endfor %}");
    const std::vector<std::string> arguments = {"text", "template", tiny_python(), "--chat-template", own};
    const Outcome calls = run_with_input(
        arguments,
        R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}]}, {"role": "assistant",)"
        R"( "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{\"x\": 1}"}}]}]})");
    ASSERT_EQ(calls.exit_code, kExitOk) << calls.err;
    EXPECT_EQ(json::parse(calls.out)["text"], "[a][]x=1;");
    const Outcome number = run_with_input(
        arguments, R"({"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": 5}]})");
    EXPECT_EQ(number.exit_code, kExitBadInput);
    EXPECT_THAT(number.err, HasSubstr("stdin line 1: messages[1].content is 5, wanted a text"));
}

TEST(TextCommand, TheFirstBadLineEndsTheRunWithItsNumber) {
    const auto refusal = [](const char* verb, const std::string& line) {
        const Outcome outcome = run_with_input({"text", verb, tiny_python()}, line + "\n");
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << line;
        return outcome.err;
    };
    EXPECT_THAT(refusal("encode", "{"), HasSubstr("stdin line 1"));
    EXPECT_THAT(refusal("encode", "{\"text\": 5}"), HasSubstr("stdin line 1: text is 5, wanted a text"));
    EXPECT_THAT(refusal("encode", "{\"ids\": []}"), HasSubstr("wanted an object with \"text\""));
    EXPECT_THAT(refusal("encode", "{\"text\": \"\\ud800\"}"), HasSubstr("stdin line 1"));
    EXPECT_THAT(refusal("decode", "{\"ids\": [2048]}"), HasSubstr("ids[0] is 2048, wanted a token id from 0 to 2047"));
    EXPECT_THAT(refusal("decode", "{\"ids\": [1, -1]}"), HasSubstr("ids[1] is -1"));
    EXPECT_THAT(refusal("decode", "{\"ids\": [0.5]}"), HasSubstr("ids[0] is 0.5"));
    EXPECT_THAT(refusal("template", "{\"messages\": []}"), HasSubstr("messages is []"));
    EXPECT_THAT(refusal("template", "{\"messages\": [{\"content\": \"a\"}]}"), HasSubstr("messages[0].role is null"));
}

// A published model may have more rows than its tokenizer has tokens (Qwen3.5: 248 320 and 248 077).
TEST(TextCommand, AnIdOfTheModelWithoutATokenDecodesToNothing) {
    const tests::ScratchFolder files;
    std::ifstream stream(tiny_python() + "/tokenizer.json");
    json tokenizer = json::parse(std::string(std::istreambuf_iterator<char>(stream), {}));
    for (const char* token : {"'/", "ritten"}) {
        for (const std::string& text : {std::string(token), "\u0120" + std::string(token)}) {
            tokenizer["model"]["vocab"].erase(text);
            auto& merges = tokenizer["model"]["merges"];
            for (size_t i = merges.size(); i-- > 0;) {
                const auto whole = merges[i][0].get<std::string>() + merges[i][1].get<std::string>();
                if (whole == text) merges.erase(i);
            }
        }
    }
    files.write("tokenizer.json", tokenizer.dump());
    const auto decoded = [&] {
        return run_with_input({"text", "decode", files.path("")}, R"({"ids": [283, 2046, 287]})");
    };
    EXPECT_EQ(decoded().out, "{\"text\":\"def f\"}\n");
    const auto beyond = [&] { return run_with_input({"text", "decode", files.path("")}, R"({"ids": [2500]})"); };
    EXPECT_THAT(beyond().err, HasSubstr("ids[0] is 2500, wanted a token id from 0 to 2047"));
    files.write("config.json", R"({"vocab_size": 4096})");
    EXPECT_EQ(beyond().out, "{\"text\":\"\"}\n");
}

TEST(TextCommand, AFolderWithoutATokenizerIsAnError) {
    const tests::ScratchFolder files;
    const Outcome outcome = run_with_input({"text", "encode", files.path("")}, "");
    EXPECT_EQ(outcome.exit_code, kExitBadInput);
    EXPECT_THAT(outcome.err, HasSubstr("tokenizer.json"));
    EXPECT_EQ(run_with_input({"text"}, "").exit_code, kExitBadUsage);
}

TEST(ConvertChat, PromptsAreRealTokensAndGoOnFromThePromptBefore) {
    const tests::ScratchFolder files;
    const std::string log = files.write(
        "chats.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},)"
                       R"( {"role": "user", "content": "c"}, {"role": "assistant", "content": "dd"}]})");
    const std::string csv = files.path("chats.csv");
    const Outcome outcome = run_verbatim({"trace", "convert-chat", log, "--model", tiny_python(), "--to", csv});
    ASSERT_EQ(outcome.exit_code, kExitOk) << outcome.err;
    const std::string written = file_bytes(csv);
    // The answer "b", its end, a line feed, then the next message.
    EXPECT_THAT(written, HasSubstr(",history,chat-1,,,0,answer,@0,,@0,prompt,=70.0.203.2.1427.3.71.0.203.2.1752.723."
                                   "1322.3,2,,0,"));
    const Outcome stats = run_verbatim({"trace", "stats", csv});
    EXPECT_EQ(stats.exit_code, kExitOk) << stats.err;
    EXPECT_THAT(stats.out, HasSubstr("requests                   2"));
}

TEST(ConvertChat, ContentsThatAreNullOrPartsAreThoseThatTheServerSees) {
    const tests::ScratchFolder files;
    const auto converted = [&](const std::string& user) {
        const std::string log = files.write("chats.jsonl", R"({"messages": [{"role": "user", "content": )" + user +
                                                               R"(}, {"role": "assistant", "content": "b"}]})");
        const Outcome outcome =
            run_verbatim({"trace", "convert-chat", log, "--model", tiny_python(), "--to", files.path("chats.csv")});
        EXPECT_EQ(outcome.exit_code, kExitOk) << outcome.err;
        return file_bytes(files.path("chats.csv"));
    };
    EXPECT_EQ(converted(R"([{"type": "text", "text": "a"}])"), converted(R"("a")"));
    EXPECT_EQ(converted("null"), converted(R"("")"));
    EXPECT_NE(converted("null"), converted(R"("None")"));
}

TEST(ConvertChat, WhatIsNoConversationIsAnErrorWithItsLine) {
    const tests::ScratchFolder files;
    const auto refusal = [&](const std::string& text) {
        const Outcome outcome = run_verbatim({"trace", "convert-chat", files.write("log", text), "--model",
                                              tiny_python(), "--to", files.path("out.csv")});
        EXPECT_EQ(outcome.exit_code, kExitBadInput) << text;
        return outcome.err;
    };
    EXPECT_THAT(refusal("{}\n"), HasSubstr("log:1: messages is null"));
    EXPECT_THAT(refusal("nothing\n"), HasSubstr("log:1"));
    EXPECT_THAT(refusal(""), HasSubstr("no message of an assistant"));
    EXPECT_THAT(refusal("{\"messages\": [{\"role\": \"user\"}, {\"content\": \"b\"}]}\n"),
                HasSubstr("log:1: messages[1].role is null, wanted a text"));
    const Outcome folder =
        run_verbatim({"trace", "convert-chat", tiny_python(), "--model", tiny_python(), "--to", files.path("out.csv")});
    EXPECT_THAT(folder.err, HasSubstr("cannot be read"));
}

}  // namespace
}  // namespace verbatim::tools
