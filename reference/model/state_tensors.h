// reference/model/state_tensors.h: the one list of the tensors that a sequence carries from token to token. Head
// digests, pools, executors, lockstep, reports and memory budgets iterate over the list; only kernels interpret the
// elements.
//
//   T1  order: by layer; in a layer its state, then its KV. Digests and state rows have the same order
//   T2  a kind's number is part of every head digest: it is never reused for another kind
//   T3  elements are in logical order, row-major in `shape`, wherever bytes of a tensor are passed
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/model/model_config.h"

namespace verbatim::reference {

enum class StateDtype : uint8_t { kFloat32, kBf16, kInt32 };
[[nodiscard]] std::string_view dtype_name(StateDtype dtype);  // "float32"
[[nodiscard]] int64_t element_bytes(StateDtype dtype);
// binary64 holds each value exactly.
[[nodiscard]] double element(StateDtype dtype, std::span<const std::byte> tensor, int64_t i);
// The check of N8; integers are always finite.
[[nodiscard]] bool is_finite(StateDtype dtype, std::span<const std::byte> tensor);

// The kind of a tensor. Equal numbers mean equal kinds.
struct StateKind {
    uint8_t number = 0;
    std::string_view name;
    friend bool operator==(const StateKind& a, const StateKind& b) { return a.number == b.number; }
    friend auto operator<=>(const StateKind& a, const StateKind& b) { return a.number <=> b.number; }

    static const StateKind kSsm;    // binary32 [n_heads, d_state, head_dim]
    static const StateKind kConv;   // binary32 [d_conv − 1, conv_dim]: the conv's last inputs, oldest first; x, B, C
    static const StateKind kK;      // bf16 [n_kv_heads, head_dim]
    static const StateKind kV;      // bf16 [n_kv_heads, head_dim]
    static const StateKind kDelta;  // binary32 [n_value_heads, key_dim, value_dim]; its layer's kConv has q, k, v
};
inline constexpr StateKind StateKind::kSsm{0, "ssm"};
inline constexpr StateKind StateKind::kConv{1, "conv"};
inline constexpr StateKind StateKind::kK{2, "k"};
inline constexpr StateKind StateKind::kV{3, "v"};
inline constexpr StateKind StateKind::kDelta{4, "delta"};

enum class StatePer : uint8_t {
    kSequence,  // one in a state row
    kToken,     // one in each slot of a KV block
};

struct StateTensor {
    int32_t layer = 0;
    StateKind kind;
    StatePer per = StatePer::kSequence;
    StateDtype dtype = StateDtype::kFloat32;
    std::vector<int64_t> shape;
    friend bool operator==(const StateTensor&, const StateTensor&) = default;

    [[nodiscard]] int64_t num_elements() const;
    [[nodiscard]] int64_t num_bytes() const;
};

class StateTensors {
public:
    StateTensors() = default;
    // REQUIRES: layers ascend, no layer has a kind twice.
    explicit StateTensors(std::vector<StateTensor> tensors);

    [[nodiscard]] auto begin() const { return tensors_.begin(); }
    [[nodiscard]] auto end() const { return tensors_.end(); }
    [[nodiscard]] size_t size() const { return tensors_.size(); }
    [[nodiscard]] const StateTensor& operator[](size_t i) const { return tensors_[i]; }

    // Places in the list of one layer's tensors.
    [[nodiscard]] bool has(int32_t layer, StateKind kind) const { return find(layer, kind) < size(); }
    [[nodiscard]] size_t place(int32_t layer, StateKind kind) const;  // REQUIRES: has()
    // Bytes of a state row, or of a token's KV: all tensors, without gaps.
    [[nodiscard]] int64_t num_bytes(StatePer per) const;
    [[nodiscard]] bool has_any(StatePer per) const { return num_bytes(per) > 0; }

private:
    [[nodiscard]] size_t find(int32_t layer, StateKind kind) const;  // size() if there is none

    std::vector<StateTensor> tensors_;
    std::vector<size_t> first_of_layer_;  // [number of layers + 1] in tensors_
};

// A new kind of state takes a StateKind above, a line here, and the kernels that read and write it.
[[nodiscard]] StateTensors state_tensors(const ModelConfig& config);

// The layout of a state row in contiguous memory.
struct StateRowLayout {
    std::vector<int64_t> offsets;  // bytes, by place in the list; −1 for a tensor per token
    int64_t row_bytes = 0;
};
// Every tensor and every row begin at a multiple of `alignment_bytes`.
[[nodiscard]] StateRowLayout row_layout(const StateTensors& tensors, int64_t alignment_bytes);

}  // namespace verbatim::reference
