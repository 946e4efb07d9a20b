// kernels/sandbox/kernel.h: owns the interface of a user's kernel, in C: `verbatim kernel check OP` (or invariance,
// race, perf) with `--file FILE` compiles the file, loads it in a separate process and calls the kernels that it
// exports. C99 and C++; no other include is needed.
//
// A file exports one function:
//
//   VERBATIM_EXPORT const struct verbatim_kernel* verbatim_kernel_at(int32_t index);   // null after the last one
//
//   K1  arguments mean what `verbatim kernel list --contract OP` says; each struct below mirrors one operation
//   K2  memory has the alignment of its element type and no more; workspace and packed weights are aligned to 64 bytes
//   K3  rows are `stride` elements apart; a kernel must not touch the memory between two rows
//   K4  inputs must not change, outputs must be written completely; outputs and workspace start with undefined content
//   K5  bits must not depend on num_threads (CUDA: multiprocessors), on the order of tasks, nor on block_threads
//   K6  structs grow only at their end, and new operations are added after the existing ones; VERBATIM_KERNEL_ABI grows
//       with them, and a kernel with an earlier ABI is accepted unchanged. 2: from delta_update on; 3: verbatim_call
//   K7  arguments are valid until the function that they are given to returns; those of run are at another address
#pragma once

#include <stdint.h>

#define VERBATIM_KERNEL_ABI 3

#ifdef __cplusplus
#define VERBATIM_EXPORT extern "C" __attribute__((visibility("default")))
extern "C" {
#else
#define VERBATIM_EXPORT __attribute__((visibility("default")))
#endif

// Row r is at data + r * stride.
struct verbatim_floats {
    float* data;
    int64_t num_rows, width, stride;  // elements
};
struct verbatim_const_floats {
    const float* data;
    int64_t num_rows, width, stride;
};
// Rows of sequences are consecutive: sequence s has rows first_row[s] ... first_row[s + 1] - 1, at least one.
struct verbatim_sequences {
    const int64_t* first_row;  // [num_sequences + 1]
    int64_t num_sequences;
};

struct verbatim_matmul {
    struct verbatim_const_floats x;  // [num_rows, K]
    const uint16_t* weight;          // [N, K], bf16
    const float* bias;               // [N] or null
    float in_multiplier;
    struct verbatim_floats out;  // [num_rows, N]
};

// x and out may be the same rows.
struct verbatim_rms_norm {
    struct verbatim_const_floats x;  // [num_rows, width]
    const float* weight;             // [width]
    float eps;
    struct verbatim_floats out;  // [num_rows, width]
};

enum { VERBATIM_GATE_ONLY = 0, VERBATIM_GATE_THEN_NORM = 1, VERBATIM_NORM_THEN_GATE = 2 };
struct verbatim_gated_norm {
    int32_t gate;                    // one of the above
    int64_t n_groups;                // divides the width
    struct verbatim_const_floats z;  // [num_rows, width]
    const float* weight;             // [width]; null for VERBATIM_GATE_ONLY
    float eps;
    struct verbatim_floats y;  // [num_rows, width], in place
};

// windows_out may be windows_in.
struct verbatim_conv {
    int64_t d_conv;  // taps, 2 ... 4
    struct verbatim_sequences sequences;
    struct verbatim_const_floats x;  // [num_rows, conv_dim]
    const float* weight;             // [conv_dim, d_conv], oldest tap first
    const float* bias;               // [conv_dim] or null
    const float* windows_in;         // [num_sequences, d_conv - 1, conv_dim]; null: zeros
    float* windows_out;              // [num_sequences, d_conv - 1, conv_dim]
    struct verbatim_floats out;      // [num_rows, conv_dim]
};

// states_out may be states_in.
struct verbatim_scan {
    int64_t n_heads, head_dim, d_state, n_groups;  // n_groups divides n_heads
    struct verbatim_sequences sequences;
    struct verbatim_const_floats x;     // [num_rows, n_heads * head_dim]
    struct verbatim_const_floats b, c;  // [num_rows, n_groups * d_state]
    struct verbatim_const_floats dt;    // [num_rows, n_heads], before bias and softplus
    const float *a, *d, *dt_bias;       // [n_heads]
    float dt_min, dt_max;
    const float* states_in;    // [num_sequences, n_heads, d_state, head_dim]; null: zeros
    float* states_out;         // [num_sequences, n_heads, d_state, head_dim]
    struct verbatim_floats y;  // [num_rows, n_heads * head_dim]
};

struct verbatim_rope {
    int64_t n_heads, head_dim, n_pairs;  // 2 * n_pairs <= head_dim
    const int64_t* positions;            // [num_rows], each in [0, num_positions)
    int64_t num_positions;
    const float *cos, *sin;    // [num_positions, n_pairs]
    struct verbatim_floats x;  // [num_rows, n_heads * head_dim], in place
};

// Row r of sequence s is at position p = first_position[s] + r - first_row[s] and sees positions 0 ... p. Position i
// lies in slot i % block_size of block block_tables[s * max_blocks + i / block_size].
struct verbatim_attention {
    int64_t n_heads, n_kv_heads, head_dim;  // n_kv_heads divides n_heads
    float scale;
    struct verbatim_sequences sequences;
    const int64_t* first_position;  // [num_sequences]
    const int32_t* block_tables;    // [num_sequences, max_blocks]
    int64_t max_blocks, num_blocks, block_size;
    const uint16_t *k, *v;           // [num_blocks, block_size, n_kv_heads, head_dim], bf16
    struct verbatim_const_floats q;  // [num_rows, n_heads * head_dim]
    struct verbatim_floats out;      // [num_rows, n_heads * head_dim]
};

enum { VERBATIM_SWIGLU = 0, VERBATIM_RELU_SQUARED = 1 };
struct verbatim_activation {
    int32_t kind;                       // one of the above
    struct verbatim_const_floats gate;  // [num_rows, width]; for VERBATIM_SWIGLU
    float gate_multiplier;
    struct verbatim_floats up;  // [num_rows, width], in place
};

struct verbatim_draw {
    float temperature;
    int32_t top_k;
    float top_p, repetition_penalty, presence_penalty, frequency_penalty;
    uint64_t seed, position;
};
struct verbatim_sampling {
    struct verbatim_const_floats logits;  // [num_rows, vocab_size], finite
    const struct verbatim_draw* draws;    // [num_rows]
    const int32_t* prompt;                // [num_rows, max_prompt]
    const int32_t* num_prompt;            // [num_rows], of max_prompt
    const int32_t* generated;             // [num_rows, max_generated]
    const int32_t* num_generated;         // [num_rows], of max_generated
    int64_t max_prompt, max_generated;
    int32_t* tokens;  // [num_rows]
};

// Row r holds elements first_index[r], first_index[r] + 1, ... of a tensor.
struct verbatim_head_digest {
    int64_t element_bytes;  // 2 or 4
    const void* elements;   // [num_rows, width]
    int64_t num_rows, width, stride;
    const int64_t* first_index;  // [num_rows]; null: zeros
    uint64_t* sums;              // [num_rows, 2]: low, high
};

// states_out may be states_in.
struct verbatim_delta_update {
    int64_t n_key_heads, n_value_heads, key_dim, value_dim;  // n_key_heads divides n_value_heads
    struct verbatim_sequences sequences;
    struct verbatim_const_floats q, k;         // [num_rows, n_key_heads * key_dim], as l2_norm leaves them
    struct verbatim_const_floats v;            // [num_rows, n_value_heads * value_dim]
    struct verbatim_const_floats beta, decay;  // [num_rows, n_value_heads], as delta_gates leaves them
    const float* states_in;                    // [num_sequences, n_value_heads, key_dim, value_dim]; null: zeros
    float* states_out;                         // [num_sequences, n_value_heads, key_dim, value_dim]
    struct verbatim_floats y;                  // [num_rows, n_value_heads * value_dim]
};

struct verbatim_delta_gates {
    const float *rate, *dt_bias;  // [n_value_heads]
    struct verbatim_floats b, a;  // [num_rows, n_value_heads], in place
};

struct verbatim_l2_norm {
    int64_t n_heads, dim;
    float scale;
    struct verbatim_floats x;  // [num_rows, n_heads * dim], in place
};

struct verbatim_router {
    struct verbatim_const_floats x;  // [num_rows, K]
    const float* weight;             // [n_experts, K]
    struct verbatim_floats out;      // [num_rows, n_experts]
};

enum { VERBATIM_SIGMOID_BIAS = 0, VERBATIM_SOFTMAX_ALL = 1, VERBATIM_SOFTMAX_CHOSEN = 2 };
struct verbatim_choose {
    int32_t router;                     // one of the above
    int32_t normalize;                  // 0 or 1
    int64_t n_experts, n_chosen;        // n_chosen of them
    int64_t n_groups, n_chosen_groups;  // 1 except for VERBATIM_SIGMOID_BIAS; groups are equal runs of experts
    float sum_epsilon, scale;
    struct verbatim_const_floats logits;  // [num_rows, n_experts]
    const float* choice_bias;             // [n_experts] for VERBATIM_SIGMOID_BIAS, else null
    struct verbatim_floats out;           // [num_rows, 2 * n_chosen]: ids, ascending, as binary32; then their weights
};

struct verbatim_experts {
    int32_t kind;  // VERBATIM_SWIGLU or VERBATIM_RELU_SQUARED
    int64_t n_experts, n_chosen, d_ff;
    struct verbatim_const_floats x;       // [num_rows, width]
    struct verbatim_const_floats chosen;  // [num_rows, 2 * n_chosen], as choose leaves them
    const uint16_t* gate;                 // [n_experts, d_ff, width], bf16; for VERBATIM_SWIGLU
    const uint16_t* up;                   // [n_experts, d_ff, width], bf16
    const uint16_t* down;                 // [n_experts, width, d_ff], bf16
    struct verbatim_floats out;           // [num_rows, width]
};

struct verbatim_add_routed {
    struct verbatim_const_floats routed;  // [num_rows, width]
    struct verbatim_const_floats gate;    // [num_rows, 1]; data is null without one
    struct verbatim_floats branch;        // [num_rows, width], in place
};

// A call of an operation that is described by a contract (kernels/sandbox/contract.h, `--contract FILE`): sizes,
// parameters and operands in the contract's order. Unit u of an operand (a row, a sequence, or the call) begins at
// element u * stride.
enum { VERBATIM_MAX_SIZES = 8, VERBATIM_MAX_PARAMETERS = 4, VERBATIM_MAX_OPERANDS = 15 };
struct verbatim_operand {
    void* data;                        // null: its width is 0
    int64_t num_units, width, stride;  // elements
};
struct verbatim_call {
    int64_t sizes[VERBATIM_MAX_SIZES];
    float parameters[VERBATIM_MAX_PARAMETERS];
    struct verbatim_operand operands[VERBATIM_MAX_OPERANDS];
    int64_t num_rows;
    struct verbatim_sequences sequences;  // of a contract of rows: first_row is null
};

// The arguments of the kernel's operation.
union verbatim_args {
    const struct verbatim_matmul* matmul;
    const struct verbatim_rms_norm* rms_norm;
    const struct verbatim_gated_norm* gated_norm;
    const struct verbatim_conv* conv;
    const struct verbatim_scan* scan;
    const struct verbatim_rope* rope;
    const struct verbatim_attention* attention;
    const struct verbatim_activation* activation;
    const struct verbatim_sampling* sampling;
    const struct verbatim_head_digest* head_digest;
    const struct verbatim_delta_update* delta_update;
    const struct verbatim_delta_gates* delta_gates;
    const struct verbatim_l2_norm* l2_norm;
    const struct verbatim_router* router;
    const struct verbatim_choose* choose;
    const struct verbatim_experts* experts;
    const struct verbatim_add_routed* add_routed;
    const struct verbatim_call* call;
};

struct verbatim_run {
    union verbatim_args args;
    void* workspace;     // workspace_bytes, with undefined content
    const void* packed;  // the result of pack(); null without pack()
    // Runs tasks 0 ... num_tasks - 1, each once, in any order, in parallel on num_threads threads; returns when all are
    // done. A kernel need not use it.
    void (*parallel)(const struct verbatim_run* run, int32_t num_tasks, void (*task)(void* mine, int32_t index),
                     void* mine);
    int32_t num_threads;    // CUDA: multiprocessors that a grid should fill; 1 or more
    int32_t block_threads;  // CUDA: threads per block requested by the caller; 0: the kernel's choice
    void* device;           // CUDA: the stream or the emulator, used by kernels/sandbox/cuda_kernel.h
    const void* host;       // reserved for the caller
};

struct verbatim_kernel {
    uint32_t abi;           // VERBATIM_KERNEL_ABI of the header that the file was compiled with
    const char* name;       // unique in the file
    const char* operation;  // "matmul", as the structs above are named
    const char* profile;    // "exact" (bits), "tensor.sm90" (bits), "fast" (a tolerance)
    const char* machine;    // "cpu" or "cuda"
    const void* self;       // for the kernel's use
    // All functions except run may be null. supports: 0 if the kernel does not accept these sizes; it must not
    // dereference pointers.
    int32_t (*supports)(const struct verbatim_kernel* kernel, union verbatim_args args);
    int64_t (*workspace_bytes)(const struct verbatim_kernel* kernel, union verbatim_args args, int32_t num_threads);
    // Packs weights, or attention's pages, into the kernel's layout: once, and not timed.
    int64_t (*packed_bytes)(const struct verbatim_kernel* kernel, union verbatim_args args);
    void (*pack)(const struct verbatim_kernel* kernel, union verbatim_args args, void* packed);
    // 0: done; any other value is reported as a failure.
    int32_t (*run)(const struct verbatim_kernel* kernel, const struct verbatim_run* run);
};

#ifdef __cplusplus
}
#endif

VERBATIM_EXPORT const struct verbatim_kernel* verbatim_kernel_at(int32_t index);
