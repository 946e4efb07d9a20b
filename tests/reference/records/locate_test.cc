// Differences whose place is not plain: rows that are computed twice, positions in several shares, runs that are not
// the same when they are repeated, records that are wrong themselves.
#include "reference/records/locate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tests/reference/records/flipped_bits.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;
using reference::NumericExecutor;
using reference::Observation;
using reference::StateKind;
using reference::WalkOp;
using testing::EndsWith;

constexpr const char* kNotThereAgain = "the run did not come there again: it is not the same every time";
constexpr const char* kNotTheRecorded = "what is computed here agrees with the reference; what was recorded does not";

// Another executor; fails in one step, or changes what the other executor keeps behind each.
class HookedExecutor final : public NumericExecutor {
public:
    using Behind = std::function<void(const StepPlan& plan, NumericExecutor& inner)>;
    HookedExecutor(std::shared_ptr<NumericExecutor> inner, Behind behind, int64_t fail_at_step = -1)
        : NumericExecutor(inner->config(), inner->tensors(), inner->tables().config()),
          inner_(std::move(inner)),
          behind_(std::move(behind)),
          fail_at_step_(fail_at_step) {
        inner_->set_observer(
            [this](const Observation& seen) {
                if (observer()) observer()(seen);
            },
            ObservedFor::kRecord);
    }
    bool read_head(const HeadImage& image, const reference::HeadReader& reader) override {
        return inner_->read_head(image, reader);
    }
    [[nodiscard]] std::span<const float> logits(SequenceSlot slot, int32_t draw) override {
        return inner_->logits(slot, draw);
    }

protected:
    void compute(const StepPlan& plan) override {
        computed_ = plan.step == fail_at_step_ ? error("the device is lost") : Status{};
        if (!computed_) return;
        StepResult result;
        computed_ = inner_->execute(plan, result);
        if (behind_) behind_(plan, *inner_);
    }
    Status computed() override { return computed_; }
    [[nodiscard]] std::optional<int32_t> fault_layer(SequenceSlot /*slot*/, int32_t /*draw*/) override {
        return std::nullopt;
    }

private:
    std::shared_ptr<NumericExecutor> inner_;
    Behind behind_;
    int64_t fail_at_step_;
    Status computed_;
};

size_t op_of(const RecordScene& scene, WalkOp op) {
    for (size_t i = 0; i < scene.points.size(); ++i) {
        if (scene.points[i].op == op) return i;
    }
    return scene.points.size();
}

// A change of a record behind its run.
Record changed(Record record, int64_t step, const std::function<void(SequenceRecord&)>& change) {
    for (Entry& entry : record.entries) {
        auto* of_step = std::get_if<StepRecord>(&entry);
        if (of_step != nullptr && of_step->step == step) change(of_step->sequences[0]);
    }
    return record;
}

// --- shares

TEST(RecordLocate, AFaultOfTheFirstPositionIsFoundFromLaterLogits) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kHeads);
    int num_flipped = 0;
    const Value value{.request = RequestId{0}, .op = scene.points.layers()[0], .bit = 30};
    const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->position, 0);
    EXPECT_EQ(found->step, 0);
    EXPECT_EQ(found->computed_step, 0);
    EXPECT_EQ(found->op_index, static_cast<int64_t>(value.op));
    EXPECT_TRUE(found->recorded && found->computed);
}

// Shares of 16 and 5 tokens, and of five, add up to the same 21.
TEST(RecordLocate, ADifferenceOfSeveralSharesHasTheStepsOfItsRow) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const Schedule schedule = *parse_schedule(std::vector<std::string>{"chunks=5", "batch=1"});
    for (const auto& [position, step, computed_step] : {std::tuple{0, 0, 0}, {16, 1, 3}, {17, 1, 3}, {20, 1, 4}}) {
        int num_flipped = 0;
        const Value value{.request = RequestId{0}, .position = position, .op = scene.points.layers()[0], .bit = 30};
        const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)), schedule);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->position, position);
        EXPECT_EQ(found->step, step);
        EXPECT_EQ(found->computed_step, computed_step);
    }
}

// Positions 28 to 33 are looked at, in the middle of a share.
TEST(RecordLocate, WithoutDigestsTheLastPositionsAreLookedAt) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kHeads);
    const RunIndex index(record);
    const std::vector<Share>& shares = index.find(RequestId{1})->shares;
    ASSERT_TRUE(std::ranges::any_of(shares, [](const Share& share) {
        return share.sequence().begin < 28 && share.sequence().end == 34 && !share.sequence().logits.empty();
    }));
    for (const auto& [position, found_position] : {std::pair{30, 30}, {28, 28}, {10, 28}}) {
        int num_flipped = 0;
        const Value value{.request = RequestId{1}, .position = position, .op = scene.points.layers()[0], .bit = 30};
        const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)), {}, 6);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->kind, DifferenceKind::kOperation);
        EXPECT_EQ(found->position, found_position);
    }
}

// The record has one token more than the run, which ended by itself.
TEST(RecordLocate, ATokenBehindTheRunsEndIsTheRecords) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kNone);
    Reported* last = nullptr;
    for (Entry& entry : record.entries) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported != nullptr && std::ranges::count(reported->tokens, RequestId{0}, &ReportedToken::request) > 0)
            last = reported;
    }
    ASSERT_NE(last, nullptr);
    last->tokens.push_back({RequestId{0}, 1});
    const auto found = verify(scene, record, scene.cpu());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, DifferenceKind::kToken);
    EXPECT_EQ(found->recorded, 1);
    EXPECT_EQ(found->computed, std::nullopt);
    EXPECT_EQ(found->remark, "");
}

TEST(RecordLocate, NoElementIsSoughtInSeveralRecordedShares) {
    RecordScene scene;
    scene.config.scheduler.step_tokens = 5;
    scene.config.scheduler.max_num_sequences = 1;
    const Schedule schedule = *parse_schedule(std::vector<std::string>{"chunks=16"});
    int num_flipped = 0;
    const Value value{.request = RequestId{0}, .position = 2, .op = scene.points.layers()[0], .bit = 1};
    const Record record = scene.record(DigestLevel::kOps, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
    const auto found = verify(scene, record, scene.cpu(), schedule);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, DifferenceKind::kOperation);
    EXPECT_EQ(found->end, 21);
    EXPECT_EQ(found->position, -1);
    EXPECT_EQ(found->element, -1);
    EXPECT_EQ(found->remark, kNotTheRecorded);
}

// Positions that are attached, or not there at all.
TEST(RecordLocate, WhatTheRunDidNotComputeHasNoPlace) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const RunIndex index(record);
    const RequestIndex& request = *index.find(RequestId{2});
    const int64_t begin = request.shares.front().sequence().begin;
    const int64_t end = request.shares.back().sequence().end;
    ASSERT_GT(begin, 2);
    ASSERT_GT(request.shares.front().sequence().end, begin + 2);
    const auto locate_at = [&](DifferenceKind kind, int64_t from, int64_t to, int64_t computed_step) {
        RecordDifference difference{.kind = kind,
                                    .step = 3,
                                    .computed_step = computed_step,
                                    .request = request.id,
                                    .computed_request = request.id,
                                    .begin = from,
                                    .end = to};
        const LocateArgs args{.record = record,
                              .recorded = index,
                              .computed = index,
                              .points = scene.points,
                              .model = scene.model,
                              .again = scene.again(scene.cpu(), DigestLevel::kOps)};
        CHECK(locate(args, difference).has_value());
        return difference.remark;
    };
    const int64_t first_step = request.shares.front().step->step;
    const int64_t last_step = request.shares.back().step->step;
    EXPECT_EQ(locate_at(DifferenceKind::kLogits, begin - 1, begin, first_step), "");
    EXPECT_EQ(locate_at(DifferenceKind::kLogits, 0, 1, first_step), "");
    EXPECT_EQ(locate_at(DifferenceKind::kOperation, end, end + 1, first_step), "");
    EXPECT_EQ(locate_at(DifferenceKind::kOperation, begin + 1, begin + 1, first_step), "");
    EXPECT_EQ(locate_at(DifferenceKind::kOperation, begin, begin + 1, last_step + 1), "");
    EXPECT_NE(locate_at(DifferenceKind::kOperation, begin, begin + 1, first_step), "");
}

// --- preempted requests

struct ComputedTwice {
    RequestId request{-1};
    int64_t position = 0;
    int64_t first_step = 0;
    int64_t second_step = 0;
};
std::optional<ComputedTwice> computed_twice(const RunIndex& index) {
    for (const auto& [name, request] : index.requests()) {
        for (size_t i = 1; i < request.shares.size(); ++i) {
            const int64_t position = request.shares[i].sequence().begin;
            for (size_t j = 0; j < i; ++j) {
                const SequenceRecord& before = request.shares[j].sequence();
                if (before.begin > position || position >= before.end) continue;
                return ComputedTwice{request.id, position, request.shares[j].step->step, request.shares[i].step->step};
            }
        }
    }
    return std::nullopt;
}

TEST(RecordLocate, OfARowThatIsComputedTwiceTheWrongOneIsFound) {
    RecordScene scene;
    scene.config.cache.pools.num_blocks = 14;
    scene.more_tokens = 24;
    scene.num_more = 3;
    for (const DigestLevel level : {DigestLevel::kHeads, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        const auto twice = computed_twice(RunIndex(record));
        ASSERT_TRUE(twice);
        for (const int time : {0, 1}) {
            SCOPED_TRACE(time);
            const Value value{.request = twice->request,
                              .position = twice->position,
                              .op = scene.points.layers()[0],
                              .bit = 30,
                              .time = time};
            int num_flipped = 0;
            const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
            EXPECT_GT(num_flipped, 0);
            ASSERT_TRUE(found);
            EXPECT_EQ(found->op_index, static_cast<int64_t>(value.op)) << to_string(*found) << found->remark;
            EXPECT_EQ(found->position, twice->position);
            EXPECT_EQ(found->step, time == 0 ? twice->first_step : twice->second_step);
            EXPECT_EQ(found->computed_step, found->step);
            EXPECT_TRUE(found->computed);
            // Without digests of operations the second time is seen in a state alone.
            if (level == DigestLevel::kHeads && time == 1) continue;
            EXPECT_TRUE(found->recorded);
            EXPECT_EQ(found->remark, "");
        }
    }
}

// The first time the two rows were in two steps; the second time one step has both, and its earlier operation is first.
TEST(RecordLocate, RowsThatAreComputedTwiceHaveTheOrderOfTheSecondTime) {
    RecordScene scene;
    scene.config.cache.pools.num_blocks = 14;
    scene.more_tokens = 24;
    scene.num_more = 3;
    const Record record = scene.record(DigestLevel::kOps);
    const RunIndex index(record);
    const auto twice = computed_twice(index);
    ASSERT_TRUE(twice);
    const std::vector<Share>& shares = index.find(twice->request)->shares;
    const auto share_of = [&](int64_t step) {
        return std::ranges::find_if(shares, [&](const Share& share) { return share.step->step == step; })->sequence();
    };
    const int64_t later = share_of(twice->first_step).end;
    ASSERT_GT(share_of(twice->second_step).end, later);
    const Value last{.request = twice->request,
                     .position = twice->position,
                     .op = scene.points.layers().back(),
                     .bit = 30,
                     .time = 1};
    const Value first{.request = twice->request, .position = later, .op = 0, .bit = 30, .time = 1};
    int num_flipped = 0;
    const MakeExecutor make = [&](const EngineConfig& config,
                                  bool ordinary) -> Result<std::shared_ptr<NumericExecutor>> {
        const auto inner = scene.cpu(flip_in_buffer(scene, last, num_flipped))(config, ordinary);
        const auto made = std::make_shared<HookedExecutor>(*inner, nullptr);
        flip_in_buffer(scene, first, num_flipped)(*made);
        return made;
    };
    const auto found = verify(scene, record, make);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step, twice->second_step);
    EXPECT_EQ(found->op_index, 0);
    EXPECT_EQ(found->position, later);
}

// --- runs that are not the same when they are repeated

TEST(RecordLocate, ARunThatEndsEarlierWhenItIsRepeatedDidNotComeThereAgain) {
    const RecordScene scene;
    const Value value{.request = RequestId{0}, .position = 20, .op = scene.points.layers()[0], .bit = 30};
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kHeads, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        // The first run makes the record to compare with, the second finds the row, the third its values.
        for (const int failing : {2, 3}) {
            for (const int64_t step : {0, 1}) {
                int num_flipped = 0;
                int num_made = 0;
                const MakeExecutor make = [&](const EngineConfig& config,
                                              bool ordinary) -> Result<std::shared_ptr<NumericExecutor>> {
                    const bool fails = ++num_made == failing;
                    const auto inner = scene.cpu(flip_in_buffer(scene, value, num_flipped))(config, ordinary);
                    return std::make_shared<HookedExecutor>(*inner, nullptr, fails ? step : -1);
                };
                const auto found = verify(scene, record, make);
                EXPECT_EQ(num_made, failing);
                ASSERT_TRUE(found);
                EXPECT_EQ(found->remark, kNotThereAgain);
                EXPECT_EQ(found->element, -1);
                EXPECT_EQ(found->kind == DifferenceKind::kOperation, failing == 3 || level == DigestLevel::kOps);
                EXPECT_EQ(found->inputs_equal, std::nullopt);
            }
        }
    }
}

TEST(RecordLocate, AFaultThatIsRepeatedOnceHasNoValues) {
    const RecordScene scene;
    const Value value{.request = RequestId{0}, .position = 20, .op = scene.points.layers()[0], .bit = 30};
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        int num_made = 0;
        int num_flipped = 0;
        const Prepare plant = [&](NumericExecutor& executor) {
            if (++num_made < 3) flip_in_buffer(scene, value, num_flipped)(executor);
        };
        const auto found = verify(scene, record, scene.cpu(plant));
        EXPECT_EQ(num_made, 3);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->kind, DifferenceKind::kOperation);
        EXPECT_EQ(found->position, 20);
        EXPECT_EQ(found->element, -1);
        EXPECT_FALSE(found->recorded || found->computed) << to_string(*found);
        EXPECT_EQ(found->remark, "the run was right there when it was repeated: it is not the same every time");
    }
}

// --- records

// The record is wrong in the same share as the run, elsewhere.
TEST(RecordLocate, ARecordThatIsWrongInAnyDigestAgreesWithNeither) {
    const RecordScene scene;
    const auto remark = [&](DigestLevel level, size_t op, const std::function<void(SequenceRecord&)>& change) {
        const Record record = changed(scene.record(level), 0, change);
        int num_flipped = 0;
        const Value value{.request = RequestId{0}, .position = 3, .op = op, .bit = 30};
        const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
        return found ? found->remark : "no difference";
    };
    const size_t last = scene.points.layers().back();
    EXPECT_THAT(remark(DigestLevel::kOps, 0, [](SequenceRecord& s) { s.ops[0].low ^= 1; }), EndsWith("with neither"));
    EXPECT_THAT(remark(DigestLevel::kOps, 0, [&](SequenceRecord& s) { s.ops[last].high ^= 1; }),
                EndsWith("with neither"));
    EXPECT_THAT(remark(DigestLevel::kLayers, last, [](SequenceRecord& s) { s.layers ^= 1; }), EndsWith("with neither"));
    EXPECT_EQ(remark(DigestLevel::kLayers, last, [](SequenceRecord&) {}), "");
}

// Digests of another list of operations say nothing of this one's.
TEST(RecordLocate, DigestsOfOtherOperationsAreNotCompared) {
    const RecordScene scene;
    const Record record = changed(scene.record(DigestLevel::kOps), 1, [](SequenceRecord& sequence) {
        sequence.ops.resize(sequence.ops.size() + 1);
        sequence.ops[0].low ^= 1;
    });
    const Value value{.request = RequestId{0}, .position = 20, .op = scene.points.layers().back(), .bit = 30};
    int num_flipped = 0;
    const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->op_index, static_cast<int64_t>(value.op));
    EXPECT_EQ(found->position, 20);
    EXPECT_TRUE(found->recorded) << found->remark;
}

// The final norm and the logits have rows of the drawn positions alone.
TEST(RecordLocate, ARecordedFaultOfTheHeadIsFoundInASharesLastRow) {
    const RecordScene scene;
    for (size_t op = scene.points.first_of_head(); op < scene.points.size(); ++op) {
        int num_flipped = 0;
        const Value value{.request = RequestId{0}, .position = 20, .op = op, .element = 2, .bit = 1};
        const Record record = scene.record(DigestLevel::kOps, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
        ASSERT_EQ(RunIndex(record).find(RequestId{0})->shares[1].sequence().begin, 16);
        const auto found = verify(scene, record, scene.cpu());
        ASSERT_TRUE(found);
        EXPECT_EQ(found->op_index, static_cast<int64_t>(op));
        EXPECT_EQ(found->position, 20);
        EXPECT_EQ(found->element, scene.points[op].columns.first + 2);
        EXPECT_EQ(found->remark, kNotTheRecorded);
    }
}

TEST(RecordLocate, ADigestThatNoElementExplainsNamesNone) {
    const RecordScene scene;
    const size_t op = scene.points.layers()[0];
    const Record record =
        changed(scene.record(DigestLevel::kOps), 0, [&](SequenceRecord& sequence) { sequence.ops[op].high ^= 1; });
    const auto found = verify(scene, record, scene.cpu());
    ASSERT_TRUE(found);
    EXPECT_EQ(found->op_index, static_cast<int64_t>(op));
    EXPECT_EQ(found->element, -1);
    EXPECT_FALSE(found->recorded || found->computed || found->ulps);
    EXPECT_EQ(found->remark, kNotTheRecorded);
}

// Windows of drafts are shares with several drawn rows.
TEST(RecordLocate, AFaultInAWindowOfDraftsIsComparedWithAllItsRows) {
    const RecordScene scene;
    const Record plain = scene.record(DigestLevel::kOps);
    RunAgainOptions windows = scene.again(scene.cpu(), DigestLevel::kOps);
    windows.schedule.windows = 4;
    const auto record = run_again(plain, windows);
    ASSERT_TRUE(record);
    const RunIndex index(*record);
    int num_found = 0;
    for (const Share& share : index.find(RequestId{0})->shares) {
        const SequenceRecord& sequence = share.sequence();
        if (sequence.logits.size() < 3) continue;
        ++num_found;
        for (int64_t position = sequence.begin; position < sequence.end; ++position) {
            int num_flipped = 0;
            const Value value{
                .request = RequestId{0}, .position = position, .op = scene.points.first_of_head(), .bit = 1};
            const auto found = verify(scene, *record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
            ASSERT_TRUE(found);
            EXPECT_EQ(found->position, position);
            EXPECT_TRUE(found->recorded && found->computed) << found->remark;
            EXPECT_EQ(found->ulps, 2);
        }
    }
    EXPECT_GT(num_found, 0);
}

// --- inputs

TEST(RecordLocate, AnOperationThatReadsTheZeroStateHasEqualInputs) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    for (const WalkOp op : {WalkOp::kConv, WalkOp::kScan}) {
        const Value value{.request = RequestId{0}, .position = 3, .op = op_of(scene, op), .bit = 30};
        int num_flipped = 0;
        const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
        ASSERT_TRUE(found);
        EXPECT_EQ(found->op_index, static_cast<int64_t>(value.op));
        EXPECT_EQ(found->inputs_equal, true);
    }
}

// What the operation wrote and what the sequence keeps are wrong at one position.
TEST(RecordLocate, TheKvOfARowsPositionIsOneOfItsInputs) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const size_t op = op_of(scene, WalkOp::kAttention);
    const Value value{.request = RequestId{0}, .position = kDecoded, .op = op, .bit = 1};
    for (const bool flips : {false, true}) {
        int num_flipped = 0;
        const MakeExecutor make = [&](const EngineConfig& config,
                                      bool ordinary) -> Result<std::shared_ptr<NumericExecutor>> {
            const auto inner = scene.uncached(flip_in_buffer(scene, value, num_flipped))(config, ordinary);
            const auto behind = [&](const StepPlan& plan, NumericExecutor& executor) {
                for (const ScheduledSequence& sequence : plan.sequences) {
                    const SlotTable& table = executor.tables().at(sequence.slot);
                    if (!flips || table.request != value.request || table.length != kDecoded + 1) continue;
                    executor.read_head({.writer = sequence.slot, .length = table.length, .blocks = {}, .state = {}},
                                       [&](const reference::HeadPiece& piece) {
                                           if (piece.tensor.kind != StateKind::kK) return;
                                           const_cast<std::byte&>(piece.bytes.back()) ^= std::byte{0x20};
                                       });
                }
            };
            return std::make_shared<HookedExecutor>(*inner, behind);
        };
        const auto found = verify(scene, record, make);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->op_index, static_cast<int64_t>(op));
        EXPECT_EQ(found->position, kDecoded);
        EXPECT_EQ(found->inputs_equal, !flips);
    }
}

// A convolution does not read the scan's state.
TEST(RecordLocate, AStateOfAnotherKindIsNoInput) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const size_t op = op_of(scene, WalkOp::kConv);
    const Value value{.request = RequestId{0}, .position = kDecoded, .op = op, .bit = 30};
    int num_flipped = 0;
    int num_states = 0;
    const MakeExecutor make = [&](const EngineConfig& config,
                                  bool ordinary) -> Result<std::shared_ptr<NumericExecutor>> {
        const auto inner = scene.cpu(flip_in_buffer(scene, value, num_flipped))(config, ordinary);
        const auto behind = [&](const StepPlan& plan, NumericExecutor& executor) {
            for (const ScheduledSequence& sequence : plan.sequences) {
                const SlotTable& table = executor.tables().at(sequence.slot);
                if (table.request != value.request || table.length != kDecoded) continue;
                executor.read_head({.writer = sequence.slot, .length = 0, .blocks = {}, .state = table.source},
                                   [&](const reference::HeadPiece& piece) {
                                       if (piece.tensor.kind != StateKind::kSsm) return;
                                       const_cast<std::byte&>(piece.bytes[6]) ^= std::byte{0x20};
                                       ++num_states;
                                   });
            }
        };
        return std::make_shared<HookedExecutor>(*inner, behind);
    };
    const auto found = verify(scene, record, make);
    EXPECT_GT(num_states, 0);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->op_index, static_cast<int64_t>(op)) << to_string(*found);
    EXPECT_EQ(found->position, kDecoded);
    EXPECT_EQ(found->inputs_equal, true);
}

TEST(RecordLocate, TheFirstElementOfACommittedStateIsCompared) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const int64_t length = RunIndex(record).find(RequestId{0})->states.rbegin()->first;
    int num_flipped = 0;
    const Prepare plant = flip_in_memory(RequestId{0}, WalkOp::kLogits, length - 1, layer_with(scene, true),
                                         StateKind::kSsm, 2, num_flipped);
    const auto found = verify(scene, record, scene.cpu(plant));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->kind, DifferenceKind::kState);
    EXPECT_EQ(found->element, 0);
    EXPECT_TRUE(found->recorded && found->computed);
}

}  // namespace
}  // namespace verbatim::tests
