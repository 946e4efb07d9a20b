// The smallest calls whose run still differs.
#include "reference/records/shrink.h"

#include <gmock/gmock.h>
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
    EXPECT_EQ(size.batch, 1);  // no other sequence is needed
    EXPECT_TRUE(*differs(*shrunk));
    EXPECT_GT(size_of(record).calls, 5);
}

// Wrong wherever the sequence is not alone in its step.
class InCompany {
public:
    Prepare prepare() {
        return [this](reference::NumericExecutor& executor) {
            executor.set_observer([this, &executor](const reference::Observation& seen) {
                if (seen.point.op == reference::WalkOp::kEmbed) {
                    int num_live = 0;
                    for (int32_t slot = 0; slot < 8; ++slot) num_live += executor.tables().is_live(SequenceSlot{slot});
                    in_company_ = num_live > 1;
                }
                const bool here = seen.point.op == reference::WalkOp::kLayer && seen.point.layer == 0;
                if (here && in_company_) const_cast<float*>(seen.rows.row(0))[1] += 1;
            });
        };
    }

private:
    bool in_company_ = false;
};

// The tries: sessions, rows, messages, tokens, batch company, the cache; every try is reported, and is one run.
TEST(RecordShrink, TriesAreReportedInTheDocumentedOrder) {
    const RecordScene scene;
    Record record = scene.record(DigestLevel::kLayers);
    for (Entry& entry : record.entries) {  // messages of one token each, so that there are some to take away
        Call* call = std::get_if<Call>(&entry);
        if (call == nullptr || call->kind != CallKind::kSubmit) continue;
        const TokenSeq tokens = call->request.messages[0].tokens;
        call->request.messages[0].tokens = tokens.slice(0, tokens.size() - 1);
        call->request.messages.push_back({tokens.slice(tokens.size() - 1, tokens.size())});
    }
    std::vector<std::string> phases;
    int num_runs = 0;
    int num_told = 0;
    InCompany in_company;
    const auto differs = [&](const Record& calls) -> Result<bool> {
        ++num_runs;
        RunAgainOptions again = scene.again(scene.cpu(in_company.prepare()), DigestLevel::kLayers);
        again.by_causes = true;
        ASSIGN_OR_RETURN(const Record wrong, run_again(calls, again));
        again.make_executor = scene.cpu();
        ASSIGN_OR_RETURN(const Record right, run_again(calls, again));
        return compare(RunIndex(right), RunIndex(wrong), scene.points).first.has_value();
    };
    const auto tried = [&](const std::string& what, const ShrunkSize&, bool) {
        ++num_told;
        if (phases.empty() || phases.back() != what) phases.push_back(what);
    };
    const auto shrunk = shrink(record, {.differs = differs, .tried = tried});
    ASSERT_TRUE(shrunk);
    EXPECT_EQ(num_told, num_runs);
    EXPECT_THAT(phases,
                testing::ElementsAre("without sessions", "without rows", "without messages", "with fewer tokens",
                                     "with shorter answers", "with less company in the batch", "without the cache"));
    const ShrunkSize size = size_of(*shrunk);
    // A fork, its source, and another client: without any of them no batch has a second sequence.
    EXPECT_EQ(size.conversations, 3);
    EXPECT_EQ(size.calls, 4);
    EXPECT_EQ(size.messages, 3);
    EXPECT_LT(size.tokens, size_of(record).tokens / 2);
    EXPECT_EQ(size.batch, 2);
    EXPECT_TRUE(*differs(*shrunk));
}

}  // namespace
}  // namespace verbatim::tests
