#include "server/ledger/postgres_database.h"

#include <libpq-fe.h>
#include <poll.h>

#include <chrono>
#include <thread>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr Oid kBigint = 20;
constexpr Oid kBytea = 17;
constexpr int64_t kLockKey = 0x5665726261746d;  // of the advisory lock: "Verbatm"

std::string one_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    for (char& c : text) c = c == '\n' ? ' ' : c;
    return text;
}

// As libpq takes them: integers and bytes in their binary form.
struct Parameters {
    explicit Parameters(std::span<const SqlValue> values) {
        numbers.reserve(values.size());
        for (const SqlValue& value : values) {
            if (const auto* number = std::get_if<int64_t>(&value)) {
                std::string& big_endian = numbers.emplace_back();
                for (int shift = 56; shift >= 0; shift -= 8)
                    big_endian += static_cast<char>(static_cast<uint64_t>(*number) >> shift & 0xff);
                add(kBigint, &big_endian);
            } else {
                add(kBytea, std::get_if<std::string>(&value));
            }
        }
    }
    void add(Oid type, const std::string* bytes) {
        types.push_back(type);
        data.push_back(bytes == nullptr ? nullptr : bytes->data());
        lengths.push_back(bytes == nullptr ? 0 : static_cast<int>(bytes->size()));
        formats.push_back(1);
    }
    std::vector<std::string> numbers;
    std::vector<Oid> types;
    std::vector<const char*> data;
    std::vector<int> lengths;
    std::vector<int> formats;
};

SqlValue value_of(const PGresult* result, int row, int column) {
    if (PQgetisnull(result, row, column) != 0) return {};
    const std::string bytes(PQgetvalue(result, row, column), static_cast<size_t>(PQgetlength(result, row, column)));
    if (PQftype(result, column) == kBytea) return bytes;
    uint64_t number = 0;
    for (const char c : bytes) number = number << 8 | static_cast<unsigned char>(c);
    return static_cast<int64_t>(number);
}

}  // namespace

void PostgresDatabase::Finish::operator()(pg_conn* connection) const { PQfinish(connection); }
void PostgresDatabase::Clear::operator()(pg_result* result) const { PQclear(result); }

PostgresDatabase::PostgresDatabase(std::string url, PostgresLimits limits) : url_(std::move(url)), limits_(limits) {}
PostgresDatabase::~PostgresDatabase() = default;

// Without user and password, which stand before the @, and without options, which may hold one.
std::string PostgresDatabase::where() const {
    const size_t host = url_.find("://") + 3;
    const size_t end = std::min(url_.find('?'), url_.size());
    const size_t at = url_.rfind('@', end);
    return url_.substr(0, host) +
           (at == std::string::npos ? url_.substr(host, end - host) : url_.substr(at + 1, end - at - 1));
}

tl::unexpected<Error> PostgresDatabase::last_error() const {
    const std::string text = connection_ ? one_line(PQerrorMessage(connection_.get())) : "there is no connection";
    return tl::unexpected(Error{text, ErrorKind::kMachine});
}

Status PostgresDatabase::connect() {
    RETURN_IF_ERROR(connect_once());
    return take_lock(limits_.lock_ms);
}

Status PostgresDatabase::connect_once() {
    // What comes before dbname is what the URL may say otherwise.
    const char* const names[] = {"connect_timeout", "keepalives_idle",  "tcp_user_timeout",
                                 "dbname",          "application_name", nullptr};
    const char* const values[] = {"10", "10", "10000", url_.c_str(), "verbatim", nullptr};
    connection_.reset();  // its lock goes with it
    connection_.reset(PQconnectdbParams(names, values, /*expand_dbname=*/1));
    if (PQstatus(connection_.get()) != CONNECTION_OK) {
        auto problem = last_error();
        connection_.reset();
        return problem;
    }
    PQsetnonblocking(connection_.get(), 1);  // a server that reads nothing is not waited for either
    PQsetNoticeProcessor(
        connection_.get(), [](void*, const char*) {}, nullptr);
    // A transaction has ended when the server has it on its disk, whatever is usual there.
    RETURN_IF_ERROR(run("SET synchronous_commit TO on", {}));
    return check_syncs();
}

// No session can turn fsync on: a server without it keeps nothing through a power cut.
Status PostgresDatabase::check_syncs() {
    const char* const sql = "SELECT CASE WHEN current_setting('fsync') = 'on' THEN 1::BIGINT ELSE 0::BIGINT END";
    ASSIGN_OR_RETURN(const auto syncs, rows(sql, {}));
    if (syncs.size() == 1 && syncs[0][0] == SqlValue(int64_t{1})) return {};
    connection_.reset();
    return error(
        "its server runs with fsync = off and would lose answered turns with its machine: set fsync = on there, or "
        "choose another --ledger");
}

// Of the session: it goes with the connection, however this process ends.
Status PostgresDatabase::take_lock(int64_t limit_ms) {
    CHECK(connection_ != nullptr);
    const auto deadline = steady_clock::now() + milliseconds(limit_ms);
    while (true) {
        const std::string sql =
            fmt::format("SELECT CASE WHEN pg_try_advisory_lock({}) THEN 1::BIGINT ELSE 0::BIGINT END", kLockKey);
        ASSIGN_OR_RETURN(const auto taken, rows(sql, {}));
        if (taken.size() == 1 && taken[0][0] == SqlValue(int64_t{1})) return {};
        if (steady_clock::now() >= deadline) break;
        std::this_thread::sleep_for(milliseconds(20));
    }
    connection_.reset();
    return tl::unexpected(
        Error{"another server has it in hand: stop that one, or choose another --ledger", ErrorKind::kMachine});
}

Status PostgresDatabase::recover() {
    if (PQtransactionStatus(connection_.get()) == PQTRANS_IDLE) return {};
    if (run("ROLLBACK", {})) return {};  // not where the connection is lost
    RETURN_IF_ERROR(connect_once());
    return take_lock(0);
}

// A server that is cut off says nothing: then the connection goes, and the caller hears of it.
Status PostgresDatabase::wait_for_answer() {
    const auto deadline = steady_clock::now() + milliseconds(limits_.answer_ms);
    pg_conn* connection = connection_.get();
    CHECK(connection != nullptr, "{} was asked nothing", where());
    for (int64_t left = limits_.answer_ms; left > 0;) {
        const int unsent = PQflush(connection);
        if (PQconsumeInput(connection) == 0) return last_error();
        if (unsent == 0 && PQisBusy(connection) == 0) return {};
        pollfd ready{PQsocket(connection), static_cast<int16_t>(POLLIN | (unsent > 0 ? POLLOUT : 0)), 0};
        poll(&ready, 1, static_cast<int>(left));  // ends early where a signal comes
        left = std::chrono::duration_cast<milliseconds>(deadline - steady_clock::now()).count();
    }
    connection_.reset();
    return tl::unexpected(Error{fmt::format("no answer for {} ms", limits_.answer_ms), ErrorKind::kMachine});
}

Result<PostgresDatabase::Answer> PostgresDatabase::ask(const std::string& sql, std::span<const SqlValue> values) {
    if (!connection_) return last_error();
    const Parameters with(values);
    const int sent =
        PQsendQueryParams(connection_.get(), sql.c_str(), static_cast<int>(with.data.size()), with.types.data(),
                          with.data.data(), with.lengths.data(), with.formats.data(), /*resultFormat=*/1);
    if (sent == 0) return last_error();
    Answer last;
    while (true) {
        RETURN_IF_ERROR(wait_for_answer());
        Answer answer(PQgetResult(connection_.get()));
        if (!answer) break;
        last = std::move(answer);
    }
    const ExecStatusType status = PQresultStatus(last.get());
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return last;
    return tl::unexpected(Error{one_line(PQresultErrorMessage(last.get())), ErrorKind::kMachine});
}

Result<int64_t> PostgresDatabase::run(const std::string& sql, std::span<const SqlValue> values) {
    ASSIGN_OR_RETURN(const Answer answer, ask(sql, values));
    int64_t changed = 0;
    for (const char* digit = PQcmdTuples(answer.get()); *digit >= '0' && *digit <= '9'; ++digit)
        changed = changed * 10 + (*digit - '0');
    return changed;
}

Result<std::vector<SqlRow>> PostgresDatabase::rows(const std::string& sql, std::span<const SqlValue> values) {
    ASSIGN_OR_RETURN(const Answer answer, ask(sql, values));
    std::vector<SqlRow> found;
    for (int row = 0; row < PQntuples(answer.get()); ++row) {
        SqlRow& values_of_row = found.emplace_back();
        for (int column = 0; column < PQnfields(answer.get()); ++column)
            values_of_row.push_back(value_of(answer.get(), row, column));
    }
    return found;
}

Result<bool> PostgresDatabase::has_table(const std::string& name) {
    const SqlValue values[] = {name};
    ASSIGN_OR_RETURN(const auto found, rows("SELECT 1::BIGINT FROM information_schema.tables WHERE table_schema = "
                                            "current_schema() AND table_name = convert_from($1, 'UTF8')",
                                            values));
    return !found.empty();
}

}  // namespace verbatim::server
