// audit/runner.h: owns the running of scripts: fills in placeholders, sends waves, keeps to the budget.
//
//   R1  no request is sent once the budget's requests or tokens are used up
//   R2  equal seeds and equal answers give equal requests
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "audit/answer.h"
#include "audit/drafts.h"
#include "audit/script.h"
#include "audit/server_info.h"
#include "audit/transport.h"

namespace verbatim::audit {

struct Budget {
    int64_t requests = 2000;
    int64_t tokens = 2'000'000;  // of prompts and answers
};

// A script, what was sent, and what came back.
struct Trial {
    Case script;
    std::vector<std::vector<nlohmann::ordered_json>> sent;  // [wave][request]
    std::vector<std::vector<Answer>> answers;               // [wave][request]
    // [wave]: reused prompt tokens by the server's metrics, where usage has none.
    std::vector<std::optional<int64_t>> metric_hits;
    std::array<Drafts, 2> drafts;  // by metrics: of the server; of the other one, or of it after the restart
    std::string restart_proof;     // what shows that the server was restarted; empty: nothing but fresh answers
    std::map<std::string, std::string> words;  // of {{fresh K}} and {{unique K}}, by "fresh K"
    std::string problem;                       // why it did not run to its end
    bool out_of_budget = false;
    [[nodiscard]] const Answer& answer(size_t wave, size_t ask) const { return answers[wave][ask]; }
};

struct RunnerConfig {
    Transport* server = nullptr;
    Transport* against = nullptr;               // of --against
    std::function<Result<void>(void)> restart;  // of --restart
    // The server may take so long to answer again after `restart`.
    double restart_timeout_s = 300;
    std::function<void(double seconds)> sleep = [](double) {};
    std::function<bool()> is_stopped = [] { return false; };
    Budget budget;
    uint64_t seed = 0;
};

class Runner {
public:
    // Borrows what the config points to, and the info.
    Runner(RunnerConfig config, const ServerInfo& info);
    // In order; ends at the first wave whose answers a later one needs and does not get. `words` are those of an
    // earlier trial; what is not in them is drawn.
    [[nodiscard]] Trial run(const Case& script, std::map<std::string, std::string> words = {});
    [[nodiscard]] int64_t num_requests() const { return num_requests_; }
    [[nodiscard]] int64_t num_tokens() const { return num_tokens_; }
    [[nodiscard]] bool is_out_of_budget() const;
    [[nodiscard]] bool is_stopped() const { return config_.is_stopped(); }

private:
    bool run_wave(size_t wave, Trial& trial);
    std::vector<HttpReply> send(const Wave& wave, const std::vector<nlohmann::ordered_json>& bodies);
    std::optional<double> read_metric();
    Status restart(Trial& trial);
    void count(const Answer& answer, const nlohmann::ordered_json& body);

    RunnerConfig config_;
    const ServerInfo& info_;
    Prng chance_;
    int64_t num_requests_ = 0;
    int64_t num_tokens_ = 0;
};

// 1: the wave goes to the second server, or comes after a restart. REQUIRES: a wave of one request, or of one server.
[[nodiscard]] size_t side_of(const Case& script, size_t wave);

// The first half of an answer's text: of its tokens where they are known, else up to a space. Empty: too short.
[[nodiscard]] std::string first_half(const Choice& choice);

}  // namespace verbatim::audit
