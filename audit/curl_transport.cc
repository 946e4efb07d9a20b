#include "audit/curl_transport.h"

#include <curl/curl.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

namespace verbatim::audit {
namespace {

bool is_readable(const std::string& path) {
    std::ifstream file(path);
    return file.get() != std::ifstream::traits_type::eof();
}

double steady_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

std::string advice_of(int code) {
    switch (code) {
        case CURLE_COULDNT_CONNECT:
        case CURLE_COULDNT_RESOLVE_HOST: return ": is the server there?";
        case CURLE_OPERATION_TIMEDOUT: return ": is the server busy? --timeout gives a request more time";
        case CURLE_PEER_FAILED_VERIFICATION:
            return ": give the file with the certificate of its authority (--ca FILE, or SSL_CERT_FILE in the "
                   "environment)";
        case CURLE_SSL_CONNECT_ERROR: return ": does the server speak HTTPS at this port?";
        default: return "";
    }
}

bool is_busy(int status) { return status == 429 || status == 503; }

}  // namespace

std::string HttpReply::body() const {
    std::string all;
    for (const Arrival& arrival : arrivals) all += arrival.bytes;
    return all;
}

struct CurlTransport::Transfer {
    const HttpRequest* request = nullptr;
    CurlTransport* owner = nullptr;
    HttpReply reply;
    CURL* easy = nullptr;
    curl_slist* headers = nullptr;
    size_t received = 0;
    double not_before_s = 0;
    bool running = false;
    bool done = false;
    char message[CURL_ERROR_SIZE] = "";

    static size_t take(char* bytes, size_t one, size_t count, void* self) {
        auto& transfer = *static_cast<Transfer*>(self);
        if (transfer.owner->is_stopped()) return 0;
        transfer.reply.arrivals.push_back({std::string(bytes, one * count), transfer.owner->now_s()});
        transfer.received += one * count;
        const int64_t limit = transfer.request->abort_after_bytes;
        if (limit > 0 && transfer.received >= static_cast<size_t>(limit)) {
            transfer.reply.aborted = true;
            return 0;
        }
        return one * count;
    }
    static int look(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
        return static_cast<Transfer*>(self)->owner->is_stopped() ? 1 : 0;
    }
    void release() {
        if (easy != nullptr) curl_easy_cleanup(easy);
        curl_slist_free_all(headers);
        easy = nullptr;
        headers = nullptr;
    }
};

Result<std::string> base_url(const std::string& url) {
    const bool is_http = url.starts_with("http://") || url.starts_with("https://");
    const size_t host = url.find("://") + 3;
    if (!is_http || host >= url.size())
        return error("{:?} is no address of a server: wanted http://HOST:PORT or https://HOST", url);
    if (url.find('@', host) != std::string::npos && url.find('@', host) < url.find('/', host))
        return error("the address has a user or password in it: give the key in the environment (--key-env NAME)");
    if (url.find_first_of(" ?#", host) != std::string::npos)
        return error("{:?}: wanted the server's address without ?, # and spaces", url);
    std::string base = url;
    while (base.ends_with('/')) base.pop_back();
    for (const char* end : {"/chat/completions", "/completions", "/v1"}) {
        if (base.ends_with(end)) base.resize(base.size() - std::string(end).size());
    }
    while (base.ends_with('/')) base.pop_back();
    return base;
}

Result<std::string> find_ca_file(const std::string& flag) {
    std::string where = "--ca";
    std::string path = flag;
    for (const char* name : {"SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"}) {
        const char* value = std::getenv(name);
        if (!path.empty() || value == nullptr) continue;
        where = name;
        path = value;
    }
    if (!path.empty()) {
        if (is_readable(path)) return path;
        return error("{}: {} cannot be read: wanted a file with certificates (PEM)", where, path);
    }
    const char* own = curl_version_info(CURLVERSION_NOW)->cainfo;
    if (own != nullptr && is_readable(own)) return std::string();
    // Of Debian, Fedora, Alpine and SUSE: a libcurl that a wheel brings knows only those of the system that built it.
    for (const char* place : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                              "/etc/ssl/cert.pem", "/etc/ssl/ca-bundle.pem"}) {
        if (is_readable(place)) return std::string(place);
    }
    return std::string();
}

Result<std::unique_ptr<CurlTransport>> CurlTransport::create(CurlConfig config) {
    ASSIGN_OR_RETURN(std::string base, base_url(config.url));
    if (config.api_key.find_first_of("\r\n") != std::string::npos)
        return error("the API key has a line break in it: look at the environment variable");
    curl_global_init(CURL_GLOBAL_DEFAULT);
    return std::unique_ptr<CurlTransport>(new CurlTransport(std::move(config), std::move(base)));
}

CurlTransport::CurlTransport(CurlConfig config, std::string base)
    : config_(std::move(config)), base_(std::move(base)), multi_(curl_multi_init()), began_s_(steady_s()) {}

CurlTransport::~CurlTransport() { curl_multi_cleanup(multi_); }

double CurlTransport::now_s() const { return steady_s() - began_s_; }

void CurlTransport::start(Transfer& transfer) {
    transfer.release();
    const int retries = transfer.reply.num_retries;
    transfer.reply = {};
    transfer.reply.num_retries = retries;
    transfer.received = 0;
    CURL* easy = transfer.easy = curl_easy_init();
    const std::string url = base_ + transfer.request->path;
    curl_easy_setopt(easy, CURLOPT_URL, url.c_str());
    curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(easy, CURLOPT_PRIVATE, &transfer);
    curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, transfer.message);
    curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, &Transfer::take);
    curl_easy_setopt(easy, CURLOPT_WRITEDATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(easy, CURLOPT_XFERINFOFUNCTION, &Transfer::look);
    curl_easy_setopt(easy, CURLOPT_XFERINFODATA, &transfer);
    curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(config_.timeout_s * 1000));
    curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(config_.connect_timeout_s * 1000));
    if (!config_.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, config_.ca_file.c_str());
    curl_easy_setopt(easy, CURLOPT_USERAGENT, "verbatim-audit");
    curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "");
    // "Expect:" empty: no second of waiting for a 100 before long prompts.
    transfer.headers = curl_slist_append(transfer.headers, "Expect:");
    if (!transfer.request->body.empty()) {
        transfer.headers = curl_slist_append(transfer.headers, "Content-Type: application/json");
        curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer.request->body.size()));
        curl_easy_setopt(easy, CURLOPT_POSTFIELDS, transfer.request->body.c_str());
    }
    if (!config_.api_key.empty()) {
        const std::string header = "Authorization: Bearer " + config_.api_key;
        transfer.headers = curl_slist_append(transfer.headers, header.c_str());
    }
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, transfer.headers);
    transfer.reply.sent_s = now_s();
    transfer.running = true;
    curl_multi_add_handle(multi_, easy);
}

void CurlTransport::finish(Transfer& transfer, int code) {
    HttpReply& reply = transfer.reply;
    long status = 0;
    curl_off_t retry_after = 0;
    char* type = nullptr;
    curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    curl_easy_getinfo(transfer.easy, CURLINFO_RETRY_AFTER, &retry_after);
    curl_easy_getinfo(transfer.easy, CURLINFO_CONTENT_TYPE, &type);
    reply.status = static_cast<int>(status);
    reply.content_type = type != nullptr ? type : "";
    reply.done_s = now_s();
    if (code != CURLE_OK && !reply.aborted) {
        const char* said = transfer.message[0] != '\0' ? transfer.message : curl_easy_strerror(CURLcode(code));
        reply.problem = is_stopped() ? "interrupted" : said + advice_of(code);
    }
    curl_multi_remove_handle(multi_, transfer.easy);
    transfer.release();
    transfer.running = false;
    const double wait_s = retry_after > 0 ? static_cast<double>(retry_after) : std::exp2(reply.num_retries);
    if (transfer.request->is_retried && is_busy(reply.status) && reply.num_retries < config_.max_retries &&
        wait_s <= config_.max_retry_wait_s && !is_stopped()) {
        ++reply.num_retries;
        transfer.not_before_s = now_s() + wait_s;
        return;
    }
    transfer.done = true;
}

std::vector<HttpReply> CurlTransport::send(std::span<const HttpRequest> requests) {
    std::vector<std::unique_ptr<Transfer>> transfers;
    for (const HttpRequest& request : requests) {
        transfers.push_back(std::make_unique<Transfer>());
        transfers.back()->request = &request;
        transfers.back()->owner = this;
    }
    const auto is_done = [](const auto& transfer) { return transfer->done; };
    while (!std::ranges::all_of(transfers, is_done)) {
        for (const auto& transfer : transfers) {
            if (transfer->done || transfer->running) continue;
            if (is_stopped()) {
                transfer->reply.problem = "interrupted";
                transfer->done = true;
            } else if (transfer->not_before_s <= now_s()) {
                start(*transfer);
            }
        }
        int num_running = 0;
        curl_multi_perform(multi_, &num_running);
        int num_messages = 0;
        while (CURLMsg* message = curl_multi_info_read(multi_, &num_messages)) {
            if (message->msg != CURLMSG_DONE) continue;
            Transfer* transfer = nullptr;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
            finish(*transfer, message->data.result);
        }
        if (num_running > 0)
            curl_multi_poll(multi_, nullptr, 0, 50, nullptr);
        else if (!std::ranges::all_of(transfers, is_done))
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::vector<HttpReply> replies;
    for (const auto& transfer : transfers) replies.push_back(std::move(transfer->reply));
    return replies;
}

}  // namespace verbatim::audit
