// tests/benchmarks/loopback.h: owns a connection to a server on this machine.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

#include "engine/base/check.h"

namespace verbatim {

inline int connect_to(uint16_t port) {
    const int made = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_EQ(connect(made, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return made;
}

}  // namespace verbatim
