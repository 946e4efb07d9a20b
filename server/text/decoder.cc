#include "server/text/decoder.h"

#include <string_view>

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

}  // namespace verbatim::text
