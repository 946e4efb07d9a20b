// kernels/cuda/matmul_on.h: owns the memory for partial sums of tiles that several CTAs share (ops/matmul_items.h), and
// the launch configuration of Device::matmul.
//
//   M1  the memory is allocated when a matmul divides its tiles for the first time, in the largest size that any matmul
//       may need, and never moves: graphs contain its address
//   M2  arrivals_ are 0 between launches
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/matvec_on.h"
#include "kernels/cuda/ops/matmul.h"
#include "kernels/cuda/ops/matmul_items.h"
#include "kernels/cuda/ops/tensor_items.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

template <typename Machine>
class MatmulOn : public MatvecOn<Machine> {
public:
    using MatvecOn<Machine>::MatvecOn;

    void matmul(const uint32_t* pairs, const DeviceMatrix& matrix, Floats out) override {
        if (out.num_rows <= kMatvecRows) {
            return this->matvec({.num_rows = out.num_rows,
                                 .input = {.pairs = pairs},
                                 .products = {{{matrix, out}}},
                                 .num_products = 1});
        }
        const int64_t num_pairs = (matrix.num_k + 1) / 2;
        const int64_t row_pairs = row_pairs_of(matrix.num_k);
        const int64_t panels = parts(matrix.num_outputs, kPanel);
        const MatmulParameters parameters{view(pairs, out.num_rows * row_pairs),
                                          row_pairs,
                                          view(matrix.words, panels * num_pairs * kPanel),
                                          view(matrix.bias, matrix.num_outputs),
                                          matrix.bias != nullptr,
                                          num_pairs,
                                          rows(out)};
        const simt::Dim3 blocks =
            grid(parts(matrix.num_outputs, Matmul::kBlockOutputs), parts(out.num_rows, Matmul::kBlockRows));
        if (out.num_rows <= 8) {
            launch_items<Matmul8>("matmul8", parameters);
        } else if (out.num_rows <= 16) {
            launch_items<Matmul16>("matmul16", parameters);
        } else if (out.num_rows <= 32 || !fills_device(blocks)) {
            launch_items<Matmul32>("matmul32", parameters);
        } else {
            launch("matmul", blocks, {simt::kWarpSize, Matmul::kWarps}, Matmul{parameters});
        }
    }

protected:
    // Whether large blocks, one per SM, keep half of the SMs busy.
    bool fills_device(simt::Dim3 blocks) const { return 2 * int64_t{blocks.x} * blocks.y >= num_processors(); }
    // A CTA computes all chunks of its tiles, with one warp per chunk of a row, up to 8.
    static MatmulItems whole_tiles(int64_t num_pairs, int64_t chunk_pairs = kChunkPairs) {
        const auto chunks = static_cast<int32_t>(parts(num_pairs, chunk_pairs));
        int32_t warps = 1;
        while (warps < Matmul8::kWarps && warps < chunks) warps *= 2;
        return {chunks, warps, {}, {}};
    }

    // An item is all chunks of a panel.
    static TensorItemList whole_panels(const TensorParameters& parameters, int64_t warps, int64_t row_blocks) {
        const auto panels = static_cast<int32_t>(parts(parameters.num_tiles, warps));
        const auto chunks = static_cast<int32_t>(parts(parameters.num_groups, kChunkGroups));
        return {false, chunks, panels, static_cast<int32_t>(panels * row_blocks), {}, {}};
    }
    // Some rows on tensor cores. Panels are divided into chunks unless there are many panels; CTAs have fewer warps
    // while there are too few items.
    template <typename Kernel>
    void launch_tensor_items(const char* name, const TensorParameters& parameters) {
        const int64_t row_blocks = parts(parameters.out.num_rows, Kernel::kRows);
        int32_t warps = Kernel::kWarps;
        TensorItemList items = whole_panels(parameters, warps, row_blocks);
        for (; warps > 1 && !keeps_busy(int64_t{items.num_items} * items.num_chunks); warps /= 2) {
            items = whole_panels(parameters, warps / 2, row_blocks);
        }
        // CTAs with fewer warps do not raise occupancy in proportion: each CTA holds the same inputs in shared memory.
        const int64_t by_memory = kProcessorShared / (Kernel{{parameters, items, warps}}.shared_bytes() + kBlockShared);
        const int64_t resident =
            num_processors() * std::min<int64_t>(Kernel::kResidentBlocks * Kernel::kWarps / warps, by_memory);
        const int64_t sums = int64_t{items.num_items} * items.num_chunks * warps * Kernel::kSums;
        if (items.num_chunks > 1 && items.num_items < 4 * resident && items.num_items <= max_divided_tiles() &&
            sums <= room_for_sums()) {
            items.is_divided = true;
            items.num_items *= items.num_chunks;
            share_sums(items);
        }
        launch(name, grid(std::min<int64_t>(items.num_items, resident)), {simt::kWarpSize, warps},
               Kernel{{parameters, items, warps}});
    }

    using Views = MatvecOn<Machine>;
    using Views::grid;
    using Views::launch;
    using Views::num_processors;
    using Views::parts;
    using Views::rows;
    using Views::view;

    // A list of items for the kernel. When the tiles are too few for the SMs, they are divided into items of one chunk
    // per warp; CTAs have fewer warps while there are still too few items.
    template <typename Kernel>
    MatmulItems items_of(const MatmulParameters& parameters) {
        const int64_t tiles = tiles_of<Kernel>(parameters);
        const int64_t chunks = parts(parameters.num_pairs, Kernel::kChunkPairs);
        MatmulItems items = whole_tiles(parameters.num_pairs, Kernel::kChunkPairs);
        if (!keeps_busy(tiles) && tiles * chunks * Kernel::kSums <= room_for_sums()) {
            int32_t& warps = items.block_warps;
            while (warps > 1 && !keeps_busy(tiles * parts(chunks, warps))) warps /= 2;
            items.item_chunks = warps;
        }
        if (items.item_chunks < chunks) share_sums(items);
        return items;
    }
    // The resident CTAs, or the items when these are fewer.
    template <typename Kernel>
    simt::Dim3 grid_of(const MatmulParameters& parameters, const MatmulItems& items) {
        const int64_t chunks = parts(parameters.num_pairs, Kernel::kChunkPairs);
        const int64_t resident = num_processors() * Kernel::kResidentBlocks * Kernel::kWarps / items.block_warps;
        return grid(std::min(tiles_of<Kernel>(parameters) * parts(chunks, items.item_chunks), resident));
    }

private:
    static constexpr int64_t kProcessorShared = 228 << 10;  // bytes per SM, compute capability 9.0
    // A CTA's fixed part besides its rings: CUDA's own and small arrays
    static constexpr int64_t kBlockShared = 2 << 10;
    template <typename Kernel>
    void launch_items(const char* name, const MatmulParameters& parameters) {
        const MatmulItems items = items_of<Kernel>(parameters);
        launch(name, grid_of<Kernel>(parameters, items), {simt::kWarpSize, items.block_warps},
               Kernel{{parameters, items}});
    }
    template <typename Kernel>
    static int64_t tiles_of(const MatmulParameters& parameters) {
        return parts(parameters.out.width, kPanel) * parts(parameters.out.num_rows, Kernel::kBlockRows);
    }
    // Whether CTAs of several warps cover at least three quarters of the SMs.
    [[nodiscard]] bool keeps_busy(int64_t blocks) const { return 4 * blocks >= 3 * num_processors(); }
    // The most tiles or panels that can be divided: each has an arrival counter.
    [[nodiscard]] int64_t max_divided_tiles() const { return num_processors() * 64; }
    // Floats: four chunks of the largest tile per resident CTA.
    [[nodiscard]] int64_t room_for_sums() const { return this->resident_blocks() * 4 * Matmul32::kSums; }
    template <typename Items>
    void share_sums(Items& items) {
        if (sums_.count() == 0) {
            sums_ = DeviceArray<float>(*this, room_for_sums());
            arrivals_ = DeviceArray<int32_t>(*this, std::vector<int32_t>(static_cast<size_t>(max_divided_tiles()), 0));
        }
        items.sums = view(sums_.data(), sums_.count());
        items.arrivals = view(arrivals_.data(), arrivals_.count());
    }

    DeviceArray<float> sums_;
    DeviceArray<int32_t> arrivals_;
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
