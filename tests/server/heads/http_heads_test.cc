// Heads over HTTP: what a server gives out and takes in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "files/mapped_file.h"
#include "reference/loader/head_file.h"
#include "tests/server/heads/failing_folder.h"
#include "tests/server/http/http_scene.h"
#include "tests/support/scratch_folder.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class HttpHeads : public testing::Test {
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
    // Or until no machine, however slow, would take so long.
    static void wait_until(const std::function<bool()>& holds) {
        constexpr int kMaxLooks = 60'000;
        for (int i = 0; i < kMaxLooks && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    static std::string code_of(const HttpAnswer& answer) { return answer.json()["error"].value("code", ""); }

    ScratchFolder folder_;
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
    EXPECT_EQ(here.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>(), file->info().length());
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

// Every checksum of the file is right.
TEST_F(HttpHeads, AStateWithoutItsDigestIsRefused) {
    HttpScene scene(transfers());
    talk(scene);
    const auto head = reference::HeadFile::parse(scene.ask(get("/v1/conversations/c/head")).body, "the answer");
    ASSERT_TRUE(head) << head.error().message;
    std::vector<std::byte> bytes(head->bytes().begin(), head->bytes().end());
    bytes.front() ^= std::byte{1};
    const std::string file = folder_.path("other.head");
    ASSERT_TRUE(reference::write_head_file(file, head->info(), kCells, bytes));
    const HttpAnswer refused = scene.ask(put("/v1/conversations/d/head", *read_text_file(file, 1 << 20)));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(code_of(refused), "invalid_head");
    EXPECT_THAT(refused.body, HasSubstr("the body: the state has digest "));
    scene.wait_until_idle();
    EXPECT_EQ(scene.engine().stats().imported_heads, 0);
}

// Bodies may have 10 000 bytes together in memory; a head has more, and is in a file meanwhile.
TEST_F(HttpHeads, AHeadThatIsLongerThanBodiesInMemoryMayBeComesIn) {
    HttpScene first(transfers());
    std::string text;
    for (int i = 0; i < 600; ++i) text += "word " + std::to_string(i) + " ";
    json body = hello({{"conversation_id", "c"}});
    body["messages"] = json::array({{{"role", "user"}, {"content", text}}});
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
    wait_until([&] { return std::filesystem::is_empty(folder_.path()); });
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
    wait_until([&] { return held() > 50e3; });
    ASSERT_GT(held(), 50e3);
    EXPECT_EQ(code_of(scene.ask(whole)), "overloaded");
    first.send(whole.substr(whole.size() - 10));
    EXPECT_EQ(first.read_answer().status, 400);
    EXPECT_EQ(code_of(scene.ask(whole)), "invalid_head");
    wait_until([&] { return held() == 0; });
    EXPECT_EQ(held(), 0);
}

// No file may have more than 100 kB, as on a disk that has no more.
TEST_F(HttpHeads, WhereTheDiskIsFullAHeadIsRefusedAndTheServerGoesOn) {
    HttpSceneConfig config = transfers();
    config.heads->spool = folder_.path();
    HttpScene scene(std::move(config));
    rlimit whole{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &whole), 0);
    const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit little{100'000, whole.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &little), 0);
    const HttpAnswer answer = scene.ask(put("/v1/conversations/d/head", std::string(300'000, 'x')));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &whole), 0);
    std::signal(SIGXFSZ, ignored);
    EXPECT_EQ(answer.status, 507);
    EXPECT_EQ(code_of(answer), "no_space");
    wait_until([&] { return std::filesystem::is_empty(folder_.path()); });
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
    EXPECT_EQ(scene.chat(hello()).status, 200);
}

TEST_F(HttpHeads, WithoutAFolderForItAHeadIsRefused) {
    HttpSceneConfig config = transfers();
    config.heads->spool = folder_.path() / "none";
    HttpScene scene(std::move(config));
    const HttpAnswer answer = scene.ask(put("/v1/conversations/d/head", std::string(4000, 'x')));
    EXPECT_EQ(answer.status, 507);
    EXPECT_THAT(answer.head, HasSubstr("X-Request-Id: "));
    EXPECT_EQ(code_of(answer), "no_space");
    EXPECT_EQ(scene.chat(hello()).status, 200);
}

}  // namespace
}  // namespace verbatim::tests
