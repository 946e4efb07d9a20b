#include "server/text/known_ids.h"

#include <string>

#include "server/text/tokenizer.h"

namespace verbatim::text {
namespace {

// The rest of a character that began before.
bool begins_inside_a_character(std::string_view text) {
    return !text.empty() && (static_cast<unsigned char>(text[0]) & 0xc0) == 0x80;
}

}  // namespace

size_t KnownIds::take_text(std::string_view text, std::vector<TokenId>& ids) {
    size_t count = 0;
    size_t end = 0;
    while (count < ids_.size() && end < text.size()) {
        const TokenId id = ids_[count];
        if (!tokenizer_->has(id) || tokenizer_->is_special(id)) break;
        const std::string& bytes = tokenizer_->bytes_of(id);
        if (!text.substr(end).starts_with(bytes)) break;
        end += bytes.size();
        ++count;
    }
    const bool known_ends = count == ids_.size();
    const bool text_ends = end == text.size() && (known_ends || tokenizer_->is_special(ids_[count]));
    if (!text_ends && (!known_ends || begins_inside_a_character(text.substr(end)))) {
        forget();
        return 0;
    }
    ids.insert(ids.end(), ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(count));
    ids_ = ids_.subspan(count);
    num_taken_ += count;
    return end;
}

void KnownIds::take_special(TokenId id) {
    if (ids_.empty() || ids_.front() != id) return forget();
    ids_ = ids_.subspan(1);
    ++num_taken_;
}

}  // namespace verbatim::text
