// audit/transport.h: owns the interface through which an audit reaches a server: requests that are sent at one time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace verbatim::audit {

struct HttpRequest {
    std::string path;               // "/v1/completions"
    std::string body;               // empty: GET
    int64_t abort_after_bytes = 0;  // 0: never. Else the connection is cut when more of the body has arrived.
    bool is_retried = true;         // after 429 and 503
};

// A piece of a body and when it came.
struct Arrival {
    std::string bytes;
    double at_s = 0;  // since the transport began
};

struct HttpReply {
    std::string problem;  // why there is no whole HTTP answer; empty: there is one
    int status = 0;
    std::string content_type;
    std::vector<Arrival> arrivals;
    bool aborted = false;  // by abort_after_bytes
    double sent_s = 0;
    double done_s = 0;
    int num_retries = 0;  // after 429 or 503
    [[nodiscard]] std::string body() const;
};

class Transport {
public:
    virtual ~Transport() = default;
    // Sends all requests at one time; the replies are in the requests' order.
    [[nodiscard]] virtual std::vector<HttpReply> send(std::span<const HttpRequest> requests) = 0;
};

}  // namespace verbatim::audit
