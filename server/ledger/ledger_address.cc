#include "server/ledger/ledger_address.h"

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "server/ledger/postgres_database.h"
#include "server/ledger/sql_ledger_store.h"
#include "server/ledger/sqlite_database.h"

namespace verbatim::server {
namespace {

// A variable of the environment that names a folder.
std::string folder_of(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && value[0] == '/' ? value : "";
}

Result<std::unique_ptr<SqlDatabase>> database_of(const std::string& address, WhereNone where_none) {
    constexpr std::string_view kSqlite = "sqlite://";
    if (address.starts_with("postgresql://") || address.starts_with("postgres://"))
        return std::make_unique<PostgresDatabase>(address);
    std::string file = address;
    if (address.starts_with(kSqlite)) {
        file = address.substr(kSqlite.size());
        if (!file.starts_with('/'))
            return error("--ledger {}: a file is wanted after sqlite://, as in sqlite:///var/lib/verbatim/ledger",
                         address);
    } else if (address.find("://") != std::string::npos) {
        return error("--ledger {}: wanted a file, sqlite:///FILE, postgresql://HOST/DATABASE or none", address);
    }
    if (file.empty()) return error("--ledger: wanted a file, sqlite:///FILE, postgresql://HOST/DATABASE or none");
    return std::make_unique<SqliteDatabase>(std::move(file), where_none);
}

Result<std::unique_ptr<LedgerStore>> store_at(const std::string& address, WhereNone where_none) {
    ASSIGN_OR_RETURN(auto database, database_of(address, where_none));
    return std::make_unique<SqlLedgerStore>(std::move(database), ledger_migrations(), where_none);
}

}  // namespace

Result<std::unique_ptr<LedgerStore>> make_ledger_store(const std::string& address) {
    if (address == "none") return nullptr;
    return store_at(address, WhereNone::kMake);
}

Result<std::unique_ptr<LedgerStore>> existing_ledger_store(const std::string& address) {
    if (address == "none") return error("--ledger none: keeps no conversation");
    return store_at(address, WhereNone::kRefuse);
}

Result<std::string> default_ledger(const std::string& name) {
    std::string folder = folder_of("XDG_STATE_HOME");
    if (folder.empty()) folder = folder_of("HOME");
    if (folder.empty()) return error("no $HOME to keep conversations in: say --ledger FILE, or --ledger none");
    if (folder_of("XDG_STATE_HOME").empty()) folder += "/.local/state";
    folder += "/verbatim";
    std::error_code problem;
    std::filesystem::create_directories(folder, problem);
    if (problem) {
        return tl::unexpected(Error{fmt::format("{} cannot be made for the ledger: {}: say --ledger FILE, or --ledger "
                                                "none",
                                                folder, problem.message()),
                                    ErrorKind::kMachine});
    }
    return folder + "/" + name + ".ledger";
}

}  // namespace verbatim::server
