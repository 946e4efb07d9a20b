#include "engine/recorder.h"

#include <array>

#include "engine/base/check.h"
#include "engine/fields.h"

namespace verbatim {

const char* name(EventKind kind) {
    constexpr std::array kNames = {"submit", "refuse",  "repeat", "attach",  "tail_copy", "preempt",
                                   "stage",  "publish", "commit", "discard", "abort",     "evict",
                                   "let_go", "fork",    "rewind", "delete",  "revoke"};
    static_assert(kNames.size() == static_cast<size_t>(EventKind::kCount));
    CHECK(kind < EventKind::kCount, "event kind {}", static_cast<int>(kind));
    return kNames[static_cast<size_t>(kind)];
}

void DigestRecorder::on_plan(const StepPlan& plan) {
    const Digest digest = plan.digest();
    plans_.add(digest);
    all_.add('p');
    all_.add(digest);
}

void DigestRecorder::on_token(RequestId request, TokenId token) {
    CHECK(token >= 0, "request {} is told token {}", index(request), token);
    all_.add('t');
    all_.add(request);
    all_.add(token);
}

void DigestRecorder::on_event(const Event& event) {
    CHECK(event.kind < EventKind::kCount, "event kind {}", static_cast<int>(event.kind));
    all_.add('e');
    add_fields(all_, event);
}

}  // namespace verbatim
