// tests/reference/records/flipped_bits.h: bits that flip in an executor, and the difference that is located then.
#pragma once

#include <bit>
#include <map>
#include <memory>
#include <optional>

#include "reference/records/comparison.h"
#include "reference/records/locate.h"
#include "reference/records/run_index.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {

// The first request's second token is drawn at position 21: what stands before it was read from memory.
inline constexpr int64_t kDecoded = 21;

// Which value of a run.
struct Value {
    int64_t step = 0;
    RequestId request{};
    int64_t position = 0;
    size_t op = 0;
    int64_t element = 0;
    int bit = 0;
    int time = -1;  // of the computations of that position; -1: every one
};

// An executor's own buffers, which an observer is shown: a bit of them flips after an operation has written them.
inline Prepare flip_in_buffer(const RecordScene& scene, const Value& value, int& num_flipped) {
    return [&scene, value, &num_flipped](reference::NumericExecutor& executor) {
        auto next = std::make_shared<std::map<SequenceSlot, size_t>>();
        auto times = std::make_shared<int>(0);
        executor.set_observer(
            [&scene, &executor, &num_flipped, value, next, times](const reference::Observation& seen) {
                size_t& op = (*next)[seen.slot];
                if (seen.point.op == reference::WalkOp::kEmbed) op = 0;
                const size_t now = op++;
                if (now != value.op || executor.tables().at(seen.slot).request != value.request) return;
                const int64_t row = value.position - seen.first_position;
                if (row < 0 || row >= seen.rows.num_rows) return;
                if (const int time = (*times)++; value.time >= 0 && time != value.time) return;
                auto* element = const_cast<float*>(seen.rows.row(row)) + value.element;
                *element = std::bit_cast<float>(std::bit_cast<uint32_t>(*element) ^ uint32_t{1} << value.bit);
                ++num_flipped;
            });
    };
}

inline std::optional<records::RecordDifference> verify(const RecordScene& scene, const records::Record& record,
                                                       const records::MakeExecutor& make,
                                                       const records::Schedule& schedule = {},
                                                       int64_t most_positions = 4096) {
    const records::RunIndex recorded(record);
    records::RunAgainOptions again = scene.again(make, record.run.digests);
    again.schedule = schedule;
    const auto computed_record = run_again(record, again);
    CHECK(computed_record.has_value());
    const records::RunIndex computed(*computed_record);
    records::Comparison comparison = compare(recorded, computed, scene.points);
    if (!comparison.first) return std::nullopt;
    const Status located = locate({.record = record,
                                   .recorded = recorded,
                                   .computed = computed,
                                   .points = scene.points,
                                   .model = scene.model,
                                   .again = again,
                                   .most_positions = most_positions},
                                  *comparison.first);
    CHECK(located.has_value());
    return comparison.first;
}

// Bytes that a sequence carries, as read_head shows them: a bit flips behind an operation of a step.
inline Prepare flip_in_memory(RequestId request, reference::WalkOp op, int64_t position, int32_t layer,
                              reference::StateKind kind, size_t byte, int& num_flipped,
                              std::byte bit = std::byte{0x20}) {
    return [=, &num_flipped](reference::NumericExecutor& executor) {
        executor.set_observer([=, &executor, &num_flipped](const reference::Observation& seen) {
            const SlotTable& table = executor.tables().at(seen.slot);
            const bool now = seen.point.op == op && table.request == request && seen.first_position == position;
            if (!now) return;
            const bool has_pools = executor.tables().config().check_memory;
            executor.read_head(
                {.writer = seen.slot, .length = has_pools ? 0 : table.length, .blocks = {}, .state = table.state},
                [&](const reference::HeadPiece& piece) {
                    if (piece.tensor.layer != layer || piece.tensor.kind != kind) return;
                    const_cast<std::byte&>(piece.bytes[byte]) ^= bit;
                    ++num_flipped;
                });
        });
    };
}

inline int32_t layer_with(const RecordScene& scene, bool mamba) {
    const auto& layers = scene.model.config.layers;
    for (size_t i = 0; i < layers.size(); ++i) {
        if (mamba ? layers[i].mamba.has_value() : layers[i].attention.has_value()) return static_cast<int32_t>(i);
    }
    return -1;
}

}  // namespace verbatim::tests
