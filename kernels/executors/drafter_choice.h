// kernels/executors/drafter_choice.h: drafters by the names of --draft.
#pragma once

#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/result.h"
#include "engine/clock.h"
#include "engine/drafting/adversary_drafter.h"
#include "engine/drafting/drafter.h"
#include "engine/engine.h"
#include "kernels/executors/executor_choice.h"
#include "reference/model/weights.h"

namespace verbatim::executors {

// The answers of a run, as drafts for another run of the same requests.
class OutputLog final : public Recorder {
public:
    // Borrowed while it records.
    void listen_to(const Engine& engine) { engine_ = &engine; }
    void on_plan(const StepPlan&) override {}
    void on_token(RequestId request, TokenId token) override;
    void on_event(const Event&) override {}

    // The answer to the same prompt with the same sampling; null if there is none. Lives as long as the log.
    [[nodiscard]] const std::vector<TokenId>* answer_to(const Sequence& sequence) const;

private:
    [[nodiscard]] static Digest key_of(const Sequence& sequence);

    const Engine* engine_ = nullptr;
    struct Answered {
        Digest key;
        size_t num_tokens = 0;
    };
    std::map<RequestId, Answered> answers_;
    std::map<Digest, std::vector<TokenId>> outputs_;
};

// Whether the drafter needs separate memory.
bool drafts_by_model(const std::string& name);

// Whether --draft accepts the name: none, ngram, adversary, mtp, int8, fast or model:DIR.
Status check_drafter_name(const std::string& name);

// The most positions that a step samples of a request, and whether fewer follow from what was accepted.
struct WindowChoice {
    int32_t max_window = 4;
    bool is_paced = false;
};
// Of --window: a number of positions from 2, `auto`, or nothing: the default.
Result<WindowChoice> window_of(const std::string& text);
inline constexpr int32_t kMaxWindow = 128;

// A rate from 0 to 1 in parts per million.
inline int32_t ppm_of(double rate) { return static_cast<int32_t>(std::lround(rate * 1e6)); }

struct DraftOptions {
    std::string name = "none";
    int32_t max_window = 1;         // scheduler.max_window
    int32_t max_num_sequences = 1;  // that draft concurrently
    int64_t memory_bytes = 0;       // for a drafter with a model: its KV and states
    // Of "adversary"; of "mtp": the layer computes, and an adversary's tokens take the place of its guesses.
    std::optional<int32_t> mismatch_ppm;
    const OutputLog* right = nullptr;                // of "adversary"; borrowed
    reference::NumericExecutor* executor = nullptr;  // of "mtp": that computes the model; borrowed
    int32_t num_threads = 1;
    uint64_t seed = 0;
    bool is_priced = false;  // drafts are asked for where they pay, by the time that steps take
};

// Whether the drafter wants the model's own layer for it (reference::LoadOptions::mtp).
inline bool drafts_by_mtp(const std::string& name) { return name == "mtp"; }

// A drafter with the objects that it borrows. Null: no drafting.
struct ChosenDrafter {
    // The executor of the model is another one from now on; null: none. Only "mtp" cares.
    void listen_to(reference::NumericExecutor* executor_of_model);

    std::unique_ptr<reference::Model> model;
    ChosenExecutor executor;
    std::unique_ptr<Clock> clock;        // of `drafter`; null: it is not priced
    std::unique_ptr<Drafter> computing;  // whose guesses are replaced; null: none are
    std::unique_ptr<Drafter> unpriced;   // that `drafter` asks where drafts pay; null: it is not priced
    std::unique_ptr<Drafter> drafter;
};

// Borrows model and engine. Errors: a model that is missing, or has another vocabulary; of "mtp" a model without that
// layer, or an executor that shows no hidden rows.
Result<ChosenDrafter> choose_drafter(const DraftOptions& options, const reference::Model& model, const Engine& engine);

}  // namespace verbatim::executors
