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
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>
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
    limit(RLIMIT_FSIZE, 0);
    limit(RLIMIT_CORE, 0);
    dup2(connection, STDIN_FILENO);
    dup2(connection, STDOUT_FILENO);
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    limit(RLIMIT_AS, memory_bytes);  // last: a sanitizer's own calls take memory
    execve(arguments[0], const_cast<char* const*>(arguments), const_cast<char* const*>(kEnvironment));
    _exit(127);
}

// What the process says: how it went and how long its text is, in a line, and the text.
struct Answer {
    std::string bytes;
    size_t begin = 0;  // of the text
    size_t num_bytes = 0;
    std::string kind;  // text, refused, failed (server/text/render_chat.py)
    bool is_too_long = false;
};

// "text N".
bool read_head(std::string_view line, Answer& answer) {
    const size_t space = line.find(' ');
    if (space == std::string_view::npos) return false;
    answer.kind = line.substr(0, space);
    const char* const last = line.data() + line.size();
    const auto [end, problem] = std::from_chars(line.data() + space + 1, last, answer.num_bytes);
    return problem == std::errc() && end == last;
}

// Of an exception: where it was, for clients, and what it was, for the template's author.
TemplateProblem failure(const std::string& said) {
    const nlohmann::json problem = nlohmann::json::parse(said, nullptr, /*allow_exceptions=*/false);
    if (!problem.is_object()) return TemplateProblem({"the chat template failed"});
    std::string field = "messages";
    if (problem["message"].is_number()) field = fmt::format("messages[{}]", problem["message"].get<int64_t>());
    std::string line;
    if (problem["line"].is_number()) line = fmt::format(" at its line {}", problem["line"].get<int64_t>());
    return TemplateProblem(
        {fmt::format("the chat template cannot render {}{}: a member is missing there, or is not what "
                     "the template expects",
                     field, line)},
        field, problem["what"].get<std::string>() + line);
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

    // A line to it; a line back, and as many bytes behind it as it says. False at the deadline, at an answer that is
    // too long, or when it has ended.
    bool exchange(std::string_view question, Answer& answer, steady_clock::time_point deadline, size_t max_bytes) {
        while (!question.empty()) {
            if (!wait_for(POLLOUT, deadline)) return false;
            const ssize_t sent = send(socket_, question.data(), question.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
            if (sent > 0) question.remove_prefix(static_cast<size_t>(sent));
        }
        size_t end = 0;
        for (std::array<char, 65536> buffer; end == 0 || answer.bytes.size() < end;) {
            if (answer.bytes.size() > max_bytes || !wait_for(POLLIN, deadline)) return false;
            const ssize_t got = recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return false;
            if (got > 0) answer.bytes.append(buffer.data(), static_cast<size_t>(got));
            const size_t line = end == 0 ? answer.bytes.find('\n') : std::string::npos;
            if (line == std::string::npos) continue;
            if (!read_head(std::string_view(answer.bytes).substr(0, line), answer)) return false;
            answer.begin = line + 1;
            end = answer.begin + answer.num_bytes;
            answer.is_too_long = end > max_bytes;
            if (answer.is_too_long) return false;
            answer.bytes.reserve(end);
        }
        return answer.bytes.size() == end;
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
    const nlohmann::json first = {{"template", source_}, {"variables", variables_}};
    const auto started = ask(first.dump() + "\n", limits_.start_ms);
    if (!started) child_.reset();
    if (started) return {};
    const std::string& detail = started.error().detail;
    return detail.empty() ? error("{}", started.error().message) : error("the chat template: {}", detail);
}

Rendered<std::string> TemplateProcess::render(std::string_view variables, const RenderOptions& options) {
    if (!child_) {
        if (Status started = restart(); !started) return tl::unexpected(TemplateProblem(std::move(started).error()));
    }
    std::string question = fmt::format("{{\"now\":{},\"continues\":{},\"variables\":", options.now, options.continues);
    question.reserve(question.size() + variables.size() + 2);
    question.append(variables).append("}\n");
    return ask(question, limits_.render_ms);
}

Rendered<std::string> TemplateProcess::ask(const std::string& question, int64_t limit_ms) {
    const auto begin = steady_clock::now();
    const auto deadline = begin + std::chrono::milliseconds(limit_ms);
    const auto problem = [](std::string message) { return tl::unexpected(TemplateProblem({std::move(message)})); };
    Answer answer;
    if (!child_->exchange(question, answer, deadline, limits_.max_answer_bytes)) {
        child_.reset();
        if (steady_clock::now() >= deadline)
            return problem(fmt::format("chat template: no answer within {} ms: it was stopped", limit_ms));
        if (answer.is_too_long || answer.bytes.size() > limits_.max_answer_bytes)
            return problem(fmt::format("chat template: it makes more than {} bytes", limits_.max_answer_bytes));
        return problem(
            fmt::format("chat template: the process that renders it ended: {} -I {} (Debian: python3, python3-jinja2)",
                        program_.interpreter, program_.script));
    }
    answer.bytes.erase(0, answer.begin);
    if (answer.kind == "text") return std::move(answer.bytes);
    if (answer.kind == "refused") return problem("the chat template refuses the messages: " + answer.bytes);
    return tl::unexpected(failure(answer.bytes));
}

}  // namespace verbatim::text
