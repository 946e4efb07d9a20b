#include "kernels/sandbox/given_sizes.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "engine/base/prng.h"
#include "kernels/sandbox/arguments.h"

namespace verbatim::sandbox {
namespace {

constexpr size_t kMostConstants = 32;
constexpr int64_t kMostConstant = 65536;
constexpr double kMostShapeBytes = 1e9;

Result<int64_t> read_value(std::string_view text, const SizeSpec& spec) {
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size())
        return error("--shape: {} is {:?}, wanted a whole number", spec.name, text);
    const bool is_allowed = spec.is_choice ? std::ranges::find(spec.edges, value) != spec.edges.end()
                                           : value >= spec.least && value <= int64_t{1} << 40;
    if (is_allowed) return value;
    if (spec.is_choice)
        return error("--shape: {} is {}, wanted one of {}", spec.name, value, fmt::join(spec.edges, ", "));
    return error("--shape: {} is {}, wanted at least {}", spec.name, value, spec.least);
}

// Of the comment, text or include that the code begins with; 0: none.
size_t length_of_no_code(std::string_view code) {
    const auto until = [&](std::string_view end, size_t from) {
        const size_t at = code.find(end, from);
        return at == std::string_view::npos ? code.size() : at + end.size();
    };
    if (code.starts_with("//") || code.starts_with("#include")) return until("\n", 0);
    if (code.starts_with("/*")) return until("*/", 2);
    if (code[0] != '"') return 0;
    size_t at = 1;
    while (at < code.size() && code[at] != '"' && code[at] != '\n') at += code[at] == '\\' ? 2 : 1;
    return std::min(code.size(), at + 1);
}

// Of the name or number that the code begins with; 0: none. A number has its point, exponent and separators.
size_t length_of_word(std::string_view code) {
    const auto is_in_word = [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
    };
    size_t length = 0;
    while (length < code.size() && (is_in_word(code[length]) || (length > 0 && code[length] == '\''))) ++length;
    return length;
}

// Of an integer literal: 64, 0x40, 64u, 1'024LL. Empty: it is none.
std::optional<int64_t> integer_of(std::string_view word) {
    std::string digits(word);
    std::erase(digits, '\'');
    while (!digits.empty() && std::string_view("uUlL").find(digits.back()) != std::string_view::npos) digits.pop_back();
    const bool is_hex = digits.starts_with("0x") || digits.starts_with("0X");
    const char* const first = digits.data() + (is_hex ? 2 : 0);
    const char* const last = digits.data() + digits.size();
    int64_t value = 0;
    const auto [end, problem] = std::from_chars(first, last, value, is_hex ? 16 : 10);
    if (digits.empty() || problem != std::errc() || end != last) return std::nullopt;
    return value;
}

// Literals with nothing but *, +, - or << between them, from left to right: 3 * 32, 1 << 10.
class ConstantExpression {
public:
    // The value up to this literal.
    int64_t with(int64_t literal) {
        constexpr int64_t kMostShift = 16;
        const bool is_small = value_ >= 0 && value_ <= kMostConstant && literal <= kMostConstant;
        if (!is_small || between_.empty() || value_ == 0) {
            value_ = literal;
        } else if (between_ == "*") {
            value_ *= literal;
        } else if (between_ == "+" || between_ == "-") {
            value_ += between_ == "+" ? literal : -literal;
        } else {
            value_ = between_ == "<<" && literal <= kMostShift ? value_ << literal : literal;
        }
        between_.clear();
        return value_;
    }
    // A character behind it.
    void go_on(char c) {
        if (std::isspace(static_cast<unsigned char>(c)) == 0) between_ += c;
    }

private:
    int64_t value_ = 0;
    std::string between_;
};

// Names of constants and their values: `constexpr int kTile = 96, kTiles = 3;`, `enum { kTile = 96 };`,
// `template <int kTile = 96>`, `#define TILE 96`.
class ConstantNames {
public:
    [[nodiscard]] std::optional<int64_t> value_of(std::string_view word) const {
        const auto known = values_.find(word);
        return known == values_.end() ? std::nullopt : std::optional(known->second);
    }
    void reads(std::string_view word) {
        if (word == "define") {
            state_ = State::kMacro;
            name_ = {};
        } else if (state_ == State::kMacro) {
            if (name_.empty()) name_ = word;
        } else if (word == "const" || word == "constexpr" || word == "enum" || word == "template") {
            state_ = State::kDeclares;
        } else if (state_ == State::kDeclares) {
            name_ = word;
        }
    }
    void reads(char c) {
        if (c == ';' || (c == '\n' && state_ == State::kMacro)) state_ = State::kNone;
        if (state_ == State::kValue && (c == '>' || c == '{' || c == '}')) state_ = State::kNone;
        if (c == '=' && state_ == State::kDeclares) state_ = State::kValue;
        if (c == ',' && state_ == State::kValue) state_ = State::kDeclares;
    }
    // Of what was read so far of a value.
    void has_value(int64_t value) {
        if (state_ == State::kValue || state_ == State::kMacro) values_[std::string(name_)] = value;
    }

private:
    enum class State : uint8_t { kNone, kMacro, kDeclares, kValue };
    State state_ = State::kNone;
    std::string_view name_;
    std::map<std::string, int64_t, std::less<>> values_;
};

// What stands before a value: of `m > 3 * 32` it is the `>` for both.
char last_of(char before, char c) {
    const bool goes_on = std::isspace(static_cast<unsigned char>(c)) != 0 || c == '*' || c == '+';
    return goes_on ? before : c;
}
bool is_comparison(char before) { return before == '<' || before == '>' || before == '=' || before == '%'; }

}  // namespace

Result<Sizes> read_shape(const Operation& operation, std::string_view text) {
    Sizes sizes{};
    std::vector<const char*> names;
    for (size_t i = 0; i < operation.sizes.size(); ++i) {
        sizes[i] = operation.sizes[i].usual;
        names.push_back(operation.sizes[i].name);
    }
    for (std::string_view rest = text; !rest.empty();) {
        const std::string_view part = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), part.size() + 1));
        const std::string_view name = part.substr(0, part.find('='));
        const auto spec = std::ranges::find(operation.sizes, name, &SizeSpec::name);
        if (spec == operation.sizes.end() || name.size() == part.size()) {
            return error("--shape: {:?} is no size of {}: wanted NAME=VALUE, of {}", part, operation.name,
                         fmt::join(names, ", "));
        }
        ASSIGN_OR_RETURN(sizes[static_cast<size_t>(spec - operation.sizes.begin())],
                         read_value(part.substr(name.size() + 1), *spec));
    }
    if (!go_together(operation, sizes))
        return error("--shape: {} has no call of {}", operation.name, describe(operation, sizes));
    double product = 1;
    for (const int64_t size : sizes) product *= static_cast<double>(std::max<int64_t>(size, 1));
    Prng prng(0);
    if (product > 1e13 || bytes_of_call(operation, sizes, operation.items(sizes, prng)) > kMostShapeBytes)
        return error("--shape: {} is too large to be tried", describe(operation, sizes));
    return sizes;
}

Result<std::vector<ValueClass>> read_values(std::string_view text) {
    std::vector<ValueClass> values;
    for (std::string_view rest = text;;) {
        const std::string_view name = rest.substr(0, rest.find(','));
        const auto found = value_class(name);
        if (!found) {
            std::vector<std::string_view> names;
            for (const ValueClass known : kValueClasses) names.push_back(sandbox::name(known));
            return error("--values: {:?} is no class of values: wanted some of {}", name, fmt::join(names, ","));
        }
        if (std::ranges::find(values, *found) == values.end()) values.push_back(*found);
        if (name.size() == rest.size()) return values;
        rest.remove_prefix(name.size() + 1);
    }
}

std::vector<int64_t> constants_of(std::string_view source) {
    std::set<int64_t> found, compared;
    ConstantExpression expression;
    ConstantNames names;
    for (char before = ' '; !source.empty();) {
        const size_t skipped = length_of_no_code(source);
        const size_t length = skipped > 0 ? 0 : length_of_word(source);
        const std::string_view word = source.substr(0, length);
        std::optional<int64_t> value = integer_of(word);
        if (!value) value = names.value_of(word);
        if (value) {
            const int64_t whole = expression.with(*value);
            for (const int64_t one : {*value, whole}) {
                if (one >= 2 && one <= kMostConstant) (is_comparison(before) ? compared : found).insert(one);
            }
            names.has_value(whole);
        } else {
            expression.go_on(length > 0 || skipped > 0 ? '?' : source[0]);
        }
        if (!value && length > 0) names.reads(word);
        if (length == 0 && skipped == 0) names.reads(source[0]);
        if (!value && skipped == 0) before = last_of(before, source[0]);
        source.remove_prefix(std::max<size_t>({1, skipped, length}));
    }
    // Those that something is compared with come first.
    std::vector<int64_t> constants(compared.begin(), compared.end());
    for (const int64_t one : found) {
        if (!compared.contains(one)) constants.push_back(one);
    }
    constants.resize(std::min(constants.size(), kMostConstants));
    std::ranges::sort(constants);
    return constants;
}

}  // namespace verbatim::sandbox
