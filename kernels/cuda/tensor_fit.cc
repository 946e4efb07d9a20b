#include "kernels/cuda/tensor_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <climits>
#include <cmath>

#include "engine/base/check.h"
#include "engine/base/prng.h"
#include "reference/numerics/tensor_sm90.h"

namespace verbatim::cuda {
namespace {

using reference::bf16_to_float;
using reference::bits_from_float;
using reference::float_from_bits;
using reference::kTensorGroup;
using reference::TensorTerm;

constexpr int32_t kLeastExponent = -126;
constexpr size_t kFitTiles = 512;  // tiles used to describe a difference: thousands would take seconds
constexpr int kTermBits = 30;      // fraction bits of a term's significand here: more than any model keeps

struct Terms {
    TensorTerm terms[kTensorGroup + 1];
    int32_t exponents[kTensorGroup + 1];  // input of the alignment
};

int32_t exponent_of(float x) {
    const auto field = static_cast<int32_t>(bits_from_float(x) >> 23 & 0xFFU);
    return field == 0 ? kLeastExponent : field - 127;
}

Terms terms_of(const TensorModel& model, const uint16_t* a, const uint16_t* b, float acc, int first) {
    Terms all;
    constexpr int kMore = kTermBits - reference::kTensorFractionBits;
    const auto place = [&](int i, TensorTerm term, int32_t exponent) {
        const bool hidden = term.significand == 0 && model.zeros == TensorZeros::kTakeNoPart;
        term.significand <<= kMore;
        all.terms[i] = term;
        all.exponents[i] = hidden ? INT_MIN : exponent;
    };
    place(0, reference::tensor_accumulator(acc), exponent_of(acc));
    for (int i = 0; i < model.group; ++i) {
        const uint16_t x = a[first + i];
        const uint16_t y = b[first + i];
        place(i + 1, reference::tensor_product(x, y), exponent_of(bf16_to_float(x)) + exponent_of(bf16_to_float(y)));
    }
    return all;
}

// sum · 2^(exponent - fraction bits), to binary32.
float rounded(const TensorModel& model, int64_t sum, int32_t exponent) {
    if (sum == 0) return 0.0F;
    const bool negative = sum < 0;
    auto magnitude = static_cast<uint64_t>(negative ? -sum : sum);
    int32_t unit = exponent - model.fraction_bits;  // weight of magnitude's last bit
    // Weight of the last bit that the result keeps.
    const int32_t top = unit + static_cast<int32_t>(std::bit_width(magnitude)) - 1;
    const int32_t last = std::max(top, kLeastExponent) - 23;
    if (const int32_t lost = last - unit; lost > 0) {
        const uint64_t rest = lost < 64 ? magnitude & ((uint64_t{1} << lost) - 1) : magnitude;
        magnitude = lost < 64 ? magnitude >> lost : 0;
        const uint64_t half = lost <= 64 ? uint64_t{1} << (lost - 1) : 0;
        const bool up = half != 0 && (rest > half || (rest == half && magnitude % 2 == 1));
        if (model.rounding == TensorRounding::kNearest && up) ++magnitude;
        unit = last;
    }
    const double value = std::ldexp(static_cast<double>(magnitude), unit);  // exact: at most 25 bits, or an exact sum
    return static_cast<float>(negative ? -value : value);
}

float sum_of_group(const TensorModel& model, const uint16_t* a, const uint16_t* b, float acc, int first) {
    const Terms all = terms_of(model, a, b, acc, first);
    const int32_t largest = *std::max_element(all.exponents, all.exponents + model.group + 1);
    if (largest == INT_MIN) return 0.0F;
    int64_t sum = 0;
    for (int i = 0; i <= model.group; ++i) {
        const TensorTerm& term = all.terms[i];
        if (term.significand == 0) continue;
        const int64_t shift = int64_t{largest} - term.exponent + kTermBits - model.fraction_bits;
        const int64_t cut = shift < 63 ? term.significand >> shift : 0;
        sum += term.negative ? -cut : cut;
    }
    return rounded(model, sum, largest);
}

uint32_t comparable(float x) { return reference::is_nan(x) ? reference::kQuietNanBits : bits_from_float(x); }

std::vector<TensorModel> all_models() {
    std::vector<TensorModel> models;
    for (int32_t bits = 23; bits <= 27; ++bits) {
        for (const int32_t group : {16, 8}) {
            for (const TensorRounding rounding : {TensorRounding::kCut, TensorRounding::kNearest}) {
                for (const TensorZeros zeros : {TensorZeros::kTakeNoPart, TensorZeros::kHaveTheLeastExponent}) {
                    models.push_back({bits, group, rounding, zeros});
                }
            }
        }
    }
    return models;
}

int64_t num_same(const TensorModel& model, std::span<const TensorTile> tiles, std::span<const TensorSums> sums) {
    int64_t same = 0;
    for (size_t t = 0; t < tiles.size(); ++t) {
        const TensorSums wanted = multiply_by(model, tiles[t]);
        for (int i = 0; i < TensorSums::kCount; ++i) {
            same += comparable(wanted.d[i / 8][i % 8]) == comparable(sums[t].d[i / 8][i % 8]) ? 1 : 0;
        }
    }
    return same;
}

// Draws a tile's stored values and its accumulators (results of earlier groups: multiples of 2^-126).
class TileMaker {
public:
    explicit TileMaker(uint64_t seed) : prng_(seed) {}

    TensorTile make(int64_t t) {
        constexpr void (TileMaker::*kKinds[])() = {&TileMaker::spread,
                                                   &TileMaker::wide,
                                                   &TileMaker::tiny,
                                                   &TileMaker::huge,
                                                   &TileMaker::cancel,
                                                   &TileMaker::round,
                                                   &TileMaker::zero_next_to_huge,
                                                   &TileMaker::overflow,
                                                   &TileMaker::special};
        (this->*kKinds[static_cast<size_t>(t) % std::size(kKinds)])();
        return tile_;
    }

private:
    int64_t below(int64_t bound) { return static_cast<int64_t>(prng_.below(static_cast<uint64_t>(bound))); }
    uint16_t value(int64_t least, int64_t most) {
        const int64_t exponent = std::clamp<int64_t>(least + below(most - least + 1), -56, 127);
        return static_cast<uint16_t>(below(2) << 15 | (exponent + 127) << 7 | below(128));
    }
    float accumulator(int64_t least, int64_t most) {
        const int64_t exponent = std::clamp<int64_t>(least + below(most - least + 1), -103, 127);
        return float_from_bits(static_cast<uint32_t>(below(2) << 31 | (exponent + 127) << 23 | below(1 << 23)));
    }
    template <typename Draw>
    static void fill(uint16_t* first, int count, const Draw& draw) {
        std::generate_n(first, count, draw);
    }
    void draw(int64_t center, int64_t reach) {
        const auto near = [&] { return below(9) == 0 ? uint16_t{0} : value(center - reach, center + reach); };
        fill(&tile_.a[0][0], 16 * 16, near);
        fill(&tile_.b[0][0], 8 * 16, near);
        for (auto& row : tile_.c) {
            for (float& x : row) {
                x = below(6) == 0 ? 0.0F : accumulator(2 * center - 3 * reach, 2 * center + 2 * reach);
            }
        }
    }
    void spread() { draw(below(61) - 30, below(6)); }
    void wide() { draw(below(41) - 20, 8 + below(16)); }
    void tiny() { draw(-56 + below(8), 8); }
    void huge() { draw(56 + below(8), 8); }
    // Products 8 to 15 cancel 0 to 7: the result is what the alignment kept of the accumulator.
    void cancel() {
        draw(below(21) - 10, 4);
        for (int k = 0; k < 8; ++k) {
            for (auto& row : tile_.a) row[k + 8] = row[k] ^ 0x8000U;
            for (auto& column : tile_.b) column[k + 8] = column[k];
        }
    }
    // Terms near the last kept bits next to a far greater term: shows fraction bits and rounding.
    void round() {
        draw(-7, 6);
        for (auto& row : tile_.c) {
            for (float& x : row) x = accumulator(0, 4);
        }
    }
    // Every third product is tiny, the others are 0 times a huge value.
    void zero_next_to_huge() {
        draw(-54, 2);
        for (int k = 0; k < 16; ++k) {
            if (k % 3 == 0) continue;
            for (auto& row : tile_.a) row[k] = 0;
            for (auto& column : tile_.b) column[k] = value(60, 127);
        }
        for (auto& row : tile_.c) {
            for (float& x : row) x = accumulator(-103, -80);
        }
    }
    // Products beyond binary32 cancel in pairs; some leave a small rest.
    void overflow() {
        draw(90, 30);
        for (int k = 0; k < 16; k += 2) {
            for (auto& row : tile_.a) row[k + 1] = row[k] ^ 0x8000U;
            for (auto& column : tile_.b) column[k + 1] = below(8) == 0 ? column[k] ^ 1U : column[k];
        }
    }
    void special() {
        constexpr uint16_t kSpecials[] = {0x7F80, 0xFF80, 0x7FC0, 0x0000};
        draw(0, 3);
        tile_.a[below(16)][below(16)] = kSpecials[below(4)];
        tile_.b[below(8)][below(16)] = kSpecials[below(4)];
        tile_.c[below(16)][below(8)] = bf16_to_float(kSpecials[below(4)]);
    }

    Prng prng_;
    TensorTile tile_;
};

}  // namespace

float sum_by(const TensorModel& model, const uint16_t* a, const uint16_t* b, float acc) {
    CHECK(model.fraction_bits >= 16 && model.fraction_bits <= kTermBits, "{} fraction bits", model.fraction_bits);
    CHECK(model.group == 8 || model.group == kTensorGroup, "groups of {}", model.group);
    const uint32_t special = reference::tensor_special(a, b, acc);
    if (special != 0) return float_from_bits(special);
    for (int first = 0; first < kTensorGroup; first += model.group) {
        acc = sum_of_group(model, a, b, acc, first);
        if (!std::isfinite(acc)) return acc;  // the remaining products are finite
    }
    return acc;
}

TensorSums multiply_by(const TensorModel& model, const TensorTile& tile) {
    TensorSums sums;
    for (int row = 0; row < 16; ++row) {
        for (int column = 0; column < 8; ++column) {
            sums.d[row][column] = sum_by(model, tile.a[row], tile.b[column], tile.c[row][column]);
        }
    }
    return sums;
}

std::string describe(const TensorModel& model) {
    return fmt::format("{} fraction bits, groups of {}, {}, zeros {}", model.fraction_bits, model.group,
                       model.rounding == TensorRounding::kCut ? "cut toward zero" : "rounded to nearest",
                       model.zeros == TensorZeros::kTakeNoPart ? "take no part" : "have the least exponent");
}

TensorFit fit_tensor_cores(std::span<const TensorTile> tiles, std::span<const TensorSums> sums) {
    CHECK(tiles.size() == sums.size(), "{} tiles, {} results", tiles.size(), sums.size());
    TensorFit fit{.num_sums = std::ssize(tiles) * TensorSums::kCount, .num_same = -1, .models = {}};
    for (const TensorModel& model : all_models()) {
        const int64_t same = num_same(model, tiles, sums);
        if (same < fit.num_same) continue;
        if (same > fit.num_same) fit.models.clear();
        fit.num_same = same;
        fit.models.push_back(model);
    }
    return fit;
}

std::vector<TensorTile> tensor_tiles(int64_t count) {
    CHECK(count >= 0, "{} tiles", count);
    TileMaker maker(90);
    std::vector<TensorTile> tiles;
    for (int64_t t = 0; t < count; ++t) tiles.push_back(maker.make(t));
    return tiles;
}

std::string difference_from_hopper(std::span<const TensorTile> tiles, std::span<const TensorSums> sums) {
    CHECK(tiles.size() == sums.size(), "{} tiles, {} results", tiles.size(), sums.size());
    int64_t num_others = 0;
    std::string first;
    for (size_t t = 0; t < tiles.size(); ++t) {
        for (int i = 0; i < TensorSums::kCount; ++i) {
            const TensorTile& tile = tiles[t];
            const float wanted = reference::tensor_group(tile.a[i / 8], tile.b[i % 8], tile.c[i / 8][i % 8]);
            const float got = sums[t].d[i / 8][i % 8];
            if (comparable(got) == comparable(wanted) || ++num_others > 1) continue;
            first = fmt::format("tile {}, row {}, column {} has {:08x}, wanted {:08x}", t, i / 8, i % 8,
                                bits_from_float(got), bits_from_float(wanted));
        }
    }
    if (num_others == 0) return {};
    const size_t num_fitted = std::min(tiles.size(), kFitTiles);
    const TensorFit fit = fit_tensor_cores(tiles.first(num_fitted), sums.first(num_fitted));
    std::vector<std::string> best;
    for (const TensorModel& model : fit.models) best.push_back(describe(model));
    return fmt::format("{} of {} sums are not those of {}: {}; best fit, {} of {}: {}", num_others,
                       std::ssize(tiles) * TensorSums::kCount, describe(kHopper), first, fit.num_same, fit.num_sums,
                       fmt::join(best, ", or "));
}

}  // namespace verbatim::cuda
