#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "simulator/rival_cache.h"
#include "traces/requests.h"

namespace verbatim {
namespace {

constexpr int64_t kReferenceTokens = 16;  // of a block reference

}  // namespace

std::unique_ptr<RivalCache> make_rival_cache(const RivalConfig& config) {
    switch (config.rival) {
        case Rival::kVllmAlign: return make_vllm_align(config);
        case Rival::kSglangRadix:
        case Rival::kSglangRadixPools:
        case Rival::kSglangRadixNoBuffer: return make_sglang_radix(config);
        case Rival::kMarconi: return make_marconi(config);
    }
    CHECK(false, "rival {}", static_cast<int>(config.rival));
}

Result<CacheRunResult> run_rival(const RivalConfig& config, const traces::Trace& trace, int32_t vocab_size) {
    TokenStore store(vocab_size);
    ASSIGN_OR_RETURN(auto requests, traces::RequestMaker::create(trace, store));
    const std::unique_ptr<RivalCache> cache = make_rival_cache(config);
    CacheRunResult result;
    result.rows.resize(trace.rows.size());
    for (size_t i = 0; i < trace.rows.size(); ++i) {
        const auto row = traces::RowIndex(i);
        RowTimes& times = result.rows[i];
        times.outcome = RowOutcome::kDone;
        if (!traces::is_request(trace.row(row).event)) continue;
        const ChatRequest request = requests.make(row);
        const TokenSeq prompt = requests.prompt(row);
        const int64_t num_output = std::max<int64_t>(trace.row(row).max_tokens, 0);
        const int64_t num_resident = prompt.size() + std::max<int64_t>(num_output - 1, 0);
        times.prompt_tokens = prompt.size();
        times.outcome = RowOutcome::kRejected;
        const bool fits =
            !prompt.empty() && prompt.size() + num_output <= config.max_model_len && cache->fits(num_resident);
        if (!fits) {
            ++result.rejected;
            continue;
        }
        const TokenSeq output = store.derive(traces::output_space(row), 0, num_output);
        TokenSeq resident = prompt;
        resident.append(output.slice(0, num_resident - prompt.size()));
        times.reused_tokens = cache->serve({request.conversation.salt, resident, prompt.size()});
        CHECK(times.reused_tokens < prompt.size() && cache->held_bytes() <= config.budget_bytes,
              "row {}: {} of {} tokens are reused, {} bytes of {} are held", i, times.reused_tokens, prompt.size(),
              cache->held_bytes(), config.budget_bytes);
        requests.answered(row, output, Version{static_cast<int64_t>(i) + 1});
        times.output_tokens = num_output;
        times.outcome = RowOutcome::kServed;
        result.block_references += (prompt.size() + kReferenceTokens - 1) / kReferenceTokens;
    }
    result.evictions = cache->num_evictions();
    return result;
}

}  // namespace verbatim
