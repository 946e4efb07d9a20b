#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "traces/builder.h"
#include "traces/csv_columns.h"
#include "traces/spaces.h"
#include "traces/verbatim_csv.h"
#include "traces/verbatim_csv_format.h"

namespace verbatim::traces {
namespace {

using namespace csv_format;

// Splits `rest` at `separator` and returns the text before it; all of it when there is none.
std::string_view take_until(std::string_view& rest, char separator) {
    const size_t end = rest.find(separator);
    const std::string_view part = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    return part;
}

std::optional<TokenId> parse_id(std::string_view text) {
    const auto id = parse_number<TokenId>(text);
    return id && *id >= 0 ? id : std::nullopt;
}

// "5" or "5-9", both inclusive.
std::optional<std::pair<TokenId, TokenId>> parse_id_range(std::string_view text) {
    const auto first = parse_id(take_until(text, '-'));
    const auto last = text.empty() ? first : parse_id(text);
    if (!first || !last || *last < *first) return std::nullopt;
    return std::pair{*first, *last};
}

using OwnColumns = CsvColumns<kNumColumns, io::no_quote_escape<','>, io::trim_chars<>>;

// Builds the rows. One object per file.
class VerbatimCsvReader {
public:
    explicit VerbatimCsvReader(OwnColumns columns) : columns_(std::move(columns)) {}

    Result<Trace> read(int64_t limit) {
        for (const Column column : {kEvent, kConversation}) {
            if (!columns_.has(column)) return columns_.wrong(column, "this column in the header");
        }
        while (limit == 0 || static_cast<int64_t>(builder_.trace().rows.size()) < limit) {
            ASSIGN_OR_RETURN(const bool more, columns_.next());
            if (!more) break;
            RETURN_IF_ERROR(read_row());
        }
        Trace trace = builder_.finish();
        RETURN_IF_ERROR(validate(trace));
        return trace;
    }

private:
    Status read_row() {
        Row row;
        ASSIGN_OR_RETURN(row.event, word<Event>(kEvent, kEvents));
        RETURN_IF_ERROR(read_conversation(row));
        RETURN_IF_ERROR(read_name(row));
        RETURN_IF_ERROR(read_time(row));
        RETURN_IF_ERROR(read_request(row));
        RETURN_IF_ERROR(read_from(row));
        RETURN_IF_ERROR(read_tokens());
        RETURN_IF_ERROR(read_options(row));
        const RowIndex added = builder_.add_row(row);
        const Row& whole = builder_.trace().rows.back();
        if (planned_end(whole) > kMaxPromptTokens)
            return columns_.wrong(kTokens, "at most 2^40 tokens in a prompt and its answer");
        RETURN_IF_ERROR(check_row(whole));
        if (row.name != 0) named_rows_.emplace(builder_.trace().names[row.name], added);
        move_tip(added, whole);
        return {};
    }

    // The checks of validate() for one row, with its place in the file.
    [[nodiscard]] Status check_row(const Row& row) const {
        const bool request = is_request(row.event);
        if (!request && row.num_pieces > 0) return columns_.wrong(kTokens, "no tokens: this event is no request");
        if (!request && (row.max_tokens >= 0 || row.abort_after >= 0))
            return columns_.wrong(kMaxTokens, "no limits: this event is no request");
        if (!request && (row.expect != Expect::kServed || row.has_parent))
            return columns_.wrong(kExpect, "no expectation: this event is no request");
        if ((row.event == Event::kFork || row.event == Event::kRewind) && row.from == kNoRow)
            return columns_.wrong(kFrom, "the row to go to");
        if (row.event == Event::kSuffix && row.num_pieces == 0) return columns_.wrong(kTokens, "the suffix's tokens");
        if (row.event == Event::kRegenerate && row.num_pieces > 0)
            return columns_.wrong(kTokens, "no tokens: the last turn's prompt is answered again");
        if (row.event == Event::kHistory && row.prompt_tokens == 0)
            return columns_.wrong(kTokens, "at least one token, taken or own");
        if (row.max_tokens > 0 && row.abort_after >= row.max_tokens) {
            return columns_.wrong(kAbortAfter, fmt::format("less than max_tokens ({})", row.max_tokens));
        }
        if (row.from == kNoRow) return {};
        const Row& from = builder_.trace().row(row.from);
        if (!is_request(from.event)) return columns_.wrong(kFrom, "a row that is a request");
        if (builder_.trace().conversation_of(from).salt != builder_.trace().conversation_of(row).salt) {
            return columns_.wrong(kFrom, "a row of the same salt");
        }
        if (row.take_tokens > planned_end(from)) {
            return columns_.wrong(
                kTake, fmt::format("at most the {} tokens of that row's prompt and answer", planned_end(from)));
        }
        return {};
    }

    template <typename T, size_t N>
    Result<T> word(Column column, const std::array<std::string_view, N>& words) const {
        const std::string_view text = columns_.field(column);
        if (text.empty() && column != kEvent) return T{};
        const auto found = std::find(words.begin(), words.end(), text);
        if (found == words.end()) return columns_.wrong(column, fmt::format("one of {}", fmt::join(words, ", ")));
        return static_cast<T>(found - words.begin());
    }

    Status read_conversation(Row& row) {
        const std::string_view name = columns_.field(kConversation);
        const std::string_view salt = columns_.field(kSalt);
        const char* letters = "letters, digits and . _ : - /, at most 200";
        if (!valid_name(name)) return columns_.wrong(kConversation, letters);
        if (!salt.empty() && salt != kEmptySalt && !valid_name(salt)) return columns_.wrong(kSalt, letters);
        std::optional<std::string> value;
        if (!salt.empty()) value = salt == kEmptySalt ? std::string{} : std::string(salt);
        row.conversation = builder_.add_conversation(name, value);
        tips_.resize(builder_.trace().conversations.size(), kNoRow);
        newest_.resize(builder_.trace().conversations.size(), kNoRow);
        return {};
    }

    Status read_name(Row& row) {
        for (const Column column : {kRow, kTurn}) {
            const std::string_view text = columns_.field(column);
            if (!text.empty() && !valid_name(text))
                return columns_.wrong(column, "letters, digits and . _ : - /, at most 200");
        }
        if (named_rows_.contains(std::string(columns_.field(kRow))))
            return columns_.wrong(kRow, "a name that no earlier row has");
        row.name = builder_.add_name(columns_.field(kRow));
        row.turn = builder_.add_name(columns_.field(kTurn));
        ASSIGN_OR_RETURN(row.session, columns_.number<int32_t>(kSession, 0, 0x7fffffff, -1));
        ASSIGN_OR_RETURN(row.replica, columns_.number<int32_t>(kReplica, 0, 0x7fffffff, -1));
        return {};
    }

    // A row's name, or @N for row number N of the file, counted from 0. An empty field is no row.
    Result<RowIndex> reference(Column column) const {
        const std::string_view text = columns_.field(column);
        if (text.empty()) return kNoRow;
        if (text.starts_with('@')) {
            const auto number = parse_number<int32_t>(text.substr(1));
            if (number && *number >= 0 && static_cast<size_t>(*number) < builder_.trace().rows.size())
                return RowIndex{*number};
        } else if (const auto found = named_rows_.find(std::string(text)); found != named_rows_.end()) {
            return found->second;
        }
        return columns_.wrong(column, "the name of an earlier row, or @N for row N counted from 0");
    }

    Status read_time(Row& row) {
        const int64_t previous = builder_.trace().rows.empty() ? 0 : builder_.trace().rows.back().arrival_ns;
        ASSIGN_OR_RETURN(row.arrival_ns, columns_.number<int64_t>(kArrival, 0, kMaxTimeNs, previous));
        if (row.arrival_ns < previous)
            return columns_.wrong(kArrival, fmt::format("{} or later: rows are in order of time", previous));
        ASSIGN_OR_RETURN(row.start, word<Start>(kStart, kStarts));
        ASSIGN_OR_RETURN(row.think_ns, columns_.number<int64_t>(kThink, 0, kMaxTimeNs, 0));
        ASSIGN_OR_RETURN(row.wait_for, reference(kWaitFor));
        if (row.start == Start::kArrival || row.wait_for != kNoRow) return {};
        row.wait_for = newest_[static_cast<size_t>(index(row.conversation))];
        if (row.wait_for == kNoRow)
            return columns_.wrong(kWaitFor, "the row to wait for: this is the conversation's first one");
        return {};
    }

    Status read_request(Row& row) {
        ASSIGN_OR_RETURN(row.max_tokens, columns_.number<int64_t>(kMaxTokens, 0, kMaxRowTokens, -1));
        ASSIGN_OR_RETURN(row.abort_after, columns_.number<int64_t>(kAbortAfter, 0, kMaxRowTokens, -1));
        ASSIGN_OR_RETURN(row.expect, word<Expect>(kExpect, kExpects));
        const std::string_view parent = columns_.field(kParent);
        row.has_parent = !parent.empty();
        if (row.has_parent && parent != kNoHeadWord) {
            ASSIGN_OR_RETURN(row.parent, reference(kParent));
        }
        return {};
    }

    Status read_from(Row& row) {
        ASSIGN_OR_RETURN(row.from, reference(kFrom));
        const bool implicit = row.event == Event::kSuffix || row.event == Event::kRegenerate;
        if (implicit && row.from == kNoRow) row.from = previous_turn(row);
        if (implicit && row.from == kNoRow && row.expect == Expect::kServed) {
            return columns_.wrong(kFrom, "a conversation that has a turn already (or expect = refused)");
        }
        const std::string_view take = columns_.field(kTake);
        if (row.event != Event::kHistory || row.from == kNoRow) {
            if (!take.empty()) return columns_.wrong(kTake, "nothing: only a history with `from` takes");
            return {};
        }
        if (take.empty() || take == "all") {
            row.take = Take::kAll;
        } else if (take == "prompt") {
            row.take = Take::kPrompt;
        } else {
            const auto count = parse_number<int64_t>(take);
            if (!count || *count < 1 || *count > kMaxPromptTokens)
                return columns_.wrong(kTake, "all, prompt or a number of tokens from 1");
            row.take_tokens = *count;
        }
        return {};
    }

    // What a suffix or regenerate follows: the conversation's last turn; for a retry, the predecessor of the first try.
    [[nodiscard]] RowIndex previous_turn(const Row& row) const {
        const Trace& trace = builder_.trace();
        if (row.turn != 0) {
            const auto first = turns_.find({row.conversation, row.turn});
            if (first != turns_.end()) return trace.row(first->second).from;
        }
        return tips_[static_cast<size_t>(index(row.conversation))];
    }

    void move_tip(RowIndex i, const Row& row) {
        const auto conversation = static_cast<size_t>(index(row.conversation));
        newest_[conversation] = i;
        if (row.turn != 0) turns_.emplace(std::pair{row.conversation, row.turn}, i);
        if (row.event == Event::kDelete) tips_[conversation] = kNoRow;
        if (row.event == Event::kFork || row.event == Event::kRewind) tips_[conversation] = row.from;
        if (is_request(row.event) && row.expect == Expect::kServed && row.abort_after < 0) tips_[conversation] = i;
    }

    // message|message: pieces separated by spaces, then ~ if the message's end is no checkpoint.
    Status read_tokens() {
        std::string_view rest = columns_.field(kTokens);
        while (!rest.empty()) {
            std::string_view message = take_until(rest, '|');
            const bool checkpoint = !message.ends_with('~');
            if (!checkpoint) message.remove_suffix(1);
            bool any = false;
            while (!message.empty()) {
                const std::string_view piece = take_until(message, ' ');
                if (piece.empty()) continue;
                RETURN_IF_ERROR(read_piece(piece));
                any = true;
            }
            if (!any) return columns_.wrong(kTokens, "a piece in every message");
            builder_.end_message(checkpoint);
        }
        return {};
    }

    // SPACE:BEGIN+LENGTH or =ID.ID.ID
    Status read_piece(std::string_view text) {
        if (text.starts_with('=')) return read_explicit_piece(text.substr(1));
        const std::string_view whole = text;
        const auto space = parse_number<uint64_t>(take_until(text, ':'));
        const auto begin = parse_number<int64_t>(take_until(text, '+'));
        const auto length = parse_number<int32_t>(text);
        const bool valid = space && begin && length && *begin >= 0 && *begin <= kMaxBegin && *length > 0;
        if (!valid || *space >> 63 != 0 || kind_of(*space) == SpaceKind::kOutput) {
            return columns_.wrong(kTokens, fmt::format("SPACE:BEGIN+LENGTH or =ID.ID... at {}", shown(whole)));
        }
        builder_.add_piece({*space, *begin, *length, false, false});
        return {};
    }

    Status read_explicit_piece(std::string_view text) {
        std::vector<TokenId> ids;
        while (!text.empty()) {
            const auto id = parse_id(take_until(text, '.'));
            if (!id) return columns_.wrong(kTokens, "token ids from 0, separated by '.', after '='");
            ids.push_back(*id);
        }
        if (ids.empty()) return columns_.wrong(kTokens, "a token id after '='");
        builder_.add_explicit_piece(ids);
        return {};
    }

    Status read_options(Row& row) {
        RowOptions options;
        RETURN_IF_ERROR(read_sampling(options));
        RETURN_IF_ERROR(read_stops(options));
        ASSIGN_OR_RETURN(options.ignore_stop, columns_.flag(kIgnoreStop, false));
        ASSIGN_OR_RETURN(options.deterministic, columns_.flag(kDeterministic, true));
        ASSIGN_OR_RETURN(options.use_cache, columns_.flag(kUseCache, true));
        row.options = builder_.add_options(options);
        return {};
    }

    Status read_sampling(RowOptions& options) const {
        constexpr float kMax = 1e6F;
        SamplingParams& sampling = options.sampling;
        ASSIGN_OR_RETURN(sampling.temperature, columns_.number<float>(kTemperature, 0, kMax, 0));
        ASSIGN_OR_RETURN(sampling.top_k, columns_.number<int32_t>(kTopK, 0, 0x7fffffff, 0));
        ASSIGN_OR_RETURN(sampling.top_p, columns_.number<float>(kTopP, 1e-6F, 1, 1));
        ASSIGN_OR_RETURN(sampling.repetition_penalty, columns_.number<float>(kRepetition, 1e-6F, kMax, 1));
        ASSIGN_OR_RETURN(sampling.presence_penalty, columns_.number<float>(kPresence, -kMax, kMax, 0));
        ASSIGN_OR_RETURN(sampling.frequency_penalty, columns_.number<float>(kFrequency, -kMax, kMax, 0));
        if (columns_.field(kSeed).empty()) return {};
        ASSIGN_OR_RETURN(options.seed, columns_.number<uint64_t>(kSeed, 0, ~uint64_t{0}));
        return {};
    }

    Status read_stops(RowOptions& options) const {
        std::string_view tokens = columns_.field(kStopTokens);
        while (!tokens.empty()) {
            const auto range = parse_id_range(take_until(tokens, ' '));
            if (!range || !append_range(*range, options.stop_tokens)) {
                return columns_.wrong(kStopTokens, "token ids or ranges A-B, separated by spaces, at most 65536 ids");
            }
        }
        std::string_view strings = columns_.field(kStopStrings);
        while (!strings.empty()) {
            std::vector<TokenId> ids;
            std::string_view text = take_until(strings, '|');
            const bool several = text.find('-') != std::string_view::npos;
            if (several) {
                const auto range = parse_id_range(text);
                if (!range || !append_range(*range, ids)) return columns_.wrong(kStopStrings, kStopStringsWanted);
                for (const TokenId id : ids) options.stop_strings.push_back({id});
            } else {
                while (!text.empty()) {
                    const auto id = parse_id(take_until(text, '.'));
                    if (!id) return columns_.wrong(kStopStrings, kStopStringsWanted);
                    ids.push_back(*id);
                }
                options.stop_strings.push_back(ids);
            }
            if (ids.empty() || options.stop_strings.size() > kMaxStopIds)
                return columns_.wrong(kStopStrings, kStopStringsWanted);
        }
        return {};
    }

    static bool append_range(std::pair<TokenId, TokenId> range, std::vector<TokenId>& ids) {
        if (static_cast<int64_t>(range.second) - range.first >= static_cast<int64_t>(kMaxStopIds - ids.size()))
            return false;
        for (int64_t id = range.first; id <= range.second; ++id) ids.push_back(static_cast<TokenId>(id));
        return true;
    }

    static constexpr const char* kStopStringsWanted =
        "strings separated by '|', each ID.ID... or a range A-B of strings of one token, at most 65536";

    OwnColumns columns_;
    TraceBuilder builder_;
    std::unordered_map<std::string, RowIndex> named_rows_;
    std::map<std::pair<ConversationIndex, uint32_t>, RowIndex> turns_;  // first row of a turn id
    std::vector<RowIndex> tips_;    // per conversation: the row whose head its name should point to
    std::vector<RowIndex> newest_;  // per conversation: its last row
};

}  // namespace

Result<Trace> read_verbatim_csv(TextInput input, int64_t limit) {
    const std::string_view first = input.peek().substr(0, input.peek().find_first_of("\r\n"));
    if (first != kFirstLine) return error("{}:1: got {}, wanted the line '{}'", input.path(), shown(first), kFirstLine);
    ASSIGN_OR_RETURN(auto columns, OwnColumns::open(std::move(input), kColumnNames));
    return VerbatimCsvReader(std::move(columns)).read(limit);
}

}  // namespace verbatim::traces
