#include "server/text/tokenizer_json.h"

#include <functional>
#include <initializer_list>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "files/mapped_file.h"
#include "files/strict_json.h"
#include "server/text/gguf_text.h"
#include "server/text/regex_parts.h"

namespace verbatim::text {
namespace {

using nlohmann::json;

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr TokenId kMaxIds = 1 << 24;
constexpr size_t kMaxAddedBytes = 256;

// GPT-2's, which ByteLevel applies when use_regex is true.
constexpr std::string_view kByteLevelRegex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

using Ids = std::unordered_map<std::string, TokenId>;

std::string type_of(const json& part) {
    return part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>()
                                                                                 : quote_json(part);
}

// The member `key`, null when it is missing.
const json& member(const json& object, const char* key) {
    static const json kNull;
    const auto found = object.find(key);
    return found == object.end() ? kNull : *found;
}

Status want_object(const json& value, std::string_view what) {
    if (!value.is_object()) return error("{} is {}, wanted an object", what, quote_json(value));
    return {};
}

Result<bool> flag(const json& object, const char* key, bool if_missing, std::string_view what) {
    const json& value = member(object, key);
    if (value.is_null()) return if_missing;
    if (!value.is_boolean()) return error("{}.{} is {}, wanted true or false", what, key, quote_json(value));
    return value.get<bool>();
}

// A member that must be null, missing or one of `harmless`: anything else would change ids.
Status want_unset(const json& object, const char* key, std::string_view what,
                  std::initializer_list<json> harmless = {}) {
    const json& value = member(object, key);
    if (value.is_null()) return {};
    for (const json& allowed : harmless) {
        if (value == allowed) return {};
    }
    return error("{}.{} is {}, which is not supported", what, key, quote_json(value));
}

Result<TokenId> token_id(const json& value, std::string_view what) {
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() >= kMaxIds)
        return error("{} is {}, wanted a token id below {}", what, quote_json(value), kMaxIds);
    return value.get<TokenId>();
}

// Calls `one` for a component, or for every part of a Sequence of them, whose list is under `list`.
Status each_part(const json& part, const char* list, std::string_view what,
                 const std::function<Status(const json&)>& one) {
    if (part.is_null()) return {};
    RETURN_IF_ERROR(want_object(part, what));
    if (type_of(part) != "Sequence") return one(part);
    const json& parts = member(part, list);
    if (!parts.is_array()) return error("{}.{} is {}, wanted a list", what, list, quote_json(parts));
    for (const json& inner : parts) {
        RETURN_IF_ERROR(want_object(inner, what));
        RETURN_IF_ERROR(one(inner));
    }
    return {};
}

Status read_normalizer(const json& file, TokenizerConfig& config) {
    return each_part(member(file, "normalizer"), "normalizers", "normalizer", [&](const json& part) -> Status {
        if (type_of(part) != "NFC") return error("normalizer {} is not supported: NFC is", type_of(part));
        config.compose = true;
        return {};
    });
}

Result<SplitRegex> read_pattern(const json& part) {
    const json& pattern = member(part, "pattern");
    RETURN_IF_ERROR(want_object(pattern, "pre_tokenizer Split.pattern"));
    const bool is_regex = pattern.contains("Regex");
    const json& text = member(pattern, is_regex ? "Regex" : "String");
    if (!text.is_string() || text.get_ref<const std::string&>().empty())
        return error("pre_tokenizer Split.pattern is {}, wanted {{\"Regex\": ...}} or {{\"String\": ...}}",
                     quote_json(pattern));
    const auto& written = text.get_ref<const std::string&>();
    Result<RegexParts> parts = is_regex ? parse_regex(written) : literal_regex(written);
    Result<SplitRegex> regex = parts ? SplitRegex::compile(*parts) : tl::unexpected(parts.error());
    if (!regex) return error("pre_tokenizer Split: regex {}: {}", quote_text(written), regex.error().message);
    return regex;
}

Status read_split(const json& part, TokenizerConfig& config) {
    ASSIGN_OR_RETURN(SplitRegex regex, read_pattern(part));
    ASSIGN_OR_RETURN(const bool invert, flag(part, "invert", false, "pre_tokenizer Split"));
    const json& behavior = member(part, "behavior");
    if (behavior != "Isolated" && behavior != "Removed")
        return error("pre_tokenizer Split.behavior is {}, which is not supported: Isolated and Removed are",
                     quote_json(behavior));
    const bool removes = behavior == "Removed";
    config.splits.push_back({std::move(regex), !removes || invert, !removes || !invert});
    return {};
}

Status read_byte_level(const json& part, TokenizerConfig& config) {
    ASSIGN_OR_RETURN(const bool prefix, flag(part, "add_prefix_space", true, "pre_tokenizer ByteLevel"));
    if (prefix) return error("pre_tokenizer ByteLevel.add_prefix_space is true, which is not supported");
    ASSIGN_OR_RETURN(const bool use_regex, flag(part, "use_regex", true, "pre_tokenizer ByteLevel"));
    if (!use_regex) return {};
    ASSIGN_OR_RETURN(const RegexParts parts, parse_regex(kByteLevelRegex));
    ASSIGN_OR_RETURN(SplitRegex regex, SplitRegex::compile(parts));
    config.splits.push_back({std::move(regex), true, true});
    return {};
}

Status read_pre_tokenizer(const json& file, TokenizerConfig& config) {
    bool byte_level = false;
    RETURN_IF_ERROR(
        each_part(member(file, "pre_tokenizer"), "pretokenizers", "pre_tokenizer", [&](const json& part) -> Status {
            const std::string type = type_of(part);
            if (byte_level) return error("pre_tokenizer {} follows ByteLevel, which is not supported", type);
            byte_level = type == "ByteLevel";
            if (byte_level) return read_byte_level(part, config);
            if (type == "Split") return read_split(part, config);
            return error("pre_tokenizer {} is not supported: Split and ByteLevel are", type);
        }));
    if (!byte_level) return error("pre_tokenizer ends without ByteLevel: only byte-level vocabularies are supported");
    return {};
}

Status read_decoder(const json& file) {
    bool byte_level = false;
    RETURN_IF_ERROR(each_part(member(file, "decoder"), "decoders", "decoder", [&](const json& part) -> Status {
        if (type_of(part) != "ByteLevel" || byte_level)
            return error("decoder {} is not supported: one ByteLevel is", type_of(part));
        byte_level = true;
        return {};
    }));
    if (!byte_level) return error("decoder is null, wanted ByteLevel");
    return {};
}

Status read_vocabulary(const json& model, TokenizerConfig& config, Ids& ids) {
    const json& vocabulary = member(model, "vocab");
    RETURN_IF_ERROR(want_object(vocabulary, "model.vocab"));
    for (const auto& [token, value] : vocabulary.items()) {
        ASSIGN_OR_RETURN(const TokenId id, token_id(value, "model.vocab: the id of " + quote_text(token)));
        const auto index = static_cast<size_t>(id);
        if (index >= config.vocabulary.size()) config.vocabulary.resize(index + 1);
        if (config.vocabulary[index])
            return error("model.vocab: {} and {} both have id {}", quote_text(*config.vocabulary[index]),
                         quote_text(token), id);
        config.vocabulary[index] = token;
        ids.emplace(token, id);
    }
    return {};
}

// "a b" or ["a", "b"].
Result<std::pair<std::string, std::string>> merge_texts(const json& merge, size_t rank) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
        return std::pair{merge[0].get<std::string>(), merge[1].get<std::string>()};
    if (merge.is_string()) {
        const auto& text = merge.get_ref<const std::string&>();
        const size_t space = text.find(' ');
        if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
            return std::pair{text.substr(0, space), text.substr(space + 1)};
    }
    return error("model.merges[{}] is {}, wanted \"a b\" or [\"a\", \"b\"]", rank, quote_json(merge));
}

Status read_merges(const json& model, TokenizerConfig& config, const Ids& ids) {
    const json& merges = member(model, "merges");
    if (!merges.is_array()) return error("model.merges is {}, wanted a list", quote_json(merges));
    const auto id_of = [&](const std::string& token, size_t rank) -> Result<TokenId> {
        const auto found = ids.find(token);
        if (found == ids.end() || token.empty())
            return error("model.merges[{}]: {} is not in model.vocab", rank, quote_text(token));
        return found->second;
    };
    for (size_t rank = 0; rank < merges.size(); ++rank) {
        ASSIGN_OR_RETURN(const auto texts, merge_texts(merges[rank], rank));
        BytePairMerge merge;
        ASSIGN_OR_RETURN(merge.left, id_of(texts.first, rank));
        ASSIGN_OR_RETURN(merge.right, id_of(texts.second, rank));
        ASSIGN_OR_RETURN(merge.whole, id_of(texts.first + texts.second, rank));
        config.merges.push_back(merge);
    }
    return {};
}

Status read_model(const json& file, TokenizerConfig& config, Ids& ids) {
    const json& model = member(file, "model");
    RETURN_IF_ERROR(want_object(model, "model"));
    if (member(model, "type") != "BPE") return error("model {} is not supported: BPE is", type_of(model));
    RETURN_IF_ERROR(want_unset(model, "dropout", "model", {0, 0.0}));
    RETURN_IF_ERROR(want_unset(model, "continuing_subword_prefix", "model", {""}));
    RETURN_IF_ERROR(want_unset(model, "end_of_word_suffix", "model", {""}));
    RETURN_IF_ERROR(want_unset(model, "byte_fallback", "model", {false}));
    ASSIGN_OR_RETURN(config.ignore_merges, flag(model, "ignore_merges", false, "model"));
    RETURN_IF_ERROR(read_vocabulary(model, config, ids));
    return read_merges(model, config, ids);
}

Result<AddedToken> read_added_token(const json& entry, const std::string& what) {
    RETURN_IF_ERROR(want_object(entry, what));
    AddedToken token;
    ASSIGN_OR_RETURN(token.id, token_id(member(entry, "id"), what + ".id"));
    const json& content = member(entry, "content");
    if (!content.is_string() || content.get_ref<const std::string&>().empty())
        return error("{}.content is {}, wanted a text", what, quote_json(content));
    token.content = content.get<std::string>();
    if (token.content.size() > kMaxAddedBytes)
        return error("{}.content has {} bytes, {} at most", what, token.content.size(), kMaxAddedBytes);
    for (const char* key : {"single_word", "lstrip", "rstrip"}) RETURN_IF_ERROR(want_unset(entry, key, what, {false}));
    ASSIGN_OR_RETURN(token.special, flag(entry, "special", false, what));
    ASSIGN_OR_RETURN(token.normalized, flag(entry, "normalized", !token.special, what));
    return token;
}

Status read_added_tokens(const json& file, TokenizerConfig& config, Ids& ids) {
    const json& added = member(file, "added_tokens");
    if (added.is_null()) return {};
    if (!added.is_array()) return error("added_tokens is {}, wanted a list", quote_json(added));
    std::map<TokenId, std::string> contents;
    std::set<std::string> seen;
    for (size_t i = 0; i < added.size(); ++i) {
        const std::string what = fmt::format("added_tokens[{}]", i);
        ASSIGN_OR_RETURN(AddedToken token, read_added_token(added[i], what));
        const auto index = static_cast<size_t>(token.id);
        const auto known = ids.find(token.content);
        if (known != ids.end() && known->second != token.id)
            return error("{}: {} has id {}, in model.vocab it has {}", what, quote_text(token.content), token.id,
                         known->second);
        const bool taken = known == ids.end() && index < config.vocabulary.size() && config.vocabulary[index];
        if (taken || !contents.emplace(token.id, token.content).second || !seen.insert(token.content).second)
            return error("{}: {} with id {}: another token has that text or id", what, quote_text(token.content),
                         token.id);
        config.added.push_back(std::move(token));
    }
    for (const AddedToken& token : config.added) ids.emplace(token.content, token.id);
    return {};
}

// {"SpecialToken": {"id": "<s>"}}: its ids by the list of special tokens, for the id here is its text.
Result<std::vector<TokenId>> read_template_tokens(const json& part, const json& piece) {
    const json& special = member(piece, "SpecialToken");
    const json& name = member(special, "id");
    const json& entry =
        name.is_string() ? member(member(part, "special_tokens"), name.get_ref<const std::string&>().c_str()) : name;
    const json& ids = member(entry, "ids");
    if (!ids.is_array())
        return error("post_processor TemplateProcessing: {} names no special token with ids", quote_json(piece));
    std::vector<TokenId> found;
    for (const json& id : ids) {
        ASSIGN_OR_RETURN(const TokenId one, token_id(id, "post_processor TemplateProcessing: an id"));
        found.push_back(one);
    }
    return found;
}

Status read_template(const json& part, TokenizerConfig& config) {
    const json& single = member(part, "single");
    if (!single.is_array())
        return error("post_processor TemplateProcessing.single is {}, wanted a list", quote_json(single));
    if (!member(part, "special_tokens").is_object())
        return error("post_processor TemplateProcessing.special_tokens is {}, wanted an object",
                     quote_json(member(part, "special_tokens")));
    int num_texts = 0;
    for (const json& piece : single) {
        RETURN_IF_ERROR(want_object(piece, "post_processor TemplateProcessing: a piece"));
        if (piece.contains("Sequence")) {
            ++num_texts;
            continue;
        }
        RETURN_IF_ERROR(want_object(member(piece, "SpecialToken"), "post_processor TemplateProcessing.SpecialToken"));
        ASSIGN_OR_RETURN(const std::vector<TokenId> ids, read_template_tokens(part, piece));
        std::vector<TokenId>& side = num_texts == 0 ? config.before : config.after;
        side.insert(side.end(), ids.begin(), ids.end());
    }
    if (num_texts != 1)
        return error("post_processor TemplateProcessing.single has the text {} times, wanted once", num_texts);
    return {};
}

Status read_post_processor(const json& file, TokenizerConfig& config) {
    bool has_template = false;
    return each_part(member(file, "post_processor"), "processors", "post_processor", [&](const json& part) -> Status {
        const std::string type = type_of(part);
        if (type == "ByteLevel") return {};  // it moves offsets, not ids
        if (type != "TemplateProcessing" || has_template)
            return error("post_processor {} is not supported: one TemplateProcessing and ByteLevel are", type);
        has_template = true;
        return read_template(part, config);
    });
}

// Tokens around every text must be there.
Status check_ids(const TokenizerConfig& config) {
    std::set<TokenId> added;
    for (const AddedToken& token : config.added) added.insert(token.id);
    for (const std::vector<TokenId>* side : {&config.before, &config.after}) {
        for (const TokenId id : *side) {
            const auto index = static_cast<size_t>(id);
            const bool known = added.contains(id) || (index < config.vocabulary.size() && config.vocabulary[index]);
            if (!known) return error("post_processor TemplateProcessing: no token has id {}", id);
        }
    }
    return {};
}

Result<TokenizerConfig> read_config(const json& file) {
    TokenizerConfig config;
    Ids ids;
    RETURN_IF_ERROR(want_object(file, "the file"));
    RETURN_IF_ERROR(want_unset(file, "truncation", "the file"));
    RETURN_IF_ERROR(want_unset(file, "padding", "the file"));
    RETURN_IF_ERROR(read_normalizer(file, config));
    RETURN_IF_ERROR(read_pre_tokenizer(file, config));
    RETURN_IF_ERROR(read_decoder(file));
    RETURN_IF_ERROR(read_model(file, config, ids));
    RETURN_IF_ERROR(read_added_tokens(file, config, ids));
    RETURN_IF_ERROR(read_post_processor(file, config));
    RETURN_IF_ERROR(check_ids(config));
    return config;
}

}  // namespace

Result<Tokenizer> parse_tokenizer(std::string_view text, std::string_view source) {
    ASSIGN_OR_RETURN(const json file, parse_strict_json(text, source));
    Result<TokenizerConfig> config = read_config(file);
    Result<Tokenizer> tokenizer = config ? Tokenizer::make(*std::move(config)) : tl::unexpected(config.error());
    if (!tokenizer) return error("{}: {}", source, tokenizer.error().message);
    return tokenizer;
}

Result<Tokenizer> load_tokenizer(const std::filesystem::path& folder) {
    if (reference::is_gguf(folder)) {
        ASSIGN_OR_RETURN(const reference::GgufFile file, reference::open_gguf(folder));
        return gguf_tokenizer(file.metadata, folder.string());
    }
    const std::string path = (folder / "tokenizer.json").string();
    ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxFileBytes));
    return parse_tokenizer(text, path);
}

}  // namespace verbatim::text
