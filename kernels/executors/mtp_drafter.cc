#include "kernels/executors/mtp_drafter.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "reference/ops/rms_norm.h"
#include "reference/ops/sampling.h"

namespace verbatim::executors {

using reference::Observation;

namespace {

constexpr RequestId kNoRequest{-1};

// Whether the largest logit is the token.
bool is_greedy(const SamplingParams& sampling) {
    return sampling.temperature == 0 && !reference::has_penalties(sampling) && sampling.logit_bias.empty() &&
           sampling.min_tokens == 0;
}

}  // namespace

MtpDrafter::MtpDrafter(const MtpDrafterConfig& config, const reference::Model& model, PooledExecutor& layer,
                       const Engine& engine)
    : config_(config), model_(model), layer_(layer), engine_(engine), scratch_(layer, config.pools) {
    CHECK(model.mtp && layer.config().reads_hidden && config.pools.num_state_rows == 0);
    CHECK(config.max_num_slots > 0 && config.step_tokens > 0);
    for (const float weight : model.weights.final_norm)
        final_norm_.push_back(model.config.norm_plus_one ? weight + 1.0F : weight);
    layer_.set_observer([this](const Observation& seen) { keep_own_row(seen); });
    layer_.read_hidden_from([this](SequenceSlot slot, int64_t, reference::FloatRows rows) {
        const Slot& of = slots_[index(slot)];
        CHECK_EQ(static_cast<int64_t>(of.fed.size()), rows.num_rows * rows.width);
        for (int64_t r = 0; r < rows.num_rows; ++r)
            std::copy_n(of.fed.begin() + r * rows.width, rows.width, rows.row(r));
    });
}

void MtpDrafter::listen_to(PooledExecutor* executor) {
    if (computing_ != nullptr) computing_->show_hidden_rows_to(nullptr);
    computing_ = executor;
    if (computing_ == nullptr) return;
    // What the one before showed last may be of a step that failed.
    for (int32_t at = 0; at < static_cast<int32_t>(slots_.size()); ++at) give_up(at);
    CHECK_EQ(computing_->config().hidden_size, model_.config.hidden_size);
    computing_->show_hidden_rows_to([this](const Observation& seen) { see(seen); });
}

// --- hidden rows

// Rows of a step, after the final norm, behind those that wait. A position that comes again takes the place of the
// earlier row and of those behind it: they were of drafts that were withdrawn, or of a preempted turn.
void MtpDrafter::see(const Observation& seen) {
    const RequestId request = computing_->tables().at(seen.slot).request;
    const int32_t at = slot_for(request, seen.first_position);
    if (at < 0) return;
    Slot& slot = slots_[at];
    const int64_t hidden = model_.config.hidden_size;
    CHECK_EQ(seen.rows.width, hidden);
    const int64_t kept = seen.first_position - slot.first_waiting;
    const bool follows = kept >= 0 && kept <= num_waiting(slot);
    if (!follows) slot.first_waiting = seen.first_position;
    slot.waiting.resize(static_cast<size_t>((follows ? kept : 0) * hidden));
    const size_t begin = slot.waiting.size();
    slot.waiting.resize(begin + static_cast<size_t>(seen.rows.num_rows * hidden));
    reference::rms_norm({.x = seen.rows,
                         .weight = final_norm_.data(),
                         .eps = static_cast<float>(model_.config.norm_eps),
                         .out = reference::dense_rows(slot.waiting.data() + begin, seen.rows.num_rows, hidden)});
}

// Of the row that a guess was drawn from, after the layer's norm.
void MtpDrafter::keep_own_row(const Observation& seen) {
    if (seen.point.op != reference::WalkOp::kFinalNorm) return;
    CHECK_EQ(seen.rows.num_rows, 1);
    slots_[index(seen.slot)].own.assign(seen.rows.row(0), seen.rows.row(0) + seen.rows.width);
}

int64_t MtpDrafter::num_waiting(const Slot& slot) const {
    return static_cast<int64_t>(slot.waiting.size()) / model_.config.hidden_size;
}

// --- slots

void MtpDrafter::free_all() {
    scratch_.forget();
    slots_.clear();
    slot_of_.clear();
}

// The request's tokens so far. False: the engine does not know it.
bool MtpDrafter::learn_tokens(Slot& slot) const {
    const Sequence* sequence = engine_.find(slot.request);
    if (sequence == nullptr) return false;
    const int64_t num_outputs = static_cast<int64_t>(slot.known.size()) - slot.num_prompt;
    CHECK_LE(num_outputs, static_cast<int64_t>(sequence->output.size()));
    slot.known.insert(slot.known.end(), sequence->output.begin() + num_outputs, sequence->output.end());
    return true;
}

// The ended request's slot of the salt that has most rows of these tokens before the position; -1: none has any.
int32_t MtpDrafter::continued_slot(const CacheSalt& salt, std::span<const TokenId> prompt,
                                   int64_t first_position) const {
    int32_t best = -1;
    int64_t most = 0;
    for (int32_t i = 0; i < static_cast<int32_t>(slots_.size()); ++i) {
        const Slot& slot = slots_[i];
        if (slot.request != kNoRequest || slot.positions.empty() || slot.salt != salt) continue;
        const int64_t common = std::ranges::mismatch(slot.known, prompt).in1 - slot.known.begin();
        const auto end = std::ranges::lower_bound(slot.positions, std::min(common - 1, first_position));
        // Fewer than half of them would be worth less than what another request may go on with.
        if (2 * (end - slot.positions.begin()) < first_position) continue;
        if (end - slot.positions.begin() > most) {
            most = end - slot.positions.begin();
            best = i;
        }
    }
    return best;
}

// Of those that were not used in this round, an ended one if there is one, then the one used longest ago; -1: none.
int32_t MtpDrafter::oldest_slot(bool with_blocks) const {
    int32_t oldest = -1;
    const auto rank = [this](int32_t i) { return std::pair(slots_[i].request != kNoRequest, slots_[i].last_used); };
    for (int32_t i = 0; i < static_cast<int32_t>(slots_.size()); ++i) {
        const Slot& slot = slots_[i];
        if (slot.last_used == round_ || (with_blocks && slot.blocks.empty())) continue;
        if (slot.request == kNoRequest && slot.positions.empty()) continue;  // free
        if (oldest < 0 || rank(i) < rank(oldest)) oldest = i;
    }
    return oldest;
}

// Rows that the ended request has of these tokens stay.
void MtpDrafter::go_on(Slot& slot, std::span<const TokenId> prompt, int64_t first_position) {
    const int64_t common = std::ranges::mismatch(slot.known, prompt).in1 - slot.known.begin();
    const int64_t end = std::min(common - 1, first_position);
    slot.positions.erase(std::ranges::lower_bound(slot.positions, end), slot.positions.end());
    keep_waiting(slot, end);
    CHECK(!slot.positions.empty(), "nothing of {} tokens is left", common);
    ++num_continued_;
}

// A free one, or the oldest; -1: all are used in this round.
int32_t MtpDrafter::free_slot() {
    const auto free = std::ranges::find_if(
        slots_, [](const Slot& slot) { return slot.request == kNoRequest && slot.positions.empty(); });
    if (free != slots_.end()) return static_cast<int32_t>(free - slots_.begin());
    if (std::ssize(slots_) < config_.max_num_slots) {
        slots_.emplace_back();
        return static_cast<int32_t>(slots_.size()) - 1;
    }
    const int32_t oldest = oldest_slot(false);
    if (oldest >= 0) give_up(oldest);
    return oldest;
}

// The request's slot; for one that is new here an ended request's whose tokens it continues, or a free one. -1: there
// is none.
int32_t MtpDrafter::slot_for(RequestId request, int64_t first_position) {
    if (const auto own = slot_of_.find(request); own != slot_of_.end()) return own->second;
    const Sequence* sequence = engine_.find(request);
    if (sequence == nullptr) return -1;
    std::vector<TokenId> prompt = sequence->turn.prompt.to_vector();
    const ChatRequest& asked = sequence->request;
    int32_t at = asked.use_cache ? continued_slot(asked.conversation.salt, prompt, first_position) : -1;
    if (at >= 0)
        go_on(slots_[at], prompt, first_position);
    else
        at = free_slot();
    if (at < 0) return -1;
    Slot& slot = slots_[at];
    slot.request = request;
    slot.salt = asked.conversation.salt;
    slot.uses_cache = asked.use_cache;
    slot.num_prompt = static_cast<int64_t>(prompt.size());
    slot.known = std::move(prompt);
    slot.num_known = -1;
    slot.last_used = round_;
    slot_of_[request] = at;
    CHECK(at < config_.max_num_slots && slot_of_.size() <= slots_.size(), "slot {} of {}", at, config_.max_num_slots);
    return at;
}

void MtpDrafter::give_up(int32_t at) {
    Slot& slot = slots_[at];
    scratch_.end(at, slot);
    CHECK(slot_of_.erase(slot.request) == 1 || slot.request == kNoRequest, "slot {} is of no request", at);
    slot = Slot{};
}

// All but twice of what may wait.
void MtpDrafter::give_memory_back(std::vector<float>& rows) const {
    const auto most = static_cast<size_t>(2 * kMostWaiting * model_.config.hidden_size);
    if (rows.capacity() > most && rows.capacity() > 2 * rows.size()) rows.shrink_to_fit();
}

// Those of positions below `end`.
void MtpDrafter::keep_waiting(Slot& slot, int64_t end) const {
    const int64_t kept = std::clamp<int64_t>(end - slot.first_waiting, 0, num_waiting(slot));
    slot.waiting.resize(static_cast<size_t>(kept * model_.config.hidden_size));
    give_memory_back(slot.waiting);
}

// Its KV stays, for a request that continues its tokens.
void MtpDrafter::ended(RequestId request) {
    const auto found = slot_of_.find(request);
    if (found == slot_of_.end()) return;
    const int32_t at = found->second;
    Slot& slot = slots_[at];
    static_cast<void>(learn_tokens(slot));
    if (slot.positions.empty() || !slot.uses_cache) return give_up(at);
    keep_waiting(slot, std::ssize(slot.known) - 1);
    slot_of_.erase(found);
    slot.request = kNoRequest;
    slot.guesses.clear();
}

bool MtpDrafter::make_room(int32_t at, int64_t num_tokens) {
    if (config_.pools.num_blocks == 0) return false;  // the layer has KV, and no memory for it
    const auto missing = [&] { return scratch_.num_missing_blocks(slots_[at], num_tokens); };
    int64_t num_available = scratch_.num_free_blocks();
    for (const Slot& slot : slots_) num_available += slot.last_used == round_ ? 0 : std::ssize(slot.blocks);
    if (missing() > num_available) return false;  // nothing is given up for it
    while (missing() > scratch_.num_free_blocks()) {
        const int32_t oldest = oldest_slot(true);
        CHECK_GE(oldest, 0);
        give_up(oldest);
    }
    scratch_.grow(slots_[at], num_tokens);
    return true;
}

// --- drafting

// Rows that nothing asks for are taken in before there are many: those of prompts, and of requests that pause.
void MtpDrafter::step_begins() {
    ++round_;
    std::vector<Share> shares;
    for (const auto& [request, at] : slot_of_) {
        Slot& slot = slots_[at];
        if (num_waiting(slot) < kMostWaiting || !learn_tokens(slot)) continue;
        // The last one is left for a draft: a guess is drawn from it.
        const int64_t count = rows_to_take(slot, static_cast<int64_t>(slot.known.size()) - 2);
        if (count == 0) continue;
        slot.last_used = round_;
        shares.push_back({at, count});
    }
    std::erase_if(shares, [this](const Share& share) { return !add_room(share, 0); });
    if (!take_in(shares)) free_all();
}

void MtpDrafter::step_begins_undrafted() {
    ++round_;
    for (const auto& [request, at] : slot_of_) {
        Slot& slot = slots_[at];
        const int64_t count = num_waiting(slot) - kKeptUndrafted;
        if (count + kKeptUndrafted < kMostWaiting) continue;
        slot.waiting.erase(slot.waiting.begin(), slot.waiting.begin() + count * model_.config.hidden_size);
        slot.first_waiting += count;
        give_memory_back(slot.waiting);
    }
}

void MtpDrafter::draft(std::span<DraftJob> jobs) {
    std::vector<Share> shares;
    for (DraftJob& job : jobs) {
        CHECK(job.max_drafts >= 1 && job.drafts.empty(), "request {}: {} drafts of {}", index(job.request),
              job.drafts.size(), job.max_drafts);
        const auto own = slot_of_.find(job.request);
        if (own == slot_of_.end() || !learn_tokens(slots_[own->second])) continue;
        Slot& slot = slots_[own->second];
        const auto num_known = static_cast<int64_t>(slot.known.size());
        if (slot.num_known == num_known) {  // it was asked before, and got no share of the step
            const auto count = std::min(slot.guesses.size(), static_cast<size_t>(job.max_drafts));
            job.drafts.assign(slot.guesses.begin(), slot.guesses.begin() + static_cast<std::ptrdiff_t>(count));
            continue;
        }
        const int64_t count = rows_to_take(slot, num_known - 1);
        // Without the row of the last position but one there is nothing to guess from.
        if (count == 0 || slot.first_waiting + count != num_known - 1) continue;
        slot.last_used = round_;
        shares.push_back({own->second, count, &job});
    }
    std::erase_if(shares, [this](const Share& share) { return !add_room(share, share.job->max_drafts - 1); });
    if (!take_in(shares) || !guess(shares)) free_all();
}

// How many waiting rows of positions below `end` the layer has not taken in; those that it has are dropped.
int64_t MtpDrafter::rows_to_take(Slot& slot, int64_t end) const {
    const int64_t next = slot.positions.empty() ? 0 : slot.positions.back() + 1;
    const int64_t known = std::clamp<int64_t>(next - slot.first_waiting, 0, num_waiting(slot));
    slot.waiting.erase(slot.waiting.begin(), slot.waiting.begin() + known * model_.config.hidden_size);
    slot.first_waiting += known;
    give_memory_back(slot.waiting);
    return std::clamp<int64_t>(end - slot.first_waiting, 0, num_waiting(slot));
}

// False: there is no memory for the rows and the guesses' rows; what waits is given up.
bool MtpDrafter::add_room(const Share& share, int64_t num_guessed) {
    Slot& slot = slots_[share.slot];
    CHECK_EQ(slot.last_used, round_);  // make_room() takes it from none of this round
    if (make_room(share.slot, std::ssize(slot.positions) + share.num_rows + num_guessed)) return true;
    slot.waiting.clear();
    return false;
}

// Guesses of earlier windows leave the layer's KV.
bool MtpDrafter::fall_back(std::span<const Share> shares) {
    for (const Share& share : shares) {
        Slot& slot = slots_[share.slot];
        CHECK_LE(std::ssize(slot.positions), slot.length);
        if (std::ssize(slot.positions) == slot.length) continue;
        slot.length = std::ssize(slot.positions);
        plan(share.slot, {}, {});
    }
    return scratch_.step();
}

bool MtpDrafter::take_in(std::vector<Share>& shares) {
    std::ranges::stable_sort(shares, {}, [this](const Share& share) { return slots_[share.slot].order(); });
    if (!fall_back(shares)) return false;
    while (std::ranges::any_of(shares, [](const Share& share) { return share.num_rows > 0; }))
        if (!take_chunk(shares)) return false;
    return true;
}

// One step of the layer; a share with a job makes its first guess with its last row.
bool MtpDrafter::take_chunk(std::span<Share> shares) {
    int64_t budget = config_.step_tokens;
    std::vector<Share*> drawing;
    std::vector<std::pair<int32_t, int64_t>> taken;  // slots and their rows
    for (Share& share : shares) {
        const int64_t count = std::min(budget, share.num_rows);
        if (count == 0) continue;
        budget -= count;
        share.num_rows -= count;
        taken.emplace_back(share.slot, count);
        Slot& slot = slots_[share.slot];
        CHECK_LT(slot.first_waiting + count, std::ssize(slot.known));  // a row goes with the token behind it
        const auto tokens = std::span(slot.known).subspan(static_cast<size_t>(slot.first_waiting) + 1);
        const auto num_floats = static_cast<size_t>(count * model_.config.hidden_size);
        ScheduledSequence& sequence =
            plan(share.slot, tokens.first(static_cast<size_t>(count)), std::span(slot.waiting).first(num_floats));
        if (share.num_rows > 0 || share.job == nullptr) continue;
        sequence.num_sampled_positions = 1;
        slot.guesses.clear();
        slot.num_known = std::ssize(slot.known);
        drawing.push_back(&share);
    }
    if (!scratch_.step()) return false;
    for (const auto& [at, count] : taken) drop_taken(slots_[at], count);
    take_guesses(drawing);
    return true;
}

void MtpDrafter::drop_taken(Slot& slot, int64_t count) {
    for (int64_t i = 0; i < count; ++i) slot.positions.push_back(slot.first_waiting++);
    slot.waiting.erase(slot.waiting.begin(), slot.waiting.begin() + count * model_.config.hidden_size);
    num_taken_in_ += count;
    CHECK_EQ(std::ssize(slot.positions), slot.length);
}

// One guess after another, each from the layer's own row at the one before.
bool MtpDrafter::guess(std::span<Share> shares) {
    for (;;) {
        std::vector<Share*> drawing;
        for (Share& share : shares) {
            if (!share.goes_on || std::ssize(share.job->drafts) == share.job->max_drafts) continue;
            const Slot& slot = slots_[share.slot];
            plan(share.slot, std::span(slot.guesses).last(1), slot.own).num_sampled_positions = 1;
            drawing.push_back(&share);
        }
        if (drawing.empty()) return true;
        if (!scratch_.step()) return false;
        take_guesses(drawing);
    }
}

void MtpDrafter::take_guesses(std::span<Share* const> drawing) {
    for (size_t i = 0; i < drawing.size(); ++i) {
        Share& share = *drawing[i];
        const std::optional<TokenId> greedy = scratch_.sampled(i, drawing.size());
        share.goes_on = greedy.has_value();  // nothing is drawn from a NaN
        if (!greedy) continue;
        const TokenId token = drawn(share, *greedy);
        share.job->drafts.push_back(token);
        slots_[share.slot].guesses.push_back(token);
    }
}

// With the request's own sampling and seed, at the position that the token would have.
TokenId MtpDrafter::drawn(const Share& share, TokenId greedy) {
    const SamplingParams& sampling = share.job->sampling;
    if (is_greedy(sampling)) return greedy;
    Slot& slot = slots_[share.slot];
    const auto num_known = static_cast<std::ptrdiff_t>(slot.known.size());
    CHECK_LE(slot.num_prompt, num_known);
    slot.known.insert(slot.known.end(), slot.guesses.begin(), slot.guesses.end());
    const std::span<const TokenId> known(slot.known);
    const TokenId token = layer_.token_of({.logits = layer_.logits(SequenceSlot{share.slot}, 0),
                                           .params = sampling,
                                           .prefix = {known.first(static_cast<size_t>(slot.num_prompt)),
                                                      known.subspan(static_cast<size_t>(slot.num_prompt))},
                                           .position = static_cast<uint64_t>(known.size()),
                                           .mask_runs = {}});
    slot.known.resize(static_cast<size_t>(num_known));
    return token;
}

// The slot's share of the next step: the tokens, with their hidden rows. Without tokens it drops what lies behind its
// length.
ScheduledSequence& MtpDrafter::plan(int32_t at, std::span<const TokenId> tokens, std::span<const float> rows) {
    Slot& slot = slots_[at];
    CHECK_EQ(std::ssize(rows), std::ssize(tokens) * model_.config.hidden_size);
    const bool starts = !slot.started;
    if (starts) {
        scratch_.start(at, slot,
                       {.request = slot.request,
                        .tokens = engine_.token_store().store(tokens),
                        .num_prompt_tokens = 0,
                        .sampling = {}});
    }
    ScheduledSequence& sequence =
        scratch_.schedule(at, slot, std::ssize(tokens), starts ? std::span<const TokenId>() : tokens);
    slot.fed = rows;
    return sequence;
}

}  // namespace verbatim::executors
