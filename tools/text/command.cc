// `verbatim text`: converts between text and tokens without a server, JSON lines in and out.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "files/mapped_file.h"
#include "files/repository_path.h"
#include "files/strict_json.h"
#include "server/http/messages.h"
#include "server/text/chat.h"
#include "server/text/decoder.h"
#include "server/text/tokenizer_json.h"
#include "tools/program/cli.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using namespace verbatim::text;

constexpr const char* kTextExitCodes =
    "Lines come from stdin and go to stdout, one JSON object each; the first bad line ends the run.\n"
    "Exit codes: 0 done; 2 bad flag; 3 the tokenizer, the template or a line is wrong; 4 output cannot be written.";

struct TextOptions {
    std::string folder;
    bool no_special = false;
    int64_t template_ms = 5000;
    std::string chat_template;
};

using LineHandler = std::function<Result<json>(const json& line, const std::string& text)>;

// Every line through `handle`, in order.
int run_lines(const LineHandler& handle) {
    std::string line;
    for (size_t number = 1; std::getline(std::cin, line); ++number) {
        const std::string where = fmt::format("stdin line {}", number);
        const Result<json> input = parse_strict_json(line, where);
        if (!input) return report_error(input.error(), kExitBadInput);
        const Result<json> output = handle(*input, line);
        if (!output) return report_error({fmt::format("{}: {}", where, output.error().message), output.error().kind});
        std::fputs((output->dump() + "\n").c_str(), stdout);
        std::fflush(stdout);
        if (std::ferror(stdout) != 0) return report_error({"stdout cannot be written"}, kExitMachine);
    }
    return kExitOk;
}

// The only member of `object`.
Result<json> only_member(const json& object, const char* key, const char* what) {
    if (!object.is_object() || object.size() != 1 || !object.contains(key))
        return error("{}: wanted an object with {:?} ({}) alone", quote_json(object), key, what);
    return object[key];
}

int run_encode(const TextOptions& options) {
    const auto tokenizer = load_tokenizer(options.folder);
    if (!tokenizer) return report_error(tokenizer.error());
    WordCache cache;
    return run_lines([&](const json& line, const std::string&) -> Result<json> {
        ASSIGN_OR_RETURN(const json text, only_member(line, "text", "a text"));
        if (!text.is_string()) return error("text is {}, wanted a text", quote_json(text));
        const EncodeOptions encode{.add_special = !options.no_special, .parse_special = !options.no_special};
        ASSIGN_OR_RETURN(const auto ids, tokenizer->encode(text.get_ref<const std::string&>(), encode, cache));
        return json{{"ids", ids}};
    });
}

// The rows of the folder's model, which may be more than its tokenizer has tokens; without a config.json the tokens.
Result<int64_t> num_model_ids(const TextOptions& options, const Tokenizer& tokenizer) {
    constexpr size_t kMaxConfigBytes = size_t{1} << 20;
    const std::filesystem::path path = std::filesystem::path(options.folder) / "config.json";
    if (!std::filesystem::exists(path)) return tokenizer.num_ids();
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
    ASSIGN_OR_RETURN(const json file, parse_strict_json(text, path.string()));
    const json& model = file.is_object() && file.contains("text_config") ? file["text_config"] : file;
    const json rows = model.is_object() ? model.value("vocab_size", json()) : json();
    if (!rows.is_number_unsigned() || rows > std::numeric_limits<TokenId>::max()) return tokenizer.num_ids();
    return std::max<int64_t>(rows.get<int64_t>(), tokenizer.num_ids());
}

int run_decode(const TextOptions& options) {
    const auto tokenizer = load_tokenizer(options.folder);
    if (!tokenizer) return report_error(tokenizer.error());
    const Result<int64_t> num_ids = num_model_ids(options, *tokenizer);
    if (!num_ids) return report_error(num_ids.error());
    return run_lines([&](const json& line, const std::string&) -> Result<json> {
        ASSIGN_OR_RETURN(const json ids, only_member(line, "ids", "a list of token ids"));
        if (!ids.is_array()) return error("ids is {}, wanted a list", quote_json(ids));
        std::vector<TokenId> tokens;
        for (const json& id : ids) {
            if (!id.is_number_unsigned() || id.get<uint64_t>() >= static_cast<uint64_t>(*num_ids))
                return error("ids[{}] is {}, wanted a token id from 0 to {}", tokens.size(), quote_json(id),
                             *num_ids - 1);
            tokens.push_back(id.get<TokenId>());
        }
        return json{{"text", decode_text(*tokenizer, tokens, options.no_special)}};
    });
}

// The error with the template's exception, for its author.
Error explained(const TemplateProblem& problem) {
    if (problem.detail.empty()) return problem;
    return {fmt::format("{} ({})", problem.message, problem.detail), problem.kind};
}

int run_template(const TextOptions& options) {
    const auto tokenizer = load_tokenizer(options.folder);
    if (!tokenizer) return report_error(tokenizer.error());
    TemplateLimits limits;
    limits.render_ms = options.template_ms;
    auto chat = Chat::load(options.folder, *tokenizer, {repository_path("server/text/render_chat.py")}, limits,
                           options.chat_template);
    if (!chat) return report_error(chat.error());
    WordCache cache;
    return run_lines([&](const json&, const std::string& line) -> Result<json> {
        const Json object = Json::parse(line, nullptr, /*allow_exceptions=*/false);
        ASSIGN_OR_RETURN(text::TemplateInput request, parse_template_input(object));
        auto messages = server::prepare_messages(request.messages);
        if (!messages) return error("{}", messages.error().message);
        request.messages = *std::move(messages);
        const auto rendered = chat->render(request, cache);
        if (!rendered) return tl::unexpected(explained(rendered.error()));
        return json{{"ids", rendered->ids}, {"text", rendered->text}};
    });
}

}  // namespace

void add_text_command(CLI::App& app, int& exit_code) {
    CLI::App* text = app.add_subcommand("text", "text to tokens and back, and chat templates");
    text->require_subcommand(1);
    text->footer(kTextExitCodes);
    const auto add_verb = [&](const char* name, const char* what, int (*run)(const TextOptions&)) {
        auto options = std::make_shared<TextOptions>();
        CLI::App* verb = text->add_subcommand(name, what);
        verb->footer(kTextExitCodes);
        verb->add_option("DIR", options->folder, "a checkpoint's folder")->required();
        verb->callback([options, run, &exit_code] { exit_code = run(*options); });
        return std::pair{verb, options};
    };
    {
        auto [verb, options] = add_verb("encode", R"({"text": ..} to {"ids": [..]})", run_encode);
        verb->add_flag("--no-special", options->no_special, "adds no BOS and takes no text for a special token");
    }
    {
        auto [verb, options] = add_verb("decode", R"({"ids": [..]} to {"text": ..})", run_decode);
        verb->add_flag("--no-special", options->no_special, "leaves special tokens out");
    }
    {
        auto [verb, options] =
            add_verb("template",
                     R"({"messages": [..], "add_generation_prompt": .., "continue_final_message": .., "tools": .., )"
                     R"("now": ..} to {"ids", "text"})",
                     run_template);
        verb->add_option("--chat-template", options->chat_template,
                         "a Jinja file in the place of the folder's chat template");
        add_count_option(*verb, "--template-ms", options->template_ms, 1, "milliseconds that one rendering may take");
    }
}

}  // namespace verbatim::tools
