#include "server/http/answers.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "server/text/decoder.h"
#include "server/text/written_json.h"

namespace verbatim::server {
namespace {

Json usage_json(const Usage& usage) {
    return {{"prompt_tokens", usage.prompt_tokens},
            {"completion_tokens", usage.completion_tokens},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
            {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

// How many of the prompt's tokens were reused is known at the end.
void add_usage_so_far(const ChoicePart& part, Json& json) {
    if (!part.usage) return;
    json["usage"] = usage_json(*part.usage);
    json["usage"].erase("prompt_tokens_details");
}

// What ended a choice that was not cut off is its calls, if it has some.
Json reason_json(const ChoicePart& part) {
    if (!part.finish) return {};
    const bool is_cut_off = *part.finish == FinishReason::kLength;
    return part.calls_tools && !is_cut_off ? "tool_calls" : finish_name(*part.finish);
}

Json call_json(const CallPart& call) {
    Json json = {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}}}};
    if (call.id.empty()) json = {{"function", Json::object()}};
    json["function"]["arguments"] = call.arguments;
    return json;
}

Json row_json(StateIndex row) { return row == kNoState ? Json() : Json(index(row)); }

void add_details(const ChoicePart& part, Json& choice) {
    if (!part.details) return;
    Json windows = Json::array();
    for (const VerifiedWindow& window : part.details->windows)
        windows.push_back(Json::array({window.num_drafts, window.num_accepted}));
    choice["turn_details"] = {{"attached_tokens", part.details->num_attached_tokens},
                              {"shared_blocks", part.details->num_shared_blocks},
                              {"copied_tokens", part.details->num_copied_tokens},
                              {"block_size", part.details->block_size},
                              {"read_state_row", row_json(part.details->read_row)},
                              {"own_state_row", row_json(part.details->own_row)},
                              {"windows", std::move(windows)}};
}

std::span<const TokenLogProb> first_of(const std::vector<TokenLogProb>& top, int32_t count) {
    return std::span(top).first(std::min(top.size(), static_cast<size_t>(count)));
}

void add_head(const ChoicePart& part, Json& json) {
    if (!part.head.empty()) json["head_id"] = part.head;
}

}  // namespace

const char* finish_name(FinishReason reason) { return reason == FinishReason::kLength ? "length" : "stop"; }

int64_t num_characters(std::string_view text) {
    return std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; });
}

std::string written_answer(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

AnswerWriter::AnswerWriter(AnswerFrame frame, const text::Tokenizer& tokenizer)
    : frame_(std::move(frame)), chunk_begin_(written_answer(frame_json(/*is_chunk=*/true))), tokenizer_(&tokenizer) {
    chunk_begin_.pop_back();
}

void AnswerWriter::rename(std::string id, int64_t created) {
    frame_.id = std::move(id);
    frame_.created = created;
    *this = AnswerWriter(std::move(frame_), *tokenizer_);
}

Json AnswerWriter::whole(const std::vector<ChoicePart>& choices, const Usage& usage) const {
    Json json = frame_json(/*is_chunk=*/false);
    json["choices"] = Json::array();
    for (const ChoicePart& part : choices) {
        Json choice = {{"index", part.index}};
        if (is_chat())
            choice["message"] = message_json(part);
        else
            choice["text"] = part.text;
        choice["logprobs"] = log_probs_json(part);
        choice["finish_reason"] = reason_json(part);
        add_details(part, choice);
        if (part.num_prompt_top_log_probs) (is_chat() ? json : choice)["prompt_logprobs"] = prompt_log_probs_json(part);
        json["choices"].push_back(std::move(choice));
        add_head(part, json);
    }
    json["usage"] = usage_json(usage);
    return json;
}

// A choice that calls tools and says nothing has no content.
Json AnswerWriter::message_json(const ChoicePart& part) {
    Json message = {{"role", "assistant"}, {"content", part.text}, {"refusal", nullptr}};
    if (part.text.empty() && !part.calls.empty()) message["content"] = nullptr;
    if (!part.reasoning.empty()) message["reasoning_content"] = part.reasoning;
    for (const CallPart& call : part.calls) message["tool_calls"].push_back(call_json(call));
    return message;
}

Json AnswerWriter::delta_json(const ChoicePart& part) {
    Json delta = Json::object();
    if (!part.reasoning.empty()) delta["reasoning_content"] = part.reasoning;
    if (!part.text.empty()) delta["content"] = part.text;
    for (const CallPart& call : part.calls) {
        Json one = {{"index", call.index}};
        one.update(call_json(call));
        delta["tool_calls"].push_back(std::move(one));
    }
    return delta;
}

std::string AnswerWriter::call_id(int64_t choice, int64_t call) const {
    const size_t prefix = frame_.id.find('-') + 1;
    return fmt::format("call_{}-{}-{}", frame_.id.substr(prefix), choice, call);
}

Json AnswerWriter::role_chunk(const ChoicePart& part) const {
    Json json = frame_json(/*is_chunk=*/true);
    json["choices"] = Json::array({{{"index", part.index},
                                    {"delta", {{"role", "assistant"}, {"content", ""}}},
                                    {"logprobs", nullptr},
                                    {"finish_reason", nullptr}}});
    add_usage_so_far(part, json);
    return json;
}

Json AnswerWriter::chunk(const ChoicePart& part) const {
    Json json = frame_json(/*is_chunk=*/true);
    Json choice = {{"index", part.index}};
    if (is_chat())
        choice["delta"] = delta_json(part);
    else
        choice["text"] = part.text;
    choice["logprobs"] = part.log_probs.empty() ? Json() : log_probs_json(part);
    choice["finish_reason"] = reason_json(part);
    add_details(part, choice);
    json["choices"] = Json::array({choice});
    add_usage_so_far(part, json);
    add_head(part, json);
    return json;
}

std::string AnswerWriter::written_chunk(const ChoicePart& part) const {
    const bool is_text_alone = !part.text.empty() && part.reasoning.empty() && part.calls.empty() &&
                               part.log_probs.empty() && !part.finish && part.head.empty() && !part.usage &&
                               !part.details;
    if (!is_text_alone) return written_answer(chunk(part));
    std::string out;
    out.reserve(chunk_begin_.size() + part.text.size() + 100);
    out.append(chunk_begin_).append(R"(,"choices":[{"index":)").append(std::to_string(part.index));
    out += is_chat() ? R"(,"delta":{"content":)" : R"(,"text":)";
    text::append_json_text(out, part.text);
    return out +=
           is_chat() ? R"(},"logprobs":null,"finish_reason":null}]})" : R"(,"logprobs":null,"finish_reason":null}]})";
}

Json AnswerWriter::usage_chunk(const Usage& usage) const {
    Json json = frame_json(/*is_chunk=*/true);
    json["choices"] = Json::array();
    json["usage"] = usage_json(usage);
    return json;
}

int64_t TextOffsets::take(TokenId token) {
    const int64_t begin = num_characters_;
    num_characters_ += num_characters(decoder_.add(token));
    return begin;
}

std::string AnswerWriter::token_text(TokenId token) const {
    text::Decoder decoder(*tokenizer_);
    std::string text = decoder.add(token);
    return text + decoder.finish();
}

Json AnswerWriter::frame_json(bool is_chunk) const {
    const char* object = is_chunk ? "chat.completion.chunk" : "chat.completion";
    return {{"id", frame_.id},
            {"object", is_chat() ? object : "text_completion"},
            {"created", frame_.created},
            {"model", frame_.model},
            {"system_fingerprint", frame_.fingerprint}};
}

Json AnswerWriter::log_probs_json(const ChoicePart& part) const {
    if (!part.num_top_log_probs) return nullptr;
    return is_chat() ? chat_log_probs(part) : completion_log_probs(part);
}

Json AnswerWriter::chat_token(const TokenLogProb& token) const {
    Json bytes = Json::array();
    for (const char byte : tokenizer_->bytes_of(token.token)) bytes.push_back(static_cast<uint8_t>(byte));
    return {{"token", token_text(token.token)}, {"logprob", token.log_prob}, {"bytes", bytes}};
}

Json AnswerWriter::chat_log_probs(const ChoicePart& part) const {
    Json content = Json::array();
    for (const LogProbs& one : part.log_probs) {
        Json token = chat_token(one.drawn);
        token["top_logprobs"] = Json::array();
        for (const TokenLogProb& other : one.top) token["top_logprobs"].push_back(chat_token(other));
        content.push_back(std::move(token));
    }
    return {{"content", content}, {"refusal", nullptr}};
}

// An object whose keys are the tokens' texts. Parts of characters share a text, and so do ids without a token: the
// drawn token has it for its key, else the likelier one; each of the others is `token_id:ID`.
Json AnswerWriter::likeliest_by_text(const LogProbs& one, int32_t num_top) const {
    Json by_text = Json::object();
    if (num_top == 0) return by_text;
    const std::string drawn_text = token_text(one.drawn.token);
    for (const TokenLogProb& other : first_of(one.top, num_top)) {
        std::string text = token_text(other.token);
        const bool is_drawn = other.token == one.drawn.token;
        const bool is_taken = by_text.contains(text) || text == drawn_text;
        if (!is_drawn && is_taken) text = "token_id:" + std::to_string(other.token);
        by_text[text] = other.log_prob;
    }
    by_text[drawn_text] = one.drawn.log_prob;
    return by_text;
}

// As in vLLM: of each token an object by token id, and null where nothing is known.
Json AnswerWriter::prompt_log_probs_json(const ChoicePart& part) const {
    Json list = Json::array();
    for (const LogProbs& one : part.prompt_log_probs) {
        if (!one.is_known()) {
            list.push_back(nullptr);
            continue;
        }
        Json by_id = Json::object();
        const auto add = [&](const TokenLogProb& token, int64_t rank) {
            by_id[std::to_string(token.token)] = {
                {"logprob", token.log_prob}, {"rank", rank}, {"decoded_token", token_text(token.token)}};
        };
        add(one.drawn, one.rank);
        int64_t rank = 0;
        for (const TokenLogProb& other : first_of(one.top, *part.num_prompt_top_log_probs)) add(other, ++rank);
        list.push_back(std::move(by_id));
    }
    return list;
}

// The old form: four lists of one length.
Json AnswerWriter::completion_log_probs(const ChoicePart& part) const {
    Json tokens = Json::array();
    Json own = Json::array();
    Json top = Json::array();
    Json offsets = Json::array();
    TextOffsets text_offsets = part.text_offsets.value_or(TextOffsets(*tokenizer_));
    for (const LogProbs& one : part.log_probs) {
        tokens.push_back(token_text(one.drawn.token));
        own.push_back(one.is_known() ? Json(one.drawn.log_prob) : Json());
        top.push_back(one.is_known() ? likeliest_by_text(one, *part.num_top_log_probs) : Json());
        offsets.push_back(text_offsets.take(one.drawn.token));
    }
    return {{"tokens", tokens}, {"token_logprobs", own}, {"top_logprobs", top}, {"text_offset", offsets}};
}

}  // namespace verbatim::server
