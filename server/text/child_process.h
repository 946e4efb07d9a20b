// server/text/child_process.h: owns a child process that runs a Python script, and the socket to it. A line goes in; a
// line, a kind and a size, comes back, and so many bytes behind it.
//
//   C1  every call ends at its deadline
//   C2  the process has limited memory, writes no files, keeps none of its parent's open, and dies with its parent
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/result.h"

namespace verbatim::text {

struct ChildProgram {
    std::string script;
    std::string interpreter = "/usr/bin/python3";  // Debian's, for which python3-jinja2 is installed
};

class ChildProcess {
public:
    using TimePoint = std::chrono::steady_clock::time_point;
    struct Answer {
        std::string kind;
        std::string bytes;
    };
    enum class Failure : uint8_t { kNone, kTooLate, kTooLong, kEnded };

    // `memory_bytes`: of address space. Errors: no socket, no process.
    static Result<std::unique_ptr<ChildProcess>> start(const ChildProgram& program, uint64_t memory_bytes);
    ChildProcess(const ChildProcess&) = delete;
    ChildProcess& operator=(const ChildProcess&) = delete;
    ~ChildProcess();  // kills it

    // The line goes out as the process takes it in: in this call, and while an answer is waited for.
    void post(std::string_view line);
    // False: failure() says why, and the process is of no further use.
    [[nodiscard]] bool send(std::string_view line, TimePoint deadline);
    // Of an answer with more than `max_bytes`, or none before the deadline: false.
    [[nodiscard]] bool receive(Answer& answer, TimePoint deadline, size_t max_bytes);
    // Whether something can be received, an end perhaps: waits for it up to the deadline.
    [[nodiscard]] bool has_answer(TimePoint deadline);
    [[nodiscard]] Failure failure() const { return failure_; }

private:
    ChildProcess(pid_t pid, int socket) : pid_(pid), socket_(socket) {}
    [[nodiscard]] bool wait_for_answer(TimePoint deadline);
    [[nodiscard]] bool wait_for(short events, TimePoint deadline) const;
    [[nodiscard]] bool send_some();
    [[nodiscard]] bool fail(Failure why);
    [[nodiscard]] bool read_more(TimePoint deadline);

    pid_t pid_;
    int socket_;
    std::string unsent_;
    std::string received_;  // and not taken yet
    Failure failure_ = Failure::kNone;
};

}  // namespace verbatim::text
