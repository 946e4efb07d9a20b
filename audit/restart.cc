#include "audit/restart.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include "audit/answer.h"
#include "audit/server_info.h"

namespace verbatim::audit {
namespace {

constexpr double kPause_s = 0.25;
constexpr double kDying_s = 5;  // how long a server that is being stopped may still answer

HttpReply look(Transport& server, const char* path) {
    HttpRequest request{path, ""};
    request.is_retried = false;
    return server.send(std::vector<HttpRequest>{request})[0];
}

double seconds_of(const HttpReply& reply) { return std::max(0.0, reply.done_s - reply.sent_s); }

// The last of two answers: of /v1/models, and, where that is 200, of /health, if there is one.
HttpReply answer_of(Transport& server, double& waited_s) {
    HttpReply models = look(server, "/v1/models");
    waited_s += seconds_of(models);
    if (!models.problem.empty() || models.status != 200) return models;
    HttpReply health = look(server, "/health");
    waited_s += seconds_of(health);
    return !health.problem.empty() || health.status >= 500 ? health : models;
}

// Without the question that a refused connection ends with.
std::string said(const HttpReply& reply) {
    std::string text = error_text(reply);
    return text.substr(0, text.find(": is the server there?"));
}

// Values of a text of /metrics by name and labels.
std::map<std::string, double> samples_of(const std::string& metrics) {
    std::map<std::string, double> samples;
    for (size_t at = 0; at < metrics.size();) {
        const size_t end = std::min(metrics.find('\n', at), metrics.size());
        const std::string line = metrics.substr(at, end - at);
        at = end + 1;
        const size_t space = line.rfind(' ');
        if (line.starts_with("#") || space == std::string::npos) continue;
        double value = 0;
        const auto [stop, code] = std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
        if (code == std::errc{}) samples[line.substr(0, space)] = value;
    }
    return samples;
}

bool is_counter(const std::string& key) {
    const std::string name = key.substr(0, key.find('{'));
    return name.ends_with("_total") || name.ends_with("_count");
}

}  // namespace

Result<std::string> wait_for_restart(Transport& server, const std::string& metrics, const WaitConfig& config) {
    double waited_s = 0;
    std::string proof;
    while (true) {
        if (config.is_stopped()) return error("interrupted");
        const HttpReply reply = answer_of(server, waited_s);
        const bool is_up = reply.problem.empty() && reply.status < 400;
        if (is_up && proof.empty()) proof = restart_shown(metrics, metrics_of(server));
        if (is_up && (!proof.empty() || waited_s >= kDying_s)) return proof;
        if (!is_up && waited_s >= config.timeout_s)
            return error(
                "the server does not answer {:g} s after the restart command ({}): look at its log, or give it more "
                "time (--restart-timeout)",
                config.timeout_s, said(reply));
        if (!reply.problem.empty()) proof = "the server was down";
        config.sleep(kPause_s);
        waited_s += kPause_s;
    }
}

std::string metrics_of(Transport& server) {
    const HttpReply reply = server.send(std::vector<HttpRequest>{{"/metrics", ""}})[0];
    return reply.status == 200 ? reply.body() : std::string();
}

std::string restart_shown(const std::string& before, const std::string& after) {
    const char* const kStart = "process_start_time_seconds";
    const auto began = metric_value(before, kStart);
    const auto begins = metric_value(after, kStart);
    if (began && begins && *began != *begins) return fmt::format("{} changed", kStart);
    const std::map<std::string, double> now = samples_of(after);
    for (const auto& [key, value] : samples_of(before)) {
        const auto found = now.find(key);
        if (is_counter(key) && found != now.end() && found->second < value)
            return fmt::format("{} fell from {} to {}", key, value, found->second);
    }
    return {};
}

}  // namespace verbatim::audit
