// reference/records/run_index.h: indexes a record by requests: their calls, steps, tokens and states.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reference/records/format.h"

namespace verbatim::records {

// A request's part of a step.
struct Share {
    const StepRecord* step = nullptr;
    size_t order = 0;  // index in the step's sequences
    [[nodiscard]] const SequenceRecord& sequence() const { return step->sequences[order]; }
};

struct ReportedAt {
    int64_t step = -1;
    TokenId token = 0;
};
struct StateAt {
    int64_t step = -1;
    Digest digest{};
};
struct LogitsAt {
    int64_t step = -1;
    size_t order = 0;
    uint64_t sum = 0;
};

// A schedule-independent name of a request: the n-th accepted one of its conversation.
using RequestName = std::pair<ConversationKey, int64_t>;

struct RequestIndex {
    RequestId id{-1};
    RequestName name;
    bool deterministic = true;
    int64_t submitted_step = 0;
    int64_t num_prompt_tokens = -1;   // -1: it was never started
    int64_t num_attached_tokens = 0;  // at the first start
    int64_t num_starts = 0;
    Digest prompt{};
    std::vector<Share> shares;
    std::vector<ReportedAt> tokens;
    std::map<int64_t, LogitsAt> logits;  // by position
    std::map<int64_t, StateAt> states;   // committed and published states, by length
    bool is_committed = false;
    bool is_discarded = false;
    // At a stop, at max_tokens, or at a number that is not finite; neither by its client nor by a failure.
    bool ended_by_itself = false;

    [[nodiscard]] bool is_started() const { return num_prompt_tokens >= 0; }
    [[nodiscard]] bool has_end() const { return is_committed || is_discarded; }
    // No client received a token of it, and no conversation continues from it.
    [[nodiscard]] bool unanswered() const { return tokens.empty() && !is_committed; }
};

// Borrows the record.
class RunIndex {
public:
    explicit RunIndex(const Record& record);

    [[nodiscard]] const Record& record() const { return record_; }
    [[nodiscard]] const std::map<RequestName, RequestIndex>& requests() const { return requests_; }
    [[nodiscard]] const RequestIndex* find(const RequestName& name) const;
    [[nodiscard]] const RequestIndex* find(RequestId id) const;
    [[nodiscard]] const StepRecord* step(int64_t step) const;
    [[nodiscard]] int64_t num_steps() const { return static_cast<int64_t>(steps_.size()); }
    [[nodiscard]] int64_t num_tokens() const;    // reported
    [[nodiscard]] int64_t num_computed() const;  // positions

private:
    void add(const Call& call);
    void add(const StepRecord& step);
    void add(const Reported& reported);
    [[nodiscard]] RequestIndex* at(RequestId id);

    const Record& record_;
    std::map<RequestName, RequestIndex> requests_;
    std::map<RequestId, RequestName> names_;
    std::set<RequestId> ended_by_client_;  // Engine::end_turn
    std::map<ConversationKey, int64_t> num_accepted_;
    std::map<int64_t, const StepRecord*> steps_;
    int64_t last_step_ = -1;
};

// The contents of a truncated record: "12 steps; 5 requests, 3 of them without an end".
[[nodiscard]] std::string what_is_left(const RunIndex& index);

}  // namespace verbatim::records
