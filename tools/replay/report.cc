#include "tools/replay/report.h"

#include <algorithm>
#include <functional>

#include "tools/program/cli.h"
#include "tools/program/verdict_text.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;
using records::ComparedShare;
using records::Promise;
using records::Verdict;

constexpr size_t kShortDigest = 8;  // hexadecimal digits in a line among others

struct Counter {
    const char* key;    // in JSON
    const char* label;  // in the table
    std::function<int64_t(const ReplayRun&)> value;
    // A scenario in which it stays zero has not tested it, unless the model lacks the memory group that it needs.
    enum { kNever, kAlways, kWithKv, kWithState, kWithWindows } engages = kAlways;
    // Null in JSON and absent in the table where the engine remembers no prompts, or without a tier.
    bool needs_history = false;
    bool needs_tier = false;
};

bool is_known(const Counter& counter, const ReplayRun& run) {
    return (!counter.needs_history || run.has_history) && (!counter.needs_tier || run.has_tier);
}

bool must_move(const Counter& counter, const ReplayRun& run) {
    switch (counter.engages) {
        case Counter::kNever: return false;
        case Counter::kAlways: return true;
        case Counter::kWithKv: return run.kv.capacity > 0;
        case Counter::kWithState: return run.state.capacity > 0;
        case Counter::kWithWindows: return run.has_windows;
    }
    return true;
}

int64_t computed_tokens(const ReplayRun& run) {
    return run.stats.computed_prompt_tokens + run.stats.computed_output_tokens;
}

// Every counter of a run, in the order in which it is shown.
const std::vector<Counter>& counters() {
    static const std::vector<Counter> all = {
        {"requests", "requests", [](const ReplayRun& r) { return r.stats.requests; }},
        {"turns", "turns", [](const ReplayRun& r) { return r.driver.turns; }},
        {"reused_tokens", "tokens reused", [](const ReplayRun& r) { return r.stats.reused_tokens; }},
        {"reusable_tokens", "tokens an unlimited cache reuses",
         [](const ReplayRun& r) { return r.stats.reusable_tokens; }, Counter::kNever, true},
        {"computed_tokens", "tokens computed", computed_tokens},
        {"recomputed_tokens", "tokens recomputed", [](const ReplayRun& r) { return r.stats.recomputed_tokens; },
         Counter::kWithKv},
        {"generated_tokens", "tokens generated", [](const ReplayRun& r) { return r.stats.generated_tokens; }},
        {"windows", "windows", [](const ReplayRun& r) { return r.stats.windows; }, Counter::kWithWindows},
        {"drafted_tokens", "tokens drafted", [](const ReplayRun& r) { return r.stats.drafted_tokens; },
         Counter::kWithWindows},
        {"accepted_tokens", "drafts accepted", [](const ReplayRun& r) { return r.stats.accepted_tokens; },
         Counter::kWithWindows},
        {"rolled_back_tokens", "drafts rolled back", [](const ReplayRun& r) { return r.stats.rolled_back_tokens; },
         Counter::kWithWindows},
        {"draft_path_tokens", "tokens on draft paths", [](const ReplayRun& r) { return r.stats.draft_path_tokens; },
         Counter::kNever},
        {"unwritten_rows", "rows left unwritten", [](const ReplayRun& r) { return r.stats.unwritten_rows; },
         Counter::kNever},
        {"tail_copies", "tail copies", [](const ReplayRun& r) { return r.stats.tail_copies; }, Counter::kWithKv},
        {"state_copies", "state copies", [](const ReplayRun& r) { return r.stats.state_copies; }, Counter::kWithState},
        {"preemptions", "preemptions", [](const ReplayRun& r) { return r.stats.preemptions; }, Counter::kWithKv},
        {"evictions", "evictions", [](const ReplayRun& r) { return r.stats.evictions; }},
        {"restored_heads", "heads restored", [](const ReplayRun& r) { return r.restored_heads; }, Counter::kNever,
         false, true},
        {"host_restored_heads", "of these from host memory", [](const ReplayRun& r) { return r.host_restored_heads; },
         Counter::kNever, false, true},
        {"restored_tokens", "tokens of restored heads", [](const ReplayRun& r) { return r.restored_tokens; },
         Counter::kNever, false, true},
        {"written_heads", "heads written", [](const ReplayRun& r) { return r.written_heads; }, Counter::kNever, false,
         true},
        {"commits", "commits", [](const ReplayRun& r) { return r.stats.commits; }},
        {"discards", "discards", [](const ReplayRun& r) { return r.stats.discards; }},
        {"forks", "forks", [](const ReplayRun& r) { return r.stats.forks; }},
        {"rewinds", "rewinds", [](const ReplayRun& r) { return r.stats.rewinds; }},
        {"aborts", "aborts", [](const ReplayRun& r) { return r.stats.aborts; }},
        {"refused", "refused", [](const ReplayRun& r) { return r.driver.refused; }},
        {"repeats", "answered from the ledger", [](const ReplayRun& r) { return r.stats.repeats; }},
        {"rejected", "rejected (too long, or too large for the cache)",
         [](const ReplayRun& r) { return r.driver.rejected; }, Counter::kNever},
        {"client_wait_ms", "client wait, ms", [](const ReplayRun& r) { return r.driver.client_wait_ns / 1'000'000; },
         Counter::kNever},
        {"virtual_ms", "virtual time, ms", [](const ReplayRun& r) { return r.driver.virtual_ns / 1'000'000; }},
        {"steps", "steps", [](const ReplayRun& r) { return r.stats.steps; }},
        {"peak_running", "most requests in a step", [](const ReplayRun& r) { return r.driver.peak_running; }},
        {"kv_bytes", "KV bytes, peak", [](const ReplayRun& r) { return r.kv.peak; }, Counter::kWithKv},
        {"state_bytes", "state bytes, peak", [](const ReplayRun& r) { return r.state.peak; }, Counter::kWithState},
        {"memory_held_bytes", "executor's memory held, peak", [](const ReplayRun& r) { return r.memory.held; },
         Counter::kNever},
        {"memory_resident_bytes", "executor's memory resident, peak",
         [](const ReplayRun& r) { return r.memory.resident; }, Counter::kNever},
        {"memory_fragmentation_bytes", "fragmentation, peak", [](const ReplayRun& r) { return r.fragmentation; },
         Counter::kNever},
        {"memory_moved_bytes", "bytes moved to empty slabs", [](const ReplayRun& r) { return r.memory.moved; },
         Counter::kNever},
        {"compared_logits", "compared logits", [](const ReplayRun& r) { return r.counts.compared_logits; }},
        {"compared_states", "compared states", [](const ReplayRun& r) { return r.counts.compared_states; }},
    };
    return all;
}

ordered_json difference_json(const ReplayRun& run) {
    if (!run.difference) return nullptr;
    const reference::Difference& d = *run.difference;
    ordered_json json = {{"trace", run.trace},     {"step", d.step},   {"request", index(d.request)},
                         {"position", d.position}, {"layer", d.layer}, {"op", d.op},
                         {"element", d.element},   {"got", d.primary}, {"wanted", d.secondary}};
    if (!d.detail.empty()) json["detail"] = d.detail;
    return json;
}

ordered_json reasons_json(const EngineStats& stats) {
    ordered_json reasons;
    for (size_t i = 0; i < stats.not_reused.size(); ++i) {
        reasons[name(static_cast<NotReused>(i))] = stats.not_reused[i];
    }
    return reasons;
}

// Null: no comparison was requested.
void add_verdict(std::optional<Verdict> verdict, ordered_json& json) {
    json["identical"] = verdict ? ordered_json(*verdict == Verdict::kSame) : ordered_json(nullptr);
    json["verdict"] = verdict ? ordered_json(name(*verdict)) : ordered_json(nullptr);
}

ordered_json run_json(const ReplayRun& run) {
    ordered_json json;
    json["trace"] = run.trace;
    json["model"] = run.model;
    json["numerics"] = run.numerics;
    if (!run.policy.empty()) json["policy"] = run.policy;
    json["seed"] = run.seed;
    json["fingerprint"] = run.fingerprint.hex();
    for (const Counter& counter : counters())
        json[counter.key] = is_known(counter, run) ? ordered_json(counter.value(run)) : ordered_json(nullptr);
    json["dropped"] = run.dropped;
    json["replaced_executors"] = run.replaced_executors;
    json["resent"] = run.driver.resent;
    json["kv_capacity_bytes"] = run.kv.capacity;
    json["state_capacity_bytes"] = run.state.capacity;
    json["budget_bytes"] = run.budget_bytes;
    json["memory_reserved_bytes"] = run.memory.reserved;
    json["not_reused"] = reasons_json(run.stats);
    add_verdict(run.verdict(), json);
    json["compared_share"] = compared_share_json(run.share());
    json["first_difference"] = difference_json(run);
    json["problems"] = run.problems();
    json["digest"] = run.digest.hex();
    return json;
}

std::string verdict_cell(const ReplayRun& run) {
    if (run.fails()) return "see below";
    return run.verdict() ? verdict_words(*run.verdict(), run.share()) : "nothing compared";
}

std::string problem_lines(const ReplayRun& run) {
    std::string text;
    for (const std::string& problem : run.problems()) {
        text += fmt::format("{}, {}: {}\n", run.trace, run.model, problem);
    }
    return text;
}

// What a reader of the summary must know and does not expect.
std::string remark_lines(const ReplayRun& run) {
    std::string text;
    const auto add = [&](int64_t count, const std::string& what) {
        if (count > 0) text += fmt::format("{}, {}: {} {}\n", run.trace, run.model, count, what);
    };
    add(run.num_too_long(), "rejected (too long)");
    add(run.num_too_large(),
        fmt::format("rejected: the cache's memory is too small (--cache-bytes {} is enough for each row)",
                    run.enough_bytes));
    add(run.num_behind_rejected(), "rejected (behind a rejected row)");
    add(run.dropped, "dropped (too long)");
    add(run.replaced_executors, "executors replaced");
    return text;
}

// The digest of one run, or the chain of several in order.
Digest chain_of(const std::vector<ReplayRun>& runs, Digest ReplayRun::*digest) {
    if (runs.size() == 1) return runs.front().*digest;
    Digester chain;
    for (const ReplayRun& run : runs) chain.add(run.*digest);
    return chain.digest();
}

ComparedShare share_of(const std::vector<ReplayRun>& runs) {
    ComparedShare share;
    for (const ReplayRun& run : runs) share.merge(run.share());
    return share;
}

std::string share_text(const std::vector<ReplayRun>& runs) {
    const ComparedShare share = share_of(runs);
    const std::string left_out = left_out_line(share);
    return fmt::format("compared: {}{}\n", to_string(share), left_out.empty() ? "" : "; left out: " + left_out);
}

void add_row(Table& table, const std::vector<ReplayRun>& runs, std::string label,
             const std::function<std::string(const ReplayRun&)>& cell) {
    std::vector<std::string> cells{std::move(label)};
    for (const ReplayRun& run : runs) cells.push_back(cell(run));
    table.add_row(std::move(cells));
}

}  // namespace

ComparedShare ReplayRun::share() const {
    ComparedShare share;
    for (const char* unit : {"requests", "positions", "logits", "states"}) share.compare(unit, 0);
    share.leave_out("too long for the context", Promise::kNone, "requests", num_too_long());
    share.leave_out("too large for the cache's memory", Promise::kNone, "requests", num_too_large());
    share.leave_out("behind a rejected row", Promise::kNone, "requests", num_behind_rejected());
    share.leave_out("too long for the context, dropped by --max-context", Promise::kNone, "requests", dropped);
    share.leave_out("refused", Promise::kNone, "requests", driver.refused);
    share.leave_out("answered from the ledger", Promise::kNone, "requests", driver.recorded);
    for (const std::string& failure : failures) share.leave_out_uncounted(failure);
    if (!has_witness) {
        const char* reason = "no executor ran beside (--beside none)";
        share.leave_out(reason, Promise::kBits, "requests", driver.turns);
        share.leave_out(reason, Promise::kBits, "positions", computed_tokens(*this));
        return share;
    }
    const char* ordinary = "in ordinary arithmetic, which promises no bits";
    share.compare("requests", compared_requests);
    share.leave_out(ordinary, Promise::kNone, "requests", ordinary_requests);
    share.leave_out("ended before their first token", Promise::kNone, "requests",
                    std::max<int64_t>(0, driver.turns - compared_requests - ordinary_requests));
    share.compare("positions", counts.watched_positions);
    share.leave_out(ordinary, Promise::kNone, "positions", counts.ordinary_positions);
    share.leave_out("compared by their logits, not by every operation", Promise::kNone, "positions",
                    counts.unwatched_positions);
    share.compare("logits", counts.compared_logits);
    share.leave_out(ordinary, Promise::kNone, "logits", counts.ordinary_logits);
    share.compare("states", counts.compared_states);
    share.leave_out("heads that the executor beside does not hold", Promise::kNone, "states", counts.uncompared_states);
    return share;
}

std::optional<Verdict> ReplayRun::verdict() const {
    if (fails()) return Verdict::kDifferent;
    if (!has_witness && failures.empty()) return std::nullopt;
    return verdict_of(false, share());
}

int64_t ReplayRun::num_too_long() const { return stats.refusals[static_cast<size_t>(RefusalReason::kTooLong)]; }

int64_t ReplayRun::num_too_large() const { return stats.refusals[static_cast<size_t>(RefusalReason::kTooLarge)]; }

bool ReplayRun::fails() const {
    return difference.has_value() || !driver.unexpected.empty() || !unmet.empty() || !idle_counters().empty();
}

std::vector<std::string> ReplayRun::idle_counters() const {
    std::vector<std::string> found;
    if (!all_counters) return found;
    for (const Counter& counter : counters()) {
        if (must_move(counter, *this) && counter.value(*this) == 0)
            found.push_back(fmt::format("{} stayed 0: the scenario did not test it", counter.key));
    }
    return found;
}

std::vector<std::string> ReplayRun::problems() const {
    std::vector<std::string> found = driver.unexpected;
    const auto add = [&](const std::vector<std::string>& more) { found.insert(found.end(), more.begin(), more.end()); };
    add(failures);
    add(unmet);
    if (difference) found.push_back("first difference: " + to_string(*difference));
    const ComparedShare compared = share();
    if (has_witness && !difference && compared.is_empty()) {
        found.push_back(
            fmt::format("nothing was compared: {} requests came to a turn, {} were rejected, {} were refused",
                        driver.turns, driver.rejected, driver.refused));
    } else if (has_witness && !difference && !compared.has_all_promised()) {
        found.push_back(fmt::format("not all compared: {}; {}", to_string(compared), left_out_line(compared)));
    }
    add(idle_counters());
    return found;
}

ExitCode exit_code_of(const std::vector<ReplayRun>& runs) {
    ExitCode code = kExitOk;
    for (const ReplayRun& run : runs) {
        if (run.fails()) return kExitDifference;
        if (run.verdict()) code = std::max(code, exit_code_of(*run.verdict()));
        code = with_rejected(code, run.driver.rejected);
    }
    return code;
}

std::string replay_summary(const std::vector<ReplayRun>& runs) {
    Table table({"trace", "model", "requests", "reused", "computed", "preempted", "evicted", "windows", "accepted",
                 "logits", "states", "first difference", "digest"});
    for (const ReplayRun& run : runs) {
        std::vector<std::string> cells = {run.trace, run.model};
        for (const int64_t count :
             {run.stats.requests, run.stats.reused_tokens, computed_tokens(run), run.stats.preemptions,
              run.stats.evictions, run.stats.windows, run.stats.accepted_tokens, run.counts.compared_logits,
              run.counts.compared_states}) {
            cells.push_back(fmt::format("{}", count));
        }
        cells.push_back(verdict_cell(run));
        cells.push_back(run.digest.hex().substr(0, kShortDigest));
        table.add_row(std::move(cells));
    }
    std::string text;
    if (!runs.empty()) {
        text += fmt::format("{}, seed {}, fingerprint {}\n", runs.front().numerics, runs.front().seed,
                            chain_of(runs, &ReplayRun::fingerprint).hex());
    }
    text += table.to_string() + share_text(runs);
    for (const ReplayRun& run : runs) text += remark_lines(run) + problem_lines(run);
    return text + fmt::format("digest {} (--details shows every counter)\n", chain_of(runs, &ReplayRun::digest).hex());
}

std::string replay_table(const std::vector<ReplayRun>& runs) {
    std::vector<std::string> header{"trace"};
    for (const ReplayRun& run : runs) header.push_back(run.trace);
    Table table(std::move(header));
    add_row(table, runs, "model", [](const ReplayRun& run) { return run.model; });
    add_row(table, runs, "numerics", [](const ReplayRun& run) { return run.numerics; });
    for (const Counter& counter : counters()) {
        if (!std::ranges::all_of(runs, [&](const ReplayRun& run) { return is_known(counter, run); })) continue;
        add_row(table, runs, counter.label,
                [&](const ReplayRun& run) { return fmt::format("{}", counter.value(run)); });
    }
    for (size_t i = 0; i < static_cast<size_t>(NotReused::kCount); ++i) {
        add_row(table, runs, fmt::format("not reused: {}", name(static_cast<NotReused>(i))),
                [&](const ReplayRun& run) { return fmt::format("{}", run.stats.not_reused[i]); });
    }
    if (std::ranges::any_of(runs, [](const ReplayRun& run) { return run.dropped > 0; }))
        add_row(table, runs, "dropped (too long)", [](const ReplayRun& run) { return fmt::format("{}", run.dropped); });
    if (std::ranges::any_of(runs, [](const ReplayRun& run) { return run.replaced_executors > 0; })) {
        add_row(table, runs, "executors replaced",
                [](const ReplayRun& run) { return fmt::format("{}", run.replaced_executors); });
        add_row(table, runs, "turns sent again",
                [](const ReplayRun& run) { return fmt::format("{}", run.driver.resent); });
    }
    add_row(table, runs, "first difference", verdict_cell);
    std::string text = table.to_string() + share_text(runs);
    for (const ReplayRun& run : runs) {
        text += fmt::format("{}, {}: seed {}, fingerprint {}, digest {}\n", run.trace, run.model, run.seed,
                            run.fingerprint.hex(), run.digest.hex());
        text += problem_lines(run);
    }
    return text;
}

ordered_json replay_json(const std::vector<ReplayRun>& runs) {
    if (runs.size() == 1) return run_json(runs.front());
    ordered_json json;
    for (const Counter& counter : counters()) {
        int64_t sum = 0;
        for (const ReplayRun& run : runs) sum += counter.value(run);
        const bool known = std::ranges::all_of(runs, [&](const ReplayRun& run) { return is_known(counter, run); });
        json[counter.key] = known ? ordered_json(sum) : ordered_json(nullptr);
    }
    const auto differs = std::ranges::find_if(runs, [](const ReplayRun& run) { return run.difference.has_value(); });
    add_verdict(std::ranges::max(runs, {}, &ReplayRun::verdict).verdict(), json);
    json["compared_share"] = compared_share_json(share_of(runs));
    json["first_difference"] = differs == runs.end() ? ordered_json(nullptr) : difference_json(*differs);
    json["fingerprint"] = chain_of(runs, &ReplayRun::fingerprint).hex();
    json["digest"] = chain_of(runs, &ReplayRun::digest).hex();
    json["runs"] = ordered_json::array();
    for (const ReplayRun& run : runs) json["runs"].push_back(run_json(run));
    return json;
}

}  // namespace verbatim::tools
