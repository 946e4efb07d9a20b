#include "simulator/grid_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr size_t kNoCell = std::numeric_limits<size_t>::max();

// Index of the last value <= x; 0 when there is none. `near` is tried first.
size_t place_below(const std::vector<double>& axis, double x, size_t near = 0) {
    if (near + 1 < axis.size() && axis[near] <= x && x < axis[near + 1]) return near;
    if (axis.size() == 1) return 0;
    const auto above = std::ranges::upper_bound(axis, x);
    return above == axis.begin() ? 0 : static_cast<size_t>(above - axis.begin()) - 1;
}

// The distinct values on each axis, ascending. They are few, so most of the points' values are found there.
std::array<std::vector<double>, kMaxAxes> axes_of(const std::map<GridPoint, double>& measured) {
    std::array<std::vector<double>, kMaxAxes> axes;
    for (const auto& [point, value] : measured) {
        for (size_t axis = 0; axis < kMaxAxes; ++axis) {
            std::vector<double>& values = axes[axis];
            const auto place = std::ranges::lower_bound(values, point[axis]);
            if (place == values.end() || *place != point[axis]) values.insert(place, point[axis]);
        }
    }
    return axes;
}

double product(const GridPoint& point) {
    double all = 1;
    for (const double x : point) all *= x > 0 ? x : 1;
    return all;
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

GridTable::GridTable(const std::map<GridPoint, double>& measured, GridPoint weights, Growth growth)
    : weights_(weights), growth_(growth ? std::move(growth) : product) {
    CHECK(!measured.empty());
    axes_ = axes_of(measured);
    CHECK(is_grid_small({axes_[0].size(), axes_[1].size(), axes_[2].size()}), "a grid of {} points", measured.size());
    stride_ = {axes_[1].size() * axes_[2].size(), axes_[2].size(), 1};
    measured_.assign(axes_[0].size() * stride_[0], 0);
    for (const auto& [point, value] : measured) {
        CHECK(value > 0);
        Place place{};
        for (size_t axis = 0; axis < kMaxAxes; ++axis) place[axis] = place_below(axes_[axis], point[axis]);
        measured_[cell(place)] = value;
    }
    values_ = measured_;
    kind_.assign(values_.size(), GridEstimate::Kind::kMeasured);
    for (size_t i = 0; i < values_.size(); ++i) {
        if (measured_[i] > 0) continue;
        values_[i] = fill(place_of(i)).value_or(0);
        kind_[i] = values_[i] > 0 ? GridEstimate::Kind::kBetween : GridEstimate::Kind::kBeyond;
    }
    fill_rim();
    make_monotone();
}

size_t GridTable::cell(const Place& place) const { return place[0] * stride_[0] + place[1] * stride_[1] + place[2]; }

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

// The mean over the axes of the cell before, scaled; 0 when all of them are holes.
double GridTable::from_below(size_t cell) const {
    const Place place = place_of(cell);
    double sum = 0;
    double count = 0;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        if (place[axis] == 0 || values_[cell - stride_[axis]] == 0) continue;
        const double growth = growth_(point_at(place)) / growth_(point_at(place_of(cell - stride_[axis])));
        sum += values_[cell - stride_[axis]] * growth;
        ++count;
    }
    return count > 0 ? sum / count : 0;
}

double GridTable::from_above(size_t cell) const {
    const Place place = place_of(cell);
    double least = std::numeric_limits<double>::infinity();
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        if (place[axis] + 1 < axes_[axis].size()) least = std::min(least, values_[cell + stride_[axis]]);
    }
    return least;
}

// The last cell lies above a measured one, and every cell below the last one: so no hole is left.
void GridTable::fill_rim() {
    for (size_t i = 0; i < values_.size(); ++i) {
        if (values_[i] == 0) values_[i] = from_below(i);
    }
    for (size_t i = values_.size(); i-- > 0;) {
        if (values_[i] == 0) values_[i] = from_above(i);
        CHECK(values_[i] > 0, "cell {} of {} is empty", i, values_.size());
    }
}

void GridTable::make_monotone() {
    std::vector<double> most = values_;
    std::vector<double> least = values_;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        for (size_t i = 0; i < values_.size(); ++i) {
            if (place_of(i)[axis] > 0) most[i] = std::max(most[i], most[i - stride_[axis]]);
        }
        for (size_t i = values_.size(); i-- > 0;) {
            if (place_of(i)[axis] + 1 < axes_[axis].size()) least[i] = std::min(least[i], least[i + stride_[axis]]);
        }
    }
    for (size_t i = 0; i < values_.size(); ++i) {
        if (most[i] == least[i]) continue;
        values_[i] = (most[i] + least[i]) / 2;
        kind_[i] = std::max(kind_[i], GridEstimate::Kind::kBetween);
    }
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

GridEstimate GridTable::estimate(const GridPoint& point) const {
    Place low{};
    GridPoint share{};
    double beyond = 1;
    GridEstimate estimate{.kind = GridEstimate::Kind::kMeasured};
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        const std::vector<double>& values = axes_[axis];
        if (values.size() == 1 && point[axis] == values.front()) continue;  // an unused axis
        const double x = std::clamp(point[axis], values.front(), values.back());
        if (x != point[axis]) estimate.kind = GridEstimate::Kind::kBeyond;
        if (point[axis] > x && x > 0) beyond *= point[axis] / x;
        low[axis] = asked_[axis] = place_below(values, x, asked_[axis]);
        if (values[low[axis]] == x) continue;
        share[axis] = (x - values[low[axis]]) / (values[low[axis] + 1] - values[low[axis]]);
        estimate.kind = std::max(estimate.kind, GridEstimate::Kind::kBetween);
    }
    // The corners around the point; only one along an axis where it lies on a grid value.
    std::array<double, size_t{1} << kMaxAxes> weights{1};
    std::array<size_t, size_t{1} << kMaxAxes> cells{cell(low)};
    size_t num_corners = 1;
    for (size_t axis = 0; axis < kMaxAxes; ++axis) {
        if (share[axis] == 0) continue;
        for (size_t corner = 0; corner < num_corners; ++corner) {
            weights[num_corners + corner] = weights[corner] * share[axis];
            cells[num_corners + corner] = cells[corner] + stride_[axis];
            weights[corner] *= 1 - share[axis];
        }
        num_corners *= 2;
    }
    for (size_t corner = 0; corner < num_corners; ++corner) {
        estimate.value += weights[corner] * values_[cells[corner]];
        estimate.kind = std::max(estimate.kind, kind_[cells[corner]]);
    }
    estimate.value *= beyond;
    return estimate;
}

GridEstimate GridTable::leave_out(const GridPoint& point) const {
    Place place{};
    for (size_t axis = 0; axis < kMaxAxes; ++axis) place[axis] = place_below(axes_[axis], point[axis]);
    if (const auto filled = fill(place)) return {GridEstimate::Kind::kBetween, *filled};
    const size_t nearest = nearest_measured(place, cell(place));
    if (nearest == kNoCell) return {};
    return {GridEstimate::Kind::kBeyond, measured_[nearest] * growth_(point) / growth_(point_at(place_of(nearest)))};
}

std::vector<std::pair<GridPoint, double>> GridTable::measured() const {
    std::vector<std::pair<GridPoint, double>> points;
    for (size_t i = 0; i < measured_.size(); ++i) {
        if (measured_[i] > 0) points.emplace_back(point_at(place_of(i)), measured_[i]);
    }
    return points;
}

GridPoint GridTable::last() const { return {axes_[0].back(), axes_[1].back(), axes_[2].back()}; }

}  // namespace verbatim
