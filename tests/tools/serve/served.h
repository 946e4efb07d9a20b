// tests/tools/serve/served.h: `verbatim serve` in a child process, and requests over HTTP.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {

// The program in a child process, from its start to a SIGTERM.
class Served {
public:
    explicit Served(const std::vector<std::string>& arguments) {
        std::array<int, 2> ends{};
        EXPECT_EQ(pipe(ends.data()), 0);
        std::fflush(stdout);  // the child would write what is buffered, too
        child_ = fork();
        if (child_ == 0) {
            dup2(ends[1], STDOUT_FILENO);
            std::vector<const char*> argv = {"verbatim", "serve", "--port", "0", "--ledger", "none"};
            for (const std::string& argument : arguments) argv.push_back(argument.c_str());
            _exit(run_program(static_cast<int>(argv.size()), argv.data()));
        }
        close(ends[1]);
        output_ = fdopen(ends[0], "r");
        std::array<char, 256> line{};
        if (std::fgets(line.data(), line.size(), output_) == nullptr) return;
        const std::string text = line.data();
        const size_t colon = text.find("127.0.0.1:");
        if (colon != std::string::npos) port_ = static_cast<uint16_t>(std::stoi(text.substr(colon + 10)));
    }
    ~Served() { std::fclose(output_); }
    Served(const Served&) = delete;
    Served& operator=(const Served&) = delete;

    [[nodiscard]] uint16_t port() const { return port_; }
    // The whole answer.
    [[nodiscard]] std::string post(const std::string& path, const nlohmann::json& body) const {
        const std::string text = body.dump();
        return ask(
            fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        "Connection: close\r\nContent-Length: {}\r\n\r\n{}",
                        path, text.size(), text));
    }
    [[nodiscard]] std::string get(const std::string& path) const {
        return ask(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path));
    }
    // Its exit code.
    [[nodiscard]] int end() const {
        kill(child_, SIGTERM);
        int status = -1;
        waitpid(child_, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

private:
    [[nodiscard]] std::string ask(const std::string& request) const {
        const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port_);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        EXPECT_EQ(send(socket, request.data(), request.size(), 0), std::ssize(request));
        std::string answer;
        std::array<char, 4096> piece{};
        for (ssize_t n = 0; (n = recv(socket, piece.data(), piece.size(), 0)) > 0;)
            answer.append(piece.data(), static_cast<size_t>(n));
        close(socket);
        return answer;
    }

    pid_t child_ = -1;
    std::FILE* output_ = nullptr;
    uint16_t port_ = 0;
};

}  // namespace verbatim::tools
