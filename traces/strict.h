// traces/strict.h: owns strict conversions of a whole text to a number.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace verbatim::traces {

// Empty: not a number, leading '+' or space, trailing characters, or out of range. Exact: std::from_chars.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
    T value{};
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    if constexpr (std::is_floating_point_v<T>) {
        if (!std::isfinite(value)) return std::nullopt;
    }
    return value;
}

// Text from a file for an error message: at most 40 bytes, unprintable ones as '?'.
std::string shown(std::string_view text);

// 'a', 'b' and 'c'
std::string listed(const std::vector<std::string_view>& names);

}  // namespace verbatim::traces
