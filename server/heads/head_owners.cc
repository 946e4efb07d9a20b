#include "server/heads/head_owners.h"

#include <fmt/format.h>

#include "engine/base/check.h"
#include "engine/base/digest.h"

namespace verbatim::server {
namespace {

constexpr size_t kIdChars = 32;

using Ids = std::set<std::string>;

std::vector<std::string> ids_at(const std::map<std::string, Ids>& map, const std::string& key) {
    const auto ids = map.find(key);
    return ids == map.end() ? std::vector<std::string>() : std::vector(ids->second.begin(), ids->second.end());
}

}  // namespace

std::string HeadOwners::owner_of(const ConversationKey& key) {
    Digester digester;
    digester.add(static_cast<uint8_t>(key.salt.value.has_value()));
    digester.add(std::string_view(key.salt.value.value_or("")));
    digester.add(std::string_view(key.conversation_id));
    return digester.digest().hex();
}

HeadOwners HeadOwners::parse(std::string_view lines) {
    HeadOwners owners;
    while (!lines.empty()) {
        const size_t end = lines.find('\n');
        if (end == std::string_view::npos) break;
        owners.take(lines.substr(0, end));
        lines.remove_prefix(end + 1);
    }
    return owners;
}

// "+NAME OWNER": it belongs to this one, too; "-NAME OWNER": no longer; "xNAME": the file is gone.
void HeadOwners::take(std::string_view line) {
    if (line.size() < 1 + kIdChars) return;
    const std::string name(line.substr(1, kIdChars));
    if (line[0] == 'x' && line.size() == 1 + kIdChars) erase(name);
    if (line.size() != 2 + 2 * kIdChars || line[1 + kIdChars] != ' ') return;
    const std::string owner(line.substr(2 + kIdChars));
    if (line[0] == '+') add(name, owner);
    if (line[0] == '-') remove(name, owner);
}

std::string HeadOwners::add(const std::string& name, const std::string& owner) {
    CHECK(name.size() == kIdChars && owner.size() == kIdChars, "head {} of {}", name, owner);
    if (!owners_[name].insert(owner).second) return "";
    names_[owner].insert(name);
    return fmt::format("+{} {}\n", name, owner);
}

std::string HeadOwners::remove(const std::string& name, const std::string& owner) {
    const auto owners = owners_.find(name);
    if (owners == owners_.end() || owners->second.erase(owner) == 0) return "";
    if (owners->second.empty()) owners_.erase(owners);
    const auto names = names_.find(owner);
    CHECK(names != names_.end() && names->second.erase(name) == 1, "head {} is not among those of {}", name, owner);
    if (names->second.empty()) names_.erase(names);
    return fmt::format("-{} {}\n", name, owner);
}

std::string HeadOwners::erase(const std::string& name) {
    if (!owners_.contains(name)) return "";
    for (const std::string& owner : std::set(owners_.at(name))) remove(name, owner);
    CHECK(!owners_.contains(name), "head {} is gone and has owners", name);
    return fmt::format("x{}\n", name);
}

std::vector<std::string> HeadOwners::names() const {
    std::vector<std::string> names;
    for (const auto& [name, owners] : owners_) names.push_back(name);
    return names;
}

std::vector<std::string> HeadOwners::owners_of(const std::string& name) const { return ids_at(owners_, name); }

std::vector<std::string> HeadOwners::names_of(const std::string& owner) const { return ids_at(names_, owner); }

std::string HeadOwners::lines() const {
    std::string lines;
    for (const auto& [name, owners] : owners_)
        for (const std::string& owner : owners) lines += fmt::format("+{} {}\n", name, owner);
    return lines;
}

}  // namespace verbatim::server
