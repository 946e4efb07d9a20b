// `verbatim serve --record`: what clients asked over HTTP is recorded, and `verify` makes it again.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <nlohmann/json.hpp>

#include "tests/tools/program/run_program.h"

namespace verbatim::tools {
namespace {

using nlohmann::json;

// The program in a child process, from its start to a SIGTERM.
class Served {
public:
    explicit Served(const std::vector<std::string>& arguments) {
        std::array<int, 2> ends{};
        EXPECT_EQ(pipe(ends.data()), 0);
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
    [[nodiscard]] std::string post(const std::string& path, const json& body) const {
        const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port_);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        const std::string text = body.dump();
        const std::string request = fmt::format(
            "POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
            "Content-Length: {}\r\n\r\n{}",
            path, text.size(), text);
        EXPECT_EQ(send(socket, request.data(), request.size(), 0), std::ssize(request));
        std::string answer;
        std::array<char, 4096> piece{};
        for (ssize_t n = 0; (n = recv(socket, piece.data(), piece.size(), 0)) > 0;)
            answer.append(piece.data(), static_cast<size_t>(n));
        close(socket);
        return answer;
    }
    // Its exit code.
    [[nodiscard]] int end() const {
        kill(child_, SIGTERM);
        int status = -1;
        waitpid(child_, &status, 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }

private:
    pid_t child_ = -1;
    std::FILE* output_ = nullptr;
    uint16_t port_ = 0;
};

TEST(ServeRecord, WhatClientsAskedIsMadeAgain) {
    const tests::ScratchFolder files;
    const std::string path = files.path("served.rec");
    const Served served({"--threads", "1", "--cache", "32MiB", "--record", path, "--digests", "layers"});
    ASSERT_GT(served.port(), 0);
    for (const int max_tokens : {5, 9}) {
        const std::string answer = served.post("/v1/completions", {{"model", "tiny-python"},
                                                                   {"prompt", "def add(a, b):"},
                                                                   {"max_tokens", max_tokens},
                                                                   {"temperature", 1},
                                                                   {"seed", 7}});
        EXPECT_THAT(answer, testing::HasSubstr("200 OK"));
    }
    EXPECT_EQ(served.end(), kExitOk);
    const Outcome verified = run_verbatim({"verify", path, "--format", "json"});
    ASSERT_EQ(verified.exit_code, kExitOk) << verified.out << verified.err;
    const json result = json::parse(verified.out);
    EXPECT_EQ(result["identical"], true);
    EXPECT_GE(result["compared"]["tokens"], 5);
    EXPECT_GT(result["compared"]["operations"], 10);
    EXPECT_FALSE(result.contains("cut_off"));
    EXPECT_EQ(run_verbatim({"verify", path, "--under", "cache=off", "chunks=3", "--executor", "reference"}).exit_code,
              kExitOk);
}

}  // namespace
}  // namespace verbatim::tools
