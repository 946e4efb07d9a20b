#include "server/http/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace verbatim::server {
namespace {

std::string head(const std::string& name, const char* type, const char* help) {
    return fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

// A label's value: backslash, quote and line break are escaped.
std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        if (c == '\\' || c == '"') out += '\\';
        out += c == '\n' ? "\\n" : std::string(1, c);
    }
    return out;
}

// Writes lines for one model.
class Page {
public:
    explicit Page(const std::string& model) : labels_(fmt::format("model_name=\"{}\"", escaped(model))) {}
    void gauge(const std::string& name, const char* help, double value) { one(name, "gauge", help, value); }
    void counter(const std::string& name, const char* help, int64_t value) {
        one(name + "_total", "counter", help, static_cast<double>(value));
    }
    void seconds(const std::string& name, const char* help, int64_t ns) {
        one(name + "_total", "counter", help, static_cast<double>(ns) * 1e-9);
    }
    void begin(const std::string& name, const char* type, const char* help) { text_ += head(name, type, help); }
    void sample(const std::string& name, const std::string& label, const std::string& value, int64_t count) {
        text_ += fmt::format("{}{{{},{}=\"{}\"}} {}\n", name, labels_, label, escaped(value), count);
    }
    void histogram(const std::string& name, const char* help, const Histogram& histogram) {
        text_ += head(name, "histogram", help) + histogram.text(name, labels_);
    }
    [[nodiscard]] const std::string& text() const { return text_; }

private:
    void one(const std::string& name, const char* type, const char* help, double value) {
        text_ += head(name, type, help) + fmt::format("{}{{{}}} {}\n", name, labels_, value);
    }
    std::string labels_;
    std::string text_;
};

double share(int64_t used, int64_t all) { return all == 0 ? 0 : static_cast<double>(used) / static_cast<double>(all); }

void requests(Page& page, const HttpMetrics& http, const HostView& host) {
    page.gauge("vllm:num_requests_running", "Requests in the engine's batch.", static_cast<double>(host.num_running));
    page.gauge("vllm:num_requests_waiting", "Requests that wait for the engine, or are being put into tokens.",
               static_cast<double>(host.num_waiting) + static_cast<double>(http.num_prepared));
    page.gauge("verbatim:num_tokens_waiting", "Tokens of prompts that wait.",
               static_cast<double>(host.num_waiting_tokens));
    page.counter("vllm:num_preemptions", "Requests that gave up their memory.", host.stats.preemptions);
    page.counter("vllm:spec_decode_num_drafts", "Windows with drafts.", host.stats.windows);
    page.counter("vllm:spec_decode_num_draft_tokens", "Drafts in these.", host.stats.drafted_tokens);
    page.counter("vllm:spec_decode_num_accepted_tokens", "Drafts that became tokens.", host.stats.accepted_tokens);
    page.begin("vllm:request_success_total", "counter", "Choices that came to their end.");
    for (const auto& [reason, count] : http.finished)
        page.sample("vllm:request_success_total", "finished_reason", reason, count);
    page.histogram("vllm:time_to_first_token_seconds", "From the request to its first token.", http.first_token);
    page.histogram("vllm:time_per_output_token_seconds", "Mean of a choice's tokens after the first.", http.per_token);
    page.histogram("vllm:e2e_request_latency_seconds", "From the request to its last token.", http.whole_request);
}

void tokens(Page& page, const HostView& host) {
    const EngineStats& stats = host.stats;
    const int64_t prompt = stats.reused_tokens + stats.computed_prompt_tokens;
    page.counter("vllm:prompt_tokens", "Tokens of prompts.", prompt);
    page.counter("vllm:generation_tokens", "Tokens of answers.", stats.generated_tokens);
    page.counter("vllm:prefix_cache_queries", "Tokens of prompts that were looked for.", prompt);
    page.counter("vllm:prefix_cache_hits", "Tokens of prompts that were reused.", stats.reused_tokens);
    if (host.knows_reusable) {
        page.counter(
            "verbatim:reusable_tokens",
            "Tokens of prompts that an unlimited cache would have reused, as far as earlier prompts are known.",
            stats.reusable_tokens);
    }
    page.begin("verbatim:not_reused_tokens_total", "counter", "Tokens of prompts that were computed, by why.");
    for (size_t reason = 0; reason < stats.not_reused.size(); ++reason) {
        page.sample("verbatim:not_reused_tokens_total", "reason", name(static_cast<NotReused>(reason)),
                    stats.not_reused[reason]);
    }
    page.counter("verbatim:recomputed_tokens", "Tokens computed again after a preemption.", stats.recomputed_tokens);
}

// Heads behind memory: `name` is "tier" of files, or "host_tier" of those in host memory.
void tier_files(Page& page, const std::string& name, const HeadTierCounts& tier) {
    const auto gauge = [&](const char* what, const char* help, int64_t value) {
        page.gauge(fmt::format("verbatim:{}_{}", name, what), help, static_cast<double>(value));
    };
    const auto counter = [&](const char* what, const char* help, int64_t value) {
        page.counter(fmt::format("verbatim:{}_{}", name, what), help, value);
    };
    gauge("heads", "Heads in the tier.", tier.num_files);
    gauge("bytes", "Bytes of the tier's files.", tier.num_bytes);
    counter("writes", "Heads that were written to the tier.", tier.written);
    counter("written_bytes", "Bytes of these.", tier.written_bytes);
    counter("not_written", "Heads that were not: too many were waiting, or the folder failed.", tier.not_written);
    counter("not_kept", "Heads that are expected to take longer to read than to compute.", tier.not_kept);
    counter("restores", "Heads that requests got from the tier.", tier.restored);
    counter("restored_bytes", "Bytes of these.", tier.restored_bytes);
    counter("restored_tokens", "Tokens of these.", tier.restored_tokens);
    counter("read_bytes", "Bytes that were read from files: what memory has of a head is not.", tier.read_bytes);
    page.seconds(fmt::format("verbatim:{}_read_seconds", name), "Time that reading and checking these took.",
                 tier.read_ns);
    counter("not_worth", "Heads that were there while computing was expected to be quicker.", tier.not_worth);
    counter("no_room", "Heads that were read while what ran left no room for them.", tier.no_room);
    counter("damaged", "Files that were damaged; their tokens are computed again.", tier.damaged);
}

void memory(Page& page, const HostView& host) {
    page.gauge("vllm:kv_cache_usage_perc", "Used part of the KV blocks, 0 to 1.",
               share(host.num_used_blocks, host.num_blocks));
    page.gauge("verbatim:state_rows_usage_perc", "Used part of the state rows, 0 to 1.",
               share(host.num_used_state_rows, host.num_state_rows));
    page.gauge("verbatim:state_rows_used", "States that are held.", static_cast<double>(host.num_used_state_rows));
    page.gauge("verbatim:kv_blocks_used", "KV blocks that are held.", static_cast<double>(host.num_used_blocks));
    page.gauge("verbatim:cache_budget_bytes", "Bytes for KV blocks and states together.",
               static_cast<double>(host.budget_bytes));
    page.gauge("verbatim:memory_reserved_bytes", "The most that the executor's memory of both can take.",
               static_cast<double>(host.memory.reserved));
    page.gauge("verbatim:memory_resident_bytes", "Of it, what has been used and not been given back.",
               static_cast<double>(host.memory.resident));
    page.gauge("verbatim:memory_held_bytes", "Of it, what KV blocks and states hold.",
               static_cast<double>(host.memory.held));
    page.gauge("verbatim:memory_fragmentation_bytes", "In slabs that hold something, what holds nothing.",
               static_cast<double>(host.memory.in_use - host.memory.held));
    page.counter("verbatim:memory_moved_bytes", "Bytes that were moved to empty slabs.", host.memory.moved);
    page.begin("verbatim:cache_bytes", "gauge", "Bytes of the cache, by what holds them.");
    page.sample("verbatim:cache_bytes", "kind", "kv_of_requests", host.cache_bytes.kv_of_sequences);
    page.sample("verbatim:cache_bytes", "kind", "kv_of_heads", host.cache_bytes.kv_of_heads);
    page.sample("verbatim:cache_bytes", "kind", "states", host.cache_bytes.states);
    page.sample("verbatim:cache_bytes", "kind", "free", host.cache_bytes.free);
    page.gauge("verbatim:heads", "Heads of conversations.", static_cast<double>(host.num_heads));
    page.gauge("verbatim:conversations", "Conversations with a ledger.", static_cast<double>(host.num_conversations));
    page.gauge("verbatim:loaded_conversations", "Conversations of the ledger that are in memory.",
               static_cast<double>(host.num_loaded_conversations));
    page.gauge("verbatim:loaded_conversations_bytes", "Memory of these, roughly.",
               static_cast<double>(host.num_loaded_bytes));
    page.counter("verbatim:evictions", "Heads that made room.", host.stats.evictions);
    page.counter("verbatim:commits", "Turns that were committed.", host.num_commits);
    page.counter("verbatim:discards", "Turns that ended without a commit.", host.stats.discards);
    page.counter("verbatim:aborts", "Turns that were aborted.", host.stats.aborts);
    page.counter("verbatim:steps", "Steps of the engine.", host.stats.steps);
    page.counter("verbatim:replaced_executors", "Executors that failed.", host.num_replaced_executors);
    if (host.tier) tier_files(page, "tier", *host.tier);
    if (host.host_tier) tier_files(page, "host_tier", *host.host_tier);
    page.counter("verbatim:grammar_masks", "Masks that were computed for answers of a form.", host.num_masks);
    page.counter("verbatim:retried_turns", "Turns that were tried again on a fresh executor.", host.num_retried_turns);
}

}  // namespace

void Histogram::observe(double value) {
    const auto bound = std::ranges::lower_bound(bounds_, value);
    ++counts_[static_cast<size_t>(bound - bounds_.begin())];
    sum_ += value;
}

std::string Histogram::text(const std::string& name, const std::string& labels) const {
    std::string lines;
    int64_t below = 0;
    for (size_t i = 0; i < bounds_.size(); ++i) {
        below += counts_[i];
        lines += fmt::format("{}_bucket{{{},le=\"{}\"}} {}\n", name, labels, bounds_[i], below);
    }
    below += counts_.back();
    lines += fmt::format("{}_bucket{{{},le=\"+Inf\"}} {}\n", name, labels, below);
    return lines + fmt::format("{}_sum{{{}}} {}\n{}_count{{{}}} {}\n", name, labels, sum_, name, labels, below);
}

void observe(HttpMetrics& metrics, const ChoiceTimes& times) {
    if (times.num_tokens > 0) metrics.first_token.observe(times.first_token);
    if (times.num_tokens > 1)
        metrics.per_token.observe((times.whole - times.first_token) / static_cast<double>(times.num_tokens - 1));
    metrics.whole_request.observe(times.whole);
}

std::string metrics_text(const HttpMetrics& http, const HostView& host, const std::optional<RecordView>& record,
                         const std::string& model) {
    Page page(model);
    requests(page, http, host);
    tokens(page, host);
    memory(page, host);
    if (record) {
        page.gauge("verbatim:record_failed", "1: the record of --record could not be written, and ends early.",
                   record->failed ? 1 : 0);
        page.gauge("verbatim:record_bytes", "Bytes of the record.", static_cast<double>(record->num_bytes));
    }
    page.gauge("verbatim:connections", "Clients' connections.", static_cast<double>(http.num_connections));
    page.gauge("verbatim:body_file_bytes", "Bytes of bodies that files hold.",
               static_cast<double>(http.num_file_bytes));
    page.gauge("verbatim:body_bytes", "Bytes of long bodies that are held.", static_cast<double>(http.num_body_bytes));
    page.counter("verbatim:clients_gone", "Clients that left before their answer was whole.", http.num_clients_gone);
    page.begin("verbatim:http_responses_total", "counter", "Answers by status.");
    for (const auto& [status, count] : http.responses)
        page.sample("verbatim:http_responses_total", "status", fmt::format("{}", status), count);
    return page.text();
}

}  // namespace verbatim::server
