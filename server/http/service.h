// server/http/service.h: owns what the endpoints stand on: a model's text, its engine, and what they are called.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/engine_host.h"
#include "server/http/api.h"
#include "server/text/chat.h"
#include "server/text/tokenizer.h"

namespace verbatim::server {

// All of it is borrowed, and outlives whoever serves.
struct Service {
    const text::Tokenizer* tokenizer = nullptr;
    text::Chat* chat = nullptr;  // null: the model has no template; used on one thread only
    EngineHost* host = nullptr;
    std::string model;        // as clients call it
    std::string fingerprint;  // of arithmetic and weights
    int64_t max_model_len = 0;
    int32_t vocab_size = 0;
    std::vector<TokenId> stop_tokens;
    std::function<int64_t()> now;  // seconds since 1970
};

// The tokens that a request asks the engine to go on from. Errors: the template's, ids that are none, nothing at all.
[[nodiscard]] ApiResult<std::vector<TokenId>> prompt_of(const Service& service, const GenerateRequest& request,
                                                        text::WordCache& cache);
// For the engine. Errors: the prompt and the answer do not fit the model.
[[nodiscard]] ApiResult<HostRequest> host_request(const Service& service, const GenerateRequest& request,
                                                  std::vector<TokenId> prompt);

[[nodiscard]] Json model_list(const Service& service);

}  // namespace verbatim::server
