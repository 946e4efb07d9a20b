// reference/model/random_stream.h: random words by key and index (SplitMix64 of key + index · odd constant), so that
// any element can be drawn alone, in any order, on any thread.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace verbatim::reference {

// The finaliser of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
constexpr uint64_t mix64(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58'476D'1CE4'E5B9u;
    z = (z ^ (z >> 27)) * 0x94D0'49BB'1331'11EBu;
    return z ^ (z >> 31);
}

class RandomStream {
public:
    // Streams of one seed with different names are independent.
    RandomStream(uint64_t seed, std::string_view name) : key_(mix64(seed + 0x9E37'79B9'7F4A'7C15u)) {
        for (const char c : name) key_ = mix64(key_ ^ (static_cast<unsigned char>(c) + 0x9E37'79B9'7F4A'7C15u));
    }

    [[nodiscard]] uint64_t word(uint64_t index) const { return mix64(key_ + (index + 1) * 0x9E37'79B9'7F4A'7C15u); }

    // In [0, 1), a multiple of 2^-24: exact in binary32.
    [[nodiscard]] float uniform(uint64_t index) const { return static_cast<float>(word(index) >> 40) * 0x1p-24F; }

    // Close to normal with mean 0 and deviation 1: the sum of four 16-bit uniforms, centred. No libm, so every machine
    // gives the same bits. Four uniforms have the variance 4 · (2^32 − 1) / 12 = 37837.23^2.
    [[nodiscard]] float normal(uint64_t index) const {
        const uint64_t w = word(index);
        const auto sum = static_cast<int32_t>((w & 0xFFFF) + (w >> 16 & 0xFFFF) + (w >> 32 & 0xFFFF) + (w >> 48));
        return static_cast<float>(sum - 2 * 65535) * (1.0F / 37837.23F);
    }

private:
    uint64_t key_;
};

}  // namespace verbatim::reference
