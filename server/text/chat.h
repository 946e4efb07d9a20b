// server/text/chat.h: owns the conversion of a conversation's messages to the tokens of a prompt.
//
//   K1  no message's text becomes a special token (server/text/user_text.h)
//   K2  the same messages, time, options and known tokens give the same tokens
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "server/text/template_process.h"
#include "server/text/tokenizer.h"
#include "server/text/user_text.h"

namespace verbatim::text {

// The template in a checkpoint's folder.
struct ChatTemplateSource {
    std::string source;
    nlohmann::json variables;  // bos_token and the like
};

// `file`, or if it is empty chat_template.jinja, else chat_template of tokenizer_config.json; of a GGUF file its
// tokenizer.chat_template. Empty: no template.
Result<std::optional<ChatTemplateSource>> find_chat_template(const std::filesystem::path& folder,
                                                             const std::filesystem::path& file = {});

// The same of the text of a tokenizer_config.json alone; `path`: for messages.
Result<std::optional<ChatTemplateSource>> parse_chat_template(const std::string& config, const std::string& path);

struct TemplateInput {
    Json messages;  // a list of objects
    bool add_generation_prompt = false;
    bool continue_final_message = false;  // the text ends with the last message's content, which is a text
    Json tools;                           // a list, or null
    Json variables = Json::object();      // of the template
    int64_t now = 0;                      // seconds since 1970
};

// The same with its messages as JSON texts (server/text/written_json.h).
struct WrittenChat {
    std::vector<std::string> messages;
    bool add_generation_prompt = false;
    bool continue_final_message = false;
    std::string tools = "null";
    std::string variables = "{}";  // a JSON object of other variables
    int64_t now = 0;
};

struct RenderedChat {
    std::string text;
    std::vector<TokenId> ids;
};

// For one thread.
class Chat {
public:
    // `file`: replaces the folder's template. Errors: no template, a template that does not compile.
    static Result<Chat> load(const std::filesystem::path& folder, const Tokenizer& tokenizer, TemplateProgram program,
                             TemplateLimits limits = {}, const std::filesystem::path& file = {});
    // Errors: the template's, its limits, invalid messages. `known`: the conversation's tokens so far; where the
    // rendered text equals theirs, they are its tokens.
    Rendered<RenderedChat> render(const TemplateInput& request, WordCache& cache, std::span<const TokenId> known = {});
    // The ids alone.
    Rendered<std::vector<TokenId>> encode(WrittenChat chat, WordCache& cache, std::span<const TokenId> known = {});

private:
    struct WithStandIns {
        std::string text;
        std::vector<StandIn> stand_ins;
    };
    Rendered<WithStandIns> rendered(WrittenChat chat);
    Chat(const Tokenizer& tokenizer, TemplateProcess process);
    const Tokenizer* tokenizer_;
    TemplateProcess process_;
    std::vector<char32_t> pivots_;
};

// {"messages": .., "add_generation_prompt": .., "continue_final_message": .., "tools": .., "chat_template_kwargs": ..,
// "now": ..}, and no other member. Errors name the member.
Result<TemplateInput> parse_template_input(const Json& object);

}  // namespace verbatim::text
