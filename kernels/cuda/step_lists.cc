#include "kernels/cuda/step_lists.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::cuda {
namespace {

constexpr int64_t kPlaceBytes = 64;   // alignment of every list
constexpr int64_t kMinCapacity = 64;  // elements

template <typename T>
int64_t bytes_of(const std::vector<T>& values) {
    return static_cast<int64_t>(values.size() * sizeof(T));
}

}  // namespace

StepLists::StepLists(Device& device, int32_t vocab_size, int64_t query_rows, bool has_tiles)
    : device_(device),
      query_rows_(static_cast<int32_t>(query_rows)),
      has_tiles_(has_tiles),
      pinned_(device),
      results_(device),
      times_generated_(static_cast<size_t>(vocab_size), -1) {}

void StepLists::describe(const PooledStep& step, StateLog& log, bool fixed) {
    is_fixed_ = fixed;
    each(*this, [](auto& list) { list.values.clear(); });
    tokens.values.assign(step.batch.tokens.begin(), step.batch.tokens.end());
    logit_rows.values.assign(step.batch.logit_rows.begin(), step.batch.logit_rows.end());
    faults.values.assign(step.draws.size(), kNoFault);
    drawn.values.assign(step.draws.size(), 0);
    first_runs.values.push_back(0);
    queries.values.push_back({});
    tiles.values.push_back({});
    for (const reference::SamplingArgs& draw : step.draws) describe_draw(draw);
    for (const BlockCopy& copy : step.copies) {
        copies.values.push_back({page(copy.src), page(copy.dst), copy.num_slots});
    }
    num_drawing_ = 0;
    rows_together_ = 1;
    for (size_t i = 0; i < step.sequences.size(); ++i) {
        describe_sequence(step.sequences[i], step.batch.sequences[i], log);
    }
    CHECK_LE(num_drawing_, std::ssize(logit_rows.values));
    for (const PooledSequence& move : step.moves) {
        const StateLog::Place logged = log.place_of(move, 0);
        moves.values.push_back({.state_src = index(move.state_src),
                                .state_dst = index(move.state_dst),
                                .num_logged = move.num_logged_tokens,
                                .log = logged.log,
                                .first_entry = logged.first_entry});
    }
    if (is_fixed_) fix_queries();
}

void StepLists::describe_sequence(const PooledSequence& sequence, const reference::WalkSequence& part, StateLog& log) {
    CHECK_EQ(part.first_row, std::ssize(positions.values));
    const bool writes_nothing = sequence.slot == kNoSlot;
    num_drawing_ += sequence.num_scored_positions;  // whose rows of logits come first
    const StateLog::Place logged = log.place_of(sequence, part.num_rows);
    const auto number = static_cast<int32_t>(sequences.values.size());
    sequences.values.push_back({.first_row = part.first_row,
                                .num_rows = part.num_rows,
                                .first_position = static_cast<int32_t>(part.first_position),
                                .first_block = writes_nothing ? -1 : static_cast<int32_t>(blocks.values.size()),
                                .state_src = index(sequence.state_src),
                                .state_dst = index(sequence.state_dst),
                                .first_write = static_cast<int32_t>(writes.values.size()),
                                .num_writes = static_cast<int32_t>(sequence.writes.size()),
                                .first_draw = num_drawing_,
                                .num_sampled_positions = sequence.num_sampled_positions,
                                .num_logged = sequence.num_logged_tokens,
                                .log = logged.log,
                                .first_entry = logged.first_entry});
    num_drawing_ += sequence.num_sampled_positions;
    describe_rows(part, number, !writes_nothing);
    // Most of the upload: one transfer per table would take longer than the bytes do (docs/cuda.md, A step).
    const auto first_block = static_cast<std::ptrdiff_t>(blocks.values.size());
    blocks.values.resize(blocks.values.size() + sequence.blocks.size());
    std::ranges::transform(sequence.blocks, blocks.values.begin() + first_block, [this](BlockId b) { return page(b); });
    for (const StateWrite& write : sequence.writes) {
        writes.values.push_back({static_cast<int32_t>(write.length), index(write.dst)});
    }
}

void StepLists::describe_rows(const reference::WalkSequence& part, int32_t sequence, bool attends) {
    const auto num_runs = [&](int32_t r) {
        return static_cast<int32_t>(attends ? runs_of(part.first_position + r) : 0);
    };
    for (int32_t r = 0; r < part.num_rows; ++r) {
        positions.values.push_back(static_cast<int32_t>(part.first_position) + r);
        row_sequences.values.push_back(sequence);
        first_runs.values.push_back(first_runs.values.back() + num_runs(r));
    }
    const bool by_tiles = has_tiles_ && !is_fixed_ && part.num_rows >= kMinTileRows;
    std::vector<DeviceQueries>& list = by_tiles ? tiles.values : queries.values;
    const auto most = by_tiles ? static_cast<int32_t>(kAttendTileRows) : query_rows_;
    for (int32_t first = 0; first < part.num_rows; first += most) {
        const int32_t num_together = std::min(most, part.num_rows - first);
        if (!by_tiles) rows_together_ = std::max(rows_together_, num_together);
        const int32_t first_item = list.back().first_item;
        list.back() = {part.first_row + first, num_together, first_item, sequence};
        list.push_back({.first_item = first_item + num_runs(first + num_together - 1)});
    }
}

// As many queries as rows, the last ones without items; any division of rows into queries fits.
void StepLists::fix_queries() {
    if (tokens.values.size() == sequences.values.size()) return;
    CHECK_LE(queries.values.size(), tokens.values.size() + 1);
    queries.values.resize(tokens.values.size() + 1, {.first_item = queries.values.back().first_item});
    rows_together_ = query_rows_;
}

void StepLists::describe_draw(const reference::SamplingArgs& draw) {
    const SamplingParams& params = draw.params;
    auto& listed = counts.values;
    const auto first = static_cast<int32_t>(listed.size());
    CHECK(in_prefix_.empty(), "{} tokens of another draw are counted", in_prefix_.size());
    if (reference::has_penalties(params)) {
        const auto add = [&](TokenId id, int32_t times) {
            int32_t& generated = times_generated_[static_cast<size_t>(id)];
            if (generated < 0) in_prefix_.push_back(id);
            generated = std::max(generated, 0) + times;
        };
        for (const TokenId id : draw.prefix.prompt) add(id, 0);
        for (const TokenId id : draw.prefix.generated) add(id, 1);
        for (const TokenId id : in_prefix_) {
            listed.push_back({id, std::exchange(times_generated_[static_cast<size_t>(id)], -1)});
        }
        in_prefix_.clear();
    }
    draws.values.push_back({.seed = params.seed,
                            .position = draw.position,
                            .temperature = params.temperature,
                            .top_p = params.top_p,
                            .top_k = params.top_k,
                            .repetition = params.repetition_penalty,
                            .presence = params.presence_penalty,
                            .frequency = params.frequency_penalty,
                            .first_count = first,
                            .num_counts = static_cast<int32_t>(listed.size()) - first});
}

// Doubles the capacity of lists that did not fit, and places all lists.
void StepLists::make_room() {
    bool fits = true;
    each(*this, [&](auto& list) {
        const auto size = static_cast<int64_t>(list.values.size());
        if (size <= list.room && list.room > 0) return;
        list.room = std::max({kMinCapacity, size, 2 * list.room});
        fits = false;
    });
    if (fits) return;
    int64_t end = 0;
    each(*this, [&](auto& list) {
        using T = typename std::remove_reference_t<decltype(list.values)>::value_type;
        static_assert(kPlaceBytes % sizeof(T) == 0);
        list.offset = end;
        end += (list.room * static_cast<int64_t>(sizeof(T)) + kPlaceBytes - 1) / kPlaceBytes * kPlaceBytes;
    });
    memory_ = DeviceArray<int32_t>(device_, end / static_cast<int64_t>(sizeof(int32_t)));
    pinned_.ensure(end);
    results_.ensure(tokens.offset);
}

void StepLists::upload() {
    make_room();
    if (pinned_.data() == nullptr || memory_.data() == nullptr) return;  // after a device error
    each(*this, [&](const auto& list) {
        if (list.values.empty()) return;
        std::memcpy(pinned_.data() + list.offset, list.values.data(), static_cast<size_t>(bytes_of(list.values)));
    });
    CHECK_LE(upload_bytes(), memory_.count() * static_cast<int64_t>(sizeof(int32_t)));
    device_.upload_later(memory_.data(), pinned_.data(), static_cast<size_t>(upload_bytes()));
}

// Up to the end of the last list that is not empty.
int64_t StepLists::upload_bytes() const {
    int64_t end = 0;
    each(*this, [&](const auto& list) {
        if (!list.values.empty()) end = list.offset + bytes_of(list.values);
    });
    return end;
}

DeviceBatch StepLists::batch() const {
    const auto size = [](const auto& list) { return static_cast<int64_t>(list.values.size()); };
    return {.tokens = place(tokens),
            .positions = place(positions),
            .row_sequences = place(row_sequences),
            .queries = place(queries),
            .tiles = place(tiles),
            .first_runs = place(first_runs),
            .blocks = place(blocks),
            .sequences = place(sequences),
            .writes = place(writes),
            .logit_rows = place(logit_rows),
            .draws = place(draws),
            .counts = place(counts),
            .faults = place(faults),
            .drawn = place(drawn),
            .num_rows = size(tokens),
            .num_sequences = size(sequences),
            .num_logit_rows = size(logit_rows),
            .num_queries = size(queries) - 1,
            .num_tiles = size(tiles) - 1,
            .query_rows = rows_together_,
            .max_blocks = blocks.room,
            .max_writes = writes.room,
            .max_counts = counts.room};
}

DeviceBatch StepLists::moves_batch() const {
    return {.sequences = place(moves), .num_sequences = static_cast<int64_t>(moves.values.size())};
}

void StepLists::download_results() {
    if (results_.data() == nullptr || memory_.data() == nullptr) return;  // after a device error
    CHECK_LE(drawn.offset + bytes_of(drawn.values), tokens.offset);       // results lie before what is uploaded
    device_.download_later(results_.data(), memory_.data(), static_cast<size_t>(drawn.offset + bytes_of(drawn.values)));
}

}  // namespace verbatim::cuda
