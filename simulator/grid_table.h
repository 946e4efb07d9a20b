// simulator/grid_table.h: measured times over a grid with holes, and what lies between.
//
//   G1  at a measured point the estimate is the measured value
//   G2  inside the grid it is linear along each axis between the neighbours. Times of kernels are: a floor and a slope
//   G3  a hole counts as the mean of the straight lines through its nearest measured neighbours along each axis,
//       weighted by the axes' weights; with neighbours on both sides along no axis it stays a hole
//   G4  beyond the grid, or where a corner is a hole, the answer is the nearest measured point (by places on the axes)
//       and its value: who asks scales it
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
    GridPoint at{};  // kNearest: the point that the value belongs to
};

// Values on each axis.
[[nodiscard]] std::array<size_t, kMaxAxes> grid_extents(const std::map<GridPoint, double>& measured);
// Of a grid: holes cost memory, too, and time to fill.
inline constexpr size_t kMaxGridCells = size_t{1} << 22;
[[nodiscard]] bool is_grid_small(const std::array<size_t, kMaxAxes>& extents);

// Remembers what it was asked: not for several threads at once.
class GridTable {
public:
    // Values > 0 by point; at least one. Equal weights unless given. REQUIRES: the grid is small.
    explicit GridTable(const std::map<GridPoint, double>& measured, GridPoint weights = {1, 1, 1});

    [[nodiscard]] GridEstimate estimate(const GridPoint& point) const;
    // What it would say of a measured point if that had not been measured.
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
    std::vector<double> filled_;           // per cell; 0: nobody knows
    mutable std::vector<size_t> nearest_;  // per cell: the measured one nearest to it, once somebody has asked
    mutable Place asked_{};                // below the point that was asked for last: the next is near it
};

}  // namespace verbatim
