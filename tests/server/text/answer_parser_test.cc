// Answers with reasoning and calls of tools, in the forms of families of models.
#include "server/text/answer_parser.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace verbatim::tests {
namespace {

using text::AnswerForm;
using text::AnswerParser;
using text::AnswerPart;
using text::AnswerParts;
using text::ToolFormat;
using Kind = AnswerPart::Kind;

std::shared_ptr<const text::ToolFunctions> some_functions() {
    auto functions = std::make_shared<text::ToolFunctions>();
    functions->by_name["look"] = text::parameters_of(text::Json::parse(R"({"properties": {
        "file": {"type": "string"}, "line": {"type": "integer"}, "deep": {"type": "boolean"},
        "list": {"type": "array"}, "any": {}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["integer", "string"]}, "far": {"$ref": "#/x"}}})"));
    functions->by_name["f"] = {};
    return functions;
}

AnswerForm form_of(ToolFormat tools, bool thinks = false) {
    return {.tools = tools,
            .reasoning = thinks ? text::ReasoningFormat::kThink : text::ReasoningFormat::kNone,
            .functions = some_functions()};
}

// Parts joined by kind, as clients join them: the texts, the reasoning, and each call.
struct Joined {
    std::string text;
    std::string reasoning;
    std::vector<std::pair<std::string, std::string>> calls;
    friend bool operator==(const Joined&, const Joined&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Joined& all) {
        out << "text " << testing::PrintToString(all.text) << " reasoning " << testing::PrintToString(all.reasoning);
        for (const auto& [name, arguments] : all.calls) out << " call " << name << ' ' << arguments;
        return out;
    }
};

Joined joined_parts(const AnswerParts& parts) {
    Joined all;
    for (const AnswerPart& part : parts) {
        if (part.kind == Kind::kText) all.text += part.text;
        if (part.kind == Kind::kReasoning) all.reasoning += part.text;
        if (part.kind == Kind::kCall) all.calls.emplace_back(part.text, "");
        if (part.kind == Kind::kArguments) all.calls.at(all.calls.size() - 1).second += part.text;
    }
    return all;
}

Joined parsed(const AnswerForm& form, std::string_view whole) {
    AnswerParser parser(form);
    AnswerParts parts;
    (void)parser.add(whole, parts);
    parser.finish(parts);
    return joined_parts(parts);
}

// What clients get of the answer up to `end` never changes behind it.
void expect_nothing_taken_back(const Joined& before, const Joined& now) {
    EXPECT_TRUE(now.text.starts_with(before.text)) << before << " then " << now;
    EXPECT_TRUE(now.reasoning.starts_with(before.reasoning)) << before << " then " << now;
    ASSERT_GE(now.calls.size(), before.calls.size());
    for (size_t i = 0; i < before.calls.size(); ++i) {
        EXPECT_EQ(now.calls[i].first, before.calls[i].first);
        EXPECT_TRUE(now.calls[i].second.starts_with(before.calls[i].second)) << before << " then " << now;
    }
}

struct Case {
    const char* name;
    ToolFormat tools;
    std::string whole;
    Joined wanted;
};

const std::vector<Case>& cases() {
    static const std::vector<Case> kCases = {
        {"text alone", ToolFormat::kHermes, " \n a < b <tool \n\n", {" \n a < b <tool \n\n", "", {}}},
        {"one call",
         ToolFormat::kHermes,
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\" : [1,2]}}\n</tool_call>",
         {"", "", {{"f", "{\"a\" : [1,2]}"}}}},
        {"text before and after",
         ToolFormat::kHermes,
         "Let me see.\n<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\nDone. ",
         {"Let me see.\nDone. ", "", {{"f", "{}"}}}},
        {"two calls",
         ToolFormat::kHermes,
         "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\", "
         "\"arguments\": {\"x\": 1}}\n</tool_call>\n",
         {"", "", {{"f", "{}"}, {"g", "{\"x\": 1}"}}}},
        {"marks inside of texts",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": {"a": "</tool_call>{\"}\\", "b": "<tool_call>"}}</tool_call>)",
         {"", "", {{"f", R"({"a": "</tool_call>{\"}\\", "b": "<tool_call>"})"}}}},
        {"arguments first",
         ToolFormat::kHermes,
         R"(<tool_call>{"id": [1, {"x": 2}], "arguments": {"a": 1}, "name": "f"}</tool_call>)",
         {"", "", {{"f", R"({"a": 1})"}}}},
        {"arguments that are a text",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"\u00e4\"}"}</tool_call>)",
         {"", "", {{"f", "{\"a\": \"\xC3\xA4\"}"}}}},
        {"arguments that are null",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": null}</tool_call>)",
         {"", "", {{"f", "{}"}}}},
        {"no arguments", ToolFormat::kHermes, R"(<tool_call>{"name": "f"}</tool_call>)", {"", "", {{"f", "{}"}}}},
        {"an escaped name",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "\u0066", "arguments": {}}</tool_call>)",
         {"", "", {{"f", "{}"}}}},
        {"no JSON",
         ToolFormat::kHermes,
         "a <tool_call>hello</tool_call> b",
         {"a <tool_call>hello</tool_call> b", "", {}}},
        {"JSON that is no call",
         ToolFormat::kHermes,
         "<tool_call>{\"a\": {\"name\": \"f\"}}</tool_call>",
         {"<tool_call>{\"a\": {\"name\": \"f\"}}</tool_call>", "", {}}},
        {"a name that is no text",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": 3, "arguments": {}}</tool_call>)",
         {R"(<tool_call>{"name": 3, "arguments": {}}</tool_call>)", "", {}}},
        {"arguments that are a number",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": 5}</tool_call>)",
         {R"(<tool_call>{"name": "f", "arguments": 5}</tool_call>)", "", {}}},
        {"arguments that are no JSON",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": nothing}</tool_call>)",
         {R"(<tool_call>{"name": "f", "arguments": nothing}</tool_call>)", "", {}}},
        {"a mark that begins again",
         ToolFormat::kHermes,
         "<tool_call><tool_call>{\"name\": \"f\"}</tool_call>",
         {"<tool_call>", "", {{"f", "{}"}}}},
        {"half a mark before a mark",
         ToolFormat::kHermes,
         "<tool_<tool_call>{\"name\": \"f\"}</tool_call>",
         {"<tool_", "", {{"f", "{}"}}}},
        {"half a name", ToolFormat::kHermes, "<tool_call>{\"name\": \"fo", {"<tool_call>{\"name\": \"fo", "", {}}},
        {"half the arguments",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": {"a": "x)",
         {"", "", {{"f", R"({"a": "x)"}}}},
        {"half an end mark",
         ToolFormat::kHermes,
         "<tool_call>{\"name\": \"f\", \"arguments\": {}}\n</tool",
         {"", "", {{"f", "{}"}}}},
        {"half an end mark that goes on otherwise",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": {} </tool_b)",
         {"</tool_b", "", {{"f", "{}"}}}},
        {"brackets that stay open",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": {"a": [1}</tool_call>b)",
         {"b", "", {{"f", R"({"a": [1})"}}}},
        {"a comma too much",
         ToolFormat::kHermes,
         R"(<tool_call>{"name": "f", "arguments": {"a": 1,}}</tool_call>)",
         {"", "", {{"f", R"({"a": 1,})"}}}},
        {"no end mark",
         ToolFormat::kHermes,
         "<tool_call>{\"name\": \"f\", \"arguments\": {}} and more",
         {"and more", "", {{"f", "{}"}}}},
        {"a line's end inside of a text",
         ToolFormat::kHermes,
         "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\n\"}}",
         {"", "", {{"f", "{\"a\": \"\n\"}"}}}},
        {"two objects in one mark",
         ToolFormat::kHermes,
         "<tool_call>{\"name\": \"f\"}\n{\"name\": \"g\"}</tool_call>",
         {"", "", {{"f", "{}"}, {"g", "{}"}}}},
        {"a list",
         ToolFormat::kGranite,
         R"(<|tool_call|>[{"name": "f", "arguments": {"a": 1}}, {"arguments": {}, "name": "g"}])",
         {"", "", {{"f", R"({"a": 1})"}, {"g", "{}"}}}},
        {"the other mark",
         ToolFormat::kGranite,
         R"(<tool_call>[{"name": "f", "arguments": {}}])",
         {"", "", {{"f", "{}"}}}},
        {"an empty list", ToolFormat::kGranite, "<|tool_call|>[]", {"<|tool_call|>[]", "", {}}},
        {"a second one that is none",
         ToolFormat::kNemotron,
         R"(<TOOLCALL>[{"name": "f", "arguments": {}}, 5]</TOOLCALL>)",
         {", 5]</TOOLCALL>", "", {{"f", "{}"}}}},
        {"Nemotron's list",
         ToolFormat::kNemotron,
         "I look.\n<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"x\": {}}}]</TOOLCALL>\n",
         {"I look.", "", {{"f", "{\"x\": {}}"}}}},
        {"a whole answer",
         ToolFormat::kLlama,
         R"( {"name": "look", "parameters": {"file": "x"}})",
         {"", "", {{"look", R"({"file": "x"})"}}}},
        {"an unknown function",
         ToolFormat::kLlama,
         R"({"name": "Ann", "parameters": {"file": "x"}})",
         {R"({"name": "Ann", "parameters": {"file": "x"}})", "", {}}},
        {"JSON behind a text",
         ToolFormat::kLlama,
         R"(So: {"name": "f", "parameters": {}})",
         {R"(So: {"name": "f", "parameters": {}})", "", {}}},
        {"several with semicolons",
         ToolFormat::kLlama,
         R"(<|python_tag|>{"name": "f", "parameters": {}}; {"id": 1, "name": "look", "parameters": {"a": 1}})",
         {"", "", {{"f", "{}"}, {"look", R"({"a": 1})"}}}},
        {"a program", ToolFormat::kLlama, "<|python_tag|>print(1)", {"<|python_tag|>print(1)", "", {}}},
        {"XML",
         ToolFormat::kQwenXml,
         "I look.\n\n<tool_call>\n<function=look>\n<parameter=file>\na \"b\"\n\tc\n</parameter>\n<parameter=line>\n12\n"
         "</parameter>\n</function>\n</tool_call>",
         {"I look.", "", {{"look", R"({"file": "a \"b\"\n\tc", "line": 12})"}}}},
        {"types of parameters",
         ToolFormat::kQwenXml,
         "<tool_call><function=look><parameter=deep>True</parameter><parameter=list>\n[1, {\"a\": 2}]\n</parameter>"
         "<parameter=maybe>null</parameter><parameter=either>5</parameter><parameter=any>5</parameter>"
         "<parameter=far>{}</parameter><parameter=line>many</parameter><parameter=strange>1</parameter></function>",
         {"",
          "",
          {{"look",
            R"({"deep": true, "list": [1, {"a": 2}], "maybe": null, "either": 5, "any": "5", "far": {}, "line": )"
            R"("many", "strange": "1"})"}}}},
        {"two functions",
         ToolFormat::kQwenXml,
         "<tool_call>\n<function=f>\n</function>\n<function=look>\n<parameter=file>\n\n</parameter>\n</function>\n"
         "</tool_call>",
         {"", "", {{"f", "{}"}, {"look", R"({"file": ""})"}}}},
        {"a function without the mark",
         ToolFormat::kQwenXml,
         "<function=f>\n<parameter=a>\n1\n\n</parameter>\n</function>\n</tool_call>\nend",
         {"end", "", {{"f", R"({"a": "1\n"})"}}}},
        {"marks inside of a value",
         ToolFormat::kQwenXml,
         "<function=look><parameter=file>\n</function></tool_call><parameter=x>\n</parameter></function>",
         {"", "", {{"look", R"({"file": "</function></tool_call><parameter=x>"})"}}}},
        {"half a value",
         ToolFormat::kQwenXml,
         "<tool_call>\n<function=look>\n<parameter=file>\nab\n</par",
         {"", "", {{"look", R"({"file": "ab\n</par)"}}}},
        {"half an end mark behind a function",
         ToolFormat::kQwenXml,
         "<tool_call>\n<function=f>\n</function>\n</tool_",
         {"", "", {{"f", "{}"}}}},
        {"half a number",
         ToolFormat::kQwenXml,
         "<tool_call>\n<function=look>\n<parameter=line>\n12",
         {"", "", {{"look", R"({"line": 12)"}}}},
        {"half a function's name",
         ToolFormat::kQwenXml,
         "x <tool_call>\n<function=lo",
         {"x <tool_call>\n<function=lo", "", {}}},
        {"no function",
         ToolFormat::kQwenXml,
         "<tool_call>\n{\"name\": \"f\"}</tool_call>",
         {"<tool_call>\n{\"name\": \"f\"}</tool_call>", "", {}}},
    };
    return kCases;
}

TEST(AnswerParser, FindsTheCallsOfEveryForm) {
    for (const Case& one : cases()) EXPECT_EQ(parsed(form_of(one.tools), one.whole), one.wanted) << one.name;
}

TEST(AnswerParser, EverySplitInTwoAndEveryByteAloneGiveTheSameParts) {
    for (const Case& one : cases()) {
        for (size_t split = 0; split <= one.whole.size(); ++split) {
            AnswerParser parser(form_of(one.tools));
            AnswerParts parts;
            (void)parser.add(std::string_view(one.whole).substr(0, split), parts);
            const Joined before = joined_parts(parts);
            (void)parser.add(std::string_view(one.whole).substr(split), parts);
            parser.finish(parts);
            const Joined now = joined_parts(parts);
            EXPECT_EQ(now, one.wanted) << one.name << " at " << split;
            expect_nothing_taken_back(before, now);
        }
        AnswerParser parser(form_of(one.tools));
        AnswerParts parts;
        for (const char c : one.whole) (void)parser.add({&c, 1}, parts);
        parser.finish(parts);
        EXPECT_EQ(joined_parts(parts), one.wanted) << one.name;
    }
}

// Answers put together from what forms are made of, most of them wrong somewhere.
std::string random_answer() {
    static const std::vector<std::string> kWords = {"<tool_call>",
                                                    "</tool_call>",
                                                    "<|tool_call|>",
                                                    "<TOOLCALL>",
                                                    "</TOOLCALL>",
                                                    "<|python_tag|>",
                                                    "<function=",
                                                    "</function>",
                                                    "<parameter=",
                                                    "</parameter>",
                                                    "<think>",
                                                    "</think>",
                                                    "look",
                                                    "f",
                                                    "file",
                                                    "line",
                                                    ">",
                                                    "<",
                                                    "\n",
                                                    " ",
                                                    "{",
                                                    "}",
                                                    "[",
                                                    "]",
                                                    ",",
                                                    ":",
                                                    ";",
                                                    "\"",
                                                    "\\",
                                                    "\"name\"",
                                                    "\"arguments\"",
                                                    "\"parameters\"",
                                                    "\"look\"",
                                                    "{\"name\": \"f\", \"arguments\": {",
                                                    "{\"name\": \"look\", \"parameters\": {\"a\": ",
                                                    "12",
                                                    "null",
                                                    "text",
                                                    "\xC3\xA4"};
    return *rc::gen::map(rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(kWords)),
                         [](const std::vector<std::string>& words) {
                             std::string all;
                             for (const std::string& word : words) all += word;
                             return all;
                         });
}

AnswerForm random_form() {
    AnswerForm form =
        form_of(text::kToolFormats[static_cast<size_t>(*rc::gen::inRange(0, 6))].second, *rc::gen::arbitrary<bool>());
    form.begins_in_reasoning = form.reasoning == text::ReasoningFormat::kThink && *rc::gen::arbitrary<bool>();
    form.ends_with_call = *rc::gen::arbitrary<bool>();
    if (!form.begins_in_reasoning && *rc::gen::arbitrary<bool>())
        form.begun = text::begun_call(form.tools,
                                      *rc::gen::arbitrary<bool>() ? std::optional<std::string>("look") : std::nullopt);
    return form;
}

RC_GTEST_PROP(AnswerParser, PiecesGiveTheSamePartsAsTheWholeAndTakeNothingBack, ()) {
    const AnswerForm form = random_form();
    const std::string whole = random_answer();
    AnswerParser at_once(form);
    AnswerParts wanted;
    const size_t wanted_size = at_once.add(whole, wanted);
    at_once.finish(wanted);
    AnswerParser parser(form);
    AnswerParts parts;
    size_t size = 0;
    for (size_t at = 0; at < whole.size();) {
        const auto count = static_cast<size_t>(*rc::gen::inRange(1, 12));
        const Joined before = joined_parts(parts);
        size += parser.add(std::string_view(whole).substr(at, count), parts);
        expect_nothing_taken_back(before, joined_parts(parts));
        at += count;
    }
    parser.finish(parts);
    RC_ASSERT(joined_parts(parts) == joined_parts(wanted));
    RC_ASSERT(size == wanted_size);
    RC_ASSERT(parser.ended() == at_once.ended());
    RC_ASSERT(parser.ended() || size == whole.size());
    if (form.ends_with_call) RC_ASSERT(joined_parts(parts).calls.size() <= 1u);
}

// Any JSON as arguments, written by a model that writes JSON: the bytes come back.
RC_GTEST_PROP(AnswerParser, ArgumentsInJsonComeBackByteForByte, ()) {
    const auto texts = *rc::gen::container<std::vector<std::string>>(rc::gen::arbitrary<std::string>());
    nlohmann::json arguments = nlohmann::json::object();
    for (const std::string& some : texts) {
        nlohmann::json value = nlohmann::json::array({some.size(), nullptr, {{"</tool_call>", "<tool_call>"}}});
        value.push_back(some);
        arguments[some + "}"] = value;
    }
    const int indent = *rc::gen::inRange(-1, 3);
    const std::string written = arguments.dump(indent, ' ', true, nlohmann::json::error_handler_t::replace);
    for (const ToolFormat format :
         {ToolFormat::kHermes, ToolFormat::kGranite, ToolFormat::kNemotron, ToolFormat::kLlama}) {
        const std::string call = text::begun_call(format, "look") + written;
        const Joined got = parsed(form_of(format), call + "}" + std::string(text::call_marks(format).end));
        RC_ASSERT(got.calls == (std::vector<std::pair<std::string, std::string>>{{"look", written}}));
        RC_ASSERT(got.text.empty());
    }
}

// A text parameter in XML is any text without the end of a parameter: as JSON it spells the same.
RC_GTEST_PROP(AnswerParser, TextsInXmlComeBackAsJson, ()) {
    std::string value = random_answer();
    for (size_t at = value.find("</parameter>"); at != std::string::npos; at = value.find("</parameter>"))
        value.erase(at, 3);
    const std::string call =
        "<tool_call>\n<function=look>\n<parameter=file>\n" + value + "\n</parameter>\n</function>\n</tool_call>";
    const Joined got = parsed(form_of(ToolFormat::kQwenXml), call);
    RC_ASSERT(got.calls.size() == 1u);
    RC_ASSERT(nlohmann::json::parse(got.calls[0].second) == (nlohmann::json{{"file", value}}));
}

TEST(AnswerParser, ReasoningIsApartAndItsSpaceIsNoPartOfTheAnswer) {
    AnswerForm form = form_of(ToolFormat::kHermes, /*thinks=*/true);
    EXPECT_EQ(parsed(form, "<think>\na <tool_call> b\n</think>\n\nc </think> <think>d "),
              (Joined{"c </think> <think>d ", "a <tool_call> b", {}}));
    EXPECT_EQ(parsed(form, "a <think> b"), (Joined{"a <think> b", "", {}})) << "not at the beginning";
    EXPECT_EQ(parsed(form, "\n<think></think>\n"), (Joined{"", "", {}}));
    EXPECT_EQ(parsed(form, "<think>\nhalf\n"), (Joined{"", "half", {}}));
    EXPECT_EQ(parsed(form, "<thin"), (Joined{"<thin", "", {}}));
    const std::string call = "{\"name\": \"f\", \"arguments\": {}}";
    EXPECT_EQ(parsed(form, "<think>a</think>\n<tool_call>" + call + "</tool_call>"), (Joined{"", "a", {{"f", "{}"}}}));
    form.begins_in_reasoning = true;
    EXPECT_EQ(parsed(form, "a\n</think>\n\nb"), (Joined{"b", "a", {}}));
    EXPECT_EQ(parsed(form, "\n\n"), (Joined{"", "", {}}));
    form = form_of(ToolFormat::kLlama, /*thinks=*/true);
    EXPECT_EQ(parsed(form, "<think>a</think>\n" + call), (Joined{"", "a", {{"f", "{}"}}}));
}

TEST(AnswerParser, AnAnswerMayEndBehindItsFirstCall) {
    const std::string call = "{\"name\": \"f\", \"arguments\": {}}";
    const std::vector<std::pair<ToolFormat, std::pair<std::string, std::string>>> answers = {
        {ToolFormat::kHermes, {"a <tool_call>" + call + "\n</tool_call>", "\n<tool_call>" + call}},
        {ToolFormat::kHermes, {"<tool_call>" + call + "\n", call + "</tool_call>"}},
        {ToolFormat::kGranite, {"<|tool_call|>[" + call, "," + call + "]"}},
        {ToolFormat::kNemotron, {"<TOOLCALL>[" + call + "]</TOOLCALL>", "more"}},
        {ToolFormat::kLlama, {call, "; " + call}},
        {ToolFormat::kQwenXml, {"<tool_call><function=f></function></tool_call>", "b"}},
        // The byte may have begun the end mark, and was read.
        {ToolFormat::kQwenXml, {"<tool_call><function=f></function>\n<", "function=f></function></tool_call>"}},
    };
    for (const auto& [format, halves] : answers) {
        AnswerForm form = form_of(format);
        form.ends_with_call = true;
        AnswerParser parser(form);
        AnswerParts parts;
        EXPECT_EQ(parser.add(halves.first + halves.second, parts), halves.first.size()) << halves.first;
        EXPECT_TRUE(parser.ended()) << halves.first;
        EXPECT_EQ(parser.add("more", parts), 0u);
        parser.finish(parts);
        EXPECT_EQ(joined_parts(parts).calls, (std::vector<std::pair<std::string, std::string>>{{"f", "{}"}}));
    }
}

TEST(AnswerParser, ACallBegunInThePromptGoesOn) {
    for (const auto& [name, format] : text::kToolFormats) {
        if (format == ToolFormat::kNone) continue;
        AnswerForm form = form_of(format);
        const bool is_xml = format == ToolFormat::kQwenXml;
        form.begun = text::begun_call(format, "look");
        EXPECT_EQ(parsed(form, is_xml ? "<parameter=file>x</parameter></function>" : "{\"file\": \"x\"}}"),
                  (Joined{"", "", {{"look", R"({"file": "x"})"}}}))
            << name;
        form.begun = text::begun_call(format, std::nullopt);
        EXPECT_EQ(parsed(form, is_xml ? "f>\n</function>" : "f\", \"parameters\": {}}"),
                  (Joined{"", "", {{"f", "{}"}}}))
            << name;
        EXPECT_EQ(parsed(form, is_xml ? "no\n" : "f\" no"), (Joined{form.begun + (is_xml ? "no\n" : "f\" no"), "", {}}))
            << name;
    }
}

TEST(AnswerParser, MuchThatIsNoCallCostsLittle) {
    std::string deep = "<tool_call>{\"a\": ";
    for (int i = 0; i < 200'000; ++i) deep += "[";
    std::string marks;
    for (int i = 0; i < 50'000; ++i) marks += "<tool_call>{\"a\": \"";
    for (const std::string& whole : {deep, marks}) {
        AnswerParser parser(form_of(ToolFormat::kHermes));
        AnswerParts parts;
        for (const char c : whole) (void)parser.add({&c, 1}, parts);
        parser.finish(parts);
        EXPECT_EQ(joined_parts(parts).text, whole);
    }
}

TEST(AnswerForm, IsThatOfTheTemplate) {
    using text::tool_format_in;
    EXPECT_EQ(tool_format_in("{{ x }}"), ToolFormat::kNone);
    EXPECT_EQ(tool_format_in("..<tool_call>\\n{\"name\": <function-name>"), ToolFormat::kHermes);
    EXPECT_EQ(tool_format_in("..<tool_call>\\n<function=example>"), ToolFormat::kQwenXml);
    EXPECT_EQ(tool_format_in("..<|tool_call|>.. <tool_call>"), ToolFormat::kGranite);
    EXPECT_EQ(tool_format_in("..<TOOLCALL>[.."), ToolFormat::kNemotron);
    EXPECT_EQ(tool_format_in("..<|python_tag|>.."), ToolFormat::kLlama);
    EXPECT_EQ(text::reasoning_format_in("..<think>\\n\\n</think>"), text::ReasoningFormat::kThink);
    EXPECT_EQ(text::reasoning_format_in("..thinks"), text::ReasoningFormat::kNone);
}

}  // namespace
}  // namespace verbatim::tests
