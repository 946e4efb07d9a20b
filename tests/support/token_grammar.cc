#include "tests/support/token_grammar.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/digest.h"
#include "engine/base/prng.h"

namespace verbatim::tests {

TokenMask grammar_mask(uint64_t grammar, std::span<const TokenId> output, int32_t vocab_size) {
    Digester digester;
    digester.add(grammar);
    digester.add_all(output);
    Prng prng(digester.digest().low);
    std::vector<std::byte> bits(static_cast<size_t>(vocab_size) / 8 + 1);
    // Every fourth one allows a single token, as a grammar does where a text must come.
    const auto allow = [&](uint64_t token) { bits[token / 8] |= std::byte{1} << (token % 8); };
    const auto size = static_cast<uint64_t>(vocab_size);
    allow(prng.below(size));
    if (prng.below(4) == 0) return mask_of_bits(bits, vocab_size);
    for (uint64_t token = 0; token < size; ++token) {
        if (prng.below(2) == 0) allow(token);
    }
    return mask_of_bits(bits, vocab_size);
}

ChatRequest with_grammar(ChatRequest request, uint64_t grammar, int32_t vocab_size) {
    request.grammar = std::to_string(grammar);
    request.masks = {grammar_mask(grammar, {}, vocab_size)};
    return request;
}

uint64_t grammar_of(const std::string& grammar) { return std::stoull(grammar); }

int64_t supply_masks(Engine& engine, const std::function<bool(RequestId)>& now) {
    std::vector<std::pair<RequestId, TokenMask>> masks;
    const auto list = [&](const Sequence& sequence) {
        if (!sequence.lacks_mask() || sequence.status == SequenceStatus::kCommitting || !now(sequence.id)) return;
        if (engine.lacks_masks() && !sequence.is_late) return;
        masks.emplace_back(sequence.id, grammar_mask(grammar_of(sequence.request.grammar), sequence.output,
                                                     engine.token_store().vocab_size()));
    };
    for (const Sequence* sequence : engine.scheduler().running()) list(*sequence);
    for (const auto& [id, sequence] : engine.scheduler().waiting()) list(*sequence);
    for (auto& [id, mask] : masks) CHECK(engine.allow(id, std::move(mask)), "request {} takes no mask", index(id));
    return static_cast<int64_t>(masks.size());
}

}  // namespace verbatim::tests
