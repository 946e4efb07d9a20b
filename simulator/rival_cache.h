// simulator/rival_cache.h: owns the prefix caches of other engines for hybrid models: hit rates without timing. What is
// kept and what goes is what their sources and papers decide.
//
// Rows are processed as simulator/cache_run.h does: in trace order, one at a time, and the same rows are rejected.
// docs/simulator.md ("Rivals") names the sources and what is simplified.
//   X1  what the cache and the running request hold together fits the budget
//   X2  reused <= prompt tokens - 1
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "engine/base/result.h"
#include "engine/request/request.h"
#include "engine/tokens/token_seq.h"
#include "simulator/aligned_pages.h"
#include "simulator/cache_run.h"
#include "traces/trace.h"

namespace verbatim {

enum class Rival : uint8_t {
    kVllmAlign,            // vLLM, --mamba-cache-mode align with the admission of vllm#37898
    kSglangRadix,          // SGLang's MambaRadixCache with an extra buffer, blocks and states in one budget
    kSglangRadixPools,     // the same in two pools, as SGLang divides memory
    kSglangRadixNoBuffer,  // without an extra buffer, one budget
    kMarconi,              // arXiv 2411.19379
};

struct RivalConfig {
    Rival rival = Rival::kVllmAlign;
    int64_t budget_bytes = 0;
    int64_t kv_bytes_per_token = 0;
    int64_t state_bytes = 0;     // of a row; 0: a model without states
    AlignedPages pages;          // of kVllmAlign
    int64_t step_tokens = 8192;  // of a chunk of a prompt, at most
    double operations_per_token = 0;
    double operations_per_pair = 0;  // and for each position before it
    int64_t max_model_len = 0;
};

struct RivalRequest {
    const CacheSalt& salt;
    const TokenSeq& resident;       // the prompt and its answer but for the last token
    int64_t num_prompt_tokens = 0;  // at least 1
};

class RivalCache {
public:
    virtual ~RivalCache() = default;
    // Whether the request fits the empty cache.
    [[nodiscard]] virtual bool fits(int64_t num_resident_tokens) const = 0;
    // Serves the request and keeps what the policy keeps. Returns the prompt tokens that were reused. REQUIRES: fits.
    virtual int64_t serve(const RivalRequest& request) = 0;
    [[nodiscard]] virtual int64_t num_evictions() const = 0;
    [[nodiscard]] virtual int64_t held_bytes() const = 0;  // between requests
};

[[nodiscard]] std::unique_ptr<RivalCache> make_rival_cache(const RivalConfig& config);
[[nodiscard]] std::unique_ptr<RivalCache> make_vllm_align(const RivalConfig& config);
[[nodiscard]] std::unique_ptr<RivalCache> make_sglang_radix(const RivalConfig& config);
[[nodiscard]] std::unique_ptr<RivalCache> make_marconi(const RivalConfig& config);

// Error: the trace has a token outside the vocabulary.
Result<CacheRunResult> run_rival(const RivalConfig& config, const traces::Trace& trace, int32_t vocab_size);

}  // namespace verbatim
