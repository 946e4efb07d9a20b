// kernels/sandbox/contract.h: owns the description of an operation that a user writes, in C99 and C++:
// `verbatim kernel check --contract my_op.h --file my_op.cc` holds a kernel against it, and `verbatim kernel new
// --contract my_op.h` writes an example.
//
//   D1  expressions (widths, `admits`, `flops`) are of sizes by name, whole numbers, ( ) + - * / % < <= > >= == != &&
//   D2  the reference computes every output; its arguments have dense units, and it must not read outputs before it
//       writes them
//   D3  a contract of rows has its rows as the first size, one of sequences the sequences and the most tokens of one:
//       no width and no `below` depends on them, since `invariance` calls with some of the rows
#pragma once

#include "kernels/sandbox/kernel.h"
#include "kernels/sandbox/small_floats.h"

enum { VERBATIM_ROWS = 0, VERBATIM_SEQUENCES = 1 };
enum { VERBATIM_IN = 0, VERBATIM_OUT = 1, VERBATIM_IN_OUT = 2 };
enum { VERBATIM_PER_ROW = 0, VERBATIM_PER_SEQUENCE = 1, VERBATIM_PER_CALL = 2 };
enum {
    VERBATIM_F32 = 0,
    VERBATIM_BF16 = 1,
    VERBATIM_F16 = 2,
    VERBATIM_F8_E4M3 = 3,
    VERBATIM_F8_E5M2 = 4,
    VERBATIM_I8 = 5,
    VERBATIM_I32 = 6,
    VERBATIM_I64 = 7
};
// What a kernel of profile "fast" may differ by; one of profile "exact" has the reference's bits.
enum {
    VERBATIM_BITS = 0,         // nothing
    VERBATIM_ULPS = 1,         // `tolerance` units in the last place of the reference's element, in the operand's dtype
    VERBATIM_ULPS_OF_UNIT = 2  // ... of the greatest element of its row, sequence or call
};

struct verbatim_contract_size {
    const char* name;   // null ends the list
    int64_t least;      // 0: 1
    int64_t usual;      // while another size is at its edges; 0: 3
    const char* edges;  // "1 2 16 17"; null: 1, odd, and around powers of two up to 65
    int32_t is_choice;  // 1: only the edges are valid
    const char* real;   // of real batches: "255 256 257"; null: none, for rows and sequences those of the built-in
                        // operations
};
struct verbatim_contract_operand {
    const char* name;  // null ends the list
    int32_t role, dtype, unit;
    const char* width;      // elements of a unit, an expression; where it is 0 the pointer is null
    const char* below;      // of an integer input: values are 0 ... below - 1, an expression; null: small, both signs
    int32_t is_plain;       // 1: values about 1 in every class, as weights have
    const char* lies_in;    // of an output: it may share the memory of this input; null: it never does
    const char* continues;  // of an input per sequence: the output that the next call continues from; null: none
};
struct verbatim_contract_parameter {
    const char* name;    // null ends the list
    const char* values;  // "0.5 1 2": one of them in each call
};

struct verbatim_contract {
    uint32_t abi;         // VERBATIM_KERNEL_ABI
    const char* name;     // verbatim_kernel::operation of its kernels
    const char* formula;  // for people
    int32_t batch;        // VERBATIM_ROWS or VERBATIM_SEQUENCES
    struct verbatim_contract_size sizes[VERBATIM_MAX_SIZES + 1];
    struct verbatim_contract_operand operands[VERBATIM_MAX_OPERANDS + 1];
    struct verbatim_contract_parameter parameters[VERBATIM_MAX_PARAMETERS + 1];
    const char* admits;  // sizes that go together, an expression; null: all
    const char* flops;   // of a call, an expression; null: one for each element of an operand
    const char* shapes;  // "rows=4,width=4096; rows=256,width=4096": of models, also timed by `perf`; null: none
    int32_t tolerance_kind;
    double tolerance;
    int32_t has_no_nan;                                      // 1: inputs are finite
    int32_t (*reference)(const struct verbatim_call* call);  // 0: done
};

// A function that both a kernel for a GPU and the host may call.
#if defined(__CUDACC__)
#define VERBATIM_FUNCTION static __host__ __device__
#else
#define VERBATIM_FUNCTION static inline
#endif

// The first element of unit u of an operand, as TYPE*.
#define VERBATIM_UNIT(TYPE, call, operand, u) \
    ((TYPE*)(call)->operands[operand].data + (int64_t)(u) * (call)->operands[operand].stride)

// The end of a contract's file: exports it, where the file is compiled as a contract and not with a kernel.
#if defined(VERBATIM_CONTRACT_LIBRARY)
#define VERBATIM_CONTRACT(contract) \
    VERBATIM_EXPORT const struct verbatim_contract* verbatim_contract(void) { return &(contract); }
#else
#define VERBATIM_CONTRACT(contract)
#endif
