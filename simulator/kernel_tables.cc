#include "simulator/kernel_tables.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "traces/strict.h"
#include "traces/text_input.h"

namespace verbatim {
namespace {

constexpr double kNsPerMs = 1e6;
using Points = std::map<GridPoint, double>;

// A table file with access to columns by name.
class TableFile {
public:
    static Result<TableFile> open(const std::string& path) {
        ASSIGN_OR_RETURN(auto input, traces::TextInput::open(path));
        TableFile file(std::move(input));
        ASSIGN_OR_RETURN(const auto header, file.input_.next_line());
        if (!header) return error("{}: got an empty file, wanted a header line", path);
        split(*header, file.fields_);
        file.names_.assign(file.fields_.begin(), file.fields_.end());
        return file;
    }
    // False at the end of the file.
    Result<bool> next() {
        ASSIGN_OR_RETURN(const auto line, input_.next_line());
        if (!line) return false;
        split(*line, fields_);
        if (fields_.size() != names_.size())
            return error("{}:{}: got {} fields, wanted {}", input_.path(), input_.line_number(), fields_.size(),
                         names_.size());
        return true;
    }
    [[nodiscard]] Result<size_t> column(const std::string& name) const {
        const auto found = std::ranges::find(names_, name);
        if (found == names_.end()) return error("{}: got no column {}", input_.path(), name);
        return static_cast<size_t>(found - names_.begin());
    }
    [[nodiscard]] std::string_view text(size_t column) const { return fields_[column]; }
    [[nodiscard]] Result<double> number(size_t column) const {
        if (const auto count = whole_number(fields_[column])) return *count;
        const auto value = traces::parse_number<double>(fields_[column]);
        if (value && *value >= 0) return *value;
        return error("{}:{}: column {}: got {}, wanted a number from 0 on", input_.path(), input_.line_number(),
                     names_[column], traces::shown(fields_[column]));
    }

private:
    explicit TableFile(traces::TextInput input) : input_(std::move(input)) {}
    static void split(std::string_view line, std::vector<std::string_view>& fields) {
        fields.clear();
        for (size_t begin = 0; begin <= line.size();) {
            const size_t end = std::min(line.find(',', begin), line.size());
            fields.push_back(line.substr(begin, end - begin));
            begin = end + 1;
        }
    }
    // Most columns are counts; a double represents so few digits exactly.
    static std::optional<double> whole_number(std::string_view text) {
        if (text.empty() || text.size() > 15) return std::nullopt;
        int64_t value = 0;
        for (const char digit : text) {
            if (digit < '0' || digit > '9') return std::nullopt;
            value = value * 10 + (digit - '0');
        }
        return real(value);
    }
    traces::TextInput input_;
    std::vector<std::string> names_;
    std::vector<std::string_view> fields_;  // of the current line
};

// Some columns of all rows; the last column is the latency.
class Rows {
public:
    explicit Rows(size_t num_columns) : num_columns_(num_columns) {}
    void push_back(double value) { values_.push_back(value); }
    [[nodiscard]] size_t size() const { return values_.size() / num_columns_; }
    [[nodiscard]] std::span<const double> operator[](size_t row) const {
        return std::span(values_).subspan(row * num_columns_, num_columns_);
    }

private:
    size_t num_columns_;
    std::vector<double> values_;  // row by row
};

Result<Rows> read_columns(const std::string& path, const std::vector<std::string>& names) {
    ASSIGN_OR_RETURN(TableFile file, TableFile::open(path));
    std::vector<size_t> columns;
    for (const std::string& name : names) {
        ASSIGN_OR_RETURN(columns.emplace_back(), file.column(name));
    }
    Rows rows(columns.size());
    while (true) {
        ASSIGN_OR_RETURN(const bool more, file.next());
        if (!more) break;
        double value = 0;
        for (const size_t column : columns) {
            ASSIGN_OR_RETURN(value, file.number(column));
            rows.push_back(value);
        }
        if (value <= 0) return error("{}: row {}: a kernel that takes no time", path, rows.size());
    }
    if (rows.size() == 0) return error("{}: got no rows", path);
    return rows;
}

// For a point that was measured twice the shorter time counts. Most files are in order.
void add_point(Points& points, const GridPoint& point, double ns) {
    const auto place = points.try_emplace(points.end(), point, ns);
    place->second = std::min(place->second, ns);
}

Status check_grid(const std::string& path, const Points& points) {
    const auto extents = grid_extents(points);
    if (is_grid_small(extents)) return {};
    return error("{}: {} points span a grid of {} x {} x {} cells, wanted at most {}: is a column wrong?", path,
                 points.size(), extents[0], extents[1], extents[2], kMaxGridCells);
}

KernelPrice price_of(const GridEstimate& estimate) {
    switch (estimate.kind) {
        case GridEstimate::Kind::kMeasured: return {estimate.value, PriceSource::kMeasured};
        case GridEstimate::Kind::kBetween: return {estimate.value, PriceSource::kInterpolated};
        case GridEstimate::Kind::kBeyond: break;
    }
    return {estimate.value, PriceSource::kExtrapolated};
}

int64_t whole(double value) { return static_cast<int64_t>(value); }

double prompt_pairs(double num_tokens) { return num_tokens * (num_tokens + 1) / 2; }

// A prompt's attention time is closest to linear in its visible pairs. Returns the prompt length with so many pairs.
int64_t prompt_of(double pairs) { return std::llround((std::sqrt(1 + 8 * pairs) - 1) / 2); }

DecodeBatch equal_decodes(double num_sequences, double context) {
    return {whole(num_sequences), num_sequences * context, context};
}

double one_chunk(const RooflineTimes& roofline, const AttentionShape& shape, int64_t num_tokens) {
    const Chunk prompt{num_tokens, 0};
    return roofline.context_attention(shape, {&prompt, 1}).ns;
}

ConvShape with_channels(ConvShape shape, double channels) {
    shape.channels = static_cast<int64_t>(channels);
    return shape;
}

double quantile(const std::vector<double>& sorted, double p) {
    if (sorted.empty()) return 0;
    const auto rank = static_cast<size_t>(std::ceil(p * static_cast<double>(sorted.size())));
    return sorted[std::max<size_t>(rank, 1) - 1];
}

}  // namespace

Result<TableTimes> TableTimes::read(const std::string& prefix, const Device& device) {
    TableTimes tables(device);
    RETURN_IF_ERROR(tables.read_matmuls(prefix + "_gemm.csv.gz"));
    RETURN_IF_ERROR(tables.read_attention(prefix + "_context_attention.csv.gz", "isl", tables.contexts_));
    RETURN_IF_ERROR(tables.read_attention(prefix + "_generation_attention.csv.gz", "step", tables.decodes_));
    const std::string convs = prefix + "_mamba2.csv.gz";
    if (std::error_code ignored; std::filesystem::exists(convs, ignored)) RETURN_IF_ERROR(tables.read_convs(convs));
    const std::string reduces = prefix + "_allreduce.csv.gz";
    if (std::error_code ignored; std::filesystem::exists(reduces, ignored))
        RETURN_IF_ERROR(tables.read_all_reduces(reduces));
    return tables;
}

Status TableTimes::read_matmuls(const std::string& path) {
    ASSIGN_OR_RETURN(const auto rows, read_columns(path, {"m", "n", "k", "latency_ms"}));
    Points points;
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto row = rows[i];
        add_point(points, {row[0], row[1], row[2]}, row[3] * kNsPerMs);
    }
    RETURN_IF_ERROR(check_grid(path, points));
    const Growth growth = [roofline = roofline_](const GridPoint& p) {
        return roofline.matmul(whole(p[0]), whole(p[1]), whole(p[2])).ns;
    };
    matmuls_.emplace(points, GridPoint{1, 1, 2}, growth);  // most nearly linear along k: docs/simulator.md
    return {};
}

Status TableTimes::read_attention(const std::string& path, const char* varying, HeadTables& tables) {
    ASSIGN_OR_RETURN(const auto rows, read_columns(path, {"num_heads", "num_key_value_heads", "head_dim", "batch_size",
                                                          varying, "latency_ms"}));
    const bool decodes = std::string_view(varying) == "step";
    std::map<Heads, Points> points;
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto row = rows[i];
        const Heads heads{static_cast<int32_t>(row[2]), static_cast<int32_t>(row[1]), static_cast<int32_t>(row[0])};
        // A decode step also reads the position that it writes.
        const double place = decodes ? row[4] + 1 : prompt_pairs(row[4]);
        add_point(points[heads], {row[3], place, 0}, row[5] * kNsPerMs);
    }
    const GridPoint weights = decodes ? GridPoint{1, 2, 0} : GridPoint{2, 1, 0};
    for (auto& [heads, measured] : points) {
        RETURN_IF_ERROR(check_grid(path, measured));
        const AttentionShape shape{heads.n_heads, heads.n_kv_heads, heads.head_dim};
        const Growth growth = [roofline = roofline_, shape, decodes](const GridPoint& p) {
            return decodes ? roofline.decode_attention(shape, equal_decodes(p[0], p[1])).ns
                           : p[0] * one_chunk(roofline, shape, prompt_of(p[1]));
        };
        tables.by_heads.emplace(heads, LazyTable(std::move(measured), weights, growth));
    }
    return {};
}

Status TableTimes::read_convs(const std::string& path) {
    ASSIGN_OR_RETURN(const auto rows, read_columns(path, {"nheads", "head_dim", "n_groups", "d_state", "batch_size",
                                                          "seq_len", "num_tokens", "latency_ms"}));
    ASSIGN_OR_RETURN(TableFile file, TableFile::open(path));
    ASSIGN_OR_RETURN(const size_t phase, file.column("phase"));
    Points prefills;
    Points decodes;
    for (size_t i = 0; i < rows.size(); ++i) {
        const auto row = rows[i];
        RETURN_IF_ERROR(file.next());
        const double channels = row[0] * row[1] + 2 * row[2] * row[3];
        const bool is_prefill = file.text(phase) == "context";
        if (is_prefill && row[4] == 1) add_point(prefills, {channels, row[5], 0}, row[7] * kNsPerMs);
        if (!is_prefill) add_point(decodes, {channels, row[4], 0}, row[7] * kNsPerMs);
    }
    if (prefills.empty() || decodes.empty()) return error("{}: got no rows of prefills or none of decodes", path);
    RETURN_IF_ERROR(check_grid(path, prefills));
    RETURN_IF_ERROR(check_grid(path, decodes));
    const auto growth = [this](bool of_decodes) -> Growth {
        return [roofline = roofline_, of_decodes](const GridPoint& p) {
            const int64_t tokens = whole(p[1]);
            return roofline.conv(with_channels({}, p[0]), of_decodes ? tokens : 1, tokens).ns;
        };
    };
    conv_prefills_.emplace(prefills, GridPoint{1, 1, 1}, growth(false));
    conv_decodes_.emplace(decodes, GridPoint{1, 1, 1}, growth(true));
    return {};
}

Status TableTimes::read_all_reduces(const std::string& path) {
    ASSIGN_OR_RETURN(const auto rows, read_columns(path, {"num_gpus", "bytes", "latency_ms"}));
    std::map<int32_t, Points> points;
    for (size_t i = 0; i < rows.size(); ++i)
        add_point(points[static_cast<int32_t>(rows[i][0])], {rows[i][1], 0, 0}, rows[i][2] * kNsPerMs);
    for (const auto& [num_gpus, measured] : points) {
        RETURN_IF_ERROR(check_grid(path, measured));
        all_reduces_.emplace(num_gpus, GridTable(measured));
    }
    return {};
}

KernelPrice TableTimes::all_reduce(int32_t num_gpus, double bytes) const {
    const auto table = all_reduces_.find(num_gpus);
    return table == all_reduces_.end() ? roofline_.all_reduce(num_gpus, bytes)
                                       : price_of(table->second.estimate({bytes, 0, 0}));
}

KernelPrice TableTimes::matmul(int64_t m, int64_t n, int64_t k) const {
    return price_of(matmuls_->estimate({real(m), real(n), real(k)}));
}

// Prefers equal head_dim, then equal KV heads, then the nearest number of heads.
auto TableTimes::choose(const std::map<Heads, LazyTable>& tables, const AttentionShape& shape) -> Chosen {
    const auto distance = [&](const Heads& heads) {
        return std::tuple(std::abs(heads.head_dim - shape.head_dim), std::abs(heads.n_kv_heads - shape.n_kv_heads),
                          std::abs(heads.n_heads - shape.n_heads));
    };
    const auto exact = tables.find({shape.head_dim, shape.n_kv_heads, shape.n_heads});
    const AttentionShape measured{shape.n_heads, shape.n_kv_heads, shape.head_dim, shape.count};
    if (exact != tables.end()) return {shape, &exact->second.table(), measured, shape.kv_value_bytes == 2};
    const auto best = std::ranges::min_element(
        tables, [&](const auto& a, const auto& b) { return distance(a.first) < distance(b.first); });
    CHECK(best != tables.end());
    const Heads& heads = best->first;
    return {shape, &best->second.table(), {heads.n_heads, heads.n_kv_heads, heads.head_dim, shape.count}, false};
}

auto TableTimes::context_table(const AttentionShape& shape) const -> Chosen& {
    if (Chosen* known = contexts_.find(shape)) return *known;
    Chosen& chosen = contexts_.chosen.emplace_back(choose(contexts_.by_heads, shape));
    chosen.scale = roofline_.pair_ns(shape) / roofline_.pair_ns(chosen.measured);
    const double longest = chosen.table->last()[1];
    chosen.pair_ns = price(chosen, {1, longest, 0}).ns / longest;
    return chosen;
}

auto TableTimes::decode_table(const AttentionShape& shape) const -> Chosen& {
    if (Chosen* known = decodes_.find(shape)) return *known;
    Chosen& chosen = decodes_.chosen.emplace_back(choose(decodes_.by_heads, shape));
    chosen.scale = roofline_.position_ns(shape) / roofline_.position_ns(chosen.measured);
    return chosen;
}

// Kernels of unmeasured heads take a launch's time at least.
KernelPrice TableTimes::price(const Chosen& chosen, const GridPoint& point) const {
    const KernelPrice price = price_of(chosen.table->estimate(point));
    if (chosen.exact) return price;
    return {std::max(price.ns * chosen.scale, roofline_.kernel_ns()), PriceSource::kExtrapolated};
}

KernelPrice TableTimes::context_attention(const AttentionShape& shape, std::span<const Chunk> chunks) const {
    if (shape.is_latent()) return roofline_.context_attention(shape, chunks);
    double among_new = 0;
    double with_past = 0;
    double positions = 0;
    double longest = 0;
    for (const Chunk& chunk : chunks) {
        among_new += chunk.pairs_among_new();
        with_past += chunk.pairs_with_past();
        positions += real(chunk.past + chunk.num_new);
        longest = std::max(longest, real(chunk.past + chunk.num_new));
    }
    const Chosen& chosen = context_table(shape);
    const double num_chunks = real(std::ssize(chunks));
    KernelPrice computing = price(chosen, {num_chunks, among_new / num_chunks, 0});
    computing.ns += chosen.pair_ns * with_past;
    if (with_past > 0) computing.source = PriceSource::kExtrapolated;
    const double reading_ns = std::max(price(decode_table(shape), {1, longest, 0}).ns,
                                       roofline_.position_ns(shape) * positions + roofline_.kernel_ns());
    return computing.ns >= reading_ns ? computing : KernelPrice{reading_ns, PriceSource::kExtrapolated};
}

KernelPrice TableTimes::decode_attention(const AttentionShape& shape, const DecodeBatch& batch) const {
    if (shape.is_latent()) return roofline_.decode_attention(shape, batch);
    Chosen& chosen = decode_table(shape);
    KernelPrice reading = price(chosen, {batch.context / batch.longest, batch.longest, 0});
    const KernelPrice& starting = chosen.starting.get(batch.num_sequences, [&] {
        return price(chosen, {real(batch.num_sequences), 1, 0});
    });
    if (starting.ns > reading.ns) reading = starting;
    if (batch.window_pairs == 0) return reading;
    return {reading.ns + context_table(shape).pair_ns * batch.window_pairs, PriceSource::kExtrapolated};
}

KernelPrice TableTimes::conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const {
    if (!conv_prefills_ || shape.d_conv != 4) return roofline_.conv(shape, num_sequences, num_tokens);
    const KernelPrice one_each = price_of(conv_decodes_->estimate({real(shape.channels), real(num_sequences), 0}));
    if (num_sequences == num_tokens) return one_each;
    const KernelPrice several = price_of(conv_prefills_->estimate({real(shape.channels), real(num_tokens), 0}));
    return one_each.ns > several.ns ? one_each : several;
}

namespace {

// Of these, a launch is no large part.
constexpr double kLargeKernelLaunches = 10;

LeaveOutError check_tables(const std::string& name, const std::vector<const GridTable*>& tables, double kernel_ns) {
    LeaveOutError result{.table = name};
    std::vector<double> errors;
    std::vector<double> of_roofline;
    double sum_extrapolated = 0;
    for (const GridTable* table : tables) {
        for (const auto& [point, measured] : table->measured()) {
            const GridEstimate estimate = table->leave_out(point);
            const double off = std::abs(estimate.value / measured - 1);
            const double roofline = table->growth(point);
            if (roofline >= kLargeKernelLaunches * kernel_ns) of_roofline.push_back(measured / roofline);
            ++result.num_rows;
            if (estimate.kind == GridEstimate::Kind::kBetween) {
                errors.push_back(off);
                result.mean += off;
            } else {
                ++result.num_extrapolated;
                sum_extrapolated += off;
            }
        }
    }
    std::ranges::sort(errors);
    std::ranges::sort(of_roofline);
    if (!errors.empty()) result.mean /= static_cast<double>(errors.size());
    if (result.num_extrapolated > 0) result.mean_extrapolated = sum_extrapolated / real(result.num_extrapolated);
    result.p50 = quantile(errors, 0.5);
    result.p95 = quantile(errors, 0.95);
    result.of_roofline_p10 = quantile(of_roofline, 0.10);
    result.of_roofline_p50 = quantile(of_roofline, 0.50);
    result.of_roofline_p90 = quantile(of_roofline, 0.90);
    return result;
}

}  // namespace

std::vector<LeaveOutError> TableTimes::leave_out_errors() const {
    const auto tables_of = [](const HeadTables& by_heads) {
        std::vector<const GridTable*> tables;
        for (const auto& [heads, lazy] : by_heads.by_heads) tables.push_back(&lazy.table());
        return tables;
    };
    const auto check = [this](const char* name, const std::vector<const GridTable*>& tables) {
        return check_tables(name, tables, roofline_.kernel_ns());
    };
    std::vector<LeaveOutError> errors = {check("matmul", {&*matmuls_}),
                                         check("context attention", tables_of(contexts_)),
                                         check("decode attention", tables_of(decodes_))};
    if (!conv_prefills_) return errors;
    errors.push_back(check("conv, prefill", {&*conv_prefills_}));
    errors.push_back(check("conv, decode", {&*conv_decodes_}));
    return errors;
}

}  // namespace verbatim
