// tests/reference/records/record_scene.h: a small model, a run of some conversations, and its record.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/cpu_executor.h"
#include "reference/model/random_model.h"
#include "reference/records/format.h"
#include "reference/records/run_again.h"
#include "reference/records/run_recorder.h"
#include "reference/records/step_digests.h"
#include "reference/records/walk_points.h"
#include "reference/reference_executor.h"
#include "tests/support/engine_scene.h"

namespace verbatim::tests {

inline constexpr uint64_t kRecordSeed = 12;

// A test's changes to an executor before its use.
using Prepare = std::function<void(reference::NumericExecutor& executor)>;

class RecordScene {
public:
    explicit RecordScene(reference::Architecture architecture = reference::Architecture::kGraniteHybrid)
        : model(reference::make_random_model(reference::draw_small_config(architecture, kRecordSeed), kRecordSeed)),
          points(model.config) {
        const auto geometry = reference::geometry(model.config);
        config.cache.has_kv = geometry.kv_bytes_per_token > 0;
        config.cache.has_state = geometry.state_bytes_per_row > 0;
        config.cache.pools.block_size = 4;
        config.cache.pools.num_blocks = config.cache.has_kv ? 96 : 0;
        config.cache.pools.num_state_rows = config.cache.has_state ? 24 : 0;
        config.scheduler.step_tokens = 16;
        config.max_model_len = 256;
        config.digest_heads = true;
        config.seed = kRecordSeed;
    }

    [[nodiscard]] records::MakeExecutor cpu(Prepare prepare = {}) const {
        return
            [this, prepare](const EngineConfig& engine, bool) -> Result<std::shared_ptr<reference::NumericExecutor>> {
                const cpu::CpuExecutorConfig pools{.pools = engine.cache.pools,
                                                   .max_log_tokens = engine.scheduler.max_log_tokens()};
                auto made = std::make_shared<cpu::CpuExecutor>(model.config, model.weights, pools);
                if (prepare) prepare(*made);
                return made;
            };
    }
    [[nodiscard]] records::MakeExecutor uncached(Prepare prepare = {}) const {
        return [this, prepare](const EngineConfig&, bool) -> Result<std::shared_ptr<reference::NumericExecutor>> {
            auto made = std::make_shared<reference::ReferenceExecutor>(model.config, model.weights);
            if (prepare) prepare(*made);
            return made;
        };
    }

    // Two concurrent conversations, each with a second turn, a fork and a client that leaves.
    [[nodiscard]] records::Record record(records::DigestLevel level, const records::MakeExecutor& make) const {
        records::Record record;
        record.own_store = std::make_unique<TokenStore>(model.config.vocab_size);
        record.store = record.own_store.get();
        record.run.program = "a test";
        record.run.model = "small";
        record.run.vocab_size = model.config.vocab_size;
        record.run.engine = config;
        record.run.executor = "cpu";
        record.run.eviction = "lru";
        record.run.digests = level;
        records::RecordKeeper keeper(record);
        records::RunRecorder recorder(level, keeper);
        const auto executor = make(config, false);
        CHECK(executor.has_value());
        {
            records::DigestingExecutor digesting(**executor, **executor, level);
            recorder.take_digests_of(&digesting);
            LruEviction policy;
            Engine engine(config, digesting, policy, *record.own_store, recorder);
            if (drafter != nullptr) engine.draft_with(drafter, config.scheduler.max_window, /*paced_windows=*/false);
            run(engine);
        }
        recorder.finish();
        return record;
    }
    [[nodiscard]] records::Record record(records::DigestLevel level) const { return record(level, cpu()); }

    [[nodiscard]] records::RunAgainOptions again(const records::MakeExecutor& make, records::DigestLevel level) const {
        return {.make_executor = make, .digests = level, .executor = "cpu"};
    }

    reference::Model model;
    records::WalkPoints points;
    EngineConfig config;
    int64_t more_tokens = 0;     // of a last request, for runs of many steps
    int num_more = 1;            // such requests at once
    bool deterministic = true;   // its requests
    Drafter* drafter = nullptr;  // borrowed
    bool imports_head = false;   // a first request continues a head that another executor has computed

private:
    void run(Engine& engine) const {
        if (imports_head) import(engine);
        submit(engine, "ann", 21, 4);
        submit(engine, "bob", 34, 5);
        to_the_end(engine);
        submit(engine, "ann", 6, 5);
        CHECK(engine.fork({{}, "bob"}, "bert").has_value());
        submit(engine, "bert", 9, 3);
        const RequestId leaving = submit(engine, "cat", 12, 20);
        for (int i = 0; i < 4; ++i) CHECK(engine.step().has_value());
        engine.abort(leaving);
        to_the_end(engine);
        for (int i = 0; more_tokens > 0 && i < num_more; ++i)
            submit(engine, i == 0 ? "dan" : fmt::format("dan {}", i), 5, more_tokens);
        to_the_end(engine);
    }
    void import(Engine& engine) const {
        const auto executor = cpu()(config, false);
        std::vector<TokenId> ids;
        for (int32_t i = 0; i < 18; ++i) ids.push_back((i * i + 3) % model.config.vocab_size);
        const TokenSeq tokens = engine.token_store().store(std::span(ids).first(15));
        const ConversationKey key{{}, "eve"};
        const auto head = compute_head(config, **executor, engine.token_store(), tokens);
        CHECK(head.has_value(), "{}", head ? "" : head.error().message);
        const auto imported = engine.import_head({.key = key,
                                                  .tokens = tokens,
                                                  .numerics_id = head->numerics_id,
                                                  .digest = head->digest,
                                                  .bytes = head->bytes});
        CHECK(imported.has_value(), "{}", imported ? "" : imported.error().message);
        ChatRequest request;
        request.conversation = key;
        request.messages.push_back({engine.token_store().store(ids)});
        request.max_tokens = 3;
        CHECK(engine.submit(request).has_value());
    }
    RequestId submit(Engine& engine, const std::string& id, int64_t num_tokens, int64_t max_tokens) const {
        std::vector<TokenId> tokens;
        for (int64_t i = 0; i < num_tokens; ++i)
            tokens.push_back(
                static_cast<TokenId>((i * 7 + static_cast<int64_t>(id[1]) * 3 + num_tokens) % model.config.vocab_size));
        ChatRequest request;
        request.conversation.conversation_id = id;
        const bool goes_on = id == "bert" || (id == "ann" && num_tokens < 10);
        request.input = goes_on ? InputKind::kSuffix : InputKind::kHistory;
        request.messages.push_back({engine.token_store().store(tokens)});
        request.max_tokens = max_tokens;
        request.sampling.temperature = 1;
        request.deterministic = deterministic;
        const auto accepted = engine.submit(request);
        CHECK(accepted.has_value());
        return accepted->request;
    }
    static void to_the_end(Engine& engine) {
        for (;;) {
            const auto stepped = engine.step();
            CHECK(stepped.has_value());
            if (!*stepped) return;
        }
    }
};

}  // namespace verbatim::tests
