// simulator/grid_table.h: owns a table of measured times over a grid with holes, and the interpolation between them.
//
//   G1  at a measured point the estimate is the measured value
//   G2  inside the grid the estimate is linear along each axis: kernel times are a constant plus a slope
//   G3  a hole is filled with the mean of the linear interpolations between its nearest measured neighbours along each
//       axis, weighted by the axes' weights; without neighbours on both sides of any axis it stays a hole
//   G4  beyond the grid, or where a corner is a hole, the result is the nearest measured point (by grid indices) and
//       its value, which the caller scales
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace verbatim {

inline constexpr size_t kMaxAxes = 3;
using GridPoint = std::array<double, kMaxAxes>;  // unused axes are 0

struct GridEstimate {
    enum class Kind : uint8_t { kMeasured, kBetween, kNearest };
    Kind kind = Kind::kNearest;
    double value = 0;
    GridPoint at{};  // kNearest: the measured point
};

// The number of distinct values on each axis.
[[nodiscard]] std::array<size_t, kMaxAxes> grid_extents(const std::map<GridPoint, double>& measured);
// Grid size limit: holes cost memory, and time to fill.
inline constexpr size_t kMaxGridCells = size_t{1} << 22;
[[nodiscard]] bool is_grid_small(const std::array<size_t, kMaxAxes>& extents);

// Caches its last lookup: not thread-safe.
class GridTable {
public:
    // Values > 0 by point; at least one. Equal weights unless given. REQUIRES: at most kMaxGridCells cells.
    explicit GridTable(const std::map<GridPoint, double>& measured, GridPoint weights = {1, 1, 1});

    [[nodiscard]] GridEstimate estimate(const GridPoint& point) const;
    // The estimate for a measured point without its measurement.
    [[nodiscard]] GridEstimate leave_out(const GridPoint& point) const;
    [[nodiscard]] std::vector<GridPoint> points() const;  // measured, in order

private:
    using Place = std::array<size_t, kMaxAxes>;
    [[nodiscard]] size_t cell(const Place& place) const;
    [[nodiscard]] std::optional<double> neighbours_line(const Place& place, size_t axis) const;
    [[nodiscard]] std::optional<double> fill(const Place& place) const;
    [[nodiscard]] std::optional<GridEstimate> between(const GridPoint& point) const;
    [[nodiscard]] Place nearest_place(const GridPoint& point) const;
    [[nodiscard]] size_t nearest_measured(const Place& wanted, size_t except) const;
    [[nodiscard]] GridEstimate nearest(const GridPoint& point, size_t except) const;
    [[nodiscard]] GridPoint point_at(const Place& place) const;
    [[nodiscard]] Place place_of(size_t cell) const;

    std::array<std::vector<double>, kMaxAxes> axes_;
    GridPoint weights_;
    std::vector<double> measured_;         // per cell; 0: a hole
    std::vector<double> filled_;           // per cell; 0: unknown
    mutable std::vector<size_t> nearest_;  // per cell: the nearest measured cell, computed on demand
    mutable Place asked_{};                // index below the last requested point: the next one is usually near
};

}  // namespace verbatim
