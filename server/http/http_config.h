// server/http/http_config.h: owns the limits of the HTTP interface.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace verbatim::server {

struct HttpConfig {
    std::string address = "127.0.0.1";
    uint16_t port = 8000;  // 0: any free port
    uint32_t max_header_bytes = 64 * 1024;
    uint64_t max_body_bytes = uint64_t{32} << 20;
    uint64_t max_bytes_under_way = uint64_t{512} << 20;     // of all bodies longer than free_body_bytes
    uint64_t max_file_bytes_under_way = uint64_t{2} << 30;  // of all bodies that files hold: of heads
    uint64_t free_body_bytes = uint64_t{64} << 10;
    size_t max_connections = 4096;
    size_t max_unread_tokens = 8192;  // of one answer; a slower client is disconnected
    int64_t request_seconds = 60;     // for reading a whole request
    int64_t idle_seconds = 120;       // for a connection without a request
    int64_t write_seconds = 60;       // for a client to accept one piece
    int64_t ping_seconds = 15;        // a stream without tokens sends `:`
    int64_t drain_seconds = 30;       // after the first signal
    int send_buffer_bytes = 0;        // of a socket; 0: the system's default
    // Allowed origins, as browsers write them (https://host:port); "*": all.
    std::vector<std::string> cors_origins;
};

}  // namespace verbatim::server
