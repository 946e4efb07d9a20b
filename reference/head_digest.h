// reference/head_digest.h: the digest of a sequence's cached state, in logical order, so that contiguous, paged and
// pooled executors give the same one for the same state.
//
// Layers in order; of a layer its SSM state, conv window, K, V, as far as it has them:
//   ssm    [n_heads, d_state, head_dim]     binary32
//   conv   [d_conv - 1, conv_dim]           binary32, oldest first
//   k, v   [length, n_kv_heads, head_dim]   bf16, all of K before all of V
// Of each part enter its layer, kind, number of elements and ElementSum, so that whoever holds a part sums it where it
// lies, in any order. Nothing beyond `length` enters.
#pragma once

#include <cstdint>
#include <span>

#include "engine/base/digest.h"
#include "reference/model/model_config.h"
#include "reference/numerics/element_sum.h"

namespace verbatim::reference {

enum class HeadPart : uint8_t { kSsm, kConv, kK, kV };

// Fed part after part, each in pieces of any size; it insists on the order and the sizes above.
class HeadDigester {
public:
    HeadDigester(const ModelConfig& config, int64_t length);

    // A piece of a kSsm or kConv part.
    void add(int32_t layer, HeadPart part, std::span<const float> piece);
    // A piece of a kK or kV part.
    void add(int32_t layer, HeadPart part, std::span<const uint16_t> piece);
    // A whole part.
    void add(int32_t layer, HeadPart part, const ElementSum& sum);
    // REQUIRES: every part is complete.
    [[nodiscard]] Digest digest() const;

    struct Part {
        int32_t layer = 0;
        HeadPart part = HeadPart::kSsm;
        int64_t num_elements = 0;
        int64_t num_fed = 0;
        ElementSum sum;
    };
    // What a head consists of, in the order above.
    [[nodiscard]] std::span<const Part> parts() const { return parts_; }

private:
    // The part that goes on with so many elements, which are counted as fed.
    Part& advance(int32_t layer, HeadPart part, int64_t num_elements);
    template <typename T>
    void add_elements(int32_t layer, HeadPart part, std::span<const T> piece);

    int64_t length_;
    std::vector<Part> parts_;
    size_t current_ = 0;
};

}  // namespace verbatim::reference
