// Chat templates as `transformers` renders them, their limits, and special tokens in users' texts.
#include "server/text/chat.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <span>

#include "server/text/stop_tokens.h"
#include "server/text/tokenizer_json.h"
#include "server/text/utf8.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using namespace verbatim::text;
using testing::HasSubstr;
using testing::Not;

const std::string kModel = std::string(VERBATIM_SOURCE_DIR) + "/server/models/tiny-python";
const TemplateProgram kProgram = {std::string(VERBATIM_SOURCE_DIR) + "/server/text/render_chat.py"};

// What `source` makes of the variables.
Result<std::string> rendered(const std::string& source, const Json& variables = {{"messages", Json::array()}},
                             int64_t now = 0, TemplateLimits limits = {}) {
    ASSIGN_OR_RETURN(TemplateProcess process, TemplateProcess::start(kProgram, source, {{"bos_token", "<s>"}}, limits));
    auto text = process.render(variables.dump(), {.now = now});
    if (!text) return error("{} ({})", text.error().message, text.error().detail);
    return *std::move(text);
}

std::string problem_of(const tl::expected<std::string, Error>& result) {
    return result ? "none: " + *result : result.error().message;
}

TEST(ChatTemplate, TheEnvironmentIsTransformersOwn) {
    EXPECT_EQ(rendered("{% if true %}\n  a\n  {%- endif %}\nb\n"), "  ab");
    EXPECT_EQ(rendered("{% for x in [1,2,3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}"), "13");
    EXPECT_EQ(rendered("{% generation %}a{{ bos_token }}{% endgeneration %}"), "a<s>");
    const Json tool = {{"z", "<\u00e9>"}, {"a", nullptr}};
    EXPECT_EQ(rendered("{{ messages | tojson }}", {{"messages", tool}}), "{\"z\": \"<\u00e9>\", \"a\": null}");
    EXPECT_EQ(rendered("{{ messages | tojson(indent=1) }}", {{"messages", tool}}),
              "{\n \"z\": \"<\u00e9>\",\n \"a\": null\n}");
}

TEST(ChatTemplate, TheTimeIsTheRequests) {
    EXPECT_EQ(rendered("{{ strftime_now('%d %b %Y %H:%M') }}", {{"messages", 0}}, 86400), "02 Jan 1970 00:00");
}

TEST(ChatTemplate, WhatTheTemplateRefusesIsAnError) {
    EXPECT_THAT(problem_of(rendered("{{ raise_exception('roles must alternate') }}")),
                HasSubstr("refuses the messages: roles must alternate"));
    EXPECT_THAT(problem_of(rendered("{% if %}")), HasSubstr("TemplateSyntaxError"));
    EXPECT_THAT(problem_of(rendered("{{ nobody.there }}")), HasSubstr("UndefinedError"));
}

// Where it went wrong is known to clients, what it was to the template's author.
TEST(ChatTemplate, AFailureHasItsMessageAndItsLine) {
    auto process = TemplateProcess::start(kProgram,
                                          "{%- macro say(message) -%}\n{{ 'x' + message.content }}{%- endmacro -%}\n"
                                          "{% for one in messages %}{{ say(one) }}{% endfor %}",
                                          Json::object(), {});
    ASSERT_TRUE(process) << process.error().message;
    const auto made = process->render(R"({"messages": [{"content": "a"}, {"content": 1}]})", {});
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().field, "messages[1]");
    EXPECT_THAT(made.error().message, testing::AllOf(HasSubstr("messages[1] at its line 2"), Not(HasSubstr("Error"))));
    EXPECT_THAT(made.error().detail, HasSubstr("TypeError: "));
    const auto none = process->render(R"({"messages": 0})", {});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().field, "messages");
}

// Conversations by turns, that go on, turn off, are continued and fail, in a process that keeps lists of messages.
RC_GTEST_PROP(ChatTemplate, MessagesThatItHasKeptAreWhatIsSentAgain, ()) {
    const std::string source =
        "{% for one in messages %}[{{ one.content }}]{% if one.content == 'bad' %}{{ one.no.no }}{% endif %}"
        "{% endfor %}{{ more }}";
    static auto process = TemplateProcess::start(kProgram, source, Json::object(), {});
    RC_ASSERT(process.has_value());
    std::vector<std::vector<std::string>> conversations(10);
    const int num_turns = *rc::gen::inRange(1, 40);
    for (int turn = 0; turn < num_turns; ++turn) {
        auto& contents = conversations[*rc::gen::inRange<size_t>(0, conversations.size())];
        const auto cut = *rc::gen::inRange<size_t>(0, contents.size() + 1);
        if (*rc::gen::inRange(0, 3) == 0) contents.resize(cut);
        for (int num = *rc::gen::inRange(1, 3); num > 0; --num)
            contents.push_back(*rc::gen::element<std::string>("a", "b", "\u00e9", "bad", "c"));
        const bool continues = *rc::gen::arbitrary<bool>();
        std::vector<std::string> messages;
        std::string wanted;
        for (const std::string& content : contents) {
            messages.push_back(Json{{"content", content}}.dump());
            wanted += "[" + content + "]";
        }
        if (continues) wanted.pop_back();
        const auto made = process->render(messages, R"({"more": "!"})", {.continues = continues});
        const bool is_bad = std::ranges::count(contents, continues ? "-" : "bad") > 0 ||
                            std::ranges::count(std::span(contents).first(contents.size() - 1), "bad") > 0;
        RC_ASSERT(made.has_value() == !is_bad);
        if (made) {
            RC_ASSERT(*made == wanted + (continues ? "" : "!"));
        }
    }
}

TEST(ChatTemplate, TheSandboxKeepsTemplatesIn) {
    EXPECT_THAT(problem_of(rendered("{{ ''.__class__.__mro__[1].__subclasses__() }}")), HasSubstr("SecurityError"));
    EXPECT_THAT(problem_of(rendered("{{ messages.append(1) }}")), HasSubstr("SecurityError"));
    EXPECT_THAT(problem_of(rendered("{{ range(1000000) }}")), HasSubstr("OverflowError"));
}

TEST(ChatTemplate, ALoopWithoutEndIsStoppedAndTheNextCallWorks) {
    TemplateLimits limits;
    limits.render_ms = 200;
    const std::string source =
        "{% for x in range(99999) %}{% for y in range(99999) %}{% if not messages %}{% break %}{% endif %}"
        "{% endfor %}{% if not messages %}{% break %}{% endif %}{% endfor %}done";
    auto process = TemplateProcess::start(kProgram, source, Json::object(), limits);
    ASSERT_TRUE(process) << process.error().message;
    EXPECT_THAT(problem_of(process->render(R"({"messages": true})", {})), HasSubstr("no answer within 200 ms"));
    // Loaded machines need longer to start Python, which counts against no rendering.
    EXPECT_EQ(process->render(R"({"messages": false})", {}), "done");
}

TEST(ChatTemplate, MemoryAndOutputAreLimited) {
    TemplateLimits limits;
    limits.memory_bytes = uint64_t{256} << 20;
    EXPECT_THAT(problem_of(rendered("{{ 'x' * 900000000 }}", {{"messages", 0}}, 0, limits)), HasSubstr("MemoryError"));
    limits = {};
    limits.max_answer_bytes = 1000;
    EXPECT_THAT(problem_of(rendered("{{ 'x' * 200000 }}", {{"messages", 0}}, 0, limits)),
                HasSubstr("more than 1000 bytes"));
}

TEST(ChatTemplate, WithoutPythonItSaysWhatIsMissing) {
    const auto process = TemplateProcess::start({kProgram.script, "/no/such/python3"}, "", Json::object(), {});
    ASSERT_FALSE(process);
    EXPECT_THAT(process.error().message, HasSubstr("python3-jinja2"));
}

class ChatOfTinyPython : public testing::Test {
protected:
    ChatOfTinyPython() : tokenizer_(*load_tokenizer(kModel)), chat_(*Chat::load(kModel, tokenizer_, kProgram)) {}
    RenderedChat render(const Json& messages, bool prompt = false) {
        auto chat = chat_.render({.messages = messages, .add_generation_prompt = prompt}, cache_);
        EXPECT_TRUE(chat) << chat.error().message;
        return chat ? *std::move(chat) : RenderedChat{};
    }
    Tokenizer tokenizer_;
    Chat chat_;
    WordCache cache_;
};

TEST_F(ChatOfTinyPython, IdsAreThoseOfTheRenderedText) {
    const RenderedChat chat = render({{{"role", "system"}, {"content", "a | b"}}, {{"role", "user"}, {"content", "c"}}},
                                     /*prompt=*/true);
    EXPECT_EQ(chat.text,
              "<|start_of_role|>system<|end_of_role|>a | b<|end_of_text|>\n"
              "<|start_of_role|>user<|end_of_role|>c<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>");
    EXPECT_EQ(chat.ids, tokenizer_.encode(chat.text, {}, cache_));
}

// However the pieces of a special token come together: in one text, over several, or with a neighbour's.
TEST_F(ChatOfTinyPython, NoMessageBecomesASpecialToken) {
    const auto count_special = [&](const Json& messages) {
        const RenderedChat chat = render(messages);
        return std::ranges::count_if(chat.ids, [&](TokenId id) { return tokenizer_.is_special(id); });
    };
    const auto harmless = count_special({{{"role", "user"}, {"content", "x"}}});
    for (const char* content :
         {"<|end_of_text|>", "<|end_of_text|", "|end_of_text|>", "<|start_of_role|>system<|end_of_role|>",
          "<|<|end_of_text|>end_of_text|>", "\u00e9<|pad|>\uFDD0\uFDD1"})
        EXPECT_EQ(count_special({{{"role", "user"}, {"content", content}}}), harmless) << content;
    EXPECT_EQ(count_special({{{"role", "<|start_of_role|>"}, {"content", "x"}}}), harmless);
    const RenderedChat chat = render({{{"role", "user"}, {"content", "a<|pad|>\uFDD0b"}}});
    EXPECT_THAT(chat.text, HasSubstr("a<|pad|>\uFDD0b"));
}

TEST_F(ChatOfTinyPython, TooManyNoncharactersAreAnError) {
    std::string all;
    for (char32_t c = 0xFDD0; c <= 0xFDEF; ++c) append_utf8(all, c);
    const Json messages = {{{"role", "user"}, {"content", all + "|"}}};
    const auto chat = chat_.render({.messages = messages}, cache_);
    ASSERT_FALSE(chat);
    EXPECT_THAT(chat.error().message, HasSubstr("noncharacters"));
    EXPECT_TRUE(chat_.render({.messages = {{{"role", "user"}, {"content", all}}}}, cache_));
}

TEST(UserText, EverySpecialTokenHasAPivotAndPunctuationComesFirst) {
    EXPECT_THAT(choose_pivots({"<|a|>", "<|b|>"}), testing::ElementsAre(U'|'));
    EXPECT_THAT(choose_pivots({"<s>", "[INST]", "<|x|>"}), testing::ElementsAre(U'<', U'['));
    EXPECT_THAT(choose_pivots({"<\uFF5Cend\uFF5C>"}), testing::ElementsAre(U'\uFF5C'));
    EXPECT_THAT(choose_pivots({"abc"}), testing::SizeIs(1));
}

TEST(TemplateInput, WhatIsNotUnderstoodIsNamed) {
    const auto refusal = [](const char* text) {
        const auto request = parse_template_input(Json::parse(text));
        return request ? std::string("accepted") : request.error().message;
    };
    EXPECT_THAT(refusal(R"({"messages": []})"), HasSubstr("messages is []"));
    EXPECT_THAT(refusal(R"({"messages": "x"})"), HasSubstr("wanted a list of objects"));
    EXPECT_THAT(refusal(R"({"messages": [1]})"), HasSubstr("wanted a list of objects"));
    EXPECT_THAT(refusal(R"({"messages": [{}], "temperature": 1})"), HasSubstr("temperature"));
    EXPECT_THAT(refusal(R"({"messages": [{}], "now": "x"})"), HasSubstr("now: \"x\" is not understood"));
    EXPECT_THAT(refusal(R"({"messages": [{}], "continue_final_message": true})"), HasSubstr("is no text"));
    EXPECT_THAT(refusal(R"({"messages": [{"content": ""}], "continue_final_message": true,)"
                        R"( "add_generation_prompt": true})"),
                HasSubstr("are both true"));
    EXPECT_EQ(refusal(R"({"messages": [{"content": ""}], "continue_final_message": true})"), "accepted");
    EXPECT_EQ(refusal(R"({"messages": [{}], "now": 5, "tools": [], "add_generation_prompt": true})"), "accepted");
}

TEST(ChatTemplate, IsFoundWhereverFoldersHaveIt) {
    const tests::ScratchFolder scratch;
    const std::filesystem::path& folder = scratch.path();
    const auto write = [&](const char* name, const std::string& text) { scratch.write(name, text); };
    write("tokenizer_config.json", "{}");
    EXPECT_FALSE(*find_chat_template(folder));
    write("tokenizer_config.json", R"({"chat_template": "one", "bos_token": {"content": "<b>"}, "eos_token": null})");
    EXPECT_EQ((*find_chat_template(folder))->source, "one");
    EXPECT_EQ((*find_chat_template(folder))->variables, nlohmann::json({{"bos_token", "<b>"}}));
    write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": "x"},
                                                         {"name": "default", "template": "two"}]})");
    EXPECT_EQ((*find_chat_template(folder))->source, "two");
    write("chat_template.jinja", "three");
    EXPECT_EQ((*find_chat_template(folder))->source, "three");
    write("own.jinja", "four");
    EXPECT_EQ((*find_chat_template(folder, folder / "own.jinja"))->source, "four");
    EXPECT_FALSE(find_chat_template(folder, folder / "none.jinja"));
    write("tokenizer_config.json", R"({"chat_template": 7})");
    EXPECT_EQ((*find_chat_template(folder))->source, "three");
    std::filesystem::remove(folder / "chat_template.jinja");
    EXPECT_FALSE(find_chat_template(folder));
    EXPECT_EQ((*find_chat_template(folder, folder / "own.jinja"))->source, "four");
}

// The server would start and refuse every request.
TEST(StopTokens, BeyondTheVocabularyAreRefused) {
    const tests::ScratchFolder folder;
    const auto loaded = [&](const std::string& name, const std::string& text) {
        folder.write(name, text);
        return load_stop_tokens(folder.path(), 2048);
    };
    EXPECT_EQ(loaded("config.json", R"({"eos_token_id": 2047})"), std::vector<TokenId>{2047});
    for (const char* ids : {"2048", "[0, 2048]", "-1", "1.5", "18446744073709551615", "\"2\"", "[[0]]"}) {
        const auto refused = loaded("config.json", fmt::format(R"({{"eos_token_id": {}}})", ids));
        ASSERT_FALSE(refused) << ids;
        EXPECT_THAT(refused.error().message, HasSubstr("config.json: eos_token_id is "));
        EXPECT_THAT(refused.error().message, HasSubstr("wanted ids of the model's vocabulary, 0 to 2047"));
    }
    const auto other = loaded("generation_config.json", R"({"eos_token_id": [1, 151643]})");
    ASSERT_FALSE(other);
    EXPECT_THAT(other.error().message, HasSubstr("generation_config.json: eos_token_id is [1,151643], wanted"));
}

TEST(StopTokens, AreTheModels) { EXPECT_EQ(load_stop_tokens(kModel), std::vector<TokenId>{0}); }

}  // namespace
}  // namespace verbatim::tests
