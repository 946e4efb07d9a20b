#include "engine/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace verbatim {

RunContext& run_context() {
    thread_local RunContext context;
    return context;
}

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
    const RunContext& context = run_context();
    fmt::print(stderr, "{}:{}: CHECK({}) failed", file, line, condition);
    if (!message.empty()) fmt::print(stderr, ": {}", message);
    fmt::print(stderr, " [seed {}, step {}]\n", context.seed, context.step);
    std::fflush(stderr);
    std::abort();
}

}  // namespace verbatim
