#include "server/text/decoder.h"

#include <string_view>
#include <unordered_set>

#include "engine/base/check.h"
#include "server/text/utf8.h"

namespace verbatim::text {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string Decoder::add(TokenId id) {
    if (skip_special_ && tokenizer_->is_special(id)) return "";
    pending_ += tokenizer_->bytes_of(id);
    std::string out;
    size_t at = 0;
    while (at < pending_.size()) {
        const Utf8Step step = read_utf8(std::string_view(pending_).substr(at, 4));
        if (step.kind == Utf8Step::Kind::kIncomplete) break;
        const auto length = static_cast<size_t>(step.num_bytes);
        out += step.kind == Utf8Step::Kind::kCharacter ? std::string_view(pending_).substr(at, length) : kReplacement;
        at += length;
    }
    pending_.erase(0, at);
    CHECK_LT(pending_.size(), size_t{4});  // of one character
    return out;
}

std::string Decoder::finish() {
    const bool unfinished = !pending_.empty();
    pending_.clear();
    return unfinished ? std::string(kReplacement) : "";
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special) {
    Decoder decoder(tokenizer, skip_special);
    std::string text;
    for (const TokenId id : ids) text += decoder.add(id);
    return text + decoder.finish();
}

std::string decode_text(const Tokenizer& tokenizer, std::span<const TokenId> ids, bool skip_special) {
    if (!tokenizer.adds_space_prefix()) return decode(tokenizer, ids, skip_special);
    std::unordered_set<TokenId> added;
    for (const AddedToken& token : tokenizer.added_tokens()) added.insert(token.id);
    Decoder decoder(tokenizer, skip_special);
    std::string text;
    bool at_start = true;
    for (const TokenId id : ids) {
        std::string piece = decoder.add(id);
        const bool is_added = added.contains(id);
        if (at_start && !is_added && piece.starts_with(' ')) piece.erase(0, 1);
        at_start = is_added || (at_start && tokenizer.bytes_of(id).empty());
        text += piece;
    }
    return text + decoder.finish();
}

}  // namespace verbatim::text
