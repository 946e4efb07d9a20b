// kernels/sandbox/size_expression.h: owns the expressions of a contract: widths, conditions and costs as functions of
// the sizes of a call.
//
//   "groups * group_width"   "2 * pairs <= head_dim && width % groups == 0"
//
// Operands are names of sizes and whole numbers; operators bind as in C: * / % before + - before comparisons before &&.
// A comparison is 1 or 0. What is divided by 0 is 0, and a result beyond int64 is its end.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/operation.h"

namespace verbatim::sandbox {

class SizeExpression {
public:
    // names: of the sizes, in order. Errors: what is no expression, an unknown name (it lists the known ones).
    static Result<SizeExpression> read(std::string_view text, std::span<const std::string> names);
    // The value for a call's sizes.
    [[nodiscard]] int64_t at(const Sizes& sizes) const;
    // Whether the value depends on size i.
    [[nodiscard]] bool reads(int64_t i) const;

private:
    friend class ExpressionReader;
    enum class Step : uint8_t {
        kNumber,
        kSize,
        kAnd,
        kLess,
        kLessEqual,
        kMore,
        kMoreEqual,
        kEqual,
        kNotEqual,
        kAdd,
        kSubtract,
        kMultiply,
        kDivide,
        kRemainder
    };
    struct Item {
        Step step;
        int64_t value;  // of a number; the index of a size
    };
    static int64_t applied(Step step, int64_t left, int64_t right);

    std::vector<Item> items_;  // operands before their operator
};

}  // namespace verbatim::sandbox
