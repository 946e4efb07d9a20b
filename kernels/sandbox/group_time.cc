#include "kernels/sandbox/group_time.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

// Of /proc/N/stat (proc(5)).
struct Stat {
    char state = ' ';
    pid_t group = 0;
    double seconds = 0;
};
Stat stat_of(const fs::path& file) {
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    // The name before it, in brackets, may have anything.
    std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
    Stat stat;
    std::string skipped;
    double user = 0, system = 0;
    fields >> stat.state >> skipped >> stat.group;
    for (int i = 0; i < 8; ++i) fields >> skipped;
    fields >> user >> system;
    stat.seconds = (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
    return stat;
}

bool is_running(const fs::path& process) {
    std::error_code gone;
    for (const auto& task : fs::directory_iterator(process / "task", gone)) {
        const char state = stat_of(task.path() / "stat").state;
        if (state == 'R' || state == 'D') return true;
    }
    return false;
}

}  // namespace

GroupUse use_of_group(pid_t group) {
    GroupUse use;
    std::error_code gone;
    for (const auto& process : fs::directory_iterator("/proc", gone)) {
        const std::string name = process.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        const Stat stat = stat_of(process.path() / "stat");
        if (stat.group != group) continue;
        use.seconds += stat.seconds;
        use.is_running = use.is_running || is_running(process.path());
    }
    return use;
}

void HangWatch::look(const GroupUse& now, double seconds) {
    const double more = last_ < 0 ? 0 : std::max(now.seconds - last_, 0.0);
    last_ = now.seconds;
    used_ += more;
    if (more == 0 && !now.is_running) asleep_ += seconds;
}

}  // namespace verbatim::sandbox
