// server/http/http_server.h: owns the sockets: one thread for all of them, and one on which text becomes tokens.
//
//   W1  every check that can fail runs before a stream's status 200 is sent
//   W2  a stream ends in [DONE], or in an event with an error and without it
//   W3  a client that goes away has its turn aborted, whether it is queued, in prefill or decoding
//   W4  no client can make another one wait: what is unread, too long or too slow is bounded
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/result.h"
#include "server/http/service.h"

namespace verbatim::server {

struct HttpConfig {
    std::string address = "127.0.0.1";
    uint16_t port = 8000;  // 0: any free one
    uint32_t max_header_bytes = 64 * 1024;
    uint64_t max_body_bytes = uint64_t{32} << 20;
    size_t max_connections = 4096;
    int64_t request_seconds = 60;  // a request is read whole within it
    int64_t idle_seconds = 120;    // a connection without a request is kept
    int64_t write_seconds = 60;    // a reader may take so long for one piece
    int64_t ping_seconds = 15;     // a stream without tokens says `:`
    int64_t drain_seconds = 30;    // after the first signal
};

class HttpServer {
public:
    HttpServer(Service service, HttpConfig config);
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;
    ~HttpServer();

    // Binds and listens; the port. Errors: the address is none, or taken.
    Result<uint16_t> listen();
    // Serves until stop() or, with `signals`, SIGTERM or SIGINT: what runs is answered first; a second one ends it.
    // REQUIRES: listen() gave a port.
    void run(bool signals);
    void stop();  // from any thread

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace verbatim::server
