// server/text/stop_texts.h: owns ending a text before one of some texts, while it comes in pieces.
//
//   E1  what is let out never has to be taken back: the beginning of a stop text waits until it is certain
//   E2  joined, it is the whole text cut before the stop text that is complete first; of several, the longest
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbatim::text {

class StopTexts {
public:
    StopTexts() = default;
    explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}  // REQUIRES: none is empty
    // What is certain with `piece`. Nothing more comes out once stopped().
    std::string add(std::string_view piece);
    // What waited, when the text ends of itself.
    std::string finish();
    [[nodiscard]] bool stopped() const { return stopped_; }

private:
    std::vector<std::string> stops_;
    std::string waiting_;
    bool stopped_ = false;
};

}  // namespace verbatim::text
