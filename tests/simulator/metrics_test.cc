#include "simulator/metrics.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace verbatim::tests {
namespace {

TEST(Metrics, APercentileIsAValueThatWasMeasured) {
    std::vector<int64_t> times;
    for (int64_t i = 1; i <= 10; ++i) times.push_back(i * 1'000'000'000);
    const Distribution d = distribution_s(times);
    EXPECT_DOUBLE_EQ(d.mean, 5.5);
    EXPECT_DOUBLE_EQ(d.p50, 5);
    EXPECT_DOUBLE_EQ(d.p95, 10);
    EXPECT_DOUBLE_EQ(d.p99, 10);
    EXPECT_DOUBLE_EQ(distribution_s({}).mean, 0);
    for (const auto& [part, value] : {std::pair{0, 10}, {33, 10}, {34, 20}, {66, 20}, {67, 30}, {100, 30}})
        EXPECT_EQ(at_rank(std::vector<int64_t>{10, 20, 30}, part, 100), value) << part;
}

TEST(Metrics, HitRatesAreByBlockTokenAndRequest) {
    std::vector<RowTimes> rows(3);
    rows[0] = {.due_ns = 0,
               .first_token_ns = 10,
               .end_ns = 40,
               .prompt_tokens = 100,
               .reused_tokens = 50,
               .output_tokens = 4,
               .outcome = RowOutcome::kServed};
    rows[1] = {.due_ns = 5,
               .first_token_ns = 10,
               .end_ns = 10,
               .prompt_tokens = 10,
               .reused_tokens = 0,
               .output_tokens = 1,
               .outcome = RowOutcome::kServed};
    rows[2] = {.prompt_tokens = 1000, .outcome = RowOutcome::kRejected};
    const Metrics metrics = metrics_of(rows, 16, {.ttft_ns = 7});
    EXPECT_EQ(metrics.requests, 2);
    EXPECT_DOUBLE_EQ(metrics.hit_rate.block, 3.0 / (7 + 1));
    EXPECT_DOUBLE_EQ(metrics.hit_rate.token, 50.0 / 110);
    EXPECT_DOUBLE_EQ(metrics.hit_rate.request, 0.25);
    EXPECT_DOUBLE_EQ(metrics.ttft.mean, 7.5e-9);
    EXPECT_DOUBLE_EQ(metrics.tpot.mean, 10e-9);
    EXPECT_EQ(metrics.requests_in_slo, 1);
}

}  // namespace
}  // namespace verbatim::tests
