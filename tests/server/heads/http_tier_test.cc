// A server with a tier: what memory let go of, and what another process computed, is read instead of computed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "server/heads/head_tier.h"
#include "tests/server/heads/failing_folder.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::HeadTier;
using testing::HasSubstr;

class HttpTier : public testing::Test {
protected:
    std::unique_ptr<HeadTier> open(server::HeadFolder* calls = nullptr) {
        auto opened = HeadTier::open({.folder = folder_.path() / "tier",
                                      .min_tokens = 2,
                                      .model = "model",
                                      .numerics = "hash/1",
                                      .tensors = kCells,
                                      .vocab_size = 2048,
                                      .calls = calls});
        EXPECT_TRUE(opened) << opened.error().message;
        return *std::move(opened);
    }
    static HttpSceneConfig with(HeadTier& tier) {
        HttpSceneConfig config;
        config.host.tier = &tier;
        config.host.restores = server::RestorePolicy::kAlways;  // whatever time reading takes
        return config;
    }
    static int64_t cached_of(const HttpAnswer& answer) {
        EXPECT_EQ(answer.status, 200) << answer.body;
        return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
    }
    static json user(const std::string& text) { return {{"role", "user"}, {"content", text}}; }
    static json next_turn(const HttpAnswer& answer) {
        json body = hello();
        body["messages"].push_back(
            {{"role", "assistant"}, {"content", answer.json()["choices"][0]["message"]["content"]}});
        body["messages"].push_back(user("and more"));
        return body;
    }

    // Or until no machine, however slow, would take so long.
    static void wait_until(const std::function<bool()>& holds) {
        constexpr int kMaxLooks = 60'000;
        for (int i = 0; i < kMaxLooks && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    [[nodiscard]] int64_t count_heads() const {
        const std::filesystem::directory_iterator files(folder_.path() / "tier");
        return std::ranges::count_if(files, [](const auto& file) { return file.path().extension() == ".head"; });
    }

    ScratchFolder folder_;
};

TEST_F(HttpTier, ATurnGoesOnInAnotherProcessFromTheHeadThatTheFirstOneWrote) {
    json second;
    int64_t num_prompt = 0;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        const HttpAnswer first = scene.chat(hello());
        num_prompt = first.json()["usage"]["prompt_tokens"];
        second = next_turn(first);
    }
    FailingFolder folder;
    const auto tier = open(&folder);
    ASSERT_GE(tier->counts().num_files, 1);
    HttpScene scene(with(*tier));
    const HttpAnswer answer = scene.chat(second);
    EXPECT_GE(cached_of(answer), num_prompt - 1);
    EXPECT_EQ(folder.num_reads, 1);
    EXPECT_EQ(tier->counts().restored, 1);
    scene.wait_until_idle();
    EXPECT_EQ(scene.engine().stats().imported_heads, 1);
    json cold = second;
    cold["use_cache"] = false;
    const HttpAnswer computed = scene.chat(cold);
    EXPECT_EQ(cached_of(computed), 0);
    EXPECT_EQ(answer.json()["choices"], computed.json()["choices"]);
    EXPECT_THAT(scene.ask(get("/metrics")).body,
                HasSubstr("verbatim:tier_restores_total{model_name=\"tiny-python\"} 1"));
}

TEST_F(HttpTier, AHeadThatWasEvictedComesBack) {
    const auto tier = open();
    HttpSceneConfig config = with(*tier);
    config.executor.pools = {.num_blocks = 512, .num_state_rows = 6};
    HttpScene scene(std::move(config));
    const json second = next_turn(scene.chat(hello()));
    for (int i = 0; i < 12; ++i) {
        json other = hello();
        other["messages"] = json::array({user("something else, number " + std::to_string(i))});
        EXPECT_EQ(scene.chat(other).status, 200);
    }
    scene.wait_until_idle();
    ASSERT_GT(scene.engine().stats().evictions, 0);
    const int64_t imported = scene.engine().stats().imported_heads;
    EXPECT_GT(cached_of(scene.chat(second)), 12);
    scene.wait_until_idle();
    EXPECT_GT(scene.engine().stats().imported_heads, imported);
}

TEST_F(HttpTier, ADamagedHeadIsComputedAgain) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "tier")) {
        if (entry.path().extension() != ".head") continue;
        std::fstream bytes(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
        bytes.seekp(-1, std::ios::end);
        bytes.put('\x7f');
    }
    const auto tier = open();
    HttpScene scene(with(*tier));
    EXPECT_EQ(cached_of(scene.chat(second)), 0);
    EXPECT_GE(tier->counts().damaged, 1);
    EXPECT_EQ(tier->counts().restored, 0);
}

TEST_F(HttpTier, TheChoicesOfARequestImportTheirHeadOnce) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    const auto tier = open();
    HttpScene scene(with(*tier));
    second["n"] = 4;
    second["temperature"] = 1;
    EXPECT_EQ(scene.chat(second).status, 200);
    scene.wait_until_idle();
    EXPECT_EQ(scene.engine().stats().imported_heads, 1);
    EXPECT_EQ(tier->counts().restored, 1);
}

TEST_F(HttpTier, NeverMeansNever) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    const auto tier = open();
    HttpSceneConfig config = with(*tier);
    config.host.restores = server::RestorePolicy::kNever;
    HttpScene scene(std::move(config));
    EXPECT_EQ(cached_of(scene.chat(second)), 0);
}

// Whatever call fails, every answer is the one of a server without a tier.
TEST_F(HttpTier, AnswersAreTheSameWhicheverCallFails) {
    const auto turns = [&](HttpSceneConfig config) {
        config.executor.pools = {.num_blocks = 512, .num_state_rows = 6};
        HttpScene scene(std::move(config));
        std::vector<std::string> texts;
        json second;
        for (int round = 0; round < 2; ++round) {
            for (int i = 0; i < 6; ++i) {
                json body = hello();
                body["messages"] = json::array({user("question " + std::to_string(i))});
                const HttpAnswer answer = scene.chat(body);
                EXPECT_EQ(answer.status, 200) << answer.body;
                texts.push_back(answer.json()["choices"][0]["message"]["content"]);
                scene.wait_until_idle();
            }
        }
        return texts;
    };
    const std::vector<std::string> wanted = turns({});
    int num_calls = 1;
    int num_failed = 0;
    for (int k = 0; k < num_calls; ++k) {
        std::filesystem::remove_all(folder_.path() / "tier");
        FailingFolder folder;
        folder.failing_call = k;
        const auto tier = open(&folder);
        ASSERT_EQ(turns(with(*tier)), wanted) << "call " << k;
        tier->wait_until_written();
        num_calls = folder.num_calls;
        num_failed += tier->counts().not_written + tier->counts().damaged > 0 ? 1 : 0;
    }
    EXPECT_GT(num_calls, 12);
    EXPECT_GT(num_failed, num_calls / 2);
}

TEST_F(HttpTier, OtherRequestsGoOnWhileAHeadIsRead) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    FailingFolder folder;
    folder.hold_reads(true);
    const auto tier = open(&folder);
    HttpScene scene(with(*tier));
    HttpClient waiting(scene.port());
    waiting.send(post("/v1/chat/completions", second.dump()));
    folder.wait_for_read();
    json other = hello();
    other["messages"] = json::array({user("something else")});
    EXPECT_EQ(scene.chat(other).status, 200);
    wait_until([&] { return scene.host().num_requests() == 1; });  // the answered one is gone a moment later
    EXPECT_EQ(scene.host().num_requests(), 1);
    folder.hold_reads(false);
    EXPECT_GT(cached_of(waiting.read_answer()), 0);
}

TEST_F(HttpTier, ARequestThatIsGivenUpWhileItsHeadIsReadEndsOnce) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    const auto tier = open();
    HttpScene scene(with(*tier));
    for (int i = 0; i < 20; ++i) {
        HttpClient client(scene.port());
        client.send(post("/v1/chat/completions", second.dump()));
        if (i % 2 == 0) client.hang_up();
    }
    scene.wait_until_idle();
    EXPECT_EQ(scene.host().num_requests(), 0);
}

TEST_F(HttpTier, ADeletedConversationLeavesNoFile) {
    const auto tier = open();
    HttpScene scene(with(*tier));
    EXPECT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
    scene.wait_until_idle();
    json other = hello({{"conversation_id", "d"}});  // begins with the same tokens, as every text does
    other["messages"] = json::array({user("something else")});
    EXPECT_EQ(scene.chat(other).status, 200);
    scene.wait_until_idle();
    const auto num_kept = [&](int64_t num_files) {
        wait_until([&] { return tier->counts().num_files == num_files; });
        tier->wait_until_written();
        return count_heads();
    };
    ASSERT_EQ(num_kept(4), 4) << "of each the head of the turn and of the prompt";
    std::string gone = get("/v1/conversations/c");
    EXPECT_EQ(scene.ask("DELETE" + gone.substr(3)).status, 200);
    EXPECT_EQ(num_kept(2), 2);
    EXPECT_EQ(tier->counts().damaged, 0);
}

TEST_F(HttpTier, DeletingTheLastResponseLeavesNoFile) {
    const auto tier = open();
    HttpScene scene(with(*tier));
    const json body = {{"input", "hello"}, {"max_output_tokens", 4}};
    const HttpAnswer answer = scene.ask(post("/v1/responses", body.dump()));
    ASSERT_EQ(answer.status, 200) << answer.body;
    scene.wait_until_idle();
    wait_until([&] { return tier->counts().num_files == 2; });
    tier->wait_until_written();
    ASSERT_EQ(count_heads(), 2);
    const std::string id = answer.json()["id"];
    EXPECT_EQ(scene.ask("DELETE" + get("/v1/responses/" + id).substr(3)).status, 200);
    wait_until([&] { return count_heads() == 0; });
    EXPECT_EQ(count_heads(), 0);
}

// Of the branches that an edit, a rewind and an abandoned fork have left, too; what a fork goes on from stays.
TEST_F(HttpTier, DeletesTheBranchesOfAConversationAndSparesItsForks) {
    json next = hello({{"conversation_id", "d"}});
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        const auto say = [&](const std::string& id, const std::string& text) {
            json body = hello({{"conversation_id", id}});
            body["messages"].push_back(user(text));
            const HttpAnswer answer = scene.chat(body);
            EXPECT_EQ(answer.status, 200) << answer.body;
            scene.wait_until_idle();
            return answer.json()["choices"][0]["message"]["content"];
        };
        for (const char* text : {"a first text", "an edited text", "the last text"}) {
            const json said = say("c", text);
            next["messages"] = hello()["messages"];
            next["messages"].push_back(user(text));
            next["messages"].push_back({{"role", "assistant"}, {"content", said}});
            next["messages"].push_back(user("and more"));
        }
        say("e", "of another conversation");
        EXPECT_EQ(scene.ask(post("/v1/conversations/c/fork", R"({"to": "d"})")).status, 200);
    }
    EXPECT_EQ(count_heads(), 8);
    const auto tier = open();
    HttpScene scene(with(*tier));
    EXPECT_EQ(scene.ask("DELETE" + get("/v1/conversations/c").substr(3)).status, 404) << "no ledger has it";
    wait_until([&] { return count_heads() == 4; });
    tier->wait_until_written();
    EXPECT_EQ(count_heads(), 4) << "two of d, two of e";
    EXPECT_GT(cached_of(scene.chat(next)), 0) << "d goes on from the last text";
    EXPECT_EQ(tier->counts().damaged, 0);
    scene.wait_until_idle();
    for (const std::string id : {"d", "e"})
        EXPECT_EQ(scene.ask("DELETE" + get("/v1/conversations/" + id).substr(3)).status, id == "d" ? 200 : 404);
    wait_until([&] { return count_heads() == 0; });
    EXPECT_EQ(count_heads(), 0);
}

// A server in addition to the one that writes.
TEST_F(HttpTier, ASecondServerReadsTheFolderAndLeavesItAlone) {
    const auto writer = open();
    HttpScene first(with(*writer));
    const json second = next_turn(first.chat(hello()));
    first.wait_until_idle();
    wait_until([&] { return writer->counts().written == 2; });
    const auto count_files = [&] {
        const std::filesystem::directory_iterator files(folder_.path() / "tier");
        return std::distance(begin(files), end(files));
    };
    const auto num_files = count_files();
    auto reader = HeadTier::open({.folder = folder_.path() / "tier",
                                  .min_tokens = 2,
                                  .read_only = true,
                                  .model = "model",
                                  .numerics = "hash/1",
                                  .tensors = kCells,
                                  .vocab_size = 2048});
    ASSERT_TRUE(reader) << reader.error().message;
    HttpScene scene(with(**reader));
    const HttpAnswer answer = scene.chat(second);
    EXPECT_GT(cached_of(answer), 0);
    scene.wait_until_idle();
    EXPECT_EQ((*reader)->counts().restored, 1);
    EXPECT_EQ((*reader)->counts().written, 0);
    EXPECT_EQ(count_files(), num_files);
    EXPECT_EQ(first.chat(second).json()["choices"], answer.json()["choices"]);
}

// The disk does not answer: the request is computed, when that would have taken less time.
TEST_F(HttpTier, AHeadThatDoesNotComeLosesToComputing) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    FailingFolder folder;
    folder.hold_reads(true);
    const auto tier = open(&folder);
    HttpSceneConfig config = with(*tier);
    config.host.restores = server::RestorePolicy::kAuto;
    HttpScene scene(std::move(config));
    json other = hello();
    other["messages"] = json::array({user("something else, so that a step shows what computing takes")});
    EXPECT_EQ(scene.chat(other).status, 200);
    scene.wait_until_idle();
    EXPECT_EQ(scene.chat(second).status, 200);
    scene.wait_until_idle();
    EXPECT_EQ(tier->counts().restored, 0);
    EXPECT_EQ(tier->counts().not_worth, 1) << "it waits once, not again when it attaches";
    EXPECT_GT(scene.engine().stats().not_reused[static_cast<size_t>(NotReused::kSlowToRestore)], 0);
    folder.hold_reads(false);
}

// Every call of the folder takes its time, and many requests come at once: answers are those of a server without one.
TEST_F(HttpTier, ASlowDiskUnderLoadChangesNoAnswer) {
    const auto answers = [&](HttpSceneConfig config) {
        config.executor.pools = {.num_blocks = 512, .num_state_rows = 6};
        HttpScene scene(std::move(config));
        std::vector<std::string> texts(24);
        for (int round = 0; round < 2; ++round) {
            std::vector<std::unique_ptr<HttpClient>> clients;
            for (int i = 0; i < 12; ++i) {
                json body = hello();
                body["messages"] = json::array({user("question " + std::to_string(i))});
                clients.push_back(std::make_unique<HttpClient>(scene.port()));
                clients.back()->send(post("/v1/chat/completions", body.dump()));
            }
            for (int i = 0; i < 12; ++i) {
                const HttpAnswer answer = clients[i]->read_answer();
                EXPECT_EQ(answer.status, 200) << answer.body;
                texts[12 * round + i] = answer.json()["choices"][0]["message"]["content"];
            }
            scene.wait_until_idle();
        }
        return texts;
    };
    const std::vector<std::string> wanted = answers({});
    FailingFolder folder;
    folder.latency = std::chrono::milliseconds(2);
    const auto tier = open(&folder);
    EXPECT_EQ(answers(with(*tier)), wanted);
    tier->wait_until_written();
    EXPECT_GT(tier->counts().written, 0);
    EXPECT_GT(tier->counts().restored, 0);
    EXPECT_EQ(tier->counts().damaged, 0);
}

// The writer is slower than the answer, and no step follows that the engine could report.
TEST_F(HttpTier, MetricsFollowTheWriterWhileNothingRuns) {
    FailingFolder folder;
    folder.latency = std::chrono::milliseconds(200);
    const auto tier = open(&folder);
    HttpScene scene(with(*tier));
    EXPECT_EQ(scene.chat(hello()).status, 200);
    wait_until([&] { return tier->counts().written > 0; });
    ASSERT_GT(tier->counts().written, 0);
    const auto is_shown = [&] {
        const std::string shown =
            fmt::format("verbatim:tier_writes_total{{model_name=\"tiny-python\"}} {}\n", tier->counts().written);
        return scene.ask(get("/metrics")).body.find(shown) != std::string::npos;
    };
    wait_until(is_shown);
    EXPECT_TRUE(is_shown());
}

// The process may not use the folder: where it runs as root, which may use every folder, it is another user meanwhile.
class WithoutPermission {
public:
    explicit WithoutPermission(std::filesystem::path folder) : folder_(std::move(folder)) {
        std::filesystem::permissions(folder_, std::filesystem::perms::none);
        if (user_ == 0) EXPECT_EQ(::seteuid(65534), 0);
    }
    ~WithoutPermission() {
        if (user_ == 0) EXPECT_EQ(::seteuid(0), 0);
        std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
    }
    WithoutPermission(const WithoutPermission&) = delete;
    WithoutPermission& operator=(const WithoutPermission&) = delete;

private:
    std::filesystem::path folder_;
    uid_t user_ = ::geteuid();
};

TEST_F(HttpTier, WithoutPermissionHeadsAreComputedAndNoneIsDamaged) {
    json second;
    {
        const auto tier = open();
        HttpScene scene(with(*tier));
        second = next_turn(scene.chat(hello()));
    }
    const auto tier = open();
    const int64_t num_files = count_heads();
    ASSERT_GT(num_files, 0);
    std::string text;
    {
        auto scene = std::make_unique<HttpScene>(with(*tier));
        const WithoutPermission denied(folder_.path() / "tier");
        const HttpAnswer computed = scene->chat(second);
        EXPECT_EQ(cached_of(computed), 0);
        text = computed.json()["choices"].dump();
        scene.reset();  // it has tried to write every head
        EXPECT_GT(tier->counts().not_written, 0);
        EXPECT_NE(tier->counts().problem, "");
    }
    EXPECT_EQ(tier->counts().damaged, 0);
    EXPECT_EQ(count_heads(), num_files);
    HttpScene scene(with(*tier));
    const HttpAnswer restored = scene.chat(second);
    EXPECT_GT(cached_of(restored), 0) << "the files are there again";
    EXPECT_EQ(restored.json()["choices"].dump(), text);
}

}  // namespace
}  // namespace verbatim::tests
