#include "files/appended_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace verbatim::files {

Status append_to_file(const std::filesystem::path& path, std::string_view text) {
    constexpr mode_t kMode = 0644;
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
    int why = descriptor < 0 ? errno : 0;
    while (why == 0 && !text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written >= 0)
            text.remove_prefix(static_cast<size_t>(written));
        else if (errno != EINTR)
            why = errno;
    }
    if (why == 0 && ::fdatasync(descriptor) != 0) why = errno;
    if (descriptor >= 0) ::close(descriptor);
    if (why == 0) return {};
    const std::string problem = std::error_code(why, std::generic_category()).message();
    return tl::unexpected(Error{path.string() + ": " + problem, ErrorKind::kMachine});
}

}  // namespace verbatim::files
