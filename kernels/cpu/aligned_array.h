// kernels/cpu/aligned_array.h: memory for vector loads: 64-byte aligned, zeros at first, grows without keeping its
// content.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <type_traits>

#include "engine/base/check.h"

namespace verbatim::cpu {

template <typename T>
    requires std::is_trivially_copyable_v<T>
class AlignedArray {
public:
    static constexpr size_t kAlignment = 64;

    AlignedArray() = default;
    explicit AlignedArray(int64_t size) { ensure(size); }

    // At least `size` elements. What was there is lost when the array has to grow; fresh memory is zero.
    T* ensure(int64_t size) {
        if (size <= size_) return data_.get();
        const size_t num_bytes = (static_cast<size_t>(size) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        data_.reset(static_cast<T*>(std::aligned_alloc(kAlignment, num_bytes)));
        CHECK(data_ != nullptr, "no memory for {} bytes", num_bytes);
        std::memset(data_.get(), 0, num_bytes);
        size_ = size;
        return data_.get();
    }
    [[nodiscard]] T* data() const { return data_.get(); }
    [[nodiscard]] int64_t size() const { return size_; }

private:
    struct Free {
        void operator()(T* memory) const { std::free(memory); }
    };
    std::unique_ptr<T, Free> data_;
    int64_t size_ = 0;
};

}  // namespace verbatim::cpu
