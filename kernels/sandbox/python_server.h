// kernels/sandbox/python_server.h: owns the connection of the process that runs kernels to one that runs Python: one
// line of JSON for a call, one for its answer, the tensors in shared memory (tools/python/verbatim/kernel.py).
//
//   P1  the process starts with the first call, and ends with the one that has started it
//   P2  a function that raises, or returns what is not its outputs, is a failed call with its words; a process that
//       ends is a crash
#pragma once

#include <string>

#include "kernels/sandbox/kernel_board.h"
#include "kernels/sandbox/python_function.h"

namespace verbatim::sandbox {

class PythonServer {
public:
    PythonServer() = default;
    ~PythonServer();
    PythonServer(const PythonServer&) = delete;
    PythonServer& operator=(const PythonServer&) = delete;

    // The board's call; outputs are where its tensors lie.
    CallResult call(const PythonFunction& function, const Board& board);
    // Whether it has started a process, which lives on between calls.
    [[nodiscard]] bool has_process() const { return has_process_; }

private:
    [[nodiscard]] std::string connect(const PythonFunction& function, const Board& board);  // "" or what is wrong
    [[nodiscard]] bool read_line(std::string& line);

    int socket_ = -1;
    bool has_process_ = false;
    std::string pending_;  // read, and after the last line
};

}  // namespace verbatim::sandbox
