// The tokens of a recorded request.
#include "reference/records/asked_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace verbatim::tests {
namespace {

using namespace records;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Request 0 of three prompt tokens, and what it is answered.
class AskedTokens : public testing::Test {
protected:
    AskedTokens() {
        record.own_store = std::make_unique<TokenStore>(1000);
        record.store = record.own_store.get();
        Call call{.kind = CallKind::kSubmit, .id = RequestId{0}};
        call.request.conversation.conversation_id = "a";
        call.request.messages.push_back({record.store->store(std::vector<TokenId>{7, 8, 9})});
        record.entries.emplace_back(call);
    }
    void reports(const std::vector<TokenId>& tokens, int64_t id = 0) {
        Reported reported;
        for (const TokenId token : tokens) reported.tokens.push_back({RequestId{id}, token});
        record.entries.emplace_back(reported);
    }
    [[nodiscard]] std::vector<TokenId> tokens(int64_t id = 0) const { return asked_tokens(record, RequestId{id}); }

    Record record;
};

TEST_F(AskedTokens, ARequestHasItsPromptAndEveryToken) {
    EXPECT_THAT(tokens(), ElementsAre(7, 8, 9));
    reports({0, 999});
    reports({5});
    record.entries.emplace_back(Reported{{}, {{.kind = EventKind::kCommit, .request = RequestId{0}}}});
    reports({6}, 1);
    EXPECT_THAT(tokens(), ElementsAre(7, 8, 9, 0, 999, 5));
    EXPECT_THAT(tokens(1), IsEmpty());
}

TEST_F(AskedTokens, NothingIsReadBehindATokenThatIsNone) {
    for (const TokenId none : {-1, 1000}) {
        reports({5});
        const std::vector<TokenId> before = tokens();
        EXPECT_EQ(before.back(), 5);
        reports({none});
        reports({6});
        EXPECT_EQ(tokens(), before) << none;
        record.entries.resize(record.entries.size() - 2);
    }
}

}  // namespace
}  // namespace verbatim::tests
