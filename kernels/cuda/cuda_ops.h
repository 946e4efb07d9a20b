// kernels/cuda/cuda_ops.h: the walk's operations on a device, in plain pointers into its memory: what a backend asks for, whoever
// runs it (nvcc's kernels on a GPU, or the same kernels in the emulator). Contracts: reference/ops/.
//
//   D1  operations run in the order of the calls; nothing is read back but through Device::download
//   D2  bit-equal to reference/ops on every shape that limits() allows
//   D3  an error is sticky: the first one is kept and told by synchronize(), with the name of the operation
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/base/error.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/profile.h"

namespace verbatim::cuda {

// Rows in device memory, `stride` elements apart.
template <typename T>
struct DeviceRows {
    T* data = nullptr;
    int64_t num_rows = 0;
    int64_t width = 0;
    int64_t stride = 0;
};
using Floats = DeviceRows<float>;

// One sequence's part of a step, on the device.
struct DeviceSequence {
    int32_t first_row = 0;
    int32_t num_rows = 0;
    int32_t first_position = 0;
    int32_t first_block = 0;  // of the step's list of blocks
    int32_t state_src = -1;   // -1: the zero state
    int32_t state_dst = -1;
    int32_t first_write = 0;  // of the step's list of state writes
    int32_t num_writes = 0;
};
// When `length` tokens have been scanned, the state is also written to row `dst`.
struct DeviceStateWrite {
    int32_t length = 0;
    int32_t dst = 0;
};
// The step that runs. All in device memory.
struct DeviceBatch {
    const int32_t* tokens = nullptr;         // [num_rows]
    const int32_t* positions = nullptr;      // [num_rows]
    const int32_t* row_sequences = nullptr;  // [num_rows]
    const int32_t* blocks = nullptr;         // [num_blocks]
    const DeviceSequence* sequences = nullptr;
    const DeviceStateWrite* writes = nullptr;
    const int32_t* logit_rows = nullptr;  // [num_logit_rows]
    int32_t* faults = nullptr;            // [num_sequences], the lowest faulty layer
    int64_t num_rows = 0;
    int64_t num_sequences = 0;
    int64_t num_blocks = 0;
    int64_t num_writes = 0;
    int64_t num_logit_rows = 0;
    int64_t max_position = 0;  // over the rows
};

// For matmul, bf16 pairs [ceil(N/64)][ceil(K/2)][64]: the odd input's weight in the upper half; outputs beyond N are zero. For
// tensor_matmul, kernels/cuda/fragments.h.
struct DeviceMatrix {
    const uint32_t* words = nullptr;
    const float* bias = nullptr;  // [N] or null
    int64_t num_outputs = 0;
    int64_t num_k = 0;
};

// A layer's pages. K: [num_blocks][n_kv_heads][ceil(head_dim/2)][block_size] pairs; V: [num_blocks][n_kv_heads]
// [block_size][head_dim] bf16.
struct DevicePages {
    uint32_t* k = nullptr;
    uint16_t* v = nullptr;
    int64_t num_blocks = 0;
    int64_t block_size = 0;
    int64_t n_kv_heads = 0;
    int64_t head_dim = 0;
};

// A layer's part of the state pool: row i at data + i · row_floats.
struct DeviceStates {
    float* data = nullptr;
    int64_t num_rows = 0;
    int64_t row_floats = 0;
    int64_t size = 0;  // floats of this tensor in a row
};

struct MambaShape {
    int64_t n_heads = 0;
    int64_t head_dim = 0;
    int64_t d_state = 0;
    int64_t n_groups = 0;
    int64_t d_conv = 0;
    float dt_min = 0;
    float dt_max = 0;
};
struct MambaParameters {                 // device memory
    const float* conv_weight = nullptr;  // [conv_dim, d_conv]
    const float* conv_bias = nullptr;    // [conv_dim] or null
    const float* a = nullptr;            // [n_heads]
    const float* d = nullptr;            // [n_heads]
    const float* dt_bias = nullptr;      // [n_heads]
};
struct AttentionShape {
    int64_t n_heads = 0;
    int64_t n_kv_heads = 0;
    int64_t head_dim = 0;
    float scale = 1;
};
enum class GateKind : uint8_t { kGateOnly, kGateThenNorm, kNormThenGate };

struct DeviceCopy {
    int32_t src = 0;
    int32_t dst = 0;
    int32_t num_slots = 0;
};

// The greatest shapes that the kernels hold in registers and shared memory.
struct CudaLimits {
    int64_t head_dim = 256;
    int64_t d_state = 256;
    int64_t d_conv = 4;
};

class Device {
public:
    virtual ~Device() = default;

    // `cell_bytes`: of the smallest element that is written on its own. Null, and synchronize() says why, when there is no room.
    virtual void* allocate(size_t bytes, size_t cell_bytes) = 0;
    virtual void release(void* memory) = 0;
    virtual void upload(void* to, const void* from, size_t bytes) = 0;
    virtual void download(void* to, const void* from, size_t bytes) = 0;
    virtual Status synchronize() = 0;  // everything asked for is done
    [[nodiscard]] virtual std::string description() const = 0;
    [[nodiscard]] virtual Status computes_in(reference::Profile profile) const = 0;
    [[nodiscard]] CudaLimits limits() const { return {}; }

    virtual void embed(const DeviceBatch& batch, const uint16_t* table, int64_t vocab_size, float multiplier,
                       Floats out) = 0;
    // Row r of `out` is the norm of row rows[r] of x; rows null: of row r.
    virtual void rms_norm(Floats x, const int32_t* rows, const float* weight, float eps, Floats out) = 0;
    virtual void gated_norm(GateKind kind, int64_t n_groups, Floats z, const float* weight, float eps, Floats y) = 0;
    // Inputs rounded to bf16 pairs, [num_rows, row_pairs], padded with +0, once for all the matmuls that read them.
    virtual void round_rows(Floats x, float multiplier, int64_t row_pairs, uint32_t* pairs) = 0;
    // NUMERICS N3's dot products; row_pairs = ceil(K/2).
    virtual void matmul(const uint32_t* pairs, const DeviceMatrix& matrix, Floats out) = 0;
    // Those of kTensorSm90, or for kFast in any order; row_pairs = 8 · ceil(K/16).
    virtual void tensor_matmul(reference::Profile profile, const uint32_t* pairs, const DeviceMatrix& matrix,
                               Floats out) = 0;
    virtual void scale(Floats x, float multiplier) = 0;
    virtual void conv(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats x,
                      const DeviceStates& windows, Floats out) = 0;
    // dt, decay: scratch [num_rows, n_heads] each.
    virtual void scan(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats conv,
                      Floats dt_raw, float* dt, float* decay, const DeviceStates& states, Floats y) = 0;
    virtual void check_state(const DeviceBatch& batch, int32_t layer, const DeviceStates& states) = 0;
    // cos, sin: [num_positions, n_pairs].
    virtual void rope(const DeviceBatch& batch, int64_t n_heads, int64_t head_dim, const float* cos, const float* sin,
                      int64_t num_positions, int64_t n_pairs, Floats x) = 0;
    virtual void store_kv(const DeviceBatch& batch, Floats k, Floats v, const DevicePages& pages) = 0;
    // workspace: attention_floats(...) of them.
    virtual void attention(const DeviceBatch& batch, const AttentionShape& shape, Floats q, const DevicePages& pages,
                           float* workspace, Floats out) = 0;
    virtual void swiglu(Floats gate, float gate_multiplier, Floats up) = 0;
    virtual void relu_squared(Floats up) = 0;
    virtual void add_branch(Floats branch, float branch_multiplier, float residual_multiplier, Floats residual) = 0;
    virtual void scale_logits(Floats logits, float multiplier, float divisor) = 0;
    virtual void check_logits(const DeviceBatch& batch, int32_t num_layers, Floats logits) = 0;
    virtual void copy_tails(const DeviceCopy* copies, int64_t num_copies, const DevicePages& pages) = 0;
};

// Floats of workspace that attention() needs: per row, attention head and run a softmax state.
[[nodiscard]] inline int64_t attention_floats(int64_t num_rows, const AttentionShape& shape, int64_t max_position) {
    return num_rows * shape.n_heads * (max_position / reference::kRunPositions + 1) * (shape.head_dim + 2);
}

}  // namespace verbatim::cuda
