#include "engine/base/planted.h"

#if VERBATIM_PLANTED_BUGS
#include <array>
#include <cstdlib>
#include <string_view>

namespace verbatim {
namespace {

constexpr std::array kNames = {
    "none",
    "skip_state_copy",
    "tail_copy_one_short",
    "tail_shared",
    "stale_state_row",
    "publish_early",
    "salt_dropped",
    "leak_on_abort",
    "sampled_token_in_head",
    "lease_unchecked",
    "groups_differ",
    "reuse_unfenced",
    "pin_forgotten",
    "prefix_unchecked",
    "resume_keeps_computed",
    "abort_publishes",
    "fork_uncounted",
    "retry_recomputes",
    "oldest_preempted",
    "seam_dropped",
    "stop_string_uncommitted",
};
static_assert(kNames.size() == static_cast<size_t>(Planted::kCount));

Planted from_environment() {
    const char* wanted = std::getenv("VERBATIM_BUG");
    if (wanted == nullptr) return Planted::kNone;
    for (size_t i = 0; i < kNames.size(); ++i) {
        if (kNames[i] == std::string_view(wanted)) return static_cast<Planted>(i);
    }
    return Planted::kNone;  // one of tests/planted/faults/
}

}  // namespace

bool planted(Planted fault) {
    static const Planted active = from_environment();
    return active == fault;
}

const char* name(Planted fault) { return kNames[static_cast<size_t>(fault)]; }

}  // namespace verbatim
#endif
