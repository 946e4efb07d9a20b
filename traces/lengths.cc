// Logs with lengths only, all CSV: the Azure LLM inference traces (2023, 2024), BurstGPT, Vidur. See traces/README.md.
#include "traces/lengths.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <unordered_map>

#include "traces/csv_columns.h"
#include "traces/json_cursor.h"
#include "traces/strict.h"

namespace verbatim::traces {
namespace {

// The unit of --tokens-per-id, since these logs have no blocks; equal to the agentic sessions'.
constexpr int64_t kBlockTokens = 64;

// All characters must be digits.
std::optional<int64_t> digits(std::string_view text) {
    if (text.empty() || !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; }))
        return std::nullopt;
    return parse_number<int64_t>(text);
}

// "+00:00", "-07:30" or "Z" at the end of `text`, which loses it: nanoseconds east of Greenwich. Without one: 0.
std::optional<int64_t> take_zone(std::string_view& text) {
    if (text.ends_with('Z')) {
        text.remove_suffix(1);
        return 0;
    }
    if (text.size() < 25) return 0;
    const std::string_view zone = text.substr(text.size() - 6);
    if (zone[0] != '+' && zone[0] != '-') return 0;
    const auto hour = digits(zone.substr(1, 2)), minute = digits(zone.substr(4, 2));
    if (zone[3] != ':' || !hour || !minute || *hour > 14 || *minute > 59) return std::nullopt;
    text.remove_suffix(6);
    return (zone[0] == '-' ? -1 : 1) * (*hour * 3600 + *minute * 60) * kNsPerSecond;
}

// "2023-11-16 18:15:46.6805900" or "2024-05-10 00:00:00.009930+00:00", up to nine digits after the point, as
// nanoseconds since 1970.
std::optional<int64_t> parse_timestamp(std::string_view text) {
    const auto zone = take_zone(text);
    if (!zone) return std::nullopt;
    const auto number = [&](size_t begin, size_t count) { return digits(text.substr(begin, count)); };
    if (text.size() < 19 || text[4] != '-' || text[7] != '-' || text[10] != ' ' || text[13] != ':' || text[16] != ':')
        return std::nullopt;
    const auto year = number(0, 4), month = number(5, 2), day = number(8, 2);
    const auto hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
    if (!year || !month || !day || !hour || !minute || !second || *hour > 23 || *minute > 59 || *second > 59)
        return std::nullopt;
    const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(*year)),
                                           std::chrono::month(static_cast<unsigned>(*month)),
                                           std::chrono::day(static_cast<unsigned>(*day))};
    if (!date.ok() || *year < 1970 || *year > 2200) return std::nullopt;
    int64_t fraction = 0;
    if (text.size() > 19) {
        std::string padded(text.substr(20));
        if (text[19] != '.' || padded.empty() || padded.size() > 9) return std::nullopt;
        padded.resize(9, '0');
        const auto value = digits(padded);
        if (!value) return std::nullopt;
        fraction = *value;
    }
    const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
    return (days * 86400 + *hour * 3600 + *minute * 60 + *second) * kNsPerSecond + fraction - *zone;
}

// "12", "12.5": seconds as nanoseconds, exact up to nine digits after the point.
std::optional<int64_t> parse_seconds(std::string_view text) {
    const size_t point = text.find('.');
    const auto whole = digits(text.substr(0, point));
    if (!whole || *whole > (int64_t{1} << 30)) return std::nullopt;
    if (point == std::string_view::npos) return *whole * kNsPerSecond;
    std::string padded(text.substr(point + 1, 9));
    if (!digits(text.substr(point + 1))) return std::nullopt;
    padded.resize(9, '0');
    return *whole * kNsPerSecond + *digits(padded);
}

bool wants_more(const Recording& recording, const ReadOptions& options) {
    return options.limit == 0 || static_cast<int64_t>(recording.requests.size()) < options.limit;
}

}  // namespace

double median_rate(const Recording& recording) {
    std::vector<int64_t> times;
    for (const RecordedRequest& request : recording.requests)
        if (request.previous < 0) times.push_back(request.time_ns);
    std::ranges::sort(times);
    std::vector<double> rates;
    for (size_t begin = 0; begin < times.size();) {
        const auto end =
            static_cast<size_t>(std::upper_bound(times.begin(), times.end(), times[begin]) - times.begin());
        if (end == times.size()) break;
        const double gap_s = static_cast<double>(times[end] - times[begin]) * 1e-9;
        rates.insert(rates.end(), end - begin, static_cast<double>(end - begin) / gap_s);
        begin = end;
    }
    if (rates.empty()) return 0;
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    return *middle;
}

LengthsRecorder::LengthsRecorder(Recording& recording, Format format) : recording_(recording) {
    recording.format = format;
    recording.block_tokens = kBlockTokens;
}

std::string_view LengthsRecorder::wanted_instead_of(int64_t time_ns) const {
    if (recording_.requests.empty()) return "";
    if (time_ns - start_ns_ < recording_.requests.back().time_ns) return "a time that is not before the line before";
    return time_ns - start_ns_ > kMaxTimeNs ? "a time less than 73 years after the first one" : "";
}

void LengthsRecorder::add(int64_t time_ns, int64_t prompt_tokens, int64_t output_tokens) {
    if (recording_.requests.empty()) start_ns_ = time_ns;
    RecordedRequest request;
    request.source_row = static_cast<int64_t>(recording_.requests.size());
    request.time_ns = time_ns - start_ns_;
    request.prompt_tokens = prompt_tokens;
    request.output_tokens = output_tokens;
    recording_.requests.push_back(request);
}

void group_by_session(Recording& recording, const std::vector<int64_t>& sessions) {
    std::vector<size_t> order(sessions.size());
    std::iota(order.begin(), order.end(), size_t{0});
    const auto rank = [&](size_t i) { return sessions[i] < 0 ? recording.num_sessions : sessions[i]; };
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return rank(a) < rank(b); });
    std::vector<RecordedRequest> grouped;
    grouped.reserve(order.size());
    for (const size_t i : order) {
        if (grouped.empty() || rank(i) != recording.strands.back().session) {
            Strand strand;
            strand.first_request = grouped.size();
            strand.session = rank(i);
            strand.has_ids = false;
            recording.strands.push_back(strand);
        }
        ++recording.strands.back().num_requests;
        grouped.push_back(recording.requests[i]);
    }
    recording.requests = std::move(grouped);
    if (!recording.strands.empty() && recording.strands.back().session == recording.num_sessions) {
        recording.strands.back().session = -1;
        recording.strands.back().has_ids = true;  // true without any ids: no request has a common prefix
    }
}

template <size_t N>
using QuotedColumns = CsvColumns<N, io::double_quote_escape<',', '"'>, io::trim_chars<' ', '\t'>>;

namespace {

// A CSV with a line for each request, which belongs to no session.
struct RequestLines {
    Format format;
    QuotedColumns<3>::Names columns;  // of the time, the tokens of the prompt and those of the answer
    std::optional<int64_t> (*time_ns)(std::string_view field);
    std::string_view wanted_time;  // in the error
};

Result<Recording> read_requests(const RequestLines& lines, TextInput input, const ReadOptions& options) {
    enum Column : size_t { kTime, kPrompt, kOutput, kCount };
    ASSIGN_OR_RETURN(auto columns, QuotedColumns<kCount>::open(std::move(input), lines.columns));
    for (size_t column = 0; column < kCount; ++column) {
        if (!columns.has(column)) return columns.wrong(column, "this column in the header");
    }
    Recording recording;
    LengthsRecorder recorder(recording, lines.format);
    while (wants_more(recording, options)) {
        ASSIGN_OR_RETURN(const bool more, columns.next());
        if (!more) break;
        const auto time_ns = lines.time_ns(columns.field(kTime));
        if (!time_ns) return columns.wrong(kTime, lines.wanted_time);
        if (const auto wanted = recorder.wanted_instead_of(*time_ns); !wanted.empty())
            return columns.wrong(kTime, wanted);
        ASSIGN_OR_RETURN(const int64_t prompt, columns.number<int64_t>(kPrompt, 1, kMaxRecordedTokens));
        ASSIGN_OR_RETURN(const int64_t output, columns.number<int64_t>(kOutput, 0, kMaxRecordedTokens));
        recorder.add(*time_ns, prompt, output);
    }
    Strand all;
    all.num_requests = recording.requests.size();
    recording.strands.push_back(all);
    return recording;
}

// As Python writes a number: with an exponent where it is small.
std::optional<int64_t> parse_python_seconds(std::string_view field) {
    JsonCursor number(field, "");
    const auto time_ns = number.seconds();
    return time_ns && number.end() ? std::optional(*time_ns) : std::nullopt;
}

}  // namespace

Result<Recording> read_azure(TextInput input, const ReadOptions& options) {
    return read_requests({Format::kAzure,
                          {"TIMESTAMP", "ContextTokens", "GeneratedTokens"},
                          parse_timestamp,
                          "a time such as 2023-11-16 18:15:46.6805900 or 2024-05-10 00:00:00.009930+00:00"},
                         std::move(input), options);
}

Result<Recording> read_vidur(TextInput input, const ReadOptions& options) {
    return read_requests({Format::kVidur,
                          {"arrived_at", "num_prefill_tokens", "num_decode_tokens"},
                          parse_python_seconds,
                          "seconds, such as 12, 12.5 or 5e-05"},
                         std::move(input), options);
}

Result<Recording> read_burstgpt(TextInput input, const ReadOptions& options) {
    enum Column : size_t { kTimestamp, kSession, kElapsed, kModel, kRequest, kResponse, kTotal, kLogType, kCount };
    ASSIGN_OR_RETURN(auto columns,
                     QuotedColumns<kCount>::open(std::move(input),
                                                 {"Timestamp", "Session ID", "Elapsed time", "Model", "Request tokens",
                                                  "Response tokens", "Total tokens", "Log Type"}));
    for (const Column column : {kTimestamp, kModel, kRequest, kResponse, kTotal, kLogType}) {
        if (!columns.has(column)) return columns.wrong(column, "this column in the header");
    }
    Recording recording;
    LengthsRecorder recorder(recording, Format::kBurstGpt);
    std::unordered_map<std::string, int64_t> numbers;
    std::vector<int64_t> sessions;  // by request; -1: none
    while (wants_more(recording, options)) {
        ASSIGN_OR_RETURN(const bool more, columns.next());
        if (!more) break;
        const auto time_ns = parse_seconds(columns.field(kTimestamp));
        if (!time_ns) return columns.wrong(kTimestamp, "seconds, such as 12 or 12.5");
        if (const auto wanted = recorder.wanted_instead_of(*time_ns); !wanted.empty())
            return columns.wrong(kTimestamp, wanted);
        ASSIGN_OR_RETURN(const int64_t prompt, columns.number<int64_t>(kRequest, 1, kMaxRecordedTokens));
        ASSIGN_OR_RETURN(const int64_t output, columns.number<int64_t>(kResponse, 0, kMaxRecordedTokens));
        ASSIGN_OR_RETURN(const int64_t total, columns.number<int64_t>(kTotal, 1, 2 * kMaxRecordedTokens));
        if (total != prompt + output) return columns.wrong(kTotal, fmt::format("{}, the sum of both", prompt + output));
        if (!columns.field(kElapsed).empty() && !parse_seconds(columns.field(kElapsed)))
            return columns.wrong(kElapsed, "seconds");
        const std::string session(columns.field(kSession));
        if (session.size() > 200) return columns.wrong(kSession, "at most 200 characters");
        sessions.push_back(session.empty() ? -1 : numbers.emplace(session, numbers.size()).first->second);
        recorder.add(*time_ns, prompt, output);
    }
    recording.num_sessions = static_cast<int64_t>(numbers.size());
    group_by_session(recording, sessions);
    return recording;
}

}  // namespace verbatim::traces
