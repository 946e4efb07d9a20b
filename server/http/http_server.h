// server/http/http_server.h: owns the listening socket and all connections: one thread for all of them, and those on
// which JSON is read and text becomes tokens (server/http/endpoints.h).
//
//   W1  every check that can fail runs before a stream's status 200 is sent
//   W2  a stream ends in [DONE], or in an event with an error and without it
//   W3  a client that goes away has its turn aborted, whether it is queued, in prefill or decoding
//   W4  no client can make another one wait: what is unread, too long or too slow is bounded
//   W5  what is wrong with a request whatever its body is, is said before the body is read
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/base/result.h"
#include "server/http/http_config.h"
#include "server/http/service.h"
#include "server/http/tenants.h"

namespace verbatim::server {

class HttpServer {
public:
    // `page`: what / shows.
    explicit HttpServer(HttpConfig config, Tenants tenants = {}, std::string page = {});
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;
    ~HttpServer();

    // Binds and listens; the port. Errors: the address is none, or taken.
    Result<uint16_t> listen();
    // Answers until stop() or, with `signals`, SIGTERM or SIGINT: what runs is answered first; a second one ends it.
    // Until serve() it is alive and not ready. REQUIRES: listen() gave a port.
    void run(bool signals);
    // From any thread.
    void serve(Service service);  // the model is loaded
    void stop();

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace verbatim::server
