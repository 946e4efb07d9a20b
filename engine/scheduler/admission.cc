// Which request is admitted next, from which head, and with what room (D1, D2, D5, D6).
#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/snapshots.h"

namespace verbatim {

const char* name(AdmissionOrder order) {
    switch (order) {
        case AdmissionOrder::kArrival: return "arrival";
        case AdmissionOrder::kFewestTokens: return "fewest-tokens";
        case AdmissionOrder::kCount: break;
    }
    CHECK(false, "order of admission {}", static_cast<int>(order));
}

std::optional<AdmissionOrder> admission_order_by_name(std::string_view wanted) {
    for (const AdmissionOrder order : kAdmissionOrders) {
        if (name(order) == wanted) return order;
    }
    return std::nullopt;
}

void Scheduler::add(Sequence& sequence, int64_t next_step) {
    CHECK(waiting_.empty() || waiting_.rbegin()->first < sequence.id, "request {} after request {}", index(sequence.id),
          index(waiting_.rbegin()->first));
    CHECK(sequence.slot == kNoSlot && sequence.num_computed_tokens == 0);
    CHECK(waiting_.empty() || waiting_.rbegin()->second->arrival_step <= next_step, "request {} arrives at step {}",
          index(sequence.id), next_step);
    sequence.arrival_step = next_step;
    sequence.known = sequence.turn.prompt;
    wait(sequence);
}

const std::string& Scheduler::numerics_id_of(const Sequence& sequence) const {
    return numerics_ids_[static_cast<size_t>(sequence.arithmetic())];
}

LookupQuery Scheduler::query_of(const Sequence& sequence) const {
    return {.key = sequence.request.conversation,
            .tokens = sequence.known,
            .num_committed = sequence.turn.num_committed,
            .seam = sequence.turn.seam,
            .use_cache = sequence.request.use_cache,
            .deterministic = sequence.request.deterministic,
            .is_first_admission = sequence.place < 0,
            .numerics_id = numerics_id_of(sequence),
            .first_scored = sequence.is_scored() ? std::optional(sequence.first_scored) : std::nullopt,
            .num_unrestored = sequence.request.num_unrestored};
}

LookupResult Scheduler::look_up(const Sequence& sequence) const { return cache_.lookup(query_of(sequence)); }

// The head that it would attach to now is spared while others are admitted (D5).
void Scheduler::wait(Sequence& sequence) {
    CHECK(sequence.slot == kNoSlot && sequence.num_computed_tokens == 0 && sequence.memory.state == kNoState,
          "request {} waits with slot {} and {} computed tokens", index(sequence.id), index(sequence.slot),
          sequence.num_computed_tokens);
    sequence.status = SequenceStatus::kWaiting;
    CHECK(waiting_.emplace(sequence.id, &sequence).second, "request {} waits already", index(sequence.id));
    expect(sequence, look_up(sequence));
}

// What the waiting sequence would attach to, as it was found just now, and its place among those that wait.
void Scheduler::expect(Sequence& sequence, const LookupResult& found) {
    CHECK(sequence.status == SequenceStatus::kWaiting && found.length < sequence.num_tokens(),
          "request {} of status {} would attach to {} of {} tokens", index(sequence.id),
          static_cast<int>(sequence.status), found.length, sequence.num_tokens());
    if (const HeadId before = std::exchange(sequence.expected_head, found.head); before != found.head) {
        if (before != kNoHead) cache_.unexpect(before);
        if (found.head != kNoHead) cache_.expect(found.head);
    }
    if (config_.admission == AdmissionOrder::kArrival) return;
    by_tokens_left_.erase({sequence.num_tokens_left, sequence.id});
    sequence.num_tokens_left = sequence.num_tokens() - found.length;
    CHECK(by_tokens_left_.emplace(sequence.num_tokens_left, sequence.id).second, "request {} has two places",
          index(sequence.id));
}

void Scheduler::leave_waiting(Sequence& sequence) {
    const bool waited = waiting_.erase(sequence.id) == 1;
    const HeadId expected = std::exchange(sequence.expected_head, kNoHead);
    CHECK(waited == (sequence.status == SequenceStatus::kWaiting) && (waited || expected == kNoHead),
          "request {} of status {} waits for head {}", index(sequence.id), static_cast<int>(sequence.status),
          index(expected));
    if (expected != kNoHead) cache_.unexpect(expected);
    by_tokens_left_.erase({sequence.num_tokens_left, sequence.id});
    CHECK(by_tokens_left_.empty() || by_tokens_left_.size() == waiting_.size(), "{} of {} waiting have a place",
          by_tokens_left_.size(), waiting_.size());
}

// D2. Heads go while a request waits, so its place may be too early: it is looked up when its turn comes, and gives way
// when it has more left than was thought. Nothing else changes meanwhile, so no request is looked up twice without
// being taken, and a head that went costs those that waited for it one lookup each.
Scheduler::Candidate Scheduler::next_to_admit() {
    CHECK(!waiting_.empty());
    Sequence& oldest = *waiting_.begin()->second;
    const bool is_due = step_ - oldest.arrival_step >= config_.max_wait_steps;
    if (config_.admission == AdmissionOrder::kArrival || is_due) {
        ++stats_.admission_lookups;
        return {&oldest, look_up(oldest)};
    }
    for (;;) {
        Sequence& fewest = *waiting_.at(by_tokens_left_.begin()->second);
        ++stats_.admission_lookups;
        LookupResult found = look_up(fewest);
        expect(fewest, found);
        if (by_tokens_left_.begin()->second == fewest.id) return {&fewest, std::move(found)};
    }
}

auto Scheduler::admit(Candidate next, int32_t budget) -> Admission {
    Sequence& sequence = *next.sequence;
    LookupResult& found = next.found;
    CHECK(sequence.status == SequenceStatus::kWaiting && sequence.slot == kNoSlot && budget > 0,
          "request {} of status {} is admitted", index(sequence.id), static_cast<int>(sequence.status));
    CHECK(config_.admission != AdmissionOrder::kArrival || running_.empty() || running_.back()->id < sequence.id,
          "request {} is admitted after request {}", index(sequence.id), index(running_.back()->id));
    // Evicting for a sequence that cannot come in anyway would empty the cache for nothing.
    if (!running_.empty() && !reachable(sequence, found, {})) return Admission::kNoRoom;
    if (leaves_memory_to_heads(sequence, found)) return Admission::kNoRoom;
    if (awaits_head(sequence, found)) return Admission::kAwaitsHead;
    if (!make_room_for(sequence, found, budget)) return Admission::kNoRoom;
    auto memory = cache_.attach(found.head, found.length);
    if (!memory) return Admission::kNoRoom;  // what was freed is fenced
    attach(sequence, found, *std::move(memory));
    return Admission::kAdmitted;
}

void Scheduler::attach(Sequence& sequence, LookupResult& found, SequenceMemory memory) {
    CHECK(sequence.memory.blocks.num_blocks == 0 && sequence.memory.state == kNoState && !sequence.awaits_head,
          "request {} attaches with row {}", index(sequence.id), index(sequence.memory.state));
    sequence.memory = std::move(memory);
    const std::string& numerics_id = numerics_id_of(sequence);
    const bool own = found.head == kNoHead || cache_.find(found.head)->numerics_id == numerics_id;
    sequence.numerics_id = own ? numerics_id : kMixedNumericsId;
    sequence.num_computed_tokens = found.length;
    sequence.num_state_tokens = found.length;
    const Cache::Seen seen = cache_.observe(query_of(sequence), found, sequence.memory);
    if (sequence.place < 0) {
        stats_.reusable_tokens += seen.reusable;
        note_computed_again(sequence, found);
    }
    account_attach(sequence, found, seen.branch);
    leave_waiting(sequence);
    running_.push_back(&sequence);
    sequence.status = SequenceStatus::kRunning;
    sequence.place = num_admitted_++;
    sequence.slot = take_slot();
    sequence.num_sent_blocks = 0;
    sequence.first_step = -1;
    CHECK_LE(running_.size(), static_cast<size_t>(config_.max_num_sequences));
}

// D7. Heads go while a request waits, so what lies elsewhere is asked for when its turn has come. A record has what the
// request came with, and what it awaits: nothing else that the listener says decides.
bool Scheduler::awaits_head(Sequence& sequence, LookupResult& found) {
    CHECK(sequence.status == SequenceStatus::kWaiting && !newly_awaiting_, "request {} of status {}",
          index(sequence.id), static_cast<int>(sequence.status));
    if (sequence.awaits_head) return true;
    if (!attach_listener_ || !attach_listener_(sequence, found.length)) return false;
    set_awaiting(sequence, true);
    newly_awaiting_ = sequence.id;
    return true;
}

// What has come meanwhile is spared for it.
void Scheduler::set_awaiting(Sequence& sequence, bool awaits) {
    CHECK(sequence.status == SequenceStatus::kWaiting, "request {} of status {} waits for a head", index(sequence.id),
          static_cast<int>(sequence.status));
    sequence.awaits_head = awaits;
    if (!awaits) expect(sequence, look_up(sequence));
}

bool Scheduler::waits_for_head() const {
    if (!running_.empty() || waiting_.empty() || !ended_slots_.empty()) return false;
    const Sequence& oldest = *waiting_.begin()->second;
    if (by_tokens_left_.empty() || step_ + 1 - oldest.arrival_step >= config_.max_wait_steps) return oldest.awaits_head;
    return waiting_.at(by_tokens_left_.begin()->second)->awaits_head;
}

// The head's row, in addition to the request's own, and a copy of its tail: until the first step.
bool Scheduler::has_room_for_head(const Sequence& sequence) const {
    CHECK(sequence.status == SequenceStatus::kWaiting, "request {} of status {}", index(sequence.id),
          static_cast<int>(sequence.status));
    Extra extra{.num_blocks = 1, .num_rows = 1 + static_cast<int32_t>(publication_.pendings().size())};
    for (const Sequence* running : running_) extra.num_rows += running->memory.pinned != kNoHead ? 1 : 0;
    return reachable(sequence, look_up(sequence), extra);
}

// Of all of the sequence's tokens, without the blocks that running sequences hold already.
int32_t Scheduler::blocks_to_activate(const Sequence& sequence, const LookupResult& found) const {
    const KvGroup& kv = cache_.kv();
    const int32_t num_blocks = kv.blocks_for(sequence.num_tokens());
    if (found.head == kNoHead) return num_blocks;
    return num_blocks - kv.num_active_in(cache_.find(found.head)->blocks, found.length);
}

// Whether evicting every head leaves blocks for all of the sequence's tokens in addition to those that running
// sequences hold or will ask for.
bool Scheduler::reachable(const Sequence& sequence, const LookupResult& found, const Extra& extra) const {
    const KvGroup& kv = cache_.kv();
    int64_t needed = blocks_to_activate(sequence, found) + extra.num_blocks;
    for (const Sequence* running : running_) {
        needed += kv.blocks_missing(running->memory.blocks, running->num_tokens());
    }
    const auto num_rows = static_cast<int32_t>(running_.size()) + 1 + extra.num_rows;
    if (cache_.state().enabled() && extra.num_rows > 0 && num_rows > cache_.state().pool().num_affordable())
        return false;
    return needed <= cache_.num_affordable_blocks(num_rows) - kv.num_active_blocks();
}

// D6. All that the sequence will ask for counts, so that it does not take it from heads later.
bool Scheduler::leaves_memory_to_heads(const Sequence& sequence, const LookupResult& found) const {
    const CacheConfig& config = cache_.config();
    const auto num_running = static_cast<int64_t>(running_.size());
    if (!cache_.learns() || config.budget_bytes == 0 || num_running < RunningShare::kLeastRunning) return false;
    const KvGroup& kv = cache_.kv();
    const int32_t num_own_blocks =
        kv.blocks_for(sequence.num_tokens()) - static_cast<int32_t>(found.length / kv.block_size());
    const int32_t num_blocks = blocks_to_activate(sequence, found);  // these, and those that it shares with heads alone
    const int64_t own_bytes = num_own_blocks * config.kv_block_bytes + config.state_row_bytes;
    const Cache::BytesByKind bytes = cache_.bytes_by_kind();
    if (own_bytes <= bytes.free) return false;  // no head goes
    const int64_t held_bytes = bytes.kv_of_sequences + num_running * config.state_row_bytes;
    CHECK(num_blocks >= num_own_blocks, "{} blocks are shared", num_blocks - num_own_blocks);
    return held_bytes + num_blocks * config.kv_block_bytes + config.state_row_bytes >
           running_share_.bytes_of(config.budget_bytes);
}

// Tokens that were in heads which made room count against the requests that run.
void Scheduler::note_computed_again(const Sequence& sequence, const LookupResult& found) {
    CHECK_LT(sequence.place, 0);
    int64_t num_evicted = 0;
    for (int64_t begin = found.length; const NotReusedRange& range : found.not_reused) {
        if (range.reason == NotReused::kEvicted) num_evicted += range.end - begin;
        begin = range.end;
    }
    running_share_.note_admitted(sequence.num_prompt_tokens() - found.length, num_evicted);
}

// A row, and blocks for the tail and the first chunk. Heads that others wait for are spared, unless nothing else is
// left to wait for; and when only the head itself stands in the way, `found` becomes a miss.
bool Scheduler::make_room_for(const Sequence& sequence, LookupResult& found, int32_t budget) {
    CHECK_GT(budget, 0);
    const KvGroup& kv = cache_.kv();
    const auto room = [&] {
        const int64_t end = std::min(sequence.num_tokens(), found.length + budget);
        const auto num_shared = static_cast<int32_t>(found.length / kv.block_size());
        return Cache::Room{std::max(0, kv.blocks_for(end) - num_shared), 1};
    };
    if (cache_.make_room(room(), {.except = found.head})) return true;
    if (!running_.empty() || !publication_.empty()) return false;
    if (cache_.make_room(room(), {.except = found.head, .spare_expected = false})) return true;
    if (found.head == kNoHead) return false;
    found.not_reused.insert(found.not_reused.begin(), {found.length, NotReused::kNoRoomToCopy});
    found.head = kNoHead;
    found.length = 0;
    return cache_.make_room(room(), {.spare_expected = false});
}

void Scheduler::account_attach(Sequence& sequence, const LookupResult& found, int64_t branch) {
    CHECK(found.length < sequence.num_tokens() && (found.length == 0 || found.head != kNoHead),
          "request {} attaches {} of {} tokens", index(sequence.id), found.length, sequence.num_tokens());
    sequence.not_reused = found.not_reused;
    event(EventKind::kAttach, sequence, found.length, found.head);
    if (sequence.memory.copy) {
        ++stats_.tail_copies;
        event(EventKind::kTailCopy, sequence, sequence.memory.copy->num_slots, found.head);
    }
    if (found.head != kNoHead) ++stats_.attaches;
    const int64_t reused = std::min(found.length, sequence.num_prompt_tokens());
    const int64_t before = std::min(sequence.high_water, sequence.num_prompt_tokens());
    const int64_t more = std::max<int64_t>(0, reused - before);
    sequence.num_reused += more;
    stats_.reused_tokens += more;
    CHECK_LE(sequence.num_reused + sequence.num_computed_prompt, sequence.num_prompt_tokens());
    sequence.high_water = std::max(sequence.high_water, found.length);
    if (sequence.publishes_snapshots)
        sequence.snapshots = choose_snapshots({.message_ends = sequence.turn.checkpoints,
                                               .num_prompt_tokens = sequence.num_prompt_tokens(),
                                               .branch = branch,
                                               .is_unseen = branch == 0 && sequence.turn.num_committed == 0,
                                               .max_checkpoints = config_.max_checkpoints},
                                              cache_.config());
    std::erase_if(sequence.snapshots, [&](const Snapshot& s) { return s.length <= found.length; });
}

// D2 from scratch. What is left of a waiting request was right when it was looked up last.
void Scheduler::verify_order() const {
    for (size_t i = 1; i < running_.size(); ++i) CHECK_LT(running_[i - 1]->place, running_[i]->place);
    if (config_.admission == AdmissionOrder::kArrival) {
        for (size_t i = 1; i < running_.size(); ++i) CHECK_LT(index(running_[i - 1]->id), index(running_[i]->id));
        CHECK(running_.empty() || waiting_.empty() || running_.back()->id < waiting_.begin()->first);
        CHECK(by_tokens_left_.empty(), "{} places in order of arrival", by_tokens_left_.size());
        return;
    }
    CHECK_EQ(by_tokens_left_.size(), waiting_.size());
    int64_t last_arrival = 0;
    for (const auto& [id, sequence] : waiting_) {
        CHECK(by_tokens_left_.contains({sequence->num_tokens_left, id}) && sequence->num_tokens_left > 0 &&
                  sequence->num_tokens_left <= sequence->num_tokens(),
              "request {} has no place among those that wait: {} of {} tokens left", index(id),
              sequence->num_tokens_left, sequence->num_tokens());
        CHECK(last_arrival <= sequence->arrival_step, "request {} came in step {}, one before it in {}", index(id),
              sequence->arrival_step, last_arrival);
        last_arrival = sequence->arrival_step;
    }
}

}  // namespace verbatim
