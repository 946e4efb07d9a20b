#include "tests/benchmarks/gpu_operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/prng.h"
#include "engine/base/result.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/fragments.h"
#include "kernels/cuda/step_lists.h"
#include "reference/numerics/bf16.h"

namespace verbatim::cuda {
namespace {

using reference::Profile;

constexpr Profile kProfiles[] = {Profile::kExact, Profile::kTensorSm90, Profile::kFast};

constexpr int64_t kBlockSize = 16;
constexpr int64_t kColdBytes = int64_t{512} << 20;  // of weights that take turns: many times an H200's L2
constexpr double kRoundSeconds = 0.02;
constexpr int kRounds = 7;

// A decode step of sequences of equal lengths, with separate blocks.
struct DecodeLists {
    DecodeLists(Device& device, int64_t num_sequences, int64_t length)
        : num_sequences(num_sequences),
          length(length),
          num_blocks(num_sequences * ((length + kBlockSize - 1) / kBlockSize)) {
        std::vector<DeviceQueries> query_list;
        std::vector<DeviceSequence> sequence_list;
        std::vector<int32_t> run_list = {0};
        std::vector<int32_t> block_list;
        for (int32_t i = 0; i < num_sequences; ++i) {
            query_list.push_back({i, 1, run_list.back(), i});
            run_list.push_back(run_list.back() + static_cast<int32_t>(runs_of(length - 1)));
            sequence_list.push_back({.first_row = i,
                                     .num_rows = 1,
                                     .first_position = static_cast<int32_t>(length - 1),
                                     .first_block = static_cast<int32_t>(i * (num_blocks / num_sequences))});
        }
        query_list.push_back({.first_item = run_list.back()});
        for (int32_t i = 0; i < num_blocks; ++i) block_list.push_back(i);
        queries = DeviceArray<DeviceQueries>(device, std::span<const DeviceQueries>(query_list));
        sequences = DeviceArray<DeviceSequence>(device, std::span<const DeviceSequence>(sequence_list));
        runs = DeviceArray<int32_t>(device, std::span<const int32_t>(run_list));
        blocks = DeviceArray<int32_t>(device, std::span<const int32_t>(block_list));
    }
    [[nodiscard]] int64_t num_runs() const { return num_sequences * runs_of(length - 1); }
    [[nodiscard]] DeviceBatch batch() const {
        return {.queries = queries.data(),
                .first_runs = runs.data(),
                .blocks = blocks.data(),
                .sequences = sequences.data(),
                .num_rows = num_sequences,
                .num_sequences = num_sequences,
                .num_queries = num_sequences,
                .max_blocks = num_blocks,
                .max_runs = num_runs()};
    }
    int64_t num_sequences, length, num_blocks;
    DeviceArray<DeviceQueries> queries;
    DeviceArray<DeviceSequence> sequences;
    DeviceArray<int32_t> runs, blocks;
};

class Operations {
public:
    Operations(Device& device, const OperationsConfig& config) : device_(device), config_(config), prng_(config.seed) {}

    Status run() {
        RETURN_IF_ERROR(matmuls());
        RETURN_IF_ERROR(block_matmuls());
        for (const Profile profile : {Profile::kExact, Profile::kTensorSm90}) {
            if (!device_.computes_in(profile)) continue;
            RETURN_IF_ERROR(decode_attention(profile, {size(64, 2), size(4096, 70)}));
            RETURN_IF_ERROR(decode_attention(profile, {size(8, 1), size(32768, 600)}));
            RETURN_IF_ERROR(prefill_attention(profile, {size(40, 2), size(8, 1), 64, 0.1F}));
            RETURN_IF_ERROR(prefill_attention(profile, {size(32, 1), size(8, 1), 128, 0.1F}));
        }
        // One token for each of many sequences, and many tokens of one.
        RETURN_IF_ERROR(scan("state update", size(64, 2), 1));
        RETURN_IF_ERROR(scan("scan", 1, size(2048, 5)));
        return draw();
    }

private:
    struct MatmulShape {
        int64_t num_rows, num_outputs, num_k;
    };
    [[nodiscard]] int64_t size(int64_t real, int64_t tiny) const { return config_.tiny ? tiny : real; }

    template <typename T>
    DeviceArray<T> filled(int64_t count, const T& value) {
        const std::vector<T> values(static_cast<size_t>(count), value);
        return DeviceArray<T>(device_, std::span<const T>(values));
    }

    template <typename Call>
    Result<double> seconds_of_calls(int num_calls, const Call& call) {
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < num_calls; ++i) call();
        RETURN_IF_ERROR(device_.synchronize());
        const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
        return time.count() / num_calls;
    }
    // Seconds of a call, the median of rounds of as many calls as fit in kRoundSeconds. The first call loads the
    // kernel, the first round is for the clocks to rise.
    template <typename Call>
    Result<double> seconds_of(const Call& call) {
        RETURN_IF_ERROR(seconds_of_calls(1, call));
        ASSIGN_OR_RETURN(const double first, seconds_of_calls(1, call));
        if (config_.tiny) return first;
        const auto num_calls = static_cast<int>(std::clamp(kRoundSeconds / first, 1.0, 100.0));
        RETURN_IF_ERROR(seconds_of_calls(num_calls, call));
        std::vector<double> times;
        for (int round = 0; round < kRounds; ++round) {
            ASSIGN_OR_RETURN(times.emplace_back(), seconds_of_calls(num_calls, call));
        }
        std::ranges::nth_element(times, times.begin() + kRounds / 2);
        return times[kRounds / 2];
    }
    // The share of the copy's bandwidth for the bytes that must move.
    [[nodiscard]] std::string moved(double bytes, double seconds) const {
        const double rate = bytes / seconds;
        std::string text = fmt::format("{:>8.0f} GB/s", rate * 1e-9);
        if (config_.copy_bytes_per_s > 0)
            text += fmt::format(", {:.0f} % of the copy", 100 * rate / config_.copy_bytes_per_s);
        return text;
    }

    Status matmuls() {
        const std::vector<MatmulShape> shapes =
            config_.tiny
                ? std::vector<MatmulShape>{{40, 70, 300}, {8, 70, 300}, {1, 70, 300}}
                : std::vector<MatmulShape>{
                      {8192, 8192, 8192}, {4096, 4096, 4096}, {2048, 8192, 2048}, {512, 4096, 2048}, {64, 8192, 4096},
                      {32, 8192, 4096},   {16, 8192, 4096},   {8, 8192, 4096},    {4, 8192, 4096},   {2, 8192, 4096},
                      {1, 8192, 4096},    {1, 50176, 2048},   {8, 2048, 4096},    {32, 2048, 4096}};
        for (const MatmulShape& shape : shapes) {
            const std::vector<uint16_t> weights = values(shape.num_outputs * shape.num_k);
            for (const Profile profile : kProfiles) {
                if (!device_.computes_in(profile)) continue;
                RETURN_IF_ERROR(matmul(std::string(reference::name(profile)), profile, shape,
                                       packed(profile, {weights.data(), shape.num_outputs, shape.num_k})));
            }
        }
        return {};
    }
    // Of the formats that gpu-forecast.md has bounds for.
    Status block_matmuls() {
        using enum WeightFormat;
        constexpr std::pair<const char*, WeightFormat> kFormats[] = {
            {"Q8_0", kQ8_0},   {"Q4_0", kQ4_0}, {"Q4_K", kQ4_K},  {"Q6_K", kQ6_K},
            {"FP8", kFp8E4m3}, {"int4", kInt4}, {"MXFP4", kMxfp4}};
        const std::vector<int64_t> rows =
            config_.tiny ? std::vector<int64_t>{1, 40} : std::vector<int64_t>{1, 4, 8, 16, 32, 512};
        for (const auto& [name, format] : kFormats) {
            for (const int64_t num_rows : rows) {
                const MatmulShape shape =
                    config_.tiny ? MatmulShape{num_rows, 70, 256} : MatmulShape{num_rows, 8192, 4096};
                // Scales below 2, whatever their form.
                std::vector<uint32_t> words(static_cast<size_t>(block_words(format, shape.num_outputs, shape.num_k)));
                for (uint32_t& word : words) word = static_cast<uint32_t>(prng_.next()) & 0x3FFF'3FFFU;
                RETURN_IF_ERROR(matmul(fmt::format("exact {}", name), Profile::kExact, shape, words, format));
                if (format == kFp8E4m3)
                    RETURN_IF_ERROR(matmul("exact.fp8 FP8", Profile::kExactFp8, shape, words, format));
                if (!has_integers(format)) continue;
                RETURN_IF_ERROR(matmul(fmt::format("exact.int8 {}", name), Profile::kExactInt8, shape, words, format));
            }
        }
        return {};
    }
    // bf16 of about one size. Of signs and digits that vary: a chip computes faster, as it warms less, on numbers that
    // are all alike.
    std::vector<uint16_t> values(int64_t count) {
        std::vector<uint16_t> drawn(static_cast<size_t>(count));
        for (size_t i = 0; i < drawn.size();) {
            for (uint64_t bits = prng_.next(), part = 0; part < 4 && i < drawn.size(); ++part, ++i) {
                drawn[i] = static_cast<uint16_t>((bits >> 16 * part & 0x80FFU) | 0x3E00U);
            }
        }
        return drawn;
    }
    DeviceArray<uint16_t> random_bf16(int64_t count) {
        const std::vector<uint16_t> drawn = values(count);
        return DeviceArray<uint16_t>(device_, std::span<const uint16_t>(drawn));
    }
    DeviceArray<uint32_t> random_pairs(int64_t count) {
        const std::vector<uint16_t> drawn = values(2 * count);
        std::vector<uint32_t> pairs(static_cast<size_t>(count));
        for (size_t i = 0; i < pairs.size(); ++i) pairs[i] = drawn[2 * i] | uint32_t{drawn[2 * i + 1]} << 16;
        return DeviceArray<uint32_t>(device_, std::span<const uint32_t>(pairs));
    }
    // In [-reach, reach).
    DeviceArray<float> random_floats(int64_t count, float reach) {
        std::vector<float> drawn(static_cast<size_t>(count));
        for (float& x : drawn) x = reach * (static_cast<float>(prng_.next() >> 40) * 0x1p-23F - 1.0F);
        return DeviceArray<float>(device_, std::span<const float>(drawn));
    }
    static std::vector<uint32_t> packed(Profile profile, const reference::MatrixView& weight) {
        reference::WorkerPool threads(static_cast<int32_t>(std::max(1U, std::thread::hardware_concurrency())));
        return profile == Profile::kExact ? pack_pairs(weight, threads) : pack_fragments(weight, threads);
    }
    Status matmul(const std::string& name, Profile profile, const MatmulShape& shape,
                  const std::vector<uint32_t>& words, WeightFormat format = WeightFormat::kPairs) {
        // Each call reads other weights, none of which is in L2.
        const auto num_copies = config_.tiny ? 1 : kColdBytes / (4 * std::ssize(words)) + 1;
        std::vector<DeviceArray<uint32_t>> device_words;
        for (int64_t i = 0; i < num_copies; ++i) {
            device_words.emplace_back(device_, std::span<const uint32_t>(words));
        }
        const DeviceArray<float> out(device_, shape.num_rows * shape.num_outputs);
        const RowForm form = profile == Profile::kExactInt8  ? row_form(int8_sharing(format))
                             : profile == Profile::kExactFp8 ? RowForm::kFp8OfGroups
                                                             : RowForm::kPairs;
        const bool on_tensor_cores = profile != Profile::kExact && form == RowForm::kPairs;
        const auto inputs = random_pairs(shape.num_rows * row_words(form, shape.num_k));
        const Floats to{out.data(), shape.num_rows, shape.num_outputs, shape.num_outputs};
        size_t turn = 0;
        ASSIGN_OR_RETURN(const double seconds, seconds_of([&] {
                             const DeviceArray<uint32_t>& own = device_words[turn++ % device_words.size()];
                             const DeviceMatrix matrix{own.data(),  nullptr, shape.num_outputs,
                                                       shape.num_k, format,  form};
                             on_tensor_cores ? device_.tensor_matmul(profile, inputs.data(), matrix, to)
                                             : device_.matmul(inputs.data(), matrix, to);
                         }));
        const double flops = 2.0 * static_cast<double>(shape.num_rows * shape.num_outputs * shape.num_k);
        fmt::print("matmul {:<12} {:>5} x {:>5} x {:>5} {:>10.1f} us {:>8.1f} TFLOP/s {} of weights\n", name,
                   shape.num_rows, shape.num_outputs, shape.num_k, seconds * 1e6, flops / seconds * 1e-12,
                   moved(4.0 * static_cast<double>(words.size()), seconds));
        return {};
    }

    // A token for each of many sequences, all of one length: every K and V once.
    struct Contexts {
        int64_t num_sequences, length;
    };
    Status decode_attention(Profile profile, const Contexts& of) {
        const DecodeLists lists(device_, of.num_sequences, of.length);
        const AttentionShape shape{size(40, 5), size(8, 1), size(64, 10), 0.1F};
        const int64_t width = shape.n_heads * shape.head_dim;
        const int64_t page = lists.num_blocks * shape.n_kv_heads * kBlockSize;
        const auto k = random_pairs(page * shape.head_dim / 2);
        const auto v = random_bf16(page * shape.head_dim);
        const auto q = random_floats(lists.num_sequences * width, 1.0F);
        const DeviceArray<float> workspace(device_, attention_floats(lists.num_runs(), shape));
        const DeviceArray<float> out(device_, q.count());
        const DeviceArray<uint32_t> pairs(device_, lists.num_sequences * row_pairs_of(width));
        const DevicePages pages{k.data(), v.data(), lists.num_blocks, kBlockSize, shape.n_kv_heads, shape.head_dim};
        ASSIGN_OR_RETURN(const double seconds, seconds_of([&] {
                             device_.attention(profile, lists.batch(), shape,
                                               {q.data(), lists.num_sequences, width, width}, pages, workspace.data(),
                                               {out.data(), lists.num_sequences, width, width}, pairs.data());
                         }));
        const double bytes =
            4.0 * static_cast<double>(lists.num_sequences * lists.length * shape.n_kv_heads * shape.head_dim);
        fmt::print("decode attention {:<12} {} sequences of {}, {} / {} heads of {} {:>10.1f} us {}\n",
                   reference::name(profile), lists.num_sequences, lists.length, shape.n_heads, shape.n_kv_heads,
                   shape.head_dim, seconds * 1e6, moved(bytes, seconds));
        return {};
    }

    // All rows of a sequence.
    Status prefill_attention(Profile profile, const AttentionShape& shape) {
        const int64_t num_rows = size(4096, 20);
        const int64_t num_blocks = (num_rows + kBlockSize - 1) / kBlockSize;
        const int64_t width = shape.n_heads * shape.head_dim;
        const std::vector<reference::WalkSequence> parts = {{0, static_cast<int32_t>(num_rows), 0}};
        std::vector<BlockId> table;
        for (int32_t i = 0; i < num_blocks; ++i) table.push_back(BlockId{i});
        const std::vector<PooledSequence> sequences = {{.slot = SequenceSlot{0}, .blocks = table}};
        const std::vector<TokenId> tokens(static_cast<size_t>(num_rows));
        StateLog no_log(device_, {}, 0);
        StepLists lists(device_, 1, attend_rows(shape), device_.attends_by_tiles(profile, shape, kBlockSize));
        lists.describe({.batch = {tokens, parts, {}}, .sequences = sequences}, no_log, false);
        lists.upload();
        DeviceBatch batch = lists.batch();
        batch.max_runs = lists.first_runs.values.back();
        const int64_t page = num_blocks * shape.n_kv_heads * kBlockSize;
        const auto k = random_pairs(page * shape.head_dim / 2);
        const auto v = random_bf16(page * shape.head_dim);
        const auto q = random_floats(num_rows * width, 1.0F);
        const DeviceArray<float> workspace(device_, attention_floats(batch.max_runs, shape));
        const DeviceArray<float> out(device_, q.count());
        const DeviceArray<uint32_t> pairs(device_, num_rows * row_pairs_of(width));
        const DevicePages pages{k.data(), v.data(), num_blocks, kBlockSize, shape.n_kv_heads, shape.head_dim};
        ASSIGN_OR_RETURN(const double seconds, seconds_of([&] {
                             device_.attention(profile, batch, shape, {q.data(), num_rows, width, width}, pages,
                                               workspace.data(), {out.data(), num_rows, width, width}, pairs.data());
                         }));
        const double pairs_seen = static_cast<double>(num_rows) * static_cast<double>(num_rows + 1) / 2;
        fmt::print("prefill attention {} {} rows, {} heads of {} {:>10.1f} us {:>8.1f} TFLOP/s\n",
                   reference::name(profile), num_rows, shape.n_heads, shape.head_dim, seconds * 1e6,
                   4e-12 * pairs_seen * static_cast<double>(width) / seconds);
        return {};
    }

    // `num_tokens` for each of `num_sequences`, from their states to their states.
    Status scan(const char* name, int64_t num_sequences, int64_t num_tokens) {
        const MambaShape shape{.n_heads = size(128, 2),
                               .head_dim = size(64, 5),
                               .d_state = size(128, 20),
                               .n_groups = 1,
                               .dt_max = std::numeric_limits<float>::infinity()};
        const int64_t num_rows = num_sequences * num_tokens;
        const int64_t d_inner = shape.n_heads * shape.head_dim;
        const int64_t width = d_inner + 2 * shape.d_state;
        const int64_t state = d_inner * shape.d_state;
        std::vector<DeviceSequence> list;
        for (int64_t i = 0; i < num_sequences; ++i) {
            list.push_back({.first_row = static_cast<int32_t>(i * num_tokens),
                            .num_rows = static_cast<int32_t>(num_tokens),
                            .state_src = static_cast<int32_t>(i),
                            .state_dst = static_cast<int32_t>(i)});
        }
        const DeviceArray<DeviceSequence> sequences(device_, std::span<const DeviceSequence>(list));
        const auto states = random_floats(num_sequences * state, 1.0F);
        const auto conv = random_floats(num_rows * width, 1.0F);
        const auto dt_raw = random_floats(num_rows * shape.n_heads, 1.0F);
        const auto per_head = filled(shape.n_heads, -0.5F);  // a decay is below 1
        const DeviceArray<float> dt(device_, num_rows * shape.n_heads);
        const DeviceArray<float> decay(device_, num_rows * shape.n_heads);
        const DeviceArray<float> y(device_, num_rows * d_inner);
        const DeviceBatch batch{.sequences = sequences.data(), .num_rows = num_rows, .num_sequences = num_sequences};
        ASSIGN_OR_RETURN(
            const double seconds, seconds_of([&] {
                device_.scan(batch, shape, {.a = per_head.data(), .d = per_head.data(), .dt_bias = per_head.data()},
                             {conv.data(), num_rows, width, width},
                             {dt_raw.data(), num_rows, shape.n_heads, shape.n_heads}, dt.data(), decay.data(),
                             {states.data(), num_sequences, state, state}, {}, {y.data(), num_rows, d_inner, d_inner});
            }));
        fmt::print("{} of {} sequences, {} heads of {}, state {} {:>10.1f} us {}, {:.3f} us a token\n", name,
                   num_sequences, shape.n_heads, shape.head_dim, shape.d_state, seconds * 1e6,
                   moved(8.0 * static_cast<double>(num_sequences * state), seconds),
                   seconds * 1e6 / static_cast<double>(num_rows));
        return {};
    }

    Status draw() {
        const int64_t num_rows = size(32, 2);
        const int64_t vocab_size = size(100352, 1030);
        const auto logits = random_floats(num_rows * vocab_size, 10.0F);
        const auto draws = filled(num_rows, DeviceDraw{.seed = 5, .temperature = 0.8F, .top_p = 0.9F, .top_k = 50});
        const auto counts = filled(1, DeviceTokenCount{});
        const DeviceArray<int32_t> drawn(device_, num_rows), ids(device_, num_rows * draw_parts(vocab_size));
        const DeviceArray<float> scaled(device_, num_rows * vocab_size), scores(device_, ids.count());
        const DeviceArray<uint64_t> lowest(device_, num_rows);
        ASSIGN_OR_RETURN(
            const double seconds, seconds_of([&] {
                device_.draw({.draws = draws.data(), .counts = counts.data(), .drawn = drawn.data(), .max_counts = 1},
                             {logits.data(), num_rows, vocab_size, vocab_size},
                             {scaled.data(), lowest.data(), scores.data(), ids.data()});
            }));
        fmt::print("draw of {} rows of {}, top-k and top-p {:>10.1f} us\n", num_rows, vocab_size, seconds * 1e6);
        return {};
    }

    Device& device_;
    OperationsConfig config_;
    Prng prng_;
};

}  // namespace

Status measure_operations(Device& device, const OperationsConfig& config) { return Operations(device, config).run(); }

}  // namespace verbatim::cuda
