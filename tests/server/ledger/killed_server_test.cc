// A server that is killed at any moment, over and over, under load. VERBATIM_KILLS says how often; without it a few
// times.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "server/ledger/sql_ledger_store.h"
#include "tests/server/http/http_scene.h"
#include "tests/server/ledger/held_database.h"
#include "tests/server/ledger/ledger_places.h"
#include "tests/support/sanitized.h"

namespace verbatim::tests {
namespace {

using nlohmann::json;

constexpr int kNumClients = 6;
constexpr int kTurnsOfAConversation = 60;

// A server in a separate process.
class KillableServer {
public:
    using Databases = std::function<std::unique_ptr<SqlDatabase>()>;
    // `gate`: is closed when the server is ready, so that its store keeps nothing.
    KillableServer(const Databases& ledger, StoreGate* gate = nullptr) {
        int ends[2];
        EXPECT_EQ(pipe(ends), 0);
        process_ = fork();
        if (process_ == 0) serve(ledger, gate, ends[1]);
        close(ends[1]);
        const ssize_t got = read(ends[0], &port_, sizeof port_);
        EXPECT_EQ(got, static_cast<ssize_t>(sizeof port_)) << "the server did not start";
        close(ends[0]);
    }
    KillableServer(const KillableServer&) = delete;
    KillableServer& operator=(const KillableServer&) = delete;
    ~KillableServer() { kill(); }
    void kill() {
        if (process_ <= 0) return;
        ::kill(process_, SIGKILL);
        waitpid(std::exchange(process_, -1), nullptr, 0);
    }
    [[nodiscard]] uint16_t port() const { return port_; }

private:
    [[noreturn]] static void serve(const Databases& ledger, StoreGate* gate, int port_to) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        HttpSceneConfig config;
        config.ledger_memory.max_bytes = 0;  // conversations are read for every turn
        config.has_template = false;
        config.ledger = [&] { return std::make_unique<server::SqlLedgerStore>(ledger()); };
        const HttpScene scene(std::move(config));
        if (testing::Test::HasFailure()) _exit(1);
        if (gate != nullptr) gate->close();
        const uint16_t port = scene.port();
        if (write(port_to, &port, sizeof port) != sizeof port) _exit(1);
        while (true) pause();
    }
    pid_t process_ = -1;
    uint16_t port_ = 0;
};

// One client's conversations, turn after turn; a turn that was not answered is sent again.
class TurnClient {
public:
    explicit TurnClient(int index) : index_(index) {}

    [[nodiscard]] std::string conversation() const {
        return fmt::format("c{}-{}", index_, next_ / kTurnsOfAConversation);
    }
    [[nodiscard]] json request(int turn) const {
        const int place = turn % kTurnsOfAConversation;
        json body = {{"conversation_id", fmt::format("c{}-{}", index_, turn / kTurnsOfAConversation)},
                     {"turn_id", fmt::format("t{}", place)},
                     {"prompt", {1 + turn % 500, 2, 3 + index_}},
                     {"max_tokens", 1 + turn % 5},
                     {"ignore_eos", true},
                     {"seed", turn}};
        if (place > 0) body["suffix_only"] = true;
        if (turn % 2 == 1) body["stream"] = true;
        return body;
    }
    // Until the server is gone.
    void talk(uint16_t port, std::atomic<int>& num_answers, std::atomic<int>& num_gone) {
        while (const auto said = ask(port, next_)) {
            answers_.push_back(*said);
            ++next_;
            ++num_answers;
        }
        ++num_gone;
    }
    // The answer's text and head; empty when there was no whole answer.
    [[nodiscard]] std::optional<std::string> ask(uint16_t port, int turn) const {
        const json body = request(turn);
        const HttpClient client(port, 0, /*may_be_gone=*/true);
        client.send(post("/v1/completions", body.dump()));
        const HttpAnswer answer = client.read_answer();
        if (answer.status == 0) return std::nullopt;
        EXPECT_EQ(answer.status, 200) << answer.body << " to " << body;
        if (answer.status != 200) return std::nullopt;
        if (body.contains("stream")) {
            if (answer.body.find("data: [DONE]") == std::string::npos) return std::nullopt;
            const Joined all = joined(answer);
            return all.text + " " + all.head_id.get<std::string>();
        }
        const json whole = answer.json();
        if (whole.is_discarded()) return std::nullopt;
        return whole["choices"][0]["text"].get<std::string>() + " " + whole["head_id"].get<std::string>();
    }
    // What the server knows is what was answered, and perhaps the turn that was asked for when it was killed.
    void look(uint16_t port) {
        const int place = next_ % kTurnsOfAConversation;
        const HttpClient client(port);
        client.send(get("/v1/conversations/" + conversation()));
        const HttpAnswer shown = client.read_answer();
        if (place > 0) EXPECT_EQ(shown.status, 200) << conversation() << " is lost: " << shown.body;
        if (shown.status != 200) return;
        const json turns = shown.json()["turns"];
        EXPECT_GE(static_cast<int>(turns.size()), place) << conversation();
        EXPECT_LE(static_cast<int>(turns.size()), place + 1) << conversation();
        for (size_t i = 0; i < turns.size(); ++i) EXPECT_EQ(turns[i]["turn_id"], fmt::format("t{}", i));
        if (next_ > 0 && place > 0) EXPECT_EQ(ask(port, next_ - 1), answers_.back()) << "the last answered turn";
    }
    [[nodiscard]] const std::vector<std::string>& answers() const { return answers_; }

private:
    int index_;
    int next_ = 0;  // turn
    std::vector<std::string> answers_;
};

class KilledServer : public EveryStore {};
INSTANTIATE_TEST_SUITE_P(Ledgers, KilledServer, testing::Values("sqlite", "postgres"),
                         [](const auto& named) { return named.param; });

TEST_P(KilledServer, HasShownNoTurnThatTheKillTakesBack) {
    StoreGate gate;
    static_cast<void>(address("held"));  // is made here, and not in the servers' processes
    const auto held = [&] { return std::make_unique<HeldDatabase>(database("held"), gate); };
    TurnClient asking(0);
    std::vector<std::unique_ptr<HttpClient>> looks;
    {
        KillableServer server(held, &gate);
        const HttpClient turn(server.port());
        turn.send(post("/v1/completions", asking.request(0).dump()));
        for (int i = 0; i < 12; ++i) {
            json unnamed = asking.request(0);
            unnamed.erase("conversation_id");
            unnamed.erase("turn_id");
            const HttpClient another(server.port());
            another.send(post("/v1/completions", unnamed.dump()));
            EXPECT_EQ(another.read_answer().status, 200);
            looks.push_back(std::make_unique<HttpClient>(server.port()));
            looks.back()->send(get("/v1/conversations/" + asking.conversation()));
        }
        server.kill();
    }
    // Those before the turn's end find nothing, the others wait.
    int last_status = 0;
    for (const auto& look : looks) {
        last_status = look->read_answer().status;
        EXPECT_NE(last_status, 200);
    }
    EXPECT_EQ(last_status, 0) << "the turn was not over when it was looked for";
    const KillableServer next([&] { return database("held"); });
    const HttpClient client(next.port());
    client.send(get("/v1/conversations/" + asking.conversation()));
    EXPECT_EQ(client.read_answer().status, 404);
}

TEST_P(KilledServer, HasEveryTurnThatItHasAnswered) {
    const char* const wanted = std::getenv("VERBATIM_KILLS");
    const int num_kills = wanted != nullptr ? std::atoi(wanted) : (kSanitized ? 20 : 100);
    static_cast<void>(address("killed"));
    const KillableServer::Databases ledger = [&] { return database("killed"); };
    std::vector<TurnClient> clients;
    for (int i = 0; i < kNumClients; ++i) clients.emplace_back(i);
    std::mt19937 random(1);
    for (int life = 0; life <= num_kills; ++life) {
        KillableServer server(ledger);
        ASSERT_NE(server.port(), 0) << "life " << life;
        for (TurnClient& client : clients) client.look(server.port());
        if (HasFailure() || life == num_kills) break;
        std::vector<std::thread> threads;
        std::atomic<int> num_answers = 0;
        std::atomic<int> num_gone = 0;
        for (TurnClient& client : clients)
            threads.emplace_back([&] { client.talk(server.port(), num_answers, num_gone); });
        // Some turns are answered, and others are anywhere.
        const auto enough = static_cast<int>(random() % 20);
        while (num_answers < enough && num_gone < kNumClients) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
        server.kill();
        for (std::thread& thread : threads) thread.join();
    }
    size_t num_turns = 0;
    HttpSceneConfig undisturbed;
    undisturbed.has_template = false;
    const HttpScene scene(std::move(undisturbed));
    for (const TurnClient& client : clients) {
        num_turns += client.answers().size();
        for (size_t turn = 0; turn < client.answers().size(); ++turn)
            ASSERT_EQ(client.ask(scene.port(), static_cast<int>(turn)), client.answers()[turn]);
    }
    EXPECT_GT(num_turns, static_cast<size_t>(num_kills));
    fmt::print("{} kills, {} turns answered and there\n", num_kills, num_turns);
}

}  // namespace
}  // namespace verbatim::tests
