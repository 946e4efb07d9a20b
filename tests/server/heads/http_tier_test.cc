// A server with a tier: what memory let go of, and what another process computed, is read instead of computed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
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
    const auto tier = open();
    ASSERT_GE(tier->counts().num_files, 1);
    HttpScene scene(with(*tier));
    const HttpAnswer answer = scene.chat(second);
    EXPECT_GE(cached_of(answer), num_prompt - 1);
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
    // Under another salt: else its files would begin in those of c, and go with them.
    json other = hello({{"conversation_id", "d"}, {"cache_salt", "x"}});
    other["messages"] = json::array({user("something else")});
    EXPECT_EQ(scene.chat(other).status, 200);
    scene.wait_until_idle();
    const auto kept = [&](int64_t num_files) {
        for (int i = 0; i < 1000 && tier->counts().num_files != num_files; ++i)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return tier->counts().num_files;
    };
    ASSERT_EQ(kept(4), 4) << "of each the head of the turn and of the prompt";
    std::string gone = get("/v1/conversations/c");
    EXPECT_EQ(scene.ask("DELETE" + gone.substr(3)).status, 200);
    EXPECT_EQ(kept(2), 2);
    EXPECT_EQ(cached_of(scene.chat(hello())), 0);
}

// A server in addition to the one that writes.
TEST_F(HttpTier, ASecondServerReadsTheFolderAndLeavesItAlone) {
    const auto writer = open();
    HttpScene first(with(*writer));
    const json second = next_turn(first.chat(hello()));
    first.wait_until_idle();
    for (int i = 0; i < 1000 && writer->counts().written < 2; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
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

// --- heads over HTTP

class HttpHeads : public HttpTier {
protected:
    static HttpSceneConfig transfers(const std::string& model = "model") {
        HttpSceneConfig config;
        config.heads = server::HeadIdentity{model, kCells};
        return config;
    }
    static std::string put(const std::string& path, const std::string& body) {
        std::string request = post(path, body);
        return request.replace(0, 4, "PUT");
    }
    // The first turn of conversation c.
    static void talk(HttpScene& scene) {
        EXPECT_EQ(scene.chat(hello({{"conversation_id", "c"}})).status, 200);
        scene.wait_until_idle();
    }
    // Whatever bytes are in it.
    static std::string whole_answer(HttpScene& scene, const std::string& path) {
        HttpClient client(scene.port());
        client.send(get(path));
        return client.read_until("there is no such mark in any answer");
    }
    static std::string code_of(const HttpAnswer& answer) { return answer.json()["error"].value("code", ""); }
};

TEST_F(HttpHeads, AConversationGoesOnInAnotherServer) {
    HttpScene first(transfers());
    talk(first);
    const HttpAnswer head = first.ask(get("/v1/conversations/c/head"));
    ASSERT_EQ(head.status, 200) << head.body;
    EXPECT_THAT(head.head, HasSubstr("application/octet-stream"));
    const auto file = reference::HeadFile::parse(head.body, "the answer");
    ASSERT_TRUE(file) << file.error().message;

    HttpScene other(transfers());
    const HttpAnswer taken = other.ask(put("/v1/conversations/c/head", head.body));
    ASSERT_EQ(taken.status, 200) << taken.body;
    EXPECT_EQ(taken.json()["num_tokens"], file->info().length());
    EXPECT_EQ(taken.json()["numerics"], "hash/1");
    std::vector<TokenId> prompt = file->info().tokens;
    prompt.push_back(7);
    const json body = {{"prompt", prompt}, {"conversation_id", "c"}, {"max_tokens", 6}, {"seed", 5}};
    const HttpAnswer here = other.complete(body);
    EXPECT_EQ(cached_of(here), file->info().length());
    other.wait_until_idle();
    json cold = body;
    cold["use_cache"] = false;
    cold.erase("conversation_id");
    EXPECT_EQ(here.json()["choices"][0]["text"], other.complete(cold).json()["choices"][0]["text"]);
}

TEST_F(HttpHeads, AreOffUnlessAskedFor) {
    HttpScene scene;
    talk(scene);
    for (const std::string& request : {get("/v1/conversations/c/head"), put("/v1/conversations/c/head", "x")}) {
        const HttpAnswer refused = scene.ask(request);
        EXPECT_EQ(refused.status, 403);
        EXPECT_EQ(code_of(refused), "head_transfer");
    }
    // Before the body.
    HttpClient client(scene.port());
    const std::string large = put("/v1/conversations/c/head", std::string(100'000, 'x'));
    client.send(large.substr(0, large.size() - 90'000));
    EXPECT_EQ(client.read_answer().status, 403);
}

TEST_F(HttpHeads, WrongHeadsAreRefusedByName) {
    HttpScene scene(transfers());
    talk(scene);
    const std::string head = scene.ask(get("/v1/conversations/c/head")).body;
    std::string damaged = head;
    damaged.back() ^= 1;
    const std::string path = "/v1/conversations/d/head";
    EXPECT_EQ(code_of(scene.ask(put(path, damaged))), "invalid_head");
    EXPECT_EQ(code_of(scene.ask(put(path, "{}"))), "invalid_head");
    EXPECT_EQ(code_of(scene.ask(put(path, ""))), "invalid_head");
    EXPECT_EQ(scene.ask(get("/v1/conversations/unknown/head")).status, 404);
    EXPECT_EQ(scene.ask(post(path, head)).status, 405);
    scene.wait_until_idle();
    EXPECT_EQ(scene.engine().stats().imported_heads, 0);

    HttpScene other(transfers("another model"));
    const HttpAnswer refused = other.ask(put(path, head));
    EXPECT_EQ(refused.status, 409);
    EXPECT_EQ(code_of(refused), "head_refused");
    EXPECT_THAT(refused.body, HasSubstr("other weights or another configuration"));

    HttpSceneConfig faster = transfers();
    faster.executor.numerics_id = "hash/2";
    HttpScene third(std::move(faster));
    const HttpAnswer arithmetic = third.ask(put(path, head));
    EXPECT_EQ(arithmetic.status, 409);
    EXPECT_THAT(arithmetic.body, HasSubstr("made by hash/1: this engine computes by hash/2"));
}

// Bodies may have 10 000 bytes together in memory; a head has more, and is in a file meanwhile.
TEST_F(HttpHeads, AHeadThatIsLongerThanBodiesInMemoryMayBeComesIn) {
    HttpScene first(transfers());
    std::string text;
    for (int i = 0; i < 600; ++i) text += "word " + std::to_string(i) + " ";
    json body = hello({{"conversation_id", "c"}});
    body["messages"] = json::array({user(text)});
    const HttpAnswer said = first.chat(body);
    ASSERT_EQ(said.status, 200) << said.body;
    ASSERT_GT(said.json()["usage"]["prompt_tokens"].get<int64_t>(), 1200);
    first.wait_until_idle();
    const std::string head = whole_answer(first, "/v1/conversations/c/head");
    const size_t begin = head.find("\r\n\r\n") + 4;
    const std::string file = head.substr(begin);
    ASSERT_GT(file.size(), 30000u);
    EXPECT_THAT(head.substr(0, begin), HasSubstr("Content-Length: " + std::to_string(file.size())));

    HttpSceneConfig narrow = transfers();
    narrow.http.free_body_bytes = 1000;
    narrow.http.max_bytes_under_way = 10'000;
    narrow.heads->spool = folder_.path();
    HttpScene other(std::move(narrow));
    const HttpAnswer taken = other.ask(put("/v1/conversations/c/head", file));
    EXPECT_EQ(taken.status, 200) << taken.body;
    EXPECT_TRUE(whole_answer(other, "/v1/conversations/c/head").ends_with(file));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(HttpHeads, NoBodyLeavesAFileBehind) {
    HttpSceneConfig config = transfers();
    config.heads->spool = folder_.path();
    config.heads->max_bytes = 5000;
    HttpScene scene(std::move(config));
    const std::string path = "/v1/conversations/d/head";
    EXPECT_EQ(code_of(scene.ask(put(path, std::string(4000, 'x')))), "invalid_head");
    EXPECT_EQ(code_of(scene.ask(put(path, std::string(200, '\xff')))), "invalid_head");
    EXPECT_EQ(scene.ask(put(path, std::string(6000, 'x'))).status, 413);
    {
        HttpClient client(scene.port());
        const std::string whole = put(path, std::string(4000, 'x'));
        client.send(whole.substr(0, whole.size() - 2000));
        client.hang_up();
    }
    {
        // Of chunks, whose length is known when they are over.
        HttpClient client(scene.port());
        client.send("PUT " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
        for (int i = 0; i < 8; ++i) client.send("400\r\n" + std::string(1024, 'x') + "\r\n");
        EXPECT_EQ(client.read_answer().status, 413);
    }
    EXPECT_EQ(scene.chat(hello()).status, 200);
    for (int i = 0; i < 1000 && !std::filesystem::is_empty(folder_.path()); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// 96 KB of heads may be under way: one of 60 KB and no second one, until the first is answered.
TEST_F(HttpHeads, BodiesInFilesHaveABound) {
    HttpSceneConfig config = transfers();
    config.heads->spool = folder_.path();
    config.http.max_file_bytes_under_way = 96 << 10;
    HttpScene scene(std::move(config));
    const std::string whole = put("/v1/conversations/d/head", std::string(60 << 10, 'x'));
    HttpClient first(scene.port());
    first.send(whole.substr(0, whole.size() - 10));
    const auto held = [&] {
        const std::string page = scene.ask(get("/metrics")).body;
        const std::string name = "\nverbatim:body_file_bytes{model_name=\"tiny-python\"} ";
        return page.find(name) != std::string::npos ? std::stod(page.substr(page.find(name) + name.size())) : -1;
    };
    for (int i = 0; i < 1000 && held() < 50e3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ASSERT_GT(held(), 50e3);
    EXPECT_EQ(code_of(scene.ask(whole)), "overloaded");
    first.send(whole.substr(whole.size() - 10));
    EXPECT_EQ(first.read_answer().status, 400);
    EXPECT_EQ(code_of(scene.ask(whole)), "invalid_head");
    EXPECT_EQ(held(), 0);
}

TEST_F(HttpHeads, WithoutAFolderForItAHeadIsRefused) {
    HttpSceneConfig config = transfers();
    config.heads->spool = folder_.path() / "none";
    HttpScene scene(std::move(config));
    const HttpAnswer answer = scene.ask(put("/v1/conversations/d/head", std::string(4000, 'x')));
    EXPECT_EQ(answer.status, 507);
    EXPECT_EQ(code_of(answer), "no_space");
    EXPECT_EQ(scene.chat(hello()).status, 200);
}

}  // namespace
}  // namespace verbatim::tests
