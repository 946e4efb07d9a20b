// tests/benchmarks/block_benchmark.cc: products with weights in blocks and in bf16, on one thread, for the instruction
// sets of this processor, in exact, in exact.int8 ("Q8_0.int8") and in exact.fp8 ("FP8_E4M3.fp8_row", ".fp8_groups").
// Panel after panel of a matrix that no cache holds; items are weights.
//
//   block_benchmark --benchmark_filter='/avx512/rows:1$' --benchmark_repetitions=9
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <vector>

#include "engine/base/prng.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/block_runs.h"
#include "kernels/cpu/int8_panels.h"
#include "kernels/cpu/multiply_panel.h"
#include "kernels/cpu/ops/cpu_ops.h"
#include "kernels/packed_matrix.h"
#include "reference/model/scaled_blocks.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kOutputs = 32768;
constexpr int64_t kColumns = 4096;

using reference::BlockFormat;
using reference::MatrixView;

enum class Activations : uint8_t { kBf16, kInt8, kFp8OfRow, kFp8OfGroups };
constexpr std::array kSuffixes = {"", ".int8", ".fp8_row", ".fp8_groups"};

// A matrix in one type; its memory is all that is multiplied.
struct Weights {
    Weights(const BlockFormat* format, Activations activations) {
        Prng prng(1);
        if (format == nullptr) {
            pairs.ensure(PackedMatrix::num_pairs_of(kOutputs, kColumns));
            for (int64_t i = 0; i < pairs.size(); ++i) pairs.data()[i] = 0x3F803F80U;
            matrix = PackedMatrix(kOutputs, kColumns, pairs.data());
            return;
        }
        blocks.resize(static_cast<size_t>(kOutputs * format->row_bytes(kColumns)));
        for (std::byte& byte : blocks) byte = static_cast<std::byte>(prng.below(64));
        MatrixView view{nullptr, kOutputs, kColumns, format, blocks.data()};
        if (activations == Activations::kInt8) {
            runs.ensure(int8_bytes_of(view));
            matrix = PackedMatrix::in_int8(view, runs.data());
            for (int64_t i = 0; i < matrix.num_panels(); ++i)
                pack_int8(view, i, runs.data() + i * runs.size() / matrix.num_panels());
            return;
        }
        runs.ensure(run_bytes_of(view));
        matrix = PackedMatrix(view, runs.size() > 0 ? runs.data() : nullptr);
        if (activations != Activations::kBf16) {
            view.activations =
                activations == Activations::kFp8OfRow ? reference::Fp8Sharing::kRow : reference::Fp8Sharing::kGroups;
            matrix = PackedMatrix::in_fp8(view, runs.data());
        }
        if (runs.size() == 0) return;
        for (int64_t i = 0; i < matrix.num_panels(); ++i)
            pack_runs(view, i, runs.data() + i * runs.size() / matrix.num_panels());
    }
    AlignedArray<Pair> pairs;
    std::vector<std::byte> blocks;
    AlignedArray<std::byte> runs;
    PackedMatrix matrix;
};

// Of one type at a time: benchmarks are registered type by type.
const Weights& weights_of(const BlockFormat* format, Activations activations) {
    static std::unique_ptr<Weights> weights;
    static std::pair<const BlockFormat*, Activations> held;
    if (!weights || held != std::pair(format, activations)) {
        weights.reset();
        weights = std::make_unique<Weights>(format, activations);
        held = {format, activations};
    }
    return *weights;
}

struct Multiplied {
    const BlockFormat* format = nullptr;  // null: bf16
    Activations activations = Activations::kBf16;
};

void multiply(benchmark::State& state, const Multiplied& what, Isa isa, int64_t num_rows) {
    const PackedMatrix& matrix = weights_of(what.format, what.activations).matrix;
    const MatmulChoice choice = matmul_choice(isa);
    const MatmulLoop& loop = choice.of_rows(num_rows);
    const std::vector<float> x(static_cast<size_t>(num_rows * kColumns), 0.3F);
    AlignedArray<float> floats((num_rows + kMaxBandRows) * kColumns);
    AlignedArray<Pair> pairs((num_rows + kMaxBandRows) * kColumns / 2);
    const RoundedRows rounded = round_rows(*loop.ops->rows, row_form(loop, matrix, num_rows),
                                           {x.data(), num_rows, kColumns, kColumns}, {}, floats.data(), pairs.data());
    std::vector<float> y(static_cast<size_t>(num_rows * kOutputs));
    for (auto _ : state) {
        for (int64_t panel = 0; panel < matrix.num_panels(); ++panel)
            multiply_panel(loop, matrix, nullptr, rounded, panel, nullptr,
                           reference::dense_rows(y.data(), num_rows, kOutputs));
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * kOutputs * kColumns);
}

// What the start does once: panels of the type's runs.
void repack(benchmark::State& state, const BlockFormat* format) {
    const PackedMatrix& matrix = weights_of(format, Activations::kBf16).matrix;
    AlignedArray<std::byte> panel(run_bytes_of(matrix.blocks()) / matrix.num_panels());
    for (auto _ : state) {
        for (int64_t i = 0; i < matrix.num_panels(); ++i) pack_runs(matrix.blocks(), i, panel.data());
        benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * kOutputs * kColumns);
}

void add_products(const Multiplied& what) {
    for (const Isa isa : supported_isas()) {
        for (const int64_t rows : {1, 2, 4, 8, 16, 32, 120}) {
            const std::string name = fmt::format("{}{}/{}/rows:{}", what.format != nullptr ? what.format->name : "bf16",
                                                 kSuffixes[static_cast<size_t>(what.activations)], isa_name(isa), rows);
            benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
                multiply(state, what, isa, rows);
            })->Unit(benchmark::kMillisecond);
        }
    }
}

void add_all() {
    std::vector<const BlockFormat*> formats = {nullptr};
    for (const BlockFormat& format : reference::block_formats())
        if (!format.is_dense()) formats.push_back(&format);
    for (const BlockFormat* format : reference::scaled_formats()) formats.push_back(format);
    for (const BlockFormat* format : formats) {
        if (format != nullptr && find_run_layout(*format) != nullptr)
            benchmark::RegisterBenchmark(fmt::format("{}/repack", format->name).c_str(), repack, format)
                ->Unit(benchmark::kMillisecond);
        add_products({format, Activations::kBf16});
        if (format != nullptr && find_int8_layout(*format) != nullptr) add_products({format, Activations::kInt8});
        if (format != &reference::kScaledFp8) continue;
        add_products({format, Activations::kFp8OfRow});
        add_products({format, Activations::kFp8OfGroups});
    }
}

}  // namespace
}  // namespace verbatim::cpu

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    verbatim::cpu::add_all();
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
}
