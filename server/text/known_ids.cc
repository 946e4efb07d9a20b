#include "server/text/known_ids.h"

#include <cstddef>
#include <optional>
#include <string>

#include "engine/base/check.h"
#include "server/text/decoder.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {

// Tokens whose bytes are the text's. Empty: they are not, or end inside a character, and have to be decoded.
std::optional<KnownIds::Taken> KnownIds::take_bytes(std::string_view text) const {
    const Tokenizer::Spelled spelled = tokenizer_->spelled(ids_, text);
    if (spelled.differs) return std::nullopt;
    const Taken taken{spelled.count, spelled.end};
    const bool is_inside = taken.end < text.size() && (static_cast<unsigned char>(text[taken.end]) & 0xC0) == 0x80;
    return is_inside ? std::nullopt : std::optional(taken);
}

// The same of what tokens show, which may be replacement characters.
std::optional<KnownIds::Taken> KnownIds::take_decoded(std::string_view text) const {
    Decoder decoder(*tokenizer_);
    Taken taken;
    const auto goes_on_with = [&](const std::string& piece) {
        if (!text.substr(taken.end).starts_with(piece)) return false;
        taken.end += piece.size();
        return true;
    };
    for (; taken.count < ids_.size(); ++taken.count) {
        const TokenId id = ids_[taken.count];
        if (tokenizer_->is_special(id)) break;
        if (!goes_on_with(decoder.add(id))) return std::nullopt;
    }
    return goes_on_with(decoder.finish()) ? std::optional(taken) : std::nullopt;
}

size_t KnownIds::take_text(std::string_view text, std::vector<TokenId>& ids) {
    if (ids_.empty()) return 0;
    std::optional<Taken> taken = take_bytes(text);
    if (!taken) taken = take_decoded(text);
    const bool known_ends = taken && taken->count == ids_.size();
    const bool text_ends =
        taken && taken->end == text.size() && (known_ends || tokenizer_->is_special(ids_[taken->count]));
    if (!text_ends && !known_ends) {
        forget();
        return 0;
    }
    CHECK(taken->count <= ids_.size() && taken->end <= text.size(), "{} tokens to byte {} of {}", taken->count,
          taken->end, text.size());
    ids.insert(ids.end(), ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(taken->count));
    ids_ = ids_.subspan(taken->count);
    num_taken_ += taken->count;
    return taken->end;
}

void KnownIds::take_special(TokenId id) {
    if (ids_.empty() || ids_.front() != id) return forget();
    ids_ = ids_.subspan(1);
    ++num_taken_;
}

}  // namespace verbatim::text
