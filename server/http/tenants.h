// server/http/tenants.h: owns authentication: API keys, the tenants that they belong to, and the salts that separate
// tenants.
//
//   K1  the time of find() is independent of the keys: all of them are compared, completely
//   K2  salts of different tenants differ for every cache_salt; without keys the salt is the cache_salt
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/result.h"
#include "engine/request/request.h"

namespace verbatim::server {

// Constant time: compares every byte. REQUIRES: equal sizes.
template <typename Bytes>
[[nodiscard]] bool equal_whole(const Bytes& a, const Bytes& b) {
    volatile uint8_t difference = 0;  // keeps the compiler from skipping bytes
    for (size_t at = 0; at < a.size(); ++at) difference = static_cast<uint8_t>(difference | (a[at] ^ b[at]));
    return difference == 0;
}

class Tenants {
public:
    Tenants() = default;  // every request is allowed, without a key
    // Lines `TENANT KEY`; empty lines and those that begin with # are ignored. Errors name file and line.
    static Result<Tenants> read(const std::string& path);
    static Result<Tenants> parse(std::string_view text, const std::string& path);

    [[nodiscard]] bool ask_for_keys() const { return !keys_.empty(); }
    // The tenant of an `Authorization` value ("Bearer KEY"); empty: an unknown key.
    [[nodiscard]] std::optional<std::string> find(std::string_view authorization) const;
    // The tenant of a key.
    [[nodiscard]] std::optional<std::string> find_key(std::string_view key) const;

private:
    static constexpr size_t kMaxKeyBytes = 256;
    struct Key {
        std::string tenant;
        std::array<uint8_t, kMaxKeyBytes> bytes{};  // padded with zeros
    };
    static Result<Key> read_line(std::string_view line);
    std::vector<Key> keys_;
};

// The salt under which state is shared. No tenant: the server has no keys. REQUIRES: no control characters in either.
[[nodiscard]] CacheSalt salt_of(const std::optional<std::string>& tenant, const std::optional<std::string>& cache_salt);

}  // namespace verbatim::server
