// kernels/cuda/experts_on.h: owns the launch configuration of a mixture's operations (kernels/cuda/device_on.h). Grids
// depend on the number of rows and never on the chosen experts, so one graph fits every choice.
#pragma once

#include <algorithm>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/matmul_on.h"
#include "kernels/cuda/ops/experts.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/matvec.h"
#include "kernels/cuda/ops/router.h"
#include "kernels/cuda/ops/tensor_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

template <typename Machine>
class ExpertsOn : public MatmulOn<Machine> {
public:
    using MatmulOn<Machine>::MatmulOn;

    void route(const uint32_t* pairs, const DeviceRouter& router, Floats out) override {
        const int64_t num_pairs = parts(router.num_k, 2);
        const int64_t row_pairs = row_pairs_of(router.num_k);
        const int64_t panels = parts(out.width, kRouteExperts);
        int32_t chunks = kRouteChunks;
        while (chunks < kMaxRouteChunks && chunks * kChunkPairs < num_pairs) chunks *= 2;
        launch("route", grid(panels, parts(out.num_rows, kRouteRows)), {kRouteExperts, chunks},
               Route{view(pairs, out.num_rows * row_pairs), row_pairs,
                     view(router.weight, panels * num_pairs * 2 * kRouteExperts), num_pairs, rows(out)});
    }
    void choose(const ChooseShape& shape, Floats logits, const float* choice_bias, Floats out) override {
        launch("choose", grid(out.num_rows), {simt::kWarpSize},
               Choose{shape, rows(read_only(logits)), view(choice_bias, shape.n_experts), rows(out)});
    }
    void list_entries(Floats chosen, const DeviceEntries& of) override {
        const ExpertCounts& counts = of.counts;
        const int64_t warps = std::clamp<int64_t>(parts(counts.num_entries(), simt::kWarpSize), 1, kListWarps);
        launch("list_entries", grid(counts.num_rows == 0 ? 0 : counts.n_experts),
               {static_cast<int32_t>(warps * simt::kWarpSize)},
               ListEntries{rows(read_only(chosen)), static_cast<int32_t>(counts.n_chosen),
                           static_cast<int32_t>(counts.part_rows()), counts.parts_by_entry(),
                           view(of.rows, counts.num_entries()), view(of.entries, counts.num_entries()),
                           view(of.parts, counts.num_parts())});
    }
    void gather_entries(const DeviceEntries& of, const uint32_t* from, int64_t row_words, uint32_t* out) override {
        const int64_t num_entries = of.counts.num_entries();
        launch("gather_entries", grid(num_entries, parts(row_words, kRowThreads)), {kRowThreads},
               GatherEntries{view(from, of.counts.num_rows * row_words), row_words,
                             view(read_only(of.rows), num_entries), view(out, num_entries * row_words)});
    }
    void multiply_entries(reference::Profile profile, const DeviceEntries& of, const uint32_t* pairs,
                          const DeviceMatrix& matrix, Floats out) override {
        if (profile == reference::Profile::kExact) {
            multiply_exactly(of, pairs, matrix, out);
        } else {
            multiply_on_tensor_cores(of, pairs, matrix, out);
        }
    }
    void combine(const DeviceEntries& of, Floats chosen, Floats results, Floats out, uint32_t* pairs) override {
        launch_pairs("combine", out,
                     Combine{rows(read_only(chosen)), static_cast<int32_t>(of.counts.n_chosen),
                             view(read_only(of.entries), of.counts.num_entries()), rows(read_only(results)), rows(out),
                             pairs != nullptr ? pairs_of(out, pairs) : KernelPairs{}});
    }
    void add_routed(Floats routed, Floats gate, Floats branch) override {
        launch_rows("add_routed", branch,
                    AddRouted{rows(read_only(routed)), gate.data != nullptr, rows(read_only(gate)), rows(branch)});
    }

protected:
    using Views = MatmulOn<Machine>;
    using Views::grid;
    using Views::launch;
    using Views::launch_pairs;
    using Views::launch_rows;
    using Views::num_processors;
    using Views::pairs_of;
    using Views::parts;
    using Views::read_only;
    using Views::rows;
    using Views::view;

    struct MatvecLaunch {
        MatvecParameters parameters;
        simt::Dim3 grid, block;
    };
    // One matrix's entries as a matvec: as many chunks in parallel as a row has, up to 32, and 16 quads of outputs: the
    // parts alone keep the device busy.
    static MatvecLaunch entries_matvec(const DeviceEntries& of, const MatmulParameters& all,
                                       int64_t chunk_pairs = kChunkPairs) {
        const int32_t chunks = Views::chunk_threads(all.num_pairs, chunk_pairs);
        const int32_t quads = std::min<int32_t>(kPanelQuads, kMatvecThreads / chunks);
        const int64_t num_blocks = parts(all.out.width, kPanel) * kPanelQuads / quads;
        MatvecParameters matvec = {};
        matvec.num_pairs = all.num_pairs;
        matvec.row_pairs = all.row_pairs;
        matvec.pairs = all.x;
        matvec.first = {all.weight, {}, false, all.out, static_cast<int32_t>(num_blocks)};
        matvec.end = MatvecEnd::kWrite;
        return {matvec, grid(num_blocks, 1, of.counts.num_parts()), {quads, chunks}};
    }

private:
    void multiply_exactly(const DeviceEntries& of, const uint32_t* pairs, const DeviceMatrix& matrix, Floats out) {
        const int64_t num_pairs = parts(matrix.num_k, 2);
        const int64_t row_pairs = row_pairs_of(matrix.num_k);
        const int64_t words = parts(matrix.num_outputs, kPanel) * num_pairs * kPanel;
        const MatmulParameters all{view(pairs, out.num_rows * row_pairs),
                                   row_pairs,
                                   view(matrix.words, of.counts.n_experts * words),
                                   {},
                                   false,
                                   num_pairs,
                                   rows(out)};
        const int64_t part_rows = of.counts.part_rows();
        if (part_rows <= 1) {
            launch_entries<ExpertMatvec1>(of, all, words);
        } else if (part_rows <= 2) {
            launch_entries<ExpertMatvec2>(of, all, words);
        } else if (part_rows <= kMatvecRows) {
            launch_entries<ExpertMatvec4>(of, all, words);
        } else if (part_rows <= 8) {
            launch_tiles<ExpertMatmul8>(of, all, words);
        } else if (part_rows <= 16) {
            launch_tiles<ExpertMatmul16>(of, all, words);
        } else if (part_rows <= 32) {
            launch_tiles<ExpertMatmul32>(of, all, words);
        } else {
            static_assert(Matmul::kBlockRows >= 128);
            launch("expert_matmul", grid(parts(out.width, Matmul::kBlockOutputs), 1, of.counts.num_parts()),
                   {simt::kWarpSize, Matmul::kWarps}, kernel_of<ExpertMatmul>({all}, of, words));
        }
    }
    // One CTA per tile: the parts alone keep the device busy.
    template <typename Kernel>
    void launch_tiles(const DeviceEntries& of, const MatmulParameters& all, int64_t words) {
        const MatmulItems items = this->whole_tiles(all.num_pairs);
        launch("expert_matmul", grid(parts(all.out.width, kPanel), 1, of.counts.num_parts()),
               {simt::kWarpSize, items.block_warps}, kernel_of<Kernel>({{all, items}}, of, words));
    }
    template <typename Kernel>
    void launch_entries(const DeviceEntries& of, const MatmulParameters& all, int64_t words) {
        const MatvecLaunch matvec = entries_matvec(of, all);
        launch("expert_matvec", matvec.grid, matvec.block, kernel_of<Kernel>({{{matvec.parameters}}}, of, words));
    }

    void multiply_on_tensor_cores(const DeviceEntries& of, const uint32_t* pairs, const DeviceMatrix& matrix,
                                  Floats out) {
        const int64_t tiles = parts(matrix.num_outputs, simt::kMmaRows);
        const int64_t groups = parts(matrix.num_k, simt::kMmaK);
        const int64_t words = tiles * groups * kFragmentWords;
        const TensorParameters all{view(pairs, out.num_rows * groups * kGroupPairs),
                                   view(matrix.words, of.counts.n_experts * words),
                                   {},
                                   false,
                                   tiles,
                                   groups,
                                   rows(out)};
        const int64_t part_rows = of.counts.part_rows();
        if (part_rows <= kTensorMatvecRows) {
            launch_tensor_entries(of, all, words);
        } else if (part_rows <= 16) {
            launch_expert_items<TensorExpertItems16>(of, all, words);
        } else if (part_rows <= 32) {
            launch_expert_items<TensorExpertItems32>(of, all, words);
        } else if (this->has_warpgroups()) {
            static_assert(HopperPart::kBlockRows >= 128);
            launch("hopper_expert_matmul", grid(parts(tiles, HopperPart::kBlockTiles), 1, of.counts.num_parts()),
                   {simt::kWarpSize, HopperPart::kWarps}, kernel_of<HopperExpertMatmul>({{all}}, of, words));
        } else {
            static_assert(TensorMatmul::kBlockRows >= 128);
            launch("tensor_expert_matmul", grid(parts(tiles, TensorMatmul::kBlockTiles), 1, of.counts.num_parts()),
                   {simt::kWarpSize, TensorMatmul::kWarps}, kernel_of<TensorExpertMatmul>({all}, of, words));
        }
    }
    // One CTA takes all chunks of a panel: the parts alone keep the device busy.
    template <typename Kernel>
    void launch_expert_items(const DeviceEntries& of, const TensorParameters& all, int64_t words) {
        constexpr int32_t kWarps = TensorItems32::kWarps;
        const TensorItemList items = this->whole_panels(all, kWarps, 1);
        launch("tensor_expert_items", grid(items.num_items, 1, of.counts.num_parts()), {simt::kWarpSize, kWarps},
               kernel_of<Kernel>({{all, items, kWarps}}, of, words));
    }
    void launch_tensor_entries(const DeviceEntries& of, const TensorParameters& all, int64_t words) {
        constexpr int kWarps = TensorMatvec8::kWarps;
        const int32_t chunk_warps = this->chunk_warps_of(all.num_groups, kWarps);
        const int64_t num_blocks = parts(all.num_tiles, kWarps / chunk_warps);
        MatvecParameters matvec = {};
        matvec.row_pairs = all.num_groups * kGroupPairs;
        matvec.pairs = all.x;
        matvec.first = {all.fragments, {}, false, all.out, static_cast<int32_t>(num_blocks)};
        matvec.end = MatvecEnd::kWrite;
        launch("tensor_expert_matvec", grid(num_blocks, 1, of.counts.num_parts()), {simt::kWarpSize, kWarps},
               kernel_of<TensorExpertMatvec8>({{{matvec}, chunk_warps}}, of, words));
    }
    template <typename Kernel>
    Kernel kernel_of(const decltype(Kernel::all)& all, const DeviceEntries& of, int64_t words) {
        Kernel kernel;
        kernel.all = all;
        kernel.parts = view(read_only(of.parts), of.counts.num_parts());
        kernel.matrix_words = words;
        return kernel;
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
