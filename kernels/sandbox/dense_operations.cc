// The operations over independent rows: matmul, norms, rope, activation.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/operation_parts.h"
#include "reference/numerics/bf16.h"
#include "reference/ops/rope.h"

namespace verbatim::sandbox {
namespace {

constexpr float kEps[] = {1e-5F, 1e-5F, 1e-6F, 0.125F};  // the last one shows in values of any size

double rounded(float x) { return reference::bf16_value(x); }
double silu(double x) { return x < -700 ? -0.0 : x / (1.0 + std::exp(-x)); }  // of -infinity, too
float multiplier(Prng& prng) { return prng.below(2) == 0 ? 1.0F : 0.75F; }

// --- matmul: rows, n, k, bias

constexpr const char* kMatmulContract =
    "x [rows, K] f32, weight [N, K] bf16, bias [N] f32 or null, out [rows, N] f32\n"
    "a[k]      = bf16(x[m][k] * in_multiplier)      to nearest even; below 2^-56 it is +0\n"
    "total     = +0; for each chunk of 256 k in ascending order:\n"
    "              acc = +0; for each pair (2j, 2j+1) in ascending j (an odd tail is padded with +0):\n"
    "                acc = fma(a[2j+1], w[2j+1], acc); acc = fma(a[2j], w[2j], acc)\n"
    "              total = total + acc\n"
    "out[m][n] = total + bias[n]                    total itself without a bias\n"
    "tensor.sm90: the dot product of reference/numerics/tensor_sm90.h instead\n";

std::vector<TensorSpec> matmul_tensors(const Sizes& sizes) {
    const auto [rows, n, k, bias] = std::tuple(sizes[0], sizes[1], sizes[2], sizes[3]);
    return {{.name = "x", .width = k, .strided = true},
            {.name = "weight", .dtype = Dtype::kBf16, .axis = Axis::kCall, .width = n * k},
            {.name = "bias", .axis = Axis::kCall, .width = bias != 0 ? n : 0},
            {.name = "out", .role = Role::kOut, .width = n, .strided = true}};
}
void matmul_finish(Arguments& arguments, Prng& prng) { arguments.scalars[0] = multiplier(prng); }
verbatim_args matmul_bind(const Placed& call, AbiArgs& abi) {
    abi.matmul = {.x = placed_inputs(call, 0, call.sizes[2]),
                  .weight = placed<const uint16_t>(call, 1),
                  .bias = placed<const float>(call, 2),
                  .in_multiplier = call.scalars[0],
                  .out = placed_rows(call, 3, call.sizes[1])};
    return {.matmul = &abi.matmul};
}
Work matmul_work(const Arguments& arguments) {
    const double macs =
        static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[1] * arguments.sizes[2]);
    return {bytes_of_tensors(arguments), 2 * macs};
}
std::vector<std::vector<double>> matmul_doubles(const AbiArgs& abi) {
    const verbatim_matmul& op = abi.matmul;
    std::vector<double> out;
    for (int64_t m = 0; m < op.x.num_rows; ++m) {
        for (int64_t n = 0; n < op.out.width; ++n) {
            double total = op.bias != nullptr ? op.bias[n] : 0.0;
            for (int64_t k = 0; k < op.x.width; ++k) {
                total += rounded(row_of(op.x, m)[k] * op.in_multiplier) *
                         reference::bf16_to_float(op.weight[n * op.x.width + k]);
            }
            out.push_back(total);
        }
    }
    return {out};
}
std::vector<Sizes> matmul_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        for (const int64_t rows : {1, 4}) {
            if (const auto* mlp = first_of(config, &reference::LayerConfig::mlp)) {
                shapes.push_back({rows, mlp->d_ff, config.hidden_size, 0});
                shapes.push_back({rows, config.hidden_size, mlp->d_ff, 0});
            }
            if (const auto* mamba = first_of(config, &reference::LayerConfig::mamba)) {
                shapes.push_back({rows, mamba->in_rows(), config.hidden_size, 0});
            }
        }
    });
}

Operation matmul() {
    return {.name = "matmul",
            .contract = kMatmulContract,
            .sums_exactly = true,
            .sizes = {{"rows", 1, 3, edges_up_to(33), false, true, real_rows()},
                      {"n", 1, 65, edges_up_to(257), false, true},
                      {"k", 1, 70, {1, 2, 3, 31, 64, 255, 256, 257, 511, 512, 513, 770, 1025}},
                      {"bias", 0, 0, {0, 1}, true}},
            .scalars = {"in_multiplier"},
            .published = matmul_published,
            .tensors = matmul_tensors,
            .items = single_rows,
            .finish = matmul_finish,
            .bind = matmul_bind,
            .work = matmul_work,
            .doubles = matmul_doubles};
}

// --- rms_norm: rows, width

constexpr const char* kRmsNormContract =
    "x [rows, width] f32, weight [width] f32, eps, out [rows, width] f32; out may be x\n"
    "sum    = 64 partials from +0; element i: partial[i mod 64] = fma(x[i], x[i], partial[i mod 64]), ascending i;\n"
    "         then partial[j] += partial[j + 32] for j < 32, and so with 16, 8, 4, 2, 1; partial[0]\n"
    "scale  = 1 / sqrt(sum / width + eps)\n"
    "out[i] = (x[i] * scale) * weight[i]\n";

std::vector<TensorSpec> rms_norm_tensors(const Sizes& sizes) {
    return {{.name = "x", .width = sizes[1], .strided = true},
            {.name = "weight", .axis = Axis::kCall, .width = sizes[1], .fill = Fill::kPlain},
            {.name = "out", .role = Role::kOut, .width = sizes[1], .strided = true, .lies_in = "x"}};
}
void norm_finish(Arguments& arguments, Prng& prng) { arguments.scalars[0] = kEps[prng.below(std::size(kEps))]; }
verbatim_args rms_norm_bind(const Placed& call, AbiArgs& abi) {
    abi.rms_norm = {.x = placed_inputs(call, 0, call.sizes[1]),
                    .weight = placed<const float>(call, 1),
                    .eps = call.scalars[0],
                    .out = placed_rows(call, 2, call.sizes[1])};
    return {.rms_norm = &abi.rms_norm};
}
// `operations` on every element of the rows.
Work work_by_element(const Arguments& arguments, double operations, int64_t width) {
    return {bytes_of_tensors(arguments),
            operations * static_cast<double>(arguments.num_rows()) * static_cast<double>(width)};
}
Work rms_norm_work(const Arguments& arguments) { return work_by_element(arguments, 4, arguments.sizes[1]); }

// norm(y) of one group, in place.
void norm_double(std::vector<double>& values, size_t first, int64_t count, const float* weight, double eps) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += values[first + i] * values[first + i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(count) + eps);
    for (int64_t i = 0; i < count; ++i) values[first + i] *= scale * weight[i];
}
std::vector<std::vector<double>> rms_norm_doubles(const AbiArgs& abi) {
    const verbatim_rms_norm& op = abi.rms_norm;
    std::vector<double> out;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        out.insert(out.end(), row_of(op.x, r), row_of(op.x, r) + op.x.width);
        norm_double(out, out.size() - op.x.width, op.x.width, op.weight, op.eps);
    }
    return {out};
}
std::vector<Sizes> rms_norm_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        shapes.push_back({4, config.hidden_size});
    });
}

Operation rms_norm() {
    return {.name = "rms_norm",
            .contract = kRmsNormContract,
            .sums_exactly = true,
            .sizes = {{"rows", 1, 3, edges_up_to(17), false, true, real_rows()}, {"width", 1, 70, edges_up_to(513)}},
            .scalars = {"eps"},
            .published = rms_norm_published,
            .tensors = rms_norm_tensors,
            .items = single_rows,
            .finish = norm_finish,
            .bind = rms_norm_bind,
            .work = rms_norm_work,
            .doubles = rms_norm_doubles};
}

// --- gated_norm: rows, groups, group_width, gate

constexpr const char* kGatedNormContract =
    "y, z [rows, width] f32, weight [width] f32 (null for gate 0), eps; y in place\n"
    "norm(v)[i] = (v[i] * (1 / sqrt(sum(v) / n + eps))) * weight[i] per group of n = width / n_groups elements, sum "
    "as\n"
    "             in rms_norm, counted from the group's first element\n"
    "gate 0: y = y * silu(z)    gate 1: y = norm(y * silu(z))    gate 2: y = norm(y) * silu(z)\n"
    "silu(v) = v / (1 + exp(-v)), exp of reference/numerics/math.h\n";

std::vector<TensorSpec> gated_norm_tensors(const Sizes& sizes) {
    const int64_t width = sizes[1] * sizes[2];
    return {{.name = "z", .width = width, .strided = true},
            {.name = "weight", .axis = Axis::kCall, .width = sizes[3] != 0 ? width : 0, .fill = Fill::kPlain},
            {.name = "y", .role = Role::kInOut, .width = width, .strided = true}};
}
verbatim_args gated_norm_bind(const Placed& call, AbiArgs& abi) {
    const int64_t width = call.sizes[1] * call.sizes[2];
    abi.gated_norm = {.gate = static_cast<int32_t>(call.sizes[3]),
                      .n_groups = call.sizes[1],
                      .z = placed_inputs(call, 0, width),
                      .weight = placed<const float>(call, 1),
                      .eps = call.scalars[0],
                      .y = placed_rows(call, 2, width)};
    return {.gated_norm = &abi.gated_norm};
}
Work gated_norm_work(const Arguments& arguments) {
    return work_by_element(arguments, 8, arguments.sizes[1] * arguments.sizes[2]);
}
std::vector<std::vector<double>> gated_norm_doubles(const AbiArgs& abi) {
    const verbatim_gated_norm& op = abi.gated_norm;
    const int64_t width = op.y.width / op.n_groups;
    std::vector<double> out;
    for (int64_t r = 0; r < op.y.num_rows; ++r) {
        const size_t first = out.size();
        const auto gate = [&] {
            for (int64_t i = 0; i < op.y.width; ++i) out[first + i] *= silu(row_of(op.z, r)[i]);
        };
        out.insert(out.end(), row_of(op.y, r), row_of(op.y, r) + op.y.width);
        if (op.gate != VERBATIM_NORM_THEN_GATE) gate();
        for (int64_t g = 0; op.gate != VERBATIM_GATE_ONLY && g < op.n_groups; ++g) {
            norm_double(out, first + g * width, width, op.weight + g * width, op.eps);
        }
        if (op.gate == VERBATIM_NORM_THEN_GATE) gate();
    }
    return {out};
}
std::vector<Sizes> gated_norm_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* mamba = first_of(config, &reference::LayerConfig::mamba)) {
            const int64_t groups = mamba->n_norm_groups;
            shapes.push_back({4, groups, mamba->d_inner() / groups, static_cast<int64_t>(mamba->gate)});
        }
    });
}

Operation gated_norm() {
    return {.name = "gated_norm",
            .contract = kGatedNormContract,
            .sizes = {{"rows", 1, 3, edges_up_to(9), false, true, real_rows()},
                      {"groups", 1, 2, {1, 2, 3, 8}, false, true},
                      {"group_width", 1, 33, edges_up_to(257)},
                      {"gate", 0, 1, {0, 1, 2}, true}},
            .scalars = {"eps"},
            .published = gated_norm_published,
            .tensors = gated_norm_tensors,
            .items = single_rows,
            .finish = norm_finish,
            .bind = gated_norm_bind,
            .work = gated_norm_work,
            .doubles = gated_norm_doubles};
}

// --- rope: rows, heads, pairs, rest, positions (of the table)

constexpr int64_t kPositions = 80;  // usual
constexpr const char* kRopeContract =
    "x [rows, n_heads * head_dim] f32 in place, positions [rows] i64, cos, sin [num_positions, n_pairs] f32\n"
    "per head, (c, s) = the table's row at the row's position, i < n_pairs: a = x[i], b = x[i + n_pairs]\n"
    "  x[i]           = fma(a, c[i], -(b * s[i]))\n"
    "  x[i + n_pairs] = fma(b, c[i], a * s[i])\n"
    "elements from 2 * n_pairs on stay as they are\n";

std::vector<TensorSpec> rope_tensors(const Sizes& sizes) {
    return {{.name = "positions", .dtype = Dtype::kI64, .width = 1, .fill = Fill::kOwn},
            {.name = "cos", .axis = Axis::kCall, .width = sizes[4] * sizes[2], .fill = Fill::kOwn},
            {.name = "sin", .axis = Axis::kCall, .width = sizes[4] * sizes[2], .fill = Fill::kOwn},
            {.name = "x", .role = Role::kInOut, .width = sizes[1] * (2 * sizes[2] + sizes[3]), .strided = true}};
}
constexpr int64_t kLongTable = 512;
void rope_finish(Arguments& arguments, Prng& prng) {
    const auto [pairs, num_positions] = std::pair(arguments.sizes[2], arguments.sizes[4]);
    const reference::RopeTable table(
        {.kind = reference::RopeKind::kDefault, .n_rotary_dims = static_cast<int32_t>(2 * pairs)}, num_positions);
    for (int64_t& position : arguments.tensor("positions").as<int64_t>()) {
        position = static_cast<int64_t>(prng.below(static_cast<uint64_t>(num_positions)));
    }
    // Of a table that 15 or 16 bits do not count, the last one.
    if (num_positions > kLongTable) arguments.tensor("positions").as<int64_t>()[0] = num_positions - 1;
    for (int64_t i = 0; i < num_positions * pairs; ++i) {
        arguments.tensor("cos").as<float>()[i] = table.cos(0)[i];
        arguments.tensor("sin").as<float>()[i] = table.sin(0)[i];
    }
}
// The same rows with a table of as many positions as they need, and with a longer one, of NaN beyond them.
std::vector<Arguments> rope_bounded_otherwise(const Arguments& call) {
    const auto positions = call.tensor("positions").as<int64_t>();
    const int64_t needed = *std::ranges::max_element(positions) + 1;
    std::vector<Arguments> calls;
    for (const int64_t num_positions : {needed, call.sizes[4] + 300}) {
        Sizes sizes = call.sizes;
        sizes[4] = num_positions;
        Arguments& other = calls.emplace_back(empty_arguments(*call.operation, sizes, call.item_rows));
        for (const char* name : {"positions", "x"}) other.tensor(name).bytes = call.tensor(name).bytes;
        for (const char* name : {"cos", "sin"}) {
            const auto table = other.tensor(name).as<float>();
            std::ranges::fill(table, std::numeric_limits<float>::quiet_NaN());
            std::ranges::copy_n(call.tensor(name).as<float>().begin(), needed * sizes[2], table.begin());
        }
    }
    return calls;
}
Status rope_admits(const Arguments& arguments) {
    return in_range<int64_t>(arguments, "positions", 0, arguments.sizes[4]);
}
verbatim_args rope_bind(const Placed& call, AbiArgs& abi) {
    const int64_t head_dim = 2 * call.sizes[2] + call.sizes[3];
    abi.rope = {.n_heads = call.sizes[1],
                .head_dim = head_dim,
                .n_pairs = call.sizes[2],
                .positions = placed<const int64_t>(call, 0),
                .num_positions = call.sizes[4],
                .cos = placed<const float>(call, 1),
                .sin = placed<const float>(call, 2),
                .x = placed_rows(call, 3, call.sizes[1] * head_dim)};
    return {.rope = &abi.rope};
}
Work rope_work(const Arguments& arguments) {
    return work_by_element(arguments, 6, arguments.sizes[1] * arguments.sizes[2]);
}
std::vector<std::vector<double>> rope_doubles(const AbiArgs& abi) {
    const verbatim_rope& op = abi.rope;
    std::vector<double> out;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        const size_t first = out.size();
        out.insert(out.end(), row_of(op.x, r), row_of(op.x, r) + op.x.width);
        for (int64_t i = 0; i < op.n_heads * op.n_pairs; ++i) {
            double& a = out[first + i / op.n_pairs * op.head_dim + i % op.n_pairs];
            double& b = (&a)[op.n_pairs];
            const double c = op.cos[op.positions[r] * op.n_pairs + i % op.n_pairs];
            const double s = op.sin[op.positions[r] * op.n_pairs + i % op.n_pairs];
            std::tie(a, b) = std::tuple(a * c - b * s, b * c + a * s);
        }
    }
    return {out};
}
std::vector<Sizes> rope_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        const auto* attention = first_of(config, &reference::LayerConfig::attention);
        if (attention == nullptr || attention->rope.kind == reference::RopeKind::kNone) return;
        const int64_t pairs = attention->rope.n_rotary_dims / 2;
        shapes.push_back({4, attention->n_heads, pairs, attention->head_dim - 2 * pairs, kPositions});
    });
}

Operation rope() {
    return {.name = "rope",
            .contract = kRopeContract,
            .sizes = {{"rows", 1, 3, edges_up_to(9), false, true, real_rows()},
                      {"heads", 1, 2, {1, 2, 3, 5}, false, true},
                      {"pairs", 1, 5, edges_up_to(65)},
                      {"rest", 0, 3, {0, 1, 3, 16}},
                      {"positions", 1, kPositions, {1, 2, 80, 129, kLongTable}, false, false, {32'770, 65'538}}},
            .published = rope_published,
            .tensors = rope_tensors,
            .items = single_rows,
            .finish = rope_finish,
            .bounded_otherwise = rope_bounded_otherwise,
            .admits = rope_admits,
            .bind = rope_bind,
            .work = rope_work,
            .doubles = rope_doubles};
}

// --- activation: rows, width, kind

constexpr const char* kActivationContract =
    "up [rows, width] f32 in place, gate [rows, width] f32 (kind 0), gate_multiplier\n"
    "kind 0, swiglu:       up[i] = up[i] * silu(gate[i] * gate_multiplier), silu(v) = v / (1 + exp(-v))\n"
    "kind 1, relu squared: r = up[i] > 0 ? up[i] : +0 (NaN stays NaN); up[i] = r * r\n"
    "exp of reference/numerics/math.h\n";

std::vector<TensorSpec> activation_tensors(const Sizes& sizes) {
    return {{.name = "gate", .width = sizes[2] == VERBATIM_SWIGLU ? sizes[1] : 0, .strided = true},
            {.name = "up", .role = Role::kInOut, .width = sizes[1], .strided = true}};
}
void activation_finish(Arguments& arguments, Prng& prng) { arguments.scalars[0] = multiplier(prng); }
verbatim_args activation_bind(const Placed& call, AbiArgs& abi) {
    const bool swiglu = call.sizes[2] == VERBATIM_SWIGLU;
    abi.activation = {.kind = static_cast<int32_t>(call.sizes[2]),
                      .gate = swiglu ? placed_inputs(call, 0, call.sizes[1]) : verbatim_const_floats{},
                      .gate_multiplier = call.scalars[0],
                      .up = placed_rows(call, 1, call.sizes[1])};
    return {.activation = &abi.activation};
}
Work activation_work(const Arguments& arguments) {
    return work_by_element(arguments, arguments.sizes[2] == VERBATIM_SWIGLU ? 5 : 2, arguments.sizes[1]);
}
std::vector<std::vector<double>> activation_doubles(const AbiArgs& abi) {
    const verbatim_activation& op = abi.activation;
    std::vector<double> out;
    for (int64_t r = 0; r < op.up.num_rows; ++r) {
        for (int64_t i = 0; i < op.up.width; ++i) {
            const double up = row_of(op.up, r)[i];
            const double rectified = up <= 0 ? 0 : up;
            out.push_back(op.kind == VERBATIM_SWIGLU ? up * silu(row_of(op.gate, r)[i] * op.gate_multiplier)
                                                     : rectified * rectified);
        }
    }
    return {out};
}
std::vector<Sizes> activation_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        const auto* mlp = first_of(config, &reference::LayerConfig::mlp);
        if (mlp != nullptr) shapes.push_back({4, mlp->d_ff, mlp->kind == reference::MlpKind::kGatedSilu ? 0 : 1});
    });
}

Operation activation() {
    return {.name = "activation",
            .contract = kActivationContract,
            .sizes = {{"rows", 1, 3, edges_up_to(9), false, true, real_rows()},
                      {"width", 1, 70, edges_up_to(513), false, true},
                      {"kind", 0, 0, {0, 1}, true}},
            .scalars = {"gate_multiplier"},
            .published = activation_published,
            .tensors = activation_tensors,
            .items = single_rows,
            .finish = activation_finish,
            .bind = activation_bind,
            .work = activation_work,
            .doubles = activation_doubles};
}

}  // namespace

std::vector<Operation> dense_operations() { return {matmul(), rms_norm(), gated_norm(), rope(), activation()}; }

}  // namespace verbatim::sandbox
