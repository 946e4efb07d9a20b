// kernels/cuda/matvec_on.h: owns what device_on.h shares with it, and the launch configuration of Device::matvec.
#pragma once

#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/ops/matvec.h"
#include "kernels/cuda/ops/rows.h"
#include "kernels/cuda/ops/tensor_matvec.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

// Grid arithmetic and views that all parts of the device share.
template <typename Machine>
class ViewsOn : public Machine {
public:
    using Machine::Machine;

protected:
    using Machine::launch;
    using Machine::view;

    static int64_t parts(int64_t whole, int64_t part) { return (whole + part - 1) / part; }
    static simt::Dim3 grid(int64_t x, int64_t y = 1, int64_t z = 1) {
        return {static_cast<int32_t>(x), static_cast<int32_t>(y), static_cast<int32_t>(z)};
    }
    static DeviceRows<const float> read_only(Floats x) { return {x.data, x.num_rows, x.width, x.stride}; }
    template <typename T>
    static const T* read_only(T* data) {
        return data;
    }

    template <typename T>
    KernelRows<T> rows(DeviceRows<T> x) {
        const int64_t count = x.num_rows == 0 ? 0 : (x.num_rows - 1) * x.stride + x.width;
        return {view(x.data, count), x.num_rows, x.width, x.stride};
    }
    KernelPairs pairs_of(Floats x, uint32_t* pairs) {
        return {view(pairs, x.num_rows * row_pairs_of(x.width)), row_pairs_of(x.width)};
    }
    // resident_blocks() counts blocks of 256 threads, eight per SM.
    [[nodiscard]] int64_t num_processors() const { return std::max<int64_t>(this->resident_blocks() / 8, 1); }
    // Blocks of 64 threads along the pairs of each of x's rows, padding included.
    template <typename Kernel>
    void launch_pairs(const char* name, Floats x, const Kernel& kernel) {
        launch(name, grid(x.num_rows, parts(row_pairs_of(x.width), kRowThreads)), {kRowThreads}, kernel);
    }
    // Blocks of 64 threads along each of x's rows.
    template <typename Kernel>
    void launch_rows(const char* name, Floats x, const Kernel& kernel) {
        launch(name, grid(x.num_rows, parts(x.width, kRowThreads)), {kRowThreads}, kernel);
    }
};

template <typename Machine>
class MatvecOn : public ViewsOn<Machine> {
public:
    using ViewsOn<Machine>::ViewsOn;

    void matvec(const Matvec& of) override {
        const MatvecParameters parameters = matvec_parameters(of);
        const bool normed = of.input.is_normed;
        if (of.profile != reference::Profile::kExact) {
            normed ? launch_on_tensor_cores<TensorNormMatvec4>(parameters)
                   : launch_on_tensor_cores<TensorMatvec8>(parameters);
        } else if (of.num_rows <= 1) {
            normed ? launch_matvec<NormMatvec1>(parameters) : launch_matvec<Matvec1>(parameters);
        } else if (of.num_rows <= 2) {
            normed ? launch_matvec<NormMatvec2>(parameters) : launch_matvec<Matvec2>(parameters);
        } else {
            normed ? launch_matvec<NormMatvec4>(parameters) : launch_matvec<Matvec4>(parameters);
        }
    }

protected:
    // Chunks in parallel: as many as a row of num_groups groups has, a power of two up to `most`.
    static int32_t chunk_warps_of(int64_t num_groups, int32_t most) {
        int32_t warps = 1;
        while (warps < most && warps * kChunkGroups < num_groups) warps *= 2;
        return warps;
    }

    // Threads that take a chunk each of a matvec: a power of two up to 32.
    static int32_t chunk_threads(int64_t num_pairs, int64_t chunk_pairs) {
        int32_t chunks = 1;
        while (chunks < 32 && chunks * chunk_pairs < num_pairs) chunks *= 2;
        return chunks;
    }

    struct LaunchShape {
        simt::Dim3 grid, block;
    };
    // As many chunks in parallel as a row has, up to 32, and CTAs for every SM that read at least 64 consecutive bytes
    // of a row of weights each. num_blocks of the matrices become CTAs instead of quads of outputs.
    LaunchShape divide(MatvecParameters& parameters, int64_t chunk_pairs = kChunkPairs) const {
        const int32_t beside = parameters.end == MatvecEnd::kSwiglu ? 2 : 1;  // matrices per CTA
        if (beside == 2) parameters.second.num_blocks = 0;
        const int32_t chunks = chunk_threads(parameters.num_pairs, chunk_pairs);
        int32_t quads = std::min<int32_t>(kPanelQuads, kMatvecThreads / chunks) / beside;
        const int64_t all_quads =
            parameters.first.num_blocks + parameters.second.num_blocks + parameters.third.num_blocks;
        while (quads * beside > 4 && all_quads / quads < num_processors()) quads /= 2;
        for (MatvecMatrix* matrix : {&parameters.first, &parameters.second, &parameters.third}) {
            matrix->num_blocks /= quads;
        }
        return {grid(all_quads / quads), {quads * beside, chunks}};
    }

    using Views = ViewsOn<Machine>;
    using Views::grid;
    using Views::launch;
    using Views::num_processors;
    using Views::pairs_of;
    using Views::parts;
    using Views::read_only;
    using Views::rows;
    using Views::view;

private:
    // num_blocks counts quads of outputs (exact) or tiles here; the launch turns it into CTAs.
    MatvecMatrix matvec_matrix(const Matvec& of, int64_t i) {
        const DeviceMatrix& matrix = of.products[i].matrix;
        const bool exact = of.profile == reference::Profile::kExact;
        const int64_t panels = parts(matrix.num_outputs, kPanel);
        const int64_t tiles = parts(matrix.num_outputs, simt::kMmaRows);
        const int64_t words = exact ? panels * parts(matrix.num_k, 2) * kPanel
                                    : tiles * parts(matrix.num_k, simt::kMmaK) * kFragmentWords;
        KernelRows<float> out = rows(of.products[i].out);
        out.width = matrix.num_outputs;
        return {view(matrix.words, words), view(matrix.bias, matrix.num_outputs), matrix.bias != nullptr, out,
                static_cast<int32_t>(exact ? panels * kPanelQuads : tiles)};
    }
    MatvecNorm matvec_norm(const MatvecInput& of) {
        const bool gates = of.z.data != nullptr;
        const bool norms = !gates || of.gate != GateKind::kGateOnly;
        return {norms,
                gates,
                of.gate != GateKind::kNormThenGate,
                of.x.width / of.n_groups,
                rows(read_only(of.x)),
                rows(read_only(of.z)),
                view(of.weight, norms ? of.x.width : 0),
                of.eps};
    }
    MatvecParameters matvec_parameters(const Matvec& of) {
        const DeviceMatrix& first = of.products[0].matrix;
        const int64_t num_pairs = (first.num_k + 1) / 2;
        const int64_t row_pairs = row_pairs_of(first.num_k);
        const auto matrix = [&](int64_t i) { return i < of.num_products ? matvec_matrix(of, i) : MatvecMatrix{}; };
        return {static_cast<int32_t>(of.num_rows),
                num_pairs,
                row_pairs,
                view(of.input.pairs, of.num_rows * row_pairs),
                matvec_norm(of.input),
                matrix(0),
                matrix(1),
                matrix(2),
                of.end,
                of.branch_multiplier,
                of.residual_multiplier,
                rows(of.residual),
                of.gate_multiplier,
                pairs_of({nullptr, of.num_rows, first.num_outputs, 0}, of.pairs)};
    }
    template <typename Kernel>
    void launch_matvec(MatvecParameters parameters) {
        const LaunchShape shape = divide(parameters);
        launch("matvec", shape.grid, shape.block, Kernel{{{parameters}}});
    }
    // One warp per chunk of a row, up to 8; the remaining warps take further tiles.
    template <typename Kernel>
    void launch_on_tensor_cores(MatvecParameters parameters) {
        const int32_t beside = parameters.end == MatvecEnd::kSwiglu ? 2 : 1;  // matrices per CTA
        if (beside == 2) parameters.second.num_blocks = 0;
        const int32_t chunk_warps = chunk_warps_of(parameters.row_pairs / kGroupPairs, Kernel::kWarps / beside);
        int64_t blocks = 0;
        for (MatvecMatrix* matrix : {&parameters.first, &parameters.second, &parameters.third}) {
            matrix->num_blocks = static_cast<int32_t>(parts(matrix->num_blocks, Kernel::kWarps / beside / chunk_warps));
            blocks += matrix->num_blocks;
        }
        launch("tensor_matvec", grid(blocks), {simt::kWarpSize, Kernel::kWarps}, Kernel{{{parameters}, chunk_warps}});
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
