// reference/records/verdict.h: owns the result of a comparison: same, different or not all compared; and the share that
// was compared, with the omissions and their reasons. Every verb takes its verdict from here.
//
//   V1  "same" means: nothing differs, something was compared, and nothing with a promise was left out
//   V2  per unit, total = compared + left out: each omission has a reason
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbatim::records {

// Best first: the greatest of several verdicts holds for all of them.
enum class Verdict : uint8_t { kSame, kNotAllCompared, kDifferent };
[[nodiscard]] const char* name(Verdict verdict);  // "same", "not_all_compared", "different", as in JSON

// Counts by unit ("requests", "positions"), in the order in which the units were added.
class UnitCounts {
public:
    void add(std::string_view unit, int64_t count);  // REQUIRES: count >= 0
    void add(const UnitCounts& other);
    [[nodiscard]] int64_t of(std::string_view unit) const;  // 0: no such unit
    [[nodiscard]] const std::vector<std::pair<std::string, int64_t>>& all() const& { return counts_; }
    void all() && = delete;  // a temporary would not outlive the loop over it
    [[nodiscard]] bool all_zero() const;
    friend bool operator==(const UnitCounts&, const UnitCounts&) = default;

private:
    std::vector<std::pair<std::string, int64_t>> counts_;
};

// The promise that covers a value: omitting a promised value rules out "same".
enum class Promise : uint8_t {
    kNone,  // none: values of a client that left, ordinary requests in another run, flags that turn the promise off
    kBits,
};

class ComparedShare {
public:
    struct LeftOut {
        std::string reason;
        Promise promise = Promise::kBits;
        bool is_counted = true;  // false: the count is unknown
        UnitCounts counts;
        friend bool operator==(const LeftOut&, const LeftOut&) = default;
    };

    void compare(std::string_view unit, int64_t count) { compared_.add(unit, count); }
    // Counts of one reason are summed. Zero is ignored.
    void leave_out(std::string_view reason, Promise promise, std::string_view unit, int64_t count);
    // An omission of unknown size.
    void leave_out_uncounted(std::string_view reason, Promise promise = Promise::kBits);
    void merge(const ComparedShare& other);

    [[nodiscard]] const UnitCounts& compared() const { return compared_; }
    [[nodiscard]] const std::vector<LeftOut>& left_out() const { return left_out_; }
    [[nodiscard]] UnitCounts total() const;
    [[nodiscard]] bool is_empty() const { return compared_.all_zero(); }
    // No value with a promise was left out.
    [[nodiscard]] bool has_all_promised() const;
    friend bool operator==(const ComparedShare&, const ComparedShare&) = default;

private:
    LeftOut& entry(std::string_view reason, Promise promise);

    UnitCounts compared_;
    std::vector<LeftOut> left_out_;
};

[[nodiscard]] Verdict verdict_of(bool differs, const ComparedShare& share);

// "5 of 70 requests, 1085 of 20310 positions"; units with a total of zero are omitted.
[[nodiscard]] std::string to_string(const ComparedShare& share);
// "not in b.rec: 65 requests, 19225 positions"
[[nodiscard]] std::string to_string(const ComparedShare::LeftOut& left_out);

}  // namespace verbatim::records
