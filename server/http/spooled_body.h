// server/http/spooled_body.h: owns a file in which a request's body lies: no more than a piece of it is in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/base/result.h"

namespace verbatim::server {

class SpooledBody {
public:
    // An empty file in the folder, NAME.partial: what a process that is killed leaves of it is known as unfinished.
    // Errors: the system's.
    static Result<SpooledBody> create(const std::filesystem::path& folder);
    SpooledBody(SpooledBody&& other) noexcept
        : path_(std::exchange(other.path_, {})), descriptor_(std::exchange(other.descriptor_, -1)) {}
    SpooledBody& operator=(SpooledBody&&) = delete;
    ~SpooledBody();  // the file goes

    // Errors: the system's; the disk is full.
    Status add(std::string_view piece);
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

private:
    SpooledBody(std::filesystem::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
    std::filesystem::path path_;
    int descriptor_ = -1;
};

}  // namespace verbatim::server
