#include "kernels/sandbox/coverage.h"

namespace verbatim::sandbox {
namespace {

constexpr std::string_view kOneRounding =
    "no sum: every element is rounded by itself, in one order, and fast kernels fuse it into its neighbours";
constexpr std::string_view kBlocks = "weights in blocks: a contract file, kernels/sandbox/naive/quantised_matmul.h";
constexpr std::string_view kInt8 = "activations in int8: the sandbox's matmul has bf16 ones";
constexpr std::string_view kFp8 = "activations in FP8: the sandbox's matmul has bf16 ones";
constexpr std::string_view kBytes = "no arithmetic: bytes move from one place to another";
constexpr std::string_view kQuestion = "no numbers come of it: it asks whether there is a NaN or an infinity";

constexpr Coverage kCoverage[] = {
    {"activation", "activation", ""},
    {"add_branch", "", kOneRounding},
    {"add_routed", "add_routed", ""},
    {"attention", "attention", ""},
    {"check_logits", "", kQuestion},
    {"check_state", "", kQuestion},
    {"choose", "choose", ""},
    {"combine", "add_routed", ""},
    {"conv", "conv", ""},
    {"conv1d", "conv", ""},
    {"conv_and_steps", "conv", ""},
    {"copy_tails", "", kBytes},
    {"delta_conv", "conv", ""},
    {"delta_gates", "delta_gates", ""},
    {"delta_norm", "gated_norm", ""},
    {"delta_update", "delta_update", ""},
    {"draw", "sampling", ""},
    {"embed", "", kOneRounding},
    {"embed_blocks", "", kOneRounding},
    {"embedding", "", kOneRounding},
    {"experts", "experts", ""},
    {"fp8_matmul", "", kFp8},
    {"gated_norm", "gated_norm", ""},
    {"gather_entries", "", "no sum: rows are copied to where their expert's are"},
    {"head_norm", "rms_norm", ""},
    {"hidden", "", kBytes},
    {"int8_matmul", "", kInt8},
    {"l2_norm", "l2_norm", ""},
    {"linear", "matmul", ""},
    {"list_entries", "", "no sum: the rows of each expert are counted and listed"},
    {"matmul", "matmul", ""},
    {"matvec", "matmul", ""},
    {"move_delta_states", "", "delta_update over tokens that were kept: `kernel invariance` cuts its calls anywhere"},
    {"move_states", "", "scan and conv over tokens that were kept: `kernel invariance` cuts their calls anywhere"},
    {"multiply_entries", "experts", ""},
    {"multiply_tiles", "", "a device's self-test of its tensor cores"},
    {"norm", "rms_norm", ""},
    {"output_gate", "", kOneRounding},
    {"penalised", "sampling", ""},
    {"quantise_entries", "", "quantise_rows of the rows that chose an expert, under its static scale"},
    {"quantise_fp8_row", "", "fp8_matmul's first step: the scales and numbers of a row are in its contract"},
    {"quantise_row", "", "int8_matmul's first step: the scales and integers of a row are in its contract"},
    {"quantise_rows", "", "the first step of int8_matmul and fp8_matmul on a device"},
    {"quantised_embedding", "", kOneRounding},
    {"quantised_matmul", "", kBlocks},
    {"relu_squared", "activation", ""},
    {"rms_norm", "rms_norm", ""},
    {"rope", "rope", ""},
    {"round_rows", "", "matmul's first step: rounding to bf16 is in its contract"},
    {"route", "router", ""},
    {"router", "router", ""},
    {"sample", "sampling", ""},
    {"scale", "", kOneRounding},
    {"scale_logits", "", kOneRounding},
    {"scan", "scan", ""},
    {"sigmoid_gate", "", kOneRounding},
    {"ssm_scan", "scan", ""},
    {"store_bf16", "", "no sum: every element is rounded to bf16 by itself"},
    {"store_kv", "", "no sum: every element is rounded to bf16 by itself, and put into its page"},
    {"sum_floats", "head_digest", ""},
    {"sum_kv", "head_digest", ""},
    {"swiglu", "activation", ""},
    {"tensor_matmul", "matmul", ""},
};

}  // namespace

std::span<const Coverage> coverage() { return kCoverage; }

}  // namespace verbatim::sandbox
