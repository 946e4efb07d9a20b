// server/http/http_server.h: owns the listening socket and all connections: one thread for all of them, and the threads
// that parse JSON and tokenize (server/http/endpoints.h).
//
//   W1  every check that can fail runs before a stream's status 200 is sent
//   W2  a stream ends in [DONE], or in an error event without it
//   W3  when a client disconnects its turn is aborted, whether it is queued, in prefill or decoding
//   W4  no client can delay another one: unread, long and slow data are bounded
//   W5  errors that do not depend on the body are sent before the body is read
#pragma once

#include <cstddef>
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
    // `page`: the contents of /
    explicit HttpServer(HttpConfig config, Tenants tenants = {}, std::string page = {});
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;
    ~HttpServer();

    // Binds and listens; returns the port. Errors: the address is invalid, or in use.
    Result<uint16_t> listen();
    // Serves until stop() or, with `signals`, SIGTERM or SIGINT: running requests are finished first; a second signal
    // ends the server. Until serve() it is live and not ready. REQUIRES: listen() returned a port.
    void run(bool signals);
    // Thread-safe.
    void serve(Service service);  // the model is loaded
    void stop();

    // For a caller that runs the loop itself, in place of run(): a simulation. All calls are on its thread.
    void take_in(int socket);      // owns a connected stream socket from now on, and serves it as if accepted
    size_t poll(size_t most = 1);  // does up to so much of what can be done without waiting; how much that was

private:
    class State;
    std::unique_ptr<State> state_;
};

}  // namespace verbatim::server
