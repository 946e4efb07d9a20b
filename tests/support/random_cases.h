// tests/support/random_cases.h: the seeds of a random test, and the line that prints them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

namespace verbatim::tests {

struct RandomCases {
    static constexpr uint64_t kUsualSeed = 20251121;
    uint64_t seed = kUsualSeed;  // of the first case; case i has seed + i
    uint64_t count = 0;

    // Whether they are those of every run: the ones that are known to reach something rare.
    [[nodiscard]] bool is_usual() const { return seed == kUsualSeed; }

    // VERBATIM_SEED: that one case. RC_PARAMS="seed=N max_success=M", as RapidCheck reads it: M percent of the usual
    // number, from N on.
    static RandomCases from_environment(uint64_t usual_count) {
        RandomCases cases;
        uint64_t percent = 100;
        if (const char* one = std::getenv("VERBATIM_SEED")) {
            cases.seed = std::strtoull(one, nullptr, 10);
            cases.count = 1;
        } else if (const char* parameters = std::getenv("RC_PARAMS")) {
            read(parameters, "seed=", cases.seed);
            read(parameters, "max_success=", percent);
        }
        if (cases.count == 0) cases.count = std::max<uint64_t>(1, usual_count * percent / 100);
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

}  // namespace verbatim::tests
