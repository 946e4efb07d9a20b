#include "tests/support/hash_executor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/base/check.h"

namespace verbatim::tests {
namespace {

constexpr int64_t kBeforeAllSteps = std::numeric_limits<int64_t>::min();
constexpr uint64_t kEmptyPrefix = 0x243f6a8885a308d3u;   // of no tokens; the digits of pi
constexpr uint64_t kOrdinarySalt = 0x13198a2e03707344u;  // more of them

uint64_t mix(uint64_t x) {  // the splitmix64 finaliser
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

uint64_t extend(uint64_t prefix, uint64_t value) { return mix(prefix * 0x9e3779b97f4a7c15u + value + 1); }

// prefixes[p] = hash of tokens [0, p].
void hash_prefixes(std::span<const TokenId> tokens, std::vector<uint64_t>& prefixes) {
    prefixes.clear();
    prefixes.reserve(tokens.size());
    uint64_t prefix = kEmptyPrefix;
    for (const TokenId token : tokens) prefixes.push_back(prefix = extend(prefix, static_cast<uint64_t>(token)));
}

}  // namespace

HashExecutor::HashExecutor(HashExecutorConfig config)
    : config_(std::move(config)),
      tables_({config_.vocab_size, config_.pools, config_.max_log_tokens, true}),
      kv_(static_cast<size_t>(config_.pools.num_blocks) * config_.pools.block_size),
      states_(config_.pools.num_state_rows) {}

Status HashExecutor::execute(const StepPlan& plan, StepResult& result) {
    if (complete_masks_) complete_masks_();
    if (fails_at(plan.step)) {
        tables_ = SlotTables(tables_.config());  // every slot is forgotten, the pools' bytes are kept
        return error("step {}: told to fail", plan.step);
    }
    if (plan.step <= step_) return error("step {} follows step {}", plan.step, step_);
    const size_t violations_before = violations_.size();
    if (Status applied = tables_.apply(plan); !applied) {
        violate(applied.error().message);
        return applied;
    }
    check_attached(plan);
    step_ = plan.step;
    clear_new_blocks(plan);
    copy_tails(plan);
    result.clear(plan.step);
    logs_.resize(static_cast<size_t>(tables_.num_slots()));
    for (const ScheduledSequence& sequence : plan.sequences) {
        compute(plan, sequence);
        if (sequence.num_sampled_positions > 0) draw(sequence, result);
    }
    tables_.advance(plan, result.drawn);
    result.materialised_through_step = plan.step - config_.lag_steps;
    if (config_.fail_on_violation && violations_.size() > violations_before) {
        return error("{}", violations_[violations_before]);
    }
    return {};
}

bool HashExecutor::fails_at(int64_t step) const {
    const uint64_t one_in = config_.fail_one_in;
    return step == config_.fail_at_step ||
           (one_in > 0 && mix(static_cast<uint64_t>(step) + kEmptyPrefix) % one_in == 0);
}

HashExecutor::Makers HashExecutor::maker(Arithmetic arithmetic) const {
    return has_two_arithmetics() && arithmetic == Arithmetic::kOrdinary ? 2 : 1;
}

// For ordinary sequences all bytes are equal: no bits are promised.
uint64_t HashExecutor::read_by(Arithmetic arithmetic, const Cell& cell) const {
    const bool foreign = maker(arithmetic) == 1 && cell.made_by > 1;
    return foreign ? cell.prefix ^ kOrdinarySalt : cell.prefix;
}

std::vector<BlockId> HashExecutor::blocks_of(const HeadImage& image) const {
    std::vector<BlockId> blocks;
    blocks.reserve(static_cast<size_t>(image.length / config_.pools.block_size + 1));
    for (const BlockRun& run : image.blocks) {
        for (int32_t i = 0; i < run.count; ++i) blocks.push_back(BlockId{index(run.first) + i});
    }
    return blocks;
}

std::string HashExecutor::numerics_of(const HeadImage& image) {
    const std::vector<BlockId> blocks = blocks_of(image);
    Makers makers = config_.pools.num_state_rows > 0 ? states_[index(image.state)].made_by : Makers{0};
    for (int64_t p = 0; p < image.length && config_.pools.num_blocks > 0; ++p) makers |= cell(blocks, p).made_by;
    return numerics_of(makers);
}

std::string HashExecutor::numerics_of(Makers makers) const {
    if (makers == 1) return numerics_id();
    return makers == 2 ? ordinary_numerics_id() : kMixedNumericsId;
}

std::optional<Digest> HashExecutor::head_digest(const HeadImage& image) {
    const std::vector<BlockId> blocks = blocks_of(image);
    const int64_t num_slots = static_cast<int64_t>(blocks.size()) * config_.pools.block_size;
    if (config_.pools.num_blocks > 0 && num_slots < image.length) {
        violate(fmt::format("a head of {} tokens has {} blocks", image.length, blocks.size()));
        return std::nullopt;
    }
    Digester digester;
    digester.add(image.length);
    Makers makers = 0;
    for (int64_t p = 0; p < image.length && config_.pools.num_blocks > 0; ++p) {
        const Cell& read = cell(blocks, p);
        makers |= read.made_by;
        if (read.position != p) violate(fmt::format("a head's position {} holds position {}", p, read.position));
        digester.add(read.prefix);
    }
    if (config_.pools.num_state_rows > 0) {
        if (index(image.state) < 0 || index(image.state) >= config_.pools.num_state_rows) {
            violate(fmt::format("a head has state row {} of {}", index(image.state), config_.pools.num_state_rows));
            return std::nullopt;
        }
        const Cell& row = states_[index(image.state)];
        if (row.position != image.length) {
            violate(fmt::format("a head of {} tokens has a state after {}", image.length, row.position));
        }
        makers |= row.made_by;
        digester.add(row.prefix);
    }
    if (image.deterministic && image.length > 0 && makers != 1) {
        violate(fmt::format("a head of {} tokens is deterministic, and its bytes are {}", image.length,
                            numerics_of(makers)));
    }
    return digester.digest();
}

std::vector<HashExecutor::Cell*> HashExecutor::cells_of(const HeadImage& image) {
    std::vector<Cell*> cells;
    if (config_.pools.num_state_rows > 0) cells.push_back(&states_[index(image.state)]);
    const std::vector<BlockId> blocks = blocks_of(image);
    for (int64_t p = 0; p < image.length && config_.pools.num_blocks > 0; ++p) cells.push_back(&cell(blocks, p));
    return cells;
}

std::optional<std::vector<std::byte>> HashExecutor::head_bytes(const HeadImage& image) {
    std::vector<std::byte> bytes;
    for (const Cell* cell : cells_of(image)) {
        for (const uint64_t word : {static_cast<uint64_t>(cell->position), cell->prefix, uint64_t{cell->made_by}}) {
            const auto part = std::as_bytes(std::span(&word, 1));
            bytes.insert(bytes.end(), part.begin(), part.end());
        }
    }
    return bytes;
}

Status HashExecutor::check_head(int64_t length, std::span<const std::byte> bytes, const Digest&) const {
    const int64_t num_cells = (config_.pools.num_state_rows > 0 ? 1 : 0) + (config_.pools.num_blocks > 0 ? length : 0);
    if (static_cast<int64_t>(bytes.size()) == num_cells * kCellBytes) return {};
    return error("{} bytes for a head of {} tokens", bytes.size(), length);
}

Status HashExecutor::write_head(const HeadImage& image, std::span<const std::byte> bytes) {
    const std::vector<Cell*> cells = cells_of(image);
    const auto num_rows = static_cast<size_t>(config_.pools.num_state_rows > 0 ? 1 : 0);
    const auto num_resident = static_cast<size_t>(image.num_resident_blocks * config_.pools.block_size);
    for (size_t i = 0; i < cells.size(); ++i) {
        Cell* cell = cells[i];
        std::array<uint64_t, 3> words{};
        std::memcpy(words.data(), bytes.data(), kCellBytes);
        bytes = bytes.subspan(kCellBytes);
        if (i >= num_rows && i < num_rows + num_resident) continue;
        *cell = {static_cast<int64_t>(words[0]), words[1], kBeforeAllSteps, static_cast<Makers>(words[2])};
    }
    CHECK(bytes.empty(), "{} bytes are left", bytes.size());
    return {};
}

TokenId HashExecutor::expected_token(std::span<const TokenId> tokens, const SamplingParams& sampling,
                                     Arithmetic arithmetic) const {
    CHECK(!tokens.empty());
    uint64_t prefix = kEmptyPrefix;
    uint64_t read_hash = 0;
    for (const TokenId token : tokens) {
        prefix = extend(prefix, static_cast<uint64_t>(token));
        if (config_.pools.num_blocks > 0) read_hash = extend(read_hash, prefix);
    }
    if (config_.pools.num_state_rows > 0) read_hash = extend(read_hash, prefix);
    return draw(read_hash, static_cast<int64_t>(tokens.size()), sampling, arithmetic);
}

Digest HashExecutor::expected_digest(std::span<const TokenId> tokens) const {
    std::vector<uint64_t> prefixes;
    hash_prefixes(tokens, prefixes);
    Digester digester;
    digester.add(static_cast<int64_t>(tokens.size()));
    for (size_t p = 0; p < tokens.size() && config_.pools.num_blocks > 0; ++p) digester.add(prefixes[p]);
    if (config_.pools.num_state_rows > 0) digester.add(prefixes.empty() ? kEmptyPrefix : prefixes.back());
    return digester.digest();
}

void HashExecutor::violate(std::string what) { violations_.push_back(std::move(what)); }

HashExecutor::Cell& HashExecutor::cell(std::span<const BlockId> blocks, int64_t position) {
    const BlockId block = blocks[position / config_.pools.block_size];
    CHECK(index(block) >= 0 && index(block) < config_.pools.num_blocks, "block {} of {}", index(block),
          config_.pools.num_blocks);
    return kv_[static_cast<size_t>(index(block)) * config_.pools.block_size + position % config_.pools.block_size];
}

void HashExecutor::clear_new_blocks(const StepPlan& plan) {
    for (const ScheduledSequence& sequence : plan.sequences) {
        for (const BlockRun& run : plan.new_blocks(sequence)) {
            const auto first = kv_.begin() + static_cast<int64_t>(index(run.first)) * config_.pools.block_size;
            std::fill_n(first, static_cast<int64_t>(run.count) * config_.pools.block_size, Cell{});
        }
    }
}

// Whether an older slot of its request lives.
bool HashExecutor::is_branch(SequenceSlot slot) const {
    const SlotTable& table = tables_.at(slot);
    for (int32_t other = 0; other < tables_.num_slots(); ++other) {
        if (!tables_.is_live(SequenceSlot{other})) continue;
        const SlotTable& at = tables_.at(SequenceSlot{other});
        if (at.request == table.request && at.admission < table.admission) return true;
    }
    return false;
}

// X3, before the plan writes anything. Whether it is the right content is checked when it is read.
void HashExecutor::check_attached(const StepPlan& plan) {
    const auto check = [&](const Cell& cell, SequenceSlot slot, const char* what, int64_t place) {
        const int64_t readable = is_branch(slot) ? step_ : step_ - config_.lag_steps;
        if (cell.step <= readable) return;
        violate(fmt::format("step {}: attaches {} {}, written in step {}, but only step {} is materialised", plan.step,
                            what, place, cell.step, readable));
    };
    for (const SequenceStart& start : plan.new_sequences) {
        if (config_.pools.num_blocks == 0) break;
        const std::vector<BlockId>& blocks = tables_.at(start.slot).blocks;
        const int64_t length = start.num_computed_tokens / config_.pools.block_size * config_.pools.block_size;
        for (int64_t p = 0; p < length; ++p) check(cell(blocks, p), start.slot, "position", p);
        for (const BlockCopy& copy : plan.copies) {
            if (std::ranges::find(blocks, copy.dst) == blocks.end()) continue;
            const auto first = static_cast<size_t>(index(copy.src)) * config_.pools.block_size;
            for (int32_t i = 0; i < copy.num_slots; ++i) {
                check(kv_[first + i], start.slot, "a tail of block", index(copy.src));
            }
        }
    }
    for (const ScheduledSequence& sequence : plan.sequences) {
        const bool is_own = sequence.state_src == tables_.at(sequence.slot).state;
        if (sequence.state_src == kNoState || is_own) continue;
        check(states_[index(sequence.state_src)], sequence.slot, "state row", index(sequence.state_src));
    }
}

void HashExecutor::copy_tails(const StepPlan& plan) {
    for (const BlockCopy& copy : plan.copies) {
        const auto src = kv_.begin() + static_cast<int64_t>(index(copy.src)) * config_.pools.block_size;
        const auto dst = kv_.begin() + static_cast<int64_t>(index(copy.dst)) * config_.pools.block_size;
        std::copy_n(src, copy.num_slots, dst);
        for (int32_t i = 0; i < copy.num_slots; ++i) dst[i].step = plan.step;
    }
}

// Writes the new positions' KV and the state, and the states asked for on the way.
void HashExecutor::compute(const StepPlan& plan, const ScheduledSequence& sequence) {
    const SlotTable& table = tables_.at(sequence.slot);
    const int64_t begin = table.length;
    const int64_t end = sequence.end();
    hash_prefixes(std::span(table.tokens).first(end), prefixes_);
    arithmetic_ = sequence.arithmetic;
    const Makers made_by = maker(arithmetic_);
    num_computed_tokens_ += sequence.num_new_tokens;
    if (config_.pools.num_blocks > 0) {
        for (int64_t p = begin; p < end; ++p) cell(table.blocks, p) = {p, prefixes_[p], plan.step, made_by};
    }
    if (config_.pools.num_state_rows == 0) return;
    Cell state = replay(sequence);
    if (sequence.num_new_tokens == 0) states_[index(sequence.state_dst)] = state;
    auto writes = plan.writes_of(sequence);
    draw_states_.clear();
    for (int64_t p = begin; p < end; ++p) {
        state.prefix = extend(state.prefix, static_cast<uint64_t>(table.tokens[p]));
        ++state.position;
        state.made_by |= made_by;
        if (p + 1 == sequence.known_end() && sequence.state_dst != kNoState) states_[index(sequence.state_dst)] = state;
        if (p >= end - sequence.num_sampled_positions) draw_states_.push_back(state);
        if (writes.empty() || writes.front().length != p + 1) continue;
        states_[index(writes.front().dst)] = state;
        writes = writes.subspan(1);
    }
    log(sequence);
}

// The state at the first new position: the row's, and what the log has behind it.
HashExecutor::Cell HashExecutor::replay(const ScheduledSequence& sequence) {
    const int64_t begin = sequence.num_computed_tokens;
    Cell state{0, kEmptyPrefix, step_, 0};
    if (sequence.state_src != kNoState) {
        state = states_[index(sequence.state_src)];
        state.step = step_;
    }
    const auto& log = logs_[index(sequence.slot)];
    const auto num_logged = static_cast<size_t>(begin - sequence.num_state_tokens);
    if (num_logged > log.size()) {
        violate(fmt::format("step {}: slot {} replays {} tokens, its log has {}", step_, index(sequence.slot),
                            num_logged, log.size()));
    }
    for (size_t i = 0; i < std::min(num_logged, log.size()); ++i) {
        if (log[i].position != state.position) {
            violate(fmt::format("step {}: slot {} replays position {} as {}", step_, index(sequence.slot),
                                log[i].position, state.position));
        }
        state.prefix = extend(state.prefix, static_cast<uint64_t>(log[i].token));
        state.made_by |= maker(arithmetic_);
        ++state.position;
    }
    check_cell(state, begin, begin == 0 ? kEmptyPrefix : prefixes_[begin - 1],
               {"state row", index(sequence.state_src)});
    return state;
}

// What the next step may have to replay: all behind the row that was written last.
void HashExecutor::log(const ScheduledSequence& sequence) {
    auto& log = logs_[index(sequence.slot)];
    const bool moved = sequence.state_dst != kNoState;
    log.resize(moved ? 0 : static_cast<size_t>(sequence.num_computed_tokens - sequence.num_state_tokens));
    const auto& tokens = tables_.at(sequence.slot).tokens;
    for (int64_t p = moved ? sequence.known_end() : sequence.num_computed_tokens; p < sequence.end(); ++p) {
        log.push_back({p, tokens[p]});
    }
}

void HashExecutor::draw(const ScheduledSequence& sequence, StepResult& result) {
    std::vector<TokenId> accepted;
    for (int64_t end = sequence.known_end(); end <= sequence.end(); ++end) {
        auto token = draw_at(sequence, end);
        const uint64_t one_in = config_.wrong_draft_one_in;
        if (token && one_in > 0 && is_branch(sequence.slot) &&
            mix(static_cast<uint64_t>(step_ * 1000 + end)) % one_in == 0)
            token = (*token + 1) % config_.vocab_size;
        if (!token) return result.add(sequence.slot, accepted, 0);
        accepted.push_back(*token);
        if (end < sequence.end() && tables_.at(sequence.slot).tokens[end] != *token) break;
    }
    result.add(sequence.slot, accepted);
}

// The token that follows the first `end` ones; empty when there is a fault.
std::optional<TokenId> HashExecutor::draw_at(const ScheduledSequence& sequence, int64_t end) {
    const SlotTable& table = tables_.at(sequence.slot);
    if (table.tokens[end - 1] == config_.fault_token) return std::nullopt;
    uint64_t read_hash = 0;
    for (int64_t p = 0; p < end && config_.pools.num_blocks > 0; ++p) {
        const Cell& read = cell(table.blocks, p);
        check_cell(read, p, prefixes_[p], {"slot", index(sequence.slot)});
        read_hash = extend(read_hash, read_by(arithmetic_, read));
    }
    if (config_.pools.num_state_rows > 0) {
        const auto row = static_cast<size_t>(end - sequence.known_end());
        read_hash = extend(read_hash, read_by(arithmetic_, draw_states_[row]));
    }
    return draw(read_hash, end, table.sampling, arithmetic_);
}

void HashExecutor::check_cell(const Cell& cell, int64_t position, uint64_t prefix, Reader reader) {
    if (maker(arithmetic_) == 1 && cell.made_by > 1) {
        violate(fmt::format("step {}: {} {} is deterministic and reads position {}, made in ordinary arithmetic", step_,
                            reader.what, reader.number, position));
    }
    if (cell.position == position && cell.prefix == prefix) return;
    violate(fmt::format("step {}: {} {} reads position {}, but finds {}", step_, reader.what, reader.number, position,
                        cell.position < 0           ? "nothing"
                        : cell.position != position ? fmt::format("position {}", cell.position)
                                                    : "that of other tokens"));
}

TokenId HashExecutor::draw(uint64_t read_hash, int64_t position, const SamplingParams& sampling,
                           Arithmetic arithmetic) const {
    uint64_t hash = extend(read_hash, static_cast<uint64_t>(position));
    if (config_.draws != 0) hash = extend(hash, config_.draws);
    if (sampling.temperature > 0) hash = extend(hash, sampling.seed ^ std::bit_cast<uint32_t>(sampling.temperature));
    const uint64_t ordinary = mix(hash ^ kOrdinarySalt);
    if (maker(arithmetic) == 2 && ordinary % 4 == 0) hash = ordinary;
    return static_cast<TokenId>(hash % static_cast<uint64_t>(config_.vocab_size));
}

}  // namespace verbatim::tests
