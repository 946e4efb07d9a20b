#include "server/text/call_reader.h"

#include <optional>
#include <utility>

#include "server/text/written_json.h"

namespace verbatim::text {
namespace {

using Kind = AnswerPart::Kind;
using Step = CallReader::Step;

constexpr size_t kMaxNameBytes = 256;  // of a function or a parameter in XML

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

// {"name": .., "arguments": ..}, or a list of them.
class JsonCalls final : public CallReader {
public:
    JsonCalls(std::shared_ptr<const AnswerForm> form, std::string_view begun)
        : CallReader(std::move(form)), end_(call_marks(form_->tools).end), is_whole_answer_(begun == "{") {
        held_ = begun;
        if (is_whole_answer_) begin_object();
    }

    Step take(char c, AnswerParts& parts) override {
        if (!is_certain_ && place_ != Place::kBehindObject) {
            held_ += c;
            const Step step = read(c, parts);
            if (step == Step::kNoCall) held_.pop_back();
            return step;
        }
        return read(c, parts);
    }

    void finish(AnswerParts& parts) override {
        if (place_ == Place::kBehindObject && !mark_.empty()) held_.clear();  // half an end mark
        if (!is_certain_ || place_ != Place::kInValue || !is_passed_on_) return;
        append_part(parts, Kind::kArguments, std::exchange(mark_, {}));
    }

private:
    enum class Place : uint8_t { kObject, kKey, kInKey, kColon, kValue, kInValue, kComma, kBehindObject };
    enum class Member : uint8_t { kName, kArguments, kOther };

    Step read(char c, AnswerParts& parts) {
        switch (place_) {
            case Place::kObject: return read_begin(c);
            case Place::kKey: return read_key(c, parts);
            case Place::kInKey: return read_in_key(c);
            case Place::kColon:
                if (is_space(c)) return Step::kMore;
                return c == ':' ? go_on(Place::kValue) : broken(parts);
            case Place::kValue: return read_value(c, parts);
            case Place::kInValue: return read_in_value(c, parts);
            case Place::kComma: return read_comma(c, parts);
            case Place::kBehindObject: return read_behind(c);
        }
        return Step::kNoCall;
    }

    Step go_on(Place place) {
        place_ = place;
        return Step::kMore;
    }
    // No JSON from here on: a call that is certain has all of its arguments by now.
    Step broken(AnswerParts& parts) {
        if (!is_certain_) return Step::kNoCall;
        close_object(parts);
        return Step::kEndBefore;
    }

    void begin_object() {
        place_ = Place::kKey;
        name_.reset();
        arguments_.clear();
        has_arguments_ = is_certain_ = false;
    }
    Step read_begin(char c) {
        if (is_space(c)) return Step::kMore;
        if (c == '[' && !in_list_) {
            in_list_ = true;
            return Step::kMore;
        }
        if (c != '{') return Step::kNoCall;
        begin_object();
        return Step::kMore;
    }
    Step read_key(char c, AnswerParts& parts) {
        if (is_space(c)) return Step::kMore;
        if (c == '}') return end_object(parts);
        if (c != '"') return broken(parts);
        text_ = c;
        is_escaped_ = false;
        return go_on(Place::kInKey);
    }
    Step read_in_key(char c) {
        text_ += c;
        if (std::exchange(is_escaped_, c == '\\' && !is_escaped_) || c != '"') return Step::kMore;
        const std::optional<std::string> key = spelled(text_);
        member_ = Member::kOther;
        if (key == "name" && !name_) member_ = Member::kName;
        if ((key == "arguments" || key == "parameters") && !has_arguments_) member_ = Member::kArguments;
        return go_on(Place::kColon);
    }

    Step read_value(char c, AnswerParts& parts) {
        if (is_space(c)) return Step::kMore;
        if (c == ',' || c == '}' || c == ']' || c == ':') return broken(parts);
        if (member_ == Member::kName && c != '"') return broken(parts);
        const bool may_be_arguments = c == '{' || c == '"' || c == 'n';
        if (member_ == Member::kArguments && !may_be_arguments) return broken(parts);
        text_.clear();
        depth_ = 0;
        in_text_ = is_escaped_ = false;
        // An object is reported as it comes; a text or null in its place when it is whole.
        is_passed_on_ = member_ == Member::kArguments && c == '{';
        if (is_passed_on_) {
            has_arguments_ = true;
            if (!make_certain(parts)) return Step::kNoCall;
        }
        place_ = Place::kInValue;
        return read_in_value(c, parts);
    }

    Step read_in_value(char c, AnswerParts& parts) {
        if (in_text_) {
            add(c, parts);
            const bool ends = !std::exchange(is_escaped_, c == '\\' && !is_escaped_) && c == '"';
            if (!ends) return Step::kMore;
            in_text_ = false;
            return depth_ == 0 ? end_value(parts) : Step::kMore;
        }
        if (const auto step = read_end_mark(c, parts)) return *step;
        const bool closes = c == '}' || c == ']';
        if (depth_ == 0 && !text_is_empty() && (closes || c == ',' || is_space(c))) {
            if (end_value(parts) == Step::kNoCall) return Step::kNoCall;
            return read(c, parts);
        }
        add(c, parts);
        in_text_ = c == '"';
        if (c == '{' || c == '[') ++depth_;
        return closes && --depth_ == 0 ? end_value(parts) : Step::kMore;
    }

    Step end_by_mark(AnswerParts& parts) {
        if (!is_certain_) return Step::kNoCall;
        close_object(parts);
        return Step::kEnd;
    }
    // An end mark outside of texts ends a call however many brackets are open.
    std::optional<Step> read_end_mark(char c, AnswerParts& parts) {
        if (end_.empty()) return std::nullopt;
        mark_ += c;
        if (mark_ == end_) return end_by_mark(parts);
        while (!end_.starts_with(mark_)) {
            const char first = mark_.front();
            mark_.erase(0, 1);
            if (mark_.empty()) return std::nullopt;  // it is `c`
            add(first, parts);
        }
        return Step::kMore;
    }

    [[nodiscard]] bool text_is_empty() const { return !is_passed_on_ && text_.empty(); }
    // A byte of a value.
    void add(char c, AnswerParts& parts) {
        if (!is_passed_on_)
            text_ += c;
        else if (is_certain_)
            append_part(parts, Kind::kArguments, {&c, 1});
        else
            arguments_ += c;
    }
    Step end_value(AnswerParts& parts) {
        place_ = Place::kComma;
        if (member_ == Member::kName) {
            name_ = spelled(text_);
            if (!name_ || name_->empty()) return Step::kNoCall;
            if (has_arguments_ && !make_certain(parts)) return Step::kNoCall;
        }
        if (member_ != Member::kArguments || is_passed_on_) return Step::kMore;
        has_arguments_ = true;
        const std::optional<std::string> text = spelled(text_);
        if (!text && text_ != "null") return Step::kNoCall;
        arguments_ = text.value_or("{}");
        return make_certain(parts) ? Step::kMore : Step::kNoCall;
    }
    // True, too, while the name is not known. False: the answer is no call, for none of the functions has its name.
    bool make_certain(AnswerParts& parts) {
        if (!name_ || is_certain_) return true;
        if (is_whole_answer_ && (!form_->functions || !form_->functions->has(*name_))) return false;
        is_certain_ = true;
        ++num_calls_;
        append_part(parts, Kind::kCall, *name_);
        append_part(parts, Kind::kArguments, std::exchange(arguments_, {}));
        held_.clear();
        return true;
    }

    Step read_comma(char c, AnswerParts& parts) {
        if (mark_.empty() && is_space(c)) return Step::kMore;
        if (mark_.empty() && c == ',') return go_on(Place::kKey);
        if (mark_.empty() && c == '}') return end_object(parts);
        mark_ += c;
        if (mark_ == end_) return end_by_mark(parts);
        if (!end_.empty() && end_.starts_with(mark_)) return Step::kMore;
        mark_.pop_back();
        if (is_certain_) held_ = mark_;
        mark_.clear();
        return broken(parts);
    }
    Step end_object(AnswerParts& parts) {
        if (!name_ || !make_certain(parts)) return Step::kNoCall;
        close_object(parts);
        return Step::kMore;
    }
    void close_object(AnswerParts& parts) {
        if (!has_arguments_) append_part(parts, Kind::kArguments, "{}");
        is_certain_ = false;
        place_ = Place::kBehindObject;
    }

    Step read_behind(char c) {
        held_ += c;
        if (mark_.empty() && is_space(c)) return Step::kMore;
        mark_ += c;
        if (mark_ == end_) return Step::kEnd;
        if (!end_.empty() && end_.starts_with(mark_)) return Step::kMore;
        const bool goes_on = mark_.size() == 1 && !form_->ends_with_call;
        mark_.clear();
        if (c == ']' && in_list_) {
            in_list_ = false;
            held_.clear();
            return Step::kMore;
        }
        const bool is_separated = goes_on && c == (is_separated_by_semicolons() ? ';' : ',');
        if (is_separated && (in_list_ || is_separated_by_semicolons())) return go_on(Place::kObject);
        if (goes_on && c == '{' && !in_list_ && !is_separated_by_semicolons()) {
            begin_object();
            return Step::kMore;
        }
        held_.pop_back();
        return Step::kEndBefore;
    }
    [[nodiscard]] bool is_separated_by_semicolons() const { return form_->tools == ToolFormat::kLlama && !in_list_; }

    // What a text in JSON spells.
    static std::optional<std::string> spelled(std::string_view written) {
        const Json json = Json::parse(written, nullptr, /*allow_exceptions=*/false);
        return json.is_string() ? std::optional(json.get<std::string>()) : std::nullopt;
    }

    std::string_view end_;
    bool is_whole_answer_;
    bool in_list_ = false;
    Place place_ = Place::kObject;
    Member member_ = Member::kOther;
    std::optional<std::string> name_;
    std::string arguments_;  // not reported yet
    bool has_arguments_ = false;
    bool is_certain_ = false;  // the call of this object is reported
    // Of the value, or the key, at which it is:
    std::string text_;  // unless it is passed on
    bool is_passed_on_ = false;
    int64_t depth_ = 0;
    bool in_text_ = false;
    bool is_escaped_ = false;
    std::string mark_;  // a beginning of the end mark
};

// <function=NAME><parameter=NAME>value</parameter>..</function>, between marks or without them.
class XmlCalls final : public CallReader {
public:
    XmlCalls(std::shared_ptr<const AnswerForm> form, std::string_view begun) : CallReader(std::move(form)) {
        held_ = begun;
        if (begun == kFunction) place_ = Place::kName;
    }

    Step take(char c, AnswerParts& parts) override {
        if (place_ == Place::kOpen || place_ == Place::kName || place_ == Place::kBehind) {
            held_ += c;
            const Step step = place_ == Place::kName ? read_name(c, parts) : read_open(c);
            if (step == Step::kNoCall || step == Step::kEndBefore) held_.pop_back();
            return step;
        }
        if (place_ == Place::kMembers) return read_members(c, parts);
        if (place_ == Place::kParameter) return read_parameter(c, parts);
        read_value(c, parts);
        return Step::kMore;
    }

    // What is written of a value is the end of the arguments.
    void finish(AnswerParts& parts) override {
        if (place_ == Place::kBehind && !mark_.empty()) held_.clear();  // half a mark
        if (place_ != Place::kValue) return;
        for (const char c : std::exchange(mark_, {})) add(c, parts);
        append_part(parts, Kind::kArguments, value_);
    }

private:
    enum class Place : uint8_t { kOpen, kName, kMembers, kParameter, kValue, kBehind };
    static constexpr std::string_view kFunction = "<function=";
    static constexpr std::string_view kFunctionEnd = "</function>";
    static constexpr std::string_view kParameterBegin = "<parameter=";
    static constexpr std::string_view kParameterEnd = "\n</parameter>";  // the line's end belongs to it, if it is there
    static constexpr std::string_view kEnd = "</tool_call>";

    // Before the first function, and behind each: space, and a mark.
    Step read_open(char c) {
        const bool is_behind = place_ == Place::kBehind;
        if (mark_.empty() && is_space(c)) return Step::kMore;
        mark_ += c;
        if (is_behind && mark_ == kEnd) return Step::kEnd;
        const bool may_begin = !is_behind || !form_->ends_with_call;
        if (may_begin && mark_ == kFunction) {
            mark_.clear();
            text_.clear();
            place_ = Place::kName;
            return Step::kMore;
        }
        if ((is_behind && kEnd.starts_with(mark_)) || (may_begin && kFunction.starts_with(mark_))) return Step::kMore;
        mark_.clear();
        return is_behind ? Step::kEndBefore : Step::kNoCall;
    }
    Step read_name(char c, AnswerParts& parts) {
        if (c != '>') {
            text_ += c;
            const bool is_name = c != '<' && c != '\n' && text_.size() <= kMaxNameBytes;
            return is_name ? Step::kMore : Step::kNoCall;
        }
        if (text_.empty()) return Step::kNoCall;
        name_ = text_;
        ++num_calls_;
        append_part(parts, Kind::kCall, name_);
        append_part(parts, Kind::kArguments, "{");
        held_.clear();
        has_parameters_ = false;
        place_ = Place::kMembers;
        return Step::kMore;
    }

    // Between parameters there are marks alone; anything else there says nothing.
    Step read_members(char c, AnswerParts& parts) {
        mark_ += c;
        while (!mark_.empty() && !kParameterBegin.starts_with(mark_) && !kFunctionEnd.starts_with(mark_) &&
               !kEnd.starts_with(mark_))
            mark_.erase(0, 1);
        if (mark_ == kParameterBegin) {
            mark_.clear();
            text_.clear();
            place_ = Place::kParameter;
        } else if (mark_ == kFunctionEnd || mark_ == kEnd) {
            append_part(parts, Kind::kArguments, "}");
            const bool is_end = std::exchange(mark_, {}) == kEnd;
            place_ = Place::kBehind;
            return is_end ? Step::kEnd : Step::kMore;
        }
        return Step::kMore;
    }
    Step read_parameter(char c, AnswerParts& parts) {
        if (c == '\n' || text_.size() == kMaxNameBytes) {  // no parameter's name
            place_ = Place::kMembers;
            return Step::kMore;
        }
        if (c != '>') {
            text_ += c;
            return Step::kMore;
        }
        std::string begin = std::exchange(has_parameters_, true) ? ", " : "";
        append_json_text(begin, text_);
        types_ = form_->functions ? form_->functions->types_of(name_, text_) : kJsonString;
        append_part(parts, Kind::kArguments, begin + (types_ == kJsonString ? ": \"" : ": "));
        value_.clear();
        is_at_begin_ = true;
        place_ = Place::kValue;
        return Step::kMore;
    }

    void read_value(char c, AnswerParts& parts) {
        if (std::exchange(is_at_begin_, false) && c == '\n') return;
        const std::string_view without_line = kParameterEnd.substr(1);
        mark_ += c;
        while (!mark_.empty() && !kParameterEnd.starts_with(mark_) && !without_line.starts_with(mark_)) {
            add(mark_.front(), parts);
            mark_.erase(0, 1);
        }
        if (mark_ != kParameterEnd && mark_ != without_line) return;
        mark_.clear();
        append_part(parts, Kind::kArguments,
                    types_ == kJsonString ? "\"" : json_of_plain(std::exchange(value_, {}), types_));
        place_ = Place::kMembers;
    }
    // Texts are reported as they come, other values when they are whole.
    void add(char c, AnswerParts& parts) {
        if (types_ != kJsonString) {
            value_ += c;
            return;
        }
        std::string quoted;
        append_json_text(quoted, {&c, 1});
        append_part(parts, Kind::kArguments, std::string_view(quoted).substr(1, quoted.size() - 2));
    }

    Place place_ = Place::kOpen;
    std::string mark_;  // a beginning of a mark
    std::string text_;  // a name so far
    std::string name_;  // of the function
    bool has_parameters_ = false;
    JsonTypes types_ = kJsonString;  // of the parameter
    std::string value_;              // of other types than a text
    bool is_at_begin_ = false;       // of the value
};

}  // namespace

void append_part(AnswerParts& parts, AnswerPart::Kind kind, std::string_view text) {
    if (text.empty() && kind != Kind::kCall) return;
    if (kind != Kind::kCall && !parts.empty() && parts.back().kind == kind)
        parts.back().text += text;
    else
        parts.push_back({kind, std::string(text)});
}

std::unique_ptr<CallReader> CallReader::start(std::shared_ptr<const AnswerForm> form, std::string_view begun) {
    if (form->tools == ToolFormat::kQwenXml) return std::make_unique<XmlCalls>(std::move(form), begun);
    return std::make_unique<JsonCalls>(std::move(form), begun);
}

}  // namespace verbatim::text
