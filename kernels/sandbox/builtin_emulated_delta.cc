// The operations of a gated delta net in kernels/cuda behind the structs of kernels/sandbox/kernel.h.
#include <span>
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device_array.h"
#include "kernels/sandbox/builtin_parts.h"
#include "kernels/sandbox/emulated_parts.h"

namespace verbatim::sandbox {
namespace {

using cuda::Device;
using Kernel = verbatim_kernel;
using Args = verbatim_args;
using Run = verbatim_run;

std::vector<float> dense_copy(const verbatim_const_floats& rows) {
    std::vector<float> values;
    for (int64_t r = 0; r < rows.num_rows; ++r) {
        values.insert(values.end(), rows.data + r * rows.stride, rows.data + r * rows.stride + rows.width);
    }
    return values;
}

// q, k and v of a row side by side, as the conv writes them.
std::vector<float> gathered_rows(const verbatim_delta_update& op) {
    std::vector<float> rows;
    for (int64_t r = 0; r < op.v.num_rows; ++r) {
        for (const verbatim_const_floats* part : {&op.q, &op.k, &op.v}) {
            rows.insert(rows.end(), part->data + r * part->stride, part->data + r * part->stride + part->width);
        }
    }
    return rows;
}

int32_t emulate_delta_update(const Kernel*, const Run* run) {
    const verbatim_delta_update& op = *run->args.delta_update;
    return on_emulator(run, [&](Device& device) {
        const StatefulStep step(device, op.sequences, op.states_in, op.n_value_heads * op.key_dim * op.value_dim);
        const cuda::DeltaShape shape{op.n_key_heads, op.n_value_heads, op.key_dim, op.value_dim, 4};
        const auto rows = on_device(device, gathered_rows(op));
        const auto beta = on_device(device, dense_copy(op.beta));
        const auto decay = on_device(device, dense_copy(op.decay));
        device.delta_update({step.batch(), shape, {}}, floats_of(rows, shape.conv_dim()),
                            floats_of(beta, op.n_value_heads), floats_of(decay, op.n_value_heads), step.states(),
                            floats_of(op.y));
        step.leave(op.states_out);
    });
}
int32_t limited_keys(const Kernel*, Args args) { return args.delta_update->key_dim <= cuda::CudaLimits{}.key_dim; }

// A single sequence with these rows and no log.
class SingleSequence {
public:
    SingleSequence(Device& device, int64_t num_rows)
        : sequences_(
              on_device(device, std::vector<cuda::DeviceSequence>{{.num_rows = static_cast<int32_t>(num_rows)}})),
          row_sequences_(on_device(device, std::vector<int32_t>(static_cast<size_t>(num_rows)))),
          writes_(device, 1) {}
    [[nodiscard]] cuda::DeviceBatch batch() const {
        return {.row_sequences = row_sequences_.data(),
                .sequences = sequences_.data(),
                .writes = writes_.data(),
                .num_rows = row_sequences_.count(),
                .num_sequences = 1,
                .max_writes = 1};
    }

private:
    cuda::DeviceArray<cuda::DeviceSequence> sequences_;
    cuda::DeviceArray<int32_t> row_sequences_;
    cuda::DeviceArray<cuda::DeviceStateWrite> writes_;
};

int32_t emulate_delta_gates(const Kernel*, const Run* run) {
    const verbatim_delta_gates& op = *run->args.delta_gates;
    return on_emulator(run, [&](Device& device) {
        const SingleSequence rows(device, op.b.num_rows);
        device.delta_gates({rows.batch(), {.n_value_heads = op.b.width}, {}}, {.rate = op.rate, .dt_bias = op.dt_bias},
                           floats_of(op.b), floats_of(op.a));
    });
}

// The device's rows hold q and k with the same number of heads, each with its scale: the caller's rows are passed as q,
// and k is unused.
int32_t emulate_l2_norm(const Kernel*, const Run* run) {
    const verbatim_l2_norm& op = *run->args.l2_norm;
    return on_emulator(run, [&](Device& device) {
        const SingleSequence rows(device, op.x.num_rows);
        const int64_t width = op.n_heads * op.dim;
        std::vector<float> both;
        for (int64_t r = 0; r < op.x.num_rows; ++r) {
            both.insert(both.end(), op.x.data + r * op.x.stride, op.x.data + r * op.x.stride + width);
            both.insert(both.end(), static_cast<size_t>(width), 1.0F);
        }
        const auto x = on_device(device, both);
        device.l2_norm({rows.batch(), {.n_key_heads = op.n_heads, .key_dim = op.dim}, {}}, op.scale,
                       floats_of(x, 2 * width));
        x.download(0, both);
        for (int64_t r = 0; r < op.x.num_rows; ++r) {
            device.upload(op.x.data + r * op.x.stride, both.data() + 2 * r * width,
                          static_cast<size_t>(width) * sizeof(float));
        }
    });
}

constexpr Kernel kDeltaKernels[] = {
    emulated_of("delta_update", emulate_delta_update, limited_keys),
    emulated_of("delta_gates", emulate_delta_gates),
    emulated_of("l2_norm", emulate_l2_norm),
};

}  // namespace

std::span<const Kernel> emulated_delta_kernels() { return kDeltaKernels; }

}  // namespace verbatim::sandbox
