// traces/json_cursor.h: owns the strict reading of one line of JSON (RFC 8259) from left to right, with columns.
//
// The trace readers use it instead of a document tree because their errors name the column of a wrong value, and
// because lines can be long. The first error is kept; every later call fails too.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/base/result.h"
#include "traces/strict.h"

namespace verbatim::traces {

class JsonCursor {
public:
    // Borrows `text`. `where` begins every message: "FILE:LINE".
    JsonCursor(std::string_view text, std::string where) : text_(text), where_(std::move(where)) {}

    // Calls read(key) for every member; read must consume the value and return a Status. It must also detect duplicate
    // keys, because only read() knows the keys.
    template <typename F>
    Status object(F&& read) {
        return sequence('{', '}', "an object", [&]() -> Status {
            ASSIGN_OR_RETURN(const std::string key, string());
            RETURN_IF_ERROR(punctuation(':'));
            return read(std::string_view(key));
        });
    }
    // Calls read() for every element; read must consume the value and return a Status.
    template <typename F>
    Status array(F&& read) {
        return sequence('[', ']', "an array", std::forward<F>(read));
    }
    Result<std::string> string();
    // A JSON integer in [low, high], without fraction and exponent.
    Result<int64_t> integer(int64_t low, int64_t high);
    Result<uint64_t> unsigned_integer();  // likewise, of 64 bits
    // A number of `unit` ("seconds"), each `ns_per_unit`, as nanoseconds: 0 to 2^60 ns, rounded to the nearest.
    Result<int64_t> time(int64_t ns_per_unit, std::string_view unit);
    Result<int64_t> seconds() { return time(1'000'000'000, "seconds"); }
    Status skip();  // skips any value
    Status end();   // requires that only white space is left

    [[nodiscard]] size_t column() const { return position_ + 1; }
    // FILE:LINE:COLUMN: got ..., wanted W. At the next value.
    [[nodiscard]] tl::unexpected<Error> wrong(std::string_view wanted);
    // The same for the last value read, which began at `column`.
    [[nodiscard]] tl::unexpected<Error> wrong_at(size_t column, std::string_view wanted) const;
    // Whether the next value is a string.
    bool is_string_next() {
        skip_space();
        return next_is('"');
    }
    // The column of the next value.
    size_t mark() {
        skip_space();
        return column();
    }

private:
    static constexpr int kMaxDepth = 64;

    template <typename F>
    Status sequence(char open, char close, std::string_view wanted, F&& read_one) {
        skip_space();
        if (!next_is(open)) return wrong(wanted);
        if (++depth_ > kMaxDepth) return wrong("at most 64 levels of nesting");
        ++position_;
        skip_space();
        bool more = !next_is(close);
        while (more) {
            skip_space();
            RETURN_IF_ERROR(read_one());
            skip_space();
            more = next_is(',');
            if (!more && !next_is(close)) return wrong(close == '}' ? "',' or '}'" : "',' or ']'");
            if (more) ++position_;
        }
        ++position_;
        --depth_;
        return {};
    }
    void skip_space();
    [[nodiscard]] bool next_is(char c) const { return position_ < text_.size() && text_[position_] == c; }
    Status punctuation(char c);
    Result<std::string_view> number_text();
    Status escape(std::string& out);
    Result<uint32_t> hex4();

    std::string_view text_;
    std::string where_;
    size_t position_ = 0;
    int depth_ = 0;
};

}  // namespace verbatim::traces
