#include "kernels/sandbox/python_server.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "kernels/sandbox/case_json.h"
#include "kernels/sandbox/element_values.h"

namespace verbatim::sandbox {
namespace {

using ServerJson = nlohmann::ordered_json;

// One byte, and the shared memory's descriptor with it.
bool send_memory(int socket, int memory_fd) {
    char byte = 'm';
    iovec data{&byte, 1};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory_fd, sizeof memory_fd);
    return sendmsg(socket, &message, MSG_NOSIGNAL) == 1;
}

bool send_line(int socket, std::string text) {
    text += '\n';
    for (size_t sent = 0; sent < text.size();) {
        const ssize_t count = send(socket, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
        if (count <= 0 && errno != EINTR) return false;
        if (count > 0) sent += static_cast<size_t>(count);
    }
    return true;
}

const char* role_word(Role role) { return role == Role::kIn ? "in" : role == Role::kOut ? "out" : "in_out"; }

// Names, and where the tensors lie in the shared memory.
std::string call_line(const Board& board) {
    const Operation& operation = *board.operation;
    const Placed& placed = board.placed;
    ServerJson call = {{"op", operation.name}, {"sizes", ServerJson::object()}, {"scalars", ServerJson::object()}};
    for (size_t i = 0; i < operation.sizes.size(); ++i) call["sizes"][operation.sizes[i].name] = placed.sizes[i];
    call["sizes"][operation.sizes[0].name] = placed.num_items;  // of a call of some of them, too
    for (size_t i = 0; i < operation.scalars.size(); ++i) {
        call["scalars"][operation.scalars[i]] = fmt::format("{:.9g}", placed.scalars[i]);
    }
    const std::vector<TensorSpec> specs = operation.tensors(placed.sizes);
    for (size_t i = 0; i < specs.size(); ++i) {
        const TensorSpec& spec = specs[i];
        const bool is_first_rows = spec.fill == Fill::kFirstRow;
        const int64_t units = spec.axis == Axis::kRow    ? placed.num_rows
                              : spec.axis == Axis::kItem ? placed.num_items
                                                         : 1;
        ServerJson tensor = {{"name", spec.name}, {"dtype", name(spec.dtype)}, {"role", role_word(spec.role)}};
        tensor["per_call"] = spec.axis == Axis::kCall;
        tensor["units"] = units;
        tensor["width"] = is_first_rows ? placed.num_items + 1 : board.tensors[i].unit_bytes / bytes_of(spec.dtype);
        tensor["stride"] = placed.stride[i];
        tensor["offset"] = nullptr;
        if (placed.data[i] != nullptr) tensor["offset"] = placed.data[i] - reinterpret_cast<const std::byte*>(&board);
        call["tensors"].push_back(std::move(tensor));
    }
    return json_text(call, -1);
}

CallResult ended(CallEnd end, std::string detail) {
    CallResult result;
    result.end = end;
    result.detail = std::move(detail);
    return result;
}

}  // namespace

PythonServer::~PythonServer() {
    if (socket_ >= 0) close(socket_);
}

std::string PythonServer::connect(const PythonFunction& function, const Board& board) {
    CHECK(socket_ < 0 && pending_.empty(), "{} bytes of the connection before", pending_.size());
    if (!function.socket.empty()) {
        sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
        if (function.socket.size() >= sizeof address.sun_path) return "the socket's path is too long";
        function.socket.copy(address.sun_path, function.socket.size());
        socket_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
            return fmt::format("{}: {}", function.socket, std::strerror(errno));
    } else {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return std::strerror(errno);
        const int theirs = dup(ends[1]);  // it stays open in the new process
        close(ends[1]);
        const std::vector<std::string> command =
            python_command({"serve", std::to_string(theirs), function.target, function.arrays});
        std::vector<char*> argv;
        for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
        argv.push_back(nullptr);
        pid_t python = 0;
        const int failed = posix_spawnp(&python, argv[0], nullptr, nullptr, argv.data(), environ);
        close(theirs);
        socket_ = ends[0];
        has_process_ = failed == 0;
        if (failed != 0) return fmt::format("python3 cannot be started: {}", std::strerror(failed));
    }
    return send_memory(socket_, board.memory_fd) ? "" : "Python does not answer";
}

bool PythonServer::read_line(std::string& line) {
    size_t end = pending_.find('\n');
    while (end == std::string::npos) {
        std::array<char, 4096> buffer;
        const ssize_t count = recv(socket_, buffer.data(), buffer.size(), 0);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) return false;
        pending_.append(buffer.data(), static_cast<size_t>(count));
        end = pending_.find('\n');
    }
    line = pending_.substr(0, end);
    pending_.erase(0, end + 1);
    return true;
}

CallResult PythonServer::call(const PythonFunction& function, const Board& board) {
    if (socket_ < 0) {
        if (const std::string problem = connect(function, board); !problem.empty())
            return ended(CallEnd::kFailed, problem);
    }
    std::string line;
    if (!send_line(socket_, call_line(board)) || !read_line(line)) {
        close(socket_);
        socket_ = -1;
        int status = 0;
        const bool is_known = has_process_ && waitpid(-1, &status, 0) > 0;
        has_process_ = false;
        pending_.clear();
        if (is_known && WIFSIGNALED(status))
            return ended(CallEnd::kCrash, fmt::format("the Python process ends: {}", strsignal(WTERMSIG(status))));
        return ended(CallEnd::kCrash, fmt::format("the Python process ends{}",
                                                  is_known ? fmt::format(" with code {}", WEXITSTATUS(status)) : ""));
    }
    const ServerJson answer = ServerJson::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object()) return ended(CallEnd::kFailed, fmt::format("Python answers {:?}", line));
    const std::string problem = answer.value("error", "");
    return ended(problem.empty() ? CallEnd::kDone : CallEnd::kFailed, problem);
}

}  // namespace verbatim::sandbox
