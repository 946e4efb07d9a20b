// tests/house/missing_includes.h: what a file names and does not include: builds compile the files of a folder
// together, where one file's include serves the next.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/house/source_text.h"

namespace verbatim::house {

// Our headers, what they include, directly and through each other, and the types that they declare.
class Includes {
public:
    explicit Includes(const std::vector<SourceFile>& files);

    // Types of ours whose header is not included, and names of the standard library whose header is neither included
    // here nor by a header of ours that is. A type counts where it is written without its namespace.
    [[nodiscard]] Violations missing(const SourceFile& file) const;

private:
    struct Declaration {
        std::string header;
        std::string space;  // "verbatim::cpu"
    };

    // Every header, of ours or not, that `file` includes or has included for it.
    [[nodiscard]] std::set<std::string> reached(const SourceFile& file) const;

    std::map<std::string, std::vector<std::string>> included_by_;  // per header of ours
    std::multimap<std::string, Declaration> types_;
};

}  // namespace verbatim::house
