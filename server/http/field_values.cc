#include "server/http/field_values.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

#include "files/strict_json.h"

namespace verbatim::server {
namespace {

// The value as a whole number, if it is one that fits.
std::optional<int64_t> whole(const Json& value) {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(kMost)) return std::nullopt;
    if (value.is_number_integer()) return value.get<int64_t>();
    constexpr double kMostExact = 9007199254740992;  // 2^53: from there on a float stands for several whole numbers
    if (!value.is_number_float()) return std::nullopt;
    const double number = value.get<double>();
    if (std::trunc(number) != number || std::abs(number) > kMostExact) return std::nullopt;
    return static_cast<int64_t>(number);
}

}  // namespace

std::string quoted(const Json& value) { return quote_json(nlohmann::json(value)); }

ApiError missing_field(const std::string& field) {
    return {400, fmt::format("{} is missing", field), field, "missing_required_parameter"};
}

ApiError wrong_field(const std::string& field, const Json& value, std::string_view wanted) {
    return {400, fmt::format("{} is {}, wanted {}", field, quoted(value), wanted), field, "invalid_value"};
}

ApiResult<int64_t> whole_number(const std::string& field, const Json& value, int64_t least, int64_t most) {
    const std::optional<int64_t> number = whole(value);
    if (number && *number >= least && *number <= most) return *number;
    return tl::unexpected(wrong_field(field, value, fmt::format("a whole number from {} to {}", least, most)));
}

ApiResult<float> number(const std::string& field, const Json& value, double least, double most) {
    if (!value.is_number() || !(value.get<double>() >= least && value.get<double>() <= most))
        return tl::unexpected(wrong_field(field, value, fmt::format("a number from {} to {}", least, most)));
    return value.get<float>();
}

ApiResult<bool> truth(const std::string& field, const Json& value) {
    if (!value.is_boolean()) return tl::unexpected(wrong_field(field, value, "true or false"));
    return value.get<bool>();
}

ApiResult<std::string> identifier(const std::string& field, const Json& value) {
    if (!value.is_string() || !is_identifier(value.get_ref<const std::string&>()))
        return tl::unexpected(
            wrong_field(field, value, fmt::format("a text of 1 to {} bytes without control characters", kMaxIdBytes)));
    return value.get<std::string>();
}

ApiResult<std::vector<TokenId>> token_ids(const std::string& field, const Json& value, int32_t vocab_size,
                                          std::string_view wanted) {
    if (!value.is_array()) return tl::unexpected(wrong_field(field, value, wanted));
    std::vector<TokenId> ids;
    for (const Json& id : value) {
        const auto token = whole_number(field, id, 0, vocab_size - 1);
        if (!token) {
            return tl::unexpected(ApiError{400,
                                           fmt::format("{}[{}] is {}, wanted a token id from 0 to {}", field,
                                                       ids.size(), quoted(id), vocab_size - 1),
                                           field, "invalid_value"});
        }
        ids.push_back(static_cast<TokenId>(*token));
    }
    return ids;
}

}  // namespace verbatim::server
