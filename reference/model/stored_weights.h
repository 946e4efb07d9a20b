// reference/model/stored_weights.h: how a checkpoint stores its weights: bytes, by type and by what reads them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace verbatim::reference {

// Scales and zero points count as bytes of their weights' type.
struct StoredType {
    std::string name;         // "Q4_K", "fp8", "BF16"
    int64_t num_weights = 0;  // of matrices and vectors
    int64_t num_bytes = 0;
    int64_t linear_bytes = 0;  // of these, of linear layers and experts, which every step reads

    bool operator==(const StoredType&) const = default;
};

struct StoredWeights {
    std::vector<StoredType> types;  // most bytes first
    int64_t linear_bytes = 0;       // of linear layers and experts
    int64_t head_bytes = 0;         // 0: the embedding is the head
    int64_t embedding_bytes = 0;
    int64_t other_bytes = 0;  // vectors and convolutions

    [[nodiscard]] int64_t num_bytes() const { return linear_bytes + head_bytes + embedding_bytes + other_bytes; }
    bool operator==(const StoredWeights&) const = default;
};

}  // namespace verbatim::reference
