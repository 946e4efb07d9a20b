// server/http/metrics.h: owns the counters and timings of /metrics, in Prometheus' text format, under vLLM's names
// where it has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/engine_host.h"

namespace verbatim::server {

// Cumulative counts per upper bound.
class Histogram {
public:
    explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}
    void observe(double value);
    // Lines of the format; `labels` without braces.
    [[nodiscard]] std::string text(const std::string& name, const std::string& labels) const;

private:
    std::vector<double> bounds_;  // ascending
    std::vector<int64_t> counts_;
    double sum_ = 0;
};

// Counters of the sockets' thread.
struct HttpMetrics {
    Histogram first_token{{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                           1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560}};
    Histogram per_token{
        {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20}};
    Histogram whole_request{
        {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920}};
    std::map<std::string, int64_t> finished;  // choices, by finish_reason
    std::map<int, int64_t> responses;         // by status
    int64_t num_clients_gone = 0;             // before their answer was complete
    int64_t num_connections = 0;              // now
    size_t num_prepared = 0;                  // requests being parsed or tokenized now
    uint64_t num_body_bytes = 0;              // held now, of long bodies
    uint64_t num_file_bytes = 0;              // held now, of bodies in files
};

// Seconds of one choice.
struct ChoiceTimes {
    double first_token = 0;
    double whole = 0;
    int64_t num_tokens = 0;
};
void observe(HttpMetrics& metrics, const ChoiceTimes& times);

// The record that a server writes of its run.
struct RecordView {
    bool failed = false;  // a write failed: the record ends before the run
    int64_t num_bytes = 0;
};

// `record`: none if the server writes none.
[[nodiscard]] std::string metrics_text(const HttpMetrics& http, const HostView& host,
                                       const std::optional<RecordView>& record, const std::string& model);

}  // namespace verbatim::server
