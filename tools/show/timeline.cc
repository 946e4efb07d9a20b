#include "tools/show/timeline.h"

#include <fmt/format.h>

#include <map>
#include <variant>

#include <nlohmann/json.hpp>

#include "files/chrome_trace.h"

namespace verbatim::tools {
namespace {

using nlohmann::ordered_json;

constexpr int64_t kStepsTrack = 1;
constexpr int64_t kFirstRequestTrack = 2;

struct Span {
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
};

std::map<int64_t, Span> spans_of(const records::Record& record, int64_t step_ns) {
    std::map<int64_t, Span> spans;
    int64_t now_ns = 0;
    for (const records::Entry& entry : record.entries) {
        const auto* step = std::get_if<records::StepRecord>(&entry);
        if (step == nullptr) continue;
        const int64_t end_ns = now_ns + (step->elapsed_ns > 0 ? step->elapsed_ns : step_ns);
        spans[step->step] = {now_ns, end_ns};
        now_ns = end_ns;
    }
    return spans;
}

bool is_shown(EventKind kind) {
    switch (kind) {
        case EventKind::kAttach:
        case EventKind::kTailCopy:
        case EventKind::kPreempt:
        case EventKind::kPublish:
        case EventKind::kCommit:
        case EventKind::kDiscard:
        case EventKind::kAbort:
        case EventKind::kEvict:
        case EventKind::kLetGo: return true;
        default: return false;
    }
}

}  // namespace

std::string timeline_json(const records::RunIndex& index, int64_t step_ns) {
    const records::Record& record = index.record();
    const std::map<int64_t, Span> spans = spans_of(record, step_ns);
    const auto span = [&](int64_t step) {
        const auto found = spans.find(step);
        return found == spans.end() ? Span{} : found->second;
    };
    ChromeTrace trace(record.run.model + " on " + record.run.executor);
    trace.name_track(kStepsTrack, "steps");
    for (const auto& [number, at] : spans) {
        const records::StepRecord& step = *index.step(number);
        int64_t num_tokens = 0;
        for (const records::SequenceRecord& sequence : step.sequences) num_tokens += sequence.end - sequence.begin;
        trace.slice(kStepsTrack, fmt::format("step {}", number), at.begin_ns, at.end_ns - at.begin_ns,
                    {{"sequences", step.sequences.size()}, {"tokens", num_tokens}});
    }
    for (const auto& [name, request] : index.requests()) {
        if (request.shares.empty()) continue;
        const int64_t track = kFirstRequestTrack + verbatim::index(request.id);
        const Span first = span(request.shares.front().step->step);
        const Span last = span(request.shares.back().step->step);
        trace.name_track(track, fmt::format("request {}", verbatim::index(request.id)));
        trace.slice(track, fmt::format("{} #{}", name.first.conversation_id, name.second), first.begin_ns,
                    last.end_ns - first.begin_ns,
                    {{"prompt", request.num_prompt_tokens},
                     {"attached", request.num_attached_tokens},
                     {"answered", request.tokens.size()}});
        for (const records::Share& share : request.shares) {
            const Span at = span(share.step->step);
            const records::SequenceRecord& sequence = share.sequence();
            trace.slice(track, sequence.end - sequence.begin == 1 ? "decode" : "prefill", at.begin_ns,
                        at.end_ns - at.begin_ns,
                        {{"begin", sequence.begin}, {"end", sequence.end}, {"drafts", sequence.drafts.size()}});
        }
    }
    for (const records::Entry& entry : record.entries) {
        const auto* reported = std::get_if<records::Reported>(&entry);
        if (reported == nullptr) continue;
        for (const Event& event : reported->events) {
            if (!is_shown(event.kind)) continue;
            const int64_t request = verbatim::index(event.request);
            trace.mark(request < 0 ? kStepsTrack : kFirstRequestTrack + request, name(event.kind),
                       span(event.step).end_ns, {{"head", verbatim::index(event.head)}, {"value", event.value}});
        }
    }
    return trace.json();
}

}  // namespace verbatim::tools
