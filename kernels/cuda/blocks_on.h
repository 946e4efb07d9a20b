// kernels/cuda/blocks_on.h: owns the launch configuration of matmuls with quantised weights (kernels/cuda/device_on.h).
// Every format has the same kernels; tiles, items and parts are those of matmul_on.h and experts_on.h.
#pragma once

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/experts_on.h"
#include "kernels/cuda/ops/block_matmul.h"
#include "kernels/cuda/ops/fp8_matmul.h"
#include "kernels/cuda/ops/int8_matmul.h"
#include "kernels/cuda/ops/quantise_rows.h"

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
    void quantise_rows(Floats x, const reference::RowFactors& factors, RowForm form, uint32_t* out) override {
        // A multiple of a record: e4m3's scales, whose number is a multiple of 4, are those of 512 columns.
        const bool in_groups = form == RowForm::kFp8OfGroups;
        const int64_t scales = in_groups ? fp8_scale_words(reference::Fp8Sharing::kGroups, x.width) : 0;
        const int64_t quads = in_groups ? scales * kFp8GroupQuads : int8_records(x.width) * kInt8RecordQuads;
        const int64_t num_words = row_words(form, x.width);
        const QuantiseParameters all{rows(read_only(x)), factors, quads, num_words, view(out, x.num_rows * num_words)};
        switch (form) {
            case RowForm::kPairs: break;
            case RowForm::kInt8Of32: return quantise_records<QuantiseBlocksOf32>(all);
            case RowForm::kInt8Of256: return quantise_records<QuantiseBlocksOf256>(all);
            case RowForm::kInt8OfRow: return quantise_whole_rows<QuantiseWholeRows>(all);
            case RowForm::kFp8OfGroups: return quantise_records<QuantiseFp8Groups>(all);
            case RowForm::kFp8OfRow: return quantise_whole_rows<QuantiseFp8WholeRows>(all);
        }
    }
    void quantise_entries(const DeviceEntries& of, Floats x, bool gathers, const float* static_scales,
                          uint32_t* out) override {
        const int64_t num_entries = of.counts.num_entries();
        const int64_t quads = int8_records(x.width) * kInt8RecordQuads;
        const int64_t num_words = row_words(RowForm::kFp8OfRow, x.width);
        QuantiseFp8Entries kernel = {};
        static_cast<QuantiseParameters&>(kernel) = {
            rows(read_only(x)), {}, quads, num_words, view(out, num_entries * num_words)};
        kernel.parts = parts_of(of);
        kernel.static_scales = view(static_scales, of.counts.n_experts);
        kernel.rows = view(read_only(of.rows), num_entries);
        kernel.has_rows = gathers;
        launch("quantise_entries", grid(1, of.counts.part_rows(), of.counts.num_parts()),
               {static_cast<int32_t>(std::min<int64_t>(quads, kQuantiseThreads))}, kernel);
    }
    void matmul(const uint32_t* from, const DeviceMatrix& matrix, Floats out) override {
        if (matrix.format == WeightFormat::kPairs) return Views::matmul(from, matrix, out);
        const MatmulParameters all =
            parameters_of(from, row_words(matrix.inputs, matrix.num_k), matrix, words_of(matrix), out);
        if (multiplies_groups(matrix)) return multiply_groups(all, matrix);
        with_kernel(
            matrix.format, out.num_rows, [&]<typename Kernel>() { launch_matvec<Kernel>(all); },
            [&]<typename Kernel>() { launch_items<Kernel>("block_matmul", all); });
    }
    void multiply_entries(reference::Profile profile, const DeviceEntries& of, const uint32_t* from,
                          const DeviceMatrix& matrix, Floats out) override {
        if (matrix.format == WeightFormat::kPairs) return Views::multiply_entries(profile, of, from, matrix, out);
        const MatmulParameters all = parameters_of(from, row_words(matrix.inputs, matrix.num_k), matrix,
                                                   of.counts.n_experts * words_of(matrix), out);
        if (multiplies_groups(matrix)) return multiply_groups_of_entries(of, all, matrix);
        with_kernel(
            matrix.format, of.counts.part_rows(),
            [&]<typename Kernel>() { launch_entries<Kernel>(of, all, words_of(matrix)); },
            [&]<typename Kernel>() { launch_tiles<Kernel>("block_expert_matmul", of, all, words_of(matrix)); });
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

    template <typename Kernel>
    void quantise_records(const QuantiseParameters& all) {
        launch("quantise_rows", grid(all.x.num_rows, all.num_quads / kInt8RecordQuads), {kInt8RecordQuads},
               Kernel{{{all}}});
    }
    template <typename Kernel>
    void quantise_whole_rows(const QuantiseParameters& all) {
        launch("quantise_rows", grid(all.x.num_rows),
               {static_cast<int32_t>(std::min<int64_t>(all.num_quads, kQuantiseThreads))}, Kernel{{{all}}});
    }
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
            case WeightFormat::kIntOrder: return use(BlocksIntOrder());
        }
    }
    // Calls matvec<Kernel>() or matmul<Kernel>() with the kernel for so many rows.
    template <typename Matvec, typename Matmul>
    static void with_kernel(WeightFormat format, int64_t num_rows, const Matvec& matvec, const Matmul& matmul) {
        with_format(format, [&]<typename Format>(Format) {
            if constexpr (Format::kFormat != WeightFormat::kIntOrder) {
                if (num_rows <= 1) return matvec.template operator()<BlockMatvec<Format, 1>>();
                if (num_rows <= kMatvecRows) return matvec.template operator()<BlockMatvec<Format, kMatvecRows>>();
                if (num_rows <= kBlockMatvecRows)
                    return matvec.template operator()<BlockMatvec<Format, kBlockMatvecRows>>();
                if (num_rows <= 16) return matmul.template operator()<BlockMatmul<Format, 16>>();
                matmul.template operator()<BlockMatmul<Format, 32>>();
            }
        });
    }
    template <typename One, typename Four, typename Eight, typename Matvec>
    static void with_one_of(const char* name, int64_t num_rows, const Matvec& matvec) {
        if (num_rows <= 1) return matvec.template operator()<One, 1>(name);
        if (num_rows <= kMatvecRows) return matvec.template operator()<Four, kMatvecRows>(name);
        matvec.template operator()<Eight, kBlockMatvecRows>(name);
    }
    // Calls matvec<Kernel, rows>(name) for so many rows in the matrix's form. REQUIRES: multiplies_groups().
    template <typename Matvec>
    static void with_kernel_of_groups(const DeviceMatrix& matrix, int64_t num_rows, const Matvec& matvec) {
        if (matrix.inputs == RowForm::kFp8OfGroups)
            return with_one_of<Fp8GroupMatvec1, Fp8GroupMatvec4, Fp8GroupMatvec8>("fp8_matvec", num_rows, matvec);
        if (matrix.inputs == RowForm::kFp8OfRow)
            return with_one_of<Fp8RowMatvec1, Fp8RowMatvec4, Fp8RowMatvec8>("fp8_matvec", num_rows, matvec);
        if (matrix.format == WeightFormat::kIntOrder) {
            return with_one_of<BlockMatvecs<BlocksIntOrder, 1>, BlockMatvecs<BlocksIntOrder, kMatvecRows>,
                               BlockMatvecs<BlocksIntOrder, kBlockMatvecRows>>("block_matvec", num_rows, matvec);
        }
        with_format(matrix.format, [&]<typename Format>(Format) {
            if constexpr (has_integers(Format::kFormat)) {
                if (num_rows <= 1) return matvec.template operator()<IntegerMatvec<Format, 1>, 1>("int8_matvec");
                matvec.template operator()<IntegerMatvec<Format, kBlockMatvecRows>, kBlockMatvecRows>("int8_matvec");
            }
        });
    }
    // Calls matmul<Kernel>() with the kernel of exact.fp8 for so many rows.
    template <typename Matmul>
    static void with_fp8_matmul(const DeviceMatrix& matrix, int64_t num_rows, const Matmul& matmul) {
        const bool of_groups = matrix.inputs == RowForm::kFp8OfGroups;
        if (num_rows <= 16) {
            of_groups ? matmul.template operator()<Fp8GroupMatmul16>() : matmul.template operator()<Fp8RowMatmul16>();
        } else {
            of_groups ? matmul.template operator()<Fp8GroupMatmul32>() : matmul.template operator()<Fp8RowMatmul32>();
        }
    }
    template <typename Kernel>
    static Kernel kernel_with(const MatvecParameters& parameters) {
        Kernel kernel = {};
        static_cast<MatvecParameters&>(kernel.all) = parameters;
        return kernel;
    }
    template <typename Kernel>
    static Kernel kernel_with(const MatmulParameters& parameters, const MatmulItems& items) {
        Kernel kernel = {};
        static_cast<MatmulParameters&>(kernel.all) = parameters;
        kernel.all.items = items;
        return kernel;
    }
    // Whether so many rows are multiplied by items in exact.fp8.
    static bool multiplies_fp8_items(const DeviceMatrix& matrix, int64_t num_rows) {
        const bool in_fp8 = matrix.inputs == RowForm::kFp8OfGroups || matrix.inputs == RowForm::kFp8OfRow;
        return in_fp8 && num_rows > kBlockMatvecRows;
    }
    // Whether its kernels of few rows take any number of them, in groups.
    static bool multiplies_groups(const DeviceMatrix& matrix) {
        return matrix.inputs != RowForm::kPairs || matrix.format == WeightFormat::kIntOrder;
    }
    static int64_t chunk_pairs_of(const DeviceMatrix& matrix) {
        return matrix.inputs == RowForm::kFp8OfGroups ? Fp8GroupMatvec1::kChunkPairs : kChunkPairs;
    }
    void multiply_groups(const MatmulParameters& all, const DeviceMatrix& matrix) {
        if (multiplies_fp8_items(matrix, all.out.num_rows)) {
            return with_fp8_matmul(matrix, all.out.num_rows,
                                   [&]<typename Kernel>() { launch_items<Kernel>("fp8_matmul", all); });
        }
        with_kernel_of_groups(matrix, all.out.num_rows, [&]<typename Kernel, int kRows>(const char* name) {
            auto matvec = matvec_of(all, chunk_pairs_of(matrix));
            matvec.grid.y = static_cast<int32_t>(parts(all.out.num_rows, kRows));
            launch(name, matvec.grid, matvec.block, kernel_with<Kernel>(matvec.parameters));
        });
    }
    void multiply_groups_of_entries(const DeviceEntries& of, const MatmulParameters& all, const DeviceMatrix& matrix) {
        const int64_t part_rows = of.counts.part_rows();
        if (multiplies_fp8_items(matrix, part_rows)) {
            return with_fp8_matmul(matrix, part_rows, [&]<typename Kernel>() {
                launch_tiles<Kernel>("fp8_expert_matmul", of, all, words_of(matrix));
            });
        }
        with_kernel_of_groups(matrix, part_rows, [&]<typename Kernel, int kRows>(const char* name) {
            auto matvec = this->entries_matvec(of, all, chunk_pairs_of(matrix));
            matvec.grid.y = static_cast<int32_t>(parts(part_rows, kRows));
            Kernel kernel = kernel_with<Kernel>(matvec.parameters);
            kernel.parts = parts_of(of);
            kernel.matrix_words = words_of(matrix);
            kernel.has_parts = true;
            launch(name, matvec.grid, matvec.block, kernel);
        });
    }
    static int64_t words_of(const DeviceMatrix& matrix) {
        return block_words(matrix.format, matrix.num_outputs, matrix.num_k);
    }
    MatmulParameters parameters_of(const uint32_t* x, int64_t stride, const DeviceMatrix& matrix, int64_t num_words,
                                   Floats out) {
        return {view(x, out.num_rows * stride),
                stride,
                view(matrix.words, num_words),
                view(matrix.bias, matrix.num_outputs),
                matrix.bias != nullptr,
                matrix.num_k / 2,
                rows(out)};
    }

    MatvecLaunch matvec_of(const MatmulParameters& all, int64_t chunk_pairs = kChunkPairs) {
        MatvecParameters matvec = {};
        matvec.num_rows = static_cast<int32_t>(all.out.num_rows);
        matvec.num_pairs = all.num_pairs;
        matvec.row_pairs = all.row_pairs;
        matvec.pairs = all.x;
        matvec.first = {all.weight, all.bias, all.has_bias, all.out,
                        static_cast<int32_t>(parts(all.out.width, kPanel) * kPanelQuads)};
        matvec.end = MatvecEnd::kWrite;
        const auto shape = this->divide(matvec, chunk_pairs);
        return {matvec, shape.grid, shape.block};
    }
    template <typename Kernel>
    void launch_matvec(const MatmulParameters& all) {
        const auto matvec = matvec_of(all);
        launch("block_matvec", matvec.grid, matvec.block, Kernel{{{{matvec.parameters}}, {}, 0, false}});
    }
    template <typename Kernel>
    void launch_items(const char* name, const MatmulParameters& all) {
        const MatmulItems items = this->template items_of<Kernel>(all);
        launch(name, this->template grid_of<Kernel>(all, items), {simt::kWarpSize, items.block_warps},
               kernel_with<Kernel>(all, items));
    }
    template <typename Kernel>
    void launch_entries(const DeviceEntries& of, const MatmulParameters& all, int64_t words) {
        const auto matvec = this->entries_matvec(of, all);
        launch("block_expert_matvec", matvec.grid, matvec.block,
               Kernel{{{{matvec.parameters}}, parts_of(of), words, true}});
    }
    // One CTA per tile of a part's first rows: the parts alone keep the device busy.
    template <typename Kernel>
    void launch_tiles(const char* name, const DeviceEntries& of, const MatmulParameters& all, int64_t words) {
        const MatmulItems items = this->whole_tiles(all.num_pairs, Kernel::kChunkPairs);
        Kernel kernel = kernel_with<Kernel>(all, items);
        kernel.parts = parts_of(of);
        kernel.matrix_words = words;
        kernel.has_parts = true;
        launch(name, grid(parts(all.out.width, kPanel), 1, of.counts.num_parts()), {simt::kWarpSize, items.block_warps},
               kernel);
    }
    simt::Global<const DeviceExpertPart> parts_of(const DeviceEntries& of) {
        return view(read_only(of.parts), of.counts.num_parts());
    }
};

}  // namespace SIMT_MACHINE
}  // namespace verbatim::cuda
