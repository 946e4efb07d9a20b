// simulator/grid_table.h: owns a table of measured times over a grid with holes, and the interpolation between them.
//
//   G1  at a measured point the estimate is the measured value, where G5 leaves it
//   G2  inside the grid the estimate is linear along each axis: kernel times are a constant plus a slope
//   G3  a hole is filled with the mean of the linear interpolations between its nearest measured neighbours along each
//       axis, weighted by the axes' weights
//   G4  a hole without measured neighbours on both sides of any axis is filled from the cells below it, scaled by the
//       growth; where there are none, from those above it
//   G5  more along any axis never takes less time: a cell's value is the mean of the largest value at or below it along
//       all axes and the smallest at or above it. Measured times that ascend are kept
//   G6  beyond the grid the estimate is that of the nearest point of the grid's box. It grows in proportion to each
//       coordinate above the box, and stays the same below it: small kernels take their launch's time
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace verbatim {

inline constexpr size_t kMaxAxes = 3;
using GridPoint = std::array<double, kMaxAxes>;  // unused axes are 0

struct GridEstimate {
    // kBeyond: G4 or G6 had a part in it.
    enum class Kind : uint8_t { kMeasured, kBetween, kBeyond };
    Kind kind = Kind::kBeyond;
    double value = 0;
};

// A time whose proportions are right, for G4; empty: the product of the coordinates.
using Growth = std::function<double(const GridPoint&)>;

// The number of distinct values on each axis.
[[nodiscard]] std::array<size_t, kMaxAxes> grid_extents(const std::map<GridPoint, double>& measured);
// Grid size limit: holes cost memory, and time to fill.
inline constexpr size_t kMaxGridCells = size_t{1} << 22;
[[nodiscard]] bool is_grid_small(const std::array<size_t, kMaxAxes>& extents);

// Caches its last lookup: not thread-safe.
class GridTable {
public:
    // Values > 0 by point, at least one, of coordinates >= 0. Equal weights unless given. REQUIRES: at most
    // kMaxGridCells cells.
    explicit GridTable(const std::map<GridPoint, double>& measured, GridPoint weights = {1, 1, 1}, Growth growth = {});

    [[nodiscard]] GridEstimate estimate(const GridPoint& point) const;
    // The estimate for a measured point without its measurement, before G5; kBeyond: the nearest measured point's value
    // (by grid indices), scaled by the growth.
    [[nodiscard]] GridEstimate leave_out(const GridPoint& point) const;
    [[nodiscard]] std::vector<std::pair<GridPoint, double>> measured() const;  // in order
    [[nodiscard]] double growth(const GridPoint& point) const { return growth_(point); }
    [[nodiscard]] GridPoint last() const;  // the box's largest coordinates

private:
    using Place = std::array<size_t, kMaxAxes>;
    [[nodiscard]] size_t cell(const Place& place) const;
    [[nodiscard]] std::optional<double> neighbours_line(const Place& place, size_t axis) const;
    [[nodiscard]] std::optional<double> fill(const Place& place) const;
    void fill_rim();
    void make_monotone();
    [[nodiscard]] double from_below(size_t cell) const;
    [[nodiscard]] double from_above(size_t cell) const;
    [[nodiscard]] size_t nearest_measured(const Place& wanted, size_t except) const;
    [[nodiscard]] GridPoint point_at(const Place& place) const;
    [[nodiscard]] Place place_of(size_t cell) const;

    std::array<std::vector<double>, kMaxAxes> axes_;
    std::array<size_t, kMaxAxes> stride_{};  // in cells
    GridPoint weights_;
    Growth growth_;
    std::vector<double> measured_;          // per cell; 0: a hole
    std::vector<double> values_;            // per cell
    std::vector<GridEstimate::Kind> kind_;  // per cell
    mutable Place asked_{};                 // index below the last requested point: the next one is usually near
};

}  // namespace verbatim
