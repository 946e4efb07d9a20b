// kernels/sandbox/cuda/source_libcu.h: owns libcu++'s atomics, barriers, pipelines and asynchronous copies for CUDA
// source on the emulator (kernels/sandbox/cuda/source.h includes it), and those of cooperative groups.
//
//   L1  a scope is the device's where it is smaller; an atomic load acquires whatever its order is
//   L2  cuda::barrier and the pipelines of a block are mbarriers in shared memory
//   L3  a copy from device to shared memory is asynchronous, in parts as wide as both addresses and the size allow, of
//       4 bytes or more; every other copy is made at once
#pragma once

#include "kernels/sandbox/cuda/source_groups.h"

namespace cuda {

enum thread_scope { thread_scope_system, thread_scope_device, thread_scope_block, thread_scope_thread };

namespace std {
enum class memory_order { relaxed, consume, acquire, release, acq_rel, seq_cst };
inline constexpr memory_order memory_order_relaxed = memory_order::relaxed;
inline constexpr memory_order memory_order_acquire = memory_order::acquire;
inline constexpr memory_order memory_order_release = memory_order::release;
inline constexpr memory_order memory_order_acq_rel = memory_order::acq_rel;
inline constexpr memory_order memory_order_seq_cst = memory_order::seq_cst;
using ::std::forward;
using ::std::move;
}  // namespace std
using std::memory_order;
using std::memory_order_acq_rel;
using std::memory_order_acquire;
using std::memory_order_relaxed;
using std::memory_order_release;
using std::memory_order_seq_cst;

constexpr bool verbatim_releases(memory_order order) {
    return order == memory_order_release || order == memory_order_acq_rel || order == memory_order_seq_cst;
}

// An operation of one thread is atomic for no other: it is taken as one of its block.
constexpr verbatim::cuda_source::Scope verbatim_scope(thread_scope scope) {
    using verbatim::cuda_source::Scope;
    return scope == thread_scope_system || scope == thread_scope_device ? Scope::kDevice : Scope::kBlock;
}
inline void atomic_thread_fence(memory_order order, thread_scope scope = thread_scope_system) {
    if (order != memory_order_relaxed) verbatim::cuda_source::fence(verbatim_scope(scope));
}

// Of an object whose place() says where its value is.
template <typename Object, typename T, thread_scope kScope>
class verbatim_atomic_operations {
public:
    VERBATIM_UNCHECKED T load(memory_order = memory_order_seq_cst) const {
        verbatim::cuda_source::ordered_access(place(), sizeof(T), false, false, verbatim_scope(kScope));
        T value;
        __builtin_memcpy(&value, place(), sizeof(T));
        return value;
    }
    VERBATIM_UNCHECKED void store(T value, memory_order order = memory_order_seq_cst) const {
        verbatim::cuda_source::ordered_access(place(), sizeof(T), true, verbatim_releases(order),
                                              verbatim_scope(kScope));
        __builtin_memcpy(place(), &value, sizeof(T));
    }
    T exchange(T value, memory_order order = memory_order_seq_cst) const {
        return change(order, [value](T) { return value; });
    }
    bool compare_exchange_strong(T& wanted, T value, memory_order order = memory_order_seq_cst,
                                 memory_order = memory_order_seq_cst) const {
        const T before = change(order, [wanted, value](T there) { return there == wanted ? value : there; });
        const bool is_it = before == wanted;
        if (!is_it) wanted = before;
        return is_it;
    }
    bool compare_exchange_weak(T& wanted, T value, memory_order order = memory_order_seq_cst,
                               memory_order other = memory_order_seq_cst) const {
        return compare_exchange_strong(wanted, value, order, other);
    }
#define VERBATIM_FETCH(name, value_of)                                    \
    T name(T value, memory_order order = memory_order_seq_cst) const {    \
        return change(order, [value](T there) -> T { return value_of; }); \
    }
    VERBATIM_FETCH(fetch_add, there + value)
    VERBATIM_FETCH(fetch_sub, there - value)
    VERBATIM_FETCH(fetch_and, there& value)
    VERBATIM_FETCH(fetch_or, there | value)
    VERBATIM_FETCH(fetch_xor, there ^ value)
    VERBATIM_FETCH(fetch_min, value < there ? value : there)
    VERBATIM_FETCH(fetch_max, there < value ? value : there)
#undef VERBATIM_FETCH
    T operator+=(T value) const { return fetch_add(value) + value; }
    T operator-=(T value) const { return fetch_sub(value) - value; }
    T operator++() const { return fetch_add(1) + 1; }
    T operator++(int) const { return fetch_add(1); }
    operator T() const { return load(); }
    T operator=(T value) const {
        store(value);
        return value;
    }

private:
    [[nodiscard]] T* place() const { return static_cast<const Object*>(this)->verbatim_place(); }
    template <typename Change>
    T change(memory_order order, const Change& change) const {
        if (verbatim_releases(order)) {
            verbatim::cuda_source::releasing_access(place(), sizeof(T), verbatim_scope(kScope));
        } else {
            verbatim::cuda_source::atomic_access(place(), sizeof(T), verbatim_scope(kScope));
        }
        return verbatim_changed(place(), change);
    }
};

template <typename T, thread_scope kScope = thread_scope_system>
class atomic_ref : public verbatim_atomic_operations<atomic_ref<T, kScope>, T, kScope> {
public:
    using verbatim_atomic_operations<atomic_ref, T, kScope>::operator=;
    explicit atomic_ref(T& value) : place_(&value) {}
    [[nodiscard]] VERBATIM_UNCHECKED T* verbatim_place() const { return place_; }

private:
    T* place_;
};

// An object of the kernel's.
template <typename T, thread_scope kScope = thread_scope_system>
class atomic : public verbatim_atomic_operations<atomic<T, kScope>, T, kScope> {
public:
    using verbatim_atomic_operations<atomic, T, kScope>::operator=;
    atomic() = default;
    constexpr atomic(T value) : value_(value) {}
    [[nodiscard]] T* verbatim_place() const { return &value_; }

private:
    mutable T value_;
};

// --- barriers

template <thread_scope kScope, typename Completion = void>
class barrier {
public:
    struct arrival_token {
        unsigned phase;
    };
    barrier() = default;
    barrier(const barrier&) = delete;
    barrier& operator=(const barrier&) = delete;

    void verbatim_init(int arrivals, VERBATIM_WHERE) {
        static_assert(kScope == thread_scope_block && ::std::is_void_v<Completion>, "barriers of a block are taken");
        using namespace verbatim::cuda_source;
        inline_ptx(where, "mbarrier.init.b64 [%0], %1;", ptx_in<'l'>(this), ptx_in<'r'>(arrivals));
    }
    arrival_token arrive(int count = 1, VERBATIM_WHERE) {
        using namespace verbatim::cuda_source;
        uint64_t phase = 0;
        inline_ptx(where, "mbarrier.arrive.b64 %0, [%1], %2;", ptx_out<'l'>(phase), ptx_in<'l'>(this),
                   ptx_in<'r'>(count));
        return {static_cast<unsigned>(phase)};
    }
    void wait(arrival_token&& token, VERBATIM_WHERE) const { wait_parity(token.phase % 2 != 0, where); }
    void wait_parity(bool parity, VERBATIM_WHERE) const {
        using namespace verbatim::cuda_source;
        inline_ptx(where, "{ .reg .pred over; mbarrier.try_wait.parity.b64 over, [%0], %1; }", ptx_in<'l'>(this),
                   ptx_in<'r'>(parity ? 1U : 0U));
    }
    bool try_wait_parity_for(int, bool parity, VERBATIM_WHERE) const {
        wait_parity(parity, where);
        return true;
    }
    void arrive_and_wait(VERBATIM_WHERE) { wait(arrive(1, where), where); }
    void arrive_and_drop(VERBATIM_WHERE) {
        using namespace verbatim::cuda_source;
        uint64_t phase = 0;
        inline_ptx(where, "mbarrier.arrive_drop.b64 %0, [%1];", ptx_out<'l'>(phase), ptx_in<'l'>(this));
    }
    // The calling thread's copies so far.
    void verbatim_await_copies(::std::source_location where) {
        using namespace verbatim::cuda_source;
        inline_ptx(where, "cp.async.mbarrier.arrive.b64 [%0];", ptx_in<'l'>(this));
    }
    void verbatim_expect(unsigned bytes, ::std::source_location where) {
        using namespace verbatim::cuda_source;
        inline_ptx(where, "mbarrier.expect_tx.b64 [%0], %1;", ptx_in<'l'>(this), ptx_in<'r'>(bytes));
    }

private:
    uint64_t word_;
};
template <thread_scope kScope>
void init(barrier<kScope>* one, int arrivals, VERBATIM_WHERE) {
    one->verbatim_init(arrivals, where);
}
namespace device {
template <thread_scope kScope>
uint64_t* barrier_native_handle(barrier<kScope>& one) {
    return reinterpret_cast<uint64_t*>(&one);
}
template <thread_scope kScope>
void barrier_expect_tx(barrier<kScope>& one, unsigned bytes, VERBATIM_WHERE) {
    one.verbatim_expect(bytes, where);
}
template <thread_scope kScope>
typename barrier<kScope>::arrival_token barrier_arrive_tx(barrier<kScope>& one, int count, unsigned bytes,
                                                          VERBATIM_WHERE) {
    one.verbatim_expect(bytes, where);
    return one.arrive(count, where);
}
}  // namespace device

// --- copies

template <size_t kAlignment>
struct aligned_size_t {
    explicit constexpr aligned_size_t(size_t bytes) : value(bytes) {}
    constexpr operator size_t() const { return value; }
    size_t value;
};

// The part of a copy that thread `rank` of `count` makes.
inline void verbatim_copy_part(void* to, const void* from, size_t bytes, unsigned rank, unsigned count) {
    size_t width = 16;
    const auto is_multiple = [&] {
        return (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % width == 0;
    };
    while (width > 1 && !is_multiple()) width /= 2;
    const bool is_async = width >= 4 && verbatim::cuda_source::is_shared(to) && !verbatim::cuda_source::is_shared(from);
    auto* const out = static_cast<unsigned char*>(to);
    const auto* const in = static_cast<const unsigned char*>(from);
    for (size_t at = rank * width; at < bytes; at += count * width) {
        if (is_async) {
            verbatim::cuda_source::copy_async(out + at, in + at, width, width);
        } else {
            for (size_t i = at; i < at + width; ++i) out[i] = in[i];
        }
    }
}

template <typename Group, thread_scope kScope>
void memcpy_async(const Group& group, void* to, const void* from, size_t bytes, barrier<kScope>& until,
                  VERBATIM_WHERE) {
    verbatim_copy_part(to, from, bytes, group.thread_rank(), group.size());
    until.verbatim_await_copies(where);
}
template <thread_scope kScope>
void memcpy_async(void* to, const void* from, size_t bytes, barrier<kScope>& until, VERBATIM_WHERE) {
    verbatim_copy_part(to, from, bytes, 0, 1);
    until.verbatim_await_copies(where);
}

// --- pipelines

enum class pipeline_role { producer, consumer };

// Of each stage a barrier of its producers, and one of its consumers.
template <thread_scope kScope, int kStages>
struct pipeline_shared_state {
    pipeline_shared_state() = default;
    barrier<thread_scope_block> filled[kStages], emptied[kStages];
};

template <thread_scope kScope>
class pipeline {
public:
    pipeline() = default;
    pipeline(barrier<thread_scope_block>* filled, barrier<thread_scope_block>* emptied, unsigned stages)
        : filled_(filled), emptied_(emptied), stages_(stages) {}

    void producer_acquire(VERBATIM_WHERE) {
        if (filled_ == nullptr || produced_ < stages_) return;
        emptied_[produced_ % stages_].wait_parity((produced_ / stages_ - 1) % 2 != 0, where);
    }
    void producer_commit(VERBATIM_WHERE) {
        if (filled_ == nullptr) {
            verbatim::cuda_source::commit_async();
        } else {
            filled_[produced_ % stages_].verbatim_await_copies(where);
            (void)filled_[produced_ % stages_].arrive(1, where);
        }
        ++produced_;
    }
    void consumer_wait(VERBATIM_WHERE) {
        if (filled_ == nullptr) {
            verbatim::cuda_source::wait_async(produced_ - consumed_ - 1, where);
            ++consumed_;
        } else {
            filled_[consumed_ % stages_].wait_parity(consumed_ / stages_ % 2 != 0, where);
        }
    }
    void consumer_release(VERBATIM_WHERE) {
        if (filled_ == nullptr) return;
        (void)emptied_[consumed_ % stages_].arrive(1, where);
        ++consumed_;
    }
    void quit() {}

private:
    barrier<thread_scope_block>* filled_ = nullptr;
    barrier<thread_scope_block>* emptied_ = nullptr;
    unsigned stages_ = 1, produced_ = 0, consumed_ = 0;
};
inline pipeline<thread_scope_thread> make_pipeline() { return {}; }
template <typename Group, int kStages>
pipeline<thread_scope_block> verbatim_pipeline(const Group& group,
                                               pipeline_shared_state<thread_scope_block, kStages>* state,
                                               unsigned producers, unsigned consumers, ::std::source_location where) {
    if (group.thread_rank() == 0) {
        for (int i = 0; i < kStages; ++i) {
            state->filled[i].verbatim_init(static_cast<int>(producers), where);
            state->emptied[i].verbatim_init(static_cast<int>(consumers), where);
        }
    }
    group.sync(where);
    return {state->filled, state->emptied, kStages};
}
template <typename Group, int kStages>
pipeline<thread_scope_block> make_pipeline(const Group& group,
                                           pipeline_shared_state<thread_scope_block, kStages>* state, VERBATIM_WHERE) {
    return verbatim_pipeline(group, state, group.size(), group.size(), where);
}
template <typename Group, int kStages>
pipeline<thread_scope_block> make_pipeline(const Group& group,
                                           pipeline_shared_state<thread_scope_block, kStages>* state, size_t producers,
                                           VERBATIM_WHERE) {
    const auto count = static_cast<unsigned>(producers);
    return verbatim_pipeline(group, state, count, group.size() - count, where);
}
template <typename Group, int kStages>
pipeline<thread_scope_block> make_pipeline(const Group& group,
                                           pipeline_shared_state<thread_scope_block, kStages>* state,
                                           pipeline_role role, VERBATIM_WHERE) {
    const auto producers = static_cast<unsigned>(__syncthreads_count(role == pipeline_role::producer, where));
    return verbatim_pipeline(group, state, producers, group.size() - producers, where);
}
template <int kPending>
void pipeline_consumer_wait_prior(pipeline<thread_scope_thread>&, VERBATIM_WHERE) {
    verbatim::cuda_source::wait_async(kPending, where);
}
template <typename Group, thread_scope kScope>
void memcpy_async(const Group& group, void* to, const void* from, size_t bytes, pipeline<kScope>&) {
    verbatim_copy_part(to, from, bytes, group.thread_rank(), group.size());
}
template <thread_scope kScope>
void memcpy_async(void* to, const void* from, size_t bytes, pipeline<kScope>&) {
    verbatim_copy_part(to, from, bytes, 0, 1);
}

}  // namespace cuda

namespace cooperative_groups {

template <typename Group>
void memcpy_async(const Group& group, void* to, const void* from, size_t bytes) {
    cuda::verbatim_copy_part(to, from, bytes, group.thread_rank(), group.size());
    verbatim::cuda_source::commit_async();
}
// Of one thread's groups of copies; the barrier makes those of all.
template <unsigned kPending, typename Group>
void wait_prior(const Group& group, VERBATIM_WHERE) {
    verbatim::cuda_source::wait_async(kPending, where);
    group.sync(where);
}
template <typename Group>
void wait(const Group& group, VERBATIM_WHERE) {
    wait_prior<0>(group, where);
}

}  // namespace cooperative_groups
