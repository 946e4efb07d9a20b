#include "kernels/cpu/state_rows.h"

#include "engine/base/check.h"

namespace verbatim::cpu {
namespace {

constexpr int64_t kLineBytes = 64;

}  // namespace

StateRows::StateRows(const reference::StateTensors& tensors, int32_t num_rows)
    : tensors_(tensors),
      num_rows_(num_rows),
      layout_(row_layout(tensors, kLineBytes)),
      bytes_(num_rows * layout_.row_bytes) {}

std::span<std::byte> StateRows::bytes(StateIndex row, int32_t layer, reference::StateKind kind) const {
    CHECK(index(row) >= 0 && index(row) < num_rows_, "state row {} of {}", index(row), num_rows_);
    const size_t place = tensors_.place(layer, kind);
    CHECK_GE(layout_.offsets[place], 0);
    return {bytes_.data() + index(row) * layout_.row_bytes + layout_.offsets[place],
            static_cast<size_t>(tensors_[place].num_bytes())};
}

}  // namespace verbatim::cpu
