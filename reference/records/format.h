// reference/records/format.h: the values that make up a record of a run. docs/records.md describes the file format.
//
// A record describes one run of an engine: the program and its configuration (RunDescription), and in order the calls
// (Call), the computation of each step (StepRecord), and the outputs (`Reported`). Digests of values are ElementSums,
// which add up: a chunk's is the sum of its positions', so runs of different schedules are comparable.
//   R1  a sequence's sums cover its accepted positions: rejected drafts are not in them
//   R2  a new field's default means "was not recorded" (records/codec.h, C3)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/ids.h"
#include "engine/base/result.h"
#include "engine/engine.h"
#include "engine/ingestion.h"
#include "engine/recorder.h"
#include "engine/step_plan.h"
#include "engine/tokens/token_seq.h"

namespace verbatim::records {

inline constexpr int32_t kFormatVersion = 1;

// Which computed values a record holds digests of.
enum class DigestLevel : uint8_t {
    kNone,    // calls, drafts and tokens: enough to run again
    kHeads,   // and plans, events, logits, and states at commits
    kLayers,  // and every layer's output
    kOps,     // and every operation's output
    kCount,
};
[[nodiscard]] const char* name(DigestLevel level);

struct RunDescription {
    std::string program;  // name and version
    std::string model;    // a preset or a checkpoint folder
    uint64_t model_seed = 0;
    Digest model_digest{};
    int32_t vocab_size = 0;
    std::string numerics;           // of deterministic requests
    std::string ordinary_numerics;  // of ordinary requests
    std::string executor;
    std::string profile;
    std::string isa;  // of the whole run; empty: the best available, bits do not depend on it
    int32_t num_threads = 1;
    std::string draft;     // the drafter
    std::string policy;    // of deterministic requests in a batch with ordinary ones ("exact", "verify"); empty: one
                           // arithmetic
    std::string eviction;  // the eviction policy
    std::string trace;     // the source of the requests
    std::string machine;
    DigestLevel digests = DigestLevel::kNone;
    EngineConfig engine;
};

// A request entered the batch.
struct StartRecord {
    RequestId request{};
    int64_t num_tokens = 0;
    int64_t num_prompt_tokens = 0;
    int64_t num_attached_tokens = 0;
    Digest prompt{};      // of its tokens
    bool beside = false;  // the start of the request's draft path, not of the request (engine/scheduler/draft_path.h)
    friend bool operator==(const StartRecord&, const StartRecord&) = default;
};

// A sequence's part of a step: positions [begin, end).
struct SequenceRecord {
    RequestId request{};
    int64_t begin = 0;
    int64_t end = 0;
    std::vector<TokenId> drafts;   // the verified drafts
    std::vector<uint64_t> logits;  // kHeads: low word of each scored and sampled row's sum; the last is at end - 1
    uint64_t layers = 0;           // kLayers: low word of the sum over all layers
    std::string layer_tags;        // kLayers: the lowest byte of each layer's sum; two bytes in older records
    std::vector<Digest> ops;       // kOps: each operation's sum (records/walk_points.h)
    bool ordinary = false;         // in ordinary arithmetic: for a deterministic request, its draft path
    friend bool operator==(const SequenceRecord&, const SequenceRecord&) = default;
};

struct StepRecord {
    int64_t step = 0;
    int64_t elapsed_ns = 0;        // as the executor measured it; 0: not measured
    std::optional<Digest> digest;  // of the plan, where the plan itself is not recorded
    std::optional<StepPlan> plan;  // kHeads; without the tokens of its starts, which follow from the other entries
    std::vector<StartRecord> starts;
    std::vector<SequenceRecord> sequences;  // sequences that compute, in plan order
    friend bool operator==(const StepRecord&, const StepRecord&) = default;
};

struct ReportedToken {
    RequestId request{};
    TokenId token = 0;
    friend bool operator==(const ReportedToken&, const ReportedToken&) = default;
};

// The engine's outputs since the previous entry: tokens in order, and events in order.
struct Reported {
    std::vector<ReportedToken> tokens;
    std::vector<Event> events;
    friend bool operator==(const Reported&, const Reported&) = default;
};

// The end of the run.
struct RunEnd {
    Digest digest{};       // of plans, tokens and events (DigestRecorder)
    Digest plan_digest{};  // of plans alone
    int64_t num_steps = 0;
    std::string failure;  // empty: none
    friend bool operator==(const RunEnd&, const RunEnd&) = default;
};

using Entry = std::variant<Call, StepRecord, Reported>;

// A whole record in memory.
struct Record {
    RunDescription run;
    TokenStore* store = nullptr;            // of the entries' tokens
    std::unique_ptr<TokenStore> own_store;  // set if the record owns the store
    std::vector<Entry> entries;
    std::optional<RunEnd> end;
    std::string cut_off;  // where a truncated file ends; empty: the file is complete
    int64_t file_bytes = 0;
};

// Takes a run's entries, in order.
class RecordSink {
public:
    virtual ~RecordSink() = default;
    virtual void add(Entry entry) = 0;
    virtual void finish(RunEnd end) = 0;
};

// Appends the entries to a Record.
class RecordKeeper final : public RecordSink {
public:
    explicit RecordKeeper(Record& record) : record_(record) {}  // borrowed
    void add(Entry entry) override { record_.entries.push_back(std::move(entry)); }
    void finish(RunEnd end) override { record_.end = std::move(end); }

private:
    Record& record_;
};

}  // namespace verbatim::records
