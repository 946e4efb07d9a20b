// simulator/kernel_tables.h: owns measured kernel times of a GPU (simulator/silicon/README.md), extended by the
// roofline.
//
// The rules; a table's estimate ascends along every axis (simulator/grid_table.h):
//   matmul             the table over (m, n, k)
//   context attention  the table over (sequences, visible pairs of one) of the same heads, measured without earlier
//                      tokens: C. With `past` earlier tokens:
//                          max(C(sequences, mean pairs among new tokens) + r · pairs with past,
//                              D(1, longest), all positions over the bandwidth)
//                      r is the time per pair of the longest measured prompt. So a prompt in chunks takes about as long
//                      as a whole one, and reading the past never less than a decode's reading
//   decode attention   the table over (sequences, context) of the same heads: D. The batch counts as so many sequences
//                      of its longest context as have the same positions together. Windows add r · their pairs
//   unmeasured heads   the nearest measured ones, scaled by the roofline of a large kernel
//   conv               the table over (channels, tokens), prefill and decode separately; several tokens of a sequence
//                      never take less than one
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/result.h"
#include "simulator/by_count.h"
#include "simulator/grid_table.h"
#include "simulator/kernel_times.h"

namespace verbatim {

// Leave-one-out error of a table: |estimate / measured - 1| over its rows.
struct LeaveOutError {
    std::string table;
    int64_t num_rows = 0;
    int64_t num_extrapolated = 0;  // of them: at the edge of the table
    double mean = 0;               // of the others
    double p50 = 0;
    double p95 = 0;
    double mean_extrapolated = 0;
    double of_roofline_p10 = 0;  // measured / roofline, of kernels of ten launches' time and more
    double of_roofline_p50 = 0;
    double of_roofline_p90 = 0;
};

class TableTimes final : public KernelTimes {
public:
    // Reads PREFIX_gemm.csv.gz, PREFIX_context_attention.csv.gz, PREFIX_generation_attention.csv.gz and, if it exists,
    // PREFIX_mamba2.csv.gz. Errors name file and line.
    static Result<TableTimes> read(const std::string& prefix, const Device& device);

    [[nodiscard]] KernelPrice matmul(int64_t m, int64_t n, int64_t k) const override;
    [[nodiscard]] KernelPrice context_attention(const AttentionShape& shape,
                                                std::span<const Chunk> chunks) const override;
    [[nodiscard]] KernelPrice decode_attention(const AttentionShape& shape, const DecodeBatch& batch) const override;
    [[nodiscard]] KernelPrice conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const override;
    [[nodiscard]] KernelPrice all_reduce(int32_t num_gpus, double bytes) const override;

    [[nodiscard]] std::vector<LeaveOutError> leave_out_errors() const;

private:
    struct Heads {
        int32_t head_dim = 0;
        int32_t n_kv_heads = 0;
        int32_t n_heads = 0;
        friend auto operator<=>(const Heads&, const Heads&) = default;
    };
    // Built on first use: a model has one kind of heads, a device was measured with many.
    class LazyTable {
    public:
        LazyTable(std::map<GridPoint, double> measured, GridPoint weights, Growth growth)
            : measured_(std::move(measured)), weights_(weights), growth_(std::move(growth)) {}
        [[nodiscard]] const GridTable& table() const {
            if (!table_) table_.emplace(measured_, weights_, growth_);
            return *table_;
        }

    private:
        std::map<GridPoint, double> measured_;
        GridPoint weights_;
        Growth growth_;
        mutable std::optional<GridTable> table_;
    };
    // The table of the nearest heads, and whether these are the requested ones.
    struct Chosen {
        AttentionShape requested;
        const GridTable* table = nullptr;
        AttentionShape measured;
        bool exact = false;
        double scale = 1;               // from the measured heads to the requested ones
        double pair_ns = 0;             // of contexts: r, of the requested heads
        ByCount<KernelPrice> starting;  // of decodes at a context of one position, by sequences
    };
    struct HeadTables {
        std::map<Heads, LazyTable> by_heads;
        mutable std::vector<Chosen> chosen;  // one for each shape that was requested: a model has few
        [[nodiscard]] Chosen* find(const AttentionShape& shape) const {
            const auto known = std::ranges::find(chosen, shape, &Chosen::requested);
            return known == chosen.end() ? nullptr : &*known;
        }
    };
    explicit TableTimes(const Device& device) : roofline_(device) {}
    Status read_matmuls(const std::string& path);
    Status read_attention(const std::string& path, const char* varying, HeadTables& tables);
    Status read_convs(const std::string& path);
    Status read_all_reduces(const std::string& path);
    [[nodiscard]] static Chosen choose(const std::map<Heads, LazyTable>& tables, const AttentionShape& shape);
    [[nodiscard]] Chosen& context_table(const AttentionShape& shape) const;
    [[nodiscard]] Chosen& decode_table(const AttentionShape& shape) const;
    [[nodiscard]] KernelPrice price(const Chosen& chosen, const GridPoint& point) const;

    RooflineTimes roofline_;
    std::optional<GridTable> matmuls_;          // m, n, k
    HeadTables contexts_;                       // batch, visible pairs
    HeadTables decodes_;                        // batch, context
    std::optional<GridTable> conv_prefills_;    // channels, tokens
    std::optional<GridTable> conv_decodes_;     // channels, sequences
    std::map<int32_t, GridTable> all_reduces_;  // by GPUs: bytes
};

}  // namespace verbatim
