#include "engine/base/byte_count.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

namespace verbatim {
namespace {

struct ByteUnit {
    std::string_view name;
    uint64_t bytes;
};
constexpr std::array kByteUnits = {
    ByteUnit{"", 1},
    ByteUnit{"B", 1},
    ByteUnit{"kB", 1'000},
    ByteUnit{"MB", 1'000'000},
    ByteUnit{"GB", 1'000'000'000},
    ByteUnit{"TB", 1'000'000'000'000},
    ByteUnit{"KiB", uint64_t{1} << 10},
    ByteUnit{"MiB", uint64_t{1} << 20},
    ByteUnit{"GiB", uint64_t{1} << 30},
    ByteUnit{"TiB", uint64_t{1} << 40},
};

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
    constexpr size_t kMaxDecimals = 6;  // times a TiB, they stay below 2^63
    const auto starts_with_digit = [](std::string_view rest) {
        return !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
    };
    const auto too_many = [&] { return error("{:?} is more than 2^63 - 1 bytes", text); };
    uint64_t count = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (code == std::errc::result_out_of_range) return too_many();
    if (code != std::errc{}) return error("{:?} is no number of bytes: write 4096, 64KiB, 1.5GiB or 24.8GB", text);
    std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
    uint64_t fraction = 0;  // in units of 1 / scale
    uint64_t scale = 1;
    if (suffix.starts_with('.')) {
        suffix.remove_prefix(1);
        if (!starts_with_digit(suffix)) return error("{:?} has no digit after the point: write 2GB or 2.5GB", text);
        size_t num_decimals = 0;
        for (; starts_with_digit(suffix); suffix.remove_prefix(1), ++num_decimals) {
            if (num_decimals == kMaxDecimals)
                return error("{:?} has more than {} decimals: write fewer, or a smaller unit", text, kMaxDecimals);
            fraction = fraction * 10 + static_cast<uint64_t>(suffix.front() - '0');
            scale *= 10;
        }
    }
    const auto* unit =
        std::find_if(kByteUnits.begin(), kByteUnits.end(), [&](const ByteUnit& u) { return u.name == suffix; });
    if (unit == kByteUnits.end()) {
        return error("{:?} ends in {:?}, which is no unit of bytes: use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", text,
                     suffix);
    }
    if (scale > 1 && unit->bytes == 1) return error("{:?} is not a whole number of bytes", text);
    if (count > uint64_t{INT64_MAX} / unit->bytes) return too_many();
    const uint64_t bytes = count * unit->bytes + fraction * unit->bytes / scale;
    return bytes > uint64_t{INT64_MAX} ? too_many() : Result<uint64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
    static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (unit + 1 < kNames.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
    if (unit == 0) return fmt::format("{} B", bytes);
    const uint64_t scale = uint64_t{1} << (10 * unit);
    return fmt::format("{}.{} {}", bytes / scale, (bytes % scale) * 10 / scale, kNames[unit]);
}

}  // namespace verbatim
