// reference/records/walk_points.h: the operations of a model's forward pass, in the walk's order, each with its place
// in a record's sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "reference/forward_pass.h"
#include "reference/model/model_config.h"
#include "reference/walk.h"

namespace verbatim::records {

// Element e of an operation at a position is element position * width() + offset(op) + e of its sum (ElementSum): every
// value of a sequence has a distinct place.
class WalkPoints {
public:
    explicit WalkPoints(const reference::ModelConfig& config);
    WalkPoints(const WalkPoints&) = delete;
    WalkPoints& operator=(const WalkPoints&) = delete;

    [[nodiscard]] size_t size() const { return points_.size(); }
    [[nodiscard]] const reference::WalkPoint& operator[](size_t op) const { return points_[op]; }
    // The call that writes it.
    [[nodiscard]] const reference::OpCall& call_of(size_t op) const { return *calls_[op]; }
    [[nodiscard]] int64_t place(size_t op, int64_t position) const { return position * width_ + offsets_[op]; }
    // The first operation of the final norm and the logits, whose only rows are the sampled ones.
    [[nodiscard]] size_t first_of_head() const { return first_of_head_; }
    // Operations that complete a layer, by layer.
    [[nodiscard]] const std::vector<size_t>& layers() const { return layers_; }
    // Values of one position, all operations.
    [[nodiscard]] int64_t width() const { return width_; }

private:
    std::vector<reference::OpCall> pass_;
    std::vector<reference::WalkPoint> points_;
    std::vector<const reference::OpCall*> calls_;  // by point
    std::vector<int64_t> offsets_;
    std::vector<size_t> layers_;
    size_t first_of_head_ = 0;
    int64_t width_ = 0;
};

}  // namespace verbatim::records
