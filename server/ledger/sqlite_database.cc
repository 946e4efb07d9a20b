#include "server/ledger/sqlite_database.h"

#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

// A statement is done with when its rows are read, and may be run again.
struct Reset {
    void operator()(sqlite3_stmt* statement) const {
        sqlite3_reset(statement);
        sqlite3_clear_bindings(statement);
    }
};
using RunningStatement = std::unique_ptr<sqlite3_stmt, Reset>;

// SQLite numbers parameters in the order in which they first stand in the text; here are the numbers in their names.
std::vector<size_t> parameters_of(sqlite3_stmt* statement) {
    std::vector<size_t> numbers;
    for (int place = 1; place <= sqlite3_bind_parameter_count(statement); ++place)
        numbers.push_back(static_cast<size_t>(std::atoi(sqlite3_bind_parameter_name(statement, place) + 1)));
    return numbers;
}

// The parameter $1 is the first of the values; a statement may do without some of them.
void bind_values(sqlite3_stmt* statement, std::span<const size_t> parameters, std::span<const SqlValue> values) {
    int place = 0;
    for (const size_t number_of : parameters) {
        ++place;
        CHECK(number_of >= 1 && number_of <= values.size(), "${} of {} values", number_of, values.size());
        const SqlValue& value = values[number_of - 1];
        if (const auto* number = std::get_if<int64_t>(&value)) {
            sqlite3_bind_int64(statement, place, *number);
        } else if (const auto* bytes = std::get_if<std::string>(&value)) {
            sqlite3_bind_blob64(statement, place, bytes->data(), bytes->size(), SQLITE_STATIC);
        }
    }
}

SqlValue value_of(sqlite3_stmt* statement, int column) {
    const int type = sqlite3_column_type(statement, column);
    if (type == SQLITE_NULL) return {};
    if (type == SQLITE_INTEGER) return int64_t{sqlite3_column_int64(statement, column)};
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement, column));
    const auto size = static_cast<size_t>(sqlite3_column_bytes(statement, column));
    return bytes == nullptr ? std::string() : std::string(bytes, size);
}

}  // namespace

void SqliteDatabase::Close::operator()(sqlite3* database) const { sqlite3_close(database); }
void SqliteDatabase::Finalize::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

SqliteDatabase::SqliteDatabase(std::string file, WhereNone where_none)
    : file_(std::move(file)), where_none_(where_none) {}
SqliteDatabase::~SqliteDatabase() = default;

tl::unexpected<Error> SqliteDatabase::last_error() const {
    const int code = database_ ? sqlite3_extended_errcode(database_.get()) : SQLITE_CANTOPEN;
    const std::string text = database_ ? sqlite3_errmsg(database_.get()) : "it cannot be opened";
    if ((code & 0xff) == SQLITE_BUSY)
        return tl::unexpected(
            Error{"another server has it in hand: stop that one, or choose another --ledger", ErrorKind::kMachine});
    if (code == SQLITE_NOTADB) return error("it is no SQLite database: choose another --ledger");
    return tl::unexpected(Error{text, ErrorKind::kMachine});
}

// One writer: the file stays locked until this process ends, however it ends. What was committed is on the disk.
Status SqliteDatabase::connect() {
    statements_.clear();
    const auto folder = std::filesystem::path(file_).parent_path();
    if (std::error_code problem; !folder.empty() && !std::filesystem::is_directory(folder, problem))
        return error("the folder {} is not there: make it", folder.string());
    if (where_none_ == WhereNone::kRefuse) {
        std::error_code problem;
        if (!std::filesystem::exists(file_, problem)) return error("it is not there: is its name right?");
        if (std::filesystem::file_size(file_, problem) == 0) return error("it is empty: is its name right?");
    }
    sqlite3* opened = nullptr;
    const int create = where_none_ == WhereNone::kMake ? SQLITE_OPEN_CREATE : 0;
    const int code =
        sqlite3_open_v2(file_.c_str(), &opened, SQLITE_OPEN_READWRITE | create | SQLITE_OPEN_NOMUTEX, nullptr);
    database_.reset(opened);
    if (code != SQLITE_OK) return last_error();
    // With a write-ahead log, FULL and EXTRA sync it at every commit. The journal that a new file has before the log is
    // deleted under EXTRA with a sync of the folder: one that came back after a power cut would undo the whole ledger.
    for (const char* pragma :
         {"PRAGMA locking_mode = EXCLUSIVE", "PRAGMA synchronous = EXTRA", "PRAGMA journal_mode = WAL"})
        RETURN_IF_ERROR(rows(pragma, {}));
    RETURN_IF_ERROR(take_lock());
    return check_owner();
}

// Nothing is written into another program's database.
Status SqliteDatabase::check_owner() {
    ASSIGN_OR_RETURN(const bool ours, has_table("verbatim_ledger"));
    if (ours) return {};
    ASSIGN_OR_RETURN(const auto tables, rows("SELECT 1 FROM sqlite_master", {}));
    if (tables.empty()) return {};
    return error("it is the database of another program: choose another --ledger");
}

// Writes nothing, but asks for the right to.
Status SqliteDatabase::take_lock() {
    RETURN_IF_ERROR(run("BEGIN IMMEDIATE", {}));
    RETURN_IF_ERROR(run("COMMIT", {}));
    return {};
}

Status SqliteDatabase::recover() {
    if (!database_) return connect();
    if (sqlite3_get_autocommit(database_.get()) != 0) return {};
    RETURN_IF_ERROR(run("ROLLBACK", {}));
    return {};
}

Result<int64_t> SqliteDatabase::run(const std::string& sql, std::span<const SqlValue> values) {
    RETURN_IF_ERROR(rows(sql, values));
    return int64_t{sqlite3_changes64(database_.get())};
}

Result<const SqliteDatabase::Statement*> SqliteDatabase::prepare(const std::string& sql) {
    CHECK(database_ != nullptr, "{} is not open", file_);
    Statement& kept = statements_[sql];
    if (kept.prepared) return &kept;
    sqlite3_stmt* prepared = nullptr;
    if (sqlite3_prepare_v2(database_.get(), sql.c_str(), -1, &prepared, nullptr) != SQLITE_OK) return last_error();
    kept.prepared.reset(prepared);
    kept.parameters = parameters_of(prepared);
    return &kept;
}

Result<std::vector<SqlRow>> SqliteDatabase::rows(const std::string& sql, std::span<const SqlValue> values) {
    ASSIGN_OR_RETURN(const Statement* const statement, prepare(sql));
    sqlite3_stmt* const prepared = statement->prepared.get();
    const RunningStatement running(prepared);
    bind_values(prepared, statement->parameters, values);
    std::vector<SqlRow> found;
    const int num_columns = sqlite3_column_count(prepared);
    int code = SQLITE_ROW;
    while ((code = sqlite3_step(prepared)) == SQLITE_ROW) {
        SqlRow& row = found.emplace_back();
        row.reserve(static_cast<size_t>(num_columns));
        for (int column = 0; column < num_columns; ++column) row.push_back(value_of(prepared, column));
    }
    if (code != SQLITE_DONE) return last_error();
    return found;
}

Result<bool> SqliteDatabase::has_table(const std::string& name) {
    const SqlValue values[] = {name};
    ASSIGN_OR_RETURN(const auto found,
                     rows("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = CAST($1 AS TEXT)", values));
    return !found.empty();
}

}  // namespace verbatim::server
