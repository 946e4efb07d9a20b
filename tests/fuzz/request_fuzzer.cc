// Any bytes as a request's body, or as the path of a conversation or response: the first byte says which. Refused with
// a status of a client's error and a sentence, or read into values that keep the bounds of its fields.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/check.h"
#include "server/http/api.h"
#include "server/http/conversations.h"
#include "server/http/message_request.h"
#include "server/http/response_chain.h"
#include "server/http/response_request.h"

namespace verbatim::server {
namespace {

constexpr int32_t kVocabSize = 300;
const ModelNames kModel{.all = {"model"}, .takes_any = true};

void check_error(const ApiError& error) {
    CHECK(error.status >= 400 && error.status < 500, "{}: {}", error.status, error.message);
    CHECK(!error.message.empty());
    CHECK(!error.envelope().dump(-1, ' ', false, Json::error_handler_t::replace).empty());
}

template <typename T>
bool is_read(const ApiResult<T>& read) {
    if (!read) check_error(read.error());
    return read.has_value();
}

void check_generate(const ApiResult<GenerateRequest>& read) {
    if (!is_read(read)) return;
    const auto is_id = [](TokenId id) { return id >= 0 && id < kVocabSize; };
    for (const AskedPrompt& prompt : read->prompts) CHECK(std::ranges::all_of(prompt.ids, is_id));
    CHECK(read->num_choices > 0);
    CHECK(!read->best_of || *read->best_of >= read->num_choices);
    CHECK(!read->max_tokens || *read->max_tokens >= 0);
    CHECK(!read->conversation_id || read->conversation_id->size() <= kMaxIdBytes);
    CHECK(!read->turn_id || read->turn_id->size() <= kMaxIdBytes);
    CHECK(read->sampling.temperature >= 0);
}

void check_body(int kind, std::string_view body) {
    if (kind < 2) return check_generate(parse_generate_request(static_cast<ApiKind>(kind), body, kModel, kVocabSize));
    if (kind == 2) return static_cast<void>(is_read(parse_tokenize_request(body, kModel)));
    if (kind == 3) return static_cast<void>(is_read(parse_detokenize_request(body, kModel, kVocabSize)));
    const auto json = parse_body(body);
    if (!is_read(json)) return;
    const bool has_reasoning = json->size() % 2 == 0;
    const ReasoningTraits reasoning{.is_switched = has_reasoning, .is_there = has_reasoning};
    if (kind == 4) return check_generate(parse_response_request(*json, kModel, kVocabSize));
    if (kind == 5) return check_generate(parse_message_request(*json, reasoning, kModel, kVocabSize));
    static_cast<void>(is_read(parse_count_request(*json, reasoning, kModel)));
}

// A path, and a body behind the first line's end.
void check_target(std::string_view input) {
    const size_t end = input.find('\n');
    const std::string_view target = input.substr(0, end);
    const std::string_view body = end == std::string_view::npos ? "" : input.substr(end + 1);
    const std::string_view path = target.substr(0, target.find('?'));
    if (path == kConversationListPath) return static_cast<void>(is_read(parse_conversation_page(target, {})));
    if (path.starts_with(kConversationsPath)) {
        for (const std::string_view method : {"GET", "DELETE", "POST", "PUT"}) {
            if (conversation_methods(path).find(method) == std::string_view::npos) continue;
            const auto call = parse_conversation_call(method, target, body, {});
            if (is_read(call)) CHECK(is_identifier(call->key.conversation_id));
        }
    }
    if (path.starts_with(kResponsesPath) && !response_methods(path).empty())
        static_cast<void>(is_read(parse_response_call(target, {})));
}

void check(std::string_view input) {
    if (input.empty()) return;
    const int kind = static_cast<uint8_t>(input[0]) % 8;
    if (kind == 7) return check_target(input.substr(1));
    check_body(kind, input.substr(1));
}

}  // namespace
}  // namespace verbatim::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    verbatim::server::check({reinterpret_cast<const char*>(data), size});
    return 0;
}
