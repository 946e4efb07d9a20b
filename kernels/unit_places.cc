#include "kernels/unit_places.h"

#include <algorithm>
#include <numeric>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int64_t kUnusedShare = 16;  // of the arena one part in so many may stay resident and hold nothing

int64_t round_up(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Strides of which the larger one is `per_slab` of the smaller ones.
struct Strides {
    int64_t small = 0;
    int64_t large = 0;
    int64_t per_slab = 0;
};

// The larger of the two ratios of a place to its unit.
double stretch(const Strides& strides, int64_t small, int64_t large) {
    return std::max(static_cast<double>(strides.small) / static_cast<double>(small),
                    static_cast<double>(strides.large) / static_cast<double>(large));
}

// The larger unit is stretched to a multiple of the smaller one, or the smaller one to a part of the larger one,
// whichever wastes less.
Strides choose_strides(const UnitSize& small, const UnitSize& large) {
    const int64_t common = std::lcm(small.alignment, large.alignment);
    const int64_t both = round_up(std::max(small.bytes, large.bytes), common);
    std::vector<Strides> choices = {{both, both, 1}};
    const auto add = [&](int64_t stride, int64_t count) {
        if (stride * count >= large.bytes && stride * count % large.alignment == 0)
            choices.push_back({stride, stride * count, count});
    };
    const int64_t tight = round_up(small.bytes, small.alignment);
    add(tight, (large.bytes + tight - 1) / tight);
    const int64_t fitting = std::max<int64_t>(large.bytes / tight, 1);
    add(round_up((large.bytes + fitting - 1) / fitting, small.alignment), fitting);
    return *std::ranges::min_element(choices, {},
                                     [&](const Strides& s) { return stretch(s, small.bytes, large.bytes); });
}

}  // namespace

UnitPlaces::UnitPlaces(const UnitPlacesConfig& config) {
    const PoolSizes& pools = config.pools;
    const int64_t both = pools.num_blocks * config.budget.block_bytes + pools.num_state_rows * config.budget.row_bytes;
    is_shared_ = config.budget.total_bytes > 0 && pools.num_blocks > 0 && pools.num_state_rows > 0 &&
                 both > config.budget.total_bytes;
    CHECK(!is_shared_ || (config.budget.block_bytes > 0 && config.budget.row_bytes > 0 && config.block.bytes > 0 &&
                          config.row.bytes > 0),
          "blocks of {} and rows of {} bytes share {}", config.block.bytes, config.row.bytes,
          config.budget.total_bytes);
    is_shared_ ? lay_out_slabs(config) : lay_out_fixed(config);
}

void UnitPlaces::lay_out_fixed(const UnitPlacesConfig& config) {
    CHECK(config.block.alignment > 0 && config.row.alignment > 0, "blocks at multiples of {}, rows of {}",
          config.block.alignment, config.row.alignment);
    Kind& blocks = of(UnitKind::kBlock);
    Kind& rows = of(UnitKind::kRow);
    blocks.num_places = config.pools.num_blocks;
    blocks.stride = round_up(config.block.bytes, config.block.alignment);
    rows.num_places = config.pools.num_state_rows;
    rows.stride = round_up(config.row.bytes, config.row.alignment);
    rows.first_byte = round_up(blocks.num_places * blocks.stride, config.row.alignment);
    arena_bytes_ = rows.first_byte + rows.num_places * rows.stride;
}

// Enough slabs for any mix within the budget: a linear program whose optimum lies where one kind takes all it can.
void UnitPlaces::lay_out_slabs(const UnitPlacesConfig& config) {
    if (config.block.bytes > config.row.bytes) std::swap(small_, large_);
    const bool blocks_are_small = small_ == UnitKind::kBlock;
    const Strides strides =
        blocks_are_small ? choose_strides(config.block, config.row) : choose_strides(config.row, config.block);
    const PoolBudget& budget = config.budget;
    const int64_t small_cost = blocks_are_small ? budget.block_bytes : budget.row_bytes;
    const int64_t large_cost = blocks_are_small ? budget.row_bytes : budget.block_bytes;
    const int64_t small_units = blocks_are_small ? config.pools.num_blocks : config.pools.num_state_rows;
    const int64_t large_units = blocks_are_small ? config.pools.num_state_rows : config.pools.num_blocks;
    const auto slabs_of = [&](int64_t num_small, int64_t num_large) {
        return num_large + (num_small + strides.per_slab - 1) / strides.per_slab;
    };
    const int64_t most_small = std::min(small_units, budget.total_bytes / small_cost);
    const int64_t most_large = std::min(large_units, budget.total_bytes / large_cost);
    const int64_t beside_small = (budget.total_bytes - most_small * small_cost) / large_cost;
    const int64_t beside_large = (budget.total_bytes - most_large * large_cost) / small_cost;
    const int64_t num_slabs = 1 + std::max(slabs_of(most_small, std::min(beside_small, large_units)),
                                           slabs_of(std::min(beside_large, small_units), most_large));
    slab_bytes_ = strides.large;
    arena_bytes_ = num_slabs * slab_bytes_;
    slabs_.resize(static_cast<size_t>(num_slabs));
    for (int32_t slab = 0; slab < num_slabs; ++slab) empty_slabs_.insert(empty_slabs_.end(), slab);
    const auto set = [&](UnitKind kind, int64_t stride, int64_t per_slab, int64_t num_units) {
        Kind& units = of(kind);
        CHECK_LE(num_slabs * per_slab, INT32_MAX);
        units.stride = stride;
        units.per_slab = static_cast<int32_t>(per_slab);
        units.num_places = static_cast<int32_t>(num_slabs * per_slab);
        units.place_of.assign(static_cast<size_t>(num_units), kNowhere);
        units.unit_at.assign(static_cast<size_t>(units.num_places), kNowhere);
    };
    set(small_, strides.small, strides.per_slab, small_units);
    set(large_, strides.large, 1, large_units);
}

std::optional<int32_t> UnitPlaces::place(UnitKind kind, int32_t unit) const {
    const Kind& units = of(kind);
    if (!is_shared_) return unit >= 0 && unit < units.num_places ? std::optional(unit) : std::nullopt;
    if (unit < 0 || static_cast<size_t>(unit) >= units.place_of.size()) return std::nullopt;
    const int32_t place = units.place_of[static_cast<size_t>(unit)];
    return place == kNowhere ? std::nullopt : std::optional(place);
}

bool UnitPlaces::hold(UnitKind kind, int32_t unit, std::vector<MemoryChange>& changes) {
    if (place(kind, unit)) return true;
    if (!is_shared_ || unit < 0 || static_cast<size_t>(unit) >= of(kind).place_of.size()) return false;
    if (kind == large_) {
        const auto slab = take_slab(kind, changes);
        if (!slab) return false;
        settle(kind, unit, *slab);
        return true;
    }
    if (gaps_.empty()) {
        const auto slab = take_slab(kind, changes);
        if (!slab) return false;
        const int32_t first = *slab * of(kind).per_slab;
        for (int32_t i = 0; i < of(kind).per_slab; ++i) gaps_.insert(gaps_.end(), first + i);
    }
    settle(kind, unit, *gaps_.begin());
    return true;
}

// An empty slab for units of that kind, which its caller puts there.
std::optional<int32_t> UnitPlaces::take_slab(UnitKind kind, std::vector<MemoryChange>& changes) {
    if (empty_slabs_.empty() && !empty_one(changes)) return std::nullopt;
    const int32_t number = *empty_slabs_.begin();
    empty_slabs_.erase(empty_slabs_.begin());
    Slab& slab = slabs_[static_cast<size_t>(number)];
    CHECK(slab.use == SlabUse::kEmpty && slab.num_held == 0, "slab {} holds {} units", number, slab.num_held);
    num_unused_ -= slab.is_resident ? 1 : 0;
    ++num_slabs_in_use_;
    if (kind == UnitKind::kBlock && slab.last_use == SlabUse::kRows)
        changes.push_back({.kind = MemoryChange::Kind::kClear, .to = number * slab_bytes_, .count = slab_bytes_});
    slab.use = slab.last_use = use_of(kind);
    slab.is_resident = true;
    return number;
}

// The small units of the slab that holds the fewest move into gaps of other slabs.
bool UnitPlaces::empty_one(std::vector<MemoryChange>& changes) {
    const Kind& units = of(small_);
    int32_t victim = kNowhere;
    for (int32_t i = 0; i < static_cast<int32_t>(slabs_.size()); ++i) {
        const Slab& slab = slabs_[static_cast<size_t>(i)];
        if (slab.use != use_of(small_)) continue;
        if (victim == kNowhere || slab.num_held < slabs_[static_cast<size_t>(victim)].num_held) victim = i;
    }
    if (victim == kNowhere) return false;
    const int32_t first = victim * units.per_slab;
    const int32_t num_held = slabs_[static_cast<size_t>(victim)].num_held;
    const int32_t own_gaps = units.per_slab - num_held;
    if (static_cast<int64_t>(gaps_.size()) - own_gaps < num_held) return false;
    gaps_.erase(gaps_.lower_bound(first), gaps_.lower_bound(first + units.per_slab));
    for (int32_t from = first; from < first + units.per_slab; ++from) {
        const int32_t unit = units.unit_at[static_cast<size_t>(from)];
        if (unit == kNowhere) continue;
        const int32_t to = *gaps_.begin();
        settle(small_, unit, to);  // before its old place is free: the victim stays in use to the end
        of(small_).unit_at[static_cast<size_t>(from)] = kNowhere;
        --slabs_[static_cast<size_t>(victim)].num_held;
        --of(small_).num_held;
        changes.push_back({.from = from * units.stride, .to = to * units.stride, .count = units.stride});
        moved_bytes_ += units.stride;
    }
    Slab& slab = slabs_[static_cast<size_t>(victim)];
    CHECK_EQ(slab.num_held, 0);
    slab.use = SlabUse::kEmpty;
    --num_slabs_in_use_;
    ++num_unused_;
    empty_slabs_.insert(victim);
    return true;
}

void UnitPlaces::settle(UnitKind kind, int32_t unit, int32_t place) {
    Kind& units = of(kind);
    CHECK_EQ(units.unit_at[static_cast<size_t>(place)], kNowhere);
    units.unit_at[static_cast<size_t>(place)] = unit;
    units.place_of[static_cast<size_t>(unit)] = place;
    ++units.num_held;
    ++slabs_[static_cast<size_t>(place / units.per_slab)].num_held;
    if (kind == small_) gaps_.erase(place);
}

void UnitPlaces::unsettle(UnitKind kind, int32_t unit) {
    Kind& units = of(kind);
    const int32_t place = units.place_of[static_cast<size_t>(unit)];
    CHECK(place != kNowhere && units.unit_at[static_cast<size_t>(place)] == unit, "unit {} is not at place {}", unit,
          place);
    const int32_t number = place / units.per_slab;
    Slab& slab = slabs_[static_cast<size_t>(number)];
    units.place_of[static_cast<size_t>(unit)] = kNowhere;
    units.unit_at[static_cast<size_t>(place)] = kNowhere;
    --units.num_held;
    if (kind == small_) gaps_.insert(place);
    CHECK_GT(slab.num_held, 0);
    if (--slab.num_held > 0) return;
    if (kind == small_) {
        const int32_t first = number * units.per_slab;
        gaps_.erase(gaps_.lower_bound(first), gaps_.lower_bound(first + units.per_slab));
    }
    slab.use = SlabUse::kEmpty;
    --num_slabs_in_use_;
    ++num_unused_;
    empty_slabs_.insert(number);
}

void UnitPlaces::free(UnitKind kind, int32_t first, int32_t count) {
    if (!is_shared_) return;
    const auto num_units = static_cast<int32_t>(of(kind).place_of.size());
    CHECK(first >= 0 && count >= 0 && first + count <= num_units, "units [{}, +{}) of {}", first, count, num_units);
    for (int32_t unit = first; unit < first + count; ++unit) {
        if (place(kind, unit)) unsettle(kind, unit);
    }
}

std::vector<ArenaRange> UnitPlaces::take_unused() {
    std::vector<ArenaRange> ranges;
    if (num_unused_ * kUnusedShare <= static_cast<int64_t>(slabs_.size())) return ranges;
    for (const int32_t number : empty_slabs_) {
        Slab& slab = slabs_[static_cast<size_t>(number)];
        CHECK(slab.use == SlabUse::kEmpty && slab.num_held == 0, "slab {} is given back with {} units", number,
              slab.num_held);
        slab.last_use = SlabUse::kEmpty;  // what is given back comes back as zeros
        slab.is_resident = false;
        const int64_t begin = number * slab_bytes_;
        if (ranges.empty() || ranges.back().end != begin) ranges.push_back({begin, begin});
        ranges.back().end = begin + slab_bytes_;
    }
    num_unused_ = 0;
    return ranges;
}

MemoryUse UnitPlaces::use() const {
    if (!is_shared_) return {};
    MemoryUse use{.reserved = arena_bytes_, .moved = moved_bytes_};
    for (const Kind& units : kinds_) use.held += units.num_held * units.stride;
    use.in_use = num_slabs_in_use_ * slab_bytes_;
    use.resident = use.in_use + num_unused_ * slab_bytes_;
    return use;
}

void UnitPlaces::verify() const {
    if (!is_shared_) return;
    std::vector<int32_t> held(slabs_.size());
    for (const UnitKind kind : {UnitKind::kBlock, UnitKind::kRow}) {
        const Kind& units = of(kind);
        int32_t num_held = 0;
        for (size_t unit = 0; unit < units.place_of.size(); ++unit) {
            const int32_t place = units.place_of[unit];
            if (place == kNowhere) continue;
            ++num_held;
            CHECK_EQ(units.unit_at[static_cast<size_t>(place)], static_cast<int32_t>(unit));
            const auto slab = static_cast<size_t>(place / units.per_slab);
            ++held[slab];
            CHECK(slabs_[slab].use == use_of(kind), "slab {} holds units of two kinds", slab);
        }
        CHECK_EQ(num_held, units.num_held);
        CHECK_EQ(std::ranges::count_if(units.unit_at, [](int32_t unit) { return unit != kNowhere; }), num_held);
    }
    int64_t in_use = 0;
    int64_t gaps = 0;
    for (size_t i = 0; i < slabs_.size(); ++i) {
        CHECK_EQ(held[i], slabs_[i].num_held);
        CHECK_EQ(held[i] == 0, slabs_[i].use == SlabUse::kEmpty);
        CHECK_EQ(held[i] == 0, empty_slabs_.contains(static_cast<int32_t>(i)));
        in_use += held[i] > 0 ? 1 : 0;
        if (slabs_[i].use == use_of(small_)) gaps += of(small_).per_slab - held[i];
    }
    CHECK_EQ(in_use, num_slabs_in_use_);
    CHECK_EQ(gaps, std::ssize(gaps_));
}

}  // namespace verbatim
