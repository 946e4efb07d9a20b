// kernels/cpu/arena_units.h: owns the memory of blocks and state rows together, and says where units of a kind lie.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/check.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/unit_places.h"

namespace verbatim::cpu {

inline constexpr int64_t kArenaAlignment = 64;  // of every unit

// `count` units, `stride` bytes apart. Borrows them.
struct ArenaUnits {
    std::byte* data = nullptr;
    int64_t stride = 0;
    int64_t count = 0;

    [[nodiscard]] std::byte* at(int64_t unit) const {
        CHECK(unit >= 0 && unit < count, "unit {} of {}", unit, count);
        return data + unit * stride;
    }
};

// Address space for places; the system gives a page when it is first touched.
class Arena {
public:
    explicit Arena(const UnitPlaces& places) : bytes_(places.arena_bytes()) {}

    [[nodiscard]] ArenaUnits units(const UnitPlaces& places, UnitKind kind) const {
        return {bytes_.data() + places.first_byte(kind), places.stride(kind), places.num_places(kind)};
    }
    void change(std::span<const MemoryChange> changes);
    // Whole pages in the ranges go back to the system and are zero when they are touched again.
    void give_back(std::span<const ArenaRange> ranges);
    // Bytes of pages that are in memory now: as the system counts them.
    [[nodiscard]] int64_t resident_bytes() const;

private:
    AlignedArray<std::byte> bytes_;
};

}  // namespace verbatim::cpu
