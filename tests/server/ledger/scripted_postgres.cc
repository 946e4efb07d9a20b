#include "tests/server/ledger/scripted_postgres.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace verbatim::tests {
namespace {

constexpr int32_t kBigint = 20;
constexpr int32_t kBytea = 17;

std::string big_endian(uint64_t value, int num_bytes) {
    std::string bytes;
    for (int i = num_bytes - 1; i >= 0; --i) bytes += static_cast<char>(value >> (8 * i) & 0xff);
    return bytes;
}

std::string int16(size_t value) { return big_endian(value, 2); }
std::string int32(int64_t value) { return big_endian(static_cast<uint64_t>(value), 4); }
std::string text(const std::string& value) { return value + '\0'; }

std::string message(char type, const std::string& body) { return type + int32(std::ssize(body) + 4) + body; }

// Takes a message apart.
class MessageReader {
public:
    explicit MessageReader(std::string bytes) : bytes_(std::move(bytes)) {}
    int64_t number(size_t num_bytes) {
        int64_t value = 0;
        for (const char c : take(num_bytes)) value = value << 8 | static_cast<unsigned char>(c);
        return value;
    }
    std::string text() {
        std::string value = take(bytes_.find('\0', next_) - next_);
        ++next_;
        return value;
    }
    std::string take(size_t num_bytes) {
        next_ += num_bytes;
        return bytes_.substr(next_ - num_bytes, num_bytes);
    }

private:
    std::string bytes_;
    size_t next_ = 0;
};

// Empty: the client has gone.
std::string read_bytes(int connection, size_t count) {
    std::string bytes(count, '\0');
    for (size_t done = 0; done < count;) {
        const ssize_t got = recv(connection, bytes.data() + done, count - done, 0);
        if (got <= 0) return "";
        done += static_cast<size_t>(got);
    }
    return bytes;
}

std::string read_sized(int connection) {
    const std::string size = read_bytes(connection, 4);
    return size.empty() ? "" : read_bytes(connection, static_cast<size_t>(MessageReader(size).number(4)) - 4);
}

std::string row_description(const SqlRow& first) {
    std::string body = int16(first.size());
    for (const SqlValue& value : first) {
        const int32_t type = std::holds_alternative<int64_t>(value) ? kBigint : kBytea;
        body += text("column") + int32(0) + int16(0) + int32(type) + int16(8) + int32(-1) + int16(1);
    }
    return message('T', body);
}

std::string data_row(const SqlRow& row) {
    std::string body = int16(row.size());
    for (const SqlValue& value : row) {
        if (const auto* number = std::get_if<int64_t>(&value)) {
            body += int32(8) + big_endian(static_cast<uint64_t>(*number), 8);
        } else if (const auto* bytes = std::get_if<std::string>(&value)) {
            body += int32(std::ssize(*bytes)) + *bytes;
        } else {
            body += int32(-1);
        }
    }
    return message('D', body);
}

std::string bytes_of(const ScriptedAnswer& answer) {
    std::string bytes = message('1', "") + message('2', "");
    if (!answer.notice.empty())
        bytes += message('N', "S" + text("NOTICE") + "C" + text("00000") + "M" + text(answer.notice) + '\0');
    if (answer.kind == ScriptedAnswer::Kind::kError) {
        const std::string detail = answer.detail.empty() ? "" : "D" + text(answer.detail);
        bytes += message('E', "S" + text("ERROR") + "C" + text("53100") + "M" + text(answer.error) + detail + '\0');
    } else {
        bytes += answer.rows.empty() ? message('n', "") : row_description(answer.rows.front());
        for (const SqlRow& row : answer.rows) bytes += data_row(row);
        bytes += message('C', text(answer.tag));
    }
    return bytes + message('Z', std::string(1, answer.state));
}

void read_parse(MessageReader body, SentStatement& statement) {
    static_cast<void>(body.text());
    statement.sql = body.text();
    for (int64_t left = body.number(2); left > 0; --left)
        statement.types.push_back(static_cast<int32_t>(body.number(4)));
}

void read_bind(MessageReader body, SentStatement& statement) {
    static_cast<void>(body.text());
    static_cast<void>(body.text());
    for (int64_t left = body.number(2); left > 0; --left) EXPECT_EQ(body.number(2), 1) << "a parameter as text";
    for (int64_t left = body.number(2); left > 0; --left) {
        const auto size = static_cast<int32_t>(body.number(4));
        auto& value = statement.values.emplace_back();
        if (size >= 0) value = body.take(static_cast<size_t>(size));
    }
    EXPECT_EQ(body.number(2), 1);
    EXPECT_EQ(body.number(2), 1) << "results as text";
}

}  // namespace

ScriptedPostgres::ScriptedPostgres(Script script) : script_(std::move(script)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, folder_.file(".s.PGSQL.5432").c_str(), sizeof address.sun_path - 1);
    listening_ = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(bind(listening_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listening_, 4), 0);
    thread_ = std::thread([this] { serve(); });
}

ScriptedPostgres::~ScriptedPostgres() {
    shutdown(listening_, SHUT_RDWR);
    thread_.join();
    close(listening_);
}

std::string ScriptedPostgres::url() const {
    return "postgresql://verbatim:secret@/postgres?host=" + folder_.path().string();
}

std::vector<SentStatement> ScriptedPostgres::statements() const {
    const std::lock_guard lock(mutex_);
    return statements_;
}

std::vector<std::string> ScriptedPostgres::parameters() const {
    const std::lock_guard lock(mutex_);
    return parameters_;
}

void ScriptedPostgres::serve() {
    while (true) {
        const int connection = accept(listening_, nullptr, nullptr);
        if (connection < 0) return;
        serve_connection(connection);
        close(connection);
    }
}

void ScriptedPostgres::serve_connection(int connection) {
    MessageReader start(read_sized(connection));
    EXPECT_EQ(start.number(4), 3 << 16) << "the protocol's version";
    std::vector<std::string> parameters;
    for (std::string word = start.text(); !word.empty(); word = start.text()) parameters.push_back(word);
    {
        const std::lock_guard lock(mutex_);
        parameters_ = parameters;
    }
    send(connection, message('R', int32(0)) + message('Z', "I"));
    SentStatement statement;
    for (bool reads = true; reads;) {
        const std::string type = read_bytes(connection, 1);
        if (type.empty() || type == "X") return;
        const MessageReader body(read_sized(connection));
        if (type == "P") read_parse(body, statement);
        if (type == "B") read_bind(body, statement);
        if (type != "S") continue;
        {
            const std::lock_guard lock(mutex_);
            statements_.push_back(statement);
        }
        const ScriptedAnswer answer = script_(std::exchange(statement, {}));
        if (answer.kind == ScriptedAnswer::Kind::kHangUp) return;
        if (answer.kind != ScriptedAnswer::Kind::kNone) send(connection, bytes_of(answer));
        reads = !answer.is_last;
    }
    // The client's end alone wakes it.
    pollfd ends{connection, POLLRDHUP, 0};
    static_cast<void>(poll(&ends, 1, -1));
}

void ScriptedPostgres::send(int connection, const std::string& bytes) const {
    const size_t piece = one_byte_at_a_time_ ? 1 : bytes.size();
    for (size_t done = 0; done < bytes.size();) {
        const ssize_t sent =
            ::send(connection, bytes.data() + done, std::min(piece, bytes.size() - done), MSG_NOSIGNAL);
        if (sent <= 0) return;
        done += static_cast<size_t>(sent);
    }
}

}  // namespace verbatim::tests
