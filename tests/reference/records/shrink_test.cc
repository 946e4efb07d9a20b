// The smallest calls whose run still differs.
#include "reference/records/shrink.h"

#include <gtest/gtest.h>

#include <bit>

#include "reference/records/comparison.h"
#include "reference/records/run_again.h"
#include "reference/records/run_index.h"
#include "tests/reference/records/record_scene.h"

namespace verbatim::tests {
namespace {

using namespace records;

// An executor that is wrong at position 25 of any sequence, in one operation.
Prepare wrong_at_25() {
    return [](reference::NumericExecutor& executor) {
        executor.set_observer([](const reference::Observation& seen) {
            const int64_t row = 25 - seen.first_position;
            const bool here = seen.point.op == reference::WalkOp::kLayer && seen.point.layer == 0;
            if (here && row >= 0 && row < seen.rows.num_rows) const_cast<float*>(seen.rows.row(row))[1] += 1;
        });
    };
}

TEST(RecordShrink, OneConversationOfJustEnoughTokensIsLeft) {
    const RecordScene scene;
    const Record record = scene.record(DigestLevel::kLayers);
    int num_tries = 0;
    const auto differs = [&](const Record& calls) -> Result<bool> {
        RunAgainOptions again = scene.again(scene.cpu(wrong_at_25()), DigestLevel::kLayers);
        again.by_causes = true;
        ASSIGN_OR_RETURN(const Record wrong, run_again(calls, again));
        again.make_executor = scene.uncached();
        ASSIGN_OR_RETURN(const Record right, run_again(calls, again));
        return compare(RunIndex(right), RunIndex(wrong), scene.points).first.has_value();
    };
    const auto shrunk =
        shrink(record, {.differs = differs, .tried = [&](const auto&, const ShrunkSize&, bool) { ++num_tries; }});
    ASSERT_TRUE(shrunk);
    const ShrunkSize size = size_of(*shrunk);
    EXPECT_EQ(size.conversations, 1);
    EXPECT_EQ(size.calls, 1);
    EXPECT_LE(size.tokens, 26);  // and what is answered reaches position 25
    EXPECT_GE(size.tokens, 10);
    EXPECT_GT(num_tries, 5);
    EXPECT_LT(num_tries, 60);
    EXPECT_TRUE(*differs(*shrunk));
    EXPECT_GT(size_of(record).calls, 5);
}

}  // namespace
}  // namespace verbatim::tests
