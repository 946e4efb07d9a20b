#include "server/http/spooled_body.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "engine/base/check.h"

namespace verbatim::server {
namespace {

Error machine_error(const std::filesystem::path& path) {
    return {path.string() + ": " + std::strerror(errno), ErrorKind::kMachine};
}

}  // namespace

Result<SpooledBody> SpooledBody::create(const std::filesystem::path& folder) {
    constexpr std::string_view kSuffix = ".partial";
    std::string name = (folder / "body-XXXXXX").string() + std::string(kSuffix);
    const int descriptor = ::mkostemps(name.data(), static_cast<int>(kSuffix.size()), O_CLOEXEC);
    if (descriptor < 0) return tl::unexpected(machine_error(folder));
    return SpooledBody(name, descriptor);
}

SpooledBody::~SpooledBody() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
}

Status SpooledBody::add(std::string_view piece) {
    CHECK(descriptor_ >= 0, "{} is another one's now", path_.string());
    while (!piece.empty()) {
        const ssize_t written = ::write(descriptor_, piece.data(), piece.size());
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return tl::unexpected(machine_error(path_));
        piece.remove_prefix(static_cast<size_t>(written));
    }
    return {};
}

}  // namespace verbatim::server
