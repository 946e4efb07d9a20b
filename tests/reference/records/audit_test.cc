// The published audit for hybrid models, as a test: one bit that is flipped anywhere, in either of two executors, in
// what an operation wrote or in what a sequence carries, is found exactly there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "engine/base/prng.h"
#include "reference/records/comparison.h"
#include "reference/records/locate.h"
#include "reference/records/run_index.h"
#include "tests/reference/records/flipped_bits.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;
using reference::NumericExecutor;
using reference::Observation;
using reference::StateKind;

constexpr int kCasesEach = 67;  // three ways to plant: 201

Value draw_value(const RecordScene& scene, const RunIndex& index, Prng& prng) {
    std::vector<std::pair<int64_t, const SequenceRecord*>> shares;
    for (const auto& [name, request] : index.requests()) {
        for (const Share& share : request.shares) shares.emplace_back(share.step->step, &share.sequence());
    }
    const auto below = [&](int64_t bound) { return static_cast<int64_t>(prng.next() % static_cast<uint64_t>(bound)); };
    const auto& [step, share] = shares[static_cast<size_t>(below(static_cast<int64_t>(shares.size())))];
    Value value;
    value.step = step;
    value.request = share->request;
    const bool draws = !share->logits.empty();
    value.op =
        static_cast<size_t>(below(static_cast<int64_t>(draws ? scene.points.size() : scene.points.first_of_head())));
    value.position =
        value.op >= scene.points.first_of_head() ? share->end - 1 : share->begin + below(share->end - share->begin);
    value.element = below(scene.points[value.op].columns.count);
    value.bit = static_cast<int>(below(32));
    return value;
}

void expect_found(const RecordScene& scene, const Value& value, const std::optional<RecordDifference>& found,
                  bool in_computed, std::optional<int64_t> computed_step = {}) {
    const reference::WalkPoint& point = scene.points[value.op];
    SCOPED_TRACE(fmt::format("step {} request {} position {} op {} ({}) element {} bit {}", value.step,
                             index(value.request), value.position, value.op, to_string(point), value.element,
                             value.bit));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->step, value.step);
    EXPECT_EQ(found->request, value.request);
    EXPECT_EQ(found->position, value.position);
    EXPECT_EQ(found->kind, DifferenceKind::kOperation);
    EXPECT_EQ(found->computed_step, computed_step.value_or(value.step));
    EXPECT_EQ(found->layer, point.layer);
    EXPECT_EQ(found->op, fmt::format("{} {}", walk_op_name(point.op), buffer_name(point.buffer)));
    EXPECT_EQ(found->op_index, static_cast<int64_t>(value.op));
    EXPECT_EQ(found->remark,
              in_computed ? "" : "what is computed here agrees with the reference; what was recorded does not");
    EXPECT_EQ(found->element, point.columns.first + value.element);
    if (in_computed) EXPECT_NE(found->inputs_equal, false);  // unknown where an uncached executor begins
    ASSERT_TRUE(found->recorded.has_value());
    ASSERT_TRUE(found->computed.has_value());
    EXPECT_EQ(found->ulps, ulps_between(static_cast<float>(*found->recorded), static_cast<float>(*found->computed)));
    const auto bits = [](double of) { return std::bit_cast<uint32_t>(static_cast<float>(of)); };
    const bool is_number = *found->recorded == *found->recorded && *found->computed == *found->computed;
    if (is_number) EXPECT_EQ(bits(*found->recorded) ^ bits(*found->computed), uint32_t{1} << value.bit);
}

// Of a request that computes the position once.
int64_t step_of(const RunIndex& index, RequestId request, int64_t position) {
    for (const Share& share : index.find(request)->shares) {
        if (share.sequence().begin <= position && position < share.sequence().end) return share.step->step;
    }
    return -1;
}

using MakePlanted = MakeExecutor (RecordScene::*)(Prepare) const;

void expect_all_found(MakePlanted make, uint64_t seed) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const RunIndex recorded(record);
    Prng prng(seed);
    for (int i = 0; i < kCasesEach; ++i) {
        const Value value = draw_value(scene, recorded, prng);
        int num_flipped = 0;
        const auto found = verify(scene, record, (scene.*make)(flip_in_buffer(scene, value, num_flipped)));
        EXPECT_GT(num_flipped, 0);
        expect_found(scene, value, found, true);
        if (testing::Test::HasFailure()) return;
    }
}

TEST(RecordAudit, AFlippedBitInTheCpuExecutorIsLocated) { expect_all_found(&RecordScene::cpu, 1); }

TEST(RecordAudit, AFlippedBitInTheReferenceIsLocated) { expect_all_found(&RecordScene::uncached, 4); }

TEST(RecordAudit, AFlippedBitInTheRecordedRunIsLocated) {
    const RecordScene scene;
    const Record clean = scene.record(DigestLevel::kOps);
    const RunIndex recorded(clean);
    Prng prng(2);
    for (int i = 0; i < kCasesEach; ++i) {
        const Value value = draw_value(scene, recorded, prng);
        int num_flipped = 0;
        const Record faulty = scene.record(DigestLevel::kOps, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
        EXPECT_EQ(num_flipped, 1);
        expect_found(scene, value, verify(scene, faulty, scene.cpu()), false);
        if (HasFailure()) return;
    }
}

// All requests have one arithmetic.
TEST(RecordAudit, AFlippedBitOfAnOrdinaryRequestIsLocated) {
    RecordScene scene;
    scene.deterministic = false;
    const Record record = scene.record(DigestLevel::kOps);
    const RunIndex recorded(record);
    Prng prng(6);
    for (int i = 0; i < 12; ++i) {
        const Value value = draw_value(scene, recorded, prng);
        int num_flipped = 0;
        const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
        EXPECT_GT(num_flipped, 0);
        expect_found(scene, value, found, true);
        if (HasFailure()) return;
    }
}

// A run with ordinary requests: the deterministic ones have a reference.
TEST(RecordAudit, AFlippedBitOfARunWithAPolicyIsLocated) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kOps);
    record.run.policy = "exact";
    const RunIndex recorded(record);
    Prng prng(7);
    const Value value = draw_value(scene, recorded, prng);
    int num_flipped = 0;
    const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
    expect_found(scene, value, found, true);
}

// The steps of the two runs have other numbers, and other positions.
TEST(RecordAudit, AFlippedBitUnderAnotherScheduleIsLocated) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const RunIndex recorded(record);
    Prng prng(5);
    for (const char* words : {"chunks=5", "batch=1"}) {
        const auto schedule = parse_schedule(std::vector<std::string>{words});
        RunAgainOptions clean = scene.again(scene.cpu(), DigestLevel::kOps);
        clean.schedule = *schedule;
        const auto made = run_again(record, clean);
        ASSERT_TRUE(made);
        // Requests are numbered in the order of their submission, which is the record's.
        const RunIndex computed(*made);
        for (int i = 0; i < 12; ++i) {
            const Value value = draw_value(scene, recorded, prng);
            int num_flipped = 0;
            const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)), *schedule);
            if (num_flipped == 0) continue;  // a client left earlier
            SCOPED_TRACE(words);
            expect_found(scene, value, found, true, step_of(computed, value.request, value.position));
            if (HasFailure()) return;
        }
    }
}

// Where the record knows layers only, the reference says which element it is: of those flips that reach a layer's end.
TEST(RecordAudit, DigestsOfLayersSufficeToLocateIt) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kLayers);
    const RunIndex recorded(record);
    Prng prng(3);
    int num_found = 0;
    for (int i = 0; i < 30; ++i) {
        Value value = draw_value(scene, recorded, prng);
        int num_flipped = 0;
        const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
        if (!found) continue;  // rounded away
        ++num_found;
        expect_found(scene, value, found, true);
        if (HasFailure()) return;
    }
    EXPECT_GE(num_found, 15);
}

// A difference in the logits, or in a token, says nothing of the operation: the reference does.
TEST(RecordAudit, LogitsAndTokensSufficeToLocateAnOperation) {
    const RecordScene scene;
    for (const DigestLevel level : {DigestLevel::kNone, DigestLevel::kHeads}) {
        const Record record = scene.record(level);
        const RunIndex recorded(record);
        const RequestIndex& request = *recorded.find(RequestId{1});
        const Share& share = request.shares.back();
        Value value{.step = share.step->step, .request = request.id, .position = share.sequence().end - 1};
        value.op = scene.points.layers()[1];
        value.bit = 30;
        int num_flipped = 0;
        const Prepare plant = flip_in_buffer(scene, value, num_flipped);
        const auto found = verify(scene, record, scene.cpu(plant));
        if (level == DigestLevel::kHeads) {
            expect_found(scene, value, found, true);
        } else {
            ASSERT_TRUE(found.has_value());
            EXPECT_EQ(found->op_index, static_cast<int64_t>(value.op));
            EXPECT_EQ(found->recorded, std::nullopt) << "a token confirms no value";
            EXPECT_THAT(found->remark, testing::EndsWith("; no digest of it was recorded"));
        }
    }
}

// A prompt's rows have no logits: the digest of the head that they end in is all that was recorded of them.
TEST(RecordAudit, AStateThatDiffersSaysWhetherTheRecordedOneIsTheReferences) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kHeads);
    const int64_t length = RunIndex(record).find(RequestId{3})->states.begin()->first;
    const Value value{.request = RequestId{3}, .position = length - 2, .op = scene.points.layers()[0], .bit = 30};
    int num_flipped = 0;
    const Prepare plant = flip_in_buffer(scene, value, num_flipped);
    const auto right = verify(scene, record, scene.cpu(plant));
    ASSERT_TRUE(right);
    EXPECT_EQ(right->op_index, static_cast<int64_t>(value.op)) << to_string(*right);
    EXPECT_EQ(right->recorded, std::nullopt);
    EXPECT_THAT(right->remark, testing::EndsWith("; the state that was recorded is the reference's"));
    for (Entry& entry : record.entries) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr) continue;
        for (Event& event : reported->events) {
            if (event.value == length) event.digest.low ^= 1;
        }
    }
    const auto neither = verify(scene, record, scene.cpu(plant));
    ASSERT_TRUE(neither);
    EXPECT_THAT(neither->remark, testing::EndsWith("; what was recorded agrees with neither"));
}

// The executor errs once: neither the record nor the repeated run is wrong.
TEST(RecordAudit, AFaultThatDoesNotRepeatIsNotTheRecords) {
    const RecordScene scene;
    for (const DigestLevel level : {DigestLevel::kLayers, DigestLevel::kOps}) {
        const Record record = scene.record(level);
        const Value value{.step = 0, .request = RequestId{0}, .position = 3, .op = scene.points.layers()[0], .bit = 30};
        bool is_first = true;
        int num_flipped = 0;
        const Prepare plant = [&](NumericExecutor& executor) {
            if (std::exchange(is_first, false)) flip_in_buffer(scene, value, num_flipped)(executor);
        };
        const auto found = verify(scene, record, scene.cpu(plant));
        EXPECT_EQ(num_flipped, 1);
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->element, -1);
        EXPECT_EQ(found->remark,
                  "the record agrees with the reference, and so does the repeated run: "
                  "it is not the same every time");
    }
}

TEST(RecordAudit, ARecordThatAgreesWithNeitherIsNamed) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kOps);
    const Value value{.step = 0, .request = RequestId{0}, .position = 3, .op = scene.points.layers()[0], .bit = 30};
    for (Entry& entry : record.entries) {
        auto* step = std::get_if<StepRecord>(&entry);
        if (step == nullptr || step->step != 0) continue;
        step->sequences[0].ops[value.op].low += 1;
    }
    int num_flipped = 0;
    const auto found = verify(scene, record, scene.cpu(flip_in_buffer(scene, value, num_flipped)));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->position, 3);
    EXPECT_EQ(found->element, scene.points[value.op].columns.first);
    EXPECT_TRUE(found->computed.has_value());
    EXPECT_FALSE(found->recorded.has_value());
    EXPECT_FALSE(found->ulps.has_value());
    EXPECT_THAT(found->remark, testing::StartsWith("the reference has "));
    EXPECT_THAT(found->remark, testing::EndsWith("; what was recorded agrees with neither"));
}

// A record that was changed behind the run.
TEST(RecordAudit, AChangedRecordIsNotTheExecutorsFault) {
    const RecordScene scene;
    const auto changed = [&](DigestLevel level, const auto& change) {
        Record record = scene.record(level);
        for (Entry& entry : record.entries) {
            if (change(entry)) return verify(scene, record, scene.cpu());
        }
        return std::optional<RecordDifference>();
    };
    const auto token = changed(DigestLevel::kHeads, [](Entry& entry) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr || reported->tokens.empty()) return false;
        reported->tokens[0].token ^= 1;
        return true;
    });
    ASSERT_TRUE(token.has_value());
    EXPECT_EQ(token->kind, DifferenceKind::kToken);
    EXPECT_EQ(token->remark, "");
    const auto logits = changed(DigestLevel::kHeads, [](Entry& entry) {
        auto* step = std::get_if<StepRecord>(&entry);
        if (step == nullptr || step->sequences[0].logits.empty()) return false;
        step->sequences[0].logits[0] ^= 1;
        return true;
    });
    ASSERT_TRUE(logits.has_value());
    EXPECT_EQ(logits->kind, DifferenceKind::kLogits);
    EXPECT_EQ(logits->remark, "what is computed here agrees with the reference; what was recorded does not");
    const auto state = changed(DigestLevel::kHeads, [](Entry& entry) {
        auto* reported = std::get_if<Reported>(&entry);
        if (reported == nullptr) return false;
        for (Event& event : reported->events) {
            if (event.kind != EventKind::kPublish) continue;
            event.digest.low ^= 1;
            return true;
        }
        return false;
    });
    ASSERT_TRUE(state.has_value());
    EXPECT_EQ(state->kind, DifferenceKind::kState);
    EXPECT_EQ(state->element, -1);
    EXPECT_EQ(state->remark, "the committed state agrees with the reference; what was recorded does not");
}

TEST(RecordAudit, OfAnOrdinaryRequestThereIsNoReference) {
    const RecordScene scene;
    const auto ordinary = [&] {
        Record record = scene.record(DigestLevel::kHeads);
        record.run.policy = "exact";
        for (Entry& entry : record.entries) {
            if (auto* call = std::get_if<Call>(&entry)) call->request.deterministic = false;
        }
        return record;
    };
    const Record record = ordinary();
    const RunIndex index(record);
    RecordDifference difference{
        .kind = DifferenceKind::kLogits, .request = RequestId{0}, .computed_request = RequestId{0}};
    const LocateArgs args{.record = record,
                          .recorded = index,
                          .computed = index,
                          .points = scene.points,
                          .model = scene.model,
                          .again = scene.again(scene.cpu(), DigestLevel::kHeads)};
    ASSERT_TRUE(locate(args, difference));
    EXPECT_EQ(difference.remark, "an ordinary request's: of its arithmetic there is no reference");
    for (const auto& [kind, request, computed_request] : {std::tuple{DifferenceKind::kPrompt, 0, 0},
                                                          {DifferenceKind::kRequest, 0, 0},
                                                          {DifferenceKind::kLogits, 0, 77},
                                                          {DifferenceKind::kLogits, 77, 0}}) {
        RecordDifference other{
            .kind = kind, .request = RequestId{request}, .computed_request = RequestId{computed_request}};
        ASSERT_TRUE(locate(args, other));
        EXPECT_EQ(other.remark, "");
    }
}

TEST(RecordAudit, UlpsAreCountedAcrossZero) {
    constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    EXPECT_EQ(ulps_between(1.5F, 1.5F), 0);
    EXPECT_EQ(ulps_between(0.0F, -0.0F), 0);
    EXPECT_EQ(ulps_between(kSmallest, -kSmallest), 2);
    EXPECT_EQ(ulps_between(1.0F, std::nextafter(1.0F, 2.0F)), 1);
    EXPECT_EQ(ulps_between(-1.0F, std::nextafter(-1.0F, 0.0F)), 1);
    EXPECT_EQ(ulps_between(-1.0F, 1.0F), 2 * int64_t{0x3F80'0000});
    EXPECT_EQ(ulps_between(kNan, 1.0F), std::nullopt);
    EXPECT_EQ(ulps_between(1.0F, kNan), std::nullopt);
}

// A bit of a layer's state is flipped behind a decoded token: `op` reads it for the next one.
void expect_found_where_read(const RecordScene& scene, const Record& record, int32_t layer, StateKind kind,
                             const char* op) {
    int num_flipped = 0;
    const Prepare plant =
        flip_in_memory(RequestId{0}, reference::WalkOp::kLogits, kDecoded - 1, layer, kind, 4 * 5 + 2, num_flipped);
    const auto found = verify(scene, record, scene.cpu(plant));
    EXPECT_GT(num_flipped, 0);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->position, kDecoded);
    EXPECT_EQ(found->layer, layer);
    EXPECT_EQ(found->op, op);
    EXPECT_EQ(found->inputs_equal, false) << to_string(*found);
}

TEST(RecordAudit, AFlippedBitInAStateIsFoundAtTheOperationThatReadIt) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const int32_t layer = layer_with(scene, true);
    expect_found_where_read(scene, record, layer, StateKind::kSsm, "scan mixed");
    expect_found_where_read(scene, record, layer, StateKind::kConv, "conv conv");
}

TEST(RecordAudit, AFlippedBitInADeltaNetsStateIsFoundAtTheOperationThatReadIt) {
    const RecordScene scene(reference::Architecture::kQwen35);
    const Record record = scene.record(DigestLevel::kOps);
    const auto& layers = scene.model.config.layers;
    const auto with_delta = std::ranges::find_if(layers, [](const auto& layer) { return layer.delta.has_value(); });
    ASSERT_NE(with_delta, layers.end());
    const auto layer = static_cast<int32_t>(with_delta - layers.begin());
    expect_found_where_read(scene, record, layer, StateKind::kDelta, "delta_update mixed");
    expect_found_where_read(scene, record, layer, StateKind::kConv, "conv conv");
}

// Behind the last operation that reads it: the digest of the head alone tells.
TEST(RecordAudit, AFlippedBitInACommittedStateIsLocated) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const int64_t length = RunIndex(record).find(RequestId{0})->states.rbegin()->first;
    const int32_t layer = layer_with(scene, true);
    const auto plant = [&](bool always, bool& is_first, int& num_flipped) -> Prepare {
        return [&, always](NumericExecutor& executor) {
            if (!std::exchange(is_first, false) && !always) return;
            flip_in_memory(RequestId{0}, reference::WalkOp::kLogits, length - 1, layer, StateKind::kSsm, 4 * 5 + 2,
                           num_flipped)(executor);
        };
    };
    int num_flipped = 0;
    bool is_first = true;
    const auto found = verify(scene, record, scene.cpu(plant(true, is_first, num_flipped)));
    EXPECT_GT(num_flipped, 0);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->kind, DifferenceKind::kState);
    EXPECT_EQ(found->position, length);
    EXPECT_EQ(found->layer, layer);
    EXPECT_EQ(found->op, "state ssm");
    EXPECT_EQ(found->element, 5);
    EXPECT_EQ(found->inputs_equal, true);
    ASSERT_TRUE(found->recorded && found->computed);
    EXPECT_EQ(std::bit_cast<uint32_t>(static_cast<float>(*found->recorded)) ^ uint32_t{0x20} << 16,
              std::bit_cast<uint32_t>(static_cast<float>(*found->computed)));
    EXPECT_EQ(found->remark, "");
    // Once, and not in the repeated run.
    is_first = true;
    const auto once = verify(scene, record, scene.cpu(plant(false, is_first, num_flipped)));
    ASSERT_TRUE(once.has_value());
    EXPECT_EQ(once->kind, DifferenceKind::kState);
    EXPECT_EQ(once->element, -1);
    EXPECT_EQ(once->remark,
              "the record agrees with the reference, and so does the repeated run: "
              "it is not the same every time");
}

// Zeros are equal numbers, and digests are of bits.
TEST(RecordAudit, AFlippedSignOfAZeroInACommittedStateIsLocated) {
    RecordScene scene;
    const int32_t layer = layer_with(scene, true);
    reference::MambaWeights& mamba = scene.model.weights.layers[static_cast<size_t>(layer)].mamba;
    const std::vector<uint16_t> zeros(static_cast<size_t>(mamba.in_proj.rows * mamba.in_proj.cols));
    const std::vector<float> no_bias(mamba.in_bias.size());
    mamba.in_proj.data = zeros.data();
    mamba.in_bias = no_bias;
    const Record record = scene.record(DigestLevel::kOps);
    const int64_t length = RunIndex(record).find(RequestId{0})->states.rbegin()->first;
    int num_flipped = 0;
    const Prepare plant = flip_in_memory(RequestId{0}, reference::WalkOp::kLogits, length - 1, layer, StateKind::kConv,
                                         4 * 5 + 3, num_flipped, std::byte{0x80});
    const auto found = verify(scene, record, scene.cpu(plant));
    EXPECT_GT(num_flipped, 0);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->kind, DifferenceKind::kState);
    EXPECT_EQ(found->op, "state conv");
    EXPECT_EQ(found->element, 5);
    EXPECT_EQ(found->remark, "");
    ASSERT_TRUE(found->recorded && found->computed);
    EXPECT_FALSE(std::signbit(*found->recorded));
    EXPECT_TRUE(std::signbit(*found->computed));
}

TEST(RecordAudit, AFlippedBitInKvIsFoundAtTheOperationThatReadIt) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kOps);
    const int32_t layer = layer_with(scene, false);
    for (const StateKind kind : {StateKind::kK, StateKind::kV}) {
        int num_flipped = 0;
        const Prepare plant =
            flip_in_memory(RequestId{0}, reference::WalkOp::kEmbed, kDecoded, layer, kind, 3, num_flipped);
        const auto found = verify(scene, record, scene.uncached(plant));
        EXPECT_GT(num_flipped, 0);
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(found->position, kDecoded);
        EXPECT_EQ(found->layer, layer);
        EXPECT_EQ(found->op, "attention mixed");
        EXPECT_EQ(found->inputs_equal, false) << to_string(*found);
    }
}

}  // namespace
}  // namespace verbatim::tests
