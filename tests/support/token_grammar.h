// tests/support/token_grammar.h: a grammar for tests, without a text: the mask of each token follows from a number and
// the tokens before it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "engine/engine.h"
#include "engine/request/token_mask.h"

namespace verbatim::tests {

// At least one of `vocab_size` tokens, about half of them.
[[nodiscard]] TokenMask grammar_mask(uint64_t grammar, std::span<const TokenId> output, int32_t vocab_size);
// The request, under the grammar, with its first mask.
[[nodiscard]] ChatRequest with_grammar(ChatRequest request, uint64_t grammar, int32_t vocab_size);
// The number of the request's grammar.
[[nodiscard]] uint64_t grammar_of(const std::string& grammar);
// Gives every running request that lacks its next mask this mask, if `now` says so: how many have got one. In a step
// that lacks masks: of those alone.
int64_t supply_masks(
    Engine& engine, const std::function<bool(RequestId)>& now = [](RequestId) { return true; });

}  // namespace verbatim::tests
