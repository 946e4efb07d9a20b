// kernels/sandbox/guarded_block.h: owns memory of a kernel (workspace, packed weights) between known bytes and a page
// that cannot be touched.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "kernels/sandbox/kernel_board.h"
#include "kernels/sandbox/task_watch.h"

namespace verbatim::sandbox {

class GuardedBlock {
public:
    GuardedBlock(int64_t num_bytes, uint8_t fill) : num_bytes_(num_bytes) {
        const int64_t rounded = (num_bytes + 63) / 64 * 64;
        area_bytes_ = (rounded + kBefore + kPage - 1) / kPage * kPage;
        void* const area = mmap(nullptr, static_cast<size_t>(area_bytes_ + kPage), PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(area != MAP_FAILED, "no memory for the {} bytes that the kernel asks for", num_bytes);
        area_ = static_cast<std::byte*>(area);
        mprotect(area_ + area_bytes_, kPage, PROT_NONE);
        std::memset(area_, kKnown, static_cast<size_t>(area_bytes_));
        data_ = area_ + area_bytes_ - rounded;
        std::memset(data_, fill, static_cast<size_t>(num_bytes));
    }
    ~GuardedBlock() { munmap(area_, static_cast<size_t>(area_bytes_ + kPage)); }
    GuardedBlock(const GuardedBlock&) = delete;
    GuardedBlock& operator=(const GuardedBlock&) = delete;

    [[nodiscard]] std::byte* data() const { return data_; }
    [[nodiscard]] BoardTensor as_tensor() const { return {data_, num_bytes_, 1, Role::kInOut, -1, 0, 0}; }
    [[nodiscard]] WatchedRange pages() const { return {area_, static_cast<size_t>(area_bytes_)}; }
    [[nodiscard]] bool intact() const {
        const auto known = [](std::byte byte) { return byte == static_cast<std::byte>(kKnown); };
        return std::all_of(area_, data_, known) && std::all_of(data_ + num_bytes_, area_ + area_bytes_, known);
    }

    // Keeps the content that must not change from now on.
    void keep() { kept_.assign(data_, data_ + num_bytes_); }
    [[nodiscard]] bool has_changed() const { return !kept_.empty() && !std::equal(kept_.begin(), kept_.end(), data_); }

private:
    static constexpr int64_t kBefore = 64;
    static constexpr int kKnown = 0xA5;
    int64_t num_bytes_ = 0, area_bytes_ = 0;
    std::byte* area_ = nullptr;
    std::byte* data_ = nullptr;
    std::vector<std::byte> kept_;
};

}  // namespace verbatim::sandbox
