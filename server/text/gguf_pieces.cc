#include "server/text/gguf_pieces.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "files/strict_json.h"
#include "server/text/gguf_keys.h"
#include "server/text/sentence_pieces.h"

namespace verbatim::text {
namespace {

using reference::GgufMetadata;
using reference::GgufNumbers;
using reference::GgufStrings;

constexpr size_t kMaxAddedBytes = 256;

// "<0x0A>" is byte 10.
std::optional<uint8_t> byte_of(std::string_view token) {
    constexpr std::string_view kBegin = "<0x";
    if (token.size() != kBegin.size() + 3 || !token.starts_with(kBegin) || !token.ends_with('>')) return std::nullopt;
    uint8_t byte = 0;
    const char* begin = token.data() + kBegin.size();
    const auto parsed = std::from_chars(begin, begin + 2, byte, 16);
    return parsed.ec == std::errc() && parsed.ptr == begin + 2 ? std::optional(byte) : std::nullopt;
}

std::string without_marks(std::string_view text) {
    std::string plain;
    while (!text.empty()) {
        const bool is_mark = text.starts_with(kSpaceMark);
        plain += is_mark ? ' ' : text.front();
        text.remove_prefix(is_mark ? kSpaceMark.size() : 1);
    }
    return plain;
}

class PieceReader {
public:
    PieceReader(const GgufStrings& tokens, const GgufNumbers& scores, const GgufNumbers& types, std::string_view source)
        : tokens_(tokens), scores_(scores), types_(types), source_(source) {
        pieces_.bytes.fill(-1);
        config_.vocabulary.resize(tokens.size());
    }

    Result<TokenizerConfig> read(bool add_space_prefix) {
        for (size_t id = 0; id < tokens_.size(); ++id) RETURN_IF_ERROR(take(id));
        for (size_t byte = 0; byte < pieces_.bytes.size(); ++byte)
            if (pieces_.bytes[byte] < 0)
                return error(
                    "{}: tokenizer.ggml.tokens has no token <0x{:02X}> of type {}: vocabularies without bytes "
                    "are not supported",
                    source_, byte, int32_t{kByte});
        if (!texts_.contains(kSpaceMark))
            return error("{}: tokenizer.ggml.tokens has no piece {} for a space", source_, quote_text(kSpaceMark));
        pieces_.add_space_prefix = add_space_prefix;
        config_.pieces = std::move(pieces_);
        return std::move(config_);
    }

private:
    Status take(size_t id) {
        const std::string_view token = tokens_[id];
        switch (static_cast<int32_t>(types_.at(id))) {
            case kNormal: return take_normal(id, token);
            case kByte: return take_byte(id, token);
            case kUnknown:
            case kControl: return take_added(id, token, true);
            case kUserDefined: return take_added(id, token, false);
            case kUnused: return {};
            default: break;
        }
        return error("{}: tokenizer.ggml.token_type[{}] = {} is not supported", source_, id, types_.at(id));
    }
    Status take_normal(size_t id, std::string_view token) {
        const auto score = static_cast<float>(scores_.at(id));
        if (!std::isfinite(score))
            return error("{}: tokenizer.ggml.scores[{}] = {}, wanted a finite number", source_, id, score);
        if (token.empty() || !texts_.insert(token).second)
            return error("{}: tokenizer.ggml.tokens[{}] = {} is empty or there twice", source_, id, quote_text(token));
        config_.vocabulary[id] = without_marks(token);
        pieces_.pieces.push_back({std::string(token), static_cast<TokenId>(id), score});
        return {};
    }
    Status take_byte(size_t id, std::string_view token) {
        const auto byte = byte_of(token);
        if (!byte || pieces_.bytes[*byte] >= 0)
            return error("{}: tokenizer.ggml.tokens[{}] = {} is no byte, or one that is there twice", source_, id,
                         quote_text(token));
        pieces_.bytes[*byte] = static_cast<TokenId>(id);
        config_.vocabulary[id] = std::string(1, static_cast<char>(*byte));
        return {};
    }
    Status take_added(size_t id, std::string_view token, bool special) {
        if (token.empty() || token.size() > kMaxAddedBytes || !added_.insert(token).second)
            return error("{}: tokenizer.ggml.tokens[{}] = {} is empty, longer than {} bytes, or there twice", source_,
                         id, quote_text(token), kMaxAddedBytes);
        config_.added.push_back({static_cast<TokenId>(id), std::string(token), special, false});
        return {};
    }

    const GgufStrings& tokens_;
    const GgufNumbers& scores_;
    const GgufNumbers& types_;
    std::string_view source_;
    std::set<std::string_view> texts_, added_;
    SentencePieces::Tables pieces_;
    TokenizerConfig config_;
};

Status check_switches(const GgufMetadata& metadata, std::string_view source) {
    if (metadata.contains("tokenizer.ggml.precompiled_charsmap"))
        return error("{}: tokenizer.ggml.precompiled_charsmap normalises text, which is not supported", source);
    const bool* removes = find_gguf<bool>(metadata, "tokenizer.ggml.remove_extra_whitespaces");
    if (removes != nullptr && *removes)
        return error("{}: tokenizer.ggml.remove_extra_whitespaces = true is not supported", source);
    return {};
}

// The ids that llama.cpp adds on one side of every text.
Result<std::vector<TokenId>> ids_around(const GgufMetadata& metadata, std::string_view flag, bool usual,
                                        std::string_view key, std::string_view source) {
    const bool* wanted = find_gguf<bool>(metadata, flag);
    if (!(wanted == nullptr ? usual : *wanted)) return std::vector<TokenId>();
    ASSIGN_OR_RETURN(const auto* id, need_gguf<int64_t>(metadata, key, source));
    ASSIGN_OR_RETURN(const auto* tokens, need_gguf<GgufStrings>(metadata, "tokenizer.ggml.tokens", source));
    if (*id < 0 || *id >= std::ssize(*tokens))
        return error("{}: {} = {}, the vocabulary has {} tokens", source, key, *id, tokens->size());
    return std::vector<TokenId>{static_cast<TokenId>(*id)};
}

}  // namespace

Result<Tokenizer> gguf_pieces(const GgufMetadata& metadata, std::string_view source) {
    RETURN_IF_ERROR(check_switches(metadata, source));
    ASSIGN_OR_RETURN(const auto* tokens, need_gguf<GgufStrings>(metadata, "tokenizer.ggml.tokens", source));
    ASSIGN_OR_RETURN(const auto* scores, need_gguf<GgufNumbers>(metadata, "tokenizer.ggml.scores", source));
    ASSIGN_OR_RETURN(const auto* types, need_gguf<GgufNumbers>(metadata, "tokenizer.ggml.token_type", source));
    if (scores->size() != tokens->size() || types->size() != tokens->size())
        return error("{}: tokenizer.ggml.scores and token_type have {} and {} entries for {} tokens", source,
                     scores->size(), types->size(), tokens->size());
    const bool* prefix = find_gguf<bool>(metadata, "tokenizer.ggml.add_space_prefix");
    PieceReader reader(*tokens, *scores, *types, source);
    ASSIGN_OR_RETURN(TokenizerConfig config, reader.read(prefix == nullptr || *prefix));
    ASSIGN_OR_RETURN(config.before,
                     ids_around(metadata, "tokenizer.ggml.add_bos_token", true, "tokenizer.ggml.bos_token_id", source));
    ASSIGN_OR_RETURN(config.after, ids_around(metadata, "tokenizer.ggml.add_eos_token", false,
                                              "tokenizer.ggml.eos_token_id", source));
    return Tokenizer::make(std::move(config));
}

}  // namespace verbatim::text
