#include "kernels/simt/ptx_matrices.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "kernels/simt/emulated_mma.h"
#include "kernels/simt/ptx_operands.h"

namespace verbatim::simt {
namespace {

using Instruction = const PtxInstruction&;

// The elements' values, zeros behind them.
template <typename T, size_t kCount>
std::array<T, kCount> words_of(const PtxThread& thread, const PtxOperand& from) {
    std::array<T, kCount> values{};
    if (from.elements.empty()) values[0] = std::bit_cast<T>(static_cast<uint32_t>(thread.value(from)));
    for (size_t i = 0; i < std::min(kCount, from.elements.size()); ++i)
        values[i] = std::bit_cast<T>(static_cast<uint32_t>(thread.value(from.elements[i])));
    return values;
}

template <typename T>
void set_sums(PtxThread& thread, const PtxOperand& to, const std::array<T, 4>& sums) {
    for (size_t i = 0; i < std::min<size_t>(4, to.elements.size()); ++i)
        thread.set(to.elements[i], std::bit_cast<uint32_t>(sums[i]));
}

}  // namespace

size_t matrices_of(const std::vector<std::string>& words) {
    return static_cast<size_t>((words[1].empty() ? words[2] : words[1])[0] - '0');
}

void load_matrices_ptx(PtxThread& thread, Instruction one) {
    const int count = static_cast<int>(matrices_of(one.words));
    MatricesPart part{};
    if (lane_of_thread() < 8 * count) {
        const std::byte* const row = place_of(thread, one, 1, true, 16);
        if (row != nullptr) cuda_source::access(row, 16, false);
        if (row != nullptr && source.find(row) != nullptr) std::memcpy(part.row.values, row, 16);
    }
    Emulator::current().together(has(one, ".trans") ? complete_load_transposed : complete_load_matrices, &part,
                                 thread.where);
    const auto& to = one.operands[0];
    for (int i = 0; i < count; ++i)
        thread.set(to.elements.empty() ? to : to.elements[static_cast<size_t>(i)], part.received.values[i]);
}

void store_matrices_ptx(PtxThread& thread, Instruction one) {
    const auto count = matrices_of(one.words);
    MatricesPart part{};
    const auto& from = one.operands[1];
    for (size_t i = 0; i < count; ++i)
        part.row.values[i] = static_cast<uint32_t>(thread.value(from.elements.empty() ? from : from.elements[i]));
    Emulator::current().together(has(one, ".trans") ? complete_store_transposed : complete_store_matrices, &part,
                                 thread.where);
    if (lane_of_thread() >= static_cast<int>(8 * count)) return;
    std::byte* const row = place_of(thread, one, 0, true, 16);
    if (row == nullptr) return;
    cuda_source::access(row, 16, true);
    std::memcpy(row, part.received.values, 16);
}

// m16n8k16 and m16n8k8: the latter's upper half of k is zeros, which take no part.
void mma_floats(PtxThread& thread, Instruction one) {
    const auto a = words_of<uint32_t, 4>(thread, one.operands[1]);
    const auto b = words_of<uint32_t, 2>(thread, one.operands[2]);
    auto sums = words_of<float, 4>(thread, one.operands[3]);
    MmaPart part{{{a[0], a[1], a[2], a[3]}}, {b[0], b[1]}, sums.data()};
    Emulator::current().together(one.words[2] == "f16" ? complete_mma_f16 : complete_mma, &part, thread.where);
    set_sums(thread, one.operands[0], sums);
}

void mma_integers(PtxThread& thread, Instruction one) {
    const auto a = words_of<uint32_t, 4>(thread, one.operands[1]);
    const auto b = words_of<uint32_t, 2>(thread, one.operands[2]);
    auto sums = words_of<int32_t, 4>(thread, one.operands[3]);
    IntegerMmaPart part{{{a[0], a[1], a[2], a[3]}}, {b[0], b[1]},         sums.data(),
                        one.words[3] == "s8",       one.words[4] == "s8", has(one, ".satfinite")};
    Emulator::current().together(one.words[1] == "32" ? complete_mma_int8 : complete_mma_int8_k16, &part, thread.where);
    set_sums(thread, one.operands[0], sums);
}

}  // namespace verbatim::simt
