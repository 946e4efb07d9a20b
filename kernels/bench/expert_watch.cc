#include "kernels/bench/expert_watch.h"

#include <algorithm>

#include "engine/base/check.h"

namespace verbatim::bench {

using reference::Observation;
using reference::WalkOp;

ExpertWatch::ExpertWatch(reference::NumericExecutor& executor) : executor_(executor) {
    for (const reference::LayerConfig& layer : executor.config().layers)
        chosen_.emplace_back(layer.moe ? static_cast<size_t>(layer.moe->n_experts) : 0);
    const auto has_experts = [](const auto& of) { return !of.empty(); };
    if (std::ranges::none_of(chosen_, has_experts)) return;
    executor_.set_observer([this](const Observation& observation) {
        if (observation.point.op == WalkOp::kChoose) add(observation);
    });
}

ExpertWatch::~ExpertWatch() { executor_.set_observer(nullptr); }

void ExpertWatch::add(const Observation& observation) {
    std::vector<uint8_t>& chosen = chosen_[observation.point.layer];
    const int64_t n_chosen = executor_.config().layers[observation.point.layer].moe->n_chosen;
    for (int64_t r = 0; r < observation.rows.num_rows; ++r) {
        for (int64_t i = 0; i < n_chosen; ++i) {
            const auto expert = static_cast<size_t>(observation.rows.row(r)[i]);
            CHECK_LT(expert, chosen.size());
            chosen[expert] = 1;
        }
    }
}

std::vector<int64_t> ExpertWatch::take_step() {
    std::vector<int64_t> distinct;
    for (std::vector<uint8_t>& chosen : chosen_) {
        if (!chosen.empty()) distinct.push_back(std::ranges::count(chosen, 1));
        std::ranges::fill(chosen, 0);
    }
    return distinct;
}

}  // namespace verbatim::bench
