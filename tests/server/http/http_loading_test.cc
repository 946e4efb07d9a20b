// Conversations that are read when they are named, and leave memory when others need the room: clients see no
// difference.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/ledger/held_database.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/support/random_cases.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;
using server::SqliteDatabase;
using server::SqlLedgerStore;
using testing::AllOf;
using testing::HasSubstr;

json turn_of(const std::string& id, const std::string& text, const json& more = json::object()) {
    json body = hello({{"conversation_id", id}, {"max_tokens", 5}});
    body["messages"] = json::array({{{"role", "user"}, {"content", text}}});
    body.update(more);
    return body;
}
const json kGoesOn = {{"suffix_only", true}};

std::string deletion(const std::string& id) {
    return "DELETE /v1/conversations/" + id + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
}

// Counts the conversations that are read from it, and holds or fails them where a test says so.
struct Reads {
    std::atomic<int64_t> num_conversations = 0;
    std::atomic<bool> fail = false;
    StoreGate gate;
};
class WatchedDatabase final : public WrappingDatabase {
public:
    WatchedDatabase(std::unique_ptr<SqlDatabase> inner, Reads& reads)
        : WrappingDatabase(std::move(inner)), reads_(reads) {}
    Result<std::vector<SqlRow>> rows(const std::string& sql, std::span<const SqlValue> values) override {
        if (sql.find("FROM verbatim_turns WHERE") == std::string::npos) return inner().rows(sql, values);
        ++reads_.num_conversations;
        reads_.gate.pass();
        if (reads_.fail) return tl::unexpected(Error{"the disk cannot be read", ErrorKind::kMachine});
        return inner().rows(sql, values);
    }

private:
    Reads& reads_;
};

HttpSceneConfig watched_in(const TestFolder& folder, const std::string& name, Reads& reads, int64_t max_bytes) {
    HttpSceneConfig config;
    config.ledger = [file = folder.file(name), &reads] {
        return std::make_unique<SqlLedgerStore>(
            std::make_unique<WatchedDatabase>(std::make_unique<SqliteDatabase>(file), reads));
    };
    config.ledger_memory.max_bytes = max_bytes;
    return config;
}

int64_t num_cached(const HttpAnswer& answer) {
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"].get<int64_t>();
}

void wait_until_unloaded(HttpScene& scene, int64_t max_bytes) {
    scene.wait_until_idle();
    while (scene.host().ledger().loaded().num_bytes > max_bytes) std::this_thread::yield();
}

// --- the same answers

// More of them, one behind the other, than there may be at once.
TEST(HttpLoading, ACallThatWaitedForTheStoreGivesItsPlaceBack) {
    const TestFolder folder;
    Reads reads;
    HttpSceneConfig config = watched_in(folder, "a", reads, 0);
    config.host.max_requests = 1;
    config.host.max_queue_requests = 1;
    HttpScene scene(std::move(config));
    ASSERT_EQ(scene.chat(turn_of("c", "hello")).status, 200);
    for (int i = 1; i <= 4; ++i) {
        wait_until_unloaded(scene, 0);
        EXPECT_EQ(scene.ask(get("/v1/conversations/c")).status, 200);
        EXPECT_EQ(reads.num_conversations, i);
    }
}

TEST(HttpLoading, AnUnloadedConversationGoesOnFromItsCachedHead) {
    const TestFolder folder;
    Reads reads;
    HttpScene scene(watched_in(folder, "a", reads, 0));
    const json asked = turn_of("c", "hello", {{"turn_id", "t1"}});
    const HttpAnswer first = scene.chat(asked);
    ASSERT_EQ(first.status, 200) << first.body;
    wait_until_unloaded(scene, 0);
    EXPECT_EQ(scene.engine().ledger().num_conversations(), 0u);
    EXPECT_EQ(reads.num_conversations, 0) << "the store had none of the name";
    const HttpAnswer second = scene.chat(turn_of("c", "more", kGoesOn));
    ASSERT_EQ(second.status, 200) << second.body;
    EXPECT_GT(reads.num_conversations, 0);
    EXPECT_EQ(num_cached(second), first.json()["usage"]["total_tokens"].get<int64_t>() - 1);
    wait_until_unloaded(scene, 0);
    const int64_t num_computed = scene.num_computed_tokens();
    EXPECT_EQ(scene.chat(asked).body, first.body) << "answered once";
    scene.wait_until_idle();
    EXPECT_EQ(scene.num_computed_tokens(), num_computed);
    const HttpAnswer other = scene.chat(turn_of("c", "other", {{"turn_id", "t1"}}));
    EXPECT_EQ(other.json()["error"]["code"], "turn_mismatch") << other.body;
    EXPECT_EQ(scene.ask(deletion("c")).status, 200);
    wait_until_unloaded(scene, 0);
    EXPECT_EQ(scene.chat(asked).json()["error"]["code"], "turn_deleted");
}

// What clients do with some conversations, drawn.
class RandomRequests {
public:
    explicit RandomRequests(uint64_t seed) : random_(seed) {}
    std::string next() {
        const std::string id(1, static_cast<char>('a' + below(6)));
        switch (below(12)) {
            case 0: return conversation_call(id, "fork", {{"to", std::string(1, static_cast<char>('a' + below(6)))}});
            case 1: return conversation_call(id, "rewind", {{"num_turns", 1 + below(3)}});
            case 2: return deletion(id);
            case 3:
            case 4: return get("/v1/conversations/" + id);
            case 5: {
                const json ids = {{"conversation_id", id}, {"prompt", {5, 6, 7, below(3)}}, {"max_tokens", 2}};
                return post("/v1/completions", ids.dump());
            }
            case 6:
                if (!sent_.empty()) return sent_[below(sent_.size())];
                [[fallthrough]];
            default: return chat(id);
        }
    }

private:
    uint64_t below(uint64_t count) { return random_() % count; }
    static std::string conversation_call(const std::string& id, const std::string& deed, const json& body) {
        return post("/v1/conversations/" + id + "/" + deed, body.dump());
    }
    std::string chat(const std::string& id) {
        json body = turn_of(id, fmt::format("text {}", below(5)));
        if (below(4) > 0) body.update(kGoesOn);
        if (below(2) == 0) body["turn_id"] = fmt::format("turn {}", below(40));
        const std::string request = post("/v1/chat/completions", body.dump());
        if (body.contains("turn_id")) sent_.push_back(request);
        return request;
    }
    std::mt19937_64 random_;
    std::vector<std::string> sent_;
};

// Without what differs between two servers.
std::string comparable(const HttpAnswer& answer) {
    json body = answer.json();
    if (body.is_object()) body.erase("id");
    return fmt::format("{} {}", answer.status, body.dump());
}

TEST(HttpLoading, RandomClientsGetTheSameAnswersWhateverIsUnloaded) {
    const RandomCases cases = RandomCases::from_environment(4);
    Reads reads;
    Reads never;
    int64_t num_answered = 0;
    for (uint64_t i = 0; i < cases.count; ++i) {
        const TestFolder folder;
        const int64_t max_bytes = static_cast<int64_t>(i % 4) * 2500;
        HttpScene unloading(watched_in(folder, "a", reads, max_bytes));
        HttpScene whole(watched_in(folder, "b", never, int64_t{1} << 30));
        RandomRequests requests(cases.seed + i);
        for (int request = 0; request < 150; ++request) {
            const std::string asked = requests.next();
            const HttpAnswer answer = unloading.ask(asked);
            ASSERT_EQ(comparable(answer), comparable(whole.ask(asked)))
                << asked << "\nrequest " << request << ", again with: VERBATIM_SEED=" << cases.seed + i;
            num_answered += answer.status == 200 ? 1 : 0;
            if (request % 10 == 0) wait_until_unloaded(unloading, max_bytes);
        }
    }
    EXPECT_GT(num_answered, static_cast<int64_t>(cases.count) * 50);
    EXPECT_GT(reads.num_conversations, static_cast<int64_t>(cases.count) * 20);
    EXPECT_EQ(never.num_conversations, 0);
}

// Many at a time, each with a conversation, in a server that keeps none of them longer than it must.
TEST(HttpLoading, ConversationsInUseStayWhileOthersLeave) {
    constexpr int kClients = 6;
    constexpr int kTurns = 8;
    const TestFolder folder;
    Reads reads;
    HttpScene scene(watched_in(folder, "a", reads, 0));
    HttpScene quiet;
    std::vector<std::vector<std::string>> heard(kClients);
    std::vector<std::thread> clients;
    for (int client = 0; client < kClients; ++client) {
        clients.emplace_back([&scene, &heard, client] {
            const std::string id = fmt::format("c{}", client);
            for (int i = 0; i < kTurns; ++i) {
                const HttpAnswer answer =
                    scene.chat(turn_of(id, fmt::format("turn {}", i), i == 0 ? json::object() : kGoesOn));
                heard[static_cast<size_t>(client)].push_back(answer.status == 200 ? answer.json()["head_id"].dump()
                                                                                  : answer.body);
            }
        });
    }
    for (std::thread& client : clients) client.join();
    for (int client = 0; client < kClients; ++client) {
        const std::string id = fmt::format("c{}", client);
        for (int i = 0; i < kTurns; ++i) {
            const HttpAnswer wanted =
                quiet.chat(turn_of(id, fmt::format("turn {}", i), i == 0 ? json::object() : kGoesOn));
            EXPECT_EQ(heard[static_cast<size_t>(client)][static_cast<size_t>(i)], wanted.json()["head_id"].dump());
        }
    }
    wait_until_unloaded(scene, 0);
    EXPECT_EQ(scene.engine().ledger().num_conversations(), 0u);
}

// --- the bound

TEST(HttpLoading, TheLeastRecentlyUsedLeavesFirstAndTheBoundIsKept) {
    constexpr int64_t kMaxBytes = 20000;
    const TestFolder folder;
    Reads reads;
    HttpScene scene(watched_in(folder, "a", reads, kMaxBytes));
    for (int i = 0; i < 40; ++i) {
        ASSERT_EQ(scene.chat(turn_of(fmt::format("c{}", i), "hello")).status, 200);
        EXPECT_EQ(scene.ask(get("/v1/conversations/c0")).status, 200) << "used all the time";
    }
    wait_until_unloaded(scene, kMaxBytes);
    const server::LoadedCounts loaded = scene.host().ledger().loaded();
    EXPECT_GT(loaded.num_conversations, 3);
    EXPECT_LT(loaded.num_conversations, 40);
    EXPECT_LE(scene.engine().ledger().num_conversations(), static_cast<size_t>(loaded.num_conversations));
    EXPECT_EQ(reads.num_conversations, 0) << "what was used last was in memory";
    EXPECT_EQ(scene.ask(get("/v1/conversations/c39")).status, 200);
    EXPECT_EQ(reads.num_conversations, 0);
    EXPECT_EQ(scene.ask(get("/v1/conversations/c1")).status, 200);
    EXPECT_EQ(reads.num_conversations, 1);
    EXPECT_THAT(scene.ask(get("/metrics")).body,
                AllOf(HasSubstr("verbatim:conversations{model_name=\"tiny-python\"} 40\n"),
                      HasSubstr(fmt::format("verbatim:loaded_conversations{{model_name=\"tiny-python\"}} {}\n",
                                            scene.host().ledger().loaded().num_conversations))));
}

// --- a store that is slow, or cannot be read

class HttpLoadingFrom : public testing::Test {
protected:
    // A ledger with the conversations a and b, and a new server that has read neither.
    HttpLoadingFrom() {
        {
            HttpScene before(watched_in(folder_, "ledger", reads_, int64_t{1} << 30));
            for (const char* id : {"a", "b"}) EXPECT_EQ(before.chat(turn_of(id, "hello")).status, 200);
        }
        scene_ = std::make_unique<HttpScene>(watched_in(folder_, "ledger", reads_, int64_t{1} << 30));
    }
    ~HttpLoadingFrom() override { reads_.gate.open(); }
    void expect_unreadable(const HttpAnswer& answer) const {
        EXPECT_EQ(answer.status, 503) << answer.body;
        EXPECT_EQ(answer.json()["error"]["code"], "ledger_unavailable");
        EXPECT_THAT(answer.body, HasSubstr("conversation 'a' cannot be read"));
    }
    TestFolder folder_;
    Reads reads_;
    std::unique_ptr<HttpScene> scene_;
};

TEST_F(HttpLoadingFrom, AStartReadsNone) {
    EXPECT_EQ(reads_.num_conversations, 0);
    EXPECT_THAT(scene_->ask(get("/metrics")).body,
                AllOf(HasSubstr("verbatim:conversations{model_name=\"tiny-python\"} 2\n"),
                      HasSubstr("verbatim:loaded_conversations{model_name=\"tiny-python\"} 0\n")));
    EXPECT_EQ(reads_.num_conversations, 0);
    EXPECT_EQ(scene_->ask(get("/v1/conversations/a")).json()["turns"].size(), 1u);
    EXPECT_EQ(reads_.num_conversations, 1);
}

TEST_F(HttpLoadingFrom, OtherRequestsGoOnWhileAConversationIsRead) {
    ASSERT_EQ(scene_->ask(get("/v1/conversations/b")).status, 200);
    reads_.gate.close();
    const HttpClient turn_of_a(scene_->port());
    turn_of_a.send(post("/v1/chat/completions", turn_of("a", "more", kGoesOn).dump()));
    reads_.gate.wait_until_held();
    const HttpClient look_at_a(scene_->port());
    look_at_a.send(get("/v1/conversations/a"));
    EXPECT_EQ(scene_->chat(hello()).status, 200) << "without a conversation";
    EXPECT_EQ(scene_->ask(get("/v1/conversations/b")).status, 200) << "a loaded one";
    const HttpClient turn_of_b(scene_->port());
    json streamed = turn_of("b", "more", kGoesOn);
    streamed["stream"] = true;
    turn_of_b.send(post("/v1/chat/completions", streamed.dump()));
    EXPECT_THAT(turn_of_b.read_until("\"content\":"), HasSubstr("200 OK")) << "its tokens come";
    reads_.gate.open();
    EXPECT_EQ(turn_of_a.read_answer().status, 200);
    EXPECT_EQ(look_at_a.read_answer().status, 200);
    EXPECT_THAT(turn_of_b.read_until("[DONE]"), HasSubstr("[DONE]")) << "and its end, when it is kept";
}

TEST_F(HttpLoadingFrom, AClientThatLeavesWhileItsConversationIsReadIsAborted) {
    reads_.gate.close();
    {
        HttpClient client(scene_->port());
        client.send(post("/v1/completions", json({{"conversation_id", "a"}, {"prompt", {1, 2}}}).dump()));
        reads_.gate.wait_until_held();
        client.hang_up();
    }
    EXPECT_EQ(scene_->chat(hello()).status, 200);
    reads_.gate.open();
    scene_->wait_until_idle();
    EXPECT_EQ(scene_->ask(get("/v1/conversations/a")).status, 200);
}

TEST_F(HttpLoadingFrom, AReadingThatFailsFailsItsRequestsAlone) {
    ASSERT_EQ(scene_->ask(get("/v1/conversations/b")).status, 200);
    reads_.fail = true;
    expect_unreadable(scene_->chat(turn_of("a", "more", kGoesOn)));
    expect_unreadable(scene_->chat(turn_of("a", "anew")));
    expect_unreadable(scene_->ask(get("/v1/conversations/a")));
    expect_unreadable(scene_->ask(deletion("a")));
    expect_unreadable(scene_->ask(post("/v1/conversations/a/rewind", R"({"num_turns": 1})")));
    expect_unreadable(scene_->ask(post("/v1/conversations/b/fork", R"({"to": "a"})")));
    expect_unreadable(
        scene_->ask(post("/v1/completions", json({{"conversation_id", "a"}, {"prompt", {1, 2}}}).dump())));
    EXPECT_EQ(scene_->chat(turn_of("b", "more", kGoesOn)).status, 200) << "it is in memory, and can be written";
    EXPECT_EQ(scene_->chat(turn_of("new", "hello")).status, 200) << "the ledger has none of the name";
    EXPECT_EQ(scene_->chat(hello()).status, 200);
    EXPECT_EQ(scene_->ask(get("/health")).status, 200);
    reads_.fail = false;
    EXPECT_EQ(scene_->chat(turn_of("a", "more", kGoesOn)).status, 200) << "the store can be read again";
}

TEST_F(HttpLoadingFrom, ADamagedConversationIsSaidAndOthersAreServed) {
    scene_.reset();
    {
        SqliteDatabase file(folder_.file("ledger"));
        ASSERT_TRUE(file.connect());
        const SqlValue a[] = {std::string("a")};
        ASSERT_TRUE(file.run("UPDATE verbatim_turns SET tokens = zeroblob(length(tokens)) WHERE conversation = $1", a));
    }
    scene_ = std::make_unique<HttpScene>(watched_in(folder_, "ledger", reads_, int64_t{1} << 30));
    const HttpAnswer refused = scene_->chat(turn_of("a", "more", kGoesOn));
    expect_unreadable(refused);
    EXPECT_THAT(refused.body, AllOf(HasSubstr("turn 1"), HasSubstr("damaged")));
    EXPECT_EQ(scene_->chat(turn_of("b", "more", kGoesOn)).status, 200);
}

}  // namespace
}  // namespace verbatim::tests
