#include "server/text/gguf_text.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "files/mapped_file.h"
#include "files/strict_json.h"
#include "server/text/chat.h"
#include "server/text/gguf_keys.h"
#include "server/text/gguf_pieces.h"
#include "server/text/stop_tokens.h"
#include "server/text/tokenizer_json.h"

namespace verbatim::text {
namespace {

using nlohmann::json;
using reference::GgufMetadata;
using reference::GgufNumbers;
using reference::GgufStrings;
using reference::GgufValue;

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;

// Parts of the regexes.
#define VERBATIM_CONTRACTION R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define VERBATIM_SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define VERBATIM_CASED                                      \
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)" \
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
#define VERBATIM_UPPER_CASED                                \
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)" \
    R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"

constexpr std::string_view kLlama3Regex =
    VERBATIM_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)" VERBATIM_SPACES;
constexpr std::string_view kQwen2Regex =
    VERBATIM_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)" VERBATIM_SPACES;
constexpr std::string_view kQwen35Regex =
    VERBATIM_CONTRACTION R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" VERBATIM_SPACES;
constexpr std::string_view kO200kRegex = VERBATIM_CASED VERBATIM_CONTRACTION
    "?|" VERBATIM_UPPER_CASED VERBATIM_CONTRACTION R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" VERBATIM_SPACES;
constexpr std::string_view kTekkenRegex =
    VERBATIM_CASED "|" VERBATIM_UPPER_CASED R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" VERBATIM_SPACES;
constexpr std::string_view kGpt2Regex = "";  // ByteLevel's

// A pre-tokenizer by llama.cpp's name. The first of several with the same meaning is the one that is written.
struct PreTokenizer {
    std::string_view name;
    std::string_view regex;
    bool ignore_merges = false;
    bool compose = false;  // to NFC
    bool adds_bos = false;
};
constexpr std::array<PreTokenizer, 15> kPreTokenizers = {{{"llama-bpe", kLlama3Regex, true, false, true},
                                                          {"llama3", kLlama3Regex, true, false, true},
                                                          {"llama-v3", kLlama3Regex, true, false, true},
                                                          {"falcon3", kLlama3Regex, true, false, true},
                                                          {"falcon-h1", kLlama3Regex, true, false, true},
                                                          {"pixtral", kLlama3Regex, true, false, true},
                                                          {"lfm2", kLlama3Regex, true, false, true},
                                                          {"dbrx", kLlama3Regex, false, false, false},
                                                          {"smaug-bpe", kLlama3Regex, false, false, false},
                                                          {"qwen2", kQwen2Regex, false, true, false},
                                                          {"qwen35", kQwen35Regex, false, true, false},
                                                          {"gpt-4o", kO200kRegex, false, false, false},
                                                          {"tekken", kTekkenRegex, true, false, true},
                                                          {"gpt-2", kGpt2Regex, false, false, false},
                                                          {"olmo", kGpt2Regex, false, false, false}}};

Result<const PreTokenizer*> pre_tokenizer(const GgufMetadata& metadata, std::string_view source) {
    ASSIGN_OR_RETURN(const auto* model, need_gguf<std::string_view>(metadata, "tokenizer.ggml.model", source));
    if (*model != "gpt2")
        return error(
            "{}: tokenizer.ggml.model = {} is not supported: gpt2 (byte-level BPE) and llama (SentencePiece's BPE) are",
            source, quote_text(*model));
    ASSIGN_OR_RETURN(const auto* name, need_gguf<std::string_view>(metadata, "tokenizer.ggml.pre", source));
    const auto* found = std::ranges::find(kPreTokenizers, *name, &PreTokenizer::name);
    if (found != kPreTokenizers.end()) return found;
    std::string names;
    for (const PreTokenizer& each : kPreTokenizers) names += (names.empty() ? "" : ", ") + std::string(each.name);
    return error("{}: tokenizer.ggml.pre = {} is not supported: {} are", source, quote_text(*name), names);
}

// Vocabulary and added tokens.
Status add_tokens(const GgufMetadata& metadata, std::string_view source, json& file) {
    ASSIGN_OR_RETURN(const auto* tokens, need_gguf<GgufStrings>(metadata, "tokenizer.ggml.tokens", source));
    const auto* types = find_gguf<GgufNumbers>(metadata, "tokenizer.ggml.token_type");
    if (types != nullptr && types->size() != tokens->size())
        return error("{}: tokenizer.ggml.token_type has {} entries for {} tokens", source, types->size(),
                     tokens->size());
    json& vocab = file["model"]["vocab"] = json::object();
    json& added = file["added_tokens"] = json::array();
    for (size_t id = 0; id < tokens->size(); ++id) {
        const int32_t type = types == nullptr ? int32_t{kNormal} : static_cast<int32_t>(types->at(id));
        const std::string text((*tokens)[id]);
        if (type == kUnused) continue;
        if (type == kControl || type == kUserDefined)
            added.push_back({{"id", id}, {"content", text}, {"special", type == kControl}, {"normalized", false}});
        else if (vocab.contains(text))
            return error("{}: tokenizer.ggml.tokens has {} twice", source, quote_text(text));
        else
            vocab[text] = id;
    }
    return {};
}

json split_steps(const PreTokenizer& pre) {
    json steps = json::array();
    if (!pre.regex.empty())
        steps.push_back(
            {{"type", "Split"}, {"pattern", {{"Regex", pre.regex}}}, {"behavior", "Isolated"}, {"invert", false}});
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", pre.regex.empty()}});
    return steps;
}

// The ids that llama.cpp adds around every text.
Result<json> template_processing(const GgufMetadata& metadata, const PreTokenizer& pre, std::string_view source) {
    json single = json::array();
    json special = json::object();
    const auto add = [&](std::string_view flag, std::string_view key, bool usual) -> Status {
        const bool* wanted = find_gguf<bool>(metadata, flag);
        if (!(wanted == nullptr ? usual : *wanted)) return {};
        ASSIGN_OR_RETURN(const auto* id, need_gguf<int64_t>(metadata, key, source));
        single.push_back({{"SpecialToken", {{"id", key}}}});
        special[std::string(key)] = {{"ids", {*id}}};
        return {};
    };
    RETURN_IF_ERROR(add("tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id", pre.adds_bos));
    single.push_back({{"Sequence", {{"id", "A"}}}});
    RETURN_IF_ERROR(add("tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id", false));
    if (single.size() == 1) return json();
    return json{{"type", "TemplateProcessing"}, {"single", single}, {"special_tokens", special}};
}

// --- the other way

// The pre-tokenizer that a tokenizer.json has, by its regex and switches.
Result<const PreTokenizer*> pre_tokenizer_of(const json& file, std::string_view source) {
    std::string regex;
    const json pre = file.value("pre_tokenizer", json());
    const json steps = pre.is_object() && pre.contains("pretokenizers") ? pre["pretokenizers"] : json::array({pre});
    int num_splits = 0;
    for (const json& step : steps) {
        if (!step.is_object() || !step.contains("pattern")) continue;
        ++num_splits;
        regex = step["pattern"].value("Regex", "");
    }
    const json model = file.value("model", json::object());
    const bool ignore_merges = model.is_object() && model.value("ignore_merges", json()) == true;
    const bool compose = file.contains("normalizer") && !file["normalizer"].is_null();
    for (const bool same_switches : {true, false}) {
        for (const PreTokenizer& each : kPreTokenizers)
            if (num_splits <= 1 && each.regex == regex && each.compose == compose &&
                (each.ignore_merges == ignore_merges || !same_switches))
                return &each;
    }
    return error("{}: its pre-tokenizer has no name in GGUF files", source);
}

}  // namespace

Result<std::string> gguf_tokenizer_json(const GgufMetadata& metadata, std::string_view source) {
    ASSIGN_OR_RETURN(const PreTokenizer* pre, pre_tokenizer(metadata, source));
    json file = {{"version", "1.0"}, {"decoder", {{"type", "ByteLevel"}}}};
    file["model"] = {{"type", "BPE"}, {"ignore_merges", pre->ignore_merges}};
    if (pre->compose) file["normalizer"] = {{"type", "NFC"}};
    file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", split_steps(*pre)}};
    RETURN_IF_ERROR(add_tokens(metadata, source, file));
    ASSIGN_OR_RETURN(const auto* merges, need_gguf<GgufStrings>(metadata, "tokenizer.ggml.merges", source));
    file["model"]["merges"] = *merges;
    ASSIGN_OR_RETURN(file["post_processor"], template_processing(metadata, *pre, source));
    return file.dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<Tokenizer> gguf_tokenizer(const GgufMetadata& metadata, std::string_view source) {
    if (const auto* model = find_gguf<std::string_view>(metadata, "tokenizer.ggml.model"); model && *model == "llama")
        return gguf_pieces(metadata, source);
    ASSIGN_OR_RETURN(const std::string made, gguf_tokenizer_json(metadata, source));
    return parse_tokenizer(made, fmt::format("{}: its tokenizer as a tokenizer.json", source));
}

Result<GgufTexts> gguf_texts(const GgufMetadata& metadata, std::string_view source) {
    GgufTexts texts;
    if (const auto* source_text = find_gguf<std::string_view>(metadata, "tokenizer.chat_template"))
        texts.chat_template = std::string(*source_text);
    ASSIGN_OR_RETURN(const auto* tokens, need_gguf<GgufStrings>(metadata, "tokenizer.ggml.tokens", source));
    constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kNames = {
        {{"tokenizer.ggml.bos_token_id", "bos_token"},
         {"tokenizer.ggml.eos_token_id", "eos_token"},
         {"tokenizer.ggml.padding_token_id", "pad_token"},
         {"tokenizer.ggml.unknown_token_id", "unk_token"}}};
    const auto id_of = [&](std::string_view key) -> Result<std::optional<int64_t>> {
        const auto* id = find_gguf<int64_t>(metadata, key);
        if (id == nullptr) return std::nullopt;
        if (*id < 0 || *id >= static_cast<int64_t>(tokens->size()))
            return error("{}: {} = {}, the vocabulary has {} tokens", source, key, *id, tokens->size());
        return *id;
    };
    for (const auto& [key, name] : kNames) {
        ASSIGN_OR_RETURN(const auto id, id_of(key));
        if (id) texts.token_texts.emplace_back(name, (*tokens)[static_cast<size_t>(*id)]);
    }
    for (const std::string_view key :
         {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
        ASSIGN_OR_RETURN(const auto id, id_of(key));
        if (id) texts.stop_tokens.push_back(static_cast<TokenId>(*id));
    }
    std::ranges::sort(texts.stop_tokens);
    const auto twice = std::ranges::unique(texts.stop_tokens);
    texts.stop_tokens.erase(twice.begin(), twice.end());
    return texts;
}

Result<GgufTexts> load_gguf_texts(const std::filesystem::path& path) {
    ASSIGN_OR_RETURN(const reference::GgufFile file, reference::open_gguf(path));
    return gguf_texts(file.metadata, path.string());
}

Status put_gguf_texts(const std::filesystem::path& folder, int32_t vocab_size, reference::OwnedMetadata& metadata) {
    const std::filesystem::path path = folder / "tokenizer.json";
    if (!std::filesystem::exists(path)) return {};
    ASSIGN_OR_RETURN(const Tokenizer tokenizer, load_tokenizer(folder));  // what follows relies on its checks
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxTokenizerBytes));
    ASSIGN_OR_RETURN(const json file, parse_strict_json(text, path.string()));
    ASSIGN_OR_RETURN(const PreTokenizer* pre, pre_tokenizer_of(file, path.string()));
    std::vector<std::string> tokens(static_cast<size_t>(vocab_size));
    std::vector<int32_t> types(tokens.size(), kUnused);
    const auto put = [&](int64_t id, const std::string& token, int32_t type) -> Status {
        if (id < 0 || id >= vocab_size)
            return error("{}: {} has id {}, the model has {} rows", path.string(), quote_text(token), id, vocab_size);
        tokens[static_cast<size_t>(id)] = token;
        types[static_cast<size_t>(id)] = type;
        return {};
    };
    for (const auto& [token, id] : file["model"]["vocab"].items())
        RETURN_IF_ERROR(put(id.get<int64_t>(), token, kNormal));
    for (const json& added : file.value("added_tokens", json::array()))
        RETURN_IF_ERROR(put(added["id"].get<int64_t>(), added["content"].get<std::string>(),
                            added.value("special", false) ? kControl : kUserDefined));
    for (size_t id = 0; id < tokens.size(); ++id)
        if (types[id] == kUnused) tokens[id] = fmt::format("[unused{}]", id);
    std::vector<std::string> merges;
    for (const json& merge : file["model"]["merges"])
        merges.push_back(merge.is_string() ? merge.get<std::string>()
                                           : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    metadata.set("tokenizer.ggml.model", std::string_view("gpt2"));
    metadata.set("tokenizer.ggml.pre", pre->name);
    metadata.set("tokenizer.ggml.tokens", GgufStrings(tokens.begin(), tokens.end()));
    metadata.set("tokenizer.ggml.merges", GgufStrings(merges.begin(), merges.end()));
    metadata.set_numbers("tokenizer.ggml.token_type", types);
    ASSIGN_OR_RETURN(const auto stop_tokens, load_stop_tokens(folder, vocab_size));
    if (!stop_tokens.empty()) metadata.set("tokenizer.ggml.eos_token_id", int64_t{stop_tokens.front()});
    if (stop_tokens.size() > 1) metadata.set("tokenizer.ggml.eot_token_id", int64_t{stop_tokens.back()});
    ASSIGN_OR_RETURN(const auto chat_template, find_chat_template(folder, {}));
    if (chat_template) metadata.set("tokenizer.chat_template", std::string_view(chat_template->source));
    // What a text begins with is the post-processor's word.
    WordCache cache;
    ASSIGN_OR_RETURN(const std::vector<TokenId> around, tokenizer.encode("", {}, cache));
    metadata.set("tokenizer.ggml.add_bos_token", !around.empty());
    if (!around.empty()) metadata.set("tokenizer.ggml.bos_token_id", int64_t{around.front()});
    return {};
}

}  // namespace verbatim::text
