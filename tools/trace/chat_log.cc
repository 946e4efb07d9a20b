#include "tools/trace/chat_log.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "files/repository_path.h"
#include "files/strict_json.h"
#include "server/http/messages.h"
#include "server/text/chat.h"
#include "server/text/stop_tokens.h"
#include "server/text/tokenizer_json.h"
#include "tools/program/cli.h"
#include "traces/builder.h"

namespace verbatim::tools {
namespace {

using text::Json;

// The prompt of one answer, and how many tokens the recorded answer has.
struct ChatTurn {
    std::vector<TokenId> prompt;
    int64_t answer_tokens = 0;
};

// What the template adds to a prompt for an answer, up to the token that ends it.
Result<int64_t> answer_length(const std::vector<TokenId>& prompt, const std::vector<TokenId>& answered,
                              const std::vector<TokenId>& stop_tokens) {
    if (answered.size() <= prompt.size() || !std::equal(prompt.begin(), prompt.end(), answered.begin()))
        return error("the template rewrites the prompt when the answer follows: no trace can say that");
    const auto begin = answered.begin() + static_cast<std::ptrdiff_t>(prompt.size());
    const auto end =
        std::find_if(begin, answered.end(), [&](TokenId id) { return std::ranges::binary_search(stop_tokens, id); });
    return end - begin + (end == answered.end() ? 0 : 1);
}

Result<std::vector<ChatTurn>> turns_of(const Json& messages, text::Chat& chat, const std::vector<TokenId>& stop_tokens,
                                       text::WordCache& cache) {
    std::vector<ChatTurn> turns;
    text::TemplateInput request;
    request.messages = Json::array();
    for (const Json& message : messages) {
        if (message.value("role", Json()) == "assistant" && !request.messages.empty()) {
            request.add_generation_prompt = true;
            ASSIGN_OR_RETURN(text::RenderedChat prompt, chat.render(request, cache));
            request.messages.push_back(message);
            request.add_generation_prompt = false;
            ASSIGN_OR_RETURN(const text::RenderedChat answered, chat.render(request, cache));
            ASSIGN_OR_RETURN(const int64_t length, answer_length(prompt.ids, answered.ids, stop_tokens));
            turns.push_back({std::move(prompt.ids), length});
        } else {
            request.messages.push_back(message);
        }
    }
    return turns;
}

void add_turns(traces::TraceBuilder& builder, const std::string& name, const std::vector<ChatTurn>& turns,
               uint32_t options) {
    const traces::ConversationIndex conversation = builder.add_conversation(name, std::nullopt);
    traces::RowIndex before = traces::kNoRow;
    const std::vector<TokenId> nothing;
    const std::vector<TokenId>* last = &nothing;
    for (const ChatTurn& turn : turns) {
        const auto common = std::ranges::mismatch(turn.prompt, *last).in1 - turn.prompt.begin();
        const bool whole = before != traces::kNoRow && common == std::ssize(*last);
        builder.add_explicit_piece(std::span(turn.prompt).subspan(static_cast<size_t>(common)));
        builder.end_message(/*checkpoint=*/true);
        traces::Row row;
        row.conversation = conversation;
        row.from = row.wait_for = before;
        row.take = whole ? traces::Take::kPrompt : traces::Take::kTokens;
        row.take_tokens = whole ? 0 : common;
        row.start = before == traces::kNoRow ? traces::Start::kArrival : traces::Start::kAfterAnswer;
        row.max_tokens = turn.answer_tokens;
        row.options = options;
        before = builder.add_row(row);
        last = &turn.prompt;
    }
}

}  // namespace

Result<traces::Trace> read_chat_log(const std::string& path, const std::string& model, int64_t limit) {
    ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::load_tokenizer(model));
    ASSIGN_OR_RETURN(text::Chat chat,
                     text::Chat::load(model, tokenizer, {repository_path("server/text/render_chat.py")}));
    traces::RowOptions options;
    ASSIGN_OR_RETURN(options.stop_tokens, text::load_stop_tokens(model));
    std::ifstream file(path);
    if (!file) return error("{}: cannot be read: is it there?", path);
    traces::TraceBuilder builder;
    const uint32_t all_options = builder.add_options(options);
    text::WordCache cache;
    int64_t number = 0;
    const auto is_blank = [](const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; };
    for (std::string line; (limit == 0 || number < limit) && std::getline(file, line);) {
        if (is_blank(line) && (file >> std::ws).eof()) break;  // blank lines at the end are no conversations
        const std::string where = fmt::format("{}:{}", path, ++number);
        RETURN_IF_ERROR(parse_strict_json(line, where));
        const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
        const auto request = text::parse_template_input(object);
        if (!request) return error("{}: {}", where, request.error().message);
        const auto messages = server::prepare_messages(request->messages);
        if (!messages) return error("{}: {}", where, messages.error().message);
        const auto turns = turns_of(*messages, chat, options.stop_tokens, cache);
        if (!turns) return error("{}: {}", where, turns.error().message);
        add_turns(builder, fmt::format("chat-{}", number), *turns, all_options);
    }
    if (file.bad()) return error("{}: cannot be read behind line {}: is it a file?", path, number);
    if (builder.trace().rows.empty()) return error("{}: no message of an assistant follows another message", path);
    RETURN_IF_ERROR(validate(builder.trace()));
    return builder.finish();
}

}  // namespace verbatim::tools
