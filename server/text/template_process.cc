#include "server/text/template_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

namespace verbatim::text {
namespace {

using std::chrono::steady_clock;

int milliseconds_until(steady_clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

void limit(__rlimit_resource what, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(what, &both);
}

// In the child, between fork and exec: system calls only.
[[noreturn]] void become(const char* const* arguments, int connection, uint64_t memory_bytes) {
    static const char* const kEnvironment[] = {"LANG=C.UTF-8", "PYTHONHASHSEED=0", "PATH=/usr/bin:/bin", nullptr};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit(RLIMIT_AS, memory_bytes);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CORE, 0);
    dup2(connection, STDIN_FILENO);
    dup2(connection, STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execve(arguments[0], const_cast<char* const*>(arguments), const_cast<char* const*>(kEnvironment));
    _exit(127);
}

}  // namespace

// A running process and the socket to it.
class TemplateProcess::Child {
public:
    static Result<std::unique_ptr<Child>> start(const TemplateProgram& program, uint64_t memory_bytes) {
        std::array<int, 2> ends{};
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
            return tl::unexpected(
                Error{fmt::format("chat template: no socket: {}", strerror(errno)), ErrorKind::kMachine});
        // -I: neither the user's modules nor PYTHON* variables; -B: nothing is written.
        const std::array<const char*, 5> arguments = {program.interpreter.c_str(), "-I", "-B", program.script.c_str(),
                                                      nullptr};
        const pid_t pid = fork();
        if (pid == 0) become(arguments.data(), ends[1], memory_bytes);
        close(ends[1]);
        if (pid < 0) {
            close(ends[0]);
            return tl::unexpected(
                Error{fmt::format("chat template: no process: {}", strerror(errno)), ErrorKind::kMachine});
        }
        return std::unique_ptr<Child>(new Child(pid, ends[0]));
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        close(socket_);
        kill(pid_, SIGKILL);
        while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    // One line to it, one line back. False at the deadline, at an answer that is too long, or when it has ended.
    bool exchange(std::string_view question, std::string& answer, steady_clock::time_point deadline, size_t max_bytes) {
        while (!question.empty()) {
            if (!wait_for(POLLOUT, deadline)) return false;
            const ssize_t sent = send(socket_, question.data(), question.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
            if (sent > 0) question.remove_prefix(static_cast<size_t>(sent));
        }
        while (!answer.ends_with('\n')) {
            std::array<char, 65536> buffer;
            if (answer.size() > max_bytes || !wait_for(POLLIN, deadline)) return false;
            const ssize_t got = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
            if (got > 0) answer.append(buffer.data(), static_cast<size_t>(got));
        }
        return true;
    }

private:
    Child(pid_t pid, int socket) : pid_(pid), socket_(socket) {}

    bool wait_for(short events, steady_clock::time_point deadline) const {
        while (true) {
            pollfd one{socket_, events, 0};
            const int ready = poll(&one, 1, milliseconds_until(deadline));
            if (ready > 0) return true;
            if (ready == 0 || errno != EINTR) return false;
        }
    }

    pid_t pid_;
    int socket_;
};

TemplateProcess::TemplateProcess(TemplateProgram program, std::string source, nlohmann::json variables,
                                 TemplateLimits limits)
    : program_(std::move(program)), source_(std::move(source)), variables_(std::move(variables)), limits_(limits) {}
TemplateProcess::TemplateProcess(TemplateProcess&&) noexcept = default;
TemplateProcess& TemplateProcess::operator=(TemplateProcess&&) noexcept = default;
TemplateProcess::~TemplateProcess() = default;

Result<TemplateProcess> TemplateProcess::start(TemplateProgram program, std::string source, nlohmann::json variables,
                                               TemplateLimits limits) {
    TemplateProcess process(std::move(program), std::move(source), std::move(variables), limits);
    RETURN_IF_ERROR(process.restart());
    return process;
}

Status TemplateProcess::restart() {
    ASSIGN_OR_RETURN(child_, Child::start(program_, limits_.memory_bytes));
    const auto started = ask({{"template", source_}, {"variables", variables_}}, limits_.start_ms);
    if (!started) child_.reset();
    if (!started) return tl::unexpected(started.error());
    return {};
}

Result<std::string> TemplateProcess::render(const nlohmann::ordered_json& variables, int64_t now) {
    if (!child_) RETURN_IF_ERROR(restart());
    ASSIGN_OR_RETURN(const nlohmann::json answer, ask({{"variables", variables}, {"now", now}}, limits_.render_ms));
    return answer.value("text", "");
}

Result<nlohmann::json> TemplateProcess::ask(const nlohmann::ordered_json& question, int64_t limit_ms) {
    const auto begin = steady_clock::now();
    const auto deadline = begin + std::chrono::milliseconds(limit_ms);
    std::string answer;
    if (!child_->exchange(question.dump() + "\n", answer, deadline, limits_.max_answer_bytes)) {
        child_.reset();
        if (steady_clock::now() >= deadline)
            return error("chat template: no answer within {} ms: it was stopped", limit_ms);
        if (answer.size() > limits_.max_answer_bytes)
            return error("chat template: it makes more than {} bytes", limits_.max_answer_bytes);
        return error("chat template: the process that renders it ended: {} -I {} (Debian: python3, python3-jinja2)",
                     program_.interpreter, program_.script);
    }
    const nlohmann::json parsed = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
    if (!parsed.is_object()) return error("chat template: it makes text that is not UTF-8");
    if (parsed.contains("error")) return error("chat template: {}", parsed.value("error", ""));
    return parsed;
}

}  // namespace verbatim::text
