// kernels/simt/emulated_async.h: owns the barriers, bulk copies and warpgroup operations of simt/simt.h on the
// emulator.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstdint>
#include <cstring>

#include "kernels/simt/emulated.h"
#include "kernels/simt/emulated_wgmma.h"
#include "kernels/simt/emulator.h"
#include "kernels/simt/types.h"

#define SIMT_BARRIERS(name, count)    \
    static const char name##_key = 0; \
    const ::verbatim::simt::Barriers name { &name##_key, (count) }

namespace verbatim::simt {
inline namespace SIMT_MACHINE {

struct Barrier {
    EmulatedBarrier& state;
    void init(int arrivals, Place where = Place::current()) const {
        Emulator::current().barrier_init(state, arrivals, where);
    }
    void arrive(Place where = Place::current()) const { Emulator::current().barrier_arrive(state, 0, where); }
    void expect_bytes(int bytes, Place where = Place::current()) const {
        Emulator::current().barrier_arrive(state, bytes, where);
    }
    void wait(uint32_t parity, Place where = Place::current()) const {
        Emulator::current().barrier_wait(state, parity, where);
    }
};
struct Barriers {
    const char* key;
    int count;
    Barrier operator[](int i) const {
        Emulator& emulator = Emulator::current();
        if (i >= 0 && i < count) return {emulator.barrier(key, i)};
        emulator.found(FindingKind::kOutOfBounds, fmt::format("barrier {} of {}", i, count));
        return {emulator.barrier(key, 0)};
    }
};

template <typename T, typename From>
void bulk_copy(const Shared<T>& to, int64_t i, const Global<const From>& from, int64_t j, int64_t count,
               const Barrier& barrier, Place where = Place::current()) {
    using Touch = typename View<T>::Touch;
    Emulator& emulator = Emulator::current();
    const Now agent = emulator.copying(barrier.state, where);
    const auto num_bytes = static_cast<size_t>(count) * sizeof(From);
    const auto to_count = static_cast<int64_t>(num_bytes / sizeof(T));
    from.touch(j, count, agent, View<const From>::Touch::kCopy);
    to.touch(i, to_count, agent, Touch::kWrite);
    if (emulator.counts_accesses()) emulator.count_copy(num_bytes, false);
    const std::byte* source = from.bytes(j, count);
    std::byte* place = to.bytes(i, to_count);
    if (source != nullptr) to.carry_unwritten(i, from, j, to_count);
    emulator.copy_until(barrier.state, static_cast<int64_t>(num_bytes), [=] {
        if (source != nullptr && place != nullptr) std::memcpy(place, source, num_bytes);
    });
}
template <typename T>
void bulk_store(const Global<T>& to, int64_t i, const Shared<T>& from, int64_t j, int64_t count) {
    Emulator& emulator = Emulator::current();
    const Now agent = emulator.storing();
    from.touch(j, count, agent, View<T>::Touch::kRead);
    to.touch(i, count, agent, View<T>::Touch::kWrite);
    const auto num_bytes = static_cast<size_t>(count) * sizeof(T);
    if (emulator.counts_accesses()) emulator.count_copy(num_bytes, true);
    const std::byte* source = from.bytes(j, count);
    std::byte* place = to.bytes(i, count);
    emulator.store_later([=] {
        if (source != nullptr && place != nullptr) std::memcpy(place, source, num_bytes);
    });
}
inline void commit_bulk() { Emulator::current().commit_stores(); }
template <int kPending>
void wait_bulk(Place where = Place::current()) {
    Emulator::current().wait_stores(kPending, where);
}
inline void fence_async() { Emulator::current().fence_async(); }
inline void named_barrier(int id, int num_threads, Place where = Place::current()) {
    Emulator::current().named_barrier(id, num_threads, where);
}
inline void wait_previous(Place where = Place::current()) { Emulator::current().wait_previous(where); }
inline void release_next() {}  // no effect: the emulator runs kernels one after another
template <int kRegisters>
void setmaxnreg_inc() {
    static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
}
template <int kRegisters>
void setmaxnreg_dec() {
    static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256);
}

// Registers that a multiplication in flight still reads or adds to.
class HeldRegisters {
public:
    // The thread reads or changes them.
    void look(const char* what) const {
        if (group_ <= thread().done) return;
        Emulator::current().found(FindingKind::kNotAwaited,
                                  fmt::format("{} before the multiplication is waited for", what));
    }
    void change(const char* what) {
        look(what);
        is_changed_ = true;
        changed_at_ = thread().num_fences;
    }
    // A multiplication uses them.
    void hold(const char* what, Place where) {
        if (is_changed_ && changed_at_ == thread().num_fences) {
            Emulator::current().found(
                FindingKind::kMissingFence,
                fmt::format("{} have changed with no multiply_fence() before the multiplication (line {})", what,
                            where.line()));
        }
        is_changed_ = false;
        group_ = thread().groups + 1;
    }

private:
    static const ThreadAsync& thread() { return Emulator::current().thread().async; }
    uint32_t group_ = 0;  // the last multiplication's group
    bool is_changed_ = false;
    uint32_t changed_at_ = 0;  // number of fences at the last change
};

class Fragment {
public:
    void load(const Shared<uint32_t>& view, int64_t i) { set(load4(view, i)); }
    void set(const Four<uint32_t>& words) {
        held_.change("a fragment changes");
        words_ = words;
    }

private:
    template <int kColumns>
    friend class Accumulators;
    Four<uint32_t> words_{};
    HeldRegisters held_;
};

struct SwizzledTile {
    Shared<uint32_t> rows;
};
inline SwizzledTile swizzled_tile(const Shared<uint32_t>& view, int64_t i) {
    const SwizzledTile tile{view.from(i)};
    if (tile.rows.first() * 4 % kTileBytes != 0) {
        Emulator::current().found(FindingKind::kMisaligned,
                                  fmt::format("a swizzled tile at byte {} of its array", tile.rows.first() * 4));
    }
    return tile;
}

template <int kColumns>
class Accumulators {
public:
    static_assert(kColumns % 8 == 0 && kColumns >= 8 && kColumns <= 256);
    static constexpr int kSums = kColumns / 2;  // per thread

    float operator[](int i) const {
        held_.look("sums are read");
        if (!begun_[i])
            Emulator::current().found(FindingKind::kUninitialised, "sums are read before a multiplication writes them");
        return sums_[i];
    }
    void set(int i, float value) {
        held_.change("sums change");
        sums_[i] = value;
        begun_[i] = true;
    }
    void multiply(Fragment& a, const SwizzledTile& tile, int group, bool from_zero, Place where) {
        Emulator& emulator = Emulator::current();
        if (!from_zero && !begun_.all()) {
            emulator.found(FindingKind::kUninitialised,
                           fmt::format("a multiplication adds to sums that nobody has begun (line {})", where.line()));
        }
        begun_.set();
        held_.hold("sums", where);
        a.held_.hold("a fragment's words", where);
        if (emulator.thread().index % kWarpSize == 0) read_tile(tile, group);
        GroupMmaPart part{a.words_, sums_,    kColumns, tile.rows.bytes(0, int64_t{kColumns} * kTileRowWords),
                          group,    from_zero};
        emulator.group_together(complete_group_mma, &part, where);
    }

private:
    static void read_tile(const SwizzledTile& tile, int group) {
        const Now agent = Emulator::current().multiplying();
        for (int row = 0; row < kColumns; ++row) {
            for (int vector = 2 * group; vector < 2 * group + 2; ++vector) {
                tile.rows.touch(tile_word(row, vector), 4, agent, View<uint32_t>::Touch::kRead);
            }
        }
    }
    float sums_[kSums] = {};
    std::bitset<kSums> begun_;
    HeldRegisters held_;
};

inline void multiply_fence() { Emulator::current().multiply_fence(); }
template <int kColumns>
void multiply_async(Accumulators<kColumns>& sums, Fragment& a, const SwizzledTile& tile, int group, bool from_zero,
                    Place where = Place::current()) {
    sums.multiply(a, tile, group, from_zero, where);
}
inline void commit_multiply() { Emulator::current().commit_multiplications(); }
template <int kPending>
void wait_multiply(Place where = Place::current()) {
    Emulator::current().wait_multiplications(kPending, where);
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::simt
