#include "kernels/bench/speculate.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "engine/engine.h"
#include "files/steady_clock.h"
#include "kernels/cpu/cpu_executor.h"
#include "kernels/executors/drafter_choice.h"
#include "kernels/executors/executor_choice.h"
#include "kernels/median.h"
#include "reference/loader/model_choice.h"

namespace verbatim::bench {

using namespace executors;
namespace {

constexpr int64_t kPacedWindow = 16;  // the longest one
constexpr uint64_t kPromptSpace = uint64_t{1} << 40;

// One way to decode: a row of the report.
struct Contender {
    std::string draft = "none";
    double mismatch_rate = -1;
    int64_t window = 1;
    [[nodiscard]] int64_t max_window() const { return window == 0 ? kPacedWindow : window; }
};

bool has_mtp(const SpeculateConfig& config) { return std::ranges::any_of(config.drafts, drafts_by_mtp); }

std::vector<Contender> contenders(const SpeculateConfig& config) {
    std::vector<Contender> all{{}};
    for (const int64_t window : config.windows) {
        for (const std::string& draft : config.drafts) all.push_back({draft, -1, window});
        for (const double rate : config.mismatch_rates) {
            all.push_back({"adversary", rate, window});
            if (has_mtp(config)) all.push_back({"mtp", rate, window});
        }
    }
    return all;
}

int64_t longest_window(const SpeculateConfig& config) {
    int64_t longest = 1;
    for (const Contender& contender : contenders(config)) longest = std::max(longest, contender.max_window());
    return longest;
}

class SpeculateRun {
public:
    // `store` and `requests` are borrowed; no requests: prompts are made up.
    SpeculateRun(const BenchConfig& config, const SpeculateConfig& speculate, const reference::Model& model,
                 TokenStore& store, const std::vector<ChatRequest>& requests, int64_t batch)
        : config_(config),
          speculate_(speculate),
          model_(model),
          requests_(requests),
          batch_(batch),
          executor_(model.config, model.weights, executor_config()),
          store_(store) {}

    // The rows of this batch. Errors: a drafter that cannot be, a record that cannot be written.
    Result<std::vector<SpeculateRow>> run() {
        RETURN_IF_ERROR(start());
        ASSIGN_OR_RETURN(auto rows, run_contenders());
        if (recording_) RETURN_IF_ERROR(recording_->finish());
        return rows;
    }
    [[nodiscard]] cpu::Isa isa() const { return executor_.isa(); }

private:
    Status start();
    Result<std::vector<SpeculateRow>> run_contenders() {
        const std::vector<Contender> all = contenders(speculate_);
        std::vector<SpeculateRow> rows;
        for (const Contender& contender : all) {
            rows.push_back({.draft = contender.draft,
                            .mismatch_rate = contender.mismatch_rate,
                            .window = contender.window,
                            .batch = batch_});
        }
        std::vector<ChosenDrafter> drafters;
        for (const Contender& contender : all) {
            ASSIGN_OR_RETURN(ChosenDrafter drafter, drafter_of(contender));
            drafters.push_back(std::move(drafter));
        }
        for (int64_t round = 0; round <= config_.repeats; ++round) {  // the first one is not timed
            for (size_t i = 0; i < all.size(); ++i) {
                submit(round, i);
                ASSIGN_OR_RETURN(const Timed timed, decode(all[i], &drafters[i]));
                if (i == 0) plain_ = timed;
                rows[i].wrong |= timed.answers != plain_.answers;
                if (round == 0) continue;
                rows[i].tokens_per_s.push_back(static_cast<double>(timed.num_tokens) / timed.seconds);
                rows[i].of_plain.push_back(plain_.seconds / timed.seconds);
                rows[i].steps += timed.steps;
                rows[i].windows += timed.windows;
                rows[i].drafted_tokens += timed.drafted_tokens;
                rows[i].accepted_tokens += timed.accepted_tokens;
            }
        }
        return rows;
    }

    struct Timed {
        double seconds = 0;
        int64_t timed_steps = 0;
        int64_t num_tokens = 0;
        int64_t steps = 0;
        int64_t windows = 0;
        int64_t drafted_tokens = 0;
        int64_t accepted_tokens = 0;
        std::vector<std::vector<TokenId>> answers;  // in order of submission
    };

    [[nodiscard]] int64_t tokens_each() const {
        int64_t longest = config_.contexts.front() + speculate_.output_tokens;
        if (!requests_.empty()) longest = 0;
        for (const ChatRequest& request : requests_) {
            longest = std::max(longest, request.messages.front().tokens.size() + *request.max_tokens);
        }
        return longest + longest_window(speculate_);
    }
    [[nodiscard]] cpu::CpuExecutorConfig executor_config() const {
        return {.pools = {.block_size = config_.block_size,
                          .num_blocks = static_cast<int32_t>(batch_ * (tokens_each() / config_.block_size + 2)),
                          .num_state_rows = static_cast<int32_t>(2 * batch_ + 2)},
                .max_log_tokens = static_cast<int32_t>(longest_window(speculate_) - 1),
                .num_threads = config_.num_threads,
                .isa = config_.isa};
    }
    [[nodiscard]] EngineConfig engine_config() const {
        EngineConfig engine;
        engine.cache = cache_config(reference::geometry(model_.config), executor_config().pools);
        engine.scheduler.step_tokens =
            static_cast<int32_t>(std::max<int64_t>(config_.step_tokens, batch_ * longest_window(speculate_)));
        engine.scheduler.max_window = static_cast<int32_t>(longest_window(speculate_));
        engine.scheduler.max_checkpoints = 0;
        engine.digest_heads = speculate_.digests_heads;
        return engine;
    }
    Result<Timed> decode(const Contender& contender, ChosenDrafter* drafter);
    [[nodiscard]] Result<ChosenDrafter> drafter_of(const Contender& contender);
    void submit(int64_t round, size_t contender);

    const BenchConfig& config_;
    const SpeculateConfig& speculate_;
    const reference::Model& model_;
    const std::vector<ChatRequest>& requests_;
    int64_t batch_;
    cpu::CpuExecutor executor_;
    TokenStore& store_;
    LruEviction policy_;
    OutputLog log_;
    std::unique_ptr<records::RunRecording> recording_;  // null: nothing is recorded
    std::unique_ptr<RecorderList> recorders_;
    std::unique_ptr<Engine> engine_;
    Timed plain_;
};

// The engine, and its record.
Status SpeculateRun::start() {
    std::vector<Recorder*> told{&log_};
    if (speculate_.start_recording) {
        ASSIGN_OR_RETURN(const Digest weights, reference::model_digest(model_));
        ASSIGN_OR_RETURN(recording_,
                         speculate_.start_recording({.model = config_.model,
                                                     .model_seed = config_.seed,
                                                     .model_digest = weights,
                                                     .vocab_size = model_.config.vocab_size,
                                                     .numerics = executor_.numerics_id(),
                                                     .ordinary_numerics = executor_.ordinary_numerics_id(),
                                                     .executor = "cpu",
                                                     .profile = std::string(name(executor_.profile())),
                                                     .isa = std::string(config_.isa ? cpu::isa_name(*config_.isa) : ""),
                                                     .num_threads = config_.num_threads,
                                                     .draft = fmt::format("{}", fmt::join(speculate_.drafts, ",")),
                                                     .eviction = "lru",
                                                     .trace = speculate_.trace,
                                                     .engine = engine_config()}));
        told.push_back(&recording_->recorder());
    }
    recorders_ = std::make_unique<RecorderList>(std::move(told));
    Executor& used = recording_ ? recording_->watch(executor_, executor_) : executor_;
    engine_ = std::make_unique<Engine>(engine_config(), used, policy_, store_, *recorders_);
    log_.listen_to(*engine_);
    return {};
}

Result<ChosenDrafter> SpeculateRun::drafter_of(const Contender& contender) {
    DraftOptions options{.name = contender.draft,
                         .max_window = static_cast<int32_t>(longest_window(speculate_)),
                         .max_num_sequences = static_cast<int32_t>(batch_),
                         .right = &log_,
                         .num_threads = config_.num_threads,
                         .seed = config_.seed,
                         .is_priced = contender.window == 0};
    const reference::ModelGeometry shape = reference::geometry(model_.config);
    options.memory_bytes = 4 * batch_ * (tokens_each() * shape.kv_bytes_per_token + shape.state_bytes_per_row);
    if (contender.mismatch_rate >= 0) options.mismatch_ppm = ppm_of(contender.mismatch_rate);
    options.executor = &executor_;
    ASSIGN_OR_RETURN(ChosenDrafter chosen, choose_drafter(options, model_, *engine_));
    chosen.listen_to(nullptr);
    return chosen;
}

// The prompts of the round, in separate conversations.
void SpeculateRun::submit(int64_t round, size_t contender) {
    for (int64_t i = 0; i < batch_; ++i) {
        const auto number = static_cast<uint64_t>(round * batch_ + i);
        const uint64_t space = kPromptSpace + config_.seed * 1'000'003 + number;
        ChatRequest request;
        if (requests_.empty()) {
            request.messages.push_back({store_.derive(space, 0, config_.contexts.front()), false});
            request.max_tokens = speculate_.output_tokens;
            request.ignore_stop = true;
        } else {
            request = requests_[number % requests_.size()];
        }
        request.conversation.conversation_id = fmt::format("{}.{}.{}", round, contender, i);
        request.seed = space;
        CHECK(engine_->submit(std::move(request)).has_value());
    }
}

Result<SpeculateRun::Timed> SpeculateRun::decode(const Contender& contender, ChosenDrafter* chosen) {
    if (chosen != nullptr) chosen->listen_to(&executor_);
    Drafter* drafter = chosen != nullptr ? chosen->drafter.get() : nullptr;
    engine_->draft_with(drafter, static_cast<int32_t>(contender.max_window()), contender.window == 0);
    const EngineStats before = engine_->stats();
    SteadyClock clock;
    Timed timed;
    std::map<RequestId, size_t> place;
    while (!engine_->idle()) {
        const bool timing = static_cast<int64_t>(timed.answers.size()) == batch_;
        const int64_t begin_ns = clock.now_ns();
        ASSIGN_OR_RETURN(const bool stepped, engine_->step());
        CHECK(stepped);
        const int64_t end_ns = clock.now_ns();
        if (timing) timed.seconds += static_cast<double>(end_ns - begin_ns) * 1e-9;
        timed.timed_steps += timing ? 1 : 0;
        for (const EngineEvent& event : engine_->take_events()) {
            const auto* token = std::get_if<TokenEvent>(&event);
            if (token == nullptr) continue;
            const size_t i = place.try_emplace(token->request, place.size()).first->second;
            if (i == timed.answers.size()) timed.answers.emplace_back();
            timed.answers[i].push_back(token->token);
            timed.num_tokens += timing ? 1 : 0;
        }
    }
    if (chosen != nullptr) chosen->listen_to(nullptr);
    const EngineStats& after = engine_->stats();
    timed.steps = after.steps - before.steps;
    timed.windows = after.windows - before.windows;
    timed.drafted_tokens = after.drafted_tokens - before.drafted_tokens;
    timed.accepted_tokens = after.accepted_tokens - before.accepted_tokens;
    return timed;
}

}  // namespace

bool SpeculateReport::wrong() const { return std::ranges::any_of(rows, &SpeculateRow::wrong); }

Result<SpeculateReport> run_speculate(const BenchConfig& config, const SpeculateConfig& speculate) {
    SpeculateReport report{.config = config, .trace = speculate.trace, .isa = {}, .rows = {}};
    ASSIGN_OR_RETURN(const reference::Model model,
                     reference::choose_model(config.model, config.seed,
                                             {.num_threads = config.num_threads, .mtp = has_mtp(speculate)}));
    TokenStore store(model.config.vocab_size);
    std::vector<ChatRequest> requests;
    if (speculate.requests) {
        ASSIGN_OR_RETURN(requests, speculate.requests(model.config, store));
    }
    const int64_t tokens = requests.empty() ? config.contexts.front() + speculate.output_tokens : 0;
    if (tokens > model.config.max_position_embeddings) {
        return error("--contexts {}: with {} tokens of output, but {} has {} positions", config.contexts.front(),
                     speculate.output_tokens, config.model, model.config.max_position_embeddings);
    }
    for (const int64_t batch : config.batches) {
        SpeculateRun run(config, speculate, model, store, requests, batch);
        report.isa = cpu::isa_name(run.isa());
        ASSIGN_OR_RETURN(std::vector<SpeculateRow> rows, run.run());
        report.rows.insert(report.rows.end(), rows.begin(), rows.end());
    }
    return report;
}

}  // namespace verbatim::bench
