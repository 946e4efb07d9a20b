#include "simulator/grid_table.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr size_t kNoCell = std::numeric_limits<size_t>::max();

// Index of the last value <= x; 0 when there is none. `near` is tried first.
size_t place_below(const std::vector<double>& axis, double x, size_t near = 0) {
    if (near + 1 < axis.size() && axis[near] <= x && x < axis[near + 1]) return near;
    const auto above = std::ranges::upper_bound(axis, x);
    return above == axis.begin() ? 0 : static_cast<size_t>(above - axis.begin()) - 1;
}

std::array<std::vector<double>, kMaxAxes> axes_of(const std::map<GridPoint, double>& measured) {
    std::array<std::vector<double>, kMaxAxes> axes;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        std::vector<double>& values = axes[axis];
        for (const auto& [point, value] : measured) values.push_back(point[axis]);
        std::ranges::sort(values);
        values.erase(std::ranges::unique(values).begin(), values.end());
    }
    return axes;
}

}  // namespace

std::array<size_t, kMaxAxes> grid_extents(const std::map<GridPoint, double>& measured) {
    std::array<size_t, kMaxAxes> extents{};
    const auto axes = axes_of(measured);
    for (size_t axis = 0; axis < kMaxAxes; ++axis) extents[axis] = axes[axis].size();
    return extents;
}

bool is_grid_small(const std::array<size_t, kMaxAxes>& extents) {
    size_t left = kMaxGridCells;
    for (const size_t extent : extents) {
        if (extent > left) return false;
        left /= std::max<size_t>(extent, 1);
    }
    return true;
}

GridTable::GridTable(const std::map<GridPoint, double>& measured, GridPoint weights) : weights_(weights) {
    CHECK(!measured.empty());
    axes_ = axes_of(measured);
    CHECK(is_grid_small({axes_[0].size(), axes_[1].size(), axes_[2].size()}), "a grid of {} points", measured.size());
    measured_.assign(axes_[0].size() * axes_[1].size() * axes_[2].size(), 0);
    for (const auto& [point, value] : measured) {
        CHECK(value > 0);
        Place place{};
        for (size_t axis = 0; axis < kMaxAxes; ++axis) place[axis] = place_below(axes_[axis], point[axis]);
        measured_[cell(place)] = value;
    }
    filled_ = measured_;
    for (size_t i = 0; i < filled_.size(); ++i) {
        if (measured_[i] == 0) filled_[i] = fill(place_of(i)).value_or(0);
    }
}

size_t GridTable::cell(const Place& place) const {
    return (place[0] * axes_[1].size() + place[1]) * axes_[2].size() + place[2];
}

auto GridTable::place_of(size_t cell) const -> Place {
    const size_t in_row = cell / axes_[2].size();
    return {in_row / axes_[1].size(), in_row % axes_[1].size(), cell % axes_[2].size()};
}

GridPoint GridTable::point_at(const Place& place) const {
    return {axes_[0][place[0]], axes_[1][place[1]], axes_[2][place[2]]};
}

// Linear interpolation along one axis between the nearest measured neighbours on both sides.
std::optional<double> GridTable::neighbours_line(const Place& place, size_t axis) const {
    const std::vector<double>& values = axes_[axis];
    const auto measured_at = [&](size_t i) {
        Place other = place;
        other[axis] = i;
        return measured_[cell(other)];
    };
    size_t below = place[axis];
    size_t above = place[axis];
    double low = 0;
    double high = 0;
    while (low == 0 && below-- > 0) low = measured_at(below);
    while (high == 0 && ++above < values.size()) high = measured_at(above);
    if (low == 0 || high == 0) return std::nullopt;
    const double share = (values[place[axis]] - values[below]) / (values[above] - values[below]);
    return low + (high - low) * share;
}

std::optional<double> GridTable::fill(const Place& place) const {
    double sum = 0;
    double weight = 0;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        if (axes_[axis].size() < 3) continue;
        const auto line = neighbours_line(place, axis);
        if (!line) continue;
        sum += *line * weights_[axis];
        weight += weights_[axis];
    }
    return weight > 0 ? std::optional(sum / weight) : std::nullopt;
}

// Empty beyond the grid or next to a hole that cannot be filled.
std::optional<GridEstimate> GridTable::between(const GridPoint& point) const {
    Place low{};
    GridPoint share{};
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        const std::vector<double>& values = axes_[axis];
        if (values.size() == 1 && values.front() == point[axis]) continue;
        if (point[axis] < values.front() || point[axis] > values.back()) return std::nullopt;
        low[axis] = asked_[axis] = place_below(values, point[axis], asked_[axis]);
        if (values[low[axis]] == point[axis]) continue;
        share[axis] = (point[axis] - values[low[axis]]) / (values[low[axis] + 1] - values[low[axis]]);
    }
    // The corners around the point; only one along an axis where it lies on a grid value.
    std::array<double, size_t{1} << kMaxAxes> weights{1};
    std::array<size_t, size_t{1} << kMaxAxes> cells{cell(low)};
    const std::array<size_t, kMaxAxes> stride = {axes_[1].size() * axes_[2].size(), axes_[2].size(), 1};
    size_t num_corners = 1;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        if (share[axis] == 0) continue;
        for (size_t corner = 0; corner < num_corners; ++corner) {
            weights[num_corners + corner] = weights[corner] * share[axis];
            cells[num_corners + corner] = cells[corner] + stride[axis];
            weights[corner] *= 1 - share[axis];
        }
        num_corners *= 2;
    }
    GridEstimate estimate{.kind = GridEstimate::Kind::kBetween, .at = point};
    for (size_t corner = 0; corner < num_corners; ++corner) {
        const double value = filled_[cells[corner]];
        if (value == 0) return std::nullopt;
        estimate.value += weights[corner] * value;
    }
    if (num_corners == 1 && measured_[cells.front()] > 0) estimate.kind = GridEstimate::Kind::kMeasured;
    return estimate;
}

// A value between two grid values, or beyond the last one, maps to the nearer one.
auto GridTable::nearest_place(const GridPoint& point) const -> Place {
    Place nearest{};
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        const std::vector<double>& values = axes_[axis];
        size_t place = place_below(values, point[axis]);
        if (place + 1 < values.size() && values[place + 1] - point[axis] < point[axis] - values[place]) ++place;
        nearest[axis] = place;
    }
    return nearest;
}

// The measured cell with the smallest distance in steps along the axes.
size_t GridTable::nearest_measured(const Place& wanted, size_t except) const {
    size_t best = kNoCell;
    size_t best_distance = kNoCell;
    const auto steps = [&](size_t place, size_t axis) {
        return std::max(place, wanted[axis]) - std::min(place, wanted[axis]);
    };
    for (size_t row = 0; row < measured_.size(); row += axes_[2].size()) {
        const Place place = place_of(row);
        const size_t beside = steps(place[0], 0) + steps(place[1], 1);
        if (beside >= best_distance) continue;
        for (size_t in_row = 0; in_row < axes_[2].size(); ++in_row) {
            const size_t distance = beside + steps(in_row, 2);
            if (distance >= best_distance || measured_[row + in_row] == 0 || row + in_row == except) continue;
            best = row + in_row;
            best_distance = distance;
        }
    }
    return best;
}

GridEstimate GridTable::nearest(const GridPoint& point, size_t except) const {
    const Place wanted = nearest_place(point);
    size_t best = kNoCell;
    if (except == kNoCell) {
        if (nearest_.empty()) nearest_.resize(measured_.size(), kNoCell);
        size_t& known = nearest_[cell(wanted)];
        if (known == kNoCell) known = nearest_measured(wanted, except);
        best = known;
    } else {
        best = nearest_measured(wanted, except);
    }
    if (best == kNoCell) return {};
    return {GridEstimate::Kind::kNearest, measured_[best], point_at(place_of(best))};
}

GridEstimate GridTable::estimate(const GridPoint& point) const {
    if (const auto inside = between(point)) return *inside;
    return nearest(point, kNoCell);
}

GridEstimate GridTable::leave_out(const GridPoint& point) const {
    Place place{};
    for (size_t axis = 0; axis < kMaxAxes; ++axis) place[axis] = place_below(axes_[axis], point[axis]);
    if (const auto filled = fill(place)) return {GridEstimate::Kind::kBetween, *filled, point};
    return nearest(point, cell(place));
}

std::vector<GridPoint> GridTable::points() const {
    std::vector<GridPoint> points;
    for (size_t i = 0; i < measured_.size(); ++i) {
        if (measured_[i] > 0) points.push_back(point_at(place_of(i)));
    }
    return points;
}

}  // namespace verbatim
