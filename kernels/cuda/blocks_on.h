// kernels/cuda/blocks_on.h: owns the launch configuration of matmuls with quantised weights (kernels/cuda/device_on.h).
// Every format has the same kernels; tiles, items and parts are those of matmul_on.h and experts_on.h.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/experts_on.h"
#include "kernels/cuda/ops/block_matmul.h"
#include "kernels/cuda/ops/int8_matmul.h"

namespace verbatim::cuda {
inline namespace SIMT_MACHINE {

template <typename Machine>
class BlocksOn : public ExpertsOn<Machine> {
public:
    using ExpertsOn<Machine>::ExpertsOn;

    void embed_blocks(const DeviceBatch& batch, const DeviceMatrix& table, float multiplier, Floats out) override {
        with_format(table.format, [&]<typename Format>(Format) {
            launch_rows("embed_blocks", out,
                        EmbedBlocks<Format>{view(batch.tokens, batch.num_rows), view(table.words, words_of(table)),
                                            multiplier, rows(out)});
        });
    }
    void quantise_rows(Floats x, float multiplier, reference::Int8Sharing sharing, uint32_t* out) override {
        const int64_t records = int8_records(x.width);
        const QuantiseParameters all{rows(read_only(x)), multiplier, records,
                                     view(out, x.num_rows * int8_row_words(x.width))};
        const simt::Dim3 by_record = grid(x.num_rows, records);
        switch (sharing) {
            case reference::Int8Sharing::kBlocksOf32:
                return launch("quantise_rows", by_record, {kInt8RecordQuads}, QuantiseBlocksOf32{{all}});
            case reference::Int8Sharing::kBlocksOf256:
                return launch("quantise_rows", by_record, {kInt8RecordQuads}, QuantiseBlocksOf256{{all}});
            case reference::Int8Sharing::kRow:
                return launch("quantise_rows", grid(x.num_rows),
                              {static_cast<int32_t>(std::min<int64_t>(records * kInt8RecordQuads, kQuantiseThreads))},
                              QuantiseWholeRows{{all}});
        }
    }
    void int8_matmul(const uint32_t* from, const DeviceMatrix& matrix, Floats out) override {
        const MatmulParameters all = parameters_of(from, int8_row_words(matrix.num_k), matrix, words_of(matrix), out);
        with_integer_kernel(matrix.format, out.num_rows, [&]<typename Kernel, int kRows>() {
            auto matvec = matvec_of(all);
            matvec.grid.y = static_cast<int32_t>(parts(out.num_rows, kRows));
            launch("int8_matvec", matvec.grid, matvec.block, Kernel{{{{{matvec.parameters}}}, {}, 0, false}});
        });
    }
    void matmul(const uint32_t* pairs, const DeviceMatrix& matrix, Floats out) override {
        if (matrix.format == WeightFormat::kPairs) return Views::matmul(pairs, matrix, out);
        const MatmulParameters all = parameters_of(pairs, row_pairs_of(matrix.num_k), matrix, words_of(matrix), out);
        with_kernel(
            matrix.format, out.num_rows, [&]<typename Kernel>() { launch_matvec<Kernel>(all); },
            [&]<typename Kernel>() { launch_items<Kernel>(all); });
    }
    void multiply_entries(reference::Profile profile, const DeviceEntries& of, const uint32_t* pairs,
                          const DeviceMatrix& matrix, Floats out) override {
        if (matrix.format == WeightFormat::kPairs) return Views::multiply_entries(profile, of, pairs, matrix, out);
        const bool in_int8 = profile == reference::Profile::kExactInt8;
        const MatmulParameters all =
            parameters_of(pairs, in_int8 ? int8_row_words(matrix.num_k) : row_pairs_of(matrix.num_k), matrix,
                          of.counts.n_experts * words_of(matrix), out);
        if (in_int8) return multiply_integers(of, all, matrix);
        with_kernel(
            matrix.format, of.counts.part_rows(),
            [&]<typename Kernel>() { launch_entries<Kernel>(of, all, words_of(matrix)); },
            [&]<typename Kernel>() { launch_tiles<Kernel>(of, all, words_of(matrix)); });
    }

protected:
    using Views = ExpertsOn<Machine>;
    using typename Views::MatvecLaunch;
    using Views::grid;
    using Views::launch;
    using Views::launch_rows;
    using Views::parts;
    using Views::read_only;
    using Views::rows;
    using Views::view;

private:
    static constexpr int kBlockMatvecRows = 8;  // at most: dequantising is most of the work, and done once for all rows

    // use(Format()), of ops/block_formats.h.
    template <typename Use>
    static void with_format(WeightFormat format, const Use& use) {
        switch (format) {
            case WeightFormat::kPairs: break;
            case WeightFormat::kQ4_0: return use(BlocksQ40());
            case WeightFormat::kQ4_1: return use(BlocksQ41());
            case WeightFormat::kQ5_0: return use(BlocksQ50());
            case WeightFormat::kQ5_1: return use(BlocksQ51());
            case WeightFormat::kQ8_0: return use(BlocksQ80());
            case WeightFormat::kQ2_K: return use(BlocksQ2K());
            case WeightFormat::kQ3_K: return use(BlocksQ3K());
            case WeightFormat::kQ4_K: return use(BlocksQ4K());
            case WeightFormat::kQ5_K: return use(BlocksQ5K());
            case WeightFormat::kQ6_K: return use(BlocksQ6K());
            case WeightFormat::kIq4Nl: return use(BlocksIq4Nl());
            case WeightFormat::kIq4Xs: return use(BlocksIq4Xs());
            case WeightFormat::kMxfp4: return use(BlocksMxfp4());
            case WeightFormat::kInt8: return use(BlocksInt8());
            case WeightFormat::kInt4: return use(BlocksInt4());
            case WeightFormat::kInt4Zero: return use(BlocksInt4Zero());
            case WeightFormat::kFp8E4m3: return use(BlocksFp8());
            case WeightFormat::kFp4E2m1: return use(BlocksFp4());
        }
    }
    // Calls matvec<Kernel>() or matmul<Kernel>() with the kernel for so many rows.
    template <typename Matvec, typename Matmul>
    static void with_kernel(WeightFormat format, int64_t num_rows, const Matvec& matvec, const Matmul& matmul) {
        with_format(format, [&]<typename Format>(Format) {
            if (num_rows <= 1) return matvec.template operator()<BlockMatvec<Format, 1>>();
            if (num_rows <= kMatvecRows) return matvec.template operator()<BlockMatvec<Format, kMatvecRows>>();
            if (num_rows <= kBlockMatvecRows)
                return matvec.template operator()<BlockMatvec<Format, kBlockMatvecRows>>();
            if (num_rows <= 16) return matmul.template operator()<BlockMatmul<Format, 16>>();
            matmul.template operator()<BlockMatmul<Format, 32>>();
        });
    }
    // Calls matvec<Kernel, rows>() for so many rows.
    template <typename Matvec>
    static void with_integer_kernel(WeightFormat format, int64_t num_rows, const Matvec& matvec) {
        with_format(format, [&]<typename Format>(Format) {
            if constexpr (has_integers(Format::kFormat)) {
                if (num_rows <= 1) return matvec.template operator()<IntegerMatvec<Format, 1>, 1>();
                matvec.template operator()<IntegerMatvec<Format, kBlockMatvecRows>, kBlockMatvecRows>();
            }
        });
    }
    void multiply_integers(const DeviceEntries& of, const MatmulParameters& all, const DeviceMatrix& matrix) {
        const int64_t part_rows = of.counts.part_rows();
        with_integer_kernel(matrix.format, part_rows, [&]<typename Kernel, int kRows>() {
            auto matvec = this->entries_matvec(of, all);
            matvec.grid.y = static_cast<int32_t>(parts(part_rows, kRows));
            launch("int8_expert_matvec", matvec.grid, matvec.block,
                   Kernel{{{{{matvec.parameters}}}, parts_of(of), words_of(matrix), true}});
        });
    }
    static int64_t words_of(const DeviceMatrix& matrix) {
        return block_words(matrix.format, matrix.num_outputs, matrix.num_k);
    }
    MatmulParameters parameters_of(const uint32_t* x, int64_t row_words, const DeviceMatrix& matrix, int64_t num_words,
                                   Floats out) {
        return {view(x, out.num_rows * row_words),
                row_words,
                view(matrix.words, num_words),
                view(matrix.bias, matrix.num_outputs),
                matrix.bias != nullptr,
                matrix.num_k / 2,
                rows(out)};
    }

    MatvecLaunch matvec_of(const MatmulParameters& all) {
        MatvecParameters matvec = {};
        matvec.num_rows = static_cast<int32_t>(all.out.num_rows);
        matvec.num_pairs = all.num_pairs;
        matvec.row_pairs = all.row_pairs;
        matvec.pairs = all.x;
        matvec.first = {all.weight, all.bias, all.has_bias, all.out,
                        static_cast<int32_t>(parts(all.out.width, kPanel) * kPanelQuads)};
        matvec.end = MatvecEnd::kWrite;
        const auto shape = this->divide(matvec);
        return {matvec, shape.grid, shape.block};
    }
    template <typename Kernel>
    void launch_matvec(const MatmulParameters& all) {
        const auto matvec = matvec_of(all);
        launch("block_matvec", matvec.grid, matvec.block, Kernel{{{{matvec.parameters}}, {}, 0, false}});
    }
    template <typename Kernel>
    void launch_items(const MatmulParameters& all) {
        const MatmulItems items = this->template items_of<Kernel>(all);
        launch("block_matmul", this->template grid_of<Kernel>(all, items), {simt::kWarpSize, items.block_warps},
               Kernel{{{all, items}, {}, 0, false}});
    }
    template <typename Kernel>
    void launch_entries(const DeviceEntries& of, const MatmulParameters& all, int64_t words) {
        const auto matvec = this->entries_matvec(of, all);
        launch("block_expert_matvec", matvec.grid, matvec.block,
               Kernel{{{{matvec.parameters}}, parts_of(of), words, true}});
    }
    // One CTA per tile of a part's first rows: the parts alone keep the device busy.
    template <typename Kernel>
    void launch_tiles(const DeviceEntries& of, const MatmulParameters& all, int64_t words) {
        const MatmulItems items = this->whole_tiles(all.num_pairs);
        launch("block_expert_matmul", grid(parts(all.out.width, kPanel), 1, of.counts.num_parts()),
               {simt::kWarpSize, items.block_warps}, Kernel{{{all, items}, parts_of(of), words, true}});
    }
    simt::Global<const DeviceExpertPart> parts_of(const DeviceEntries& of) {
        return view(read_only(of.parts), of.counts.num_parts());
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
