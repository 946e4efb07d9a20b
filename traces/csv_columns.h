// traces/csv_columns.h: owns the reading of CSV files by named columns: csv.h splits lines into fields, this file
// converts them strictly.
//
// Private to the readers. The header line may list the columns in any order and omit optional ones; an unknown column
// is an error. Lines that are empty or begin with '#' are comments.
#pragma once

#ifndef CSV_IO_NO_THREAD
#define CSV_IO_NO_THREAD
#endif
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// csv.h truncates file names in its messages, which are not used
#pragma GCC diagnostic ignored "-Wstringop-truncation"
#endif
#include <csv.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/result.h"
#include "traces/strict.h"
#include "traces/text_input.h"

namespace verbatim::traces {

// csv.h keeps a whole line in memory, up to 2^24 bytes.
inline constexpr size_t kMaxCsvLineBytes = (size_t{1} << 24) - 2;

// Passes a TextInput's lines to csv.h, each with a '\n' (csv.h reads one byte beyond a text without a final one).
class LineFeeder final : public io::ByteSourceBase {
public:
    // `failed` outlives the feeder and receives a read error.
    LineFeeder(TextInput input, std::optional<Error>& failed) : input_(std::move(input)), failed_(failed) {}
    int read(char* buffer, int size) override;

private:
    TextInput input_;
    std::optional<Error>& failed_;
    std::string line_;
    size_t used_ = 0;
    bool at_end_ = false;
};

// csv.h's policies. `Quotes`: Verbatim's own names may have quotes in them; other programs' fields may be quoted.
// `Trim`: other programs may write spaces around a field; in Verbatim's own format they are part of it, and wrong.
template <size_t N, typename Quotes, typename Trim>
class CsvColumns {
public:
    using Names = std::array<const char*, N>;

    static Result<CsvColumns> open(TextInput input, const Names& names) {
        CsvColumns columns(input.path(), names);
        return columns.guarded([&]() -> Result<CsvColumns> {
            auto feeder = std::make_unique<LineFeeder>(std::move(input), *columns.failed_);
            columns.reader_ = std::make_unique<Reader>(columns.path_, std::move(feeder));
            columns.read_header(std::make_index_sequence<N>{});
            return std::move(columns);
        });
    }

    [[nodiscard]] bool has(size_t column) const { return reader_->has_column(names_[column]); }
    // False at the end.
    Result<bool> next() {
        return guarded([&]() -> Result<bool> { return read_row(std::make_index_sequence<N>{}); });
    }
    // "" if the file has no such column.
    [[nodiscard]] std::string_view field(size_t column) const {
        return fields_[column] == nullptr ? std::string_view{} : std::string_view(fields_[column]);
    }
    [[nodiscard]] unsigned line() const { return reader_->get_file_line(); }

    // FILE:LINE: column NAME: got 'x', wanted W
    [[nodiscard]] tl::unexpected<Error> wrong(size_t column, std::string_view wanted) const {
        return error("{}:{}: column {}: got {}, wanted {}", path_, line(), names_[column], shown(field(column)),
                     wanted);
    }
    // A number in [low, high]; `otherwise` when the field is empty.
    template <typename T>
    Result<T> number(size_t column, T low, T high, std::optional<T> otherwise = std::nullopt) const {
        if (field(column).empty() && otherwise) return *otherwise;
        const auto value = parse_number<T>(field(column));
        if (value && *value >= low && *value <= high) return *value;
        return wrong(column, fmt::format("a number from {} to {}", low, high));
    }
    Result<bool> flag(size_t column, bool otherwise) const {
        if (field(column).empty()) return otherwise;
        if (field(column) == "0" || field(column) == "1") return field(column) == "1";
        return wrong(column, "0 or 1");
    }

private:
    using Reader = io::CSVReader<N, Trim, Quotes, io::throw_on_overflow, io::single_and_empty_line_comment<'#'>>;
    CsvColumns(std::string path, const Names& names)
        : path_(std::move(path)), names_(names), failed_(std::make_unique<std::optional<Error>>()) {}

    template <size_t... I>
    void read_header(std::index_sequence<I...>) {
        reader_->read_header(io::ignore_missing_column, names_[I]...);
    }
    template <size_t... I>
    bool read_row(std::index_sequence<I...>) {
        return reader_->read_row(fields_[I]...);
    }

    // Converts csv.h's exceptions to a Result.
    template <typename F>
    auto guarded(F&& read) -> decltype(read()) {
        const std::optional<Error>& failed = *failed_;  // read() may move `this`
        try {
            auto result = read();
            if (failed) return tl::unexpected(*failed);
            return result;
        } catch (const io::error::header_missing&) {
            if (failed) return tl::unexpected(*failed);
            return error("{}: got no header line, wanted the names of the columns", path_);
        } catch (const io::error::extra_column_in_header& e) {
            return error("{}: header: got the column {}, which is not known", path_, shown(e.column_name));
        } catch (const io::error::duplicated_column_in_header& e) {
            return error("{}: header: got the column {} twice", path_, shown(e.column_name));
        } catch (const io::error::too_few_columns&) {
            return error("{}:{}: got fewer fields than the header has columns", path_, line());
        } catch (const io::error::too_many_columns&) {
            return error("{}:{}: got more fields than the header has columns", path_, line());
        } catch (const io::error::base& e) {
            return error("{}:{}: {}", path_, reader_ ? line() : 0, e.what());
        }
    }

    std::string path_;
    Names names_;
    std::unique_ptr<std::optional<Error>> failed_;
    std::unique_ptr<Reader> reader_;
    std::array<const char*, N> fields_{};
};

}  // namespace verbatim::traces
