#include "kernels/sandbox/size_expression.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::sandbox {
namespace {

int64_t saturated(__int128 value) {
    constexpr auto kLeast = std::numeric_limits<int64_t>::min();
    constexpr auto kMost = std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(std::clamp<__int128>(value, kLeast, kMost));
}

}  // namespace

// By recursive descent, one function for each level of operators.
class ExpressionReader {
public:
    ExpressionReader(std::string_view text, std::span<const std::string> names) : rest_(text), names_(names) {}

    Result<SizeExpression> read() {
        RETURN_IF_ERROR(level(0));
        skip_spaces();
        if (!rest_.empty()) return error("{:?} is no part of an expression", rest_);
        return std::move(expression_);
    }

private:
    using Step = SizeExpression::Step;
    struct Operator {
        std::string_view text;
        Step step;
        int level;
    };
    static constexpr int kLevels = 4;
    // Longer ones first.
    static constexpr Operator kOperators[] = {
        {"&&", Step::kAnd, 0},     {"<=", Step::kLessEqual, 1}, {">=", Step::kMoreEqual, 1},
        {"==", Step::kEqual, 1},   {"!=", Step::kNotEqual, 1},  {"<", Step::kLess, 1},
        {">", Step::kMore, 1},     {"+", Step::kAdd, 2},        {"-", Step::kSubtract, 2},
        {"*", Step::kMultiply, 3}, {"/", Step::kDivide, 3},     {"%", Step::kRemainder, 3}};

    void skip_spaces() {
        while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_[0])) != 0) rest_.remove_prefix(1);
    }
    const Operator* operator_at(int level) {
        skip_spaces();
        for (const Operator& known : kOperators) {
            if (rest_.starts_with(known.text)) return known.level == level ? &known : nullptr;
        }
        return nullptr;
    }
    Status level(int at) {
        if (at == kLevels) return operand();
        RETURN_IF_ERROR(level(at + 1));
        while (const Operator* found = operator_at(at)) {
            rest_.remove_prefix(found->text.size());
            RETURN_IF_ERROR(level(at + 1));
            expression_.items_.push_back({found->step, 0});
        }
        return {};
    }
    Status operand() {
        skip_spaces();
        if (rest_.starts_with("(")) {
            rest_.remove_prefix(1);
            RETURN_IF_ERROR(level(0));
            skip_spaces();
            if (!rest_.starts_with(")")) return error("a `(` without its `)`");
            rest_.remove_prefix(1);
            return {};
        }
        size_t length = 0;
        while (length < rest_.size() &&
               (std::isalnum(static_cast<unsigned char>(rest_[length])) != 0 || rest_[length] == '_'))
            ++length;
        const std::string_view word = rest_.substr(0, length);
        if (word.empty()) return error("wanted a size or a whole number at {:?}", rest_);
        rest_.remove_prefix(length);
        int64_t number = 0;
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), number);
        if (problem == std::errc() && end == word.data() + word.size()) {
            expression_.items_.push_back({Step::kNumber, number});
            return {};
        }
        const auto found = std::ranges::find(names_, word);
        if (found == names_.end()) return error("{:?} is no size: there are {}", word, fmt::join(names_, ", "));
        expression_.items_.push_back({Step::kSize, found - names_.begin()});
        return {};
    }

    std::string_view rest_;
    std::span<const std::string> names_;
    SizeExpression expression_;
};

Result<SizeExpression> SizeExpression::read(std::string_view text, std::span<const std::string> names) {
    auto read = ExpressionReader(text, names).read();
    if (!read) return error("{:?}: {}", text, read.error().message);
    return read;
}

int64_t SizeExpression::applied(Step step, int64_t left, int64_t right) {
    switch (step) {
        case Step::kAnd: return int64_t{left != 0 && right != 0};
        case Step::kLess: return int64_t{left < right};
        case Step::kLessEqual: return int64_t{left <= right};
        case Step::kMore: return int64_t{left > right};
        case Step::kMoreEqual: return int64_t{left >= right};
        case Step::kEqual: return int64_t{left == right};
        case Step::kNotEqual: return int64_t{left != right};
        case Step::kAdd: return saturated(static_cast<__int128>(left) + right);
        case Step::kSubtract: return saturated(static_cast<__int128>(left) - right);
        case Step::kMultiply: return saturated(static_cast<__int128>(left) * right);
        case Step::kDivide: return right == 0 ? 0 : saturated(static_cast<__int128>(left) / right);
        case Step::kRemainder: return right == 0 ? 0 : static_cast<int64_t>(static_cast<__int128>(left) % right);
        case Step::kNumber:
        case Step::kSize: break;
    }
    CHECK(false, "operator {}", static_cast<int>(step));
}

int64_t SizeExpression::at(const Sizes& sizes) const {
    std::vector<int64_t> stack;
    for (const Item& item : items_) {
        if (item.step == Step::kNumber) {
            stack.push_back(item.value);
        } else if (item.step == Step::kSize) {
            stack.push_back(sizes.at(static_cast<size_t>(item.value)));
        } else {
            const int64_t right = stack.back();
            stack.pop_back();
            stack.back() = applied(item.step, stack.back(), right);
        }
    }
    CHECK_EQ(stack.size(), 1u);
    return stack.back();
}

bool SizeExpression::reads(int64_t i) const {
    return std::ranges::any_of(items_, [i](const Item& item) { return item.step == Step::kSize && item.value == i; });
}

}  // namespace verbatim::sandbox
