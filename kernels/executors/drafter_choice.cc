#include "kernels/executors/drafter_choice.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "engine/cache/budget.h"
#include "engine/drafting/executor_drafter.h"
#include "engine/drafting/ngram_drafter.h"
#include "engine/drafting/priced_drafter.h"
#include "engine/fields.h"
#include "files/steady_clock.h"
#include "kernels/executors/mtp_drafter.h"
#include "reference/loader/load_model.h"
#include "reference/loader/model_choice.h"
#include "reference/model/state_tensors.h"

namespace verbatim::executors {
namespace {

constexpr std::array<std::string_view, 6> kDrafterNames = {"none", "ngram", "adversary", "mtp", "int8", "fast"};
constexpr std::string_view kModelPrefix = "model:";
constexpr int32_t kBlockSize = 16;

// An adversary's oracle. A request's answer is looked up once: its prompt may be long.
struct RightTokens {
    const Engine& engine;
    const OutputLog& log;
    std::map<RequestId, const std::vector<TokenId>*> answers = {};

    std::optional<TokenId> operator()(const DraftJob& job, int64_t ahead) {
        const auto [found, is_new] = answers.try_emplace(job.request);
        if (is_new) found->second = log.answer_to(*engine.find(job.request));
        const size_t position = job.output.size() + static_cast<size_t>(ahead);
        if (found->second == nullptr || position >= found->second->size()) return std::nullopt;
        return (*found->second)[position];
    }
};

// As many drafts as one drafter computes, and the tokens of another one, which costs nothing: for measurements.
class ReplacedGuesses final : public WrappingDrafter {
public:
    ReplacedGuesses(Drafter& computing, std::unique_ptr<Drafter> guessing)
        : WrappingDrafter(computing), guessing_(std::move(guessing)) {}
    void draft(std::span<DraftJob> jobs) override {
        inner().draft(jobs);
        for (DraftJob& job : jobs) {
            if (job.drafts.empty()) continue;
            DraftJob other = job;
            other.max_drafts = static_cast<int32_t>(job.drafts.size());
            other.drafts.clear();
            guessing_->draft({&other, 1});
            job.drafts = std::move(other.drafts);
        }
    }
    void ended(RequestId request) override {
        inner().ended(request);
        guessing_->ended(request);
    }

private:
    std::unique_ptr<Drafter> guessing_;
};

std::unique_ptr<Drafter> adversary(const DraftOptions& options, const reference::Model& model, const Engine& engine) {
    const auto right = RightTokens{engine, *options.right};
    return std::make_unique<AdversaryDrafter>(right, model.config.vocab_size, options.seed, options.mismatch_ppm);
}

Result<std::unique_ptr<Drafter>> executor_drafter(const DraftOptions& options, const reference::Model& model,
                                                  ExecutorOptions executor, ChosenExecutor& chosen,
                                                  const Engine& engine) {
    if (model.weights.quantised)
        return error("--draft {}: {} has quantised weights, which this drafter does not compute with", options.name,
                     options.name.starts_with(kModelPrefix) ? "the drafter's model" : "the model");
    const UnitBytes unit = unit_bytes(reference::geometry(model.config), kBlockSize);
    ASSIGN_OR_RETURN(PoolSizes pools, share_budget({.total_bytes = options.memory_bytes}, unit));
    const int32_t num_slots =
        unit.state_row > 0 ? std::min(pools.num_state_rows, options.max_num_sequences) : options.max_num_sequences;
    if (unit.state_row > 0) pools.num_state_rows = num_slots;
    executor.pools = pools;
    executor.budget = {options.memory_bytes, unit.kv_block, unit.state_row};
    executor.max_log_tokens = options.max_window - 1;
    executor.num_threads = options.num_threads;
    ASSIGN_OR_RETURN(chosen, choose_executor("cpu", executor, model));
    return std::make_unique<ExecutorDrafter>(ExecutorDrafterConfig{.pools = pools,
                                                                   .budget = executor.budget,
                                                                   .max_num_slots = num_slots,
                                                                   .max_log_tokens = executor.max_log_tokens},
                                             *chosen.executor, engine.token_store());
}

// Its layer in int8, or in a quantised checkpoint's own blocks. There is room for as many ended requests as running
// ones.
Result<std::unique_ptr<Drafter>> mtp_drafter(const DraftOptions& options, const reference::Model& model,
                                             ChosenExecutor& chosen, const Engine& engine) {
    auto* computing = dynamic_cast<PooledExecutor*>(options.executor);
    if (computing == nullptr) return error("--draft mtp: this executor shows no hidden rows; cpu and cuda do");
    if (!model.mtp) return error("--draft mtp: the model was loaded without its layer that predicts more tokens");
    const UnitBytes unit = unit_bytes(reference::geometry(model.mtp->config), kBlockSize);
    ASSIGN_OR_RETURN(const PoolSizes pools, share_budget({.total_bytes = options.memory_bytes}, unit));
    const bool in_blocks = model.mtp->weights.quantised;
    ASSIGN_OR_RETURN(chosen,
                     choose_executor("cpu",
                                     {.pools = pools,
                                      .num_threads = options.num_threads,
                                      .profile = in_blocks ? reference::Profile::kExact : reference::Profile::kFast,
                                      .weights = in_blocks ? cpu::WeightFormat::kBf16 : cpu::WeightFormat::kInt8},
                                     *model.mtp));
    auto drafter =
        std::make_unique<MtpDrafter>(MtpDrafterConfig{.pools = pools, .max_num_slots = 2 * options.max_num_sequences},
                                     model, dynamic_cast<PooledExecutor&>(*chosen.executor), engine);
    drafter->listen_to(computing);
    return drafter;
}

}  // namespace

void ChosenDrafter::listen_to(reference::NumericExecutor* executor_of_model) {
    for (const auto* owned : {&computing, &unpriced, &drafter}) {
        if (auto* mtp = dynamic_cast<MtpDrafter*>(owned->get()))
            mtp->listen_to(dynamic_cast<PooledExecutor*>(executor_of_model));
    }
}

// An equal request gets the equal answer: known tokens are not added twice.
void OutputLog::on_token(RequestId request, TokenId token) {
    Answered& answer = answers_[request];
    if (answer.num_tokens == 0) answer.key = key_of(*engine_->find(request));
    std::vector<TokenId>& output = outputs_[answer.key];
    if (answer.num_tokens++ == output.size()) output.push_back(token);
}

Digest OutputLog::key_of(const Sequence& sequence) {
    Digester digester;
    sequence.turn.prompt.add_to(digester);
    add_fields(digester, sequence.request.sampling);
    return digester.digest();
}

const std::vector<TokenId>* OutputLog::answer_to(const Sequence& sequence) const {
    const auto found = outputs_.find(key_of(sequence));
    return found == outputs_.end() ? nullptr : &found->second;
}

bool drafts_by_model(const std::string& name) {
    return name == "int8" || name == "fast" || drafts_by_mtp(name) || name.starts_with(kModelPrefix);
}

Status check_drafter_name(const std::string& name) {
    if (std::ranges::count(kDrafterNames, name) > 0) return {};
    if (name.starts_with(kModelPrefix) && name.size() > kModelPrefix.size()) return {};
    return error("--draft {}: got no drafter's name; there are {} and model:DIR", name, fmt::join(kDrafterNames, ", "));
}

Result<WindowChoice> window_of(const std::string& text) {
    constexpr int32_t kMaxAutoWindow = 16;
    WindowChoice window;
    if (text.empty()) return window;
    if (text == "auto") return WindowChoice{.max_window = kMaxAutoWindow, .is_paced = true};
    const char* end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, window.max_window);
    const bool is_number = parsed.ec == std::errc{} && parsed.ptr == end;
    if (is_number && window.max_window >= 2 && window.max_window <= kMaxWindow) return window;
    return error("--window {}: got neither auto nor a number from 2 to {}: the last known token and drafts", text,
                 kMaxWindow);
}

Result<ChosenDrafter> choose_drafter(const DraftOptions& options, const reference::Model& model, const Engine& engine) {
    RETURN_IF_ERROR(check_drafter_name(options.name));
    ChosenDrafter chosen;
    ExecutorOptions executor;
    if (options.name == "none") return chosen;
    if (options.name == "ngram") {
        chosen.drafter = std::make_unique<NgramDrafter>();
    } else if (options.name == "adversary") {
        chosen.drafter = adversary(options, model, engine);
    } else if (drafts_by_mtp(options.name)) {
        ASSIGN_OR_RETURN(chosen.drafter, mtp_drafter(options, model, chosen.executor, engine));
        if (options.mismatch_ppm) {
            chosen.computing = std::move(chosen.drafter);
            chosen.drafter = std::make_unique<ReplacedGuesses>(*chosen.computing, adversary(options, model, engine));
        }
    } else if (options.name == "int8" || options.name == "fast") {
        executor.profile = reference::Profile::kFast;
        executor.weights = options.name == "int8" ? cpu::WeightFormat::kInt8 : cpu::WeightFormat::kBf16;
        ASSIGN_OR_RETURN(chosen.drafter, executor_drafter(options, model, executor, chosen.executor, engine));
    } else {
        const std::string folder = options.name.substr(kModelPrefix.size());
        ASSIGN_OR_RETURN(reference::Model small,
                         reference::choose_model(folder, options.seed, {.num_threads = options.num_threads}));
        chosen.model = std::make_unique<reference::Model>(std::move(small));
        if (chosen.model->config.vocab_size != model.config.vocab_size) {
            return error("--draft {}: it has {} tokens, the model that it drafts for has {}: they need one vocabulary",
                         options.name, chosen.model->config.vocab_size, model.config.vocab_size);
        }
        executor.profile = reference::Profile::kFast;
        ASSIGN_OR_RETURN(chosen.drafter, executor_drafter(options, *chosen.model, executor, chosen.executor, engine));
    }
    if (options.is_priced) {
        chosen.clock = std::make_unique<SteadyClock>();
        chosen.unpriced = std::move(chosen.drafter);
        chosen.drafter = std::make_unique<PricedDrafter>(*chosen.unpriced, *chosen.clock);
    }
    return chosen;
}

}  // namespace verbatim::executors
