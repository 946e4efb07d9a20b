#include "kernels/simt/emulated_mma.h"

#include <algorithm>
#include <utility>

#include "reference/numerics/tensor_f16.h"
#include "reference/numerics/tensor_sm90.h"

namespace verbatim::simt {
namespace {

using reference::kTensorGroup;
static_assert(kMmaK == kTensorGroup, "one mma is one group of every sum");

using Line = uint16_t[kMmaK];  // a row of A or a column of B

void place(Line& line, int k, uint32_t pair) {
    line[k] = static_cast<uint16_t>(pair);
    line[k + 1] = static_cast<uint16_t>(pair >> 16);
}

bool is_zero(const Line& line) {
    return std::all_of(line, line + kMmaK, [](uint16_t bits) { return (bits & 0x7FFF) == 0; });
}
bool is_finite(const Line& line, uint16_t exponent) {
    return std::all_of(line, line + kMmaK, [=](uint16_t bits) { return (bits & exponent) != exponent; });
}

TensorCores& current_cores() {
    static TensorCores cores{&reference::tensor_group, &reference::tensor_group};
    return cores;
}

// `exponent`: the exponent's bits of an element. `skips`: sum() adds nothing where a column is zero and A is finite.
void multiply(void* const (&parts)[kWarpSize], TensorSum sum, uint16_t exponent, bool skips) {
    Line a[kMmaRows];
    Line b[kMmaColumns];
    for (int lane = 0; lane < kWarpSize; ++lane) {
        const auto& part = *static_cast<const MmaPart*>(parts[lane]);
        const int g = lane / 4;
        const int k = lane % 4 * 2;
        place(a[g], k, part.a.values[0]);
        place(a[g + 8], k, part.a.values[1]);
        place(a[g], k + 8, part.a.values[2]);
        place(a[g + 8], k + 8, part.a.values[3]);
        place(b[g], k, part.b[0]);
        place(b[g], k + 8, part.b[1]);
    }
    const bool finite =
        skips && std::all_of(a, a + kMmaRows, [=](const Line& line) { return is_finite(line, exponent); });
    for (int lane = 0; lane < kWarpSize; ++lane) {
        const auto& part = *static_cast<const MmaPart*>(parts[lane]);
        for (int i = 0; i < 4; ++i) {
            const int column = lane % 4 * 2 + i % 2;
            if (finite && is_zero(b[column])) continue;  // padding: adds nothing
            part.acc[i] = sum(a[lane / 4 + i / 2 * 8], b[column], part.acc[i]);
        }
    }
}

// k of a word's byte: lane 4g + c holds 4c to 4c + 3 of each 16.
template <int kDepth>
void multiply_integers(void* const (&parts)[kWarpSize]) {
    int32_t a[kMmaRows][kDepth];
    int32_t b[kMmaColumns][kDepth];
    const auto byte_of = [](uint32_t word, int i, bool is_signed) -> int32_t {
        const auto bits = static_cast<uint8_t>(word >> (8 * i));
        return is_signed ? static_cast<int8_t>(bits) : bits;
    };
    for (int lane = 0; lane < kWarpSize; ++lane) {
        const auto& part = *static_cast<const IntegerMmaPart*>(parts[lane]);
        for (int k = 0; k < kDepth; ++k) {
            if (k % 16 / 4 != lane % 4) continue;
            for (int half = 0; half < 2; ++half)
                a[lane / 4 + 8 * half][k] = byte_of(part.a.values[k / 16 * 2 + half], k % 4, part.a_is_signed);
            b[lane / 4][k] = byte_of(part.b[k / 16], k % 4, part.b_is_signed);
        }
    }
    for (int lane = 0; lane < kWarpSize; ++lane) {
        const auto& part = *static_cast<const IntegerMmaPart*>(parts[lane]);
        for (int i = 0; i < 4; ++i) {
            int64_t sum = part.acc[i];
            for (int k = 0; k < kDepth; ++k) sum += int64_t{a[lane / 4 + i / 2 * 8][k]} * b[lane % 4 * 2 + i % 2][k];
            if (part.saturates) sum = std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX);
            part.acc[i] = static_cast<int32_t>(static_cast<uint32_t>(sum));
        }
    }
}

}  // namespace

const TensorCores& tensor_cores() { return current_cores(); }
PlantedTensorCores::PlantedTensorCores(const TensorCores& others) : before_(std::exchange(current_cores(), others)) {}
PlantedTensorCores::~PlantedTensorCores() { current_cores() = before_; }

void complete_load_matrices(void* const (&parts)[kWarpSize]) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
        auto& part = *static_cast<MatricesPart*>(parts[lane]);
        for (int matrix = 0; matrix < 4; ++matrix) {
            const auto& source = *static_cast<const MatricesPart*>(parts[8 * matrix + lane / 4]);
            part.received.values[matrix] = source.row.values[lane % 4];
        }
    }
}

void complete_store_matrices(void* const (&parts)[kWarpSize]) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
        auto& part = *static_cast<MatricesPart*>(parts[lane]);
        for (int word = 0; word < 4; ++word) {
            const auto& source = *static_cast<const MatricesPart*>(parts[lane % 8 * 4 + word]);
            part.received.values[word] = source.row.values[lane / 8];
        }
    }
}
void complete_store_transposed(void* const (&parts)[kWarpSize]) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
        auto& part = *static_cast<MatricesPart*>(parts[lane]);
        const auto element = [&](int column) {
            const auto& source = *static_cast<const MatricesPart*>(parts[column * 4 + lane % 8 / 2]);
            return source.row.values[lane / 8] >> (lane % 2 * 16) & 0xFFFFU;
        };
        for (int word = 0; word < 4; ++word)
            part.received.values[word] = element(2 * word) | element(2 * word + 1) << 16;
    }
}
void complete_load_transposed(void* const (&parts)[kWarpSize]) {
    for (int lane = 0; lane < kWarpSize; ++lane) {
        auto& part = *static_cast<MatricesPart*>(parts[lane]);
        for (int matrix = 0; matrix < 4; ++matrix) {
            const auto element = [&](int row) {
                const auto& source = *static_cast<const MatricesPart*>(parts[8 * matrix + row]);
                return source.row.values[lane / 4 / 2] >> (lane / 4 % 2 * 16) & 0xFFFFU;
            };
            part.received.values[matrix] = element(lane % 4 * 2) | element(lane % 4 * 2 + 1) << 16;
        }
    }
}

void complete_mma(void* const (&parts)[kWarpSize]) {
    const TensorSum sum = tensor_cores().of_warps;
    multiply(parts, sum, 0x7F80, sum == &reference::tensor_group);
}
void complete_mma_f16(void* const (&parts)[kWarpSize]) { multiply(parts, &reference::tensor_group_f16, 0x7C00, true); }

void complete_mma_int8(void* const (&parts)[kWarpSize]) { multiply_integers<32>(parts); }
void complete_mma_int8_k16(void* const (&parts)[kWarpSize]) { multiply_integers<16>(parts); }

}  // namespace verbatim::simt
