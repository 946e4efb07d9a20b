#include "engine/request/token_mask.h"

#include <algorithm>
#include <bit>

#include "engine/base/check.h"

namespace verbatim {

bool is_valid_mask(std::span<const int32_t> runs, int32_t vocab_size) {
    if (runs.empty() || runs.size() % 2 != 0) return false;
    int64_t end = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        if (runs[i] < (i == 0 ? 0 : 1)) return false;
        end += runs[i];
    }
    return end <= vocab_size;
}

bool allows(std::span<const int32_t> runs, TokenId token) {
    int64_t end = 0;
    for (size_t i = 0; i < runs.size(); ++i) {
        end += runs[i];
        if (token < end) return i % 2 == 1;
    }
    return false;
}

bool allows_beyond(std::span<const int32_t> runs, std::span<const TokenId> tokens) {
    int64_t begin = 0;
    for (size_t i = 0; i + 1 < runs.size(); i += 2) {
        begin += runs[i];
        for (int64_t token = begin; token < begin + runs[i + 1]; ++token) {
            if (std::ranges::count(tokens, token) == 0) return true;
        }
        begin += runs[i + 1];
    }
    return false;
}

TokenMask mask_of_bits(std::span<const std::byte> bits, int32_t vocab_size) {
    CHECK(vocab_size >= 0 && bits.size() >= (static_cast<size_t>(vocab_size) + 7) / 8, "{} bytes of bits for {} tokens",
          bits.size(), vocab_size);
    TokenMask mask;
    int32_t begin = 0;  // of the current run
    bool allowed = false;
    for (int32_t token = 0; token < vocab_size;) {
        const int32_t num_left = 8 - token % 8;  // bits of the byte
        const auto byte = std::to_integer<uint32_t>(bits[static_cast<size_t>(token) / 8]) >> (token % 8);
        const int32_t same = std::countr_zero((allowed ? ~byte : byte) | (1U << num_left));  // that go on as the run
        token += same;
        if (same == num_left || token >= vocab_size) continue;
        mask.runs.push_back(token - begin);
        begin = token;
        allowed = !allowed;
    }
    if (allowed) mask.runs.push_back(vocab_size - begin);
    return mask;
}

}  // namespace verbatim
