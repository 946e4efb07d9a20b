#include "tools/program/cli.h"

#include "engine/base/check.h"
#include "tools/program/choice_option.h"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <optional>
#include <utility>

namespace verbatim::tools {
namespace {

struct Unit {
    std::string_view name;
    uint64_t bytes;
};
constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"B", 1},
    Unit{"kB", 1'000},
    Unit{"MB", 1'000'000},
    Unit{"GB", 1'000'000'000},
    Unit{"TB", 1'000'000'000'000},
    Unit{"KiB", uint64_t{1} << 10},
    Unit{"MiB", uint64_t{1} << 20},
    Unit{"GiB", uint64_t{1} << 30},
    Unit{"TiB", uint64_t{1} << 40},
};

template <typename T>
std::optional<T> whole_number(std::string_view text) {
    T number = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return number;
}

using Row = std::vector<std::string>;

struct Column {
    size_t width = 0;
    bool right = true;
};

bool looks_like_a_number(const std::string& cell) {
    return !cell.empty() && (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 || cell[0] == '-');
}

void append_line(std::string& text, const Row& row, const std::vector<Column>& columns) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
        if (i != 0) line += "  ";
        line += columns[i].right ? fmt::format("{:>{}}", row[i], columns[i].width)
                                 : fmt::format("{:<{}}", row[i], columns[i].width);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
}

constexpr int kBarWidth = 30;  // with label and percentage, a line of 80

}  // namespace

int report_error(const Error& error, ExitCode code) {
    // Unlike fmt::print, which throws, it ignores a closed stderr.
    std::fputs(fmt::format("verbatim: error: {}\n", error.message).c_str(), stderr);
    return code;
}

int report_error(const Error& error) {
    switch (error.kind) {
        case ErrorKind::kInput: return report_error(error, kExitBadInput);
        case ErrorKind::kMachine: return report_error(error, kExitMachine);
        case ErrorKind::kCheck: return report_error(error, kExitDifference);
    }
    CHECK(false, "kind {}", static_cast<int>(error.kind));
}

ExitCode exit_code_of(records::Verdict verdict) {
    switch (verdict) {
        case records::Verdict::kSame: return kExitOk;
        case records::Verdict::kNotAllCompared: return kExitNotAllCompared;
        case records::Verdict::kDifferent: return kExitDifference;
    }
    CHECK(false, "verdict {}", static_cast<int>(verdict));
}

CLI::Option* add_format_option(CLI::App& command, OutputFormat& format) {
    const Choices<OutputFormat> formats = {{"table", OutputFormat::kTable}, {"json", OutputFormat::kJson}};
    return add_choice_option(command, "--format", format, formats, "how the result is written");
}

CLI::Option* add_seed_option(CLI::App& command, uint64_t& seed) {
    const auto set = [&seed](const std::string& text) {
        const std::optional<uint64_t> number = whole_number<uint64_t>(text);
        if (!number) throw CLI::ValidationError("--seed", fmt::format("{:?} is no whole number below 2^64", text));
        seed = *number;
    };
    return command.add_option_function<std::string>("--seed", set, "where every random choice starts")
        ->type_name("N")
        ->default_str(fmt::format("{}", seed));
}

CLI::Option* add_count_option(CLI::App& command, const std::string& flag, int64_t& count, int64_t least,
                              const std::string& description) {
    const auto set = [&count, flag, least](const std::string& text) {
        const std::optional<int64_t> number = whole_number<int64_t>(text);
        if (!number || *number < least) {
            throw CLI::ValidationError(flag, fmt::format("{:?} is no whole number from {} on", text, least));
        }
        count = *number;
    };
    return command.add_option_function<std::string>(flag, set, description)
        ->type_name("N")
        ->default_str(fmt::format("{}", count));
}

CLI::Option* add_bytes_option(CLI::App& command, const std::string& flag, uint64_t& bytes,
                              const std::string& description) {
    const auto set = [&bytes, flag = flag.substr(0, flag.find(','))](const std::string& text) {
        const Result<uint64_t> parsed = parse_bytes(text);
        if (!parsed) throw CLI::ValidationError(flag, parsed.error().message);
        bytes = *parsed;
    };
    return command.add_option_function<std::string>(flag, set, description)
        ->type_name("BYTES")
        ->default_str(bytes == 0 ? "" : format_bytes(bytes));
}

Result<uint64_t> parse_bytes(std::string_view text) {
    constexpr size_t kMaxDecimals = 6;  // times a TiB, they stay below 2^63
    const auto starts_with_digit = [](std::string_view rest) {
        return !rest.empty() && rest.front() >= '0' && rest.front() <= '9';
    };
    const auto too_many = [&] { return error("{:?} is more than 2^63 - 1 bytes", text); };
    uint64_t count = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
    if (code == std::errc::result_out_of_range) return too_many();
    if (code != std::errc{}) return error("{:?} is no number of bytes: write 4096, 64KiB, 1.5GiB or 24.8GB", text);
    std::string_view suffix = text.substr(static_cast<size_t>(end - text.data()));
    uint64_t fraction = 0;  // in units of 1 / scale
    uint64_t scale = 1;
    if (suffix.starts_with('.')) {
        suffix.remove_prefix(1);
        if (!starts_with_digit(suffix)) return error("{:?} has no digit after the point: write 2GB or 2.5GB", text);
        size_t num_decimals = 0;
        for (; starts_with_digit(suffix); suffix.remove_prefix(1), ++num_decimals) {
            if (num_decimals == kMaxDecimals)
                return error("{:?} has more than {} decimals: write fewer, or a smaller unit", text, kMaxDecimals);
            fraction = fraction * 10 + static_cast<uint64_t>(suffix.front() - '0');
            scale *= 10;
        }
    }
    const auto* unit = std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == suffix; });
    if (unit == kUnits.end()) {
        return error("{:?} ends in {:?}, which is no unit of bytes: use B, KiB, MiB, GiB, TiB, kB, MB, GB or TB", text,
                     suffix);
    }
    if (scale > 1 && unit->bytes == 1) return error("{:?} is not a whole number of bytes", text);
    if (count > uint64_t{INT64_MAX} / unit->bytes) return too_many();
    const uint64_t bytes = count * unit->bytes + fraction * unit->bytes / scale;
    return bytes > uint64_t{INT64_MAX} ? too_many() : Result<uint64_t>(bytes);
}

std::string format_bytes(uint64_t bytes) {
    static constexpr std::array<const char*, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    while (unit + 1 < kNames.size() && (bytes >> (10 * (unit + 1))) != 0) ++unit;
    if (unit == 0) return fmt::format("{} B", bytes);
    const uint64_t scale = uint64_t{1} << (10 * unit);
    return fmt::format("{}.{} {}", bytes / scale, (bytes % scale) * 10 / scale, kNames[unit]);
}

Table::Table(Row header) : header_(std::move(header)) {}

void Table::add_row(Row cells) {
    if (!header_.empty()) CHECK_EQ(cells.size(), header_.size());
    if (!rows_.empty()) CHECK_EQ(cells.size(), rows_.front().size());
    rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
    std::vector<Column> columns(!header_.empty() ? header_.size() : rows_.empty() ? 0 : rows_.front().size());
    for (size_t i = 0; i < columns.size(); ++i) {
        for (const Row& row : rows_) {
            columns[i].width = std::max(columns[i].width, row[i].size());
            columns[i].right = columns[i].right && looks_like_a_number(row[i]);
        }
        if (!header_.empty()) columns[i].width = std::max(columns[i].width, header_[i].size());
    }
    std::string text;
    if (!header_.empty()) append_line(text, header_, columns);
    for (const Row& row : rows_) append_line(text, row, columns);
    return text;
}

ProgressBar::ProgressBar(std::string label, uint64_t total)
    : label_(std::move(label)), total_(total), visible_(isatty(STDERR_FILENO) == 1) {
    update(0);
}

ProgressBar::~ProgressBar() {
    if (visible_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::update(uint64_t done) {
    if (!visible_ || total_ == 0) return;
    const double fraction = static_cast<double>(std::min(done, total_)) / static_cast<double>(total_);
    const int percent = static_cast<int>(fraction * 100);
    if (percent == shown_percent_) return;
    shown_percent_ = percent;
    const int filled = percent * kBarWidth / 100;
    fmt::print(stderr, "\r{} [{:#<{}}{:.<{}}] {:3}%", label_, "", filled, "", kBarWidth - filled, percent);
    std::fflush(stderr);
}

}  // namespace verbatim::tools
