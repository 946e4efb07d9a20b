// server/stop_finder.h: owns finding the stop text that ends an answer, token by token.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/ids.h"
#include "server/ledger/conversation_ledger.h"
#include "server/text/decoder.h"
#include "server/text/stop_texts.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

class StopFinder {
public:
    // Borrows the tokenizer. REQUIRES: no stop is empty.
    StopFinder(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
        : decoder_(tokenizer, /*skip_special=*/true), stops_(std::move(stops)) {}

    // True when the token completes a stop text. Bytes after it are ignored.
    bool add(TokenId token) {
        if (stops_.stopped()) return false;
        ++place_.num_text_tokens;
        place_.num_text_bytes += static_cast<int64_t>(stops_.add(decoder_.add(token)).size());
        return stops_.stopped();
    }
    [[nodiscard]] bool stopped() const { return stops_.stopped(); }
    [[nodiscard]] StopPlace place() const { return place_; }  // REQUIRES: stopped()

private:
    text::Decoder decoder_;
    text::StopTexts stops_;
    StopPlace place_;
};

}  // namespace verbatim::server
