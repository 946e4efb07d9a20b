#include "server/http/tenants.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

namespace verbatim::server {
namespace {

constexpr std::string_view kScheme = "bearer ";  // in any case
constexpr size_t kMinKeyBytes = 8;
constexpr size_t kMaxTenantBytes = 128;

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool is_visible(std::string_view text) {
    return std::ranges::all_of(text, [](char c) { return c > ' ' && c < '\x7f'; });
}

}  // namespace

Result<Tenants> Tenants::read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file.is_open() || file.bad()) return error("--api-key-file {}: the file cannot be read", path);
    return parse(text, path);
}

Result<Tenants> Tenants::parse(std::string_view text, const std::string& path) {
    Tenants tenants;
    for (size_t number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        if (line.ends_with('\r')) line.remove_suffix(1);
        if (line.empty() || line.front() == '#') continue;
        Result<Key> key = read_line(line);
        if (!key) return error("{}:{}: {}", path, number, key.error().message);
        if (std::ranges::find(tenants.keys_, key->bytes, &Key::bytes) != tenants.keys_.end())
            return error("{}:{}: the key stands in an earlier line, too: a key is one tenant's", path, number);
        tenants.keys_.push_back(*std::move(key));
    }
    if (tenants.keys_.empty()) return error("{}: no key is in it: nobody could ask", path);
    return tenants;
}

// The key never appears in an error or a log.
Result<Tenants::Key> Tenants::read_line(std::string_view line) {
    const size_t space = line.find(' ');
    const std::string_view tenant = line.substr(0, space);
    const std::string_view key = space == std::string_view::npos ? "" : line.substr(space + 1);
    if (tenant.empty() || tenant.size() > kMaxTenantBytes || !is_visible(tenant) || key.size() < kMinKeyBytes ||
        key.size() > kMaxKeyBytes || !is_visible(key)) {
        return error(
            "wanted a tenant of up to {} visible ASCII characters, one space, and a key of {} to {} visible ASCII "
            "characters",
            kMaxTenantBytes, kMinKeyBytes, kMaxKeyBytes);
    }
    Key made;
    made.tenant = tenant;
    std::ranges::copy(key, made.bytes.begin());
    return made;
}

std::optional<std::string> Tenants::find(std::string_view authorization) const {
    const bool has_scheme = std::ranges::equal(authorization.substr(0, kScheme.size()), kScheme, {}, lower);
    return find_key(has_scheme ? authorization.substr(kScheme.size()) : "");
}

std::optional<std::string> Tenants::find_key(std::string_view key) const {
    std::array<uint8_t, kMaxKeyBytes> tried{};
    const bool fits = !key.empty() && key.size() <= tried.size();
    if (fits) std::ranges::copy(key, tried.begin());
    size_t found = keys_.size();
    for (size_t i = 0; i < keys_.size(); ++i) found = equal_whole(tried, keys_[i].bytes) ? i : found;
    if (!fits || found == keys_.size()) return std::nullopt;
    return keys_[found].tenant;
}

CacheSalt salt_of(const std::optional<std::string>& tenant, const std::optional<std::string>& cache_salt) {
    if (!tenant) return {cache_salt};
    return {fmt::format("\x1f{}\x1f{}", *tenant, cache_salt ? "=" + *cache_salt : "")};
}

}  // namespace verbatim::server
