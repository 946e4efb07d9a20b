#include "tests/tools/verify/random_run.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/prng.h"
#include "engine/drafting/ngram_drafter.h"
#include "engine/engine.h"
#include "kernels/cpu/cpu_executor.h"
#include "reference/model/random_model.h"
#include "reference/records/run_recorder.h"
#include "reference/records/step_digests.h"

namespace verbatim::tests {
namespace {

using records::DigestLevel;

class World {
public:
    World(const RandomRunOptions& options, tools::RecordedRun& run, RandomRunCoverage& coverage)
        : options_(options), run_(run), coverage_(coverage), prng_(options.seed) {
        const auto family = static_cast<reference::Architecture>(prng_.below(7));
        run_.model = reference::make_random_model(reference::draw_small_config(family, options.seed), options.seed);
        run_.executor = "cpu";
        run_.path = fmt::format("seed {}", options.seed);
        describe();
        make_again();
    }

    void record() {
        records::Record& record = run_.record;
        record.own_store = std::make_unique<TokenStore>(run_.model.config.vocab_size);
        record.store = record.own_store.get();
        records::RecordKeeper keeper(record);
        records::RunRecorder recorder(record.run.digests, keeper);
        recorder_ = &recorder;
        LruEviction policy;
        NgramDrafter drafter;
        Executor& first = fresh_executor();
        record.run.numerics = first.numerics_id();
        record.run.ordinary_numerics = first.ordinary_numerics_id();
        Engine engine(record.run.engine, first, policy, *record.store, recorder);
        engine_ = &engine;
        if (record.run.engine.scheduler.max_window > 1) engine.draft_with(&drafter);
        run();
        recorder.finish();
        coverage_.windows += engine.stats().windows;
        coverage_.preemptions += engine.stats().preemptions;
        coverage_.evictions += engine.stats().evictions;
        coverage_.commits += engine.stats().commits;
        recorder_ = nullptr;
        engine_ = nullptr;
    }

private:
    [[nodiscard]] bool chance(uint64_t one_in) { return prng_.below(one_in) == 0; }
    [[nodiscard]] int64_t from(int64_t least, int64_t most) {
        return least + static_cast<int64_t>(prng_.below(static_cast<uint64_t>(most - least + 1)));
    }
    template <typename T>
    [[nodiscard]] T one_of(std::initializer_list<T> all) {
        return *(all.begin() + from(0, static_cast<int64_t>(all.size()) - 1));
    }

    void describe() {
        records::RunDescription& run = run_.record.run;
        run.program = "a test";
        run.model = "random";
        run.vocab_size = run_.model.config.vocab_size;
        run.executor = "cpu";
        run.eviction = "lru";
        run.profile = "exact";
        run.digests = one_of({DigestLevel::kNone, DigestLevel::kHeads, DigestLevel::kLayers, DigestLevel::kOps});
        if (options_.has_layers) run.digests = one_of({DigestLevel::kLayers, DigestLevel::kOps});
        const auto geometry = reference::geometry(run_.model.config);
        EngineConfig& engine = run.engine;
        engine.cache.has_kv = geometry.kv_bytes_per_token > 0;
        engine.cache.has_state = geometry.state_bytes_per_row > 0;
        const auto block_size = one_of<int32_t>({1, 2, 3, 4, 8, 16});
        const auto num_slots = static_cast<int32_t>(128 + 2 * block_size + (chance(3) ? from(0, 400) : from(0, 60)));
        engine.cache.pools.block_size = block_size;
        engine.cache.pools.num_blocks = engine.cache.has_kv ? num_slots / block_size : 0;
        engine.cache.pools.num_state_rows =
            engine.cache.has_state ? static_cast<int32_t>(chance(3) ? from(1, 24) : from(1, 6)) : 0;
        engine.cache.lookup = one_of({LookupMode::kConversation, LookupMode::kPrefix});
        engine.scheduler.step_tokens = one_of<int32_t>({4, 7, 16, 33, 64, 200});
        engine.scheduler.max_num_sequences = one_of<int32_t>({1, 2, 3, 256});
        engine.scheduler.admission = one_of({AdmissionOrder::kArrival, AdmissionOrder::kFewestTokens});
        engine.scheduler.max_window = chance(2) ? one_of<int32_t>({2, 3, 4}) : 1;
        if (chance(4)) engine.token_template.end_of_turn = TokenId{3};
        engine.max_model_len = 128;
        engine.default_max_tokens = 6;
        engine.digest_heads = true;
        engine.seed = options_.seed;
    }

    // Borrows the run, which outlives its executors.
    void make_again() {
        run_.again.make_executor = [&run = run_, prepare = options_.prepare](
                                       const EngineConfig& engine,
                                       bool ordinary) -> Result<std::shared_ptr<reference::NumericExecutor>> {
            cpu::CpuExecutorConfig config{.pools = engine.cache.pools,
                                          .max_log_tokens = engine.scheduler.max_log_tokens()};
            if (ordinary) config.ordinary_profile = reference::Profile::kFast;
            auto made = std::make_shared<cpu::CpuExecutor>(run.model.config, run.model.weights, config);
            if (prepare) prepare(*made);
            return made;
        };
        run_.again.make_policy = [&run = run_](const std::string& name) {
            return tools::policy_by_name(name, run.model.config);
        };
        run_.again.digests = run_.record.run.digests;
        run_.again.executor = "cpu";
    }

    Executor& fresh_executor() {
        recorder_->take_digests_of(nullptr);
        digesting_.reset();
        auto made = run_.again.make_executor(run_.record.run.engine, false);
        CHECK(made.has_value());
        numeric_ = *std::move(made);
        working_ = numeric_.get();
        if (run_.record.run.digests != DigestLevel::kNone) {
            working_ = &digesting_.emplace(*numeric_, *numeric_, run_.record.run.digests);
            recorder_->take_digests_of(&*digesting_);
        }
        return *working_;
    }

    // --- clients

    std::string name() { return std::string(1, static_cast<char>('a' + from(0, is_crowded_ ? 15 : 5))); }
    // Loaded, as a caller does with every conversation that it names.
    ConversationKey key() {
        ConversationKey key{{}, name()};
        load(key);
        return key;
    }
    std::vector<TokenId> text(int64_t count) {
        // Few different tokens: n-grams come again.
        std::vector<TokenId> tokens;
        for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(from(0, 9)));
        return tokens;
    }

    ChatRequest request() {
        ChatRequest request;
        request.conversation = key();
        request.input = one_of(
            {InputKind::kHistory, InputKind::kHistory, InputKind::kSuffix, InputKind::kSuffix, InputKind::kRegenerate});
        const Ledger::Conversation* known = engine_->ledger().find(request.conversation);
        if (known == nullptr || known->turns.empty()) request.input = InputKind::kHistory;
        TokenStore& store = engine_->token_store();
        if (request.input == InputKind::kHistory) {
            std::vector<TokenId> tokens;
            if (known != nullptr && !chance(4)) tokens = known->committed.to_vector();
            if (chance(3)) tokens.resize(tokens.size() - prng_.below(tokens.size() + 1));
            if (!tokens.empty()) request.messages.push_back({store.store(tokens)});
        }
        if (request.input != InputKind::kRegenerate)
            request.messages.push_back({store.store(text(chance(3) ? from(20, 60) : from(1, 12)))});
        request.max_tokens = chance(12) ? 0 : from(1, is_crowded_ ? 40 : 14);
        if (chance(3)) request.turn_id = fmt::format("turn {}", from(0, 30));
        request.sampling.temperature = chance(2) ? 1.0F : 0.0F;
        if (chance(6)) request.sampling.repetition_penalty = 1.25F;
        if (chance(3)) request.seed = prng_.next();
        if (chance(3)) request.stop_tokens = text(2);
        if (chance(6)) request.stop_strings = {text(2)};
        request.use_cache = !chance(8);
        if (chance(10)) request.forced_output = store.store(text(from(1, 6)));
        return request;
    }
    void submit(ChatRequest request) {
        const auto accepted = engine_->submit(std::move(request));
        if (!accepted || accepted->recorded) return;
        ++coverage_.requests;
        running_.push_back(accepted->request);
    }
    [[nodiscard]] std::optional<RequestId> a_running_one() {
        std::erase_if(running_, [this](RequestId id) { return engine_->find(id) == nullptr; });
        if (running_.empty()) return std::nullopt;
        return running_[prng_.below(running_.size())];
    }

    void call() {
        if (is_crowded_ && !chance(4)) return submit(request());
        switch (prng_.below(20)) {
            case 0:
            case 1: abort(); break;
            case 2: end_turn(); break;
            case 3:
                if (chance(2)) coverage_.revoked += engine_->revoke(key()) ? 1 : 0;
                break;
            case 4:
            case 5:
            case 6: fork(); break;
            case 7: coverage_.rewinds += engine_->rewind(key(), static_cast<size_t>(from(1, 2))) ? 1 : 0; break;
            case 8: coverage_.deletes += engine_->remove(key()) ? 1 : 0; break;
            case 9:
                if (chance(4)) restore();
                break;
            case 10: unload(); break;
            default: submit(request());
        }
    }
    void abort() {
        const auto id = a_running_one();
        if (!id) return;
        coverage_.unanswered += engine_->find(*id)->output.empty() ? 1 : 0;
        coverage_.aborts += engine_->abort(*id) ? 1 : 0;
    }
    void end_turn() {
        const auto id = a_running_one();
        if (id) coverage_.ended += engine_->end_turn(*id) ? 1 : 0;
    }
    void fork() {
        const ConversationKey origin = key();
        const Ledger::Conversation* known = engine_->ledger().find(origin);
        const bool in_turn = known != nullptr && known->leased_to.has_value();
        const auto num_turns = chance(2) ? std::nullopt : std::optional<size_t>(from(1, 2));
        coverage_.forks_in_turns += engine_->fork(origin, key().conversation_id, num_turns) && in_turn ? 1 : 0;
    }
    void restore() {
        TokenStore& store = engine_->token_store();
        engine_->restore(key(), {{store.store(text(7))}, {store.store(text(3))}}, Version{2});
    }

    // One that is not in use leaves the engine until it is named again.
    void unload() {
        const ConversationKey key{{}, name()};
        const Ledger::Conversation* known = engine_->ledger().find(key);
        if (known == nullptr) return;
        Unloaded unloaded{.version = known->version};
        int64_t begin = 0;
        for (const Turn& turn : known->turns) {
            unloaded.parts.push_back({known->committed.slice(begin, turn.prompt_end)});
            unloaded.parts.push_back({known->committed.slice(turn.prompt_end, turn.end)});
            begin = turn.end;
        }
        if (!engine_->unload(key)) return;
        ++coverage_.unloads;
        unloaded_.insert_or_assign(key, unloaded);
    }
    void load(const ConversationKey& key) {
        const auto found = unloaded_.find(key);
        if (found == unloaded_.end()) return;
        CHECK(engine_->restore(key, found->second.parts, found->second.version), "'{}' is there", key.conversation_id);
        unloaded_.erase(found);
    }

    // --- steps

    void run() {
        int64_t left = options_.num_calls;
        const bool is_cut = chance(8);  // the record ends while turns run
        while (left > 0 || !engine_->idle()) {
            for (int64_t n = chance(2) ? from(0, 2) : 0; left > 0 && n > 0; --n, --left) call();
            if (engine_->idle()) {
                for (int64_t n = is_crowded_ ? 8 : 1; left > 0 && n > 0; --n) submit(request());
                --left;
                continue;
            }
            if (left <= 0 && is_cut && chance(3)) {
                run_.record.cut_off = "turns run at its end";
                return;
            }
            step(left);
            read_events();
        }
    }
    void step(int64_t& left) {
        const StepPlan& plan = engine_->plan_step();
        if (left > 0 && chance(6)) {
            call();
            --left;
        }
        if (chance(25)) return fail();
        CHECK(working_->execute(plan, result_).has_value());
        engine_->apply(result_);
    }
    // The same executor goes on with its heads, or a fresh one without any.
    void fail() {
        ++coverage_.failures;
        engine_->fail_step();
        std::vector<FailedTurn> failed = engine_->take_failed_turns();
        if (chance(3)) {
            numeric_->forget_slots();
        } else {
            engine_->replace_executor(fresh_executor());
            ++coverage_.replacements;
        }
        for (FailedTurn& turn : failed) {
            if (chance(3)) continue;
            ++coverage_.resent;
            submit(std::move(turn.again));
        }
    }
    void read_events() {
        for (const EngineEvent& event : engine_->take_events()) {
            const auto* finished = std::get_if<FinishedEvent>(&event);
            coverage_.lease_lost += finished != nullptr && finished->reason == FinishReason::kLeaseLost ? 1 : 0;
        }
    }

    const RandomRunOptions& options_;
    tools::RecordedRun& run_;
    RandomRunCoverage& coverage_;
    Prng prng_;
    const bool is_crowded_ = chance(3);  // many conversations, long answers
    records::RunRecorder* recorder_ = nullptr;
    Engine* engine_ = nullptr;
    std::shared_ptr<reference::NumericExecutor> numeric_;
    std::optional<records::DigestingExecutor> digesting_;
    Executor* working_ = nullptr;
    std::vector<RequestId> running_;
    struct Unloaded {
        std::vector<Message> parts;
        Version version = kNoVersion;
    };
    std::map<ConversationKey, Unloaded> unloaded_;
    StepResult result_;
};

}  // namespace

std::unique_ptr<tools::RecordedRun> random_run(const RandomRunOptions& options, RandomRunCoverage& coverage) {
    auto run = std::make_unique<tools::RecordedRun>();
    World(options, *run, coverage).record();
    run->index = std::make_unique<records::RunIndex>(run->record);
    run->points = std::make_unique<records::WalkPoints>(run->model.config);
    return run;
}

}  // namespace verbatim::tests
