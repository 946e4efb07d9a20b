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

// For a point that was measured twice the shorter time counts.
void add_point(Points& points, const GridPoint& point, double ns) {
    const auto [place, added] = points.emplace(point, ns);
    if (!added) place->second = std::min(place->second, ns);
}

Status check_grid(const std::string& path, const Points& points) {
    const auto extents = grid_extents(points);
    if (is_grid_small(extents)) return {};
    return error("{}: {} points span a grid of {} x {} x {} cells, wanted at most {}: is a column wrong?", path,
                 points.size(), extents[0], extents[1], extents[2], kMaxGridCells);
}

// Turns an estimate into a price; `roofline(point)` is the roofline's time.
template <typename Roofline>
KernelPrice price_of(const GridEstimate& estimate, const GridPoint& point, const Roofline& roofline) {
    switch (estimate.kind) {
        case GridEstimate::Kind::kMeasured: return {estimate.value, PriceSource::kMeasured};
        case GridEstimate::Kind::kBetween: return {estimate.value, PriceSource::kInterpolated};
        case GridEstimate::Kind::kNearest: break;
    }
    return {estimate.value * roofline(point) / roofline(estimate.at), PriceSource::kExtrapolated};
}

int64_t whole(double value) { return static_cast<int64_t>(value); }

double visible_pairs(double num_new, double past) { return num_new * past + num_new * (num_new + 1) / 2; }

// A prompt's attention time is closest to linear in its visible pairs. Returns the prompt length with so many pairs.
int64_t prompt_of(double pairs) { return std::llround((std::sqrt(1 + 8 * pairs) - 1) / 2); }

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
    matmuls_.emplace(points, GridPoint{1, 1, 2});  // most nearly linear along k: docs/simulator.md
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
        // A decode step also reads its own position.
        const double place = decodes ? row[4] + 1 : visible_pairs(row[4], 0);
        add_point(points[heads], {row[3], place, 0}, row[5] * kNsPerMs);
    }
    const GridPoint weights = decodes ? GridPoint{1, 2, 0} : GridPoint{2, 1, 0};
    for (auto& [heads, measured] : points) {
        RETURN_IF_ERROR(check_grid(path, measured));
        tables.by_heads.emplace(heads, LazyTable(std::move(measured), weights));
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
    conv_prefills_.emplace(prefills);
    conv_decodes_.emplace(decodes);
    return {};
}

KernelPrice TableTimes::matmul(int64_t m, int64_t n, int64_t k) const {
    const GridPoint point{real(m), real(n), real(k)};
    const auto roofline = [&](const GridPoint& p) {
        return roofline_.matmul(whole(p[0]), whole(p[1]), whole(p[2])).ns;
    };
    return price_of(matmuls_->estimate(point), point, roofline);
}

// Prefers equal head_dim, then equal KV heads, then the nearest number of heads.
auto TableTimes::choose(const std::map<Heads, LazyTable>& tables, const AttentionShape& shape) -> Chosen {
    const auto distance = [&](const Heads& heads) {
        return std::tuple(std::abs(heads.head_dim - shape.head_dim), std::abs(heads.n_kv_heads - shape.n_kv_heads),
                          std::abs(heads.n_heads - shape.n_heads));
    };
    const auto exact = tables.find({shape.head_dim, shape.n_kv_heads, shape.n_heads});
    if (exact != tables.end()) return {&exact->second.table(), shape, true};
    const auto best = std::ranges::min_element(
        tables, [&](const auto& a, const auto& b) { return distance(a.first) < distance(b.first); });
    CHECK(best != tables.end());
    const Heads& heads = best->first;
    return {&best->second.table(), {heads.n_heads, heads.n_kv_heads, heads.head_dim, shape.count}, false};
}

auto TableTimes::choose(const HeadTables& tables, const AttentionShape& shape) -> const Chosen& {
    if (tables.chosen.table == nullptr || tables.asked != shape) {
        tables.chosen = choose(tables.by_heads, shape);
        tables.asked = shape;
    }
    return tables.chosen;
}

KernelPrice TableTimes::context_attention(const AttentionShape& shape, int64_t num_new, int64_t past) const {
    const Chosen& chosen = choose(contexts_, shape);
    const int64_t all = num_new + past;
    const GridPoint point{1, visible_pairs(real(all), 0), 0};
    const auto roofline = [&](const GridPoint& p) {
        return p[0] * roofline_.context_attention(chosen.shape, prompt_of(p[1]), 0).ns;
    };
    KernelPrice price = price_of(chosen.table->estimate(point), point, roofline);
    if (!chosen.exact) {
        price.ns *= roofline_.context_attention(shape, all, 0).ns / roofline(point);
        price.source = PriceSource::kExtrapolated;
    }
    if (past == 0) return price;
    const double share = visible_pairs(real(num_new), real(past)) / visible_pairs(real(all), 0);
    return {price.ns * share, PriceSource::kExtrapolated};
}

KernelPrice TableTimes::decode_attention(const AttentionShape& shape, int64_t batch, int64_t context) const {
    const Chosen& chosen = choose(decodes_, shape);
    const GridPoint point{real(batch), real(context), 0};
    const auto roofline = [&](const GridPoint& p) {
        return roofline_.decode_attention(chosen.shape, whole(p[0]), whole(p[1])).ns;
    };
    KernelPrice price = price_of(chosen.table->estimate(point), point, roofline);
    if (chosen.exact) return price;
    return {price.ns * roofline_.decode_attention(shape, batch, context).ns / roofline(point),
            PriceSource::kExtrapolated};
}

KernelPrice TableTimes::conv(const ConvShape& shape, int64_t num_sequences, int64_t num_tokens) const {
    const bool decodes = num_sequences == num_tokens;
    const std::optional<GridTable>& table = decodes ? conv_decodes_ : conv_prefills_;
    if (!table || shape.d_conv != 4) return roofline_.conv(shape, num_sequences, num_tokens);
    const GridPoint point{real(shape.channels), real(num_tokens), 0};
    const auto roofline = [&](const GridPoint& p) {
        const int64_t tokens = whole(p[1]);
        return roofline_.conv(with_channels(shape, p[0]), decodes ? tokens : 1, tokens).ns;
    };
    return price_of(table->estimate(point), point, roofline);
}

namespace {

// A table, with the roofline's times at its points.
struct Checked {
    const GridTable* table = nullptr;
    std::function<double(const GridPoint&)> roofline;
};

LeaveOutError check_tables(const std::string& name, const std::vector<Checked>& tables) {
    LeaveOutError result{.table = name};
    std::vector<double> errors;
    double sum_extrapolated = 0;
    for (const Checked& checked : tables) {
        for (const GridPoint& point : checked.table->points()) {
            const KernelPrice price = price_of(checked.table->leave_out(point), point, checked.roofline);
            const double off = std::abs(price.ns / checked.table->estimate(point).value - 1);
            ++result.num_rows;
            if (price.source == PriceSource::kInterpolated) {
                errors.push_back(off);
                result.mean += off;
            } else {
                ++result.num_extrapolated;
                sum_extrapolated += off;
            }
        }
    }
    std::ranges::sort(errors);
    if (!errors.empty()) result.mean /= static_cast<double>(errors.size());
    if (result.num_extrapolated > 0) result.mean_extrapolated = sum_extrapolated / real(result.num_extrapolated);
    result.p50 = quantile(errors, 0.5);
    result.p95 = quantile(errors, 0.95);
    return result;
}

}  // namespace

std::vector<LeaveOutError> TableTimes::leave_out_errors() const {
    std::vector<LeaveOutError> errors;
    errors.push_back(check_tables("matmul", {{&*matmuls_, [this](const GridPoint& p) {
                                                  return roofline_.matmul(whole(p[0]), whole(p[1]), whole(p[2])).ns;
                                              }}}));
    std::vector<Checked> contexts;
    for (const auto& [heads, table] : contexts_.by_heads) {
        const AttentionShape shape{heads.n_heads, heads.n_kv_heads, heads.head_dim};
        contexts.push_back({&table.table(), [this, shape](const GridPoint& p) {
                                return p[0] * roofline_.context_attention(shape, prompt_of(p[1]), 0).ns;
                            }});
    }
    errors.push_back(check_tables("context attention", contexts));
    std::vector<Checked> decodes;
    for (const auto& [heads, table] : decodes_.by_heads) {
        const AttentionShape shape{heads.n_heads, heads.n_kv_heads, heads.head_dim};
        decodes.push_back({&table.table(), [this, shape](const GridPoint& p) {
                               return roofline_.decode_attention(shape, whole(p[0]), whole(p[1])).ns;
                           }});
    }
    errors.push_back(check_tables("decode attention", decodes));
    if (!conv_prefills_) return errors;
    const auto conv = [this](bool decode) {
        return [this, decode](const GridPoint& p) {
            const int64_t tokens = whole(p[1]);
            return roofline_.conv(with_channels({}, p[0]), decode ? tokens : 1, tokens).ns;
        };
    };
    errors.push_back(check_tables("conv, prefill", {{&*conv_prefills_, conv(false)}}));
    errors.push_back(check_tables("conv, decode", {{&*conv_decodes_, conv(true)}}));
    return errors;
}

}  // namespace verbatim
