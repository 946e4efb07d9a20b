#include "server/http/page.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

namespace verbatim::server {
namespace {

Result<std::string> read_page_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text.empty())
        return error("{}: a part of the page that / shows cannot be read: is the repository whole?", path);
    return text;
}

struct PageFileKind {
    std::string_view begin;
    std::string_view end;
    std::string_view tag;
};
constexpr PageFileKind kPageFileKinds[] = {{"<link rel=\"stylesheet\" href=\"", "\">", "style"},
                                           {"<script src=\"", "\"></script>", "script"}};

// Of a line that stands for a file: its tag and the file's name.
struct PageFile {
    std::string_view tag;
    std::string_view name;
};
std::optional<PageFile> page_file_of(std::string_view line) {
    for (const PageFileKind& kind : kPageFileKinds) {
        if (!line.starts_with(kind.begin) || !line.ends_with(kind.end)) continue;
        line.remove_prefix(kind.begin.size());
        line.remove_suffix(kind.end.size());
        return PageFile{kind.tag, line};
    }
    return std::nullopt;
}

}  // namespace

Result<std::string> read_page(const std::string& folder) {
    ASSIGN_OR_RETURN(const std::string index, read_page_file(folder + "/index.html"));
    std::string page;
    for (std::string_view rest = index; !rest.empty();) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        const std::optional<PageFile> part = page_file_of(line);
        if (!part) {
            page.append(line).append("\n");
            continue;
        }
        ASSIGN_OR_RETURN(const std::string text, read_page_file(folder + "/" + std::string(part->name)));
        page.append("<").append(part->tag).append(">\n").append(text).append("</").append(part->tag).append(">\n");
    }
    return page;
}

}  // namespace verbatim::server
