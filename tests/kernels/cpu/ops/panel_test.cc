// The matmul's inner loop of every instruction set and profile against its definition, bit by bit.
#include <gtest/gtest.h>

#include "kernels/cpu/ops/cpu_ops.h"
#include "reference/numerics/tensor_sm90.h"
#include "reference/ops/matmul.h"
#include "tests/reference/ops/op_values.h"

namespace verbatim::cpu {
namespace {

using reference::bf16_to_float;
using reference::bits_from_float;
using reference::Values;

struct PanelShape {
    int64_t num_rows, num_outputs, num_k;
};

std::string panel_name(Isa isa, Values kind, const PanelShape& shape) {
    return fmt::format("{}, values {}, {} rows, {} outputs, K {}", isa_name(isa), static_cast<int>(kind),
                       shape.num_rows, shape.num_outputs, shape.num_k);
}

struct PackedPanels {
    explicit PackedPanels(reference::MatrixView weight)
        : pairs(PackedMatrix::num_pairs_of(weight.rows, weight.cols), Pair{77}),
          matrix(weight.rows, weight.cols, pairs.data()) {
        for (int64_t i = 0; i < matrix.num_panels(); ++i) {
            pack_panel(weight, i, pairs.data() + i * num_pairs(weight.cols) * kPanelOutputs);
        }
    }
    std::vector<Pair> pairs;
    PackedMatrix matrix;
};

// Rows of bf16 bits, in every form.
struct RowForms {
    RowForms(const std::vector<uint16_t>& a, int64_t rows, int64_t num_k)
        : num_rows(rows),
          pairs(num_pairs(num_k)),
          floats(rows * pairs * 2),
          words(rows * pairs),
          wide((rows + kWideBands.rows) * pairs * 2),
          narrow((rows + kNarrowBands.rows) * pairs * 2),
          pair_bands(rows * pairs) {
        // Element k of row r, of `num_k` in all.
        const auto place = [&](const BandShape& shape, int64_t r, int64_t k, int64_t num_k) {
            int64_t found = -1;
            shape.for_each_band(rows, [&](int64_t first, int64_t width) {
                if (first <= r && r < first + width) found = first * num_k + k * width + r - first;
            });
            return found;
        };
        for (int64_t r = 0; r < rows; ++r) {
            for (int64_t k = 0; k < num_k; ++k) {
                const uint16_t bits = a[r * num_k + k];
                floats[r * pairs * 2 + k] = bf16_to_float(bits);
                words[r * pairs + k / 2] |= Pair{bits} << (k % 2 * 16);
                wide[place(kWideBands, r, k, pairs * 2)] = floats[r * pairs * 2 + k];
                narrow[place(kNarrowBands, r, k, pairs * 2)] = floats[r * pairs * 2 + k];
            }
            for (int64_t j = 0; j < pairs; ++j) pair_bands[place(kPairBands, r, j, pairs)] = words[r * pairs + j];
        }
    }
    [[nodiscard]] RoundedRows rows(RowForm form) const {
        switch (form) {
            case RowForm::kFloats: return {.floats = floats.data(), .num_rows = num_rows, .num_pairs = pairs};
            case RowForm::kPairs: return {.pairs = words.data(), .num_rows = num_rows, .num_pairs = pairs};
            case RowForm::kWideBands: return {.bands = wide.data(), .num_rows = num_rows, .num_pairs = pairs};
            case RowForm::kNarrowBands: return {.bands = narrow.data(), .num_rows = num_rows, .num_pairs = pairs};
            case RowForm::kPairBands:
                return {.pair_bands = pair_bands.data(), .num_rows = num_rows, .num_pairs = pairs};
            case RowForm::kFp8OfGroups:
            case RowForm::kFp8OfRow:
            case RowForm::kFp8PairsOfGroups:
            case RowForm::kFp8PairsOfRow:
            case RowForm::kInt8Of32:
            case RowForm::kInt8Of256:
            case RowForm::kInt8OfRow: break;  // tests/kernels/cpu/fp8_panels_test.cc and int8_panels_test.cc
        }
        throw std::logic_error("no such form");
    }

    int64_t num_rows, pairs;
    std::vector<float> floats;
    std::vector<Pair> words;
    std::vector<float> wide, narrow;
    std::vector<Pair> pair_bands;
};

void expect_definition(Isa isa, Profile profile, Values kind, const PanelShape& shape) {
    const auto dot = profile == Profile::kExact ? reference::dot_n3 : reference::tensor_dot;
    const auto a = reference::draw_bf16(shape.num_rows * shape.num_k, 1, kind);
    const auto b = reference::draw_bf16(shape.num_outputs * shape.num_k, 2, kind);
    const PackedPanels packed({b.data(), shape.num_outputs, shape.num_k});
    const auto bias = reference::draw_values(packed.matrix.num_panels() * kPanelOutputs, 3, kind);
    const bool has_bias = shape.num_k % 2 == 1;
    const RowForms forms(a, shape.num_rows, shape.num_k);
    constexpr int64_t kStride = kPanelOutputs + 5;
    std::vector<float> out((shape.num_rows + 1) * kStride);
    for (int64_t panel = 0; panel < packed.matrix.num_panels(); ++panel) {
        std::vector<float> want(out.size(), 77.0F);  // beyond the rows and the outputs nothing is written
        for (int64_t r = 0; r < shape.num_rows; ++r) {
            for (int64_t lane = 0; lane < kPanelOutputs; ++lane) {
                const int64_t n = panel * kPanelOutputs + lane;
                const bool real = lane < packed.matrix.outputs_in(panel);
                const float total = real ? dot(&a[r * shape.num_k], &b[n * shape.num_k], shape.num_k) : 0.0F;
                want[r * kStride + lane] = has_bias ? total + bias[n] : total;
            }
        }
        for (const MatmulLoop& loop : matmul_loops(cpu_ops(isa, profile), shape.num_rows)) {
            std::ranges::fill(out, 77.0F);
            loop.run({.rows = forms.rows(loop.form()),
                      .panel = packed.matrix.panel(panel),
                      .bias = has_bias ? &bias[panel * kPanelOutputs] : nullptr,
                      .out = out.data(),
                      .out_stride = kStride});
            ASSERT_EQ(reference::bits_of(out), reference::bits_of(want))
                << panel_name(isa, kind, shape) << (loop.bands ? ", bands" : "") << (loop.reads_ahead ? ", ahead" : "");
        }
    }
}

TEST(Bands, CoverAllRowsWithinBlocks) {
    for (const BandShape& shape : {kWideBands, kNarrowBands, kPairBands}) {
        for (int64_t num_rows = 1; num_rows <= 3 * kMatmulRows; ++num_rows) {
            int64_t first = 0;
            shape.for_each_band(num_rows, [&](int64_t begin, int64_t width) {
                ASSERT_EQ(begin, first) << num_rows << " rows";
                ASSERT_GE(width, shape.least);
                ASSERT_LE(width, std::max(shape.rows, shape.most));
                const int64_t real = std::min(width, num_rows - first);
                ASSERT_EQ(first / kMatmulRows, (first + real - 1) / kMatmulRows) << num_rows << " rows, row " << first;
                // A block alone is shared out as it is among others.
                const int64_t block = first / kMatmulRows * kMatmulRows;
                ASSERT_EQ(shape.width(first - block, std::min(kMatmulRows, num_rows - block)), width) << num_rows;
                first += width;
            });
            if (HasFatalFailure()) return;
            ASSERT_GE(first, num_rows);
        }
    }
}

TEST(Bands, FewRowsOfPairsLeaveNoSmallBand) {
    const auto widths = [](int64_t num_rows) {
        std::vector<int64_t> widths;
        for (int64_t r = 0; r < num_rows; r += widths.back()) widths.push_back(kPairBands.width(r, num_rows));
        return widths;
    };
    using Widths = std::vector<int64_t>;
    EXPECT_EQ(widths(7), Widths({7}));
    EXPECT_EQ(widths(12), Widths({6, 6}));
    EXPECT_EQ(widths(16), Widths({8, 8}));
    EXPECT_EQ(widths(20), Widths({7, 7, 6}));
    EXPECT_EQ(widths(32), Widths({8, 6, 6, 6, 6}));
    EXPECT_EQ(widths(34), Widths({6, 7, 7, 7, 7}));
}

TEST(Panel, EveryInstructionSetHasTheBitsOfTheDefinition) {
    const PanelShape shapes[] = {{1, 1, 1},     {1, 64, 2},  {2, 65, 255}, {3, 63, 256},  {4, 64, 257},
                                 {5, 130, 600}, {6, 64, 64}, {7, 64, 513}, {13, 20, 768}, {129, 64, 33}};
    const PanelShape shapes_of_bands[] = {{8, 64, 2},    {9, 64, 259},  {10, 64, 257}, {16, 65, 514}, {20, 64, 31},
                                          {24, 64, 256}, {25, 64, 258}, {41, 64, 33},  {121, 64, 258}};
    for (const Isa isa : supported_isas()) {
        for (const Values kind : reference::kAllValues) {
            for (const PanelShape& shape : shapes) {
                expect_definition(isa, Profile::kExact, kind, shape);
                expect_definition(isa, Profile::kTensorSm90, kind, shape);
            }
            for (const PanelShape& shape : shapes_of_bands) expect_definition(isa, Profile::kExact, kind, shape);
        }
    }
}

TEST(Panel, PackingKeepsEveryElementAndPadsWithZeros) {
    for (const auto& [num_outputs, num_k] : {std::pair{3, 5}, {64, 32}, {65, 33}, {70, 100}, {130, 64}}) {
        const auto weight = reference::draw_bf16(int64_t{num_outputs} * num_k, 5);
        const PackedPanels packed({weight.data(), num_outputs, num_k});
        for (int64_t n = 0; n < packed.matrix.num_panels() * kPanelOutputs; ++n) {
            const Pair* panel = packed.matrix.panel(n / kPanelOutputs) + n % kPanelOutputs;
            for (int64_t k = 0; k < 2 * num_pairs(num_k); ++k) {
                const Pair pair = panel[k / 2 * kPanelOutputs];
                const uint16_t want = n < num_outputs && k < num_k ? weight[n * num_k + k] : uint16_t{0};
                ASSERT_EQ(k % 2 == 0 ? even_bits(pair) : odd_bits(pair), want) << n << " " << k;
            }
        }
    }
}

TEST(Panel, TheRaceIsWonByOneOfItsLoops) {
    for (const Isa isa : supported_isas()) {
        const MatmulChoice choice = matmul_choice(isa);
        for (const int64_t num_rows : {1, 2, 6, 7, 100}) {
            const auto loops = matmul_loops(cpu_ops(isa), num_rows);
            EXPECT_EQ(std::ranges::count(loops, choice.of_rows(num_rows)), 1) << isa_name(isa) << " " << num_rows;
        }
    }
    EXPECT_FALSE(matmul_choice({}, Profile::kTensorSm90).many.bands);
}

TEST(Isa, TheFastestIsSupported) {
    const auto isas = supported_isas();
    EXPECT_EQ(isas.front(), Isa::kPortable);
    EXPECT_NE(std::find(isas.begin(), isas.end(), best_isa()), isas.end());
}

}  // namespace
}  // namespace verbatim::cpu
