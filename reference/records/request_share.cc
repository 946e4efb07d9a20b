#include "reference/records/request_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::records {
namespace {

int64_t num_tokens(const RequestIndex& request) { return std::ssize(request.tokens); }
int64_t prompt_tokens(const RequestIndex& request) { return std::max<int64_t>(request.num_prompt_tokens, 0); }

// What either has, by key.
template <typename Map>
int64_t num_in_either(const Map& a, const Map& b) {
    int64_t count = std::ssize(a);
    for (const auto& [key, value] : b) count += a.contains(key) ? 0 : 1;
    return count;
}

// Whether what one of them lacks is what the schedule decides: where a client left, or a conversation was taken away.
bool ended_from_outside(const RequestIndex& request) { return request.has_end() && !request.ended_by_itself; }

constexpr const char* kEndedUnanswered = "ended before their first token";

bool ended_unanswered(const RequestIndex& request) { return request.unanswered() && ended_from_outside(request); }

bool holds_digests(const RunIndex& index) { return index.record().run.digests != DigestLevel::kNone; }
bool holds_states(const RunIndex& index) { return holds_digests(index) && index.record().run.engine.digest_heads; }

// At least the committed one, of which the record may hold no digest.
int64_t num_states(const RequestIndex& request) {
    return std::max<int64_t>(std::ssize(request.states), request.is_committed ? 1 : 0);
}

struct RowCounts {
    int64_t all = 0;
    int64_t compared = 0;
};
// Only rows of reported tokens count: a window samples beyond the end of its turn, too.
RowCounts count_rows(const RequestIndex& mine, const RequestIndex& other, const ComparedCounts& compared,
                     bool are_peers) {
    const int64_t end = prompt_tokens(mine) - 1 + std::max(num_tokens(mine), are_peers ? num_tokens(other) : 0);
    RowCounts rows;
    for (const auto& [position, at] : mine.logits) {
        rows.all += position < end ? 1 : 0;
        rows.compared += position < end && other.logits.contains(position) ? 1 : 0;
    }
    for (const auto& [position, at] : other.logits) {
        rows.all += are_peers && position < end && !mine.logits.contains(position) ? 1 : 0;
    }
    rows.compared = std::min(rows.compared, compared.logits);
    CHECK_LE(rows.compared, rows.all);
    return rows;
}

}  // namespace

ComparedCounts& ComparedCounts::operator+=(const ComparedCounts& other) {
    tokens += other.tokens;
    logits += other.logits;
    operations += other.operations;
    states += other.states;
    return *this;
}

ShareOfRequests::ShareOfRequests(const RunIndex& first, const RunIndex& second, const ComparedSides& sides)
    : first_(first), second_(second), sides_(sides) {
    for (const char* unit : {"requests", "positions", "tokens", "logits", "states"}) share_.compare(unit, 0);
    note_ends();
    if (sides_.are_peers) note_levels();
}

// What is missing because a run was not recorded, or not made again, to its end.
void ShareOfRequests::note_ends() {
    for (const RunIndex* index : {&first_, &second_}) {
        const Record& record = index->record();
        const std::string& side = index == &first_ ? sides_.first : sides_.second;
        if (!record.end) share_.leave_out_uncounted(fmt::format("{} was cut off", side));
        if (!record.end || record.end->failure.empty()) continue;
        const bool is_rerun = index == &second_ && !sides_.are_peers;
        share_.leave_out_uncounted(fmt::format("{} ended early: {}", side, record.end->failure),
                                   is_rerun ? Promise::kBits : Promise::kNone);
    }
}

void ShareOfRequests::leave_out(const std::string& reason, Promise promise, const RequestIndex& request) {
    share_.leave_out(reason, promise, "requests", 1);
    share_.leave_out(reason, promise, "positions", prompt_tokens(request) + num_tokens(request));
    share_.leave_out(reason, promise, "tokens", num_tokens(request));
    share_.leave_out(reason, promise, "logits", std::ssize(request.logits));
    share_.leave_out(reason, promise, "states", std::ssize(request.states));
}

// Of layers and operations one record may hold digests that the other one does not; how many is not counted.
void ShareOfRequests::note_levels() {
    const DigestLevel first = first_.record().run.digests;
    const DigestLevel second = second_.record().run.digests;
    if (first == second || first == DigestLevel::kNone || second == DigestLevel::kNone) return;
    const auto note = [&](DigestLevel level, const std::string& side) {
        if (level == DigestLevel::kHeads) return;
        const char* of = level == DigestLevel::kOps ? "operations" : "layers";
        share_.leave_out_uncounted(fmt::format("digests of {} that {} does not hold", of, side));
    };
    note(first, sides_.second);
    note(second, sides_.first);
}

void ShareOfRequests::ordinary(const RequestIndex& request) {
    leave_out("ordinary requests, whose arithmetic promises no bits to another run", Promise::kNone, request);
}

void ShareOfRequests::other_prompt(const RequestIndex& request) {
    leave_out("other prompts, since a client left or forked at another token",
              sides_.are_peers ? Promise::kBits : Promise::kNone, request);
}

void ShareOfRequests::only_in_first(const RequestIndex& request) {
    const RequestIndex* other = second_.find(request.name);
    CHECK(other == nullptr || !other->is_started(), "request {} was started in both runs", index(request.id));
    if (ended_unanswered(request)) return leave_out(kEndedUnanswered, Promise::kNone, request);
    leave_out(fmt::format("not in {}", sides_.second), Promise::kBits, request);
}

void ShareOfRequests::only_in_second(const RequestIndex& request) {
    if (ended_unanswered(request)) return leave_out(kEndedUnanswered, Promise::kNone, request);
    leave_out(fmt::format("not in {}", sides_.first), sides_.are_peers ? Promise::kBits : Promise::kNone, request);
}

void ShareOfRequests::never_started(const RequestIndex& mine, const RequestIndex& other) {
    CHECK(mine.name == other.name, "requests {} and {} are two", index(mine.id), index(other.id));
    if (!first_.record().end && !mine.has_end())
        return leave_out(fmt::format("no end in {}", sides_.first), Promise::kBits, mine);
    if (sides_.are_peers && other.is_started()) return only_in_second(other);
    leave_out(kEndedUnanswered, Promise::kNone, mine);
}

void ShareOfRequests::both(const RequestIndex& mine, const RequestIndex& other, const ComparedCounts& compared,
                           bool differs) {
    CHECK(mine.name == other.name, "requests {} and {} are two", index(mine.id), index(other.id));
    CHECK(compared.states <= std::ssize(mine.states) && compared.states <= std::ssize(other.states),
          "{} heads are compared of {} and {}", compared.states, mine.states.size(), other.states.size());
    const bool is_peer = sides_.are_peers;
    const int64_t shortfall = num_tokens(mine) - std::min(num_tokens(mine), compared.tokens);
    // What a run made again says beyond the record is nothing that the record promised.
    const int64_t surplus = is_peer ? num_tokens(other) - std::min(num_tokens(other), num_tokens(mine)) : 0;
    const bool is_schedules = ended_from_outside(mine) && ended_from_outside(other);
    const bool is_cut_in_first = !first_.record().end && !mine.has_end();
    const bool is_cut = is_cut_in_first || (!second_.record().end && !other.has_end());
    const bool lacks_end = mine.ended_by_itself && !other.ended_by_itself;
    const bool has_more = surplus > 0 || (is_peer && other.ended_by_itself && !mine.ended_by_itself);

    // Why the rest of this request was not compared.
    std::string reason = fmt::format("not in {}", shortfall > 0 || lacks_end ? sides_.second : sides_.first);
    Promise promise = Promise::kBits;
    if (differs) {
        reason = "behind a request's first difference";
    } else if (is_cut) {
        reason = fmt::format("no end in {}", is_cut_in_first ? sides_.first : sides_.second);
    } else if (is_schedules) {
        reason = "told in one run only, since the schedule decides where a client leaves";
        promise = Promise::kNone;
    }
    const bool is_short = shortfall > 0 || lacks_end || has_more;
    const RowCounts rows = count_rows(mine, other, compared, is_peer);
    const bool has_something = compared.tokens + rows.compared + compared.states > 0;
    const bool is_whole = has_something && !is_cut && !(is_short && promise == Promise::kBits);
    if (!has_something && !is_short && !is_cut) {
        reason = kEndedUnanswered;
        promise = Promise::kNone;
    }
    if (is_whole) {
        share_.compare("requests", 1);
    } else {
        share_.leave_out(reason, promise, "requests", 1);
    }
    // What one record alone lacks is missing in the comparison; what neither has was never promised.
    const Digests digests = digests_in(&holds_digests);
    const int64_t prompt = prompt_tokens(mine);
    if (!has_something) {
        share_.leave_out(reason, promise, "positions", prompt);
    } else if (digests.in_both) {
        share_.compare("positions", prompt);
    } else {
        share_.leave_out(digests.lacking, digests.promise, "positions", prompt);
    }
    share_.compare("positions", compared.tokens);
    share_.compare("tokens", compared.tokens);
    for (const char* unit : {"positions", "tokens"}) share_.leave_out(reason, promise, unit, shortfall + surplus);

    share_.compare("logits", rows.compared);
    if (digests.in_both) {
        share_.leave_out(reason, promise, "logits", rows.all - rows.compared);
    } else {
        share_.leave_out(digests.lacking, digests.promise, "logits", std::max(num_tokens(mine), num_tokens(other)));
    }
    states_of_both(mine, other, compared, differs);
}

ShareOfRequests::Digests ShareOfRequests::digests_in(bool (*holds)(const RunIndex&)) const {
    const bool first = holds(first_);
    const bool second = holds(second_);
    if (first != second)
        return {false, fmt::format("digests that {} does not hold", first ? sides_.second : sides_.first),
                Promise::kBits};
    return {first, "values of which no digests were recorded", Promise::kNone};
}

void ShareOfRequests::states_of_both(const RequestIndex& mine, const RequestIndex& other,
                                     const ComparedCounts& compared, bool differs) {
    const Digests digests = digests_in(&holds_states);
    if (!digests.in_both) {
        share_.leave_out(digests.lacking, digests.promise, "states", std::max(num_states(mine), num_states(other)));
        return;
    }
    // The head of a turn is published whenever the turn commits; others as the memory and the schedule have it.
    const int64_t states = sides_.are_peers ? num_in_either(mine.states, other.states) : std::ssize(mine.states);
    const auto last_length = [](const RequestIndex& request) {
        return request.states.empty() ? 0 : request.states.rbegin()->first;
    };
    const int64_t turn = std::max(last_length(mine), sides_.are_peers ? last_length(other) : 0);
    const bool are_equal_turns = mine.is_committed && other.is_committed && !differs;
    share_.compare("states", compared.states);
    int64_t num_missing = 0;
    for (const auto& [request, side] : {std::pair{&mine, &sides_.first}, {&other, &sides_.second}}) {
        if (turn == 0 || !are_equal_turns || request->states.contains(turn)) continue;
        share_.leave_out(fmt::format("heads of turns, not in {}", *side), Promise::kBits, "states", 1);
        ++num_missing;
    }
    share_.leave_out("heads that one of them did not keep", Promise::kNone, "states",
                     states - compared.states - num_missing);
}

}  // namespace verbatim::records
