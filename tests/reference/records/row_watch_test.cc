// What is kept of a target's rows while an executor runs hand-written plans.
#include "reference/records/row_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_executor.h"
#include "reference/reference_executor.h"
#include "tests/reference/executor_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;
using reference::Architecture;
using reference::StatePer;

constexpr int32_t kTokens = 12;
constexpr int32_t kBlock = 4;

// Sequences with one prompt; request 0 is the first that starts.
class Watched {
public:
    explicit Watched(const WatchTarget& target, Architecture family = Architecture::kGraniteHybrid, bool cached = true)
        : model(reference::draw_small_config(family, 11), 11), points(model.model.config), watch(points, target) {
        if (cached) {
            executor = std::make_unique<cpu::CpuExecutor>(
                model.model.config, model.model.weights,
                cpu::CpuExecutorConfig{.pools = {kBlock, 16, 4}, .max_log_tokens = 8});
        } else {
            executor = std::make_unique<reference::ReferenceExecutor>(model.model.config, model.model.weights);
        }
    }

    // Positions [begin, end) of a slot as a step; its blocks and its row have the slot's number.
    Watched& computes(int64_t begin, int64_t end, int32_t slot = 0) { return computes(share(begin, end, slot)); }
    Watched& starts(int64_t begin, int64_t end, int32_t slot = 0, const std::vector<int32_t>& attached = {}) {
        plans_.next();
        if (std::exchange(runs_, false)) plans_.end(0);
        plans_.start({.slot = slot, .tokens = tokens(), .num_computed_tokens = begin, .blocks = attached});
        runs_ = slot == 0;
        return runs(share(begin, end, slot));
    }
    Watched& computes(const SequenceSpec& spec) {
        plans_.next();
        return runs(spec);
    }
    [[nodiscard]] SequenceSpec share(int64_t begin, int64_t end, int32_t slot) const {
        const auto block_of = [](int64_t length) { return static_cast<int32_t>((length + kBlock - 1) / kBlock); };
        SequenceSpec spec{
            .slot = slot, .num_computed_tokens = begin, .num_new_tokens = static_cast<int32_t>(end - begin)};
        if (model.has_kv) spec.new_blocks = iota(slot * kBlock + block_of(begin), block_of(end) - block_of(begin));
        if (model.has_state) {
            spec.state_src = begin > 0 ? slot : -1;
            spec.state_dst = slot;
        }
        return spec;
    }
    [[nodiscard]] std::vector<TokenId> tokens() const { return model.tokens(kTokens, 3); }
    // The reference's tensors of one layer after so many tokens.
    std::vector<CarriedTensor> right(StatePer per, int64_t length, std::optional<int32_t> layer) {
        reference::ReferenceSequence sequence(model.reference);
        const auto prompt = tokens();
        sequence.append(std::span(prompt).first(static_cast<size_t>(length)), reference::LogitRows::kNone);
        std::vector<CarriedTensor> carried;
        for (size_t i = 0; i < executor->tensors().size(); ++i) {
            const reference::StateTensor& tensor = executor->tensors()[i];
            if (tensor.per != per || (layer && tensor.layer != *layer)) continue;
            const auto bytes = sequence.tensor(i);
            carried.push_back({i, {bytes.begin(), bytes.end()}});
        }
        return carried;
    }
    [[nodiscard]] int32_t layer_with(StatePer per) const {
        for (const reference::StateTensor& tensor : executor->tensors()) {
            if (tensor.per == per) return tensor.layer;
        }
        return -1;
    }
    // An operation of that layer.
    [[nodiscard]] size_t op_in(int32_t layer) const { return points.layers()[static_cast<size_t>(layer)]; }
    [[nodiscard]] HeadImage head(int64_t length) {
        for (const BlockId block : executor->tables().at(SequenceSlot{0}).blocks) blocks_.push_back({block, 1});
        return {.writer = SequenceSlot{0}, .length = length, .blocks = blocks_, .state = StateIndex{0}};
    }
    PlanBuilder& plans() { return plans_; }

    SceneModel model;
    WalkPoints points;
    RowWatch watch;
    std::unique_ptr<reference::NumericExecutor> executor;

private:
    Watched& runs(const SequenceSpec& spec) {
        plans_.compute(spec);
        const bool wanted = watch.wants_operations(plans_.plan());
        executor->set_observer(wanted ? [this](const reference::Observation& seen) { watch.observe(seen); }
                                      : reference::StepObserver());
        watch.before(plans_.plan(), *executor);
        StepResult result;
        EXPECT_TRUE(executor->execute(plans_.plan(), result));
        watch.after(plans_.plan(), *executor);
        return *this;
    }

    PlanBuilder plans_{model.model.config.vocab_size};
    std::vector<BlockRun> blocks_;
    bool runs_ = false;
};

void expect_equal(const std::vector<CarriedTensor>& a, const std::vector<CarriedTensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].place, b[i].place);
        EXPECT_EQ(a[i].bytes, b[i].bytes) << i;
    }
}

WatchTarget target(int64_t begin, int64_t end, int64_t first_step = 0, int64_t last_step = 100) {
    return {.request = RequestId{0}, .first_step = first_step, .last_step = last_step, .begin = begin, .end = end};
}

TEST(RowWatch, SumsAreThoseOfTheTargetsPositions) {
    Watched scene(target(4, 10));
    scene.starts(0, 6);
    EXPECT_EQ(scene.watch.num_tokens(), 6);
    EXPECT_EQ(scene.watch.sums().get(0, 6), std::nullopt);
    scene.computes(6, kTokens);
    EXPECT_EQ(scene.watch.num_tokens(), 10);
    const auto prompt = scene.tokens();
    const ReferenceRows want = reference_rows(scene.model.reference, scene.points, std::span(prompt).first(10), 4, {});
    EXPECT_EQ(want.logits.size(), 6U);
    for (size_t op = 0; op < scene.points.first_of_head(); ++op) {
        for (int64_t position = 4; position < 10; ++position) {
            EXPECT_NE(scene.watch.sums().get(op, position), std::nullopt);
            EXPECT_EQ(scene.watch.sums().get(op, position), want.sums.get(op, position)) << op << " " << position;
        }
    }
}

TEST(RowWatch, StepsThatComputeNoneOfThePositionsAreNotObserved) {
    Watched scene(target(4, 8, 2, 4));
    const auto wants = [&](const SequenceSpec& spec) {
        scene.plans().compute(spec);
        const bool wanted = scene.watch.wants_operations(scene.plans().plan());
        scene.plans().next();
        return wanted;
    };
    scene.starts(0, 2);
    scene.plans().next();
    EXPECT_FALSE(wants(scene.share(2, 4, 0))) << "step 2, before the positions";
    EXPECT_TRUE(wants(scene.share(2, 5, 0))) << "step 3";
    EXPECT_FALSE(wants(scene.share(8, 9, 0))) << "step 4, behind the positions";
    EXPECT_FALSE(wants(scene.share(2, 5, 0))) << "step 5, too late";
    Watched other(target(4, 8, 2, 4));
    other.starts(0, 6);
    EXPECT_EQ(other.watch.num_tokens(), 0) << "step 1, too early";
    other.plans().next().compute(other.share(6, 6, 0));
    EXPECT_FALSE(other.watch.wants_operations(other.plans().plan())) << "it computes nothing";
    other.plans().next().compute(other.share(4, 6, 1));
    EXPECT_FALSE(other.watch.wants_operations(other.plans().plan())) << "a slot that never started";
    SequenceSpec ordinary = other.share(4, 6, 0);
    ordinary.arithmetic = Arithmetic::kOrdinary;
    other.plans().next().compute(ordinary);
    EXPECT_FALSE(other.watch.wants_operations(other.plans().plan())) << "a draft path";
    other.plans().compute(other.share(4, 6, 0));
    EXPECT_TRUE(other.watch.wants_operations(other.plans().plan())) << "the request, behind its draft path";
}

TEST(RowWatch, AnotherRequestIsNotObserved) {
    Watched scene(target(0, 8));
    scene.starts(0, 8).starts(0, 8);
    EXPECT_EQ(scene.watch.num_tokens(), 8);
    Watched second({.request = RequestId{1}, .last_step = 100, .end = 8});
    second.starts(0, 6);
    EXPECT_EQ(second.watch.num_tokens(), 0);
    second.starts(0, 5);
    EXPECT_EQ(second.watch.num_tokens(), 5);
    second.starts(0, 7);
    EXPECT_EQ(second.watch.num_tokens(), 5) << "request 2 in its slot";
}

TEST(RowWatch, ARowsStateIsThatBeforeItsStep) {
    for (const int64_t begin : {0, 1, 5}) {
        WatchTarget wanted = target(0, kTokens);
        wanted.row = RowPlace{0, begin + 2};
        Watched scene(wanted);
        const int32_t layer = scene.layer_with(StatePer::kSequence);
        wanted.row->op = scene.op_in(layer);
        Watched with_row(wanted);
        if (begin > 0) with_row.starts(0, begin).computes(begin, begin + 4);
        if (begin == 0) with_row.starts(0, 4);
        with_row.computes(begin + 4, kTokens);
        EXPECT_EQ(with_row.watch.state_length(), begin);
        expect_equal(with_row.watch.states(),
                     begin == 0 ? std::vector<CarriedTensor>() : with_row.right(StatePer::kSequence, begin, layer));
        EXPECT_FALSE(with_row.watch.row().empty());
    }
}

// The row lies right behind the first step.
TEST(RowWatch, TheStateIsReadInTheRowsStepAlone) {
    WatchTarget wanted = target(0, kTokens);
    wanted.row = RowPlace{0, 4};
    Watched scene(wanted);
    scene.starts(0, 4);
    EXPECT_EQ(scene.watch.state_length(), -1);
    EXPECT_TRUE(scene.watch.row().empty());
    EXPECT_TRUE(scene.watch.kv().empty());
}

TEST(RowWatch, AnAttachedStateIsRead) {
    WatchTarget wanted{.request = RequestId{1}, .last_step = 100, .end = kTokens, .row = RowPlace{0, 9}};
    const int32_t layer = Watched(wanted).layer_with(StatePer::kSequence);
    wanted.row->op = Watched(wanted).op_in(layer);
    Watched scene(wanted);
    scene.starts(0, 8);
    scene.plans().next().start({.slot = 1, .tokens = scene.tokens(), .num_computed_tokens = 8, .blocks = {0, 1}});
    SequenceSpec spec = scene.share(8, 11, 1);
    spec.state_src = 0;
    scene.plans().compute(spec);
    scene.watch.before(scene.plans().plan(), *scene.executor);
    EXPECT_EQ(scene.watch.state_length(), 8);
    expect_equal(scene.watch.states(), scene.right(StatePer::kSequence, 8, layer));
}

TEST(RowWatch, AModelWithoutAStateHasNoneToRead) {
    WatchTarget wanted = target(0, kTokens);
    wanted.row = RowPlace{0, 6};
    Watched scene(wanted, Architecture::kLlama);
    scene.starts(0, 5).computes(5, 8);
    EXPECT_EQ(scene.watch.state_length(), -1);
    EXPECT_TRUE(scene.watch.states().empty());
}

TEST(RowWatch, KvIsThatOfTheRowsLayer) {
    for (const auto& [family, cached] : {std::pair{Architecture::kGraniteHybrid, true},
                                         {Architecture::kLlama, true},
                                         {Architecture::kLlama, false},
                                         {Architecture::kGraniteHybrid, false}}) {
        WatchTarget wanted = target(0, kTokens);
        wanted.row = RowPlace{0, 5};
        const int32_t layer = Watched(wanted, family, cached).layer_with(StatePer::kToken);
        wanted.row->op = Watched(wanted, family, cached).op_in(layer);
        Watched scene(wanted, family, cached);
        scene.starts(0, 5);
        EXPECT_TRUE(scene.watch.kv().empty()) << "the row was not computed";
        scene.computes(5, 7).computes(7, kTokens);
        EXPECT_FALSE(scene.watch.kv().empty());
        expect_equal(scene.watch.kv(), scene.right(StatePer::kToken, 7, layer));
    }
}

// A sequence that was preempted: sums, values and inputs are those of the last time.
TEST(RowWatch, InputsAreThoseOfTheLastTime) {
    for (const StatePer per : {StatePer::kToken, StatePer::kSequence}) {
        WatchTarget wanted = target(0, kTokens);
        wanted.row = RowPlace{0, 5};
        const int32_t layer = Watched(wanted).layer_with(per);
        wanted.row->op = Watched(wanted).op_in(layer);
        Watched scene(wanted);
        scene.starts(0, 4).computes(4, 8);
        expect_equal(scene.watch.kv(), scene.right(StatePer::kToken, 8, layer));
        expect_equal(scene.watch.states(), scene.right(StatePer::kSequence, 4, layer));
        scene.plans().next().end(0).start({.slot = 0, .tokens = scene.tokens()});
        StepPlan again = scene.plans().compute(scene.share(0, 6, 0)).plan();
        again.new_sequences[0].request = RequestId{0};
        scene.watch.before(again, *scene.executor);
        StepResult result;
        ASSERT_TRUE(scene.executor->execute(again, result));
        scene.watch.after(again, *scene.executor);
        expect_equal(scene.watch.kv(), scene.right(StatePer::kToken, 6, layer));
        EXPECT_EQ(scene.watch.state_length(), 0);
        EXPECT_TRUE(scene.watch.states().empty());
    }
}

// It is computed again from the first token, and there is no state where the step begins.
TEST(RowWatch, AnAttachedStateOfAnUncachedExecutorIsUnknown) {
    WatchTarget wanted = target(0, kTokens);
    wanted.row = RowPlace{0, 5};
    wanted.row->op = Watched(wanted).op_in(Watched(wanted).layer_with(StatePer::kSequence));
    Watched scene(wanted, Architecture::kGraniteHybrid, false);
    scene.starts(0, 4).computes(4, 8);
    EXPECT_EQ(scene.watch.state_length(), 4);
    scene.plans().next().end(0).start({.slot = 0, .tokens = scene.tokens(), .num_computed_tokens = 4, .blocks = {0}});
    SequenceSpec spec = scene.share(4, 8, 0);
    spec.state_src = 3;
    StepPlan again = scene.plans().compute(spec).plan();
    again.new_sequences[0].request = RequestId{0};
    scene.watch.before(again, *scene.executor);
    EXPECT_EQ(scene.watch.state_length(), -1);
    EXPECT_TRUE(scene.watch.states().empty());
}

TEST(RowWatch, ItIsDoneBehindItsLastStep) {
    Watched scene(target(0, kTokens, 0, 2));
    scene.starts(0, 2);
    EXPECT_FALSE(scene.watch.is_done());
    scene.computes(2, 4);
    EXPECT_TRUE(scene.watch.is_done());
    WatchTarget with_state = target(0, kTokens, 0, 2);
    with_state.state_at = 99;
    Watched waiting(with_state);
    waiting.starts(0, 2);
    for (int64_t step = 1; step <= 3; ++step) {
        EXPECT_FALSE(waiting.computes(2 * step, 2 * step + 2).watch.is_done()) << step;
    }
    EXPECT_TRUE(waiting.computes(8, 10).watch.is_done());
    EXPECT_TRUE(waiting.computes(10, 11).watch.is_done());
}

TEST(RowWatch, TheCommittedStateHasAllTensors) {
    WatchTarget wanted = target(0, 4, 0, 1);
    wanted.state_at = 6;
    Watched scene(wanted);
    scene.starts(0, 6);
    HeadImage image = scene.head(5);
    scene.watch.head(image, *scene.executor);
    EXPECT_TRUE(scene.watch.committed().empty()) << "another length";
    image.length = 6;
    image.writer = kNoSlot;
    scene.watch.head(image, *scene.executor);
    EXPECT_TRUE(scene.watch.committed().empty()) << "of no running sequence";
    image.writer = SequenceSlot{1};
    scene.watch.head(image, *scene.executor);
    EXPECT_TRUE(scene.watch.committed().empty()) << "of a slot that does not run";
    EXPECT_FALSE(scene.watch.is_done());
    EXPECT_EQ(scene.watch.num_tokens(), 4);
    image.writer = SequenceSlot{0};
    for (int times = 0; times < 2; ++times) {
        scene.watch.head(image, *scene.executor);
        std::vector<CarriedTensor> want = scene.right(StatePer::kSequence, 6, {});
        for (CarriedTensor& tensor : scene.right(StatePer::kToken, 6, {})) want.push_back(std::move(tensor));
        expect_equal(scene.watch.committed(), want);
    }
    EXPECT_TRUE(scene.watch.is_done());
    EXPECT_EQ(scene.watch.num_tokens(), 6);

    wanted.request = RequestId{3};
    Watched other(wanted);
    other.starts(0, 6);
    other.watch.head(other.head(6), *other.executor);
    EXPECT_TRUE(other.watch.committed().empty()) << "of another request";
}

}  // namespace
}  // namespace verbatim::tests
