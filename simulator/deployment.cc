#include "simulator/deployment.h"

#include "engine/base/check.h"

namespace verbatim {
namespace {

constexpr int64_t kWindowValueBytes = 4;

}  // namespace

ModelShape with_state_values(ModelShape model, int64_t value_bytes) {
    CHECK(value_bytes == 2 || value_bytes == 4, "states of {} bytes a value", value_bytes);
    model.state_value_bytes = value_bytes;
    model.state_bytes_per_row = 0;
    for (const StateShape& state : model.states) {
        model.state_bytes_per_row += (state.recurrent * value_bytes + state.window * kWindowValueBytes) * state.count;
    }
    return model;
}

}  // namespace verbatim
