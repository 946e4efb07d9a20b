// The operations over sequences with state from token to token: conv, scan, attention.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "kernels/sandbox/arguments.h"
#include "kernels/sandbox/operation_parts.h"
#include "reference/numerics/bf16.h"

namespace verbatim::sandbox {
namespace {

double widened(uint16_t bits) { return reference::bf16_to_float(bits); }
double silu64(double x) { return x < -700 ? -0.0 : x / (1.0 + std::exp(-x)); }  // of -infinity, too

// --- conv: sequences, tokens, channels, taps, bias, window

constexpr const char* kConvContract =
    "x [rows, conv_dim] f32, weight [conv_dim, d_conv] f32 (oldest tap first), bias [conv_dim] or null,\n"
    "windows_in, windows_out [sequences, d_conv - 1, conv_dim] f32 (in: null = zeros), out [rows, conv_dim] f32\n"
    "per token t and channel c, taps j = 0 ... d_conv - 1 in ascending order:\n"
    "  acc = bias[c] (+0 without); acc = fma(weight[c][j], input[t - (d_conv - 1) + j][c], acc)\n"
    "  out[t][c] = silu(acc), silu(v) = v / (1 + exp(-v)), exp of reference/numerics/math.h\n"
    "inputs before the call's first token come from the window; +0 is multiplied like any other. The window left is "
    "the\n"
    "last d_conv - 1 inputs, oldest first\n";

std::vector<TensorSpec> conv_tensors(const Sizes& sizes) {
    const auto [channels, taps] = std::pair(sizes[2], sizes[3]);
    const int64_t window = (taps - 1) * channels;
    return {
        first_rows(),
        {.name = "x", .width = channels, .strided = true},
        {.name = "weight", .axis = Axis::kCall, .width = channels * taps},
        {.name = "bias", .axis = Axis::kCall, .width = sizes[4] != 0 ? channels : 0},
        {.name = "windows_in", .axis = Axis::kItem, .width = sizes[5] != 0 ? window : 0, .continues = "windows_out"},
        {.name = "windows_out", .role = Role::kOut, .axis = Axis::kItem, .width = window, .lies_in = "windows_in"},
        {.name = "out", .role = Role::kOut, .width = channels, .strided = true}};
}
void conv_finish(Arguments&, Prng&) {}
verbatim_args conv_bind(const Placed& call, AbiArgs& abi) {
    abi.conv = {.d_conv = call.sizes[3],
                .sequences = placed_sequences(call, 0),
                .x = placed_inputs(call, 1, call.sizes[2]),
                .weight = placed<const float>(call, 2),
                .bias = placed<const float>(call, 3),
                .windows_in = placed<const float>(call, 4),
                .windows_out = placed<float>(call, 5),
                .out = placed_rows(call, 6, call.sizes[2])};
    return {.conv = &abi.conv};
}
Work conv_work(const Arguments& arguments) {
    const double elements = static_cast<double>(arguments.num_rows() * arguments.sizes[2]);
    return {bytes_of_tensors(arguments), elements * (2 * static_cast<double>(arguments.sizes[3]) + 4)};
}
std::vector<std::vector<double>> conv_doubles(const AbiArgs& abi) {
    const verbatim_conv& op = abi.conv;
    const int64_t past = op.d_conv - 1;
    std::vector<double> windows, out;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        const int64_t first = op.sequences.first_row[s];
        const int64_t count = op.sequences.first_row[s + 1] - first;
        const auto input = [&](int64_t t, int64_t c) -> double {
            if (t >= past) return row_of(op.x, first + t - past)[c];
            return op.windows_in != nullptr ? op.windows_in[(s * past + t) * op.x.width + c] : 0.0;
        };
        for (int64_t i = 0; i < past * op.x.width; ++i) {
            windows.push_back(input(count + i / op.x.width, i % op.x.width));
        }
        for (int64_t i = 0; i < count * op.x.width; ++i) {
            const int64_t c = i % op.x.width;
            double acc = op.bias != nullptr ? op.bias[c] : 0.0;
            for (int64_t j = 0; j < op.d_conv; ++j) acc += op.weight[c * op.d_conv + j] * input(i / op.x.width + j, c);
            out.push_back(silu64(acc));
        }
    }
    return {windows, out};
}
std::vector<Sizes> conv_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* mamba = first_of(config, &reference::LayerConfig::mamba)) {
            shapes.push_back({2, 5, mamba->conv_dim(), mamba->d_conv, mamba->conv_bias ? 1 : 0, 1});
        }
    });
}

Operation conv() {
    return {.name = "conv",
            .contract = kConvContract,
            .sums_exactly = true,
            .sizes = {{"sequences", 1, 2, {1, 2, 3, 5}, false, false, real_sequences()},
                      {"tokens", 1, 5, {1, 2, 3, 4, 7, 16, 17, 33}, false, true, real_rows()},
                      {"channels", 1, 20, {1, 3, 15, 16, 17, 63, 64, 65, 255, 256, 257}, false, true},
                      {"taps", 2, 4, {2, 3, 4}, true},
                      {"bias", 0, 1, {0, 1}, true},
                      {"window", 0, 1, {0, 1}, true}},
            .published = conv_published,
            .tensors = conv_tensors,
            .items = sequences_of_tokens,
            .finish = conv_finish,
            .bind = conv_bind,
            .work = conv_work,
            .doubles = conv_doubles};
}

// --- scan: sequences, tokens, groups, heads (of a group), head_dim, d_state, state

constexpr const char* kScanContract =
    "x, y [rows, n_heads * head_dim], b, c [rows, n_groups * d_state], dt [rows, n_heads], a, d, dt_bias [n_heads],\n"
    "states_in, states_out [sequences, n_heads, d_state, head_dim], all f32 (states_in null: zeros)\n"
    "per token t in order and head h (g = h / (n_heads / n_groups); B, C are group g's):\n"
    "  dt    = softplus(dt_raw[t][h] + dt_bias[h]); dt = dt < dt_min ? dt_min : dt > dt_max ? dt_max : dt\n"
    "  decay = exp(dt * A[h])                     softplus, exp of reference/numerics/math.h\n"
    "  per channel p:      u = dt * x[t][h][p]\n"
    "  per n:              H[n][p] = fma(H[n][p], decay, u * B[n])\n"
    "  per chunk of 16 n:  acc = +0; ascending n: acc = fma(C[n], H[n][p], acc); total = total + acc, total from +0\n"
    "  y[t][h][p] = fma(D[h], x[t][h][p], total)\n"
    "prefill and update alike: H after n tokens does not know how they were divided into calls\n";

std::vector<TensorSpec> scan_tensors(const Sizes& sizes) {
    const int64_t heads = sizes[2] * sizes[3];
    const int64_t state = heads * sizes[4] * sizes[5];
    const auto per_head = [&](const char* name, Fill fill) {
        return TensorSpec{.name = name, .axis = Axis::kCall, .width = heads, .fill = fill};
    };
    return {first_rows(),
            {.name = "x", .width = heads * sizes[4], .strided = true},
            {.name = "b", .width = sizes[2] * sizes[5], .strided = true},
            {.name = "c", .width = sizes[2] * sizes[5], .strided = true},
            {.name = "dt", .width = heads, .fill = Fill::kPlain, .strided = true},
            per_head("a", Fill::kOwn),
            per_head("d", Fill::kPlain),
            per_head("dt_bias", Fill::kPlain),
            {.name = "states_in", .axis = Axis::kItem, .width = sizes[6] != 0 ? state : 0, .continues = "states_out"},
            {.name = "states_out", .role = Role::kOut, .axis = Axis::kItem, .width = state, .lies_in = "states_in"},
            {.name = "y", .role = Role::kOut, .width = heads * sizes[4], .strided = true}};
}
void scan_finish(Arguments& arguments, Prng& prng) {
    for (float& a : arguments.tensor("a").as<float>()) a = -0.01F * static_cast<float>(1 + prng.below(1600));
    // The last ones cut time steps off from both sides.
    constexpr std::pair<float, float> kLimits[] = {{0.001F, 0.1F}, {0.5F, 0.75F}};
    const bool limited = prng.below(2) == 0;
    const auto [least, most] = kLimits[prng.below(std::size(kLimits))];
    arguments.scalars[0] = limited ? least : 0.0F;
    arguments.scalars[1] = limited ? most : std::numeric_limits<float>::infinity();
}
Status scan_admits(const Arguments& arguments) {
    const auto [least, most] = std::pair(arguments.scalars[0], arguments.scalars[1]);
    if (least <= most) return {};
    return error("dt_min {} is not below dt_max {}", least, most);
}
verbatim_args scan_bind(const Placed& call, AbiArgs& abi) {
    const int64_t heads = call.sizes[2] * call.sizes[3];
    const int64_t groups_width = call.sizes[2] * call.sizes[5];
    abi.scan = {.n_heads = heads,
                .head_dim = call.sizes[4],
                .d_state = call.sizes[5],
                .n_groups = call.sizes[2],
                .sequences = placed_sequences(call, 0),
                .x = placed_inputs(call, 1, heads * call.sizes[4]),
                .b = placed_inputs(call, 2, groups_width),
                .c = placed_inputs(call, 3, groups_width),
                .dt = placed_inputs(call, 4, heads),
                .a = placed<const float>(call, 5),
                .d = placed<const float>(call, 6),
                .dt_bias = placed<const float>(call, 7),
                .dt_min = call.scalars[0],
                .dt_max = call.scalars[1],
                .states_in = placed<const float>(call, 8),
                .states_out = placed<float>(call, 9),
                .y = placed_rows(call, 10, heads * call.sizes[4])};
    return {.scan = &abi.scan};
}
// Of a state element and token: u * B, two fma.
Work scan_work(const Arguments& arguments) {
    const Sizes& sizes = arguments.sizes;
    const double state = static_cast<double>(sizes[2] * sizes[3] * sizes[4] * sizes[5]);
    return {bytes_of_tensors(arguments), 5 * state * static_cast<double>(arguments.num_rows())};
}

// One head of one token: its state [d_state, head_dim], its outputs.
void scan_head_double(const verbatim_scan& op, int64_t row, int64_t h, double* state, std::vector<double>& y) {
    const double raw = static_cast<double>(row_of(op.dt, row)[h]) + op.dt_bias[h];
    const double dt = std::clamp<double>(raw > 20 ? raw : std::log1p(std::exp(raw)), op.dt_min, op.dt_max);
    const double decay = std::exp(dt * op.a[h]);
    const int64_t group = h / (op.n_heads / op.n_groups);
    for (int64_t p = 0; p < op.head_dim; ++p) {
        const double x = row_of(op.x, row)[h * op.head_dim + p];
        double total = op.d[h] * x;
        for (int64_t n = 0; n < op.d_state; ++n) {
            double& element = state[n * op.head_dim + p];
            element = element * decay + dt * x * row_of(op.b, row)[group * op.d_state + n];
            total += element * row_of(op.c, row)[group * op.d_state + n];
        }
        y.push_back(total);
    }
}
std::vector<std::vector<double>> scan_doubles(const AbiArgs& abi) {
    const verbatim_scan& op = abi.scan;
    const int64_t size = op.n_heads * op.d_state * op.head_dim;
    std::vector<double> states(static_cast<size_t>(op.sequences.num_sequences * size)), y;
    if (op.states_in != nullptr) std::copy_n(op.states_in, states.size(), states.begin());
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
            for (int64_t h = 0; h < op.n_heads; ++h) {
                scan_head_double(op, row, h, &states[s * size + h * op.d_state * op.head_dim], y);
            }
        }
    }
    return {states, y};
}
std::vector<Sizes> scan_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* mamba = first_of(config, &reference::LayerConfig::mamba)) {
            for (const auto& [sequences, tokens] : {std::pair<int64_t, int64_t>{1, 1}, {2, 4}, {1, 64}}) {
                shapes.push_back({sequences, tokens, mamba->n_groups, mamba->n_heads / mamba->n_groups, mamba->head_dim,
                                  mamba->d_state, 1});
            }
        }
    });
}

Operation scan() {
    return {.name = "scan",
            .contract = kScanContract,
            .sizes = {{"sequences", 1, 2, {1, 2, 3, 5}, false, false, real_sequences()},
                      {"tokens", 1, 5, {1, 2, 3, 15, 16, 17, 63, 64, 65, 129}, false, true, real_rows()},
                      {"groups", 1, 1, {1, 2, 3}, false, true},
                      {"heads", 1, 2, {1, 2, 3}, false, true},
                      {"head_dim", 1, 8, {1, 3, 7, 8, 16, 17, 33, 64, 65, 80}},
                      {"d_state", 1, 16, {1, 2, 3, 15, 16, 17, 31, 33, 64, 128, 129, 256}},
                      {"state", 0, 1, {0, 1}, true}},
            .scalars = {"dt_min", "dt_max"},
            .published = scan_published,
            .tensors = scan_tensors,
            .items = sequences_of_tokens,
            .finish = scan_finish,
            .admits = scan_admits,
            .bind = scan_bind,
            .work = scan_work,
            .doubles = scan_doubles};
}

// --- attention: sequences, tokens, context, kv_heads, heads (of a KV head), head_dim, block_size

constexpr const char* kAttentionContract =
    "q, out [rows, n_heads * head_dim] f32, k, v [num_blocks, block_size, n_kv_heads, head_dim] bf16,\n"
    "block_tables [sequences, max_blocks] i32, first_position [sequences] i64; query head h reads KV head\n"
    "h / (n_heads / n_kv_heads); the row at position p sees positions 0 ... p, and beyond them nothing is read\n"
    "q is rounded to bf16 once; dot() is matmul's dot product\n"
    "tiles of 64 positions start at multiples of 64, runs of 8 tiles at multiples of 512; for the tiles of a run in "
    "order:\n"
    "  s[j]  = dot(q, k[j]) * scale                        visible j of the tile\n"
    "  m'    = max over the visible s[j], from m (a run's first tile: from s[first]); NaN wins\n"
    "  p[j]  = exp(s[j] - m'), masked: +0\n"
    "  sum   = rms_norm's sum, without squares, over the tile's 64 unrounded p\n"
    "  pv[d] = dot over the tile's 64 positions of (bf16(p[j]), v[j][d]); masked v count as +0\n"
    "  a run's first tile:         l = sum;             o[d] = pv[d];                 m = m'\n"
    "  after it, a = exp(m - m'):  l = fma(l, a, sum);  o[d] = fma(o[d], a, pv[d]);   m = m'\n"
    "runs are merged left to right, the first is copied; then with (mr, lr, or) of the next run: M = max(m, mr),\n"
    "  a = exp(m - M), b = exp(mr - M), l = fma(l, a, lr * b), o[d] = fma(o[d], a, or[d] * b), m = M\n"
    "out[d] = o[d] / l. tensor.sm90: both dot products are those of reference/numerics/tensor_sm90.h\n";

int64_t max_blocks_of(const Sizes& sizes) { return (sizes[1] + sizes[2] + sizes[6] - 1) / sizes[6]; }
int64_t num_blocks_of(const Sizes& sizes) {
    return sizes[0] * max_blocks_of(sizes) + 1;
}  // one block belongs to no
   // sequence

std::vector<TensorSpec> attention_tensors(const Sizes& sizes) {
    const int64_t pages = num_blocks_of(sizes) * sizes[6] * sizes[3] * sizes[5];
    const int64_t width = sizes[3] * sizes[4] * sizes[5];
    return {first_rows(),
            {.name = "first_position",
             .dtype = Dtype::kI64,
             .axis = Axis::kItem,
             .width = 1,
             .fill = Fill::kOwn,
             .advances = true},
            {.name = "block_tables",
             .dtype = Dtype::kI32,
             .axis = Axis::kItem,
             .width = max_blocks_of(sizes),
             .fill = Fill::kOwn},
            {.name = "k", .dtype = Dtype::kBf16, .axis = Axis::kCall, .width = pages},
            {.name = "v", .dtype = Dtype::kBf16, .axis = Axis::kCall, .width = pages},
            {.name = "q", .width = width, .strided = true},
            {.name = "out", .role = Role::kOut, .width = width, .strided = true}};
}

// Slots beyond every sequence's length hold NaN.
void attention_settle(Arguments& arguments) {
    const Sizes& sizes = arguments.sizes;
    const int64_t slot = sizes[3] * sizes[5];
    const auto positions = arguments.tensor("first_position").as<int64_t>();
    const auto tables = arguments.tensor("block_tables").as<int32_t>();
    std::vector<bool> seen(static_cast<size_t>(num_blocks_of(sizes) * sizes[6]));
    for (size_t s = 0; s < arguments.item_rows.size(); ++s) {
        const int32_t* table = &tables[s * static_cast<size_t>(max_blocks_of(sizes))];
        for (int64_t i = 0; i < positions[s] + arguments.item_rows[s]; ++i) {
            seen[table[i / sizes[6]] * sizes[6] + i % sizes[6]] = true;
        }
    }
    for (const char* name : {"k", "v"}) {
        const auto values = arguments.tensor(name).as<uint16_t>();
        for (size_t i = 0; i < seen.size(); ++i) {
            if (!seen[i]) std::fill_n(values.begin() + static_cast<int64_t>(i) * slot, slot, uint16_t{0x7FC0});
        }
    }
}
// Scores that rise from one position to the next, in the first dimension of every head: each position is a new maximum,
// and a sum that is not rescaled for one of them, of whatever tile, is wrong in the rows behind it.
void let_scores_rise(Arguments& arguments) {
    const Sizes& sizes = arguments.sizes;
    const auto [kv_heads, head_dim, block_size] = std::tuple(sizes[3], sizes[5], sizes[6]);
    constexpr float kStep = 0.25F;
    const auto q = arguments.tensor("q").as<float>();
    for (size_t i = 0; i < q.size(); i += static_cast<size_t>(head_dim)) q[i] = std::sqrt(static_cast<float>(head_dim));
    const auto k = arguments.tensor("k").as<uint16_t>();
    if (k.empty()) return;  // of a call without values
    const auto tables = arguments.tensor("block_tables").as<int32_t>();
    for (size_t at = 0; at < tables.size(); ++at) {
        const int64_t first = static_cast<int64_t>(at) % max_blocks_of(sizes) * block_size;
        for (int64_t slot = 0; slot < block_size * kv_heads && tables[at] >= 0; ++slot) {
            const float rise = kStep * static_cast<float>(first + slot / kv_heads);
            k[(tables[at] * block_size * kv_heads + slot) * head_dim] = reference::round_to_bf16(rise);
        }
    }
}
void attention_finish(Arguments& arguments, Prng& prng) {
    const Sizes& sizes = arguments.sizes;
    std::vector<int32_t> blocks(static_cast<size_t>(num_blocks_of(sizes)));
    std::iota(blocks.begin(), blocks.end(), 0);
    for (size_t i = blocks.size(); i > 1; --i) std::swap(blocks[i - 1], blocks[prng.below(i)]);
    const auto positions = arguments.tensor("first_position").as<int64_t>();
    const auto tables = arguments.tensor("block_tables").as<int32_t>();
    for (size_t s = 0; s < arguments.item_rows.size(); ++s) {
        positions[s] = s == 0 ? sizes[2] : static_cast<int64_t>(prng.below(static_cast<uint64_t>(sizes[2] + 1)));
        const int64_t length = positions[s] + arguments.item_rows[s];
        for (int64_t i = 0; i < max_blocks_of(sizes); ++i) {
            const size_t at = s * static_cast<size_t>(max_blocks_of(sizes)) + i;
            tables[at] = i * sizes[6] < length ? blocks[at] : -1;
        }
    }
    if (prng.below(3) == 0) let_scores_rise(arguments);
    // Some models state another multiplier.
    constexpr float kMultiplier = 0.3125F;
    arguments.scalars[0] = prng.below(4) == 0 ? kMultiplier : 1.0F / std::sqrt(static_cast<float>(sizes[5]));
}
// The same positions in a pool of these sizes, the last block first. REQUIRES: the sizes hold the call.
Arguments in_pool_of(const Arguments& call, const Sizes& sizes) {
    Arguments other = empty_arguments(*call.operation, sizes, call.item_rows);
    other.scalars = call.scalars;
    for (const char* name : {"first_position", "q"}) other.tensor(name).bytes = call.tensor(name).bytes;
    for (const char* name : {"k", "v"}) std::ranges::fill(other.tensor(name).as<uint16_t>(), uint16_t{0x7FC0});
    const int64_t slot = sizes[3] * sizes[5];
    const auto place = [&](const Arguments& in, size_t s, int64_t i) {
        const auto table = in.tensor("block_tables").as<int32_t>();
        const int64_t block = table[s * static_cast<size_t>(max_blocks_of(in.sizes)) + i / in.sizes[6]];
        return (block * in.sizes[6] + i % in.sizes[6]) * slot;
    };
    const auto positions = call.tensor("first_position").as<int64_t>();
    const auto tables = other.tensor("block_tables").as<int32_t>();
    std::ranges::fill(tables, -1);
    auto next = static_cast<int32_t>(num_blocks_of(sizes));
    for (size_t s = 0; s < call.item_rows.size(); ++s) {
        for (int64_t i = 0; i < positions[s] + call.item_rows[s]; ++i) {
            int32_t& block = tables[s * static_cast<size_t>(max_blocks_of(sizes)) + i / sizes[6]];
            if (block < 0) block = --next;
            for (const char* name : {"k", "v"}) {
                std::copy_n(&call.tensor(name).as<uint16_t>()[place(call, s, i)], slot,
                            &other.tensor(name).as<uint16_t>()[place(other, s, i)]);
            }
        }
    }
    return other;
}
std::vector<Arguments> attention_paged_otherwise(const Arguments& arguments) {
    std::vector<Arguments> calls;
    for (const int64_t block_size : {arguments.sizes[6], int64_t{16}, int64_t{7}, int64_t{64}}) {
        Sizes sizes = arguments.sizes;
        sizes[6] = block_size;
        calls.push_back(in_pool_of(arguments, sizes));
    }
    return calls;
}
// As the launch of these sequences alone would have it, and together with a sequence with a longer context.
std::vector<Arguments> attention_bounded_otherwise(const Arguments& arguments) {
    const auto positions = arguments.tensor("first_position").as<int64_t>();
    int64_t longest = 0;
    for (size_t s = 0; s < arguments.item_rows.size(); ++s)
        longest = std::max(longest, positions[s] + arguments.item_rows[s]);
    Sizes alone = arguments.sizes;
    alone[0] = std::ssize(arguments.item_rows);
    alone[1] = *std::ranges::max_element(arguments.item_rows);
    alone[2] = longest - alone[1];
    std::vector<Arguments> calls = {in_pool_of(arguments, alone)};
    for (const int64_t more : {int64_t{64}, int64_t{700}, int64_t{5000}}) {
        Sizes beside = alone;
        beside[0] = 1 + alone[0];
        beside[2] += more;
        calls.push_back(in_pool_of(arguments, beside));
    }
    return calls;
}
Status attention_admits(const Arguments& arguments) {
    const Sizes& sizes = arguments.sizes;
    RETURN_IF_ERROR(in_range<int64_t>(arguments, "first_position", 0, sizes[2] + 1));
    const auto positions = arguments.tensor("first_position").as<int64_t>();
    const auto tables = arguments.tensor("block_tables").as<int32_t>();
    for (size_t s = 0; s < arguments.item_rows.size(); ++s) {
        const int64_t used = (positions[s] + arguments.item_rows[s] + sizes[6] - 1) / sizes[6];
        for (int64_t i = 0; i < used; ++i) {
            const int32_t block = tables[s * static_cast<size_t>(max_blocks_of(sizes)) + static_cast<size_t>(i)];
            if (block >= 0 && block < num_blocks_of(sizes)) continue;
            return error("`block_tables` {} is not in 0 ... {}", block, num_blocks_of(sizes) - 1);
        }
    }
    return {};
}
verbatim_args attention_bind(const Placed& call, AbiArgs& abi) {
    const Sizes& sizes = call.sizes;
    const int64_t width = sizes[3] * sizes[4] * sizes[5];
    abi.attention = {.n_heads = sizes[3] * sizes[4],
                     .n_kv_heads = sizes[3],
                     .head_dim = sizes[5],
                     .scale = call.scalars[0],
                     .sequences = placed_sequences(call, 0),
                     .first_position = placed<const int64_t>(call, 1),
                     .block_tables = placed<const int32_t>(call, 2),
                     .max_blocks = max_blocks_of(sizes),
                     .num_blocks = num_blocks_of(sizes),
                     .block_size = sizes[6],
                     .k = placed<const uint16_t>(call, 3),
                     .v = placed<const uint16_t>(call, 4),
                     .q = placed_inputs(call, 5, width),
                     .out = placed_rows(call, 6, width)};
    return {.attention = &abi.attention};
}
// Of a row, attention head and position: two dot products of head_dim. Bytes: K and V as far as rows see them, once.
Work attention_work(const Arguments& arguments) {
    const Sizes& sizes = arguments.sizes;
    const auto positions = arguments.tensor("first_position").as<int64_t>();
    double seen = 0;  // by all rows
    double slots = 0;
    for (size_t s = 0; s < arguments.item_rows.size(); ++s) {
        const double rows = static_cast<double>(arguments.item_rows[s]);
        const double first = static_cast<double>(positions[s]);
        seen += rows * first + rows * (rows + 1) / 2;
        slots += first + rows;
    }
    const double heads = static_cast<double>(sizes[3] * sizes[4] * sizes[5]);
    const double rows_bytes = 8.0 * static_cast<double>(arguments.num_rows()) * heads;
    return {rows_bytes + slots * 4.0 * static_cast<double>(sizes[3] * sizes[5]), 4 * seen * heads};
}

// One row and attention head over positions 0 ... p.
void attend_double(const verbatim_attention& op, int64_t s, int64_t p, const float* q, int64_t kv_head,
                   std::vector<double>& out) {
    const auto slot = [&](const uint16_t* pages, int64_t i) {
        const int64_t block = op.block_tables[s * op.max_blocks + i / op.block_size];
        return pages + ((block * op.block_size + i % op.block_size) * op.n_kv_heads + kv_head) * op.head_dim;
    };
    std::vector<double> scores, o(static_cast<size_t>(op.head_dim));
    for (int64_t i = 0; i <= p; ++i) {
        double score = 0;
        for (int64_t d = 0; d < op.head_dim; ++d) score += reference::bf16_value(q[d]) * widened(slot(op.k, i)[d]);
        scores.push_back(score * op.scale);
    }
    const double most = *std::ranges::max_element(scores);
    double sum = 0;
    for (int64_t i = 0; i <= p; ++i) {
        const double weight = std::exp(scores[i] - most);
        sum += weight;
        for (int64_t d = 0; d < op.head_dim; ++d) o[d] += weight * widened(slot(op.v, i)[d]);
    }
    for (const double value : o) out.push_back(value / sum);
}
std::vector<std::vector<double>> attention_doubles(const AbiArgs& abi) {
    const verbatim_attention& op = abi.attention;
    std::vector<double> out;
    for (int64_t s = 0; s < op.sequences.num_sequences; ++s) {
        for (int64_t row = op.sequences.first_row[s]; row < op.sequences.first_row[s + 1]; ++row) {
            const int64_t p = op.first_position[s] + row - op.sequences.first_row[s];
            for (int64_t h = 0; h < op.n_heads; ++h) {
                attend_double(op, s, p, row_of(op.q, row) + h * op.head_dim, h / (op.n_heads / op.n_kv_heads), out);
            }
        }
    }
    return {out};
}
std::vector<Sizes> attention_published() {
    return of_published([](const reference::ModelConfig& config, std::vector<Sizes>& shapes) {
        if (const auto* attention = first_of(config, &reference::LayerConfig::attention)) {
            const int64_t group = attention->n_heads / attention->n_kv_heads;
            shapes.push_back({1, 1, 640, attention->n_kv_heads, group, attention->head_dim, 16});
            shapes.push_back({2, 9, 120, attention->n_kv_heads, group, attention->head_dim, 16});
        }
    });
}

Operation attention() {
    return {
        .name = "attention",
        .contract = kAttentionContract,
        .sizes =
            {{"sequences", 1, 2, {1, 2, 3}, false, false, real_sequences()},
             {"tokens", 1, 3, {1, 2, 3, 9, 16, 17}, false, false, real_rows()},
             {"context", 0, 5, {0, 1, 15, 62, 63, 64, 65, 127, 510, 511, 512, 575, 1100}, false, true, real_contexts()},
             {"kv_heads", 1, 1, {1, 2, 3}, false, true},
             {"heads", 1, 2, {1, 2, 3, 4, 8}, false, true},
             {"head_dim", 1, 8, {1, 3, 8, 15, 16, 33, 64, 128, 256}},
             {"block_size", 1, 16, {1, 3, 16, 20, 64}}},
        .scalars = {"scale"},
        .published = attention_published,
        .tensors = attention_tensors,
        .items = sequences_of_tokens,
        .finish = attention_finish,
        .settle = attention_settle,
        .bounded_otherwise = attention_bounded_otherwise,
        .paged_otherwise = attention_paged_otherwise,
        .admits = attention_admits,
        .bind = attention_bind,
        .work = attention_work,
        .doubles = attention_doubles};
}

}  // namespace

std::vector<Operation> sequence_operations() { return {conv(), scan(), attention()}; }

}  // namespace verbatim::sandbox
