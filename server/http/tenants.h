// server/http/tenants.h: owns who may ask: API keys, the tenants that they belong to, and the salts that keep tenants
// apart.
//
//   K1  how long find() takes tells nothing about the keys: all of them are compared, whole
//   K2  salts of different tenants differ, whatever cache_salt they send; one without keys is the cache_salt
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

// Looks at every byte of both, wherever they differ. REQUIRES: equal sizes.
template <typename Bytes>
[[nodiscard]] bool equal_whole(const Bytes& a, const Bytes& b) {
    volatile uint8_t difference = 0;  // so that no byte is left out
    for (size_t at = 0; at < a.size(); ++at) difference = static_cast<uint8_t>(difference | (a[at] ^ b[at]));
    return difference == 0;
}

class Tenants {
public:
    Tenants() = default;  // anybody may ask, without a key
    // Lines `TENANT KEY`; empty ones and those that begin with # count nothing. Errors name file and line.
    static Result<Tenants> read(const std::string& path);
    static Result<Tenants> parse(std::string_view text, const std::string& path);

    [[nodiscard]] bool ask_for_keys() const { return !keys_.empty(); }
    // The tenant of what a client sent as `Authorization` ("Bearer KEY"); empty: nobody's key.
    [[nodiscard]] std::optional<std::string> find(std::string_view authorization) const;
    // The same of a key alone.
    [[nodiscard]] std::optional<std::string> find_key(std::string_view key) const;

private:
    static constexpr size_t kMaxKeyBytes = 256;
    struct Key {
        std::string tenant;
        std::array<uint8_t, kMaxKeyBytes> bytes{};  // zeros behind
    };
    static Result<Key> read_line(std::string_view line);
    std::vector<Key> keys_;
};

// Under which state is shared. No tenant: nobody has a key. REQUIRES: no control characters in either.
[[nodiscard]] CacheSalt salt_of(const std::optional<std::string>& tenant, const std::optional<std::string>& cache_salt);

}  // namespace verbatim::server
