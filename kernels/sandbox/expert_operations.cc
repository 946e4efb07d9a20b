// The operations of a mixture of experts: router, choose, experts, add_routed.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/choose_bounds.h"
#include "kernels/sandbox/operation_parts.h"
#include "reference/numerics/bf16.h"

namespace verbatim::sandbox {
namespace {

using reference::LayerConfig;
using reference::MlpKind;
using reference::ModelConfig;
using reference::MoeConfig;

double bf16_of(float x) { return reference::bf16_value(x); }
double sigmoid64(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// `add` for every published model with experts.
std::vector<Sizes> of_published_experts(void (*add)(const ModelConfig& config, const MoeConfig& moe,
                                                    std::vector<Sizes>& shapes)) {
    return of_published([add](const ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* moe = first_of(config, &LayerConfig::moe)) add(config, *moe, shapes);
    });
}

// --- router: rows, experts, k

constexpr const char* kRouterContract =
    "x [rows, K] f32, weight [n_experts, K] f32, out [rows, n_experts] f32\n"
    "a[k]      = bf16(x[m][k])                      to nearest even; below 2^-56 it is +0\n"
    "total     = +0; for each chunk of 256 k in ascending order:\n"
    "              acc = +0; for each pair (2j, 2j+1) in ascending j (an odd tail is padded with +0):\n"
    "                acc = fma(a[2j+1], w[2j+1], acc); acc = fma(a[2j], w[2j], acc)\n"
    "              total = total + acc\n"
    "out[m][e] = total                              matmul's order, over weights that are not rounded\n";

std::vector<TensorSpec> router_tensors(const Sizes& sizes) {
    return {{.name = "x", .width = sizes[2], .strided = true},
            {.name = "weight", .axis = Axis::kCall, .width = sizes[1] * sizes[2]},
            {.name = "out", .role = Role::kOut, .width = sizes[1], .strided = true}};
}
void router_finish(Arguments&, Prng&) {}
verbatim_args router_bind(const Placed& call, AbiArgs& abi) {
    abi.router = {.x = placed_inputs(call, 0, call.sizes[2]),
                  .weight = placed<const float>(call, 1),
                  .out = placed_rows(call, 2, call.sizes[1])};
    return {.router = &abi.router};
}
Work router_work(const Arguments& arguments) {
    const double macs =
        static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[1] * arguments.sizes[2]);
    return {bytes_of_tensors(arguments), 2 * macs};
}
std::vector<std::vector<double>> router_doubles(const AbiArgs& abi) {
    const verbatim_router& op = abi.router;
    std::vector<double> out;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        for (int64_t e = 0; e < op.out.width; ++e) {
            double total = 0;
            for (int64_t k = 0; k < op.x.width; ++k) {
                total += bf16_of(row_of(op.x, m)[k]) * op.weight[e * op.x.width + k];
            }
            out.push_back(total);
        }
    }
    return {out};
}
std::vector<Sizes> router_published() {
    return of_published_experts([](const ModelConfig& config, const MoeConfig& moe, std::vector<Sizes>& shapes) {
        for (const int64_t rows : {1, 4}) shapes.push_back({rows, moe.n_experts, config.hidden_size});
    });
}

Operation router() {
    return {.name = "router",
            .contract = kRouterContract,
            .sums_exactly = true,
            .sizes = {{"rows", 1, 3, edges_up_to(17), false, true, real_rows()},
                      {"experts", 1, 8, {1, 2, 3, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129}, false, true},
                      {"k", 1, 70, {1, 2, 3, 31, 64, 255, 256, 257, 511, 512, 513, 770}}},
            .published = router_published,
            .tensors = router_tensors,
            .items = single_rows,
            .finish = router_finish,
            .bind = router_bind,
            .work = router_work,
            .doubles = router_doubles};
}

// --- choose: rows, router, groups, open (groups that take part), group_experts, chosen, normalize

constexpr const char* kChooseContract =
    "logits [rows, n_experts] f32, choice_bias [n_experts] f32 or null, sum_epsilon, scale,\n"
    "out [rows, 2 * n_chosen] f32: ids, ascending; then their weights. Per row, L its logits:\n"
    "router 0 (sigmoid and bias):   s[e] = sigmoid(L[e]); c[e] = s[e] + choice_bias[e]\n"
    "router 1 (softmax of all):     m = max of L; p[e] = exp(L[e] - m); s[e] = c[e] = p[e] / sum(p)\n"
    "router 2 (softmax of chosen):  c[e] = L[e]\n"
    "groups are equal runs of ids; with more than one, a group's score is a + b of its two greatest c, a the greater, "
    "and\n"
    "  the n_chosen_groups first by (score descending, number ascending) take part\n"
    "chosen are the n_chosen experts first by (c descending, id ascending); NaN comes after every number. Then, over "
    "the\n"
    "chosen in ascending id:\n"
    "  router 2:   m = max of L; p[i] = exp(L[i] - m); w[i] = p[i] / sum(p)\n"
    "  the others: w[i] = s[i]; if normalize: t = +0; t = t + w[i] in order; t = t + sum_epsilon; w[i] = w[i] / t\n"
    "  all:        w[i] = w[i] * scale\n"
    "sum as rms_norm's, without squares; of maxima NaN wins; exp, sigmoid of reference/numerics/math.h\n"
    "sizes: n_experts = groups * group_experts, n_chosen <= open * group_experts, open <= groups; groups above 1 of\n"
    "router 0 alone, with 2 experts or more\n";

bool choose_sizes_go_together(const Sizes& sizes) {
    const auto [groups, open, size] = std::tuple(sizes[2], sizes[3], sizes[4]);
    const bool may_group = groups == 1 || (sizes[1] == VERBATIM_SIGMOID_BIAS && size >= 2);
    return may_group && open <= groups && sizes[5] <= open * size;
}
std::vector<TensorSpec> choose_tensors(const Sizes& sizes) {
    const int64_t experts = sizes[2] * sizes[4];
    const int64_t biased = sizes[1] == VERBATIM_SIGMOID_BIAS ? experts : 0;
    return {{.name = "logits", .width = experts, .strided = true},
            {.name = "choice_bias", .axis = Axis::kCall, .width = biased, .fill = Fill::kOwn},
            {.name = "out", .role = Role::kOut, .width = 2 * sizes[5], .strided = true}};
}
// Few different ones, so that scores are equal now and then.
void choose_finish(Arguments& arguments, Prng& prng) {
    constexpr float kBiases[] = {0.0F, 0.0F, -0.5F, 0.25F, 1e-3F};
    for (float& bias : arguments.tensor("choice_bias").as<float>()) bias = kBiases[prng.below(std::size(kBiases))];
    arguments.scalars[0] = prng.below(2) == 0 ? 0.0F : 1e-20F;  // models have no others
    arguments.scalars[1] = prng.below(2) == 0 ? 1.0F : 2.5F;
}
verbatim_args choose_bind(const Placed& call, AbiArgs& abi) {
    const int64_t experts = call.sizes[2] * call.sizes[4];
    abi.choose = {.router = static_cast<int32_t>(call.sizes[1]),
                  .normalize = static_cast<int32_t>(call.sizes[6]),
                  .n_experts = experts,
                  .n_chosen = call.sizes[5],
                  .n_groups = call.sizes[2],
                  .n_chosen_groups = call.sizes[3],
                  .sum_epsilon = call.scalars[0],
                  .scale = call.scalars[1],
                  .logits = placed_inputs(call, 0, experts),
                  .choice_bias = placed<const float>(call, 1),
                  .out = placed_rows(call, 2, 2 * call.sizes[5])};
    return {.choose = &abi.choose};
}
// Of a logit: a function of about 20 operations, and a comparison for each that is chosen.
Work choose_work(const Arguments& arguments) {
    const double logits =
        static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[2] * arguments.sizes[4]);
    return {bytes_of_tensors(arguments), logits * (24.0 + static_cast<double>(arguments.sizes[5]))};
}
std::vector<Sizes> choose_published() {
    return of_published_experts([](const ModelConfig&, const MoeConfig& moe, std::vector<Sizes>& shapes) {
        for (const int64_t rows : {1, 4}) {
            shapes.push_back({rows, static_cast<int64_t>(moe.router), moe.n_groups, moe.n_chosen_groups,
                              moe.n_experts / moe.n_groups, moe.n_chosen, moe.normalize ? 1 : 0});
        }
    });
}

Operation choose() {
    return {.name = "choose",
            .contract = kChooseContract,
            .sizes = {{"rows", 1, 3, edges_up_to(9), false, true, real_rows()},
                      {"router", 0, 0, {0, 1, 2}, true},
                      {"groups", 1, 1, {1, 2, 3, 4, 8}},
                      {"open", 1, 1, {1, 2, 3}},
                      {"group_experts", 1, 12, {1, 2, 3, 7, 8, 16, 17, 63, 64, 65, 128, 129}},
                      {"chosen", 1, 3, {1, 2, 3, 6, 8, 10}},
                      {"normalize", 0, 1, {0, 1}, true}},
            .scalars = {"sum_epsilon", "scale"},
            .go_together = choose_sizes_go_together,
            .published = choose_published,
            .tensors = choose_tensors,
            .items = single_rows,
            .finish = choose_finish,
            .bind = choose_bind,
            .work = choose_work,
            .doubles = choose_doubles};
}

// --- experts: rows, experts, chosen, width, d_ff, kind

constexpr const char* kExpertsContract =
    "x, out [rows, width] f32, chosen [rows, 2 * n_chosen] f32 as choose leaves them: ids, ascending; then weights,\n"
    "gate, up [n_experts, d_ff, width] bf16 (gate null for kind 1), down [n_experts, width, d_ff] bf16\n"
    "per row: acc[j] = +0, then for each chosen expert e in ascending id, w its weight:\n"
    "  inner  = matmul(x, up of e)                  in matmul's order, each row for itself, no multiplier\n"
    "  inner  = inner * silu(matmul(x, gate of e))  kind 0, as activation\n"
    "           r * r, r = inner > 0 ? inner : +0   kind 1, as activation\n"
    "  y      = matmul(inner, down of e)\n"
    "  acc[j] = fma(w, y[j], acc[j])\n"
    "and out = acc: a row's experts do not know who else is in the batch; only chosen experts' weights are read\n"
    "sizes: n_chosen <= n_experts\n";

bool experts_sizes_go_together(const Sizes& sizes) { return sizes[2] <= sizes[1]; }
std::vector<TensorSpec> experts_tensors(const Sizes& sizes) {
    const int64_t weights = sizes[1] * sizes[3] * sizes[4];
    const auto matrices = [](const char* name, int64_t width) {
        return TensorSpec{.name = name, .dtype = Dtype::kBf16, .axis = Axis::kCall, .width = width};
    };
    return {{.name = "x", .width = sizes[3], .strided = true},
            {.name = "chosen", .width = 2 * sizes[2], .fill = Fill::kOwn, .strided = true},
            matrices("gate", sizes[5] == VERBATIM_SWIGLU ? weights : 0),
            matrices("up", weights),
            matrices("down", weights),
            {.name = "out", .role = Role::kOut, .width = sizes[3], .strided = true}};
}
// Rows choose alike now and then: then an expert has a batch.
void experts_finish(Arguments& arguments, Prng& prng) {
    const auto [experts, n_chosen] = std::pair(arguments.sizes[1], static_cast<size_t>(arguments.sizes[2]));
    std::vector<int64_t> ids(static_cast<size_t>(experts));
    std::iota(ids.begin(), ids.end(), 0);
    const auto chosen = arguments.tensor("chosen").as<float>();
    for (size_t first = 0; first < chosen.size(); first += 2 * n_chosen) {
        const bool as_before = first > 0 && prng.below(2) == 0;
        for (size_t i = 0; !as_before && i < n_chosen; ++i) std::swap(ids[i], ids[i + prng.below(ids.size() - i)]);
        std::sort(ids.begin(), ids.begin() + static_cast<int64_t>(n_chosen));
        for (size_t i = 0; i < n_chosen; ++i) {
            chosen[first + i] = static_cast<float>(ids[i]);
            chosen[first + n_chosen + i] = static_cast<float>(1 + prng.below(1U << 20)) * 0x1p-20F;
        }
    }
}
Status experts_admits(const Arguments& arguments) {
    const auto [experts, n_chosen] = std::pair(arguments.sizes[1], static_cast<size_t>(arguments.sizes[2]));
    const auto chosen = arguments.tensor("chosen").as<float>();
    for (size_t first = 0; first < chosen.size(); first += 2 * n_chosen) {
        float least = 0;
        for (size_t i = 0; i < n_chosen; ++i) {
            const float id = chosen[first + i];
            const bool is_id = id >= least && id < static_cast<float>(experts) && id == std::floor(id);
            if (!is_id)
                return error("`chosen` row {} has the id {}, wanted whole ones from {} on, below {}, ascending",
                             first / (2 * n_chosen), id, least, experts);
            least = id + 1;
        }
    }
    return {};
}
verbatim_args experts_bind(const Placed& call, AbiArgs& abi) {
    abi.experts = {.kind = static_cast<int32_t>(call.sizes[5]),
                   .n_experts = call.sizes[1],
                   .n_chosen = call.sizes[2],
                   .d_ff = call.sizes[4],
                   .x = placed_inputs(call, 0, call.sizes[3]),
                   .chosen = placed_inputs(call, 1, 2 * call.sizes[2]),
                   .gate = placed<const uint16_t>(call, 2),
                   .up = placed<const uint16_t>(call, 3),
                   .down = placed<const uint16_t>(call, 4),
                   .out = placed_rows(call, 5, call.sizes[3])};
    return {.experts = &abi.experts};
}
// Bytes: the weights of every expert that a row has chosen, once.
Work experts_work(const Arguments& arguments) {
    const Sizes& sizes = arguments.sizes;
    const auto n_chosen = static_cast<size_t>(sizes[2]);
    const auto chosen = arguments.tensor("chosen").as<float>();
    std::set<float> distinct;
    for (size_t i = 0; i < chosen.size(); ++i) {
        if (i / n_chosen % 2 == 0) distinct.insert(chosen[i]);
    }
    const double matrices = sizes[5] == VERBATIM_SWIGLU ? 3 : 2;
    const double weights = matrices * static_cast<double>(sizes[3] * sizes[4]);
    const double rows = static_cast<double>(arguments.num_rows());
    const double row_bytes = 8.0 * static_cast<double>(sizes[3] + sizes[2]);
    return {2 * weights * static_cast<double>(distinct.size()) + rows * row_bytes,
            2 * weights * rows * static_cast<double>(sizes[2])};
}

double dot_double(const std::vector<double>& a, const uint16_t* weight) {
    double total = 0;
    for (size_t k = 0; k < a.size(); ++k) total += a[k] * reference::bf16_to_float(weight[k]);
    return total;
}
// What an expert makes of a row: what goes into `down` is not rounded, so that the exact kernel's error has it, too.
std::vector<double> expert_double(const verbatim_experts& op, int64_t expert, const std::vector<double>& x) {
    const int64_t matrix = expert * op.d_ff * op.x.width;
    std::vector<double> inner, y;
    for (int64_t f = 0; f < op.d_ff; ++f) {
        const double up = dot_double(x, op.up + matrix + f * op.x.width);
        if (op.kind == VERBATIM_SWIGLU) {
            const double gate = dot_double(x, op.gate + matrix + f * op.x.width);
            inner.push_back(up * (gate < -700 ? -0.0 : gate * sigmoid64(gate)));
        } else {
            inner.push_back(up > 0 || std::isnan(up) ? up * up : 0.0);
        }
    }
    for (int64_t j = 0; j < op.x.width; ++j) y.push_back(dot_double(inner, op.down + matrix + j * op.d_ff));
    return y;
}
std::vector<std::vector<double>> experts_doubles(const AbiArgs& abi) {
    const verbatim_experts& op = abi.experts;
    std::vector<double> out;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        std::vector<double> x, acc(static_cast<size_t>(op.x.width));
        for (int64_t k = 0; k < op.x.width; ++k) x.push_back(bf16_of(row_of(op.x, m)[k]));
        for (int64_t i = 0; i < op.n_chosen; ++i) {
            const std::vector<double> y = expert_double(op, static_cast<int64_t>(row_of(op.chosen, m)[i]), x);
            for (size_t j = 0; j < acc.size(); ++j) acc[j] += row_of(op.chosen, m)[op.n_chosen + i] * y[j];
        }
        out.insert(out.end(), acc.begin(), acc.end());
    }
    return {out};
}
// With as many experts as a row chooses, and two that it does not: the others of a model are like these.
std::vector<Sizes> experts_published() {
    return of_published_experts([](const ModelConfig& config, const MoeConfig& moe, std::vector<Sizes>& shapes) {
        shapes.push_back({1, moe.n_chosen + 2, moe.n_chosen, moe.row_width(config.hidden_size), moe.d_ff,
                          moe.kind == MlpKind::kGatedSilu ? VERBATIM_SWIGLU : VERBATIM_RELU_SQUARED});
    });
}

Operation experts() {
    return {.name = "experts",
            .contract = kExpertsContract,
            .sums_exactly = true,
            .sizes = {{"rows", 1, 3, {1, 2, 3, 5, 7, 16, 17, 33}, false, true, real_rows()},
                      {"experts", 1, 5, {1, 2, 3, 5, 8, 16, 17, 65}},
                      {"chosen", 1, 2, {1, 2, 3, 6, 8}},
                      {"width", 1, 18, {1, 2, 3, 16, 17, 63, 64, 65, 257}, false, true},
                      {"d_ff", 1, 9, {1, 2, 3, 15, 16, 17, 63, 64, 65, 257}, false, true},
                      {"kind", 0, 0, {0, 1}, true}},
            .go_together = experts_sizes_go_together,
            .published = experts_published,
            .tensors = experts_tensors,
            .items = single_rows,
            .finish = experts_finish,
            .admits = experts_admits,
            .bind = experts_bind,
            .work = experts_work,
            .doubles = experts_doubles};
}

// --- add_routed: rows, width, gate

constexpr const char* kAddRoutedContract =
    "routed, branch [rows, width] f32, gate [rows, 1] f32 or null; branch, the shared expert's row, in place\n"
    "without a gate: branch[j] = routed[j] + branch[j]\n"
    "with one:       branch[j] = fma(sigmoid(gate), branch[j], routed[j])\n"
    "sigmoid(v) = 1 / (1 + exp(-v)), exp of reference/numerics/math.h\n";

std::vector<TensorSpec> add_routed_tensors(const Sizes& sizes) {
    return {{.name = "routed", .width = sizes[1], .strided = true},
            {.name = "gate", .width = sizes[2], .strided = true},
            {.name = "branch", .role = Role::kInOut, .width = sizes[1], .strided = true}};
}
void add_routed_finish(Arguments&, Prng&) {}
verbatim_args add_routed_bind(const Placed& call, AbiArgs& abi) {
    abi.add_routed = {.routed = placed_inputs(call, 0, call.sizes[1]),
                      .gate = placed_inputs(call, 1, call.sizes[2]),
                      .branch = placed_rows(call, 2, call.sizes[1])};
    return {.add_routed = &abi.add_routed};
}
Work add_routed_work(const Arguments& arguments) {
    return {bytes_of_tensors(arguments),
            2.0 * static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[1])};
}
std::vector<std::vector<double>> add_routed_doubles(const AbiArgs& abi) {
    const verbatim_add_routed& op = abi.add_routed;
    std::vector<double> out;
    for (int64_t r = 0; r < op.branch.num_rows; ++r) {
        const double open = op.gate.data != nullptr ? sigmoid64(row_of(op.gate, r)[0]) : 1.0;
        for (int64_t j = 0; j < op.branch.width; ++j) {
            out.push_back(open * row_of(op.branch, r)[j] + row_of(op.routed, r)[j]);
        }
    }
    return {out};
}
std::vector<Sizes> add_routed_published() {
    return of_published_experts([](const ModelConfig& config, const MoeConfig& moe, std::vector<Sizes>& shapes) {
        for (const int64_t rows : {1, 4}) shapes.push_back({rows, config.hidden_size, moe.shared_gate ? 1 : 0});
    });
}

Operation add_routed() {
    return {.name = "add_routed",
            .contract = kAddRoutedContract,
            .sizes = {{"rows", 1, 3, edges_up_to(9), false, true, real_rows()},
                      {"width", 1, 33, edges_up_to(513), false, true},
                      {"gate", 0, 1, {0, 1}, true}},
            .published = add_routed_published,
            .tensors = add_routed_tensors,
            .items = single_rows,
            .finish = add_routed_finish,
            .bind = add_routed_bind,
            .work = add_routed_work,
            .doubles = add_routed_doubles};
}

}  // namespace

std::vector<Operation> expert_operations() { return {router(), choose(), experts(), add_routed()}; }

}  // namespace verbatim::sandbox
