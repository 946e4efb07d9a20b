// kernels/cuda/device_array.h: owns arrays in device memory, and pinned host memory for transfers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cuda/cuda_ops.h"

namespace verbatim::cuda {

// Owns its memory. T: the smallest element that one thread writes alone.
template <typename T>
class DeviceArray {
public:
    DeviceArray() = default;
    DeviceArray(Device& device, int64_t count) : device_(&device), count_(count) {
        data_ = static_cast<T*>(device.allocate(static_cast<size_t>(count) * sizeof(T), cell_bytes()));
    }
    DeviceArray(Device& device, std::span<const T> values) : DeviceArray(device, static_cast<int64_t>(values.size())) {
        upload(values);
    }
    DeviceArray(DeviceArray&& other) noexcept { *this = std::move(other); }
    DeviceArray& operator=(DeviceArray&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        return *this;
    }
    ~DeviceArray() {
        if (data_ != nullptr) device_->release(data_);
    }

    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] int64_t count() const { return count_; }
    // Returns room for at least `count` elements; growing discards the content. It grows by half at least: moves are
    // rare, and each move invalidates the graphs that contain the old address.
    T* ensure(Device& device, int64_t count) {
        if (count > count_) *this = DeviceArray(device, std::max(count, count_ + count_ / 2));
        return data_;
    }
    // As ensure(), and keeps the content: it moves through the host, which waits for it.
    T* grow(Device& device, int64_t count) {
        if (count <= count_) return data_;
        std::vector<T> kept(static_cast<size_t>(count_));
        download(0, kept);
        *this = DeviceArray(device, count);
        upload(kept);
        return data_;
    }
    void upload(std::span<const T> values) { upload(0, values); }
    void upload(int64_t first, std::span<const T> values) {
        if (!values.empty()) device_->upload(data_ + first, values.data(), values.size_bytes());
    }
    void download(int64_t first, std::span<T> values) const {
        if (!values.empty()) device_->download(values.data(), data_ + first, values.size_bytes());
    }

private:
    static constexpr size_t cell_bytes() { return sizeof(T) < 4 ? sizeof(T) : 4; }

    Device* device_ = nullptr;
    T* data_ = nullptr;
    int64_t count_ = 0;
};

// Pinned host memory; growing discards the content.
class PinnedBytes {
public:
    explicit PinnedBytes(Device& device) : device_(device) {}
    PinnedBytes(const PinnedBytes&) = delete;
    PinnedBytes& operator=(const PinnedBytes&) = delete;
    ~PinnedBytes() { device_.release_pinned(data_); }

    // Null after a device error.
    std::byte* ensure(int64_t size) {
        if (size <= size_) return data_;
        size = std::max(size, size_ + size_ / 2);
        device_.release_pinned(data_);
        data_ = static_cast<std::byte*>(device_.allocate_pinned(static_cast<size_t>(size)));
        size_ = size;
        return data_;
    }
    [[nodiscard]] std::byte* data() const { return data_; }

private:
    Device& device_;
    std::byte* data_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace verbatim::cuda
