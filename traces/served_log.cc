// Logs of what a service was asked, JSON, with lengths only: results of `vllm bench serve`, OpenTelemetry's spans of
// GenAI calls, RAGPulse. See traces/README.md.
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/json_cursor.h"
#include "traces/lengths.h"
#include "traces/recording.h"
#include "traces/strict.h"

namespace verbatim::traces {
namespace {

constexpr size_t kMaxNameBytes = 200;
constexpr int64_t kNsIn1973 = 100'000'000'000'000'000;  // since 1970; microseconds of today are fewer

struct Call {
    int64_t time_ns = 0;
    int64_t prompt_tokens = 0;
    int64_t output_tokens = 0;
    std::string conversation;  // "": none
};

using LeftOut = std::map<std::string, int64_t>;

// In order of time; equal times in the file's order. Errors: `path` has calls of more than 73 years.
Result<Recording> recording_of(const std::string& path, std::vector<Call> calls, LeftOut left_out, Format format,
                               const ReadOptions& options) {
    std::ranges::stable_sort(calls, {}, &Call::time_ns);
    if (options.limit > 0 && std::ssize(calls) > options.limit) calls.resize(static_cast<size_t>(options.limit));
    Recording recording;
    recording.left_out = std::move(left_out);
    LengthsRecorder recorder(recording, format);
    std::unordered_map<std::string, int64_t> numbers;
    std::vector<int64_t> sessions;
    for (const Call& call : calls) {
        const auto number = static_cast<int64_t>(numbers.size());
        sessions.push_back(call.conversation.empty() ? -1 : numbers.emplace(call.conversation, number).first->second);
        if (const auto wanted = recorder.wanted_instead_of(call.time_ns); !wanted.empty())
            return error("{}: the first call is {} s after 1970, another one {} s: wanted {}", path,
                         calls.front().time_ns / kNsPerSecond, call.time_ns / kNsPerSecond, wanted);
        recorder.add(call.time_ns, call.prompt_tokens, call.output_tokens);
    }
    recording.num_sessions = static_cast<int64_t>(numbers.size());
    group_by_session(recording, sessions);
    return recording;
}

// --- vllm bench serve

// The lists of one run, a value for each request.
struct BenchRun {
    std::optional<std::vector<int64_t>> input_lens, output_lens, start_ns;
    std::optional<std::vector<int64_t>> failed;  // 1: has an error; such a request has 0 output tokens there
};

template <typename Read>
Status read_list(JsonCursor& json, std::optional<std::vector<int64_t>>& list, std::string_view key, const Read& read) {
    if (list) return json.wrong(fmt::format("'{}' once", key));
    list.emplace();
    return json.array([&]() -> Status {
        ASSIGN_OR_RETURN(const int64_t value, read());
        list->push_back(value);
        return {};
    });
}

// An error's text; "" and null: none.
Result<int64_t> read_failed(JsonCursor& json) {
    if (!json.is_string_next()) {
        RETURN_IF_ERROR(json.skip());
        return 0;
    }
    ASSIGN_OR_RETURN(const std::string text, json.string());
    return text.empty() ? 0 : 1;
}

Result<BenchRun> read_run(JsonCursor& json) {
    BenchRun run;
    RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
        if (key == "input_lens")
            return read_list(json, run.input_lens, key, [&] { return json.integer(0, kMaxRecordedTokens); });
        if (key == "output_lens")
            return read_list(json, run.output_lens, key, [&] { return json.integer(0, kMaxRecordedTokens); });
        if (key == "start_times") return read_list(json, run.start_ns, key, [&] { return json.seconds(); });
        if (key == "errors") return read_list(json, run.failed, key, [&] { return read_failed(json); });
        return json.skip();
    }));
    RETURN_IF_ERROR(json.end());
    return run;
}

// Of the run that begins at `begin`. What failed has no answer, and perhaps no time: it is left out.
Status add_calls(const JsonCursor& json, size_t begin, const BenchRun& run, std::vector<Call>& calls,
                 LeftOut& left_out) {
    const size_t count = run.input_lens->size();
    if (run.output_lens->size() != count || run.start_ns->size() != count) {
        return json.wrong_at(begin, fmt::format("as many start_times ({}) and output_lens ({}) as input_lens ({})",
                                                run.start_ns->size(), run.output_lens->size(), count));
    }
    if (run.failed && run.failed->size() != count)
        return json.wrong_at(begin, fmt::format("as many errors ({}) as input_lens ({})", run.failed->size(), count));
    for (size_t i = 0; i < count; ++i) {
        if (run.failed && (*run.failed)[i] != 0) {
            ++left_out["failed requests"];
            continue;
        }
        if ((*run.input_lens)[i] == 0)
            return json.wrong_at(begin, fmt::format("input_lens from 1 on: number {} is 0", i + 1));
        calls.push_back({(*run.start_ns)[i], (*run.input_lens)[i], (*run.output_lens)[i], ""});
    }
    if (calls.empty() && count > 0) return json.wrong_at(begin, "a run with a request that did not fail");
    const auto has_no_time = [](const Call& call) { return call.time_ns == 0; };
    if (std::ranges::any_of(calls, has_no_time) && !std::ranges::all_of(calls, has_no_time))
        return json.wrong_at(begin, "start_times of all requests: one is 0 beside larger ones");
    return {};
}

// --- OpenTelemetry

struct TokenCount {
    std::optional<int64_t> value;
    std::string key;  // it has two names
};

// What of a span's attributes counts.
struct GenAi {
    TokenCount input_tokens, output_tokens;
    std::string operation;
    std::string conversation;
};

struct Span {
    std::string trace;
    std::string id;  // unique in its trace
    std::string parent;
    std::optional<int64_t> start_ns;
    GenAi gen_ai;
};

// Operations that are requests to a model. Those of agents have the tokens of all their calls; no name: vLLM's own.
bool is_model_call(std::string_view operation) {
    static constexpr std::array kCalls = {"",           "chat",     "text_completion", "generate_content",
                                          "completion", "generate", "responses"};
    return std::ranges::find(kCalls, operation) != kCalls.end();
}

class SpanReader {
public:
    Status read_line(JsonCursor& json) {
        bool has_spans = false;
        RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
            if (key != "resourceSpans") return json.skip();
            has_spans = true;
            return each_object(json, "scopeSpans",
                               [&] { return each_object(json, "spans", [&] { return read_span(json); }); });
        }));
        RETURN_IF_ERROR(json.end());
        return has_spans ? Status{} : json.wrong("an object with 'resourceSpans'");
    }
    // A call within another one is the same request: a client's span, and its server's. Error: spans that are within
    // themselves.
    Result<std::vector<Call>> calls() {
        for (const auto& [key, node] : nodes_) {
            ASSIGN_OR_RETURN([[maybe_unused]] const bool has_call, is_within_call(key));
        }
        std::vector<Call> calls;
        for (const Span& span : spans_) {
            const auto node = nodes_.find(key_of(span, span.id));
            if (node != nodes_.end()) {
                ASSIGN_OR_RETURN(const bool is_within_another, is_within_call(node->second.parent));
                if (is_within_another) continue;
            }
            calls.push_back({*span.start_ns, *span.gen_ai.input_tokens.value,
                             span.gen_ai.output_tokens.value.value_or(0), span.gen_ai.conversation});
        }
        return calls;
    }
    [[nodiscard]] const LeftOut& left_out() const { return left_out_; }

private:
    // A span with an id: whether it, or one that it is within, is a call.
    struct Node {
        std::string parent;  // its key; "": none
        bool is_call = false;
        bool is_on_path = false;
        std::optional<bool> is_within_call;
    };
    // Ids are unique in their trace.
    static std::string key_of(const Span& span, const std::string& id) {
        return id.empty() ? "" : fmt::format("{}:{}/{}", span.trace.size(), span.trace, id);
    }
    // Whether the span with this key is a call, or within one; a span that the file does not have is neither.
    Result<bool> is_within_call(const std::string& key) {
        std::vector<Node*> path;
        bool is_within = false;
        for (auto node = nodes_.find(key); node != nodes_.end(); node = nodes_.find(node->second.parent)) {
            if (node->second.is_within_call) {
                is_within = *node->second.is_within_call;
                break;
            }
            if (std::exchange(node->second.is_on_path, true))
                return error("got the span {} within itself, wanted parents that come to an end",
                             shown(std::string_view(node->first).substr(node->first.find(':') + 1)));
            path.push_back(&node->second);
        }
        for (auto node = path.rbegin(); node != path.rend(); ++node) {
            is_within = is_within || (*node)->is_call;
            (*node)->is_within_call = is_within;
        }
        return is_within;
    }
    // Whether it is a call that is not there yet.
    bool add_node(const Span& span, bool is_call) {
        const std::string key = key_of(span, span.id);
        if (key.empty()) return is_call;
        Node& node = nodes_[key];
        if (node.parent.empty()) node.parent = key_of(span, span.parent);
        if (!is_call) return false;
        if (node.is_call) ++left_out_["spans that the file has already"];
        return !std::exchange(node.is_call, true);
    }
    // A list of objects, of each of which the member `key` is read, which is a list in turn.
    template <typename Read>
    static Status each_object(JsonCursor& json, std::string_view key, const Read& read) {
        return json.array(
            [&] { return json.object([&](std::string_view member) { return member == key ? read() : json.skip(); }); });
    }

    Status read_span(JsonCursor& json) {
        return json.array([&]() -> Status {
            const size_t begin = json.mark();
            Span span;
            RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
                if (key == "traceId") return read_name(json, span.trace);
                if (key == "spanId") return read_name(json, span.id);
                if (key == "parentSpanId") return read_name(json, span.parent);
                if (key == "attributes") return read_attributes(json, span.gen_ai);
                if (key != "startTimeUnixNano") return json.skip();
                ASSIGN_OR_RETURN(span.start_ns, read_integer(json, 0));
                return {};
            }));
            const bool has_tokens = span.gen_ai.input_tokens.value.has_value();
            const bool is_call = has_tokens && is_model_call(span.gen_ai.operation);
            if (has_tokens && !is_call)
                ++left_out_[fmt::format("spans of the operation {}", shown(span.gen_ai.operation))];
            // 0 is what writers leave that do not know it.
            if (is_call && span.start_ns.value_or(0) == 0)
                return json.wrong_at(begin, "a span with 'startTimeUnixNano'");
            if (add_node(span, is_call)) spans_.push_back(std::move(span));
            return {};
        });
    }
    static Status read_name(JsonCursor& json, std::string& name) {
        const size_t begin = json.mark();
        ASSIGN_OR_RETURN(name, json.string());
        return name.size() <= kMaxNameBytes ? Status{} : json.wrong_at(begin, "at most 200 characters");
    }
    // 64 bits are a string in OTLP's JSON; some write a number.
    static Result<int64_t> read_integer(JsonCursor& json, int64_t least) {
        constexpr int64_t kMost = int64_t{1} << 62;
        if (!json.is_string_next()) return json.integer(least, kMost);
        const size_t begin = json.mark();
        ASSIGN_OR_RETURN(const std::string text, json.string());
        const auto value = parse_number<int64_t>(text);
        if (!value || *value < least || *value > kMost)
            return json.wrong_at(begin, fmt::format("an integer from {} to {}", least, kMost));
        return *value;
    }
    struct Value {
        std::optional<int64_t> integer;
        std::string text;
    };
    static Status read_value(JsonCursor& json, Value& value) {
        return json.object([&](std::string_view kind) -> Status {
            if (kind == "stringValue") {
                ASSIGN_OR_RETURN(value.text, json.string());
                return {};
            }
            if (kind != "intValue") return json.skip();
            ASSIGN_OR_RETURN(value.integer, read_integer(json, -(int64_t{1} << 62)));
            return {};
        });
    }
    // The names before version 1.27 of the conventions, which vLLM writes, say prompt and completion.
    static Status read_attributes(JsonCursor& json, GenAi& gen_ai) {
        return json.array([&]() -> Status {
            const size_t begin = json.mark();
            std::string key;
            Value value;
            RETURN_IF_ERROR(json.object([&](std::string_view member) -> Status {
                if (member == "value") return read_value(json, value);
                if (member != "key") return json.skip();
                ASSIGN_OR_RETURN(key, json.string());
                return {};
            }));
            const auto tokens = [&](TokenCount& count, int64_t least) -> Status {
                if (!value.integer || *value.integer < least || *value.integer > kMaxRecordedTokens)
                    return json.wrong_at(
                        begin, fmt::format("'{}' with an intValue from {} to {}", key, least, kMaxRecordedTokens));
                // Both of its names may be there, with the same number.
                if (count.value && (count.key == key || count.value != value.integer))
                    return json.wrong_at(begin, fmt::format("'{}' once", key));
                count = {value.integer, key};
                return {};
            };
            if (key == "gen_ai.usage.input_tokens" || key == "gen_ai.usage.prompt_tokens")
                return tokens(gen_ai.input_tokens, 1);
            if (key == "gen_ai.usage.output_tokens" || key == "gen_ai.usage.completion_tokens")
                return tokens(gen_ai.output_tokens, 0);
            if (key == "gen_ai.operation.name") gen_ai.operation = value.text;
            if (key == "gen_ai.conversation.id") gen_ai.conversation = value.text;
            return gen_ai.conversation.size() <= kMaxNameBytes
                       ? Status{}
                       : json.wrong_at(begin, "a conversation's id of at most 200 characters");
        });
    }
    std::vector<Span> spans_;                      // of calls to a model
    std::unordered_map<std::string, Node> nodes_;  // all spans, by their keys
    LeftOut left_out_;
};

// --- RAGPulse

Result<int64_t> read_seconds(JsonCursor& json) {
    if (!json.is_string_next()) return json.seconds();
    const size_t begin = json.mark();
    ASSIGN_OR_RETURN(const std::string text, json.string());
    JsonCursor number(text, "");
    const auto time_ns = number.seconds();
    if (!time_ns || !number.end()) return json.wrong_at(begin, "seconds");
    return *time_ns;
}

// `timestamp` is a number of seconds, or such a number as a string.
Result<Call> read_ragpulse_line(JsonCursor& json) {
    std::optional<int64_t> time_ns, prompt, output;
    const size_t begin = json.mark();
    RETURN_IF_ERROR(json.object([&](std::string_view key) -> Status {
        const auto once = [&](const std::optional<int64_t>& value) {
            return value ? json.wrong(fmt::format("'{}' once", key)) : Status{};
        };
        if (key == "timestamp") {
            RETURN_IF_ERROR(once(time_ns));
            ASSIGN_OR_RETURN(time_ns, read_seconds(json));
        } else if (key == "input_length") {
            RETURN_IF_ERROR(once(prompt));
            ASSIGN_OR_RETURN(prompt, json.integer(1, kMaxRecordedTokens));
        } else if (key == "output_length") {
            RETURN_IF_ERROR(once(output));
            ASSIGN_OR_RETURN(output, json.integer(0, kMaxRecordedTokens));
        } else {
            RETURN_IF_ERROR(json.skip());
        }
        return {};
    }));
    RETURN_IF_ERROR(json.end());
    if (!time_ns || !prompt || !output)
        return json.wrong_at(begin, "a request with 'timestamp', 'input_length' and 'output_length'");
    return Call{*time_ns, *prompt, *output, ""};
}

}  // namespace

Result<Recording> read_ragpulse(TextInput input, const ReadOptions& options) {
    std::vector<Call> calls;
    while (true) {
        ASSIGN_OR_RETURN(const auto line, input.next_row_line());
        if (!line) break;
        JsonCursor json(*line, fmt::format("{}:{}", input.path(), input.line_number()));
        ASSIGN_OR_RETURN(calls.emplace_back(), read_ragpulse_line(json));
    }
    return recording_of(input.path(), std::move(calls), {}, Format::kRagPulse, options);
}

Result<Recording> read_vllm_bench(TextInput input, const ReadOptions& options) {
    std::vector<Call> calls;
    LeftOut left_out;
    bool has_run = false;
    while (true) {
        ASSIGN_OR_RETURN(const auto line, input.next_row_line());
        if (!line) break;
        JsonCursor json(*line, fmt::format("{}:{}", input.path(), input.line_number()));
        const size_t begin = json.mark();
        if (std::exchange(has_run, true))
            return json.wrong("the end: one run in a file, not several by --append-result");
        ASSIGN_OR_RETURN(const BenchRun run, read_run(json));
        if (!run.input_lens || !run.output_lens) {
            return json.wrong_at(begin,
                                 "a run with 'input_lens' and 'output_lens': vllm bench serve --save-result "
                                 "--save-detailed");
        }
        if (!run.start_ns) return json.wrong_at(begin, "a run with 'start_times', which newer versions of vLLM write");
        RETURN_IF_ERROR(add_calls(json, begin, run, calls, left_out));
    }
    return recording_of(input.path(), std::move(calls), std::move(left_out), Format::kVllmBench, options);
}

Result<Recording> read_otel(TextInput input, const ReadOptions& options) {
    SpanReader spans;
    while (true) {
        ASSIGN_OR_RETURN(const auto line, input.next_row_line());
        if (!line) break;
        JsonCursor json(*line, fmt::format("{}:{}", input.path(), input.line_number()));
        RETURN_IF_ERROR(spans.read_line(json));
    }
    auto calls = spans.calls();
    if (!calls) return error("{}: {}", input.path(), calls.error().message);
    if (calls->empty()) {
        std::string others;
        for (const auto& [what, count] : spans.left_out()) others += fmt::format("; left out: {} {}", count, what);
        return error("{}: no span has gen_ai.usage.input_tokens: wanted spans of calls to a model{}", input.path(),
                     others);
    }
    const int64_t last_ns = std::ranges::max(*calls, {}, &Call::time_ns).time_ns;
    ASSIGN_OR_RETURN(Recording recording,
                     recording_of(input.path(), *std::move(calls), spans.left_out(), Format::kOtel, options));
    // Requests that were sent at once may come as fast, but not before there were such services.
    if (const double rate = median_rate(recording); rate > kMaxPlausibleRate && last_ns < kNsIn1973) {
        return error("{}: the median rate is {:.0f} requests a second: wanted 'startTimeUnixNano' in nanoseconds",
                     input.path(), rate);
    }
    return recording;
}

}  // namespace verbatim::traces
