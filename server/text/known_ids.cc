#include "server/text/known_ids.h"

#include <string>

#include "server/text/decoder.h"
#include "server/text/tokenizer.h"

namespace verbatim::text {
size_t KnownIds::take_text(std::string_view text, std::vector<TokenId>& ids) {
    if (ids_.empty()) return 0;
    Decoder decoder(*tokenizer_);
    size_t count = 0;
    size_t end = 0;
    const auto goes_on_with = [&](const std::string& piece) {
        if (!text.substr(end).starts_with(piece)) return false;
        end += piece.size();
        return true;
    };
    bool equal = true;
    for (; equal && count < ids_.size(); ++count) {
        const TokenId id = ids_[count];
        if (!tokenizer_->has(id) || tokenizer_->is_special(id)) break;
        equal = goes_on_with(decoder.add(id));
    }
    equal = equal && goes_on_with(decoder.finish());
    const bool known_ends = count == ids_.size();
    const bool text_ends = end == text.size() && (known_ends || tokenizer_->is_special(ids_[count]));
    if (!equal || (!text_ends && !known_ends)) {
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
