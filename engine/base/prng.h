// engine/base/prng.h: the only source of chance in the engine: splitmix64 (Steele, Lea, Flood 2014), by value, seeded.
#pragma once

#include <cstdint>

namespace verbatim {

class Prng {
public:
    explicit Prng(uint64_t seed) : state_(seed) {}

    uint64_t next() {
        state_ += 0x9e3779b97f4a7c15u;
        uint64_t z = state_;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    // Uniform over [0, bound) up to 2^-32. REQUIRES: 0 < bound < 2^32.
    uint64_t below(uint64_t bound) { return ((next() >> 32) * bound) >> 32; }

private:
    uint64_t state_;
};

}  // namespace verbatim
