// The PTX instructions that inline PTX may have, each with what it does in a thread of the emulator.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <regex>
#include <utility>

#include "kernels/simt/emulator.h"
#include "kernels/simt/ptx_arithmetic.h"
#include "kernels/simt/ptx_conversions.h"
#include "kernels/simt/ptx_copies.h"
#include "kernels/simt/ptx_matrices.h"
#include "kernels/simt/ptx_operands.h"
#include "kernels/simt/ptx_program.h"
#include "kernels/simt/ptx_values.h"
#include "kernels/simt/ptx_warps.h"
#include "kernels/simt/source_maps.h"
#include "kernels/simt/source_multiply.h"
#include "kernels/simt/source_state.h"

namespace verbatim::simt {
namespace {

using Instruction = const PtxInstruction&;

// --- barriers

EmulatedBarrier* barrier_of(const PtxThread& thread, Instruction one, size_t i) {
    return source_barrier(place_of(thread, one, i, has(one, ".shared"), 8));
}
void barrier_init(PtxThread& thread, Instruction one) {
    if (EmulatedBarrier* const barrier = barrier_of(thread, one, 0)) {
        const auto count = static_cast<int32_t>(value_of(thread, one, 1));
        if (count < 1) return Emulator::current().found(FindingKind::kBarrierUse, "a barrier of no arrivals");
        Emulator::current().barrier_init(*barrier, count, thread.where);
    }
}
void barrier_invalidate(PtxThread& thread, Instruction one) {
    if (EmulatedBarrier* const barrier = barrier_of(thread, one, 0))
        Emulator::current().barrier_invalidate(*barrier, thread.where);
}
// The state that an arrival returns is the parity of its phase.
void barrier_arrive(PtxThread& thread, Instruction one) {
    EmulatedBarrier* const barrier = barrier_of(thread, one, 1);
    if (barrier == nullptr) return;
    const bool expects = has(one, ".expect_tx");
    const auto number = static_cast<uint32_t>(value_of(thread, one, 2));
    thread.set(one.operands[0], barrier->phase & 1U);
    const uint32_t arrivals = expects || one.operands.size() < 3 ? 1 : number;
    for (uint32_t i = 0; i < arrivals; ++i)
        Emulator::current().barrier_arrive(*barrier, expects ? number : 0, thread.where);
}
void barrier_drop(PtxThread& thread, Instruction one) {
    EmulatedBarrier* const barrier = barrier_of(thread, one, 1);
    if (barrier == nullptr) return;
    thread.set(one.operands[0], barrier->phase & 1U);
    Emulator::current().barrier_drop(*barrier, thread.where);
}
void copies_arrive(PtxThread& thread, Instruction one) {
    if (EmulatedBarrier* const barrier = barrier_of(thread, one, 0)) {
        using CopiesArrive = Emulator::CopiesArrive;
        Emulator::current().copies_arrive(
            *barrier, has(one, ".noinc") ? CopiesArrive::kCounted : CopiesArrive::kUncounted, thread.where);
    }
}
void barrier_expect(PtxThread& thread, Instruction one) {
    if (EmulatedBarrier* const barrier = barrier_of(thread, one, 0))
        barrier->expected_bytes += static_cast<uint32_t>(value_of(thread, one, 1));
}
// A thread's first test_wait of a phase that is not over is answered "not yet". All others wait here until it is, so
// that a loop around them ends.
void barrier_wait(PtxThread& thread, Instruction one) {
    if (EmulatedBarrier* const barrier = barrier_of(thread, one, 1)) {
        if (has(one, "test_wait") && Emulator::current().is_not_yet(*barrier, value_of(thread, one, 2) & 1U))
            return thread.set(one.operands[0], 0);
        Emulator::current().barrier_wait(*barrier, value_of(thread, one, 2) & 1U, thread.where,
                                         Emulator::WaitAgain::kAllowed);
    }
    thread.set(one.operands[0], 1);
}
void block_barrier(PtxThread& thread, Instruction one) {
    Emulator& emulator = Emulator::current();
    const auto number = static_cast<int32_t>(value_of(thread, one, 0));
    const Dim3 block = emulator.block_size();
    const int32_t all = block.x * block.y * block.z;
    const int32_t threads = one.operands.size() > 1 ? static_cast<int32_t>(value_of(thread, one, 1)) : all;
    const bool arrives = has(one, ".arrive");
    if (number == 0 && threads == all && !arrives) return emulator.sync_block(thread.where);
    if (number < 1 || number > 15 || threads < 1 || threads % kWarpSize != 0) {
        return emulator.found(FindingKind::kBarrierUse,
                              fmt::format("{} {} for {} threads: named barriers are 1 to 15, for whole warps",
                                          one.words[0], number, threads));
    }
    arrives ? emulator.named_arrive(number, threads) : emulator.named_barrier(number, threads, thread.where);
}
void warp_barrier(PtxThread& thread, Instruction one) {
    Emulator::current().sync_warp(static_cast<uint32_t>(value_of(thread, one, 0)), thread.where);
}
void nothing(PtxThread&, Instruction) {}
cuda_source::Scope scope_of(Instruction one) {
    if (has(one, ".cta")) return cuda_source::Scope::kBlock;
    return has(one, ".cluster") ? cuda_source::Scope::kCluster : cuda_source::Scope::kDevice;
}
void fence_ptx(PtxThread&, Instruction one) { cuda_source::fence(scope_of(one)); }
void wait_previous_ptx(PtxThread& thread, Instruction) { cuda_source::wait_previous(thread.where); }

// --- memory

void load(PtxThread& thread, Instruction one) {
    const auto bytes = static_cast<size_t>(ptx_bits(one.words[3])) / 8;
    const auto count = static_cast<size_t>(one.words[2].empty() ? 1 : one.words[2][2] - '0');
    const std::byte* const from = place_of(thread, one, 1, has(one, ".shared"), bytes * count);
    if (from != nullptr && has(one, ".nc")) cuda_source::read_only(from, bytes * count);
    if (from != nullptr) cuda_source::access(from, bytes * count, false);
    for (size_t i = 0; i < count; ++i) {
        uint64_t bits = 0;
        if (from != nullptr) std::memcpy(&bits, from + i * bytes, bytes);
        if (one.words[3][0] == 's')
            bits = ptx_cut(static_cast<uint64_t>(ptx_signed(bits, static_cast<int>(8 * bytes))), 64);
        thread.set(one.operands[0].elements.empty() ? one.operands[0] : one.operands[0].elements[i], bits);
    }
}
void store(PtxThread& thread, Instruction one) {
    const auto bytes = static_cast<size_t>(ptx_bits(one.words[3])) / 8;
    const auto count = static_cast<size_t>(one.words[2].empty() ? 1 : one.words[2][2] - '0');
    std::byte* const to = place_of(thread, one, 0, has(one, ".shared"), bytes * count);
    if (to != nullptr) cuda_source::access(to, bytes * count, true);
    for (size_t i = 0; i < count && to != nullptr; ++i) {
        const uint64_t bits =
            thread.value(one.operands[1].elements.empty() ? one.operands[1] : one.operands[1].elements[i]);
        std::memcpy(to + i * bytes, &bits, bytes);
    }
}
// Loads and stores that are atomic: .relaxed, .volatile, .acquire, .release.
void load_ordered(PtxThread& thread, Instruction one) {
    const auto bytes = static_cast<size_t>(ptx_bits(one.words[3])) / 8;
    const std::byte* const from = place_of(thread, one, 1, has(one, ".shared"), bytes);
    uint64_t bits = 0;
    if (from != nullptr) cuda_source::ordered_access(from, bytes, false, true, scope_of(one));
    if (from != nullptr) std::memcpy(&bits, from, bytes);
    if (one.words[3][0] == 's') bits = static_cast<uint64_t>(ptx_signed(bits, static_cast<int>(8 * bytes)));
    thread.set(one.operands[0], bits);
}
void store_ordered(PtxThread& thread, Instruction one) {
    const auto bytes = static_cast<size_t>(ptx_bits(one.words[3])) / 8;
    std::byte* const to = place_of(thread, one, 0, has(one, ".shared"), bytes);
    if (to == nullptr) return;
    cuda_source::ordered_access(to, bytes, true, has(one, ".release"), scope_of(one));
    const uint64_t bits = thread.value(one.operands[1]);
    std::memcpy(to, &bits, bytes);
}
void to_shared_address(PtxThread& thread, Instruction one) {
    thread.set(one.operands[0], window_address(place_of(thread, one, 1, false, 0)));
}
void copy_value(PtxThread& thread, Instruction one) { thread.set(one.operands[0], value_of(thread, one, 1)); }

// --- values

// Also between a register and a vector of its parts.
void move(PtxThread& thread, Instruction one) {
    const int bits = ptx_bits(one.words[1]);
    const PtxOperand &to = one.operands[0], &from = one.operands[1];
    const auto part = static_cast<int>(bits / std::max<size_t>(1, std::max(to.elements.size(), from.elements.size())));
    uint64_t whole = 0;
    for (size_t i = 0; i < from.elements.size(); ++i)
        whole |= ptx_cut(thread.value(from.elements[i]), part) << (static_cast<int>(i) * part);
    if (from.elements.empty()) whole = thread.value(from);
    for (size_t i = 0; i < to.elements.size(); ++i)
        thread.set(to.elements[i], ptx_cut(whole >> (static_cast<int>(i) * part), part));
    if (to.elements.empty()) thread.set(to, ptx_cut(whole, bits));
}

bool compared(const std::string& how, const std::string& type, uint64_t a, uint64_t b) {
    const auto decide = [&](auto x, auto y) {
        return how.starts_with("eq")   ? x == y
               : how.starts_with("ne") ? x != y
               : how.starts_with("lt") ? x < y
               : how.starts_with("le") ? x <= y
               : how.starts_with("gt") ? x > y
                                       : x >= y;
    };
    const int bits = ptx_bits(type);
    if (type == "f32") {
        // With a NaN, "ne" is false as well; "neu" and its like are true.
        const bool is_unordered = std::isnan(ptx_float(a)) || std::isnan(ptx_float(b));
        return is_unordered ? how.size() == 3 : decide(ptx_float(a), ptx_float(b));
    }
    return type[0] == 's' ? decide(ptx_signed(a, bits), ptx_signed(b, bits))
                          : decide(ptx_cut(a, bits), ptx_cut(b, bits));
}
void set_predicate(PtxThread& thread, Instruction one) {
    thread.set(one.operands[0],
               compared(one.words[1], one.words[2], value_of(thread, one, 1), value_of(thread, one, 2)) ? 1 : 0);
}
void select(PtxThread& thread, Instruction one) {
    thread.set(one.operands[0], value_of(thread, one, value_of(thread, one, 3) != 0 ? 1 : 2));
}

void integers(PtxThread& thread, Instruction one) {
    const std::string& type = one.words[2];
    const int bits = ptx_bits(type);
    const bool is_signed = type[0] == 's';
    const auto take = [&](size_t i) {
        const uint64_t got = value_of(thread, one, i);
        return is_signed ? ptx_signed(got, bits) : static_cast<int64_t>(ptx_cut(got, bits));
    };
    int64_t result = ptx_of_integers(one.words[1], take(1), take(2), bits, is_signed);
    if (one.words[1] == "mad")
        result = static_cast<int64_t>(static_cast<uint64_t>(result) + static_cast<uint64_t>(take(3)));
    thread.set(one.operands[0], ptx_cut(static_cast<uint64_t>(result), bits));
}

void predicates(PtxThread& thread, Instruction one) {
    const bool a = value_of(thread, one, 1) != 0, b = value_of(thread, one, 2) != 0;
    const std::string& what = one.words[1];
    thread.set(one.operands[0], (what == "and" ? a && b : what == "or" ? a || b : a != (what == "not" || b)) ? 1 : 0);
}
// All bits of the product, also with an addend, or the upper half of them.
void multiply_wide(PtxThread& thread, Instruction one) {
    const int bits = ptx_bits(one.words[2]);
    const bool is_signed = one.words[2][0] == 's';
    const auto take = [&](size_t i) {
        const uint64_t got = value_of(thread, one, i);
        return is_signed ? static_cast<uint64_t>(ptx_signed(got, bits)) : ptx_cut(got, bits);
    };
    const uint64_t product = take(1) * take(2) + (one.operands.size() > 3 ? value_of(thread, one, 3) : 0);
    thread.set(one.operands[0], one.words[1] == "wide" ? ptx_cut(product, 2 * bits) : ptx_cut(product >> bits, bits));
}
uint32_t byte_of(const PtxThread& thread, Instruction one, size_t i) {
    return static_cast<uint32_t>(value_of(thread, one, i)) & 0xFFU;
}
void extract_bits(PtxThread& thread, Instruction one) {
    const int bits = ptx_bits(one.words[1]);
    const uint64_t from = ptx_cut(value_of(thread, one, 1), bits);
    thread.set(one.operands[0],
               ptx_extracted(from, byte_of(thread, one, 2), byte_of(thread, one, 3), bits, one.words[1][0] == 's'));
}
void insert_bits(PtxThread& thread, Instruction one) {
    const int bits = ptx_bits(one.words[1]);
    const uint64_t from = value_of(thread, one, 1), to = ptx_cut(value_of(thread, one, 2), bits);
    thread.set(one.operands[0], ptx_inserted(from, to, byte_of(thread, one, 3), byte_of(thread, one, 4), bits));
}
// Of the double word [b, a]: the upper word of it shifted left, or the lower one of it shifted right.
void shift_funnel(PtxThread& thread, Instruction one) {
    const uint64_t both = ptx_cut(value_of(thread, one, 1), 32) | value_of(thread, one, 2) << 32;
    const auto by = static_cast<uint32_t>(value_of(thread, one, 3));
    const uint32_t n = one.words[2] == "wrap" ? by & 31U : std::min(by, 32U);
    thread.set(one.operands[0], ptx_cut(one.words[1] == "l" ? both << n >> 32 : both >> n, 32));
}
void dot_bytes(PtxThread& thread, Instruction one) {
    const auto take = [&](size_t operand, int i) {
        const uint64_t byte = value_of(thread, one, operand) >> (8 * i) & 0xFFU;
        return one.words[operand][0] == 's' ? ptx_signed(byte, 8) : static_cast<int64_t>(byte);
    };
    auto sum = static_cast<int64_t>(value_of(thread, one, 3));
    for (int i = 0; i < 4; ++i) sum += take(1, i) * take(2, i);
    thread.set(one.operands[0], ptx_cut(static_cast<uint64_t>(sum), 32));
}
void sleep_ptx(PtxThread&, Instruction) { cuda_source::sleep(); }
[[noreturn]] void trap(PtxThread&, Instruction) { std::abort(); }
void count_bits(PtxThread& thread, Instruction one) {
    const int bits = one.words[2] == "64" ? 64 : 32;
    const uint64_t value = ptx_cut(value_of(thread, one, 1), bits);
    uint64_t result = 0;
    if (one.words[1] == "popc") result = static_cast<uint64_t>(std::popcount(value));
    if (one.words[1] == "clz") result = static_cast<uint64_t>(std::countl_zero(value) - (64 - bits));
    for (int i = 0; i < bits && one.words[1] == "brev"; ++i) result |= (value >> i & 1U) << (bits - 1 - i);
    thread.set(one.operands[0], result);
}

// "f32", "f16", "bf16", and pairs of 16 bits.
void floats(PtxThread& thread, Instruction one) {
    const std::string& type = one.words[2];
    const bool is_pair = type.ends_with("x2");
    const std::string element = type.substr(0, type.find('x'));
    const int bits = ptx_bits(type);
    uint64_t result = 0;
    for (int half = 0; half < (is_pair ? 2 : 1); ++half) {
        const auto take = [&](size_t i) { return ptx_to_float(element, value_of(thread, one, i) >> (16 * half)); };
        const float of_half = ptx_of_floats(one.words[1], take(1), take(2), take(3));
        result |= ptx_cut(ptx_from_float(element, of_half), bits) << (16 * half);
    }
    thread.set(one.operands[0], result);
}

void any_logic(PtxThread& thread, Instruction one) {
    const auto a = static_cast<uint32_t>(value_of(thread, one, 1)), b = static_cast<uint32_t>(value_of(thread, one, 2)),
               c = static_cast<uint32_t>(value_of(thread, one, 3));
    const auto table = static_cast<uint32_t>(value_of(thread, one, 4));
    uint32_t result = 0;
    for (uint32_t i = 0; i < 8; ++i) {
        if ((table >> i & 1U) == 0) continue;
        result |= ((i & 4U) != 0 ? a : ~a) & ((i & 2U) != 0 ? b : ~b) & ((i & 1U) != 0 ? c : ~c);
    }
    thread.set(one.operands[0], result);
}
void permute(PtxThread& thread, Instruction one) {
    const uint64_t bytes = ptx_cut(value_of(thread, one, 1), 32) | ptx_cut(value_of(thread, one, 2), 32) << 32;
    const uint64_t chosen = value_of(thread, one, 3);
    uint64_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const uint64_t nibble = chosen >> (4 * i) & 15U;
        const uint64_t byte = bytes >> (8 * (nibble & 7U)) & 0xFFU;
        result |= ((nibble & 8U) != 0 ? ((byte & 0x80U) != 0 ? 0xFFU : 0U) : byte) << (8 * i);
    }
    thread.set(one.operands[0], result);
}

// --- atomic operations

// "atom" returns the value of before, "red" does not.
void change_atomically(PtxThread& thread, Instruction one) {
    const size_t at = one.words[1] == "atom" ? 1 : 0;
    const std::string &how = one.words[2], &type = one.words[3];
    const bool is_pair = type.ends_with("x2");
    const auto bits = is_pair ? 32 : ptx_bits(type);
    const auto bytes = static_cast<size_t>(bits) / 8;
    std::byte* const place = place_of(thread, one, at, has(one, ".shared"), bytes);
    if (place == nullptr) return;
    const bool releases = has(one, ".release") || has(one, ".acq_rel");
    releases ? cuda_source::releasing_access(place, bytes, scope_of(one))
             : cuda_source::atomic_access(place, bytes, scope_of(one));
    uint64_t before = 0;
    std::memcpy(&before, place, bytes);
    const uint64_t with = ptx_cut(value_of(thread, one, at + 1), bits);
    uint64_t after = before;
    if (how != "cas") {
        after = ptx_changed(how, type, before, with);
    } else if (before == with) {
        after = value_of(thread, one, at + 2);
    }
    std::memcpy(place, &after, bytes);
    if (at != 0) thread.set(one.operands[0], before);
}

// --- which opcodes

struct Taken {
    const char* pattern;
    PtxFunction run;
    size_t least_operands;
};
#define SHARED R"((?:\.shared(?:::cta)?))"
#define CLUSTER R"((?:\.shared(?:::(?:cta|cluster))?))"
#define MEMORY R"((?:\.global|\.shared(?:::(?:cta|cluster))?|))"
constexpr Taken kTaken[] = {
    // The second order is not the manual's; CUTLASS has it, and ptxas takes it.
    {R"(ldmatrix\.sync\.aligned\.(?:m8n8\.x([124])(?:\.trans)?|x([124])(?:\.trans)?\.m8n8(?:\.trans)?))" SHARED
     R"(\.b16)",
     load_matrices_ptx, 2},
    {R"(mma\.sync\.aligned\.m16n8k(16|8)\.row\.col\.f32\.(bf16|f16)\.\2\.f32)", mma_floats, 4},
    {R"(mma\.sync\.aligned\.m16n8k(32|16)\.row\.col(\.satfinite)?\.s32\.([su]8)\.([su]8)\.s32)", mma_integers, 4},
    {R"(cp\.async\.c[ag])" SHARED R"(\.global(?:\.L2::cache_hint)?(?:\.L2::(?:64|128|256)B)?)", copy_async_ptx, 3},
    {R"(cp\.async\.commit_group)", commit_group, 0},
    {R"(cp\.async\.wait_group)", wait_group, 1},
    {R"(cp\.async\.wait_all)", wait_all, 0},
    {R"(cp\.async\.bulk\.shared::(?:cluster|cta)\.global\.mbarrier::complete_tx::bytes(?:\.L2::cache_hint)?)",
     bulk_copy_ptx, 4},
    {R"(cp\.async\.bulk\.shared::cluster\.global\.mbarrier::complete_tx::bytes\.multicast::cluster)"
     R"((?:\.L2::cache_hint)?)",
     bulk_copy_ptx, 5},
    {R"(cp\.async\.bulk\.shared::cluster\.shared::cta\.mbarrier::complete_tx::bytes)", bulk_copy_ptx, 4},
    {R"(st\.async(?:\.weak)?\.shared::cluster\.mbarrier::complete_tx::bytes(\.v[24])?\.([busf](?:32|64)))",
     store_async_ptx, 3},
    {R"(cp\.async\.bulk\.global\.shared::cta\.bulk_group(?:\.L2::cache_hint)?)", bulk_store_ptx, 3},
    {R"(cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group(?:\.L2::cache_hint)?)"
     R"(\.(add|min|max|and|or|xor|inc|dec)(?:\.noftz)?\.([us](?:32|64)|b(?:32|64)|f32|f64|f16|bf16))",
     bulk_reduce_ptx, 3},
    {R"(cp\.async\.bulk\.tensor\.([1-5])d\.shared::(?:cluster|cta)\.global(?:\.tile)?)"
     R"(\.mbarrier::complete_tx::bytes(?:\.L2::cache_hint)?)",
     tensor_copy_ptx, 3},
    {R"(cp\.async\.bulk\.tensor\.([1-5])d\.shared::cluster\.global(?:\.tile)?)"
     R"(\.mbarrier::complete_tx::bytes\.multicast::cluster(?:\.L2::cache_hint)?)",
     tensor_copy_ptx, 4},
    {R"(cp\.async\.bulk\.tensor\.([1-5])d\.global\.shared::cta(?:\.tile)?\.bulk_group(?:\.L2::cache_hint)?)",
     tensor_store_ptx, 2},
    {R"(prefetch\.tensormap)", nothing, 1},
    {R"(cp\.async\.bulk\.commit_group)", bulk_commit, 0},
    {R"(cp\.async\.bulk\.wait_group(?:\.read)?)", bulk_wait, 1},
    {R"(fence\.proxy\.async(?:\.shared::(?:cta|cluster)|\.global)?)", fence_async_ptx, 0},
    {R"(fence\.mbarrier_init\.release\.cluster)", fence_barrier_init_ptx, 0},
    {R"(mbarrier\.init)" SHARED R"(?\.b64)", barrier_init, 2},
    {R"(mbarrier\.inval)" SHARED R"(?\.b64)", barrier_invalidate, 1},
    {R"(mbarrier\.arrive(?:\.expect_tx)?(?:\.release)?(?:\.cta|\.cluster)?)" CLUSTER R"(?\.b64)", barrier_arrive, 2},
    {R"(mbarrier\.arrive_drop(?:\.release)?(?:\.cta)?)" SHARED R"(?\.b64)", barrier_drop, 2},
    {R"(cp\.async\.mbarrier\.arrive(?:\.noinc)?)" SHARED R"(?\.b64)", copies_arrive, 1},
    {R"(mbarrier\.expect_tx(?:\.relaxed)?(?:\.cta|\.cluster)?)" CLUSTER R"(?\.b64)", barrier_expect, 2},
    {R"(mbarrier\.(?:try|test)_wait(?:\.parity)?(?:\.acquire)?(?:\.cta|\.cluster)?)" SHARED R"(?\.b64)", barrier_wait,
     3},
    {R"((?:bar|barrier)(?:\.cta)?\.sync(?:\.aligned)?)", block_barrier, 1},
    {R"((?:bar|barrier)(?:\.cta)?\.arrive(?:\.aligned)?)", block_barrier, 2},
    {R"(bar\.warp\.sync)", warp_barrier, 1},
    {R"(membar\.(?:cta|gl|sys)|fence(?:\.acq_rel|\.sc)\.(?:cta|cluster|gpu|sys))", fence_ptx, 0},
    {R"(griddepcontrol\.launch_dependents)", nothing, 0},
    {R"(griddepcontrol\.wait)", wait_previous_ptx, 0},
    {R"(prefetch(?:u)?\.(?:global\.)?L[12]|setmaxnreg\.(?:inc|dec)\.sync\.aligned\.u32)", nothing, 1},
    {R"(ld(?:\.weak)?(\.global|\.shared(?:::(?:cta|cluster))?|))"
     R"((?:\.ca|\.cg|\.cs|\.nc|\.lu)?(?:\.L1::\w+)?(?:\.L2::\w+)?(\.v[24])?\.([busf](?:8|16|32|64)))",
     load, 2},
    {R"(st(?:\.weak)?(\.global|\.shared(?:::(?:cta|cluster))?|))"
     R"((?:\.wb|\.cg|\.cs|\.wt)?(?:\.L1::\w+)?(?:\.L2::\w+)?(\.v[24])?\.([busf](?:8|16|32|64)))",
     store, 2},
    {R"(stmatrix\.sync\.aligned\.(?:m8n8\.x([124])(?:\.trans)?|x([124])(?:\.trans)?\.m8n8(?:\.trans)?))" SHARED
     R"(\.b16)",
     store_matrices_ptx, 2},
    {R"(ld\.(?:acquire|relaxed|volatile)(?:\.(?:cta|cluster|gpu|sys))?(\.global|\.shared(?:::(?:cta|cluster))?|)()\.)"
     R"(([busf](?:8|16|32|64)))",
     load_ordered, 2},
    {R"(st\.(?:release|relaxed|volatile)(?:\.(?:cta|cluster|gpu|sys))?(\.global|\.shared(?:::(?:cta|cluster))?|)()\.)"
     R"(([busf](?:8|16|32|64)))",
     store_ordered, 2},
    {R"((atom)(?:\.(?:relaxed|acquire|release|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?)" MEMORY
     R"(\.(add|min|max|and|or|xor|inc|dec|exch)(?:\.noftz)?\.([bus](?:32|64)|f32|f64|f16|bf16|f16x2|bf16x2))",
     change_atomically, 3},
    {R"((atom)(?:\.(?:relaxed|acquire|release|acq_rel))?(?:\.(?:cta|cluster|gpu|sys))?)" MEMORY
     R"(\.(cas)\.([bus](?:16|32|64)))",
     change_atomically, 4},
    {R"((red)(?:\.(?:relaxed|release))?(?:\.(?:cta|cluster|gpu|sys))?)" MEMORY
     R"(\.(add|min|max|and|or|xor|inc|dec)(?:\.noftz)?\.([bus](?:32|64)|f32|f64|f16|bf16|f16x2|bf16x2))",
     change_atomically, 2},
    {R"(shfl\.sync\.(up|down|bfly|idx)\.b32)", shuffle_ptx, 5},
    {R"(vote\.sync\.(ballot)\.b32|vote\.sync\.(any|all)\.pred)", vote_ptx, 3},
    {R"(activemask\.b32)", active_mask_ptx, 1},
    {R"(elect\.sync)", elect_ptx, 2},
    {R"(redux\.sync\.(add|min|max|and|or|xor)\.([bsu]32))", reduce_ptx, 3},
    {R"(match\.any\.sync\.b(?:32|64))", match_ptx, 3},
    {R"(mapa(\.shared::cluster)?\.u(?:32|64))", map_address_ptx, 3},
    {R"(barrier\.cluster\.arrive(?:\.release|\.relaxed)?(?:\.aligned)?)", arrive_at_cluster_ptx, 0},
    {R"(barrier\.cluster\.wait(?:\.acquire)?(?:\.aligned)?)", wait_for_cluster_ptx, 0},
    {R"(wgmma\.mma_async\.sync\.aligned\.m64n(\d+)k16\.f32\.(bf16|f16)\.\2)", multiply_ptx, 7},
    {R"(wgmma\.fence\.sync\.aligned)", multiply_fence_ptx, 0},
    {R"(wgmma\.commit_group\.sync\.aligned)", commit_multiply_ptx, 0},
    {R"(wgmma\.wait_group\.sync\.aligned)", wait_multiply_ptx, 1},
    {R"(cvta\.to)" SHARED R"(\.u(?:32|64))", to_shared_address, 2},
    {R"(cvta\.to\.global\.u64)", copy_value, 2},
    {R"(mov\.([busf](?:16|32|64)))", move, 2},
    {R"(setp\.(eq|ne|lt|le|gt|ge)\.([bus](?:16|32|64)|f32))", set_predicate, 3},
    {R"(setp\.(equ|neu|ltu|leu|gtu|geu)\.(f32))", set_predicate, 3},
    {R"(selp\.[busf](?:16|32|64))", select, 4},
    {R"((add|sub|and|or|xor|min|max|shl|shr)\.([bus](?:16|32|64)))", integers, 3},
    {R"((not|neg)\.([bus](?:16|32|64)))", integers, 2},
    {R"((abs)\.(s(?:16|32|64)))", integers, 2},
    {R"((copysign)\.(f32))", floats, 3},
    {R"((and|or|xor)\.(pred))", predicates, 3},
    {R"((not)\.(pred))", predicates, 2},
    {R"(mul\.(wide)\.([us](?:16|32)))", multiply_wide, 3},
    {R"(mul\.(hi)\.([us](?:16|32)))", multiply_wide, 3},
    {R"(mad\.(wide)\.([us](?:16|32)))", multiply_wide, 4},
    {R"(bfe\.([us](?:32|64)))", extract_bits, 4},
    {R"(bfi\.(b(?:32|64)))", insert_bits, 5},
    {R"(shf\.([lr])\.(wrap|clamp)\.b32)", shift_funnel, 4},
    {R"(dp4a\.([us]32)\.([us]32))", dot_bytes, 4},
    {R"(nanosleep\.u32)", sleep_ptx, 1},
    {R"(trap)", trap, 0},
    {R"((popc|clz|brev)\.b(32|64))", count_bits, 2},
    {R"((mul)\.lo\.([us](?:16|32|64)))", integers, 3},
    {R"((mad)\.lo\.([us](?:16|32|64)))", integers, 4},
    {R"((add|sub|mul|min|max|div)(?:\.rn)?(?:\.ftz)?\.(f32|f16|bf16|f16x2|bf16x2))", floats, 3},
    {R"((fma)\.rn(?:\.ftz)?\.(f32|f16|bf16|f16x2|bf16x2))", floats, 4},
    {R"((ex2|lg2|rcp|sqrt|rsqrt|tanh|sin|cos)(?:\.approx|\.rn)(?:\.ftz)?\.(f32|f16|bf16|f16x2|bf16x2))", floats, 2},
    {R"((neg|abs)(?:\.ftz)?\.(f32|f16|bf16|f16x2|bf16x2))", floats, 2},
    {R"(cvt\.rn\.(bf16x2|f16x2)\.f32)", convert_pair, 3},
    {R"(cvt(?:\.rn)?\.(f32|f16|bf16)\.(f32|f16|bf16))", convert_floats, 2},
    {R"(cvt\.([us](?:8|16|32|64))\.([us](?:8|16|32|64)))", convert_integers, 2},
    {R"(cvt\.rn\.f32\.([us](?:8|16|32)))", from_integer, 2},
    {R"(cvt\.(rni|rzi|rmi|rpi)(?:\.ftz)?(?:\.sat)?\.([us](?:8|16|32|64))\.f32)", to_integer, 2},
    {R"(lop3\.b32)", any_logic, 5},
    {R"(prmt\.b32)", permute, 4},
};
#undef SHARED
#undef CLUSTER
#undef MEMORY

std::vector<size_t> elements_of(const PtxOpcode& known) {
    const auto& words = known.words;
    if (known.run == load_matrices_ptx) return {matrices_of(words)};
    if (known.run == mma_floats)
        return words[1] == "16" ? std::vector<size_t>{4, 4, 2, 4} : std::vector<size_t>{4, 2, 1, 4};
    if (known.run == mma_integers)
        return words[1] == "32" ? std::vector<size_t>{4, 4, 2, 4} : std::vector<size_t>{4, 2, 1, 4};
    if (known.run == store_matrices_ptx) return {0, matrices_of(words)};
    if (known.run == multiply_ptx) return {columns_of_wgmma(words[1]) / 2, 4};
    if (known.run == store_async_ptx)
        return words[1].empty() ? std::vector<size_t>{}
                                : std::vector<size_t>{0, static_cast<size_t>(words[1][2] - '0')};
    if ((known.run != load && known.run != store) || words[2].empty()) return {};
    const auto count = static_cast<size_t>(words[2][2] - '0');
    return known.run == load ? std::vector<size_t>{count} : std::vector<size_t>{0, count};
}

}  // namespace

PtxOpcode find_ptx(const std::string& opcode) {
    static const std::vector<std::regex> kPatterns = [] {
        std::vector<std::regex> patterns;
        for (const Taken& one : kTaken) patterns.emplace_back(one.pattern);
        return patterns;
    }();
    std::smatch found;
    for (size_t i = 0; i < kPatterns.size(); ++i) {
        if (!std::regex_match(opcode, found, kPatterns[i])) continue;
        PtxOpcode known{kTaken[i].run, kTaken[i].least_operands, {}, {}};
        for (const auto& part : found) known.words.push_back(part.str());
        if (known.run == multiply_ptx && columns_of_wgmma(known.words[1]) == 0) return {};
        known.elements = elements_of(known);
        if (known.run == multiply_ptx) known.or_scalar = 1;
        if (known.run == tensor_copy_ptx || known.run == tensor_store_ptx)
            known.num_coordinates = static_cast<size_t>(known.words[1][0] - '0');
        known.takes_parts = known.run == move;
        known.takes_predicate = known.run == shuffle_ptx || known.run == elect_ptx;
        return known;
    }
    return {};
}

}  // namespace verbatim::simt
