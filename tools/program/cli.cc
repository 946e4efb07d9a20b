#include "tools/program/cli.h"

#include "engine/base/check.h"
#include "tools/program/choice_option.h"

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

ExitCode with_rejected(ExitCode code, int64_t num_rejected) {
    return code == kExitOk && num_rejected > 0 ? kExitNotAllCompared : code;
}

CLI::Option* add_format_option(CLI::App& command, OutputFormat& format) {
    const Choices<OutputFormat> formats = {{"table", OutputFormat::kTable}, {"json", OutputFormat::kJson}};
    return add_choice_option(command, "--format", format, formats, "how the result is written");
}

std::vector<const CLI::Option*> options_of_parsed(const CLI::App& app) {
    std::vector<const CLI::Option*> options = app.get_options();
    // Verbs, and groups of flags, which have no name.
    for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; })) {
        if (!one->parsed() && !one->get_name().empty()) continue;
        const std::vector<const CLI::Option*> more = options_of_parsed(*one);
        options.insert(options.end(), more.begin(), more.end());
    }
    return options;
}

void add_group(CLI::App& command, const std::string& title, const std::function<void()>& add) {
    const std::string before = command.option_defaults()->get_group();
    command.option_defaults()->group(title);  // of what is added from now on
    add();
    command.option_defaults()->group(before);
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

}  // namespace verbatim::tools
