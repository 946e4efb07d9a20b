// kernels/cuda/matmul_on.h: owns the memory in which blocks leave the chunks of tiles that several of them have
// (ops/matmul_items.h), and says the grids and blocks of Device::matmul over a machine that launches kernels.
//
//   M1  the memory is taken when a matmul divides its tiles for the first time, as much as any may ask for, and stays
//       where it is: graphs name it
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
    // Whether large blocks, one a processor, keep half of the processors busy.
    bool fills_device(simt::Dim3 blocks) const { return 2 * int64_t{blocks.x} * blocks.y >= num_processors(); }
    // Blocks whose warps are as many as a row has chunks, up to 8.
    static int32_t item_warps(int64_t num_pairs) {
        int32_t warps = 1;
        while (warps < Matmul8::kWarps && warps * kChunkPairs < num_pairs) warps *= 2;
        return warps;
    }
    // A block has all chunks of its tiles.
    static MatmulItems whole_tiles(int64_t num_pairs) {
        return {static_cast<int32_t>(parts(num_pairs, kChunkPairs)), item_warps(num_pairs), {}, {}};
    }

    // All chunks of a panel are an item.
    static TensorItemList whole_panels(const TensorParameters& parameters, int64_t warps, int64_t row_blocks) {
        const auto panels = static_cast<int32_t>(parts(parameters.num_tiles, warps));
        const auto chunks = static_cast<int32_t>(parts(parameters.num_groups, kChunkGroups));
        return {false, chunks, panels, static_cast<int32_t>(panels * row_blocks), {}, {}};
    }
    // On tensor cores, some rows. Panels are divided into chunks, unless they are many, and of fewer warps, when there
    // are too few items still.
    template <typename Kernel>
    void launch_tensor_items(const char* name, const TensorParameters& parameters) {
        const int64_t row_blocks = parts(parameters.out.num_rows, Kernel::kRows);
        int32_t warps = Kernel::kWarps;
        TensorItemList items = whole_panels(parameters, warps, row_blocks);
        for (; warps > 1 && !keeps_busy(int64_t{items.num_items} * items.num_chunks); warps /= 2) {
            items = whole_panels(parameters, warps / 2, row_blocks);
        }
        // Blocks of fewer warps are not as many more: the inputs take as much of a processor's memory in each.
        const int64_t by_memory = kProcessorShared / (Kernel{{parameters, items, warps}}.shared_bytes() + kBlockShared);
        const int64_t resident =
            num_processors() * std::min<int64_t>(Kernel::kResidentBlocks * Kernel::kWarps / warps, by_memory);
        const int64_t sums = int64_t{items.num_items} * items.num_chunks * warps * Kernel::kSums;
        if (items.num_chunks > 1 && items.num_items < 4 * resident && items.num_items <= most_divided() &&
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

private:
    static constexpr int64_t kProcessorShared = 228 << 10;  // bytes, of 9.0
    static constexpr int64_t kBlockShared = 2 << 10;  // a block's own beside its rings: CUDA's, arrays of few words
    // As many blocks as the device holds at once, or as there are items. Tiles that are too few for its processors are
    // divided, into items of as many chunks as a block has warps: fewer warps, when there are too few items, still.
    template <typename Kernel>
    void launch_items(const char* name, const MatmulParameters& parameters) {
        const int64_t tiles = parts(parameters.out.width, kPanel) * parts(parameters.out.num_rows, Kernel::kBlockRows);
        const int64_t chunks = parts(parameters.num_pairs, kChunkPairs);
        MatmulItems items = whole_tiles(parameters.num_pairs);
        if (!keeps_busy(tiles) && tiles * chunks * Kernel::kSums <= room_for_sums()) {
            int32_t& warps = items.block_warps;
            while (warps > 1 && !keeps_busy(tiles * parts(chunks, warps))) warps /= 2;
            items.item_chunks = warps;
        }
        if (items.item_chunks < chunks) share_sums(items);
        const int64_t resident = num_processors() * Kernel::kResidentBlocks * Kernel::kWarps / items.block_warps;
        launch(name, grid(std::min(tiles * parts(chunks, items.item_chunks), resident)),
               {simt::kWarpSize, items.block_warps}, Kernel{{parameters, items}});
    }
    // Blocks of several warps, for three quarters of the processors at least.
    [[nodiscard]] bool keeps_busy(int64_t blocks) const { return 4 * blocks >= 3 * num_processors(); }
    // Tiles or panels, so that each has its arrivals.
    [[nodiscard]] int64_t most_divided() const { return num_processors() * 64; }
    // Floats: four chunks of the largest tile for each of the blocks that may be resident.
    [[nodiscard]] int64_t room_for_sums() const { return this->resident_blocks() * 4 * Matmul32::kSums; }
    template <typename Items>
    void share_sums(Items& items) {
        if (sums_.count() == 0) {
            sums_ = DeviceArray<float>(*this, room_for_sums());
            arrivals_ = DeviceArray<int32_t>(*this, std::vector<int32_t>(static_cast<size_t>(most_divided()), 0));
        }
        items.sums = view(sums_.data(), sums_.count());
        items.arrivals = view(arrivals_.data(), arrivals_.count());
    }

    DeviceArray<float> sums_;
    DeviceArray<int32_t> arrivals_;
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
