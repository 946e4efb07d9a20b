#include "reference/records/lone_element.h"

#include <bit>

#include "reference/records/step_digests.h"

namespace verbatim::records {
namespace {

using reference::ElementSum;

constexpr uint64_t kStepOne = 0xFF51'AFD7'ED55'8CCDU;
constexpr uint64_t kStepTwo = 0xC4CE'B9FE'1A85'EC53U;

constexpr uint64_t inverse(uint64_t odd) {
    uint64_t x = odd;  // right in the lowest 3 bits; each round doubles them
    for (int i = 0; i < 5; ++i) x *= 2 - odd * x;
    return x;
}

uint64_t unshift(uint64_t mixed) { return mixed ^ mixed >> 33; }

// The bits of element `index` whose number in ElementSum::low this is; empty: of no bits.
std::optional<uint32_t> bits_of_number(int64_t index, uint64_t number) {
    const auto place = static_cast<uint64_t>(index);
    uint64_t mixed = unshift(number);
    mixed = unshift(mixed * inverse(kStepTwo));
    mixed = unshift(mixed * inverse(kStepOne));
    mixed -= (1 + (place >> 32)) * 0x9E37'79B9'7F4A'7C15U;
    if (mixed >> 32 != (place & 0xFFFF'FFFF)) return std::nullopt;
    return static_cast<uint32_t>(mixed);
}

ElementSum sum_of(int64_t index, float value) { return sum_of_row({&value, 1}, index); }

}  // namespace

std::optional<LoneElement> lone_element(std::span<const float> row, int64_t place, const Digest& wanted,
                                        const ElementSum& all) {
    for (size_t i = 0; i < row.size(); ++i) {
        const int64_t index = place + static_cast<int64_t>(i);
        const ElementSum mine = sum_of(index, row[i]);
        const auto bits = bits_of_number(index, wanted.low - all.low + mine.low);
        if (!bits) continue;
        const float value = std::bit_cast<float>(*bits);
        const ElementSum other = sum_of(index, value);
        const Digest changed{all.high - mine.high + other.high, all.low - mine.low + other.low};
        if (changed == wanted) return LoneElement{static_cast<int64_t>(i), value};
    }
    return std::nullopt;
}

}  // namespace verbatim::records
