// kernels/unit_places.h: owns where KV blocks and state rows lie in an executor's memory.
//
// Without a budget, or with one that holds both whole pools, every unit has a fixed place. Under one budget both kinds
// share an arena of slabs. A slab has the size of one unit of the larger kind, or holds units of the smaller kind side
// by side. A unit gets a place when a plan first names it and loses it when the engine frees it. When no slab is empty,
// the slab that holds the fewest small units is emptied: its units move into gaps of other slabs.
//
//   U1  a held unit has one place, and no two units overlap
//   U2  places depend only on the sequence of calls
//   U3  units that fit the budget fit the arena: hold() fails only when more are held than the budget counts
//   U4  arena_bytes() <= budget · stretch · (1 + 1 / m) + 2 slabs, m: small units of a slab, stretch: bytes of a place
//       per byte that the budget counts
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "engine/executor.h"
#include "engine/pool_sizes.h"

namespace verbatim {

enum class UnitKind : uint8_t { kBlock, kRow };

// What a unit takes in the executor's memory, and what its places' strides are multiples of.
struct UnitSize {
    int64_t bytes = 0;
    int64_t alignment = 1;
};

struct UnitPlacesConfig {
    PoolSizes pools;    // of the model: 0 units of a kind that it does not have
    PoolBudget budget;  // total_bytes 0: none
    UnitSize block;
    UnitSize row;
};

// What happens to the arena before the units of a step are written, in this order.
struct MemoryChange {
    enum class Kind : uint8_t {
        kMove,   // bytes [to, to + count) become what [from, from + count) is; the ranges do not overlap
        kClear,  // bytes [to, to + count) become zero: they held rows and will hold blocks, whose stale slots must be
                 // numbers
    };
    Kind kind = Kind::kMove;
    int64_t from = 0;  // kMove
    int64_t to = 0;
    int64_t count = 0;
    friend bool operator==(const MemoryChange&, const MemoryChange&) = default;
};

// Bytes [begin, end) of the arena.
struct ArenaRange {
    int64_t begin = 0;
    int64_t end = 0;
    friend bool operator==(const ArenaRange&, const ArenaRange&) = default;
};

class UnitPlaces {
public:
    explicit UnitPlaces(const UnitPlacesConfig& config);

    // Whether places are given on demand. Otherwise a unit's place is its number.
    [[nodiscard]] bool is_shared() const { return is_shared_; }
    [[nodiscard]] int64_t arena_bytes() const { return arena_bytes_; }
    // Place p of a kind lies at first_byte(kind) + p · stride(kind).
    [[nodiscard]] int64_t stride(UnitKind kind) const { return of(kind).stride; }
    [[nodiscard]] int64_t first_byte(UnitKind kind) const { return of(kind).first_byte; }
    [[nodiscard]] int32_t num_places(UnitKind kind) const { return of(kind).num_places; }
    [[nodiscard]] int64_t slab_bytes() const { return slab_bytes_; }

    // Gives the unit a place unless it has one; what must happen to the arena goes to the end of `changes`. False: the
    // arena is full of held units, or there is no such unit.
    [[nodiscard]] bool hold(UnitKind kind, int32_t unit, std::vector<MemoryChange>& changes);
    // Empty: the unit is not held.
    [[nodiscard]] std::optional<int32_t> place(UnitKind kind, int32_t unit) const;
    // Units that are not held are ignored.
    void free(UnitKind kind, int32_t first, int32_t count);
    // Maximal ranges of empty slabs that have been used, once they are more than a sixteenth of the arena: their pages
    // can be given back. Empty before.
    [[nodiscard]] std::vector<ArenaRange> take_unused();

    [[nodiscard]] MemoryUse use() const;
    // U1 and the counts from scratch. O(units + places).
    void verify() const;

private:
    enum class SlabUse : uint8_t { kEmpty, kBlocks, kRows };
    struct Slab {
        SlabUse use = SlabUse::kEmpty;
        SlabUse last_use = SlabUse::kEmpty;
        bool is_resident = false;
        int32_t num_held = 0;
    };
    struct Kind {
        int64_t stride = 0;
        int64_t first_byte = 0;
        int32_t num_places = 0;
        int32_t per_slab = 0;
        int32_t num_held = 0;
        std::vector<int32_t> place_of;  // by unit; kNowhere
        std::vector<int32_t> unit_at;   // by place; kNowhere
    };
    static constexpr int32_t kNowhere = -1;
    [[nodiscard]] Kind& of(UnitKind kind) { return kinds_[static_cast<size_t>(kind)]; }
    [[nodiscard]] const Kind& of(UnitKind kind) const { return kinds_[static_cast<size_t>(kind)]; }
    [[nodiscard]] static SlabUse use_of(UnitKind kind) {
        return kind == UnitKind::kBlock ? SlabUse::kBlocks : SlabUse::kRows;
    }
    void lay_out_fixed(const UnitPlacesConfig& config);
    void lay_out_slabs(const UnitPlacesConfig& config);
    [[nodiscard]] std::optional<int32_t> take_slab(UnitKind kind, std::vector<MemoryChange>& changes);
    [[nodiscard]] bool empty_one(std::vector<MemoryChange>& changes);
    void settle(UnitKind kind, int32_t unit, int32_t place);
    void unsettle(UnitKind kind, int32_t unit);

    bool is_shared_ = false;
    UnitKind small_ = UnitKind::kBlock;
    UnitKind large_ = UnitKind::kRow;
    int64_t slab_bytes_ = 0;
    int64_t arena_bytes_ = 0;
    std::array<Kind, 2> kinds_;
    std::vector<Slab> slabs_;
    std::set<int32_t> empty_slabs_;
    std::set<int32_t> gaps_;  // free places of the small kind in slabs that hold some
    int64_t num_unused_ = 0;  // empty slabs that are resident
    int64_t num_slabs_in_use_ = 0;
    int64_t moved_bytes_ = 0;
};

}  // namespace verbatim
