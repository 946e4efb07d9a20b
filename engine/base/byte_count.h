// engine/base/byte_count.h: numbers of bytes as people write and read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim {

// Bytes from "4096", "64KiB", "1.5GiB" (powers of 1024: KiB MiB GiB TiB) or "64kB", "24.8GB" (powers of 1000: kB MB GB
// TB). Up to six decimals before a unit; a fraction of a byte is dropped. Errors: empty, not a number, unknown unit, a
// fraction without a unit, more than 2^63 - 1 (the int64_t limit).
Result<uint64_t> parse_bytes(std::string_view text);

// "512 B", "64.0 KiB", "1.5 GiB": one decimal, rounded down, the largest unit that leaves at least 1.
std::string format_bytes(uint64_t bytes);

}  // namespace verbatim
