// kernels/sandbox/device_tensors.h: owns a call's tensors in the emulator's memory: there and back.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/sandbox/kernel_board.h"
#include "kernels/sandbox/kernel_host.h"
#include "kernels/simt/emulator.h"
#include "kernels/simt/source_memory.h"

namespace verbatim::sandbox {

// Under Placing::kOdd tensors are aligned to their element alone, or begin aligned where they do on the host.
// hides: code that does not go through a view faults. source: of CUDA source, whose pointers are checked as they are;
// or null.
class DeviceTensors {
public:
    DeviceTensors(Board& board, simt::Emulator& emulator, Placed& placed, bool hides, simt::SourceDevice* source)
        : board_(board),
          emulator_(emulator),
          source_(source),
          access_(hides ? simt::Emulator::Access::kHidden : simt::Emulator::Access::kOpen) {
        emulator.keep_frames(true);
        for (int64_t i = 0; i < board.num_tensors; ++i) {
            const BoardTensor& tensor = board.tensors[i];
            if (tensor.lies_in >= 0) placed.data[i] = placed.data[tensor.lies_in];
            if (tensor.data == nullptr) continue;
            const auto bytes = static_cast<size_t>(tensor.num_bytes);
            const auto element = static_cast<size_t>(tensor.element_bytes);
            constexpr uintptr_t kVectorBytes = 16;
            const bool is_odd = board.options.placing == Placing::kOdd;
            const size_t shift = is_odd && reinterpret_cast<uintptr_t>(tensor.data) % kVectorBytes != 0 ? element : 0;
            auto* const data = static_cast<std::byte*>(allocate(bytes, std::min<size_t>(element, 4), shift));
            simt::Memory& memory = emulator.memory_of(data);
            const auto before = static_cast<size_t>(data - memory.address());
            std::memcpy(memory.bytes() + before, tensor.data, bytes);
            if (tensor.role != Role::kOut) memory.fill(before, bytes);
            if (tensor.role == Role::kOut) memory.watch_overwrites();
            forbid_gaps(tensor, memory, before);
            placed.data[i] = data;
        }
        device_ = placed.data;
        if (hides) board.device = device_;
    }
    void* allocate(size_t bytes, size_t cell_bytes, size_t shift = 0) {
        if (source_ != nullptr) return source_->allocate(bytes, cell_bytes, shift);
        const size_t whole = shift + std::max<size_t>(bytes, 1);
        return static_cast<std::byte*>(emulator_.allocate(whole, cell_bytes, access_)) + shift;
    }
    void bring_back() const {
        for (int64_t i = 0; i < board_.num_tensors; ++i) {
            const BoardTensor& tensor = board_.tensors[i];
            if (tensor.data == nullptr || tensor.role == Role::kIn) continue;
            simt::Memory& memory = emulator_.memory_of(device_[i]);
            std::memcpy(tensor.data, memory.bytes() + (device_[i] - memory.address()),
                        static_cast<size_t>(tensor.num_bytes));
        }
    }

    // The outputs that blocks compute more than once, as notes for a reader.
    [[nodiscard]] std::vector<std::string> notes(const std::vector<TensorSpec>& specs) const {
        std::vector<std::string> notes;
        for (int64_t i = 0; i < board_.num_tensors; ++i) {
            if (board_.tensors[i].data == nullptr || board_.tensors[i].role != Role::kOut) continue;
            if (!emulator_.memory_of(device_[i]).is_overwritten()) continue;
            notes.push_back(
                fmt::format("`{}`: a block writes what another block of the launch has written, and has "
                            "not read: they do the same work",
                            specs[i].name));
        }
        return notes;
    }

private:
    // What lies between two rows belongs to none.
    static void forbid_gaps(const BoardTensor& tensor, simt::Memory& memory, size_t before) {
        const int64_t gap = tensor.stride_bytes - tensor.unit_bytes;
        if (gap <= 0) return;
        for (int64_t at = tensor.unit_bytes; at < tensor.num_bytes; at += tensor.stride_bytes) {
            memory.forbid(before + static_cast<size_t>(at), static_cast<size_t>(gap));
        }
    }

    const Board& board_;
    simt::Emulator& emulator_;
    simt::SourceDevice* source_;
    simt::Emulator::Access access_;
    std::array<std::byte*, kMaxTensors> device_{};
};

}  // namespace verbatim::sandbox
