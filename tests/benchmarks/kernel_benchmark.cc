// tests/benchmarks/kernel_benchmark.cc: every operation of the CPU backend by itself, on one thread, for every
// instruction set of this processor, in the shapes of granite-4.0-h-1b (with Llama's rotary embedding), with the bytes
// and operations that kernels/bench/cost.h counts.
//
//   kernel_benchmark --benchmark_filter='matmul_in_proj/.*/rows:512'
//
// A walk goes over the model up to the operation in question, which then repeats. Those that work in place (activation,
// gated norm, rotary, residual) repeat on their results. The matrix of in_proj stays in the caches where they hold
// 20 MB; that of the head (308 MB) comes from memory.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <memory>
#include <vector>

#include "engine/base/prng.h"
#include "kernels/bench/cost.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/ops/sampling.h"
#include "reference/model/presets.h"
#include "reference/model/random_model.h"
#include "reference/model/state_tensors.h"
#include "reference/ops/sampling.h"

namespace verbatim {
namespace {

using namespace reference;

constexpr int32_t kBlockSize = 16;
constexpr int64_t kMaxTokens = 32768 + 512;
constexpr int32_t kMambaLayer = 0;
constexpr int32_t kHeadLayer = 2;

// One Mamba layer and one attention layer, each with its MLP, and the head.
ModelConfig two_layers() {
    ModelConfig config = preset("granite-4.0-h-1b").value();
    LayerConfig attention = config.layers[5];
    attention.attention->rope = preset("llama-3.2-1b")->layers[0].attention->rope;
    attention.attention->rope.n_rotary_dims = attention.attention->head_dim;
    config.layers = {config.layers[0], attention};
    return config;
}

// What an operation is asked for: rows [first_position, first_position + num_rows) of one sequence.
struct Work {
    WalkOp op = WalkOp::kMatmul;
    Matrix matrix = Matrix::kInProj;  // of a matmul
    int64_t num_rows = 1;
    int64_t first_position = 0;
};

// The backend of one instruction set, and pools for one sequence.
class Bench {
public:
    Bench(const Model& model, cpu::Isa isa)
        : config_(model.config),
          model_(model.config, model.weights),
          tensors_(state_tensors(model.config)),
          kv_(tensors_, kBlockSize, static_cast<int32_t>(kMaxTokens / kBlockSize)),
          states_(tensors_, 1),
          log_(model.config, 0),
          pool_(1),
          choice_(cpu::matmul_choice(isa)),
          weights_(model.config, model.weights, pool_),
          backend_(model_, weights_, choice_, {kv_, states_, log_}, pool_) {
        for (int32_t i = 0; i < kMaxTokens / kBlockSize; ++i) blocks_.push_back(BlockId{i});
    }

    void run(const Work& work, benchmark::State& state) {
        const std::vector<TokenId> tokens(work.num_rows, 17);
        const WalkSequence sequence{0, static_cast<int32_t>(work.num_rows), work.first_position};
        PooledSequence part;
        part.blocks = blocks_;
        part.state_src = part.state_dst = StateIndex{0};
        std::vector<int32_t> logit_rows;
        if (work.matrix == Matrix::kLmHead) {
            for (int32_t row = 0; row < work.num_rows; ++row) logit_rows.push_back(row);
        }
        backend_.set_step(model_.config(), {.sequences = {&part, 1}});
        backend_.begin({tokens, {&sequence, 1}, logit_rows});
        bool done = false;
        for (const OpCall& op : model_.pass()) {
            if (op.is_of_head(config_) && logit_rows.empty()) break;
            call(config_, op, backend_);
            if (done || op.op != work.op || (op.op == WalkOp::kMatmul && op.matrix != work.matrix)) continue;
            for (auto _ : state) call(config_, op, backend_);
            done = true;
        }
        count(work, sequence, state);
    }

private:
    // Of the operation that was repeated: a matmul's matrix, else the first of its kind that computes anything (which
    // leaves out the storing of KV).
    void count(const Work& work, const WalkSequence& sequence, benchmark::State& state) const {
        bench::OpCost found{work.op};
        if (work.op == WalkOp::kMatmul) {
            const int32_t layer = work.matrix == Matrix::kLmHead ? kHeadLayer : kMambaLayer;
            const MatrixView matrix = linear_of(model_.weights(), {layer, work.matrix}).weight;
            const auto elements = static_cast<double>(matrix.rows * matrix.cols);
            found = {work.op, 2 * elements, 2 * elements * static_cast<double>(work.num_rows)};
        } else {
            bench::WalkCost cost;
            cost.add_step(config_, {&sequence, 1}, 0);
            for (const bench::OpCost& op : cost.ops()) {
                if (op.op == work.op && found.operations == 0) found = op;
            }
        }
        const auto iterations = static_cast<double>(state.iterations());
        state.SetBytesProcessed(static_cast<int64_t>(found.bytes * iterations));
        state.counters["flops"] = benchmark::Counter(found.operations * iterations, benchmark::Counter::kIsRate);
    }

    const ModelConfig& config_;
    KernelModel model_;
    StateTensors tensors_;
    cpu::PagedKv kv_;
    cpu::StateRows states_;
    cpu::StateLog log_;
    WorkerPool pool_;
    cpu::MatmulChoice choice_;
    cpu::PackedWeights weights_;
    cpu::CpuBackend backend_;
    std::vector<BlockId> blocks_;
};

const Model& model() {
    static const Model model = make_random_model(two_layers(), 1);
    return model;
}

// Packed weights of one instruction set at a time: benchmarks are registered set by set.
Bench& bench_of(cpu::Isa isa) {
    static std::unique_ptr<Bench> bench;
    static cpu::Isa held = isa;
    if (!bench || held != isa) {
        bench.reset();
        bench = std::make_unique<Bench>(model(), isa);
        held = isa;
    }
    return *bench;
}

void add(cpu::Isa isa, const char* name, const Work& work) {
    const std::string full =
        fmt::format("{}/{}/rows:{}/position:{}", name, cpu::isa_name(isa), work.num_rows, work.first_position);
    benchmark::RegisterBenchmark(full.c_str(), [isa, work](benchmark::State& state) {
        bench_of(isa).run(work, state);
    })->Unit(benchmark::kMicrosecond);
}

void add_isa(cpu::Isa isa) {
    for (const int64_t rows : {1, 4, 12, 16, 64, 512}) add(isa, "matmul_in_proj", {.num_rows = rows});
    for (const int64_t rows : {1, 16}) add(isa, "matmul_head", {.matrix = Matrix::kLmHead, .num_rows = rows});
    for (const int64_t position : {511, 4095, 32767}) {
        add(isa, "attention_decode", {.op = WalkOp::kAttention, .first_position = position});
    }
    for (const int64_t position : {0, 3584, 32256}) {
        add(isa, "attention_prefill", {.op = WalkOp::kAttention, .num_rows = 512, .first_position = position});
    }
    for (const int64_t rows : {1, 512}) {
        add(isa, "embed", {.op = WalkOp::kEmbed, .num_rows = rows});
        add(isa, "norm", {.op = WalkOp::kNorm, .num_rows = rows});
        add(isa, "conv", {.op = WalkOp::kConv, .num_rows = rows, .first_position = 1});
        add(isa, "scan", {.op = WalkOp::kScan, .num_rows = rows, .first_position = 1});
        add(isa, "gated_norm", {.op = WalkOp::kGatedNorm, .num_rows = rows});
        add(isa, "rope", {.op = WalkOp::kRope, .num_rows = rows});
        add(isa, "activation", {.op = WalkOp::kActivation, .num_rows = rows});
        add(isa, "add_branch", {.op = WalkOp::kAddBranch, .num_rows = rows});
    }
}

// A row of 4096 on its way into a matmul.
void round_row(benchmark::State& state, const cpu::CpuOps& ops) {
    constexpr int64_t kCount = 4096;
    const std::vector<float> x(kCount, 0.3F);
    cpu::AlignedArray<float> floats(kCount);
    cpu::AlignedArray<Pair> pairs(kCount / 2);
    for (auto _ : state) {
        if (ops.takes_pairs) ops.rows->round_to_pairs(x.data(), kCount, 1.5F, pairs.data());
        if (!ops.takes_pairs) ops.rows->round_to_floats(x.data(), kCount, 1.5F, floats.data());
        benchmark::ClobberMemory();
    }
    state.SetBytesProcessed(state.iterations() * kCount * static_cast<int64_t>(sizeof(float)));
}

// One draw from the vocabulary of 100352, by the contract's plain loops where `rows` is null.
void sample_token(benchmark::State& state, const SamplingParams& params, const cpu::RowOps* rows) {
    std::vector<float> logits(static_cast<size_t>(model().config.vocab_size));
    Prng prng(1);
    for (float& logit : logits) logit = static_cast<float>(prng.below(1 << 20)) * 0x1p-17F;
    cpu::SamplingScratch scratch;
    uint64_t position = 0;
    for (auto _ : state) {
        const SamplingArgs args{.logits = logits, .params = params, .prefix = {}, .position = position++};
        benchmark::DoNotOptimize(rows != nullptr ? cpu::sample(args, *rows, scratch) : reference::sample(args));
    }
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(logits.size() * sizeof(float)));
}

// A state row of granite-4.0-h-350m, as a head's digest reads it.
void digest_state(benchmark::State& state) {
    const std::vector<float> row(22622208 / sizeof(float), 0.25F);
    for (auto _ : state) {
        Digester digester;
        digester.add_all(std::span<const float>(row));
        benchmark::DoNotOptimize(digester.digest());
    }
    state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(row.size() * sizeof(float)));
}

void add_all() {
    for (const cpu::Isa isa : cpu::supported_isas()) {
        add_isa(isa);
        benchmark::RegisterBenchmark(fmt::format("round_row/{}", cpu::isa_name(isa)).c_str(),
                                     [isa](benchmark::State& state) { round_row(state, cpu::cpu_ops(isa)); });
    }
    const auto add_sampling = [](const char* name, const SamplingParams& params) {
        const auto add = [&](const char* who, const cpu::RowOps* rows) {
            benchmark::RegisterBenchmark(fmt::format("sample/{}/{}", name, who).c_str(), [params, rows](
                                                                                             benchmark::State& state) {
                sample_token(state, params, rows);
            })->Unit(benchmark::kMicrosecond);
        };
        add("reference", nullptr);
        add("cpu", cpu::cpu_ops(cpu::best_isa()).rows);
    };
    add_sampling("greedy", {});
    add_sampling("temperature", {.temperature = 1});
    add_sampling("top_k_top_p", {.temperature = 1, .top_k = 50, .top_p = 0.9F});
    benchmark::RegisterBenchmark("digest/state_row", digest_state)->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace verbatim

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    verbatim::add_all();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return 0;
}
