// kernels/simt/emulated.h: owns the vocabulary of simt/simt.h on the emulator. Views know their bounds and check
// every access.
#pragma once

#include <fmt/format.h>

#include <bit>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <type_traits>

#include "kernels/simt/emulated_mma.h"
#include "kernels/simt/emulator.h"
#include "kernels/simt/types.h"

// A program can contain both machines: names that depend on the machine lie in the machine's namespace.
#define SIMT_MACHINE on_emulated
#define SIMT_FUNCTION inline
#define SIMT_UNROLL
#define SIMT_ONE_BY_ONE
// The address of a static local per expansion distinguishes a kernel's arrays.
#define SIMT_SHARED(type, name, count)                                                                  \
    static const char name##_key = 0;                                                                   \
    const ::verbatim::simt::Shared<type> name(                                                          \
        ::verbatim::simt::Emulator::current().shared(&name##_key, sizeof(type) * (count), sizeof(type), \
                                                     ::verbatim::simt::Emulator::SharedKind::kStatic),  \
        0, (count))
#define SIMT_LARGE_SHARED(type, name, count)                                                            \
    static const char name##_key = 0;                                                                   \
    const ::verbatim::simt::Shared<type> name(                                                          \
        ::verbatim::simt::Emulator::current().shared(&name##_key, sizeof(type) * (count), sizeof(type), \
                                                     ::verbatim::simt::Emulator::SharedKind::kLarge),   \
        0, (count))

namespace verbatim::simt {
inline namespace SIMT_MACHINE {

// A kernel's declarations for its launches.
template <typename Kernel>
LaunchLimits limits_of() {
    LaunchLimits limits;
    if constexpr (requires { Kernel::kResidentBlocks; }) limits.most_threads = Kernel::kThreads;
    limits.large_bytes = 0;
    if constexpr (requires { Kernel::kSharedBytes; }) limits.large_bytes = Kernel::kSharedBytes;
    if constexpr (requires { Kernel::kDependent; }) limits.is_dependent = Kernel::kDependent;
    if constexpr (requires { Kernel::kCooperative; }) limits.is_cooperative = Kernel::kCooperative;
    return limits;
}

// Elements [first, first + count) of type T of a memory.
template <typename T>
class View {
public:
    using Value = std::remove_const_t<T>;

    // An element, before it is read or written.
    class Ref {
    public:
        Ref(const View& view, int64_t i) : view_(view), i_(i) {}
        [[gnu::always_inline]] operator Value() const { return view_.read(i_); }
        [[gnu::always_inline]] const Ref& operator=(Value value) const requires(!std::is_const_v<T>) {
            view_.write(i_, value);
            return *this;
        }
        const Ref& operator=(const Ref& other) const { return *this = static_cast<Value>(other); }
        const Ref& operator+=(Value value) const { return *this = static_cast<Value>(*this) + value; }

    private:
        const View& view_;
        int64_t i_;
    };

    View() = default;
    View(Memory& memory, int64_t first, int64_t count) : View(&memory, first, count) {}
    View(Memory* memory, int64_t first, int64_t count) : memory_(memory), first_(first), count_(count) {}

    Ref operator[](int64_t i) const { return Ref(*this, i); }
    // Always inlined, so that every access site of a kernel has a distinct address for the access counter.
    [[nodiscard, gnu::always_inline]] Value read(int64_t i) const {
        count(i, 1, false);
        return read_uncounted(i);
    }
    [[gnu::always_inline]] void write(int64_t i, Value value) const {
        count(i, 1, true);
        write_uncounted(i, value);
    }
    // Atomically applies change(old value); orders nothing.
    template <typename Change>
    void update(int64_t i, const Change& change) const {
        if (!inside(i, 1, "written")) return;
        report(memory_->update(offset(i), sizeof(T), Emulator::current().thread().moment), i);
        count(i, 1, true);
        const Value value = change(load(i));
        std::memcpy(memory_->bytes() + offset(i), &value, sizeof(T));
    }
    // Acquires what was released with the element's last value, or with the first value of at least `least`.
    Value acquire(int64_t i, std::optional<int32_t> least = {}) const {
        if (!inside(i, 1, "read")) return Value{};
        report(memory_->read(offset(i), sizeof(T), Emulator::current().thread().moment, Order::kAtomic), i);
        count(i, 1, false);
        Emulator::current().acquire_at(*memory_, offset(i), least);
        return load(i);
    }
    // The thread's knowledge is released with the element's next value.
    void release(int64_t i, Value value, bool replaces) const {
        if (inside(i, 1, "written")) Emulator::current().release_at(*memory_, offset(i), value, replaces);
    }
    [[nodiscard, gnu::always_inline]] Four<Value> read4(int64_t i) const {
        if (!inside(i, 4, "read")) return {};
        count(i, 4, false);
        look_at_alignment(i, 4);
        report(memory_->read4(offset(i), sizeof(T), Emulator::current().thread().moment), i);
        Four<Value> four;
        std::memcpy(four.values, memory_->bytes() + offset(i), sizeof(four.values));
        return four;
    }
    [[nodiscard, gnu::always_inline]] uint32_t read2(int64_t i) const {
        if (!inside(i, 2, "read")) return 0;
        count(i, 2, false);
        look_at_alignment(i, 2);
        return static_cast<uint32_t>(read_uncounted(i)) | static_cast<uint32_t>(read_uncounted(i + 1)) << 16;
    }
    [[gnu::always_inline]] void write4(int64_t i, const Four<Value>& four) const {
        if (!inside(i, 4, "written")) return;
        count(i, 4, true);
        look_at_alignment(i, 4);
        report(memory_->write4(offset(i), sizeof(T), Emulator::current().thread().moment), i);
        std::memcpy(memory_->bytes() + offset(i), four.values, sizeof(four.values));
    }
    // Whether the source of the running thread's asynchronous copy is legal; reports it at the request if not, since a
    // copy that no thread waits for reads nothing here and does on a GPU.
    [[nodiscard]] bool is_copyable(int64_t i, int64_t num) const {
        if (!inside(i, num, "copied")) return false;
        if (num == 4) look_at_alignment(i, 4);
        return true;
    }
    // An agent touches `num` elements: checks the access from now on, without changing the bytes.
    enum class Touch : uint8_t { kRead, kCopy, kWrite };  // kCopy: reads that may meet unwritten cells (M5)
    void touch(int64_t i, int64_t num, const Now& agent, Touch how) const {
        if (!inside(i, num, how == Touch::kWrite ? "written" : "read")) return;
        const size_t bytes = static_cast<size_t>(num) * sizeof(T);
        if (offset(i) % 16 != 0 || bytes % 16 != 0) {
            Emulator::current().found(
                FindingKind::kMisaligned,
                fmt::format("a copy of {} bytes from byte {}: both are multiples of 16", bytes, offset(i)));
        }
        const Clash clash = how == Touch::kWrite  ? memory_->write(offset(i), bytes, agent)
                            : how == Touch::kCopy ? memory_->read_for_copy(offset(i), bytes, agent)
                                                  : memory_->read(offset(i), bytes, agent);
        report(clash, i);
    }
    // Begins an asynchronous copy of the running thread to `num` elements; returns the function that lands it.
    template <typename Land>
    [[nodiscard]] std::function<void()> copied_later(int64_t i, int64_t num, const Land& land) const {
        if (!inside(i, num, "written")) return [] {};
        const size_t bytes = static_cast<size_t>(num) * sizeof(T);
        report(memory_->begin_copy(offset(i), bytes, Emulator::current().thread().moment), i);
        return [to = *this, i, bytes, land] {
            to.memory_->end_copy(to.offset(i), bytes);
            land();
        };
    }
    // Called after both were touched: cells that are unwritten at the source become unwritten here.
    template <typename From>
    void carry_unwritten(int64_t i, const View<From>& from, int64_t j, int64_t num) const {
        if (bytes(i, num) == nullptr || from.memory() == nullptr) return;
        const auto at = static_cast<size_t>(from.first() + j) * sizeof(From);
        memory_->carry_unwritten(offset(i), *from.memory(), at, static_cast<size_t>(num) * sizeof(T));
    }
    // Their address; null if out of bounds.
    [[nodiscard]] std::byte* bytes(int64_t i, int64_t num) const {
        const bool there =
            i >= 0 && i + num <= count_ && memory_ != nullptr &&
            (first_ + i + num) * static_cast<int64_t>(sizeof(T)) <= static_cast<int64_t>(memory_->size());
        return there ? memory_->bytes() + offset(i) : nullptr;
    }
    [[nodiscard]] Memory* memory() const { return memory_; }  // null for an empty view
    [[nodiscard]] int64_t first() const { return first_; }
    [[nodiscard]] int64_t count() const { return count_; }

private:
    [[gnu::always_inline]] void count(int64_t i, int64_t num, bool is_store) const {
        if (memory_ == nullptr || !Emulator::current().counts_accesses()) return;
        Emulator::current().count_access(*memory_, offset(i), static_cast<size_t>(num) * sizeof(T), is_store);
    }
    [[nodiscard]] Value read_uncounted(int64_t i) const {
        if (!inside(i, 1, "read")) return Value{};
        report(memory_->read(offset(i), sizeof(T), Emulator::current().thread().moment), i);
        return load(i);
    }
    void write_uncounted(int64_t i, Value value) const {
        if (!inside(i, 1, "written")) return;
        report(memory_->write(offset(i), sizeof(T), Emulator::current().thread().moment), i);
        std::memcpy(memory_->bytes() + offset(i), &value, sizeof(T));
    }
    [[nodiscard]] size_t offset(int64_t i) const { return static_cast<size_t>(first_ + i) * sizeof(T); }
    [[nodiscard]] Value load(int64_t i) const {
        Value value;
        std::memcpy(&value, memory_->bytes() + offset(i), sizeof(T));
        return value;
    }
    bool inside(int64_t i, int64_t num, const char* verb) const {
        const bool in_view = i >= 0 && i + num <= count_;
        if (in_view && (first_ + i + num) * static_cast<int64_t>(sizeof(T)) <= static_cast<int64_t>(memory_->size())) {
            return true;
        }
        Emulator::current().found(FindingKind::kOutOfBounds, fmt::format("element {} of {} is {}", i, count_, verb));
        return false;
    }
    void look_at_alignment(int64_t i, size_t num) const {
        if (offset(i) % (num * sizeof(T)) == 0) return;
        Emulator::current().found(FindingKind::kMisaligned,
                                  fmt::format("{} elements of {} bytes from element {}", num, sizeof(T), first_ + i));
    }
    void report(Clash clash, int64_t i) const {
        if (clash == Clash::kNone) return;
        Emulator::current().found(kind_of(clash), fmt::format("element {} of {} {}", i, count_, text_of(clash)));
    }
    void report(Memory::Clashes clashes, int64_t i) const {
        if (std::bit_cast<uint32_t>(clashes) == 0) return;
        for (size_t k = 0; k < clashes.size(); ++k) report(clashes[k], i + static_cast<int64_t>(k));
    }

    Memory* memory_ = nullptr;
    int64_t first_ = 0;
    int64_t count_ = 0;
};

template <typename T>
struct Global : View<T> {
    using View<T>::View;
    Global() = default;
    Global(Emulator& emulator, T* data, int64_t count) : Global(emulator.memory_of(data), data, count) {}
    Global(Memory& memory, T* data, int64_t count)
        : View<T>(memory,
                  (reinterpret_cast<const std::byte*>(data) - memory.address()) / static_cast<int64_t>(sizeof(T)),
                  count) {}
    [[nodiscard]] Global slice(int64_t first, int64_t count) const {
        return Global(this->memory(), this->first() + first, count);
    }
    [[nodiscard]] Global from(int64_t first) const { return slice(first, this->count() - first); }
    operator Global<const T>() const requires(!std::is_const_v<T>) {
        return Global<const T>(this->memory(), this->first(), this->count());
    }
};
template <typename T>
struct Shared : View<T> {
    using View<T>::View;
    [[nodiscard]] Shared slice(int64_t first, int64_t count) const {
        return Shared(this->memory(), this->first() + first, count);
    }
    [[nodiscard]] Shared from(int64_t first) const { return slice(first, this->count() - first); }
};

inline int32_t thread_x() { return Emulator::current().thread().position.x; }
inline int32_t thread_y() { return Emulator::current().thread().position.y; }
inline int32_t threads_x() { return Emulator::current().block_size().x; }
inline int32_t threads_y() { return Emulator::current().block_size().y; }
inline int32_t block_x() { return Emulator::current().block_position().x; }
inline int32_t block_y() { return Emulator::current().block_position().y; }
inline int32_t blocks_x() { return Emulator::current().grid_size().x; }
inline int32_t block_z() { return Emulator::current().block_position().z; }

inline void sync_block(Place where = Place::current()) { Emulator::current().sync_block(where); }
inline void sync_warp(uint32_t mask = kFullWarp, Place where = Place::current()) {
    Emulator::current().sync_warp(mask, where);
}

template <typename T>
T shuffle_from(uint32_t mask, T value, int32_t lane, Place where) {
    static_assert(sizeof(T) == 4);
    Emulator& emulator = Emulator::current();
    return std::bit_cast<T>(static_cast<uint32_t>(emulator.shuffle(mask, std::bit_cast<uint32_t>(value), lane, where)));
}
template <typename T>
T shuffle_down(uint32_t mask, T value, int lanes, Place where = Place::current()) {
    return shuffle_from(mask, value, Emulator::current().thread().index % kWarpSize + lanes, where);
}
template <typename T>
T shuffle_xor(uint32_t mask, T value, int lanes, Place where = Place::current()) {
    return shuffle_from(mask, value, (Emulator::current().thread().index % kWarpSize) ^ lanes, where);
}
inline uint32_t ballot(uint32_t mask, bool mine, Place where = Place::current()) {
    return Emulator::current().vote(mask, mine, where);
}
inline void atomic_min(const Global<int32_t>& view, int64_t i, int32_t value) {
    view.update(i, [value](int32_t there) { return value < there ? value : there; });
}
inline void atomic_add(const View<uint64_t>& view, int64_t i, uint64_t value) {
    view.update(i, [value](uint64_t there) { return there + value; });
}

inline int32_t load_acquire(const View<int32_t>& view, int64_t i) { return view.acquire(i); }
inline void store_release(const View<int32_t>& view, int64_t i, int32_t value) {
    view.release(i, value, true);
    view.update(i, [value](int32_t) { return value; });
}
inline int32_t fetch_add(const View<int32_t>& view, int64_t i, int32_t value) {
    const int32_t there = view.acquire(i);
    view.release(i, there + value, false);
    view.update(i, [value](int32_t before) { return before + value; });
    return there;
}
inline void wait_at_least(const View<int32_t>& view, int64_t i, int32_t value, Place where = Place::current()) {
    if (Emulator::current().is_skipped("wait_at_least", where)) return;
    const std::byte* bytes = view.bytes(i, 1);
    const std::function<bool()> is_there = [bytes, value] {
        int32_t now = value;
        if (bytes != nullptr) std::memcpy(&now, bytes, sizeof(now));
        return now >= value;
    };
    Emulator::current().wait_for_value(is_there, where);
    view.acquire(i, value);
}

inline int32_t opaque(int32_t value) { return value; }

inline uint32_t select_bytes(uint32_t low, uint32_t high, uint32_t selector) {
    const uint64_t bytes = uint64_t{high} << 32 | low;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) result |= static_cast<uint32_t>(bytes >> (selector >> 4 * i & 7U) * 8 & 255U) << 8 * i;
    return result;
}

// Wraps as the instruction does.
inline int32_t add_products(uint32_t a, uint32_t b, int32_t sum) {
    auto total = static_cast<uint32_t>(sum);
    for (int i = 0; i < 4; ++i) {
        const auto product = static_cast<int32_t>(static_cast<int8_t>(a >> 8 * i)) * static_cast<int8_t>(b >> 8 * i);
        total += static_cast<uint32_t>(product);
    }
    return static_cast<int32_t>(total);
}

template <typename T>
Four<T> load4(const Global<const T>& view, int64_t i) {
    return view.read4(i);
}
template <typename T>
Four<T> load4(const Shared<T>& view, int64_t i) {
    return view.read4(i);
}

template <typename T>
uint32_t load2(const Global<T>& view, int64_t i) {
    return view.read2(i);
}
template <typename T>
void store4(const Shared<T>& view, int64_t i, const Four<T>& four) {
    view.write4(i, four);
}
template <typename T>
void store4(const Global<T>& view, int64_t i, const Four<T>& four) {
    view.write4(i, four);
}

template <typename T>
void copy_async(const Shared<T>& to, int64_t i, const Global<const T>& from, int64_t j, int count) {
    if (!from.is_copyable(j, count)) return;
    Emulator::current().copy_later(to.copied_later(i, count, [=] {
        for (int k = 0; k < count; ++k) to[i + k] = from[j + k];
    }));
}
template <typename T>
void copy4_async(const Shared<T>& to, int64_t i, const Global<const T>& from, int64_t j, bool there) {
    if (there && !from.is_copyable(j, 4)) return;
    Emulator::current().copy_later(to.copied_later(i, 4, [=] { to.write4(i, there ? from.read4(j) : Four<T>{}); }));
}
inline void commit_async() { Emulator::current().commit_copies(); }
template <int kPending>
void wait_async(Place where = Place::current()) {
    Emulator::current().wait_copies(kPending, where);
}

inline Four<uint32_t> load_matrices(const Shared<uint32_t>& view, int64_t i, Place where = Place::current()) {
    MatricesPart part{view.read4(i), {}};
    Emulator::current().together(complete_load_matrices, &part, where);
    return part.received;
}
inline void mma(const Four<uint32_t>& a, uint32_t b0, uint32_t b1, float (&acc)[4], Place where = Place::current()) {
    MmaPart part{a, {b0, b1}, acc};
    Emulator::current().together(complete_mma, &part, where);
}

}  // namespace SIMT_MACHINE
}  // namespace verbatim::simt
