// kernels/cuda/cuda_ops.h: owns the device interface: the walk's operations in plain pointers into device memory, as a
// backend calls them. nvcc's kernels on a GPU and the same kernels in the emulator implement it. Contracts:
// reference/ops/.
//
//   D1  operations and transfers execute in call order; the host waits only in synchronize(), download() and upload()
//   D2  bit-equal to reference/ops on every shape that limits() allows
//   D3  errors are sticky: synchronize() returns the first one, with the name of the operation
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "engine/base/error.h"
#include "kernels/cuda/block_layout.h"
#include "reference/numerics/constants.h"
#include "reference/numerics/profile.h"

namespace verbatim::cuda {

// Rows in device memory; consecutive rows are `stride` elements apart.
template <typename T>
struct DeviceRows {
    T* data = nullptr;
    int64_t num_rows = 0;
    int64_t width = 0;
    int64_t stride = 0;
};
using Floats = DeviceRows<float>;

// One sequence's part of a step, on the device. Its last num_sampled_positions rows draw; all but the first of these
// are drafts.
struct alignas(64) DeviceSequence {
    int32_t first_row = 0;
    int32_t num_rows = 0;
    int32_t first_position = 0;
    int32_t first_block = 0;  // index into the step's block list; -1: its KV is not kept
    int32_t state_src = -1;   // -1: the zero state
    int32_t state_dst = -1;   // written after the last row that is no draft; -1: no row is written
    int32_t first_write = 0;  // index into the step's state writes
    int32_t num_writes = 0;
    int32_t first_draw = 0;  // index into the step's logit rows
    int32_t num_sampled_positions = 0;
    int32_t num_logged = 0;   // tokens between state_src and the first row, replayed from the log
    int32_t log = -1;         // the slot's log; -1: nothing is replayed or logged
    int32_t first_entry = 0;  // of the logged tokens, in the slot's ring
};
// After `length` scanned tokens the state is also written to row `dst`.
struct DeviceStateWrite {
    int32_t length = 0;
    int32_t dst = 0;
};
// Consecutive rows of a sequence whose queries attend in one CTA. Their work is one item per run of KV tiles (NUMERICS
// N5) that the last of the rows sees.
struct alignas(16) DeviceQueries {
    int32_t first_row = 0;
    int32_t num_rows = 0;
    int32_t first_item = 0;  // index into the step's items; the next entry's first_item is the end
    int32_t sequence = 0;
};
// The sampling parameters of one draw (reference/ops/sampling.h).
struct alignas(64) DeviceDraw {
    uint64_t seed = 0;
    uint64_t position = 0;
    float temperature = 0;
    float top_p = 1;
    int32_t top_k = 0;
    float repetition = 1;
    float presence = 0;
    float frequency = 0;
    int32_t first_count = 0;  // index into the step's counts: the tokens that penalties apply to
    int32_t num_counts = 0;   // 0 when no penalty is set
};
// One distinct token of a prefix.
struct DeviceTokenCount {
    int32_t id = 0;
    int32_t count = 0;  // number of times it was generated; 0: it only occurs in the prompt
};
// The step in progress; all pointers are device memory. The counts here are kernel parameters: rows, sequences and list
// capacities, never a sequence length.
struct DeviceBatch {
    const int32_t* tokens = nullptr;         // [num_rows]
    const int32_t* positions = nullptr;      // [num_rows]
    const int32_t* row_sequences = nullptr;  // [num_rows]
    const DeviceQueries* queries = nullptr;  // [num_queries + 1]
    const DeviceQueries* tiles = nullptr;    // [num_tiles + 1]: likewise, for rows that attend by tiles
    const int32_t* first_runs = nullptr;     // [num_rows + 1]: row r's runs are [first_runs[r], first_runs[r + 1])
    const int32_t* blocks = nullptr;         // capacity max_blocks
    const DeviceSequence* sequences = nullptr;
    const DeviceStateWrite* writes = nullptr;  // capacity max_writes
    const int32_t* logit_rows = nullptr;       // [num_logit_rows]
    const DeviceDraw* draws = nullptr;         // [num_logit_rows]
    const DeviceTokenCount* counts = nullptr;  // capacity max_counts
    int32_t* faults = nullptr;                 // [num_logit_rows], the lowest layer with a fault
    int32_t* drawn = nullptr;                  // [num_logit_rows], the drawn tokens
    int64_t num_rows = 0;
    int64_t num_sequences = 0;
    int64_t num_logit_rows = 0;
    int64_t num_queries = 0;
    int64_t num_tiles = 0;
    int64_t query_rows = 1;  // most rows that attend in one CTA
    int64_t max_blocks = 0;
    int64_t max_writes = 0;
    int64_t max_counts = 0;
    int64_t max_runs = 0;  // capacity of attention's workspace
};
// The number of runs of KV tiles that a row at this position sees (NUMERICS N5).
[[nodiscard]] constexpr int64_t runs_of(int64_t position) { return position / reference::kRunPositions + 1; }

// bf16 pairs in a row of K inputs, as round_rows writes them: whole groups of 16, padded with +0.
[[nodiscard]] constexpr int64_t row_pairs_of(int64_t num_k) { return (num_k + 15) / 16 * 8; }
// 32-bit words of a row of K inputs in a form.
[[nodiscard]] constexpr int64_t row_words(RowForm form, int64_t num_k) {
    switch (form) {
        case RowForm::kPairs: return row_pairs_of(num_k);
        case RowForm::kInt8Of32:
        case RowForm::kInt8Of256:
        case RowForm::kInt8OfRow: return int8_row_words(num_k);
        case RowForm::kFp8OfGroups: return fp8_row_words(reference::Fp8Sharing::kGroups, num_k);
        case RowForm::kFp8OfRow: return fp8_row_words(reference::Fp8Sharing::kRow, num_k);
    }
    return 0;
}
// For matmul: bf16 pairs [ceil(N/64)][ceil(K/2)][64], the odd input's weight in the upper half, zeros for outputs
// beyond N; or quantised weights (kernels/cuda/block_layout.h). For tensor_matmul: kernels/cuda/fragments.h.
struct DeviceMatrix {
    const uint32_t* words = nullptr;
    const float* bias = nullptr;  // [N] or null
    int64_t num_outputs = 0;
    int64_t num_k = 0;
    WeightFormat format = WeightFormat::kPairs;
    RowForm inputs = RowForm::kPairs;  // others: of exact.int8 has_integers(), of exact.fp8 kFp8E4m3
};

// A layer's KV pages. K: [num_blocks][n_kv_heads][ceil(head_dim/2)][block_size] pairs; V:
// [num_blocks][n_kv_heads][block_size][head_dim] bf16.
struct DevicePages {
    uint32_t* k = nullptr;
    uint16_t* v = nullptr;
    int64_t num_blocks = 0;
    int64_t block_size = 0;
    int64_t n_kv_heads = 0;
    int64_t head_dim = 0;
};

// A layer's part of the state pool: row i is at data + i · row_floats.
struct DeviceStates {
    float* data = nullptr;
    int64_t num_rows = 0;
    int64_t row_floats = 0;
    int64_t size = 0;  // floats of this tensor per row
    int32_t layer = 0;
};

// A layer's part of the state logs: the conv and scan inputs of logged tokens. Slot s's ring is at data + s
// · slot_floats, one entry per token: the conv inputs [conv_dim]; at scan_at the scan's x and B, for a delta net k and
// v; at steps_at dt and decay [n_heads] each, for a delta net beta and decay.
struct DeviceLog {
    float* data = nullptr;  // null: the model logs nothing
    int64_t num_slots = 0;
    int64_t slot_floats = 0;
    int64_t num_entries = 0;
    int64_t entry_floats = 0;
    int64_t scan_at = 0;
    int64_t steps_at = 0;
};

struct MambaShape {
    int64_t n_heads = 0;
    int64_t head_dim = 0;
    int64_t d_state = 0;
    int64_t n_groups = 0;
    int64_t d_conv = 0;
    float dt_min = 0;
    float dt_max = 0;
    [[nodiscard]] int64_t scan_width() const { return n_heads * head_dim + n_groups * d_state; }  // x and B
    [[nodiscard]] int64_t conv_dim() const { return scan_width() + n_groups * d_state; }
};
struct MambaParameters {                 // device memory
    const float* conv_weight = nullptr;  // [conv_dim, d_conv]
    const float* conv_bias = nullptr;    // [conv_dim] or null
    const float* a = nullptr;            // [n_heads]
    const float* d = nullptr;            // [n_heads]
    const float* dt_bias = nullptr;      // [n_heads]
};
// A delta net's row of conv inputs and outputs is q, k and v of all heads.
struct DeltaShape {
    int64_t n_key_heads = 0;
    int64_t n_value_heads = 0;
    int64_t key_dim = 0;
    int64_t value_dim = 0;
    int64_t d_conv = 0;
    [[nodiscard]] int64_t key_rows() const { return n_key_heads * key_dim; }
    [[nodiscard]] int64_t value_rows() const { return n_value_heads * value_dim; }
    [[nodiscard]] int64_t conv_dim() const { return 2 * key_rows() + value_rows(); }
};
struct DeltaWeights {                    // device memory
    const float* conv_weight = nullptr;  // [conv_dim, d_conv]
    const float* rate = nullptr;         // [n_value_heads]
    const float* dt_bias = nullptr;      // [n_value_heads]
};
struct AttentionShape {
    int64_t n_heads = 0;
    int64_t n_kv_heads = 0;
    int64_t head_dim = 0;
    float scale = 1;
    // Attention heads per KV head.
    [[nodiscard]] int64_t group() const { return n_heads / n_kv_heads; }
};
// A CTA of attention takes at most this many columns; a column is a query row with one attention head, and all columns
// share one KV head. It is the number of columns of one mma.
inline constexpr int64_t kAttendColumns = 8;
[[nodiscard]] inline int64_t attend_heads(const AttentionShape& shape) {
    return shape.group() < kAttendColumns ? shape.group() : kAttendColumns;
}
// Rows that may attend in one CTA.
[[nodiscard]] inline int64_t attend_rows(const AttentionShape& shape) { return kAttendColumns / attend_heads(shape); }
// Where Device::attends_by_tiles(): this many rows of a sequence attend in one CTA, one attention head at a time. Fewer
// rows than one warp's mma has do not make a tile.
inline constexpr int64_t kAttendTileRows = 64;
inline constexpr int64_t kMinTileRows = 16;
// A mixture of experts. Router weights, binary32: [ceil(n_experts / 8)][K, even][8], +0 elsewhere.
inline constexpr int kRouteExperts = 8;  // side by side in a panel
struct DeviceRouter {
    const float* weight = nullptr;
    int64_t num_k = 0;
};
// As choose() in reference/ops/router.h; RouterKind of reference/model/model_config.h.
enum class RouterScore : uint8_t { kSigmoidBias, kSoftmaxAll, kSoftmaxChosen };
inline constexpr int kMaxExperts = 512;
struct ChooseShape {
    RouterScore score = RouterScore::kSigmoidBias;
    bool normalize = false;
    int32_t n_experts = 0;
    int32_t n_chosen = 0;
    int32_t n_groups = 1;
    int32_t n_chosen_groups = 1;
    float sum_epsilon = 0;
    float scale = 1;
};
// Entries [first_entry, first_entry + num_entries) of one expert. num_entries 0: an unused part.
struct DeviceExpertPart {
    int32_t expert = 0;
    int32_t first_entry = 0;
    int32_t num_entries = 0;
};
// An entry is a row with one of its experts (ops/experts.h). The number and the size of parts have bounds that follow
// from the number of rows, because a row chooses an expert at most once.
struct ExpertCounts {
    int64_t num_rows = 0;
    int64_t n_experts = 0;
    int64_t n_chosen = 0;
    [[nodiscard]] int64_t num_entries() const { return num_rows * n_chosen; }
    [[nodiscard]] int64_t part_rows() const {
        for (const int64_t few : {1, 2, 4, 8}) {
            if (num_rows <= few) return few;
        }
        const int64_t each = num_entries() / n_experts;
        return each <= 8 ? 8 : each <= 16 ? 16 : each <= 64 ? 32 : 128;
    }
    [[nodiscard]] bool parts_by_entry() const { return num_entries() <= num_entries() / part_rows() + n_experts; }
    [[nodiscard]] int64_t num_parts() const {
        return parts_by_entry() ? num_entries() : num_entries() / part_rows() + n_experts;
    }
};
struct DeviceEntries {
    ExpertCounts counts;
    int32_t* rows = nullptr;            // [num_entries]
    int32_t* entries = nullptr;         // [num_rows, n_chosen]
    DeviceExpertPart* parts = nullptr;  // [num_parts]
};

enum class GateKind : uint8_t { kGateOnly, kGateThenNorm, kNormThenGate };

// at most
inline constexpr int64_t kMatvecRows = 4;          // at most
inline constexpr int64_t kTensorMatvecRows = 8;    // at most, on tensor cores
inline constexpr int64_t kMatvecNormRows = 4;      // at most, with a fused norm: every CTA computes the norm
inline constexpr int64_t kMatvecNormWidth = 4096;  // at most: width of rows with a fused norm
[[nodiscard]] constexpr int64_t matvec_rows(reference::Profile profile) {
    return profile == reference::Profile::kExact ? kMatvecRows : kTensorMatvecRows;
}
inline constexpr int64_t kMatvecNormGroups = 8;  // at most, with a fused norm
inline constexpr int64_t kMatvecMatrices = 3;    // at most
// The input: pairs, as matmul() reads them, or a norm of x: rms_norm, or gated_norm when z is given.
struct MatvecInput {
    const uint32_t* pairs = nullptr;
    bool is_normed = false;
    Floats x;
    Floats z;
    GateKind gate = GateKind::kGateOnly;
    int64_t n_groups = 1;
    const float* weight = nullptr;
    float eps = 0;
};
// Whether a norm of this shape can be fused.
[[nodiscard]] constexpr bool takes_norm(int64_t width, int64_t n_groups) {
    return width <= kMatvecNormWidth && n_groups <= kMatvecNormGroups && (n_groups == 1 || width / n_groups % 2 == 0);
}
enum class MatvecEnd : int32_t {
    kWrite,        // stores each matrix's products in its `out`
    kAddBranch,    // add_branch of the only matrix's products
    kSwiglu,       // matrix 0 is gate, matrix 1 is up; the result goes to `pairs`
    kReluSquared,  // of the only matrix's products; the result goes to `pairs`
};
struct Matvec {
    struct Product {
        DeviceMatrix matrix;
        Floats out;  // for kWrite
    };
    reference::Profile profile = reference::Profile::kExact;
    int64_t num_rows = 0;
    MatvecInput input;
    std::array<Product, kMatvecMatrices> products;
    int64_t num_products = 0;
    MatvecEnd end = MatvecEnd::kWrite;
    float branch_multiplier = 1;
    float residual_multiplier = 1;
    Floats residual;
    float gate_multiplier = 1;
    uint32_t* pairs = nullptr;  // [num_rows, row_pairs_of(num_outputs)]; must not alias the input
};

// Scratch memory of draw().
inline constexpr int64_t kDrawPart = 1024;  // tokens per CTA that searches for a best score
[[nodiscard]] constexpr int64_t draw_parts(int64_t vocab_size) { return (vocab_size + kDrawPart - 1) / kDrawPart; }
struct DrawScratch {
    float* scaled = nullptr;     // [num_logit_rows, vocab_size]
    uint64_t* lowest = nullptr;  // [num_logit_rows]
    float* scores = nullptr;     // [num_logit_rows, draw_parts]
    int32_t* ids = nullptr;      // [num_logit_rows, draw_parts]
};

struct alignas(16) DeviceCopy {
    int32_t src = 0;
    int32_t dst = 0;
    int32_t num_slots = 0;
};

// The largest shapes that fit the kernels' registers and shared memory.
struct CudaLimits {
    int64_t head_dim = 256;
    int64_t d_state = 256;
    int64_t d_conv = 4;
    int64_t key_dim = 128;  // of a delta net
    int64_t experts = kMaxExperts;
    int64_t mamba_heads = 65535;        // at most, CTAs of a grid
    int64_t state_floats = 65535 * 64;  // per layer and sequence: n_heads · d_state · head_dim; offsets have 32 bits
    int64_t kv_slots =
        INT32_MAX;  // per layer: num_blocks · block_size · n_kv_heads; attention's slot numbers have 32 bits
};

// A step in a delta net's layer.
struct DeltaBatch {
    DeviceBatch batch;
    DeltaShape shape;
    DeviceLog log;
};

// How a multiplication reaches the tensor cores: by a warp (mma), or on Hopper by a warpgroup (wgmma).
enum class TensorCaller : uint8_t { kWarp, kGroup };

// Counts of the calls to a device so far.
struct DeviceCounts {
    int64_t allocations = 0;  // of device memory
    int64_t launches = 0;     // launches outside graphs
    int64_t graph_launches = 0;
    int64_t uploads = 0;  // asynchronous
    int64_t waits = 0;    // by the host, for the device
};

// Recorded operations with their parameters, launched any number of times.
class DeviceGraph {
public:
    virtual ~DeviceGraph() = default;
};

class Device {
public:
    virtual ~Device() = default;

    // `cell_bytes`: the smallest element that is written alone. Null when memory runs out; synchronize() then returns
    // the reason.
    virtual void* allocate(size_t bytes, size_t cell_bytes) = 0;
    virtual void release(void* memory) = 0;
    virtual void upload(void* to, const void* from, size_t bytes) = 0;
    virtual void download(void* to, const void* from, size_t bytes) = 0;
    // Within device memory; the ranges do not overlap.
    virtual void copy(void* to, const void* from, size_t bytes) = 0;
    virtual void clear(void* memory, size_t bytes) = 0;
    virtual Status synchronize() = 0;  // waits until all calls are done
    [[nodiscard]] virtual std::string description() const = 0;
    [[nodiscard]] virtual Status computes_in(reference::Profile profile) const = 0;
    // Stores the result of grant_tensor_cores (kernels/cuda/tensor_self_test.h), which grants tensor.sm90 or not. The
    // test's calls are not counted. `remark` becomes part of the device's description.
    void set_self_test_result(Status tested, std::string remark = "") {
        tensor_cores_ = std::move(tested);
        remark_ = std::move(remark);
        counts_ = {};
    }
    [[nodiscard]] CudaLimits limits() const { return {}; }
    [[nodiscard]] const DeviceCounts& counts() const { return counts_; }
    // Resident CTAs of 256 threads: the grid of a kernel that takes its items from a list.
    [[nodiscard]] virtual int64_t resident_blocks() const = 0;

    // Pinned host memory for asynchronous transfers. Until synchronize(), an upload's source must not change, and a
    // download's destination is not valid.
    virtual void* allocate_pinned(size_t bytes) = 0;
    virtual void release_pinned(void* memory) = 0;
    virtual void upload_later(void* to, const void* pinned, size_t bytes) = 0;
    virtual void download_later(void* pinned, const void* from, size_t bytes) = 0;

    // Between the two, operations are recorded instead of executed, and no other calls are allowed. A graph contains
    // the operations' parameters by value: the memory that they name must outlive it.
    virtual void begin_graph() = 0;
    virtual std::unique_ptr<DeviceGraph> end_graph() = 0;
    virtual void launch_graph(DeviceGraph& graph) = 0;

    virtual void embed(const DeviceBatch& batch, const uint16_t* table, int64_t vocab_size, float multiplier,
                       Floats out) = 0;
    // The same from a quantised table, [vocab_size, width].
    virtual void embed_blocks(const DeviceBatch& batch, const DeviceMatrix& table, float multiplier, Floats out) = 0;
    // Here and below: `pairs`, [num_rows, row_pairs_of(width)], also receives the result as round_rows would leave it;
    // null: no copy. Row r of `out` is the norm of row rows[r] of x; rows null: of row r.
    virtual void rms_norm(Floats x, const int32_t* rows, const float* weight, float eps, Floats out,
                          uint32_t* pairs) = 0;
    virtual void gated_norm(GateKind kind, int64_t n_groups, Floats z, const float* weight, float eps, Floats y,
                            uint32_t* pairs) = 0;
    // Rounds inputs to bf16 pairs, once for all matmuls that read them.
    virtual void round_rows(Floats x, float multiplier, uint32_t* pairs) = 0;
    // Quantises inputs, once for all matmuls that read the form: [num_rows, row_words(form, width)]. REQUIRES: not
    // kPairs.
    virtual void quantise_rows(Floats x, const reference::RowFactors& factors, RowForm form, uint32_t* out) = 0;
    // The dot products of NUMERICS N3, or those of exact.int8 and exact.fp8. `rows`: in the form matrix.inputs.
    virtual void matmul(const uint32_t* rows, const DeviceMatrix& matrix, Floats out) = 0;
    // A matmul of few rows, fused with the operations before and after it; the bits equal those of the separate
    // operations. REQUIRES: matrices in kPairs or fragments; num_rows <= matvec_rows() of the profile; with a norm,
    // takes_norm() and at most kMatvecNormRows rows.
    virtual void matvec(const Matvec& of) = 0;
    // The dot products of kTensorSm90, or of kFast in any order.
    virtual void tensor_matmul(reference::Profile profile, const uint32_t* pairs, const DeviceMatrix& matrix,
                               Floats out) = 0;
    // Single 16 x 16 by 16 x 8 multiplications on tensor cores: sums = c + a · b, two values of k per word. a:
    // [num_tiles, 16, 8]; b: [num_tiles, 8, 8], columns; c, sums: [num_tiles, 16, 8]. REQUIRES: for kGroup
    // uses_wgmma().
    virtual void multiply_tiles(TensorCaller caller, const uint32_t* a, const uint32_t* b, const float* c, float* sums,
                                int64_t num_tiles) = 0;
    // Whether large matmuls run on warpgroups.
    [[nodiscard]] virtual bool uses_wgmma() const = 0;
    // Whether attention in this profile reads batch.tiles; otherwise batch.tiles must be empty.
    [[nodiscard]] virtual bool attends_by_tiles(reference::Profile profile, const AttentionShape& shape,
                                                int32_t block_size) const = 0;
    virtual void scale(Floats x, float multiplier) = 0;
    // conv and scan lower the fault of a logit row to the state's layer when the state or window that they continue
    // from after that row is not finite (N8). They first replay the sequence's log, and log the tokens that its
    // row does not take in.
    virtual void conv(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats x,
                      const DeviceStates& windows, const DeviceLog& log, Floats out) = 0;
    // conv, and dt and decay of each row and head for scan(), in one launch.
    virtual void conv_and_steps(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters,
                                Floats x, const DeviceStates& windows, const DeviceLog& log, Floats out, Floats dt_raw,
                                float* dt, float* decay) = 0;
    // dt, decay: scratch [num_rows, n_heads] each; without dt_raw, conv_and_steps has already filled them.
    virtual void scan(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters, Floats conv,
                      Floats dt_raw, float* dt, float* decay, const DeviceStates& states, const DeviceLog& log,
                      Floats y) = 0;
    // For sequences without rows: replays the log into their state rows.
    virtual void move_states(const DeviceBatch& batch, const MambaShape& shape, const MambaParameters& parameters,
                             const DeviceStates& windows, const DeviceStates& states, const DeviceLog& log) = 0;
    // The same for a delta net: delta_gates computes beta and decay from b and a; l2_norm scales q and k of conv's
    // rows to length 1 in place; then the delta rule. The first three calls log what a later replay of these rows
    // needs.
    virtual void delta_conv(const DeltaBatch& of, const DeltaWeights& weights, Floats x, const DeviceStates& windows,
                            Floats out) = 0;
    virtual void delta_gates(const DeltaBatch& of, const DeltaWeights& weights, Floats b, Floats a) = 0;
    virtual void l2_norm(const DeltaBatch& of, float q_scale, Floats conv) = 0;
    virtual void delta_update(const DeltaBatch& of, Floats conv, Floats beta, Floats decay, const DeviceStates& states,
                              Floats y) = 0;
    virtual void move_delta_states(const DeltaBatch& of, const DeviceStates& windows, const DeviceStates& states) = 0;
    // cos, sin: [num_positions, n_pairs].
    virtual void rope(const DeviceBatch& batch, int64_t n_heads, int64_t head_dim, const float* cos, const float* sin,
                      int64_t num_positions, int64_t n_pairs, Floats x) = 0;
    virtual void store_kv(const DeviceBatch& batch, Floats k, Floats v, const DevicePages& pages) = 0;
    // workspace: attention_floats(batch.max_runs, shape) floats. REQUIRES: batch.query_rows <= attend_rows(shape);
    // every row is in batch.queries or in batch.tiles. In tensor.sm90 the dot products run on tensor cores.
    virtual void attention(reference::Profile profile, const DeviceBatch& batch, const AttentionShape& shape, Floats q,
                           const DevicePages& pages, float* workspace, Floats out, uint32_t* pairs) = 0;
    // x [num_rows, heads · head_dim] times the sigmoid of its gates. gate: [num_rows, heads, 2, head_dim], gates
    // second.
    virtual void sigmoid_gate(int64_t head_dim, Floats gate, Floats x, uint32_t* pairs) = 0;
    virtual void swiglu(Floats gate, float gate_multiplier, Floats up, uint32_t* pairs) = 0;
    virtual void relu_squared(Floats up, uint32_t* pairs) = 0;
    virtual void add_branch(Floats branch, float branch_multiplier, float residual_multiplier, Floats residual) = 0;
    // The dot products of N3 over binary32 weights, in every profile.
    virtual void route(const uint32_t* pairs, const DeviceRouter& router, Floats out) = 0;
    virtual void choose(const ChooseShape& shape, Floats logits, const float* choice_bias, Floats out) = 0;
    // Sorts the entries that choose() left by expert.
    virtual void list_entries(Floats chosen, const DeviceEntries& of) = 0;
    // Gathers the words of each entry's row, in entry order: row_words() of them.
    virtual void gather_entries(const DeviceEntries& of, const uint32_t* rows, int64_t row_words, uint32_t* out) = 0;
    // Quantises each entry's row in the form kFp8OfRow under its expert's static scale, [n_experts] of them. `gathers`:
    // x has the batch's rows; otherwise a row for each entry. `out`: [num_entries, row_words()].
    virtual void quantise_entries(const DeviceEntries& of, Floats x, bool gathers, const float* static_scales,
                                  uint32_t* out) = 0;
    // Multiplies every entry by its expert's matrix. `matrix`: the first of n_experts consecutive matrices, packed as
    // the profile's matmul reads them, without biases; in kExact as matmul().
    virtual void multiply_entries(reference::Profile profile, const DeviceEntries& of, const uint32_t* rows,
                                  const DeviceMatrix& matrix, Floats out) = 0;
    // `pairs` may be null here too.
    virtual void combine(const DeviceEntries& of, Floats chosen, Floats results, Floats out, uint32_t* pairs) = 0;
    // gate.data is null when there is no gate.
    virtual void add_routed(Floats routed, Floats gate, Floats branch) = 0;
    virtual void scale_logits(Floats logits, float multiplier, float divisor) = 0;
    virtual void check_logits(const DeviceBatch& batch, int32_t num_layers, Floats logits) = 0;
    // As reference/ops/sampling.h, into batch.drawn. A row that is not finite draws an arbitrary token.
    virtual void draw(const DeviceBatch& batch, Floats logits, const DrawScratch& scratch) = 0;
    virtual void copy_tails(const DeviceCopy* copies, int64_t num_copies, const DevicePages& pages) = 0;
    // Adds the ElementSum of `count` floats to sum[0] (low) and sum[1] (high).
    virtual void sum_floats(const float* values, int64_t count, uint64_t* sum) = 0;
    // Adds the sums of the first `length` positions of a block table: K to sums[0] and [1], V to sums[2] and [3];
    // element indices are those of reference/head_digest.h. blocks: [ceil(length / block_size)].
    virtual void sum_kv(const int32_t* blocks, int64_t length, const DevicePages& pages, uint64_t* sums) = 0;

    // Whether large matmuls of kTensorSm90 and kFast may use Hopper's warpgroups, if available. Otherwise they use mma;
    // in kTensorSm90 the bits are the same, so mma is a second witness.
    void use_warpgroups(bool use) { uses_warpgroups_ = use; }

protected:
    DeviceCounts counts_;
    bool uses_warpgroups_ = true;
    Status tensor_cores_;
    std::string remark_;
};

// Floats of workspace that attention() needs: a softmax state per run of a row and attention head.
[[nodiscard]] inline int64_t attention_floats(int64_t num_runs, const AttentionShape& shape) {
    return num_runs * shape.n_heads * (shape.head_dim + 2);
}

}  // namespace verbatim::cuda
