// tests/server/ledger/scripted_postgres.h: a thread that speaks PostgreSQL's protocol and answers as a script says.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/ledger/sql_database.h"
#include "tests/server/ledger/ledger_places.h"

namespace verbatim::tests {

// A statement as it came.
struct SentStatement {
    std::string sql;
    std::vector<int32_t> types;                      // of the parameters
    std::vector<std::optional<std::string>> values;  // binary
};

struct ScriptedAnswer {
    enum class Kind { kRows, kError, kNone, kHangUp };
    Kind kind = Kind::kRows;
    std::vector<SqlRow> rows;  // columns have the types of the first row
    std::string tag = "SELECT 0";
    std::string notice;  // before it
    std::string error;
    std::string detail;
    char state = 'I';      // of the transaction afterwards: I none, T open, E failed
    bool is_last = false;  // nothing is read after it
};

// One connection after another, on a socket in a temporary folder. The destructor waits for the last one's end.
class ScriptedPostgres {
public:
    using Script = std::function<ScriptedAnswer(const SentStatement&)>;
    explicit ScriptedPostgres(Script script);
    ScriptedPostgres(const ScriptedPostgres&) = delete;
    ScriptedPostgres& operator=(const ScriptedPostgres&) = delete;
    ~ScriptedPostgres();
    [[nodiscard]] std::string url() const;
    // Those of all connections that were read whole. An answer comes after its statement is here.
    [[nodiscard]] std::vector<SentStatement> statements() const;
    [[nodiscard]] std::vector<std::string> parameters() const;  // of the last connection's start: names and values
    void answer_in_pieces() { one_byte_at_a_time_ = true; }     // REQUIRES: no connection

private:
    void serve();
    void serve_connection(int connection);
    void send(int connection, const std::string& bytes) const;

    TestFolder folder_;
    Script script_;
    std::atomic<bool> one_byte_at_a_time_ = false;
    int listening_ = -1;
    mutable std::mutex mutex_;
    std::vector<SentStatement> statements_;
    std::vector<std::string> parameters_;
    std::thread thread_;
};

}  // namespace verbatim::tests
