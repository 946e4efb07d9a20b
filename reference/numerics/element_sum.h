// reference/numerics/element_sum.h: an order-independent digest of an array, for any number of threads and devices: the
// sums modulo 2^64 of two pseudo-random words per element, made of its index and its bits.
//
// Against accidents, not adversaries: one differing element always shows, several go unnoticed with a chance of 2^-128.
#pragma once

#include <cstdint>

#include "reference/numerics/float_bits.h"

namespace verbatim::reference {

struct ElementSum {
    uint64_t low = 0;
    uint64_t high = 0;
    friend bool operator==(const ElementSum&, const ElementSum&) = default;

    // Adds element `index` of the array. The steps of `low` are bijections of index << 32 | bits: no two of 2^32
    // elements have one number (Appleby, MurmurHash3's 64-bit finalizer); `high` mixes it again.
    VERBATIM_HOST_DEVICE void add(int64_t index, uint32_t bits) {
        const auto place = static_cast<uint64_t>(index);
        uint64_t mixed = (place << 32 | bits) + (1 + (place >> 32)) * 0x9E37'79B9'7F4A'7C15U;
        mixed = (mixed ^ mixed >> 33) * 0xFF51'AFD7'ED55'8CCDU;
        mixed = (mixed ^ mixed >> 33) * 0xC4CE'B9FE'1A85'EC53U;
        mixed = mixed ^ mixed >> 33;
        low += mixed;
        const uint64_t again = (mixed ^ mixed >> 32) * 0xD6E8'FEB8'6659'FD93U;
        high += again ^ again >> 32;
    }
    VERBATIM_HOST_DEVICE void add(const ElementSum& part) {
        low += part.low;
        high += part.high;
    }
};

}  // namespace verbatim::reference
