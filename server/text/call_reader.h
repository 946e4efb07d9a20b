// server/text/call_reader.h: owns reading the calls of tools behind a mark, byte by byte, in JSON or in Qwen3-Coder's
// XML.
//
//   C1  a byte is read once, and what has been reported is never taken back
//   C2  a call is reported as soon as it is certain: in JSON with its name and the first byte of its arguments, in XML
//       with its name. What breaks off before is no call: held() is text
//   C3  joined, the arguments of a call in JSON are the bytes that the model wrote (a text in their place: what it
//       spells), and `{}` where it wrote none
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/text/answer_form.h"

namespace verbatim::text {

// A part of an answer. kCall begins a call: its text is the function's name; kArguments continues the last call's.
struct AnswerPart {
    enum class Kind : uint8_t { kText, kReasoning, kCall, kArguments };
    Kind kind = Kind::kText;
    std::string text;
    friend bool operator==(const AnswerPart&, const AnswerPart&) = default;
};
using AnswerParts = std::vector<AnswerPart>;
// Continues the last part if it is of the same kind. Nothing is added for an empty text, but for a call.
void append_part(AnswerParts& parts, AnswerPart::Kind kind, std::string_view text);

class CallReader {
public:
    enum class Step : uint8_t {
        kMore,       // the byte was read
        kNoCall,     // the byte does not continue a call, and there was none: held() is text, and so is the byte
        kEnd,        // the byte was read, and ends the calls
        kEndBefore,  // the calls ended before held(), and the byte was not read
    };
    // `begun`: the mark that begins the calls, or the first byte of a call without a mark.
    static std::unique_ptr<CallReader> start(std::shared_ptr<const AnswerForm> form, std::string_view begun);
    virtual ~CallReader() = default;
    virtual Step take(char c, AnswerParts& parts) = 0;
    // The text ends. What is held of arguments is reported; without a call held() is text.
    virtual void finish(AnswerParts& parts) = 0;
    [[nodiscard]] const std::string& held() const { return held_; }
    [[nodiscard]] int64_t num_calls() const { return num_calls_; }  // reported

protected:
    explicit CallReader(std::shared_ptr<const AnswerForm> form) : form_(std::move(form)) {}
    const std::shared_ptr<const AnswerForm> form_;
    std::string held_;
    int64_t num_calls_ = 0;
};

}  // namespace verbatim::text
