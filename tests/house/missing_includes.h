// tests/house/missing_includes.h: names that a file uses and does not include: unity builds compile a folder's files
// together, so another file's include can hide a missing one.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/house/source_text.h"

namespace verbatim::house {

// The repository's headers, their direct and indirect includes, and the types that they declare.
class Includes {
public:
    explicit Includes(const std::vector<SourceFile>& files);

    // Types of the repository without their header, and names of the standard library whose header is included neither
    // here nor by an included header of the repository. A type counts where it is written without its namespace.
    [[nodiscard]] Violations missing(const SourceFile& file) const;

private:
    struct Declaration {
        std::string header;
        std::string space;  // "verbatim::cpu"
    };

    // Every header that `file` includes directly or indirectly.
    [[nodiscard]] std::set<std::string> reached(const SourceFile& file) const;

    std::map<std::string, std::vector<std::string>> included_by_;  // per header of the repository
    std::multimap<std::string, Declaration> types_;
};

}  // namespace verbatim::house
