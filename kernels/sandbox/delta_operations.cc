// The operations of gated delta nets: delta_update, and the gates and norms before it.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/operation_parts.h"
#include "reference/numerics/constants.h"

namespace verbatim::sandbox {
namespace {

using reference::LayerConfig;
using reference::ModelConfig;

// --- delta_update: sequences, tokens, key_heads, values (value heads of a key head), key_dim, value_dim, state

constexpr const char* kDeltaUpdateContract =
    "q, k [rows, n_key_heads * key_dim], v, y [rows, n_value_heads * value_dim], beta, decay [rows, n_value_heads],\n"
    "states_in, states_out [sequences, n_value_heads, key_dim, value_dim], all f32 (states_in null: zeros)\n"
    "per token t in order and value head h (its key head is h / (n_value_heads / n_key_heads)), S its state, per "
    "column j:\n"
    "  u = +0; ascending i: u = fma(decay * S[i][j], k[i], u)\n"
    "  d = beta * (v[j] - u)\n"
    "  o = +0; ascending i: S[i][j] = fma(k[i], d, decay * S[i][j]); o = fma(S[i][j], q[i], o)\n"
    "  y[t][h][j] = o\n"
    "prefill and update alike: S after n tokens does not know how they were divided into calls\n";

struct DeltaSizes {
    explicit DeltaSizes(const Sizes& sizes)
        : n_key_heads(sizes[2]),
          n_value_heads(sizes[2] * sizes[3]),
          key_dim(sizes[4]),
          value_dim(sizes[5]),
          state(n_value_heads * key_dim * value_dim) {}
    int64_t n_key_heads, n_value_heads, key_dim, value_dim, state;
};

std::vector<TensorSpec> delta_update_tensors(const Sizes& sizes) {
    const DeltaSizes of(sizes);
    const int64_t keys = of.n_key_heads * of.key_dim;
    const int64_t values = of.n_value_heads * of.value_dim;
    const int64_t before = sizes[6] != 0 ? of.state : 0;
    return {first_rows(),
            {.name = "q", .width = keys, .strided = true},
            {.name = "k", .width = keys, .strided = true},
            {.name = "v", .width = values, .strided = true},
            {.name = "beta", .width = of.n_value_heads, .fill = Fill::kOwn, .strided = true},
            {.name = "decay", .width = of.n_value_heads, .fill = Fill::kOwn, .strided = true},
            {.name = "states_in", .axis = Axis::kItem, .width = before, .continues = "states_out"},
            {.name = "states_out", .role = Role::kOut, .axis = Axis::kItem, .width = of.state, .lies_in = "states_in"},
            {.name = "y", .role = Role::kOut, .width = values, .strided = true}};
}

// Heads longer than 1 become so: a longer key makes the state grow from token to token, until nothing is finite.
void shorten(std::span<float> heads, int64_t dim) {
    for (size_t first = 0; first < heads.size(); first += static_cast<size_t>(dim)) {
        const auto head = heads.subspan(first, static_cast<size_t>(dim));
        double squares = 0;
        for (const float x : head) squares += static_cast<double>(x) * x;
        if (!(squares > 1) || !std::isfinite(squares)) continue;
        for (float& x : head) x = static_cast<float>(x / std::sqrt(squares));
    }
}
// What sigmoid and exp of something negative give, 0 and 1 among it.
float gate(Prng& prng) {
    const uint64_t kind = prng.below(12);
    return kind == 0 ? 0.0F : kind == 1 ? 1.0F : static_cast<float>(prng.below(1U << 24)) * 0x1p-24F;
}
void delta_update_finish(Arguments& arguments, Prng& prng) {
    for (const char* name : {"q", "k"}) shorten(arguments.tensor(name).as<float>(), arguments.sizes[4]);
    for (const char* name : {"beta", "decay"}) {
        for (float& value : arguments.tensor(name).as<float>()) value = gate(prng);
    }
}
verbatim_args delta_update_bind(const Placed& call, AbiArgs& abi) {
    const DeltaSizes of(call.sizes);
    const int64_t keys = of.n_key_heads * of.key_dim;
    const int64_t values = of.n_value_heads * of.value_dim;
    abi.delta_update = {.n_key_heads = of.n_key_heads,
                        .n_value_heads = of.n_value_heads,
                        .key_dim = of.key_dim,
                        .value_dim = of.value_dim,
                        .sequences = placed_sequences(call, 0),
                        .q = placed_inputs(call, 1, keys),
                        .k = placed_inputs(call, 2, keys),
                        .v = placed_inputs(call, 3, values),
                        .beta = placed_inputs(call, 4, of.n_value_heads),
                        .decay = placed_inputs(call, 5, of.n_value_heads),
                        .states_in = placed<const float>(call, 6),
                        .states_out = placed<float>(call, 7),
                        .y = placed_rows(call, 8, values)};
    return {.delta_update = &abi.delta_update};
}
// Of a state element and token: decay * S, three fma.
Work delta_update_work(const Arguments& arguments) {
    const double state = static_cast<double>(DeltaSizes(arguments.sizes).state);
    return {bytes_of_tensors(arguments), 7 * state * static_cast<double>(arguments.num_rows())};
}

// One value head of one token: its state [key_dim, value_dim], its outputs.
void delta_head_double(const verbatim_delta_update& op, int64_t row, int64_t h, double* state, std::vector<double>& y) {
    const int64_t key = h / (op.n_value_heads / op.n_key_heads) * op.key_dim;
    const float* q = row_of(op.q, row) + key;
    const float* k = row_of(op.k, row) + key;
    const double decay = row_of(op.decay, row)[h];
    for (int64_t j = 0; j < op.value_dim; ++j) {
        double u = 0;
        for (int64_t i = 0; i < op.key_dim; ++i) u += decay * state[i * op.value_dim + j] * k[i];
        const double d = row_of(op.beta, row)[h] * (row_of(op.v, row)[h * op.value_dim + j] - u);
        double o = 0;
        for (int64_t i = 0; i < op.key_dim; ++i) {
            double& element = state[i * op.value_dim + j];
            element = decay * element + k[i] * d;
            o += element * q[i];
        }
        y.push_back(o);
    }
}
std::vector<std::vector<double>> delta_update_doubles(const AbiArgs& abi) {
    const verbatim_delta_update& op = abi.delta_update;
    const int64_t head = op.key_dim * op.value_dim;
    const int64_t size = op.n_value_heads * head;
    std::vector<double> states(static_cast<size_t>(op.sequences.num_sequences * size)), y;
    if (op.states_in != nullptr) std::copy_n(op.states_in, states.size(), states.begin());
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
            for (int64_t h = 0; h < op.n_value_heads; ++h) {
                delta_head_double(op, row, h, &states[s * size + h * head], y);
            }
        }
    }
    return {states, y};
}
std::vector<Sizes> delta_update_published() {
    return of_published([](const ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* delta = first_of(config, &LayerConfig::delta)) {
            for (const auto& [sequences, tokens] : {std::pair<int64_t, int64_t>{1, 1}, {2, 4}, {1, 64}}) {
                shapes.push_back({sequences, tokens, delta->n_key_heads, delta->values_per_key(), delta->key_dim,
                                  delta->value_dim, 1});
            }
        }
    });
}

Operation delta_update() {
    return {.name = "delta_update",
            .contract = kDeltaUpdateContract,
            .sizes = {{"sequences", 1, 2, {1, 2, 3, 5}, false, false, real_sequences()},
                      {"tokens", 1, 5, {1, 2, 3, 15, 16, 17, 63, 64, 65, 129}, false, true, real_rows()},
                      {"key_heads", 1, 1, {1, 2, 3}, false, true},
                      {"values", 1, 2, {1, 2, 3}, false, true},
                      {"key_dim", 1, 8, {1, 2, 3, 7, 8, 15, 16, 17, 33, 64, 65, 128}},
                      {"value_dim", 1, 16, {1, 3, 7, 8, 15, 16, 17, 31, 33, 64, 65, 128, 129}},
                      {"state", 0, 1, {0, 1}, true}},
            .published = delta_update_published,
            .tensors = delta_update_tensors,
            .items = sequences_of_tokens,
            .finish = delta_update_finish,
            .bind = delta_update_bind,
            .work = delta_update_work,
            .doubles = delta_update_doubles};
}

// Rows of a decoding step, of a batch, of a chunk.
constexpr int64_t kUsualRows[] = {1, 4, 64};

// --- delta_gates: rows, heads

constexpr const char* kDeltaGatesContract =
    "b, a [rows, n_value_heads] f32 in place, rate, dt_bias [n_value_heads] f32; rate is -exp(A_log)\n"
    "b[h] = sigmoid(b[h])                                     beta\n"
    "a[h] = exp(softplus(a[h] + dt_bias[h]) * rate[h])        decay\n"
    "sigmoid(v) = 1 / (1 + exp(-v)), exp and softplus of reference/numerics/math.h\n";

std::vector<TensorSpec> delta_gates_tensors(const Sizes& sizes) {
    return {{.name = "rate", .axis = Axis::kCall, .width = sizes[1], .fill = Fill::kOwn},
            {.name = "dt_bias", .axis = Axis::kCall, .width = sizes[1], .fill = Fill::kPlain},
            {.name = "b", .role = Role::kInOut, .width = sizes[1], .strided = true},
            {.name = "a", .role = Role::kInOut, .width = sizes[1], .strided = true}};
}
void delta_gates_finish(Arguments& arguments, Prng& prng) {
    for (float& rate : arguments.tensor("rate").as<float>()) rate = -0.01F * static_cast<float>(1 + prng.below(1600));
}
verbatim_args delta_gates_bind(const Placed& call, AbiArgs& abi) {
    abi.delta_gates = {.rate = placed<const float>(call, 0),
                       .dt_bias = placed<const float>(call, 1),
                       .b = placed_rows(call, 2, call.sizes[1]),
                       .a = placed_rows(call, 3, call.sizes[1])};
    return {.delta_gates = &abi.delta_gates};
}
// Two functions of about 20 operations, and a division.
Work delta_gates_work(const Arguments& arguments) {
    return {bytes_of_tensors(arguments),
            64.0 * static_cast<double>(arguments.num_rows()) * static_cast<double>(arguments.sizes[1])};
}
std::vector<std::vector<double>> delta_gates_doubles(const AbiArgs& abi) {
    const verbatim_delta_gates& op = abi.delta_gates;
    std::vector<double> b, a;
    for (int64_t r = 0; r < op.b.num_rows; ++r) {
        for (int64_t h = 0; h < op.b.width; ++h) {
            b.push_back(1.0 / (1.0 + std::exp(-static_cast<double>(row_of(op.b, r)[h]))));
            const double x = static_cast<double>(row_of(op.a, r)[h]) + op.dt_bias[h];
            a.push_back(std::exp((x > 20 ? x : std::log1p(std::exp(x))) * op.rate[h]));
        }
    }
    return {b, a};
}
std::vector<Sizes> delta_gates_published() {
    return of_published([](const ModelConfig& config, std::vector<Sizes>& shapes) {
        const auto* delta = first_of(config, &LayerConfig::delta);
        for (const int64_t rows : kUsualRows) {
            if (delta != nullptr) shapes.push_back({rows, delta->n_value_heads});
        }
    });
}

Operation delta_gates() {
    return {.name = "delta_gates",
            .contract = kDeltaGatesContract,
            .sizes = {{"rows", 1, 3, edges_up_to(17), false, true, real_rows()}, {"heads", 1, 33, edges_up_to(129)}},
            .published = delta_gates_published,
            .tensors = delta_gates_tensors,
            .items = single_rows,
            .finish = delta_gates_finish,
            .bind = delta_gates_bind,
            .work = delta_gates_work,
            .doubles = delta_gates_doubles};
}

// --- l2_norm: rows, heads, dim

constexpr const char* kL2NormContract =
    "x [rows, n_heads * dim] f32 in place, scale; per head:\n"
    "root = sqrt(sum + 1e-6), sum as rms_norm's over the head's squares, counted from its first element\n"
    "x[i] = (x[i] / root) * scale\n";

std::vector<TensorSpec> l2_norm_tensors(const Sizes& sizes) {
    return {{.name = "x", .role = Role::kInOut, .width = sizes[1] * sizes[2], .strided = true}};
}
void l2_norm_finish(Arguments& arguments, Prng& prng) {
    const auto dim = static_cast<float>(arguments.sizes[2]);
    const float scales[] = {1.0F, 1.0F / std::sqrt(dim), 0.75F};  // of keys, of queries, of neither
    arguments.scalars[0] = scales[prng.below(std::size(scales))];
}
verbatim_args l2_norm_bind(const Placed& call, AbiArgs& abi) {
    abi.l2_norm = {.n_heads = call.sizes[1],
                   .dim = call.sizes[2],
                   .scale = call.scalars[0],
                   .x = placed_rows(call, 0, call.sizes[1] * call.sizes[2])};
    return {.l2_norm = &abi.l2_norm};
}
Work l2_norm_work(const Arguments& arguments) {
    return {bytes_of_tensors(arguments),
            4.0 * static_cast<double>(arguments.num_rows() * arguments.sizes[1] * arguments.sizes[2])};
}
std::vector<std::vector<double>> l2_norm_doubles(const AbiArgs& abi) {
    const verbatim_l2_norm& op = abi.l2_norm;
    std::vector<double> x;
    for (int64_t r = 0; r < op.x.num_rows; ++r) {
        for (int64_t h = 0; h < op.n_heads; ++h) {
            const float* head = row_of(op.x, r) + h * op.dim;
            double sum = reference::kL2Eps;
            for (int64_t i = 0; i < op.dim; ++i) sum += static_cast<double>(head[i]) * head[i];
            for (int64_t i = 0; i < op.dim; ++i) x.push_back(head[i] / std::sqrt(sum) * op.scale);
        }
    }
    return {x};
}
std::vector<Sizes> l2_norm_published() {
    return of_published([](const ModelConfig& config, std::vector<Sizes>& shapes) {
        const auto* delta = first_of(config, &LayerConfig::delta);
        for (const int64_t rows : kUsualRows) {
            if (delta != nullptr) shapes.push_back({rows, delta->n_key_heads, delta->key_dim});
        }
    });
}

Operation l2_norm() {
    return {.name = "l2_norm",
            .contract = kL2NormContract,
            .sizes = {{"rows", 1, 3, edges_up_to(9), false, true, real_rows()},
                      {"heads", 1, 2, {1, 2, 3, 8}, false, true},
                      {"dim", 1, 33, edges_up_to(257)}},
            .scalars = {"scale"},
            .published = l2_norm_published,
            .tensors = l2_norm_tensors,
            .items = single_rows,
            .finish = l2_norm_finish,
            .bind = l2_norm_bind,
            .work = l2_norm_work,
            .doubles = l2_norm_doubles};
}

}  // namespace

std::vector<Operation> delta_operations() { return {delta_update(), delta_gates(), l2_norm()}; }

}  // namespace verbatim::sandbox
