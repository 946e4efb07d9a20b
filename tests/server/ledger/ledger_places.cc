#include "tests/server/ledger/ledger_places.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>
#include <vector>

#include "server/ledger/postgres_database.h"
#include "server/ledger/sqlite_database.h"

namespace verbatim::tests {
namespace {

namespace fs = std::filesystem;

// The user that runs a server of PostgreSQL: not root.
struct Runner {
    uid_t user = 0;
    gid_t group = 0;
    std::string name;
};

Runner runner() {
    const bool is_root = geteuid() == 0;
    const passwd* entry = is_root ? getpwnam("nobody") : getpwuid(geteuid());
    if (entry == nullptr) return {65534, 65534, "nobody"};
    return {entry->pw_uid, entry->pw_gid, entry->pw_name};
}

fs::path newest_postgres() {
    std::vector<fs::path> found;
    std::error_code problem;
    for (const auto& version : fs::directory_iterator("/usr/lib/postgresql", problem)) {
        if (fs::exists(version.path() / "bin/initdb") && fs::exists(version.path() / "bin/postgres"))
            found.push_back(version.path() / "bin");
    }
    return found.empty() ? fs::path() : *std::ranges::max_element(found);
}

// The process ends with this one.
pid_t start(const std::vector<std::string>& command, const std::string& log) {
    const Runner as = runner();
    const pid_t process = fork();
    if (process != 0) return process;
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
    dup2(out, STDOUT_FILENO);
    dup2(out, STDERR_FILENO);
    if (geteuid() == 0 && (setgid(as.group) != 0 || setuid(as.user) != 0)) _exit(126);
    prctl(PR_SET_PDEATHSIG, SIGQUIT);  // a change of the user takes it back
    if (chdir("/") != 0) _exit(126);
    std::vector<char*> words;
    for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    execv(words[0], words.data());
    _exit(127);
}

}  // namespace

TestFolder::TestFolder() {
    std::string name = (fs::temp_directory_path() / "verbatim-ledger-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
}

TestFolder::~TestFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

PostgresServer::PostgresServer(std::vector<std::string> settings) : settings_(std::move(settings)) {
    const fs::path programs = newest_postgres();
    if (programs.empty()) {
        why_not_ = "PostgreSQL's server is not installed (Debian: postgresql)";
        return;
    }
    const Runner as = runner();
    if (geteuid() == 0) EXPECT_EQ(chown(folder_.path().c_str(), as.user, as.group), 0);
    const std::string data = folder_.file("data");
    const std::string log = folder_.file("log");
    const pid_t making = start({(programs / "initdb").string(), "-D", data, "-A", "trust", "-U", "verbatim", "-E",
                                "UTF8", "--no-locale", "--no-sync"},
                               log);
    int status = 0;
    waitpid(making, &status, 0);
    if (status != 0) {
        why_not_ = "initdb failed, see " + log;
        return;
    }
    why_not_ = restart();
}

std::string PostgresServer::restart() {
    const std::string log = folder_.file("log");
    std::vector<std::string> command = {(newest_postgres() / "postgres").string(), "-D", folder_.file("data"), "-k",
                                        folder_.path().string()};
    std::vector<std::string> settings = settings_;
    settings.insert(settings.begin(), {"listen_addresses=", "max_connections=20"});
    for (const std::string& setting : settings) command.insert(command.end(), {"-c", setting});
    process_ = start(command, log);
    for (int i = 0; i < 2000; ++i) {
        if (answers()) return "";
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "the server does not answer, see " + log;
}

bool PostgresServer::answers() const {
    const Status connected = server::PostgresDatabase(url("public")).connect();
    return connected || connected.error().message.find("fsync") != std::string::npos;
}

void PostgresServer::crash() {
    kill(process_, SIGCONT);
    kill(process_, SIGQUIT);
    waitpid(std::exchange(process_, -1), nullptr, 0);
}

PostgresServer::~PostgresServer() {
    if (process_ > 0) crash();
}

void PostgresServer::signal(int number) const { kill(process_, number); }

// Schemas keep ledgers apart here: they are made in no time.
std::string PostgresServer::url(const std::string& schema) const {
    return fmt::format("postgresql://verbatim:secret@/postgres?host={}&options=-csearch_path%3D{}",
                       folder_.path().string(), schema);
}

void PostgresServer::make_schema(const std::string& name) const {
    server::PostgresDatabase postgres(url("public"));
    EXPECT_TRUE(postgres.connect());
    EXPECT_TRUE(postgres.run("CREATE SCHEMA " + name, {}));
}

template <typename Deed>
auto FaultyDatabase::meet(Deed deed) -> decltype(deed()) {
    const int64_t call = plan_.calls++;
    const bool fails = call >= plan_.first && call <= plan_.last;
    const auto fault = [&] { return tl::unexpected(Error{fmt::format("call {} failed", call), ErrorKind::kMachine}); };
    if (fails && plan_.fault == Fault::kBefore) return fault();
    auto done = deed();
    if (fails) return fault();
    return done;
}

Status FaultyDatabase::connect() {
    return meet([&] { return inner().connect(); });
}
Status FaultyDatabase::recover() {
    return meet([&] { return inner().recover(); });
}
Result<int64_t> FaultyDatabase::run(const std::string& sql, std::span<const SqlValue> values) {
    return meet([&] { return inner().run(sql, values); });
}
Result<std::vector<SqlRow>> FaultyDatabase::rows(const std::string& sql, std::span<const SqlValue> values) {
    return meet([&] { return inner().rows(sql, values); });
}
Result<bool> FaultyDatabase::has_table(const std::string& name) {
    return meet([&] { return inner().has_table(name); });
}

void EveryStore::SetUp() {
    if (!is_postgres()) return;
    server_ = std::make_unique<PostgresServer>();
    if (!server_->why_not().empty()) GTEST_SKIP() << server_->why_not();
}

std::string EveryStore::address(const std::string& name) {
    if (!is_postgres()) return folder_.file(name);
    if (std::ranges::find(made_, name) == made_.end()) {
        made_.push_back(name);
        server_->make_schema(name);
    }
    return server_->url(name);
}

std::unique_ptr<SqlDatabase> EveryStore::database(const std::string& name) {
    if (is_postgres()) return std::make_unique<server::PostgresDatabase>(address(name));
    return std::make_unique<server::SqliteDatabase>(address(name));
}

}  // namespace verbatim::tests
