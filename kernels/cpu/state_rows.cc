#include "kernels/cpu/state_rows.h"

#include "engine/base/check.h"

namespace verbatim::cpu {

StateRows::StateRows(const reference::StateTensors& tensors, int32_t num_rows)
    : tensors_(tensors), layout_(row_layout(tensors, kArenaAlignment)), own_(num_rows * layout_.row_bytes) {
    rows_ = {own_.data(), layout_.row_bytes, num_rows};
}

StateRows::StateRows(const reference::StateTensors& tensors, const ArenaUnits& rows)
    : tensors_(tensors), layout_(row_layout(tensors, kArenaAlignment)), rows_(rows) {
    CHECK(rows.count == 0 || (rows.stride >= layout_.row_bytes && rows.stride % kArenaAlignment == 0),
          "rows of {} bytes, {} apart", layout_.row_bytes, rows.stride);
}

int64_t StateRows::row_bytes(const reference::StateTensors& tensors) {
    return row_layout(tensors, kArenaAlignment).row_bytes;
}

std::span<std::byte> StateRows::bytes(StateIndex row, int32_t layer, reference::StateKind kind) const {
    const size_t place = tensors_.place(layer, kind);
    CHECK_GE(layout_.offsets[place], 0);
    return {rows_.at(index(row)) + layout_.offsets[place], static_cast<size_t>(tensors_[place].num_bytes())};
}

}  // namespace verbatim::cpu
