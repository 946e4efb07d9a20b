// tests/mutation/mutant.h: owns the active mutant of the sources in this program: none, or the number in the
// environment variable VERBATIM_MUTANT (docs/verification.md).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace verbatim::mutation {

inline constexpr int kMaxMutants = 1 << 14;

extern const int active;
// At the program's end, the numbers of the reached mutants are written to the file of VERBATIM_MUTANTS_REACHED.
extern std::array<uint8_t, kMaxMutants> reached;

inline bool is_on(int number) {
    reached[static_cast<size_t>(number)] = 1;
    return number == active;
}

}  // namespace verbatim::mutation
