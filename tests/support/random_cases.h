// tests/support/random_cases.h: which seeds a random test runs, and the line that says so.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace verbatim::testing {

struct RandomCases {
    uint64_t seed = 20251121;  // of the first case; case i has seed + i
    uint64_t count = 0;

    // VERBATIM_SEED: that one case. RC_PARAMS="seed=N max_success=M", as RapidCheck reads it: M cases from N on.
    static RandomCases from_environment(uint64_t default_count) {
        RandomCases cases;
        cases.count = default_count;
        if (const char* one = std::getenv("VERBATIM_SEED")) {
            cases.seed = std::strtoull(one, nullptr, 10);
            cases.count = 1;
        } else if (const char* parameters = std::getenv("RC_PARAMS")) {
            read(parameters, "seed=", cases.seed);
            read(parameters, "max_success=", cases.count);
        }
        fmt::print("cases {} .. {}\n", cases.seed, cases.seed + cases.count - 1);
        std::fflush(stdout);
        return cases;
    }

private:
    static void read(std::string_view parameters, std::string_view key, uint64_t& value) {
        const size_t place = parameters.find(key);
        if (place != std::string_view::npos) {
            value = std::strtoull(std::string(parameters.substr(place + key.size())).c_str(), nullptr, 10);
        }
    }
};

}  // namespace verbatim::testing
