// server/heads/head_owners.h: knows which conversations the files of a tier belong to.
//
//   W1  a file belongs to the conversations that published its head, on any branch, and to their forks; a file of
//       requests without a conversation, and one that was imported, belongs to none
//   W2  every change returns a line; the lines of all changes, in order, give the same owners after a restart. A line
//       that is incomplete, because the disk was full, changes nothing
#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request/request.h"

namespace verbatim::server {

class HeadOwners {
public:
    // A conversation as the lines name it: 32 hexadecimal digits.
    [[nodiscard]] static std::string owner_of(const ConversationKey& key);
    [[nodiscard]] static HeadOwners parse(std::string_view lines);

    // Names have 32 characters. Each returns the line of the change, which ends with a line feed; empty: there is none.
    std::string add(const std::string& name, const std::string& owner);
    std::string remove(const std::string& name, const std::string& owner);
    std::string erase(const std::string& name);  // the file is gone

    [[nodiscard]] bool has_any(const std::string& name) const { return owners_.contains(name); }
    [[nodiscard]] std::vector<std::string> names() const;
    [[nodiscard]] std::vector<std::string> owners_of(const std::string& name) const;
    [[nodiscard]] std::vector<std::string> names_of(const std::string& owner) const;
    [[nodiscard]] std::string lines() const;  // the fewest that say all

private:
    void take(std::string_view line);

    std::map<std::string, std::set<std::string>> owners_;  // by name
    std::map<std::string, std::set<std::string>> names_;   // by owner
};

}  // namespace verbatim::server
