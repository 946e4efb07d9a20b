// server/text/stop_texts.h: owns ending a streamed text before the first of some stop texts.
//
//   E1  returned text is never taken back: a possible beginning of a stop text waits until it is decided
//   E2  joined, it is the whole text cut before the stop text that is complete first; of several, the longest
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbatim::text {

class StopTexts {
public:
    StopTexts() = default;
    explicit StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {}  // REQUIRES: none is empty
    // The text that is final after `piece`. Empty after stopped().
    std::string add(std::string_view piece);
    // The waiting text, when the input ends.
    std::string finish();
    [[nodiscard]] bool stopped() const { return found_.has_value(); }
    // The stop text that ended the text.
    [[nodiscard]] const std::optional<std::string>& found() const { return found_; }

private:
    std::vector<std::string> stops_;
    std::string waiting_;
    std::optional<std::string> found_;
};

}  // namespace verbatim::text
