#include "audit/drafts.h"

#include <fmt/format.h>

#include "audit/server_info.h"

namespace verbatim::audit {

void Drafts::add(const Drafts& more) {
    is_counted = is_counted || more.is_counted;
    num_accepted += more.num_accepted;
    if (more.num_accepted > 0) proof = more.proof;
}

Drafts drafts_between(const std::string& before, const std::string& after) {
    for (const char* name : {"vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"}) {
        const auto begin = metric_value(before, name);
        const auto end = metric_value(after, name);
        if (!begin || !end) continue;
        const auto change = static_cast<int64_t>(*end - *begin);
        return {true, change, fmt::format("{} rose", name)};
    }
    const char* const kLength = "sglang:spec_accept_length";
    if (const auto length = metric_value(after, kLength)) {
        const bool accepts = *length > 1;
        return {true, accepts ? 1 : 0, fmt::format("{} is {:.2f}", kLength, *length)};
    }
    return {};
}

}  // namespace verbatim::audit
