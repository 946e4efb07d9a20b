// tests/mutation/mutant.h: owns which mutant of the sources is on in this program: none, or the one that the
// environment variable VERBATIM_MUTANT numbers (docs/verification.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbatim::mutation {

inline constexpr int kMaxMutants = 1 << 14;

extern const int active;
// When the program ends, the numbers of these are written to the file that VERBATIM_MUTANTS_REACHED names.
extern std::array<uint8_t, kMaxMutants> reached;

inline bool is_on(int number) {
    reached[static_cast<size_t>(number)] = 1;
    return number == active;
}

}  // namespace verbatim::mutation
