#include "kernels/sandbox/source_files.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <regex>
#include <sstream>
#include <system_error>

#include "engine/base/check.h"
#include "files/repository_path.h"
#include "kernels/sandbox/compile_kernel.h"

namespace verbatim::sandbox {
namespace {

namespace fs = std::filesystem;

class Including {
public:
    explicit Including(std::vector<fs::path> folders) : folders_(std::move(folders)) {}

    void add(const fs::path& path) {
        CHECK(path.is_absolute(), "{}: a relative path", path.string());
        const auto [added, is_new] = files.emplace(path, said_in(path));
        if (!is_new) return;
        static const std::regex kInclude(R"re(^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"])re");
        std::istringstream lines(added->second);
        for (std::string line; std::getline(lines, line);) {
            std::smatch found;
            constexpr size_t kLongest = 4096;  // longer than a pattern is matched against
            if (line.size() > kLongest || !std::regex_search(line, found, kInclude)) continue;
            if (const auto header = found_at(path, found.str(2), found.str(1) == "\"")) add(*header);
        }
    }

    SourceFiles files;

private:
    [[nodiscard]] std::optional<fs::path> found_at(const fs::path& from, const std::string& name,
                                                   bool is_quoted) const {
        std::vector<fs::path> folders;
        if (is_quoted) folders.push_back(from.parent_path());
        std::ranges::copy(folders_, std::back_inserter(folders));
        const std::string own = fs::absolute(repository_path("kernels")).lexically_normal().string();
        for (const fs::path& folder : folders) {
            const fs::path path = (folder / name).lexically_normal();
            std::error_code ignored;
            if (fs::is_regular_file(path, ignored) && !path.string().starts_with(own)) return path;
        }
        return std::nullopt;
    }

    std::vector<fs::path> folders_;
};

}  // namespace

std::vector<fs::path> include_folders(const std::vector<std::string>& flags) {
    std::vector<fs::path> folders;
    for (size_t i = 0; i < flags.size(); ++i) {
        if (flags[i] == "-I" && i + 1 < flags.size()) folders.push_back(fs::absolute(flags[i + 1]));
        if (flags[i].starts_with("-I") && flags[i].size() > 2) folders.push_back(fs::absolute(flags[i].substr(2)));
    }
    return folders;
}

SourceFiles source_files_of(const fs::path& file, const std::vector<std::string>& flags) {
    Including including(include_folders(flags));
    including.add(fs::absolute(file).lexically_normal());
    CHECK(!including.files.empty(), "{}: no file", file.string());
    return std::move(including.files);
}

}  // namespace verbatim::sandbox
