#include "tests/kernels/made_up_family.h"

#include <algorithm>
#include <cstring>

#include "engine/base/check.h"

namespace verbatim::tests {
namespace {

using reference::StateDtype;
using reference::StatePer;
using reference::StateTensor;

constexpr int32_t kLayers = 2;
constexpr int64_t kTallySize = 15;
constexpr int64_t kTrailSize = 7;

// One token of one layer, up to its trail.
void count(uint32_t x, std::span<int32_t> tally, std::span<uint16_t> trail) {
    CHECK(std::ssize(tally) == kTallySize && std::ssize(trail) == kTrailSize);
    for (size_t i = 0; i < tally.size(); ++i) {
        const uint32_t element = 31 * static_cast<uint32_t>(tally[i]) + static_cast<uint32_t>(i + 1) * x;
        tally[i] = static_cast<int32_t>(element);
        if (i < trail.size()) trail[i] = static_cast<uint16_t>(element >> 4 & 0x3FFF);  // a number between 0 and 2
    }
}

uint32_t follow(uint32_t x, std::span<const uint16_t> trail) {
    for (const uint16_t bits : trail) x = x * 1000003 + bits;
    return x;
}

std::vector<float> logits_of(uint32_t x, int32_t vocab_size) {
    std::vector<float> logits;
    for (uint32_t v = 1; v <= static_cast<uint32_t>(vocab_size); ++v) {
        logits.push_back(static_cast<float>((v * x) >> 8));  // 24 bits: exact
    }
    return logits;
}

}  // namespace

MadeUpFamily made_up_family() {
    MadeUpFamily family;
    family.config.vocab_size = 60;
    family.config.hidden_size = 1;
    family.config.max_position_embeddings = 10000;
    family.config.layers.resize(kLayers);
    std::vector<StateTensor> tensors;
    for (int32_t layer = 0; layer < kLayers; ++layer) {
        tensors.push_back({layer, kTally, StatePer::kSequence, StateDtype::kInt32, {3, 5}});
        tensors.push_back({layer, kTrail, StatePer::kToken, StateDtype::kBf16, {kTrailSize}});
    }
    family.tensors = reference::StateTensors(std::move(tensors));
    return family;
}

MadeUpState::MadeUpState(const MadeUpFamily& family)
    : tally(family.config.layers.size(), std::vector<int32_t>(kTallySize)), trail(family.config.layers.size()) {}

std::vector<float> compute_made_up(const MadeUpFamily& family, std::span<const TokenId> tokens, MadeUpState& state) {
    uint32_t x = 0;
    for (const TokenId token : tokens) {
        x = static_cast<uint32_t>(token);
        for (size_t layer = 0; layer < state.tally.size(); ++layer) {
            std::vector<uint16_t>& trail = state.trail[layer];
            trail.resize(trail.size() + kTrailSize);
            count(x, state.tally[layer], std::span(trail).last(kTrailSize));
            x = follow(x, trail);
        }
    }
    return logits_of(x, family.config.vocab_size);
}

// --- in pools

MadeUpBackend::MadeUpBackend(const MadeUpFamily& family, const PoolSizes& pools)
    : family_(family),
      block_size_(pools.block_size),
      rows_(family.tensors, pools.num_state_rows),
      blocks_(family.tensors, pools.block_size, pools.num_blocks) {}

void MadeUpBackend::run(const PooledStep& step) {
    for (const BlockCopy& copy : step.copies) blocks_.copy(copy);
    std::vector<uint32_t> x(step.batch.tokens.begin(), step.batch.tokens.end());
    for (int32_t layer = 0; layer < kLayers; ++layer) {
        for (size_t i = 0; i < step.sequences.size(); ++i) {
            const reference::WalkSequence& part = step.batch.sequences[i];
            run_layer(layer, step.sequences[i], part.first_position,
                      std::span(x).subspan(static_cast<size_t>(part.first_row), static_cast<size_t>(part.num_rows)));
        }
    }
    logits_.clear();
    for (const int32_t row : step.batch.logit_rows) logits_.push_back(logits_of(x[row], family_.config.vocab_size));
}

void MadeUpBackend::run_layer(int32_t layer, const PooledSequence& sequence, int64_t first_position,
                              std::span<uint32_t> x) {
    const auto tally = rows_.tensor<int32_t>(sequence.state_dst, layer, kTally);
    if (sequence.state_src == kNoState)
        std::ranges::fill(tally, 0);
    else
        std::ranges::copy(rows_.tensor<int32_t>(sequence.state_src, layer, kTally), tally.begin());
    auto write = sequence.writes.begin();
    for (size_t r = 0; r < x.size(); ++r) {
        const int64_t position = first_position + static_cast<int64_t>(r);
        count(x[r], tally, trail(layer, sequence, position));
        for (int64_t i = 0; i <= position; ++i) x[r] = follow(x[r], trail(layer, sequence, i));
        if (write == sequence.writes.end() || write->length != position + 1) continue;
        std::ranges::copy(tally, rows_.tensor<int32_t>(write->dst, layer, kTally).begin());
        ++write;
    }
}

std::span<uint16_t> MadeUpBackend::trail(int32_t layer, const PooledSequence& sequence, int64_t position) const {
    const auto bytes = blocks_.slot(layer, kTrail, sequence.blocks[position / block_size_],
                                    static_cast<int32_t>(position % block_size_));
    return {reinterpret_cast<uint16_t*>(bytes.data()), bytes.size() / sizeof(uint16_t)};
}

std::span<const std::byte> MadeUpBackend::read_row(const StateTensor& tensor, StateIndex row) {
    return rows_.bytes(row, tensor.layer, tensor.kind);
}

void MadeUpBackend::read_block(const StateTensor& tensor, BlockId block, int32_t num_slots, std::span<std::byte> out) {
    const auto size = static_cast<size_t>(tensor.num_bytes());
    for (int32_t slot = 0; slot < num_slots; ++slot) {
        blocks_.read(tensor, block, slot, out.subspan(static_cast<size_t>(slot) * size, size));
    }
}

void MadeUpBackend::write_row(const StateTensor& tensor, StateIndex row, std::span<const std::byte> bytes) {
    std::ranges::copy(bytes, rows_.bytes(row, tensor.layer, tensor.kind).begin());
}

void MadeUpBackend::write_block(const StateTensor& tensor, BlockId block, int32_t num_slots,
                                std::span<const std::byte> bytes) {
    const auto size = static_cast<size_t>(tensor.num_bytes());
    for (int32_t slot = 0; slot < num_slots; ++slot) {
        blocks_.write(tensor, block, slot, bytes.subspan(static_cast<size_t>(slot) * size, size));
    }
}

// --- from the first token on

void MadeUpWitness::compute(const StepPlan& plan) {
    logits_.resize(static_cast<size_t>(tables().num_slots()));
    for (const ScheduledSequence& sequence : plan.sequences) {
        const auto end = static_cast<size_t>(sequence.num_computed_tokens + sequence.num_new_tokens);
        MadeUpState state(family_);
        logits_[index(sequence.slot)] =
            compute_made_up(family_, std::span(tables().at(sequence.slot).tokens).first(end), state);
    }
}

bool MadeUpWitness::read_head(const HeadImage& image, const reference::HeadReader& reader) {
    if (image.writer == kNoSlot || !tables().is_live(image.writer)) return false;
    const std::span<const TokenId> tokens(tables().at(image.writer).tokens);
    MadeUpState state(family_);
    compute_made_up(family_, tokens.first(static_cast<size_t>(image.length)), state);
    if (spoil) spoil(state);
    for (const StateTensor& tensor : this->tensors()) {
        const size_t layer = static_cast<size_t>(tensor.layer);
        reader({tensor, tensor.kind == kTally ? std::as_bytes(std::span(state.tally[layer]))
                                              : std::as_bytes(std::span(state.trail[layer]))});
    }
    return true;
}

}  // namespace verbatim::tests
