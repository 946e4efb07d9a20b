// audit/curl_transport.h: owns HTTP and HTTPS with libcurl: timeouts, retries of 429 and 503, proxies, the API key.
//
//   H1  the key goes into the Authorization header and nowhere else; redirects are not followed
//   H2  a reply of 429 or 503 is sent again after Retry-After, or after 1, 2, 4 ... seconds, `max_retries` times
//   H3  all requests of one send() are in flight together, one connection each
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "audit/transport.h"
#include "engine/base/result.h"

namespace verbatim::audit {

struct CurlConfig {
    std::string url;      // "http://host:8000", "https://host/v1"
    std::string api_key;  // empty: none is sent
    double timeout_s = 120;
    double connect_timeout_s = 10;
    std::string ca_file;  // certificates of authorities for HTTPS; empty: the system's
    int max_retries = 4;
    double max_retry_wait_s = 60;                // a longer Retry-After is not waited for
    const std::atomic<bool>* stopped = nullptr;  // true: every transfer ends at once
};

// "http://host:8000" of "http://host:8000/v1/". Errors: no http or https address; a key in it.
[[nodiscard]] Result<std::string> base_url(const std::string& url);

// The authorities' certificates: `flag` (--ca), else the file that SSL_CERT_FILE, CURL_CA_BUNDLE or REQUESTS_CA_BUNDLE
// names, else libcurl's own, else the first of the places where systems keep them. Empty: libcurl's own. Errors: the
// named file cannot be read.
[[nodiscard]] Result<std::string> find_ca_file(const std::string& flag);

class CurlTransport final : public Transport {
public:
    static Result<std::unique_ptr<CurlTransport>> create(CurlConfig config);
    ~CurlTransport() override;
    [[nodiscard]] std::vector<HttpReply> send(std::span<const HttpRequest> requests) override;

private:
    struct Transfer;
    CurlTransport(CurlConfig config, std::string base);
    void start(Transfer& transfer);
    void finish(Transfer& transfer, int code);
    [[nodiscard]] bool is_stopped() const { return config_.stopped != nullptr && config_.stopped->load(); }
    [[nodiscard]] double now_s() const;

    CurlConfig config_;
    std::string base_;
    void* multi_ = nullptr;  // CURLM
    double began_s_ = 0;
};

}  // namespace verbatim::audit
