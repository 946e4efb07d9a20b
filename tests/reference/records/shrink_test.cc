// The smallest calls whose run still differs.
#include "reference/records/shrink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "reference/records/comparison.h"
#include "reference/records/rerun.h"
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

// Calls without a run: a predicate says which of them still differ.
class ShrinkScene {
public:
    // A submit of that many tokens in each message.
    ShrinkScene& submits(const std::string& conversation, const std::vector<int64_t>& messages,
                         std::optional<int64_t> max_tokens = 1) {
        Call call{.kind = CallKind::kSubmit, .id = RequestId{std::ssize(record_.entries)}};
        call.request.conversation.conversation_id = conversation;
        for (const int64_t count : messages) call.request.messages.push_back({store_.derive(1, 0, count)});
        call.request.max_tokens = max_tokens;
        record_.entries.emplace_back(call);
        return *this;
    }
    ShrinkScene& batch(int32_t most) {
        record_.run.engine.scheduler.max_num_sequences = most;
        return *this;
    }
    // The tries of that name; each has what `describe` makes of a call.
    template <typename Differs, typename Describe>
    std::vector<std::string> tries(const std::string& name, const Differs& differs, const Describe& describe) {
        std::vector<std::string> found;
        std::string now;
        const auto candidate_differs = [&](const Record& candidate) -> Result<bool> {
            now.clear();
            std::vector<Call> calls = calls_of(candidate);
            for (const Call& call : calls) now += (now.empty() ? "" : " ") + describe(call);
            batch_ = candidate.run.engine.scheduler.max_num_sequences;
            return differs(calls);
        };
        const auto tried = [&](const std::string& what, const ShrunkSize&, bool) {
            if (what == name) found.push_back(now);
        };
        record_.store = &store_;
        auto shrunk = shrink(record_, {.differs = candidate_differs, .tried = tried});
        CHECK(shrunk.has_value());
        result = calls_of(*shrunk);
        return found;
    }
    [[nodiscard]] int32_t tried_batch() const { return batch_; }

    std::vector<Call> result;

private:
    TokenStore store_{100};
    Record record_;
    int32_t batch_ = 0;
};

std::string id_of(const Call& call) { return std::to_string(index(call.id)); }
std::string tokens_of(const Call& call) {
    std::string text;
    for (const Message& message : call.request.messages)
        text += (text.empty() ? "" : "+") + std::to_string(message.tokens.size());
    return text;
}
std::string answer_of(const Call& call) {
    return call.request.max_tokens ? std::to_string(*call.request.max_tokens) : "-";
}

bool has_all(const std::vector<Call>& calls, const std::vector<int64_t>& ids) {
    return std::ranges::all_of(ids,
                               [&](int64_t id) { return std::ranges::count(calls, RequestId{id}, &Call::id) > 0; });
}

TEST(RecordShrink, RowsGoByHalvesThenByMoreParts) {
    ShrinkScene scene;
    for (int i = 0; i < 6; ++i) scene.submits("a", {1});
    const auto differs = [](const std::vector<Call>& calls) { return has_all(calls, {0, 3, 5}); };
    EXPECT_THAT(scene.tries("without rows", differs, id_of),
                testing::ElementsAre("0 1 2", "3 4 5", "0 1 2 3 4", "0 1 2 5", "0 1 3 4 5", "0 1 3 4", "0 1 5", "3 4 5",
                                     "0 1 3 4", "0 1 3 5", "0 1 3", "0 1 5", "0 3 5", "0 3", "0 5", "3 5"));
    EXPECT_THAT(scene.tries("without sessions", differs, id_of), testing::ElementsAre()) << "the last one stays";
}

TEST(RecordShrink, SessionsGoUntilOneIsLeft) {
    ShrinkScene scene;
    for (const char* conversation : {"a", "b", "c", "d", "e"}) scene.submits(conversation, {1});
    const auto differs = [](const std::vector<Call>& calls) { return has_all(calls, {1}); };
    EXPECT_THAT(scene.tries("without sessions", differs, id_of), testing::ElementsAre("2 3 4", "0 1", "1"));
}

TEST(RecordShrink, ARequestKeepsAMessage) {
    ShrinkScene scene;
    scene.submits("a", {1, 2, 3}).submits("a", {4, 5, 6, 7});
    const auto differs = [](const std::vector<Call>& calls) { return has_all(calls, {0, 1}); };
    EXPECT_THAT(scene.tries("without messages", differs, tokens_of),
                testing::ElementsAre("1+2+3 4+5", "1+2+3 4", "1+2 4", "1 4"));
    const auto needs_middle = [](const std::vector<Call>& calls) {
        return has_all(calls, {0, 1}) && calls[1].request.messages.size() > 1 &&
               calls[1].request.messages[1].tokens.size() == 5;
    };
    EXPECT_THAT(scene.tries("without messages", needs_middle, tokens_of),
                testing::ElementsAre("1+2+3 4+5", "1+2+3 4", "1 4+5", "1 4"));
}

TEST(RecordShrink, TokensAreCutByBisection) {
    const auto tries = [](int64_t size, int64_t needed) {
        ShrinkScene scene;
        scene.submits("a", {size});
        return scene.tries(
            "with fewer tokens",
            [&](const std::vector<Call>& calls) {
                return !calls.empty() && calls[0].request.messages[0].tokens.size() >= needed;
            },
            tokens_of);
    };
    EXPECT_THAT(tries(1, 1), testing::ElementsAre());
    EXPECT_THAT(tries(2, 1), testing::ElementsAre("1"));
    EXPECT_THAT(tries(2, 2), testing::ElementsAre("1"));
    EXPECT_THAT(tries(3, 1), testing::ElementsAre("2", "1"));
    EXPECT_THAT(tries(14, 1), testing::ElementsAre("7", "4", "1"));
    EXPECT_THAT(tries(13, 5), testing::ElementsAre("7", "1", "4", "6", "5", "4"));
}

TEST(RecordShrink, AnswersOfEveryRequestAreCut) {
    ShrinkScene scene;
    scene.submits("a", {1}, 4).submits("a", {1}, std::nullopt).submits("a", {1}, 3).submits("a", {1}, 0);
    const auto differs = [](const std::vector<Call>& calls) {
        return has_all(calls, {0, 1, 2, 3}) && calls[2].request.max_tokens >= 2;
    };
    EXPECT_THAT(scene.tries("with shorter answers", differs, answer_of),
                testing::ElementsAre("2 - 3 0", "1 - 3 0", "1 - 2 0", "1 - 1 0"));
}

TEST(RecordShrink, TheBatchGrowsToTheSmallestThatDiffers) {
    for (const auto& [most, needed, num_tries] : {std::tuple{4, 4, 2}, {5, 5, 3}, {4, 2, 2}, {4, 1, 1}, {1, 1, 0}}) {
        ShrinkScene scene;
        scene.submits("a", {1}).batch(most);
        const auto differs = [&, least = needed](const std::vector<Call>& calls) {
            return !calls.empty() && scene.tried_batch() >= least;
        };
        EXPECT_EQ(std::ssize(scene.tries("with less company in the batch", differs, id_of)), num_tries) << most;
    }
}

}  // namespace
}  // namespace verbatim::tests
