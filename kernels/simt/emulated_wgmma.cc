#include "kernels/simt/emulated_wgmma.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/simt/emulated_mma.h"
#include "kernels/simt/types.h"
#include "reference/numerics/tensor_f16.h"
#include "reference/numerics/tensor_sm90.h"

namespace verbatim::simt {
namespace {

constexpr int kWords = kMmaK / 2;

struct Multiplicand {
    uint16_t k[kMmaK];
    bool is_finite = true;
    bool is_zero = true;

    void place(int first, uint32_t pair, bool is_f16) {
        k[first] = static_cast<uint16_t>(pair);
        k[first + 1] = static_cast<uint16_t>(pair >> 16);
        const int exponent = is_f16 ? 0x7C00 : 0x7F80;
        for (int i = first; i < first + 2; ++i) {
            is_finite &= (k[i] & exponent) != exponent;
            is_zero &= (k[i] & 0x7FFF) == 0;
        }
    }
    void place_all(const uint16_t* values, bool is_f16) {
        for (int i = 0; i < kMmaK; i += 2) place(i, values[i] | static_cast<uint32_t>(values[i + 1]) << 16, is_f16);
    }
};

std::vector<Multiplicand> rows_of(std::span<void* const> parts) {
    std::vector<Multiplicand> rows(kGroupMmaRows);
    const auto& first = *static_cast<const GroupMmaPart*>(parts[0]);
    for (size_t row = 0; row < rows.size() && first.rows != nullptr; ++row)
        rows[row].place_all(first.rows + row * kMmaK, first.is_f16);
    if (first.rows != nullptr) return rows;
    for (int thread = 0; thread < kWarpgroupSize; ++thread) {
        const auto& part = *static_cast<const GroupMmaPart*>(parts[static_cast<size_t>(thread)]);
        const int row = thread / kWarpSize * kMmaRows + thread % kWarpSize / 4;
        const int k = thread % 4 * 2;
        for (int i = 0; i < 4; ++i) rows[row + i % 2 * 8].place(k + i / 2 * 8, part.a.values[i], part.is_f16);
    }
    return rows;
}

std::vector<Multiplicand> columns_of(const GroupMmaPart& part) {
    std::vector<Multiplicand> columns(static_cast<size_t>(part.num_columns));
    for (size_t column = 0; column < columns.size() && part.columns != nullptr; ++column)
        columns[column].place_all(part.columns + column * kMmaK, part.is_f16);
    if (part.columns != nullptr) return columns;
    for (int column = 0; column < part.num_columns; ++column) {
        for (int word = 0; word < kWords; ++word) {
            uint32_t pair = 0;
            const int at = tile_word(column, 2 * part.group + word / 4) + word % 4;
            std::memcpy(&pair, part.tile + 4 * at, sizeof(pair));
            columns[static_cast<size_t>(column)].place(2 * word, pair, part.is_f16);
        }
    }
    return columns;
}

}  // namespace

void complete_group_mma(std::span<void* const> parts) {
    const auto& first = *static_cast<const GroupMmaPart*>(parts[0]);
    if (first.tile == nullptr && first.columns == nullptr) return;
    const TensorSum multiply = first.is_f16 ? &reference::tensor_group_f16 : tensor_cores().of_groups;
    const bool is_model = first.is_f16 || multiply == &reference::tensor_group;
    const std::vector<Multiplicand> rows = rows_of(parts);
    const std::vector<Multiplicand> columns = columns_of(first);
    for (int thread = 0; thread < kWarpgroupSize; ++thread) {
        const auto& part = *static_cast<const GroupMmaPart*>(parts[static_cast<size_t>(thread)]);
        for (int i = 0; i < part.num_columns / 2; ++i) {
            const Multiplicand& a = rows[thread / kWarpSize * kMmaRows + thread % kWarpSize / 4 + i % 4 / 2 * 8];
            const Multiplicand& b = columns[i / 4 * 8 + thread % 4 * 2 + i % 2];
            const float sum = part.from_zero ? 0.0F : part.sums[i];
            const bool adds_nothing = is_model && ((a.is_zero && b.is_finite) || (b.is_zero && a.is_finite));
            part.sums[i] = adds_nothing ? sum : multiply(a.k, b.k, sum);
        }
    }
}

}  // namespace verbatim::simt
