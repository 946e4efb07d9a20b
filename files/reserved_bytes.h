// files/reserved_bytes.h: bytes of which only those that were written take memory; the others are zero.
#pragma once

#include <cstddef>
#include <span>

#include "engine/base/result.h"

namespace verbatim {

class ReservedBytes {
public:
    ReservedBytes() = default;
    // Errors: no address space is left.
    static Result<ReservedBytes> make(size_t num_bytes);
    ReservedBytes(ReservedBytes&& other) noexcept;
    ReservedBytes& operator=(ReservedBytes&& other) noexcept;
    ~ReservedBytes();

    // Where they lie does not change.
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

private:
    explicit ReservedBytes(std::span<std::byte> bytes) : bytes_(bytes) {}
    std::span<std::byte> bytes_;
};

}  // namespace verbatim
