// tests/properties/side_by_side.h: an engine over the CPU executor in lockstep with the uncached reference, which takes
// tokens and sampling from the requests; and clients that use every part of a plan.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/drafting/adversary_drafter.h"
#include "engine/request_book.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/lockstep_executor.h"
#include "reference/model/random_model.h"
#include "reference/reference_executor.h"
#include "tests/properties/numeric_scene.h"

namespace verbatim::tests {

// Changes plans on their way to both executors.
using ChangePlan = std::function<void(StepPlan& plan)>;

class PlanChanger final : public WrappingExecutor {
public:
    PlanChanger(Executor& inner, ChangePlan change) : WrappingExecutor(inner), change_(std::move(change)) {}
    Status execute(const StepPlan& plan, StepResult& result) override {
        StepPlan changed = plan;
        if (change_) change_(changed);
        RETURN_IF_ERROR(inner().execute(changed, result));
        result.materialised_through_step += plan.step - result.step;
        result.step = plan.step;
        return {};
    }

private:
    ChangePlan change_;
};

class SideBySide {
public:
    // Borrows the model. With windows an adversary drafts; with verify_tokens deterministic requests draft in another
    // arithmetic.
    SideBySide(const reference::Model& model, const SceneOptions& scene_options, ChangePlan change = nullptr);

    ~SideBySide() { lockstep_.take_requests_from(nullptr); }  // it has tokens in the rig's store

    // Several turns, forks and preemptions. Ends early when a plan is refused and, unless `goes_on`, at the first
    // difference.
    void converse(bool goes_on = false);
    // The first difference or the refusal; empty: none.
    [[nodiscard]] std::string found() const;
    [[nodiscard]] std::optional<reference::Difference> difference() const { return lockstep_.first_difference(); }
    [[nodiscard]] EngineRig& rig() { return rig_; }
    [[nodiscard]] const reference::LockstepExecutor& lockstep() const { return lockstep_; }

private:
    SideBySide(const SceneOptions& options, const reference::Model& model, ChangePlan change);
    void submit(ChatRequest request);
    void run();
    [[nodiscard]] bool is_over() const { return !refusal_.empty() || (!goes_on_ && !lockstep_.identical()); }
    [[nodiscard]] std::vector<TokenId> text(uint64_t seed, int64_t count) const;

    const reference::Model& model_;
    cpu::CpuExecutor cpu_;
    reference::ReferenceExecutor witness_;
    reference::LockstepExecutor lockstep_;
    PlanChanger changer_;
    EngineRig rig_;
    RequestBook book_;
    reference::ReferenceModel reference_;
    ReferenceOracle oracle_;
    AdversaryDrafter adversary_;
    bool goes_on_ = false;
    std::string refusal_;
};

}  // namespace verbatim::tests
