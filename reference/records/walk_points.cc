#include "reference/records/walk_points.h"

namespace verbatim::records {

using namespace reference;

WalkPoints::WalkPoints(const ModelConfig& config) : pass_(forward_pass(config)) {
    for (const OpCall& call : pass_) {
        for (const WalkPoint& point : call.written()) {
            points_.push_back(point);
            calls_.push_back(&call);
        }
    }
    for (size_t op = 0; op < points_.size(); ++op) {
        offsets_.push_back(width_);
        width_ += points_[op].columns.count;
        if (points_[op].op == WalkOp::kLayer) layers_.push_back(op);
        if (points_[op].op == WalkOp::kFinalNorm) first_of_head_ = op;
    }
}

}  // namespace verbatim::records
