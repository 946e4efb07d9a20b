#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zstd.h>

#include <algorithm>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "files/gzip.h"
#include "traces/verbatim_csv.h"
#include "traces/verbatim_csv_format.h"

namespace verbatim::traces {
namespace {

using namespace csv_format;

class RowWriter {
public:
    explicit RowWriter(const Trace& trace) : trace_(trace) {
        if (std::ranges::all_of(trace.rows, [](const Row& row) { return row.replica < 0; })) num_columns_ = kReplica;
    }

    [[nodiscard]] std::string header() const {
        return fmt::format("{}\n", fmt::join(std::span(kColumnNames).first(num_columns_), ","));
    }

    std::string_view line(const Row& row) {
        line_.clear();
        for (size_t column = 0; column < num_columns_; ++column) {
            if (column > 0) line_ += ',';
            write(static_cast<Column>(column), row);
        }
        line_ += '\n';
        return line_;
    }

private:
    template <typename T>
    void put(const T& value) {
        fmt::format_to(std::back_inserter(line_), "{}", value);
    }
    template <typename T>
    void put_unless(const T& value, const T& otherwise) {
        if (value != otherwise) put(value);
    }
    void put_row(RowIndex i) {
        if (i == kNoRow) return;
        const uint32_t name = trace_.row(i).name;
        if (name != 0) put(trace_.names[name]);
        if (name == 0) fmt::format_to(std::back_inserter(line_), "@{}", index(i));
    }

    void write(Column column, const Row& row) {
        if (column >= kIgnoreStop && column <= kUseCache) return write_option(column, trace_.options[row.options]);
        switch (column) {
            case kRow: return put(trace_.names[row.name]);
            case kEvent: return put(kEvents[static_cast<size_t>(row.event)]);
            case kConversation: return put(trace_.names[trace_.conversation_of(row).name]);
            case kSalt: return put_salt(trace_.conversation_of(row).salt);
            case kSession: return put_unless(row.session, -1);
            case kReplica: return put_unless(row.replica, -1);
            case kArrival: return put(row.arrival_ns);
            case kStart: return row.start == Start::kArrival ? void() : put(kStarts[static_cast<size_t>(row.start)]);
            case kWaitFor: return put_row(row.wait_for);
            case kThink: return put_unless<int64_t>(row.think_ns, 0);
            case kFrom: return put_row(row.from);
            case kTake: return put_take(row);
            case kTokens: return put_tokens(row);
            case kMaxTokens: return put_unless<int64_t>(row.max_tokens, -1);
            case kTurn: return put(trace_.names[row.turn]);
            case kParent: return row.has_parent && row.parent == kNoRow ? put(kNoHeadWord) : put_row(row.parent);
            case kAbortAfter: return put_unless<int64_t>(row.abort_after, -1);
            case kExpect:
                return row.expect == Expect::kServed ? void() : put(kExpects[static_cast<size_t>(row.expect)]);
            default: return;
        }
    }

    void write_option(Column column, const RowOptions& options) {
        const SamplingParams& sampling = options.sampling;
        switch (column) {
            case kIgnoreStop: return options.ignore_stop ? put(1) : void();
            case kStopTokens: return put_stop_tokens(options.stop_tokens);
            case kStopStrings: return put_stop_strings(options.stop_strings);
            case kTemperature: return put_unless<float>(sampling.temperature, 0);
            case kTopK: return put_unless(sampling.top_k, 0);
            case kTopP: return put_unless<float>(sampling.top_p, 1);
            case kRepetition: return put_unless<float>(sampling.repetition_penalty, 1);
            case kPresence: return put_unless<float>(sampling.presence_penalty, 0);
            case kFrequency: return put_unless<float>(sampling.frequency_penalty, 0);
            case kSeed: return options.seed ? put(*options.seed) : void();
            case kDeterministic: return options.deterministic ? void() : put(0);
            case kUseCache: return options.use_cache ? void() : put(0);
            default: return;
        }
    }

    void put_salt(const std::optional<std::string>& salt) {
        if (salt) put(salt->empty() ? kEmptySalt : std::string_view(*salt));
    }

    void put_take(const Row& row) {
        if (row.event != Event::kHistory || row.from == kNoRow) return;
        if (row.take == Take::kTokens) put(row.take_tokens);
        if (row.take != Take::kTokens) put(row.take == Take::kAll ? "all" : "prompt");
    }

    void put_tokens(const Row& row) {
        for (uint32_t k = 0; k < row.num_pieces; ++k) {
            const Piece& piece = trace_.pieces[row.first_piece + k];
            if (k > 0) line_ += trace_.pieces[row.first_piece + k - 1].ends_message ? '|' : ' ';
            if (piece.space == Piece::kExplicit) {
                const TokenId* ids = trace_.explicit_ids.data() + piece.begin;
                fmt::format_to(std::back_inserter(line_), "={}", fmt::join(ids, ids + piece.length, "."));
            } else {
                fmt::format_to(std::back_inserter(line_), "{}:{}+{}", piece.space, piece.begin, piece.length);
            }
            if (piece.ends_message && !piece.checkpoint) line_ += '~';
        }
    }

    void put_range(TokenId first, TokenId last) {
        put(first);
        if (last > first) fmt::format_to(std::back_inserter(line_), "-{}", last);
    }

    void put_stop_tokens(const std::vector<TokenId>& ids) {
        for (size_t begin = 0, end = 0; begin < ids.size(); begin = end) {
            for (end = begin + 1; end < ids.size() && ids[end - 1] + 1 == ids[end]; ++end) {
            }
            if (begin > 0) line_ += ' ';
            put_range(ids[begin], ids[end - 1]);
        }
    }

    void put_stop_strings(const std::vector<std::vector<TokenId>>& strings) {
        for (size_t begin = 0, end = 0; begin < strings.size(); begin = end) {
            if (begin > 0) line_ += '|';
            for (end = begin + 1; end < strings.size() && strings[begin].size() == 1 && strings[end].size() == 1 &&
                                  strings[end - 1][0] + 1 == strings[end][0];
                 ++end) {
            }
            if (end - begin > 1) put_range(strings[begin][0], strings[end - 1][0]);
            if (end - begin == 1) put(fmt::format("{}", fmt::join(strings[begin], ".")));
        }
    }

    const Trace& trace_;
    size_t num_columns_ = kNumColumns;
    std::string line_;
};

Result<std::string> zstd_compressed(std::string_view text) {
    std::string bytes(ZSTD_compressBound(text.size()), '\0');
    const size_t size = ZSTD_compress(bytes.data(), bytes.size(), text.data(), text.size(), 19);
    if (ZSTD_isError(size) != 0) return error("zstd: {}", ZSTD_getErrorName(size));
    bytes.resize(size);
    return bytes;
}

}  // namespace

void write_verbatim_csv(const Trace& trace, std::ostream& out) {
    RowWriter writer(trace);
    out << kFirstLine << '\n' << writer.header();
    for (const Row& row : trace.rows) out << writer.line(row);
}

Result<std::string> verbatim_csv_bytes(const Trace& trace, std::string_view name) {
    std::ostringstream text;
    write_verbatim_csv(trace, text);
    if (name.ends_with(".gz")) return files::gzipped(text.view());
    if (name.ends_with(".zst")) return zstd_compressed(text.view());
    return std::move(text).str();
}

}  // namespace verbatim::traces
