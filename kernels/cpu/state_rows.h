// kernels/cpu/state_rows.h: owns the bytes of the state rows. A row holds the per-sequence tensors of the model's list
// (reference/model/state_tensors.h), each in its logical order (an SSM state is [n_heads, d_state, head_dim]: vectors
// run along head_dim), aligned to 64 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/base/ids.h"
#include "kernels/cpu/aligned_array.h"
#include "kernels/cpu/arena_units.h"
#include "reference/model/state_tensors.h"

namespace verbatim::cpu {

class StateRows {
public:
    // Owns the memory. Borrows the list.
    StateRows(const reference::StateTensors& tensors, int32_t num_rows);
    // Borrows the memory. REQUIRES: rows.stride >= row_bytes(tensors), a multiple of 64.
    StateRows(const reference::StateTensors& tensors, const ArenaUnits& rows);
    [[nodiscard]] static int64_t row_bytes(const reference::StateTensors& tensors);

    // REQUIRES: a per-sequence tensor of the list.
    [[nodiscard]] std::span<std::byte> bytes(StateIndex row, int32_t layer, reference::StateKind kind) const;
    // The same in elements. REQUIRES: T matches the tensor's dtype.
    template <typename T>
    [[nodiscard]] std::span<T> tensor(StateIndex row, int32_t layer, reference::StateKind kind) const {
        const std::span<std::byte> all = bytes(row, layer, kind);
        return {reinterpret_cast<T*>(all.data()), all.size() / sizeof(T)};
    }

private:
    const reference::StateTensors& tensors_;
    reference::StateRowLayout layout_;
    AlignedArray<std::byte> own_;
    ArenaUnits rows_;
};

}  // namespace verbatim::cpu
