// Any bytes as a tokenizer_config.json, whose chat template is refused or is a text of UTF-8, or as a model's answer in
// a family's form: the first byte says which. An answer has the same parts however it is divided into pieces (R1), and
// without calls and reasoning it is the text (R2).
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "server/text/answer_parser.h"
#include "server/text/chat.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

void check_config(std::string_view input) {
    const auto found = parse_chat_template(std::string(input), "tokenizer_config.json");
    if (!found) {
        CHECK(!found.error().message.empty());
        return;
    }
    if (!*found) return;
    CHECK(!first_invalid_utf8((*found)->source));
    for (const auto& [name, value] : (*found)->variables.items()) CHECK(value.is_string(), "{}", name);
    (void)tool_format_in((*found)->source);
    (void)reasoning_format_in((*found)->source);
}

std::shared_ptr<const ToolFunctions> some_functions() {
    auto functions = std::make_shared<ToolFunctions>();
    functions->by_name["f"] = {{"a", kJsonAny}, {"b", kJsonNumber | kJsonNull}, {"c", kJsonObject | kJsonArray}};
    return functions;
}

// The parts of an answer that comes in pieces of `piece` bytes.
AnswerParts parts_of(const AnswerForm& form, std::string_view answer, size_t piece) {
    AnswerParser parser(form);
    AnswerParts parts;
    for (size_t at = 0; at < answer.size() && !parser.ended(); at += piece) {
        const std::string_view bytes = answer.substr(at, piece);
        CHECK_LE(parser.add(bytes, parts), bytes.size());
    }
    parser.finish(parts);
    return parts;
}

void check_answer(uint8_t how, std::string_view answer) {
    const AnswerForm form{.tools = kToolFormats[how % kToolFormats.size()].second,
                          .reasoning = how % 4 < 2 ? ReasoningFormat::kNone : ReasoningFormat::kThink,
                          .begins_in_reasoning = how % 4 == 3,
                          .ends_with_call = how % 7 == 0,
                          .functions = some_functions()};
    const AnswerParts whole = parts_of(form, answer, std::max<size_t>(1, answer.size()));
    for (const size_t piece : {1, 3}) CHECK(parts_of(form, answer, piece) == whole, "pieces of {} bytes", piece);
    for (size_t i = 0; i < whole.size(); ++i) {
        const bool follows_call = i > 0 && whole[i - 1].kind == AnswerPart::Kind::kCall;
        CHECK(whole[i].kind != AnswerPart::Kind::kArguments || follows_call, "part {} continues no call", i);
    }
    if (!form.is_plain()) return;
    AnswerParts wanted;
    append_part(wanted, AnswerPart::Kind::kText, answer);
    CHECK(whole == wanted);
}

}  // namespace
}  // namespace verbatim::text

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace verbatim::text;
    if (size == 0) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
    data[0] % 2 == 0 ? check_config(rest) : check_answer(data[0] / 2, rest);
    return 0;
}
