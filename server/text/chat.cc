#include "server/text/chat.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "files/mapped_file.h"
#include "files/strict_json.h"
#include "server/text/gguf_text.h"
#include "server/text/utf8.h"
#include "server/text/written_json.h"

namespace verbatim::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxConfigBytes = size_t{64} << 20;  // tokenizer_config.json may list every added token
constexpr size_t kMaxTemplateBytes = size_t{1} << 20;

constexpr std::array kTokenNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                    "pad_token", "cls_token", "mask_token"};

// "<s>" or {"content": "<s>", ...}.
std::optional<std::string> token_text(const json& value) {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_object() && value.contains("content") && value["content"].is_string())
        return value["content"].get<std::string>();
    return std::nullopt;
}

// A text, or [{"name": "default", "template": text}, ...].
Result<std::optional<std::string>> template_text(const json& config, const std::string& path) {
    const auto found = config.find("chat_template");
    if (found == config.end() || found->is_null()) return std::nullopt;
    if (found->is_string()) return found->get<std::string>();
    if (found->is_array()) {
        for (const json& entry : *found) {
            const bool named = entry.is_object() && entry.value("name", json()) == "default";
            if (named && entry.contains("template") && entry["template"].is_string())
                return entry["template"].get<std::string>();
        }
    }
    return error("{}: chat_template is {}, wanted a text or a list with one named \"default\"", path,
                 quote_json(*found));
}

// The process that renders it reads JSON. `origin` is the file that has the template.
Result<std::optional<ChatTemplateSource>> checked_source(ChatTemplateSource made, const std::filesystem::path& origin) {
    if (const auto bad = first_invalid_utf8(made.source))
        return error("{}: the chat template is not UTF-8 at byte {}", origin.string(), *bad);
    for (const auto& [name, text] : made.variables.items()) {
        if (first_invalid_utf8(text.get_ref<const std::string&>()))
            return error("{}: the text of {} is not UTF-8", origin.string(), name);
    }
    return made;
}

Result<json> parse_config(const std::string& text, const std::string& path) {
    ASSIGN_OR_RETURN(json config, parse_strict_json(text, path));
    if (!config.is_object()) return error("{}: it is no object", path);
    return config;
}

// `source`, which is of `origin`, with the variables of a configuration.
Result<std::optional<ChatTemplateSource>> source_with(std::optional<std::string> source, const json& config,
                                                      const std::filesystem::path& origin) {
    if (!source) return std::nullopt;
    json variables = json::object();
    for (const char* name : kTokenNames) {
        if (const auto text = token_text(config.value(name, json()))) variables[name] = *text;
    }
    return checked_source({*std::move(source), std::move(variables)}, origin);
}

Result<std::optional<ChatTemplateSource>> gguf_chat_template(const std::filesystem::path& path,
                                                             const std::filesystem::path& file) {
    ASSIGN_OR_RETURN(GgufTexts texts, load_gguf_texts(path));
    if (!file.empty()) {
        ASSIGN_OR_RETURN(texts.chat_template, read_text_file(file, kMaxTemplateBytes));
    }
    if (!texts.chat_template) return std::nullopt;
    json variables = json::object();
    for (const auto& [name, text] : texts.token_texts) variables[name] = text;
    return checked_source({*std::move(texts.chat_template), std::move(variables)}, file.empty() ? path : file);
}

}  // namespace

Result<std::optional<ChatTemplateSource>> find_chat_template(const std::filesystem::path& folder,
                                                             const std::filesystem::path& file) {
    if (reference::is_gguf(folder)) return gguf_chat_template(folder, file);
    const std::filesystem::path config_path = folder / "tokenizer_config.json";
    json config = json::object();
    if (std::filesystem::exists(config_path)) {
        ASSIGN_OR_RETURN(const std::string text, read_text_file(config_path, kMaxConfigBytes));
        ASSIGN_OR_RETURN(config, parse_config(text, config_path.string()));
    }
    std::optional<std::string> source;
    const std::filesystem::path own_file = file.empty() ? folder / "chat_template.jinja" : file;
    if (!file.empty() || std::filesystem::exists(own_file)) {
        ASSIGN_OR_RETURN(source, read_text_file(own_file, kMaxTemplateBytes));
    } else {
        ASSIGN_OR_RETURN(source, template_text(config, config_path.string()));
    }
    return source_with(std::move(source), config, own_file);
}

Result<std::optional<ChatTemplateSource>> parse_chat_template(const std::string& config, const std::string& path) {
    ASSIGN_OR_RETURN(const json parsed, parse_config(config, path));
    ASSIGN_OR_RETURN(std::optional<std::string> source, template_text(parsed, path));
    return source_with(std::move(source), parsed, path);
}

Chat::Chat(const Tokenizer& tokenizer, TemplateProcess process) : tokenizer_(&tokenizer), process_(std::move(process)) {
    std::vector<std::string> special;
    for (const AddedToken& token : tokenizer.added_tokens()) {
        if (token.special) special.push_back(token.content);
    }
    pivots_ = choose_pivots(special);
}

Result<Chat> Chat::load(const std::filesystem::path& folder, const Tokenizer& tokenizer, TemplateProgram program,
                        TemplateLimits limits, const std::filesystem::path& file) {
    ASSIGN_OR_RETURN(std::optional<ChatTemplateSource> found, find_chat_template(folder, file));
    if (!found)
        return error("{}: no chat template: neither chat_template.jinja nor chat_template in tokenizer_config.json",
                     folder.string());
    auto process =
        TemplateProcess::start(std::move(program), std::move(found->source), std::move(found->variables), limits);
    const std::filesystem::path& where = file.empty() ? folder : file;
    if (!process) return tl::unexpected(Error{where.string() + ": " + process.error().message, process.error().kind});
    return Chat(tokenizer, *std::move(process));
}

Rendered<Chat::WithStandIns> Chat::rendered(WrittenChat chat) {
    std::vector<std::string*> users;
    for (std::string& message : chat.messages) users.push_back(&message);
    users.insert(users.end(), {&chat.tools, &chat.variables});
    auto stand_ins = put_stand_ins(pivots_, users);
    if (!stand_ins) return tl::unexpected(TemplateProblem(std::move(stand_ins).error()));
    CHECK(chat.variables.starts_with('{') && chat.variables.ends_with('}'), "{} bytes of variables",
          chat.variables.size());
    const std::string_view variables = std::string_view(chat.variables).substr(1);  // with the last brace
    std::string others = fmt::format(R"({{"add_generation_prompt":{},"tools":)", chat.add_generation_prompt);
    others.append(chat.tools).append(variables.size() > 1 ? "," : "").append(variables);
    ASSIGN_OR_RETURN(std::string text, process_.render(std::move(chat.messages), others,
                                                       {.now = chat.now, .continues = chat.continue_final_message}));
    return WithStandIns{std::move(text), *std::move(stand_ins)};
}

Rendered<std::vector<TokenId>> Chat::encode(WrittenChat chat, WordCache& cache, std::span<const TokenId> known) {
    ASSIGN_OR_RETURN(const WithStandIns made, rendered(std::move(chat)));
    auto ids = tokenizer_->encode_prompt(made.text, made.stand_ins, cache, KnownIds(*tokenizer_, known));
    if (!ids) return tl::unexpected(TemplateProblem(std::move(ids).error()));
    return *std::move(ids);
}

Rendered<RenderedChat> Chat::render(const TemplateInput& request, WordCache& cache, std::span<const TokenId> known) {
    std::vector<std::string> messages;
    for (const Json& message : request.messages) messages.push_back(written(message));
    ASSIGN_OR_RETURN(const WithStandIns made, rendered({.messages = std::move(messages),
                                                        .add_generation_prompt = request.add_generation_prompt,
                                                        .continue_final_message = request.continue_final_message,
                                                        .tools = written(request.tools),
                                                        .variables = written(request.variables),
                                                        .now = request.now}));
    auto ids = tokenizer_->encode_prompt(made.text, made.stand_ins, cache, KnownIds(*tokenizer_, known));
    if (!ids) return tl::unexpected(TemplateProblem(std::move(ids).error()));
    return RenderedChat{remove_stand_ins(made.text, made.stand_ins), *std::move(ids)};
}

Result<TemplateInput> parse_template_input(const Json& object) {
    TemplateInput request;
    if (!object.is_object()) return error("{} is no object", quote_json(json(object)));
    for (const auto& [key, value] : object.items()) {
        if (key == "messages")
            request.messages = value;
        else if (key == "tools" && (value.is_array() || value.is_null()))
            request.tools = value;
        else if (key == "add_generation_prompt" && value.is_boolean())
            request.add_generation_prompt = value.get<bool>();
        else if (key == "continue_final_message" && value.is_boolean())
            request.continue_final_message = value.get<bool>();
        else if (key == "chat_template_kwargs" && value.is_object())
            request.variables = value;
        else if (key == "now" && value.is_number_integer())
            request.now = value.get<int64_t>();
        else
            return error(
                "{}: {} is not understood: messages (list), tools (list), chat_template_kwargs (object), "
                "add_generation_prompt and continue_final_message (true or false) and now (seconds since 1970) are",
                key, quote_json(json(value)));
    }
    const bool objects = std::ranges::all_of(request.messages, [](const Json& one) { return one.is_object(); });
    if (!request.messages.is_array() || request.messages.empty() || !objects)
        return error("messages is {}, wanted a list of objects", quote_json(json(request.messages)));
    if (!request.continue_final_message) return request;
    if (request.add_generation_prompt)
        return error("continue_final_message and add_generation_prompt are both true: give one of them");
    if (!request.messages.back().value("content", Json()).is_string())
        return error("continue_final_message: the content of the last message is no text");
    return request;
}

}  // namespace verbatim::text
