#include "server/text/child_process.h"

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
#include <charconv>
#include <cstring>
#include <optional>
#include <system_error>

#include "engine/base/check.h"

namespace verbatim::text {
namespace {

using TimePoint = ChildProcess::TimePoint;

int milliseconds_until(TimePoint deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000'000));
}

void limit(__rlimit_resource what, rlim_t value) {
    const rlimit both{value, value};
    setrlimit(what, &both);
}

constexpr int kMostFiles = 1 << 16;  // to close one by one, on a system that cannot close all

// In the child, between fork and exec: system calls only.
[[noreturn]] void become(const char* const* arguments, int connection, uint64_t memory_bytes) {
    static const char* const kEnvironment[] = {"LANG=C.UTF-8", "PYTHONHASHSEED=0", "PATH=/usr/bin:/bin", nullptr};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CORE, 0);
    dup2(connection, STDIN_FILENO);
    dup2(connection, STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    // Clients' connections among them, which would not end before this process.
    if (close_range(STDERR_FILENO + 1, ~0U, 0) != 0) {
        for (int file = STDERR_FILENO + 1; file < kMostFiles; ++file) close(file);
    }
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    limit(RLIMIT_AS, memory_bytes);  // last: a sanitizer's own calls take memory
    execve(arguments[0], const_cast<char* const*>(arguments), const_cast<char* const*>(kEnvironment));
    _exit(127);
}

struct Head {
    std::string_view kind;
    size_t num_bytes = 0;
};

// "text N".
std::optional<Head> read_head(std::string_view line) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return std::nullopt;
    Head head{.kind = line.substr(0, space)};
    const char* const last = line.data() + line.size();
    const auto [end, problem] = std::from_chars(line.data() + space + 1, last, head.num_bytes);
    if (problem != std::errc() || end != last) return std::nullopt;
    return head;
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(const ChildProgram& program, uint64_t memory_bytes) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
        return tl::unexpected(Error{fmt::format("no socket: {}", strerror(errno)), ErrorKind::kMachine});
    // -I: neither the user's modules nor PYTHON* variables; -B: nothing is written.
    const std::array<const char*, 5> arguments = {program.interpreter.c_str(), "-I", "-B", program.script.c_str(),
                                                  nullptr};
    // What fits is written at once, without a switch from one process to the other for each part.
    for (const int one : ends) {
        const int bytes = 1 << 20;  // the system gives what it gives
        (void)setsockopt(one, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
    const pid_t pid = fork();
    if (pid == 0) become(arguments.data(), ends[1], memory_bytes);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return tl::unexpected(Error{fmt::format("no process: {}", strerror(errno)), ErrorKind::kMachine});
    }
    return std::unique_ptr<ChildProcess>(new ChildProcess(pid, ends[0]));
}

ChildProcess::~ChildProcess() {
    close(socket_);
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

bool ChildProcess::fail(Failure why) {
    CHECK(why != Failure::kNone);
    failure_ = why;
    return false;
}

void ChildProcess::post(std::string_view line) {
    CHECK(line.ends_with('\n'), "{} bytes that are no line", line.size());  // the process would wait for its end
    unsent_ += line;
    (void)send_some();  // what went wrong is said when an answer is missing
}

bool ChildProcess::send(std::string_view line, TimePoint deadline) {
    CHECK(line.ends_with('\n'), "{} bytes that are no line", line.size());
    unsent_ += line;
    while (send_some()) {
        if (unsent_.empty()) return true;
        if (!wait_for(POLLOUT, deadline)) return fail(Failure::kTooLate);
    }
    return false;
}

// What the socket takes now. False: the process has ended.
bool ChildProcess::send_some() {
    size_t end = 0;
    while (end < unsent_.size()) {
        const ssize_t sent = ::send(socket_, unsent_.data() + end, unsent_.size() - end, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            end += static_cast<size_t>(sent);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            return fail(Failure::kEnded);
        }
    }
    unsent_.erase(0, end);
    return true;
}

bool ChildProcess::receive(Answer& answer, TimePoint deadline, size_t max_bytes) {
    size_t line = 0;
    while ((line = received_.find('\n')) == std::string::npos) {
        if (received_.size() > max_bytes) return fail(Failure::kTooLong);
        if (!read_more(deadline)) return false;
    }
    const auto head = read_head(std::string_view(received_).substr(0, line));
    if (!head) return fail(Failure::kEnded);
    if (head->num_bytes > max_bytes) return fail(Failure::kTooLong);
    answer.kind = head->kind;
    const size_t begin = line + 1;
    const size_t end = begin + head->num_bytes;
    received_.reserve(end);
    while (received_.size() < end) {
        if (!read_more(deadline)) return false;
    }
    if (received_.size() == end && end > (size_t{1} << 16)) {  // a long one is not copied
        received_.erase(0, begin);
        answer.bytes = std::move(received_);
        received_.clear();
        return true;
    }
    answer.bytes.assign(received_, begin, head->num_bytes);
    received_.erase(0, end);
    return true;
}

bool ChildProcess::read_more(TimePoint deadline) {
    std::array<char, 65536> buffer;
    while (true) {
        const ssize_t got = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got > 0) {
            received_.append(buffer.data(), static_cast<size_t>(got));
            return true;
        }
        if (got == 0 || (errno != EAGAIN && errno != EINTR)) return fail(Failure::kEnded);
        if (!wait_for_answer(deadline)) return fail(Failure::kTooLate);
    }
}

// Meanwhile what is unsent goes out.
bool ChildProcess::wait_for_answer(TimePoint deadline) {
    while (!unsent_.empty()) {
        pollfd one{socket_, POLLIN | POLLOUT, 0};
        const int ready = poll(&one, 1, milliseconds_until(deadline));
        if (ready == 0 || (ready < 0 && errno != EINTR)) return false;
        if ((one.revents & ~POLLOUT) != 0) return true;
        if (!send_some()) return true;  // the end is received
    }
    return wait_for(POLLIN, deadline);
}

bool ChildProcess::has_answer(TimePoint deadline) { return !received_.empty() || wait_for_answer(deadline); }

bool ChildProcess::wait_for(short events, TimePoint deadline) const {
    while (true) {
        pollfd one{socket_, events, 0};
        const int ready = poll(&one, 1, milliseconds_until(deadline));
        if (ready > 0) return true;
        if (ready == 0 || errno != EINTR) return false;
    }
}

}  // namespace verbatim::text
