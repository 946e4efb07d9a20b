// `verbatim serve` under one budget of bytes, as clients see it: what has come before starves nothing, and what prompts
// share is reused from the third one on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/program/run_program.h"
#include "tests/tools/serve/served.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Ge;
using testing::HasSubstr;

struct Usage {
    int64_t prompt = 0;
    int64_t cached = 0;
};

Usage usage_of(const std::string& answer) {
    const size_t body = answer.find("\r\n\r\n");
    const json parsed = json::parse(answer.substr(body + 4), nullptr, false);
    if (!parsed.contains("usage")) {
        ADD_FAILURE() << answer.substr(0, 400);
        return {};
    }
    return {parsed["usage"]["prompt_tokens"], parsed["usage"]["prompt_tokens_details"]["cached_tokens"]};
}

class OneBudget : public testing::Test {
protected:
    ~OneBudget() override { EXPECT_EQ(served_.end(), kExitOk); }
    Usage complete(const json& prompt) {
        return usage_of(served_.post(
            "/v1/completions", {{"model", "tiny-python"}, {"prompt", prompt}, {"max_tokens", 2}, {"temperature", 0}}));
    }
    Usage chat(const std::string& text) {
        return usage_of(served_.post("/v1/chat/completions", {{"model", "tiny-python"},
                                                              {"messages", {{{"role", "user"}, {"content", text}}}},
                                                              {"max_tokens", 2},
                                                              {"temperature", 0}}));
    }
    // A value of /metrics.
    [[nodiscard]] double metric(const std::string& name, const std::string& label = "") const {
        const std::string page = served_.get("/metrics");
        size_t line = page.find("\n" + name + "{");
        while (line != std::string::npos &&
               page.substr(line + 1, page.find("} ", line) - line).find(label) == std::string::npos)
            line = page.find("\n" + name + "{", line + 1);
        if (line == std::string::npos) return -1;
        return std::stod(page.substr(page.find("} ", line) + 2));
    }
    Served served_{{"--threads", "1", "--cache", "10MiB"}};
};

// Halves: eight states for ever those of the first completions; cached 0 0 0 0 0 0.
TEST_F(OneBudget, APromptIsReusedFromItsSecondOccurrenceOnAfterTwelveOthers) {
    for (int i = 0; i < 12; ++i) complete(std::to_string(i) + " = a_list[" + std::to_string(7 * i) + "]\nprint(x)");
    for (int i = 0; i < 6; ++i) {
        const Usage usage = complete("def add(a, b):\n    return a + b\n\nprint(add(1, 2))");
        EXPECT_EQ(usage.cached, i == 0 ? 0 : usage.prompt - 1) << i;
    }
    EXPECT_EQ(metric("verbatim:cache_budget_bytes"), 10 << 20);
    EXPECT_GT(metric("verbatim:memory_held_bytes"), 1 << 20);
    EXPECT_GE(metric("verbatim:memory_fragmentation_bytes"), 0);
    EXPECT_LE(metric("verbatim:memory_resident_bytes"), metric("verbatim:memory_reserved_bytes"));
    EXPECT_LE(metric("verbatim:memory_reserved_bytes"), 12 << 20) << "the budget, rounded to slabs";
}

// A reuse of 0 % is a silent fault: /metrics shows what could have been reused, and what the cache's bytes hold.
TEST_F(OneBudget, MetricsShowBytesByKindAndWhatAnUnlimitedCacheWouldReuse) {
    const auto bytes = [&](const char* kind) {
        return metric("verbatim:cache_bytes", "kind=\"" + std::string(kind) + "\"");
    };
    const auto sum = [&] { return bytes("kv_of_requests") + bytes("kv_of_heads") + bytes("states") + bytes("free"); };
    EXPECT_EQ(sum(), 10 << 20);
    EXPECT_EQ(bytes("free"), 10 << 20);
    EXPECT_EQ(metric("verbatim:reusable_tokens_total"), 0);
    const std::string prompt = "def add(a, b):\n    return a + b\n\nprint(add(1, 2))";
    const Usage first = complete(prompt);
    EXPECT_GT(bytes("kv_of_heads"), 0);
    EXPECT_GT(bytes("states"), 0);
    EXPECT_EQ(bytes("kv_of_requests"), 0) << "no request runs";
    EXPECT_EQ(sum(), 10 << 20);
    const Usage second = complete(prompt);
    EXPECT_EQ(second.cached, first.prompt - 1);
    EXPECT_EQ(metric("verbatim:reusable_tokens_total"), first.prompt - 1);
}

TEST_F(OneBudget, TokensThatRawPromptsShareAreReusedFromTheSecondOnAndAllOfThemFromTheThird) {
    std::vector<int> shared;
    for (int i = 0; i < 2000; ++i) shared.push_back(300 + i * 37 % 1500);
    std::vector<int64_t> cached;
    for (int i = 0; i < 6; ++i) {
        std::vector<int> prompt = shared;
        for (int j = 0; j < 50; ++j) prompt.push_back(300 + (i * 50 + j) * 11 % 1500);
        cached.push_back(complete(prompt).cached);
    }
    EXPECT_THAT(cached, ElementsAre(0, 7 * 256, Ge(2000), Ge(2000), Ge(2000), Ge(2000)));
}

TEST_F(OneBudget, ADocumentThatChatsShareIsReusedFromTheSecondOnAndAllOfItFromTheThird) {
    std::string document = "Read this program.\n";
    for (int i = 0; i < 120; ++i) {
        const std::string number = std::to_string(i);
        document += "def f" + number + "(x):\n    return x + " + std::to_string(i * i) + "\n";
    }
    std::vector<double> share;
    for (const char* question :
         {"What is f3?", "Is f77 pure?", "Which is largest?", "Name one.", "How many?", "Why?"}) {
        const Usage usage = chat(document + question);
        EXPECT_GT(usage.prompt, 1000);
        share.push_back(static_cast<double>(usage.cached) / static_cast<double>(usage.prompt));
    }
    EXPECT_LT(share[0], 0.1);
    EXPECT_GE(share[1], 0.7);
    share.erase(share.begin(), share.begin() + 2);
    EXPECT_THAT(share, Each(Ge(0.97)));
}

TEST(OneBudgetFlags, TooLittleForARequestIsRefusedWithWhatItNeeds) {
    const auto serve = [](std::vector<std::string> more) {
        more.insert(more.begin(), {"serve", "--port", "0", "--ledger", "none"});
        return run_verbatim(more);
    };
    const Outcome tiny = serve({"--cache-bytes", "100KiB"});
    EXPECT_EQ(tiny.exit_code, kExitBadInput);
    EXPECT_THAT(tiny.err, AllOf(HasSubstr("--cache-bytes"), HasSubstr("one state row")));
    const Outcome no_row = serve({"--state-bytes", "1KiB"});
    EXPECT_EQ(no_row.exit_code, kExitBadInput);
    EXPECT_THAT(no_row.err, AllOf(HasSubstr("--state-bytes"), HasSubstr("state pool: 1024 bytes")));
    const Outcome no_block = serve({"--kv-bytes", "10"});
    EXPECT_EQ(no_block.exit_code, kExitBadInput);
    EXPECT_THAT(no_block.err, HasSubstr("KV pool: 10 bytes"));
    const Outcome none = serve({"--cache-bytes", "lots"});
    EXPECT_EQ(none.exit_code, kExitBadUsage);
    EXPECT_THAT(none.err, HasSubstr("--cache-bytes"));
    const Outcome too_much = serve({"--cache-bytes", "1000TiB"});
    EXPECT_EQ(too_much.exit_code, kExitMachine);
    EXPECT_THAT(too_much.err, HasSubstr("ask for a smaller cache"));
}

}  // namespace
}  // namespace verbatim::tools
