#include "kernels/simt/source_multiply.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/simt/emulated_wgmma.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {
namespace {

constexpr size_t kVector = 16;  // bytes of eight elements, which a descriptor's strides move

// --- matrices in shared memory (PTX, "Matrix-Descriptor Format" and "Strides")

struct Descriptor {
    uint32_t address;          // of 18 bits
    uint32_t leading, stride;  // bytes
    uint32_t row_bytes;        // 16: without a swizzle, 32, 64 or 128

    explicit Descriptor(uint64_t bits)
        : address(part(bits, 0)), leading(part(bits, 16)), stride(part(bits, 32)), row_bytes(kRowBytes[bits >> 62]) {
        if ((bits >> 49 & 7U) == 0) return;
        Emulator::current().found(FindingKind::kMisaligned,
                                  "a matrix descriptor has a base offset, which is not taken: its matrix begins at a "
                                  "multiple of what its swizzle repeats");
    }

    // Where the vector of eight elements is that holds element (mn, k): along k, or along mn if it is transposed.
    [[nodiscard]] uint32_t address_of(uint32_t mn, uint32_t k, bool is_transposed) const {
        const uint32_t across = mn / 8, width = row_bytes / kVector;
        uint32_t at = address;
        if (is_transposed) {
            at += k % 8 * row_bytes;
            at += row_bytes == kVector ? across * stride + k / 8 * leading
                                       : across % width * 16 + across / width * leading + k / 8 * stride;
        } else {
            at += mn % 8 * row_bytes + across * stride + k / 8 * (row_bytes == kVector ? leading : 16);
        }
        return swizzled(at, row_bytes);
    }

private:
    static constexpr uint32_t kRowBytes[] = {16, 128, 64, 32};
    static uint32_t part(uint64_t bits, int from) { return static_cast<uint32_t>(bits >> from & 0x3FFFU) << 4; }
};

// The host's place of 16 bytes at an address of 18 bits; null: they are in no shared array, and found.
const std::byte* place_of(uint32_t address) {
    constexpr uint32_t kWindow = 1U << 18;
    for (const SourceRange& one : source.shared()) {
        const uint32_t at = (address - one.window) % kWindow;
        if (at + kVector <= one.num_bytes) return one.begin + at;
    }
    Emulator::current().found(FindingKind::kOutOfBounds,
                              fmt::format("a matrix descriptor reaches shared address {:#x}, which is in no shared "
                                          "array",
                                          address % kWindow));
    return nullptr;
}

// Rows [begin, begin + count) of a matrix, 16 k each, read by the running thread's multiplication.
std::vector<uint16_t> read_matrix(const Descriptor& from, uint32_t begin, uint32_t count, bool is_transposed,
                                  bool is_negative) {
    std::vector<uint16_t> values(size_t{count} * kMmaK);
    const Now agent = Emulator::current().multiplying();
    for (uint32_t vector = 0; vector < count * 2; ++vector) {
        const uint32_t mn = begin + (is_transposed ? vector / 16 * 8 : vector / 2);
        const uint32_t k = is_transposed ? vector % 16 : vector % 2 * 8;
        const std::byte* const place = place_of(from.address_of(mn, k, is_transposed));
        if (place == nullptr) break;
        const SourceRange& range = *source.find(place);
        report(range.memory->read(range.offset_of(place), kVector, agent), range, place);
        uint16_t eight[8];
        std::memcpy(eight, place, sizeof eight);
        for (uint32_t i = 0; i < 8; ++i) {
            const size_t row = mn - begin + (is_transposed ? i : 0);
            values[row * kMmaK + k + (is_transposed ? 0 : i)] = eight[i] ^ (is_negative ? 0x8000U : 0U);
        }
    }
    return values;
}

// --- what multiplications hold

struct Sum {
    uint32_t group = 0;  // the last multiplication's
    bool is_changed = false;
    uint32_t changed_at = 0;  // fences then
};
OfThreads<std::map<const std::byte*, Sum>> sums_of_threads;  // by the sum's place

void hold(const PtxThread& thread, const PtxOperand& sums) {
    Emulator& emulator = Emulator::current();
    const ThreadAsync& async = emulator.thread().async;
    bool has_changed = async.num_fences == 0;
    for (const PtxOperand& one : sums.elements) {
        const auto index = static_cast<size_t>(one.index);
        if (one.kind != PtxOperand::Kind::kRegister || index >= thread.operands.count) continue;
        Sum& sum = sums_of_threads.of_running()[thread.operands.places[index]];
        has_changed |= sum.is_changed && sum.changed_at == async.num_fences;
        sum = {async.groups + 1, false, 0};
    }
    if (has_changed)
        emulator.found(FindingKind::kMissingFence, "sums have changed with no wgmma.fence before the multiplication");
}

bool operand_is(int32_t wanted, const PtxThread& thread, const PtxInstruction& one, size_t i) {
    return i < one.operands.size() && static_cast<int32_t>(thread.value(one.operands[i])) == wanted;
}

}  // namespace

void forget_sums() { sums_of_threads.clear(); }

void look_at_sums(const std::byte* address, size_t num_bytes, bool is_write) {
    if (sums_of_threads.empty()) return;
    Emulator& emulator = Emulator::current();
    const ThreadAsync& async = emulator.thread().async;
    auto& places = sums_of_threads.of_running();
    constexpr size_t kBytes = 4;  // of a sum
    for (auto at = places.lower_bound(address - (kBytes - 1)); at != places.end() && at->first < address + num_bytes;
         ++at) {
        if (at->second.group > async.done) {
            emulator.found(FindingKind::kNotAwaited, fmt::format("sums {} before the multiplication is waited for",
                                                                 is_write ? "change" : "are read"));
        }
        if (is_write) at->second = {at->second.group, true, async.num_fences};
    }
}

size_t columns_of_wgmma(const std::string& digits) {
    const size_t columns = digits.size() > 3 ? 0 : std::stoul(digits);
    return columns % 8 == 0 && columns <= 256 ? columns : 0;
}

void multiply_ptx(PtxThread& thread, const PtxInstruction& one) {
    Emulator& emulator = Emulator::current();
    const auto& operands = one.operands;
    const bool a_is_shared = operands[1].elements.empty();
    const auto columns = static_cast<uint32_t>(operands[0].elements.size() * 2);
    hold(thread, operands[0]);
    std::vector<float> sums;
    const bool from_zero = thread.value(operands[3]) == 0;
    for (const PtxOperand& sum : operands[0].elements)
        sums.push_back(from_zero ? 0.0F : std::bit_cast<float>(static_cast<uint32_t>(thread.value(sum))));
    GroupMmaPart part{};
    const bool is_negative = operand_is(-1, thread, one, 4);
    for (size_t i = 0; i < operands[1].elements.size(); ++i)
        part.a.values[i] =
            static_cast<uint32_t>(thread.value(operands[1].elements[i])) ^ (is_negative ? 0x80008000U : 0);
    // A's last two words are "transposed" of A, if it is shared, and of B.
    const bool transposes_a = a_is_shared && operand_is(1, thread, one, 6);
    const bool transposes_b = operand_is(1, thread, one, a_is_shared ? 7 : 6);
    std::vector<uint16_t> a, b;
    const int32_t in_group = emulator.thread().index % kWarpgroupSize;
    if (in_group % kWarpSize == 0) {
        b = read_matrix(Descriptor(thread.value(operands[2])), 0, columns, transposes_b,
                        operand_is(-1, thread, one, 5));
        // Each warp reads its 16 rows of A; the first has all of them.
        const uint32_t rows = in_group == 0 ? kGroupMmaRows : kMmaRows;
        if (a_is_shared)
            a = read_matrix(Descriptor(thread.value(operands[1])),
                            static_cast<uint32_t>(in_group / kWarpSize * kMmaRows), rows, transposes_a, is_negative);
    }
    part.sums = sums.data();
    part.num_columns = static_cast<int>(columns);
    part.from_zero = from_zero;
    part.columns = b.data();
    part.rows = a.empty() ? nullptr : a.data();
    part.is_f16 = one.words[2] == "f16";
    emulator.group_together(complete_group_mma, &part, thread.where);
    for (size_t i = 0; i < sums.size(); ++i) thread.set(operands[0].elements[i], std::bit_cast<uint32_t>(sums[i]));
}

void multiply_fence_ptx(PtxThread&, const PtxInstruction&) { Emulator::current().multiply_fence(); }
void commit_multiply_ptx(PtxThread&, const PtxInstruction&) { Emulator::current().commit_multiplications(); }
void wait_multiply_ptx(PtxThread& thread, const PtxInstruction& one) {
    Emulator::current().wait_multiplications(static_cast<uint32_t>(thread.value(one.operands[0])), thread.where);
}

}  // namespace verbatim::simt
