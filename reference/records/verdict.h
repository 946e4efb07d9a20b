// reference/records/verdict.h: owns what a comparison comes to: same, different or not all compared; and the share that
// was compared, with what was left out and why. Every verb takes its verdict from here.
//
//   V1  "same" means: nothing differs, something was compared, and nothing that was promised was left out
//   V2  of each unit, total = compared + left out: what is not compared has a reason
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbatim::records {

// From the best to the worst: of several comparisons the greatest holds for all.
enum class Verdict : uint8_t { kSame, kNotAllCompared, kDifferent };
[[nodiscard]] const char* name(Verdict verdict);  // "same", "not_all_compared", "different", as in JSON

// Numbers by what is counted ("requests", "positions"), in the order in which the units came.
class UnitCounts {
public:
    void add(std::string_view unit, int64_t count);  // REQUIRES: count >= 0
    void add(const UnitCounts& other);
    [[nodiscard]] int64_t of(std::string_view unit) const;  // 0: it has none
    [[nodiscard]] const std::vector<std::pair<std::string, int64_t>>& all() const& { return counts_; }
    void all() && = delete;  // it would not outlive the loop over it
    [[nodiscard]] bool all_zero() const;
    friend bool operator==(const UnitCounts&, const UnitCounts&) = default;

private:
    std::vector<std::pair<std::string, int64_t>> counts_;
};

// What a comparison covers by its promise: left out, it keeps the verdict from being "same".
enum class Promise : uint8_t {
    kNone,  // no run promises it: what a client left behind, ordinary requests in another run, flags that turn it off
    kBits,
};

class ComparedShare {
public:
    struct LeftOut {
        std::string reason;
        Promise promise = Promise::kBits;
        bool is_counted = true;  // false: how much it is cannot be known
        UnitCounts counts;
        friend bool operator==(const LeftOut&, const LeftOut&) = default;
    };

    void compare(std::string_view unit, int64_t count) { compared_.add(unit, count); }
    // Counts of one reason are summed. Zero is nothing.
    void leave_out(std::string_view reason, Promise promise, std::string_view unit, int64_t count);
    // Something is missing, and nothing says how much.
    void leave_out_uncounted(std::string_view reason, Promise promise = Promise::kBits);
    void merge(const ComparedShare& other);

    [[nodiscard]] const UnitCounts& compared() const { return compared_; }
    [[nodiscard]] const std::vector<LeftOut>& left_out() const { return left_out_; }
    [[nodiscard]] UnitCounts total() const;
    [[nodiscard]] bool is_empty() const { return compared_.all_zero(); }
    // Nothing that was promised was left out.
    [[nodiscard]] bool has_all_promised() const;
    friend bool operator==(const ComparedShare&, const ComparedShare&) = default;

private:
    LeftOut& entry(std::string_view reason, Promise promise);

    UnitCounts compared_;
    std::vector<LeftOut> left_out_;
};

[[nodiscard]] Verdict verdict_of(bool differs, const ComparedShare& share);

// "5 of 70 requests, 1085 of 20310 positions"; units of which there are none are not mentioned.
[[nodiscard]] std::string to_string(const ComparedShare& share);
// "not in b.rec: 65 requests, 19225 positions"
[[nodiscard]] std::string to_string(const ComparedShare::LeftOut& left_out);

}  // namespace verbatim::records
