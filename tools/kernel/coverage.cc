#include "tools/kernel/coverage.h"

namespace verbatim::tools {
namespace {

constexpr std::string_view kOneRounding =
    "no sum: every element is rounded by itself, in one order, and fused into its neighbours by whoever wants speed";
constexpr std::string_view kBytes = "no arithmetic: bytes move from one place to another";
constexpr std::string_view kRouter = "not here yet: matmul's order, over weights in binary32";
constexpr std::string_view kQuestion = "no numbers come of it: it asks whether there is a NaN or an infinity";

constexpr std::string_view kDelta = "not there yet: gated delta nets run on the reference and the CPU alone";

constexpr Coverage kCoverage[] = {
    {"activation", "activation", ""},
    {"add_branch", "", kOneRounding},
    {"add_routed", "", kOneRounding},
    {"attention", "attention", ""},
    {"check_logits", "", kQuestion},
    {"check_state", "", kQuestion},
    {"choose", "", "not here yet: an order of experts by score, and their weights"},
    {"conv", "conv", ""},
    {"conv1d", "conv", ""},
    {"copy_tails", "", kBytes},
    {"delta_conv", "conv", ""},
    {"delta_gates", "", kDelta},
    {"delta_norm", "gated_norm", ""},
    {"delta_update", "", kDelta},
    {"draw", "sampling", ""},
    {"embed", "", kOneRounding},
    {"embedding", "", kOneRounding},
    {"experts", "", "not here yet: an expert is made of matmul and activation, which are"},
    {"gated_norm", "gated_norm", ""},
    {"head_norm", "rms_norm", ""},
    {"l2_norm", "", kDelta},
    {"matmul", "matmul", ""},
    {"move_states", "", "scan and conv over tokens that were kept: `kernel invariance` cuts their calls anywhere"},
    {"norm", "rms_norm", ""},
    {"output_gate", "", kOneRounding},
    {"penalised", "sampling", ""},
    {"relu_squared", "activation", ""},
    {"rms_norm", "rms_norm", ""},
    {"rope", "rope", ""},
    {"round_rows", "", "matmul's first step: rounding to bf16 is in its contract"},
    {"route", "", kRouter},
    {"router", "", kRouter},
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

}  // namespace verbatim::tools
