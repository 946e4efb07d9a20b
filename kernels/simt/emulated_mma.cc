#include "kernels/simt/emulated_mma.h"

#include <algorithm>
#include <utility>

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
bool is_finite(const Line& line) {
    return std::all_of(line, line + kMmaK, [](uint16_t bits) { return (bits & 0x7F80) != 0x7F80; });
}

TensorCores& current_cores() {
    static TensorCores cores{&reference::tensor_group, &reference::tensor_group};
    return cores;
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

void complete_mma(void* const (&parts)[kWarpSize]) {
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
    const TensorSum sum = tensor_cores().of_warps;
    const bool is_model = sum == &reference::tensor_group;
    const bool finite = is_model && std::all_of(a, a + kMmaRows, is_finite);
    for (int lane = 0; lane < kWarpSize; ++lane) {
        const auto& part = *static_cast<const MmaPart*>(parts[lane]);
        for (int i = 0; i < 4; ++i) {
            const int column = lane % 4 * 2 + i % 2;
            if (finite && is_zero(b[column])) continue;  // padding: adds nothing
            part.acc[i] = sum(a[lane / 4 + i / 2 * 8], b[column], part.acc[i]);
        }
    }
}

}  // namespace verbatim::simt
